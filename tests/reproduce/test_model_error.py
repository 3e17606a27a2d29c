"""How far modelled times are to be believed: the statistic of the ledger, and what verdicts make
of it."""

import math
from dataclasses import replace

import numpy as np
import pytest

from gnnbench.comparison.ranking import find_difference, find_doubt, group_runs
from gnnbench.machines import load_platform
from gnnbench.price import model_error
from gnnbench.price.model_error import (
    FEWEST_GROUPS,
    ModelError,
    describe_errors,
    error_of,
    estimate_errors,
    find_basis,
    find_kind,
    find_path,
    format_factor,
    read_errors,
    widen,
    write_errors,
)
from gnnbench.records import EpochWork, LedgerEntry, Metric, Origin, PathKind, Subject
from gnnbench.report.comparison import provenance_line
from gnnbench.report.results.schema import dump_json, to_document
from gnnbench.report.verdict import summarise
from tests.report.example_comparison import make_comparison, make_run

GPU = PathKind("gpu", "torch", "full graph", "large")


def make_entry(number, error, unit="s", fitted_on=(), **fields):
    """A measurement of 2 that is predicted ``exp(error)`` times as long."""
    predicted = 2.0 * math.exp(-error if unit.endswith("/s") else error)
    given = {"source": "a", "group": str(number), "kernel": "dgl", "path": GPU, **fields}
    return LedgerEntry(
        id=str(number), group=given["group"], machine="m", what="w", measured=2.0,
        predicted=predicted, unit=unit, path=given["path"],
        subject=Subject("l", given["kernel"], "g", "gcn"), origin=Origin(given["source"], "q"),
        fitted_on=fitted_on,
    )  # fmt: skip


def make_ledger(own, kernel, shared, *, sources=60, each=4):
    """Errors that are sums of three independent ones, of the deviations given."""
    random = np.random.default_rng(1)
    entries = []
    for source in range(sources):
        common = random.normal(0, shared)
        for name in ("dgl", "pyg"):
            of_kernel = random.normal(0, kernel)
            entries += [
                make_entry(
                    f"{source}-{name}-{number}",
                    common + of_kernel + random.normal(0, own),
                    unit="FLOP/s" if number % 2 else "s",
                    source=str(source),
                    kernel=name,
                )
                for number in range(each)
            ]
    return entries


@pytest.mark.parametrize(("own", "kernel", "shared"), [(0.1, 0.3, 1.0), (0.4, 0.0, 0.5)])
def test_planted_parts_of_errors_are_found(own, kernel, shared):
    errors = estimate_errors(make_ledger(own, kernel, shared))
    found = errors[GPU]
    assert list(errors) == [widen(GPU), GPU]
    assert errors[widen(GPU)] == found
    assert found.groups == 480
    assert found.own == pytest.approx(own, rel=0.15)
    assert found.kernel == pytest.approx(kernel, rel=0.3, abs=0.1)
    # Four fifths of a normal distribution lie within 1.2816 deviations.
    total = math.hypot(own, kernel, shared)
    assert math.log(found.factor) == pytest.approx(1.2816 * total, rel=0.15)
    assert found.total == pytest.approx(total, rel=0.15)


def test_what_was_fitted_on_is_left_out():
    ledger = make_ledger(0.1, 0.1, 0.1)
    fitted = [make_entry("f", 5.0, fitted_on=("a rate",)) for _ in range(500)]
    assert estimate_errors([*ledger, *fitted]) == estimate_errors(ledger)


def test_below_eight_groups_of_a_kind_of_path_there_is_no_basis(monkeypatch):
    """Multiples of one measurement are one group; an epoch of other size or mode is another
    kind, and a part of an epoch is none."""
    sampled = PathKind("gpu", "torch", "sampled", "large")
    few = [make_entry(number, 0.5, path=sampled) for number in range(FEWEST_GROUPS - 1)]
    few += [make_entry(f"multiple {number}", 0.5, path=sampled, group="0") for number in range(9)]
    few += [make_entry("part", 0.5, path=replace(sampled, work="part"))]
    few += [make_entry("cpu", 0.5, path=replace(sampled, machine="cpu"))]
    monkeypatch.setattr(model_error, "_read_kept", lambda: estimate_errors(few))
    assert error_of(sampled) is None
    assert describe_errors([sampled]) == (
        "no basis for kinds with fewer than 8 held-out groups: (gpu, torch, sampled, over 100 M "
        "edges per epoch) has 7"
    )
    # All epochs on such a machine stand in, and the kind is still without a basis.
    few += [make_entry("small", 3.0, path=replace(sampled, size="small"))]
    few += [make_entry("another", 3.0, path=replace(sampled, library="dgl"))]
    assert error_of(sampled).factor == pytest.approx(math.exp(3.0))
    assert describe_errors([sampled]) == (
        "80 % of 9 held-out groups of measurements (gpu, all epochs) are within 20x of their "
        "prediction; a kind with fewer than 8 groups has the error of all epochs on its type of "
        "machine: (gpu, torch, sampled, over 100 M edges per epoch) has 7"
    )
    few.append(make_entry("one more", 0.5, path=sampled))
    assert error_of(sampled).factor == pytest.approx(math.exp(0.5))
    assert describe_errors([sampled, sampled]) == (
        "80 % of 8 held-out groups of measurements (gpu, torch, sampled, over 100 M edges per "
        "epoch) are within 1.6x of their prediction"
    )
    both = describe_errors([sampled, GPU])
    assert both.startswith("80 % of 8")
    assert both.endswith("(gpu, torch, full graph, over 100 M edges per epoch) has 0")
    few.append(make_entry("fitted", 0.0, path=sampled, fitted_on=("a rate",), group="3"))
    assert find_basis(sampled) == widen(sampled)


