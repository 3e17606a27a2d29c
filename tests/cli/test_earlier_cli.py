"""``gnnbench compare A.json B.json``: what became faster or slower, and what is refused."""

import json
import re
from dataclasses import fields, replace
from statistics import median

import numpy as np
import pytest

from gnnbench.records import Metric, Workload
from gnnbench.report.results.schema import to_document, write_json
from tests.report.example_comparison import do_work, make_comparison, make_failure, make_run


def draw(seed, middle_s=0.1, count=40):
    """Epochs that vary by 2 % about a middle."""
    return tuple(np.random.default_rng(seed).normal(middle_s, 0.02 * middle_s, count).tolist())


@pytest.fixture
def hold(run, tmp_path):
    """Writes two comparisons, compares the files, and returns the result and its JSON rows."""

    def hold_files(before, after):
        for name, comparison in (("before.json", before), ("after.json", after)):
            write_json(to_document(comparison), tmp_path / name)
        target = tmp_path / "change.json"
        paths = (tmp_path / "before.json", tmp_path / "after.json")
        found = run("compare", *paths, "--json", target)
        document = json.loads(target.read_text()) if target.exists() else {"rows": []}
        return found, {row["label"]: row for row in document["rows"]}

    return hold_files


def measured(*runs, **changes):
    return replace(make_comparison(*runs, modelled=False), **changes)


def test_a_row_that_takes_a_tenth_longer_is_slower_and_the_status_says_so(hold):
    before = measured(
        make_run("a", epoch_s=draw(0), provenance="measured"),
        make_run("b", epoch_s=draw(1), provenance="measured"),
        make_run("c", epoch_s=draw(2), provenance="measured"),
    )
    after = measured(
        make_run("a", epoch_s=draw(3, 0.11), provenance="measured"),
        make_run("b", epoch_s=draw(4, 0.1 / 1.1), provenance="measured"),
        make_run("c", epoch_s=draw(5), provenance="measured"),
    )
    found, rows = hold(before, after)
    assert found.exit_code == 1
    words = " ".join(found.output.split())
    assert "a takes 1.1" in words
    assert "b is 1.1" in words
    assert "no difference is shown for c" in words
    assert rows["a"]["ratio"] == pytest.approx(1 / 1.1, rel=0.03)
    low, high = rows["b"]["interval"]
    assert low < 1.1 < high
    assert [rows[label]["difference_shown"] for label in "abc"] == [True, True, False]


def test_what_became_faster_is_no_regression(hold):
    before = make_comparison(make_run("a", epoch_s=(0.2, 0.21)))
    found, rows = hold(before, make_comparison(make_run("a", epoch_s=(0.1, 0.11))))
    assert found.exit_code == 0
    assert rows["a"]["difference_shown"]


def test_a_slower_row_gives_the_status_beside_one_that_cannot_be_compared(hold):
    before, after = (make_run("a", epoch_s=(low, 1.05 * low)) for low in (0.1, 0.2))
    found, rows = hold(make_comparison(before), make_comparison(after, make_run("b")))
    assert found.exit_code == 1
    assert rows["b"]["interval"] is None


def test_samples_of_two_files_are_no_pairs(hold):
    # In turns, every epoch of the one would be a little longer than the other's of its number; of
    # two files they are two piles of numbers, which nothing tells apart.
    times = draw(7)
    longer = tuple(1.001 * seconds for seconds in times)
    found, rows = hold(
        measured(make_run("a", epoch_s=times, provenance="measured")),
        measured(make_run("a", epoch_s=longer, provenance="measured")),
    )
    assert found.exit_code == 0
    assert not rows["a"]["difference_shown"]


def pace(run, samples):
    """The run with a yardstick beside each of its epochs, the first of which is cold."""
    epoch = run.metrics["epoch_time"]
    cold = replace(epoch, samples=(1.0, *epoch.samples), warmup=1)
    paces = Metric(median(samples), "s", "measured", (0.5, *samples), 1)
    return replace(run, metrics={**run.metrics, "epoch_time": cold, "yardstick": paces})


def test_a_slower_machine_is_no_regression(hold):
    """All takes 1.4 times as long, the yardstick too; a file without one leaves that unknown."""
    before = make_run("a", epoch_s=draw(0), provenance="measured")
    after = make_run("a", epoch_s=draw(1, 0.14), provenance="measured")
    paced = pace(before, draw(2, 0.001)), pace(after, draw(3, 0.0014))
    found, rows = hold(measured(paced[0]), measured(paced[1]))
    words = " ".join(found.output.split())
    assert found.exit_code == 0
    assert not rows["a"]["difference_shown"]
    assert re.search(r"took 1\.[34]\d times as long in after.json as in before.json", words)
    assert "95 % of measured rows" in words
    assert "beyond 5 %" in words
    low, high = rows["a"]["interval"]
    assert low < 0.72
    assert 0.98 < high < 1.05
    steady = pace(after, draw(3, 0.001))
    assert hold(measured(paced[0]), measured(steady))[0].exit_code == 1
    found, _ = hold(measured(before), measured(paced[1]))
    assert "before.json has no yardstick" in " ".join(found.output.split())


