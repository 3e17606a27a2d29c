"""``gnnbench compare`` from the command line to the files, on a real graph; and bad input."""

import json

import pytest
from click.testing import CliRunner

from gnnbench.cli import main
from gnnbench.datasets import find_shared_data
from gnnbench.report.results.schema import read_json
from tests.commands import read_runs

GRAPH = "sbm:vertices=120,edges=600,features=8,classes=3"
QUICK = ("--epochs", "2", "--hidden", "8", "--threads", "1")


@pytest.fixture(scope="module")
def cora(tmp_path_factory):
    """What is printed of two systems on Cora, and the folder of the three outputs."""
    assert find_shared_data() is not None
    folder = tmp_path_factory.mktemp("cora")
    outputs = [
        word
        for kind in ("json", "trace", "html")
        for word in (f"--{kind}", str(folder / f"out.{kind}"))
    ]
    words = ["compare", "--plugins", "hyscale,hongtu", "--dataset", "cora", *QUICK, *outputs]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    return result.stdout, folder


def test_two_systems_on_cora(cora):
    """Each system is beside its plain counterpart."""
    printed, folder = cora
    document = read_json(folder / "out.json")
    assert [(r.label, r.mode, r.status) for r in document.runs] == [
        ("hyscale", "mini-batch", "done"),
        ("data-parallel", "mini-batch", "done"),
        ("hongtu", "full-graph", "done"),
        ("hongtu·vanilla", "full-graph", "done"),
    ]
    for entry in document.runs:
        assert len(entry.loss) == 2
        assert entry.equivalence is not None
        assert (entry.equivalence.equal, entry.equivalence.fault) == (True, "")
        assert entry.work.ranked
        assert entry.work.updates >= 1
        assert entry.metrics["epoch_time"].value > 0
        assert entry.metrics["wall_time"].provenance == "measured"
        assert entry.stages
    assert document.platform.modelled == (
        document.runs[0].metrics["epoch_time"].provenance == "modelled"
    )
    events = json.loads((folder / "out.trace").read_text())["traceEvents"]
    assert {e["args"]["name"] for e in events if e["name"] == "process_name"} == {
        f"{each.label} [{each.mode}]" for each in document.runs
    }
    assert "<svg" in (folder / "out.html").read_text(encoding="utf-8")
    lines = printed.splitlines()
    title = "gnnbench compare · cora · GCN 2 layers, 1433-8-7 · 2 epochs, seed 0 · "
    assert lines[0].startswith(title)
    answer = next(i for i, line in enumerate(lines) if line.startswith(" Full graph: "))
    table = next(i for i, line in enumerate(lines) if line.startswith(" full graph "))
    assert answer < table < lines.index(" mini-batch")


def test_another_run_finds_the_same_and_details_print_every_figure(run, cora):
    document = read_json(cora[1] / "out.json")
    (first,) = [each for each in document.runs if each.label == "hongtu"]
    words = ("--plugins", "hongtu", "--dataset", "cora", "--platform", document.platform.name)
    result = run("compare", *words, *QUICK, "--no-plain", "--details", "--json", "-")
    (again,) = json.loads(result.stdout)["runs"]
    assert again["loss"] == list(first.loss)
    epoch = again["metrics"]["epoch_time"]
    if epoch["provenance"] == "modelled":
        assert epoch["value"] == first.metrics["epoch_time"].value
    for heading, always in (("stages [", False), ("edges/s", True), ("this machine", False)):
        assert heading in result.stderr
        assert (heading in cora[0]) == always


def test_no_check_checks_nothing_and_target_accuracy_is_timed(run):
    words = ("compare", "--plugins", "reference", "--dataset", GRAPH, *QUICK, "--no-check")
    result = run(*words, "--target-accuracy", "0.01", "--json", "-")
    (row,) = json.loads(result.stdout)["runs"]
    assert row["equivalence"] is None
    assert "not checked" in result.stderr
    assert row["metrics"]["time_to_accuracy"]["unit"] == "s"
    assert "accuracy [" in result.stderr


def test_a_swap_adds_a_row_and_repeats_are_kept_apart(run):
    words = ("--swap", "communication=vanilla", "--repeats", "2", "--no-check", "--json", "-")
    runs = read_runs(run("compare", "--plugins", "hongtu", "--dataset", GRAPH, *QUICK, *words))
    assert [(r["label"], r["repeat"], r["parts"]["communication"]) for r in runs] == [
        ("hongtu", 0, "hongtu"),
        ("hongtu", 1, "hongtu"),
        ("hongtu·vanilla", 0, "vanilla"),
        ("hongtu·vanilla", 1, "vanilla"),
    ]