def test_the_kind_of_path_is_machine_library_work_and_size():
    found = find_path("cpu", "pyg-messages", "mini-batch", 100e6)
    assert found == PathKind("cpu", "pyg", "sampled", "small")
    assert find_path("cpu", "dgl", None, 101e6) == PathKind("cpu", "dgl", "part", "large")
    assert find_path(None, "dgl", "full-graph", 1) is None


def test_errors_are_kept_and_read_back(tmp_path):
    errors = {
        GPU: ModelError(12, 1.5, 0.25, 0.125),
        replace(GPU, machine="cpu"): ModelError(9, 12.0, 0.5, 0.0),
    }
    write_errors(errors, tmp_path / "errors.toml")
    assert read_errors(tmp_path / "errors.toml") == errors


@pytest.mark.parametrize(
    ("platform", "devices", "kind"),
    [
        ("r6i-16xlarge", ["host"], "cpu"),
        ("epyc7763x2-4xa5000", ["host"], "cpu"),
        ("epyc7763x2-4xa5000", ["gpu2"], "gpu"),
        ("epyc7763x2-4xa5000", ["gpu2", "host"], "gpu"),
        ("epyc7763x2-4xa5000", ["gpu0", "gpu1"], "multi-gpu"),
        ("epyc7763x4-8xa5000", ["node0_gpu0", "node1_gpu0"], "multi-node"),
        ("epyc7763x4-8xa5000", ["node0_gpu0", "node0_gpu1"], "multi-gpu"),
        ("ecs-r5x16", ["node0", "node1"], "multi-node"),
        ("epyc7763x2-4xu250", ["fpga0"], "fpga"),
        ("xeon8462-8xh100-8xspu", ["gpu0", "spu0"], "fpga"),
    ],
)
def test_the_devices_at_work_say_which_kind_of_machine_it_is(platform, devices, kind):
    machine = load_platform(platform)
    assert set(devices) <= {device.name for device in machine.devices}
    assert find_kind(machine, devices) == kind


@pytest.fixture(autouse=True)
def known(monkeypatch, tmp_path):
    """Errors of which half a deviation is a row's own, and a quarter the kernel's."""
    path = tmp_path / "errors.toml"
    known = ModelError(20, 3.0, 0.5, 0.25)
    errors = {GPU: known, replace(GPU, library="dgl"): known}
    errors[replace(GPU, machine="multi-gpu")] = ModelError(99, 9.0, 1.0, 1.0)
    errors[replace(GPU, machine="cpu")] = ModelError(7, 1.1, 0.1, 0.1)
    write_errors(errors, path)
    errors = read_errors(path)
    monkeypatch.setattr(model_error, "_read_kept", lambda: errors)


def row(label, epoch_s, kind="gpu", devices=("gpu0",), kernel="torch", memory="host", **stages):
    """A modelled run on a kind of machine with so many seconds in its stages."""
    run = make_run(label, epoch_s=(epoch_s,))
    work = EpochWork(1, 8621, 10**9, devices, "every neighbour", kind)
    return replace(
        run,
        parts=replace(run.parts, kernel=kernel, memory=memory),
        work=work,
        stages={stage: Metric(seconds, "s", "modelled") for stage, seconds in stages.items()},
        metrics={**run.metrics, "epoch_time": replace(run.metrics["epoch_time"], error_factor=3.0)},
    )


def doubt(*runs):
    (group,) = group_runs(make_comparison(*runs))
    return find_doubt(*group.rows)


OWN, BOTH = 0.5, math.hypot(0.5, 0.25)