@pytest.mark.parametrize("place", [0, 1])
def test_beside_other_programs_nothing_can_be_told(hold, place):
    files = [
        measured(make_run("a", epoch_s=draw(seed, seconds), provenance="measured"))
        for seed, seconds in ((0, 0.1), (1, 0.2))
    ]
    noise = "other processes took 86% of the processor's time meanwhile"
    files[place] = replace(files[place], noise=noise)
    found, rows = hold(*files)
    name = ("before.json", "after.json")[place]
    words = " ".join(found.output.split())
    assert found.exit_code == 4
    assert f"cannot tell whether a became faster: the machine was busy in {name}" in words
    assert f"In {name} {noise}." in words
    assert rows["a"]["ratio"] is None
    assert not rows["a"]["difference_shown"]
    assert rows["a"]["why_not"] == f"cannot tell: the machine was busy in {name}"


def test_the_same_file_twice_shows_nothing(hold):
    comparison = make_comparison(make_run("a", epoch_s=(0.1,) * 3))
    found, rows = hold(comparison, comparison)
    assert found.exit_code == 0
    assert rows["a"]["ratio"] == 1.0
    assert not rows["a"]["difference_shown"]
    assert not rows["a"]["changes"]


def test_bytes_and_joules_that_differ_by_a_two_hundredth_are_listed(hold):
    def make(crossing, returning, energy, wall_s):
        row, bytes_ = make_run("a"), {"host_to_device": crossing, "device_to_host": returning}
        changed = {f"{way}_bytes": Metric(size, "B", "modelled") for way, size in bytes_.items()}
        changed["energy"] = Metric(energy, "J", "modelled")
        changed["wall_time"] = Metric(wall_s, "s", "measured")
        return make_comparison(replace(row, metrics={**row.metrics, **changed}))

    _, rows = hold(make(1.0e9, 1000.0, 10.0, 1.0), make(0.5e9, 1004.0, 10.1, 2.0))
    assert rows["a"]["changes"] == {
        "host_to_device_bytes": {"before": 1.0e9, "after": 0.5e9, "unit": "B"},
        "energy": {"before": 10.0, "after": 10.1, "unit": "J"},
    }


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (make_run("b"), make_run("a"), "it is not in before.json"),
        (make_run("a"), make_failure("a", "out-of-memory", "full"), "out-of-memory in after.json"),
        (make_run("a", fault="off"), make_run("a"), "not equal to the reference in before.json"),
        (do_work("a"), do_work("a", updates=4), "other work: updates 3 and 4"),
        (do_work("a"), do_work("a", sampling="none"), "other work: sampling"),
        (make_run("a"), make_run("a", provenance="measured"), "modelled in the one and measured"),
    ],
)
def test_what_cannot_be_compared_says_why(hold, before, after, why):
    found, rows = hold(make_comparison(before), make_comparison(after))
    assert found.exit_code == 4
    assert why in rows["a"]["why_not"]
    assert rows["a"]["ratio"] is None
    assert "no row to compare" in found.output


def test_other_machines_are_said(hold):
    row = make_run("a", epoch_s=draw(0), provenance="measured")
    there = {**make_comparison().machine, "cpu": "Another CPU", "threads": 8}
    found, _ = hold(measured(row), measured(row, machine=there))
    words = " ".join(found.output.split())
    assert "The machines differ in cpu Example CPU and Another CPU; threads 2 and 8." in words


def test_another_dataset_is_refused(hold):
    before = make_comparison(make_run("a"))
    found, _ = hold(before, replace(before, dataset={**before.dataset, "digest": "another"}))
    assert found.exit_code == 2
    assert found.output.count(".json") == 2


#: What a result file does not have: whether there are edge weights is the data set's.
NOT_IN_FILES = {"edge_weights"}


@pytest.mark.parametrize("name", [each.name for each in fields(Workload)])
def test_other_work_is_refused_or_told(hold, name):
    """Each field of a workload is compared: a difference refuses the files or is a warning."""
    before = make_comparison(make_run("a"))
    value = getattr(before.workload, name)
    other = {"model": "sage", "dims": (8415, 64, 5), "fanouts": (3, 2), "dtype": "float64"}
    changed = other.get(name) or (not value if isinstance(value, bool) else value + 1)
    after = replace(before, workload=replace(before.workload, **{name: changed}))
    found, rows = hold(before, after)
    words = " ".join(found.output.split())
    if name in NOT_IN_FILES:
        assert "The workloads differ" not in words
    elif name in ("epochs", "seed", "weight_decay", "threads"):
        assert rows["a"]["why_not"] == ""
        assert f"The workloads differ in {name} {value:,} and {changed:,}." in words
    else:
        assert found.exit_code == 2
        assert "which is other work" in words
        assert words.count(".json") == 2


def test_files_are_named_in_twos_and_alone(run, tmp_path):
    path = tmp_path / "one.json"
    write_json(to_document(make_comparison(make_run("a"))), path)
    assert run("compare", path).exit_code == 2
    assert run("compare", path, path, "--seed", "3").exit_code == 2
    assert run("compare").exit_code == 2
    assert run("compare", path, tmp_path / "none.json").exit_code == 2
    text = path.read_text()
    assert run("compare", path, path, "--json", path).exit_code == 2
    assert path.read_text() == text