@pytest.mark.parametrize(
    ("one", "other", "deviation"),
    [
        # Rows that do the same share all of the error.
        ({"transfer": 0.5, "update": 0.5}, {"transfer": 0.5, "update": 0.5}, 0.0),
        # What one row does besides is all that it may be off by.
        ({"transfer": 0.5, "update": 0.5}, {"transfer": 1.5, "update": 0.5}, OWN * 0.5),
        # Other kernels aggregate and update apart.
        (
            {"transfer": 0.5, "aggregate": 0.5},
            {"transfer": 0.5, "aggregate": 0.5, "kernel": "dgl"},
            BOTH * 0.5 * math.sqrt(2),
        ),
        # Other devices compute apart, and another memory loads apart.
        (
            {"transfer": 0.5, "update": 0.5},
            {"transfer": 0.5, "update": 0.5, "devices": ("gpu0", "host")},
            OWN * 0.5 * math.sqrt(2),
        ),
        (
            {"load": 0.5, "update": 0.5},
            {"load": 0.5, "update": 0.5, "memory": "cache"},
            OWN * 0.5 * math.sqrt(2),
        ),
        # Other kinds of machine share nothing.
        (
            {"update": 1.0},
            {"update": 1.0, "kind": "multi-gpu"},
            math.hypot(math.log(3.0), math.log(9.0)) / 1.28155,
        ),
    ],
)
def test_rows_are_doubted_by_what_they_do_apart(one, other, deviation):
    runs = [
        row(label, sum(s for s in given.values() if isinstance(s, float)), **given)
        for label, given in (("a", one), ("b", other))
    ]
    assert math.log(doubt(*runs)) == pytest.approx(1.28155 * deviation, rel=1e-4)
    assert doubt(*(make_run(label, provenance="measured") for label in "ab")) == 1.0


def judge(*runs):
    groups = group_runs(make_comparison(*runs))
    return summarise(groups)[0], find_difference(*groups[0].rows[:2]).shown


def test_fastest_needs_a_gap_larger_than_what_the_errors_share_out_to():
    """Two rows with nothing in common differ by e^(1.28 x 0.5 x sqrt 2) = 2.47 by error alone."""
    near = [row("a", 1.0, transfer=1.0), row("b", 2.4, aggregate=2.4)]
    sentence, shown = judge(*near)
    assert not shown
    assert (
        "a takes 1.00 s an epoch [modelled]; no difference is shown between a and b (the"
        in sentence
    )
    assert "modelled ratio is 2.40x; its error is up to a factor of 2.47)" in sentence
    # The doubt of a winner stands in its sentence: within the factor 2.47 of 2.6 times.
    sentence, shown = judge(near[0], row("b", 2.6, aggregate=2.6))
    assert shown
    assert "a is fastest, 1.00 s an epoch [modelled], 2.60 times (80 %: 1.05 to 6.43)" in sentence
    # With the same stage before them, the same gap is shown.
    sentence, shown = judge(row("a", 1.0, transfer=1.0), row("b", 2.4, transfer=2.4))
    assert shown


def test_without_a_basis_no_winner_is_named():
    """Seven held-out groups of such CPUs are too few, however far apart the rows are."""
    sentence, shown = judge(
        *(row(label, s, kind="cpu", update=s) for label, s in (("a", 1.0), ("b", 9.0)))
    )
    assert not shown
    assert (
        "a has the shortest modelled epoch, 1.00 s an epoch [modelled], 9.00 times as fast as b"
        in sentence
    )
    assert "no winner is named (no basis for kinds with fewer than 8 held-out" in sentence
    assert "(cpu, torch, full graph, over 100 M edges per epoch) has 7" in sentence
    assert "fastest" not in sentence


@pytest.mark.parametrize(("factor", "text"), [(1.26, "1.3"), (9.94, "9.9"), (12.4, "12")])
def test_a_factor_has_two_digits(factor, text):
    assert format_factor(factor) == f"x/÷ {text}"


def test_the_factor_stands_once_in_the_column_and_in_the_file():
    comparison = make_comparison(row("a", 1.0, update=1.0), row("b", 2.4, transfer=2.4))
    line = provenance_line(comparison)
    assert line.count("80 % of 20 held-out groups of measurements (gpu, torch, full graph") == 1
    assert "within 3x of their prediction (see gnnbench reproduce validation)" in line
    document = to_document(comparison)
    assert [run.metrics["epoch_time"].error_factor for run in document.runs] == [3.0, 3.0]
    assert [run.work.kind for run in document.runs] == ["gpu", "gpu"]
    assert dump_json(document).count("error_factor") == 2
