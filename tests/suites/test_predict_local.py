"""``suites.predict_local``: who takes turns, what is held against what, and what is told."""

import json
from dataclasses import replace
from statistics import median
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from gnnbench import datasets, plugins
from gnnbench.machines.machine import (
    Device,
    Hardware,
    MemoryRates,
    Platform,
    RateCurve,
    TrainerRates,
)
from gnnbench.machines.workers import take_cores
from gnnbench.records import CopyWork, EpochTrace, Span
from suites import predictions
from suites.yardstick import Lengths, Yardstick, find_slowdown, middle, shorter
from tests.commands import read_document

GRAPH = "sbm:vertices=200,edges=800,features=16,classes=4"


@pytest.fixture(scope="module")
def suite(import_suite):
    return import_suite("predict_local")


@pytest.fixture
def platform():
    host = Device(
        "host",
        "cpu",
        "made for a test",
        Hardware(1e9, 1e9, 2**33),
        rates=TrainerRates(sampled_edges_per_s=1e6),
        virtual=False,
    )
    return Platform("local", "a machine", host, (), ())


class Fixed:
    """A yardstick that takes longer and longer: twice a second, four times, six ..."""

    measured = 0

    def measure(self):
        self.measured += 1
        return Lengths(2.0 * self.measured, 1.0, 1.0)


@pytest.fixture
def probed(suite, platform):
    return suite.Probed(platform, Fixed(), Lengths(2.0, 1.0, 1.0))


def make_cell(strategy, predicted_s, taken_s):
    return predictions.Cell(strategy, "full-graph", "gcn", "cora", predicted_s, taken_s, 9.0)


def test_each_is_predicted_and_trained_and_who_cannot_says_why(suite, probed):
    turns = suite.Turns(plugins.load(), probed, datasets.load(GRAPH), "gcn", "mini-batch", "made")
    found = {each.strategy: each for each in turns.run(["hpgnn", "reference", "hyscale"], 0.0)}
    assert "trains on an FPGA" in found["hpgnn"].reason
    for name in ("reference", "hyscale"):
        cell = found[name]
        assert (cell.model, cell.graph) == ("gcn", "made")
        assert min(cell.predicted_s, cell.taken_s, cell.wall_s) > 0.0


@pytest.mark.parametrize(("share", "epochs"), [(1.5, 2), (0.6, 2), (0.4, 3)])
def test_all_take_turns_of_which_the_first_two_do_not_count_nor_the_first_epoch_of_any(
    suite, probed, monkeypatch, share, epochs
):
    """An epoch takes this share of a turn; those that must not count take a fifth longer. The
    yardstick is measured before each turn: its median of six is (3 + 4) / 2 times the first."""
    order: list[str] = []

    class Training:
        def __init__(self, bundle, setting, clock) -> None:
            self._name = bundle.kernel.name

        def run_epoch(self, number):
            assert number == order.count(self._name)
            counts = number >= 2 * epochs and number % epochs
            order.append(self._name)
            wall_s = suite.TURN_S * share * (1.0 if counts else 1.2)
            return EpochTrace(number, (), {}, 0, 0, 0, 0.0, (), {}, wall_s, 0.0)

    monkeypatch.setattr(suite, "Training", Training)
    turns = suite.Turns(plugins.load(), probed, datasets.load(GRAPH), "gcn", "full-graph", "made")
    cells = list(turns.run(["reference", "native"], 0.0))
    both = ["torch"] * epochs + ["native"] * epochs
    assert order == both * (2 + suite.FEWEST_TURNS)
    assert [cell.wall_s for cell in cells] == [suite.TURN_S * share] * 2
    assert [cell.slowdown for cell in cells] == [pytest.approx(3.5 ** (1 / 3))] * 2
    unknown = replace(probed, lengths=None)
    order.clear()
    turns = suite.Turns(plugins.load(), unknown, datasets.load(GRAPH), "gcn", "full-graph", "made")
    assert [cell.slowdown for cell in turns.run(["reference"], 0.0)] == [1.0]


def test_errors_are_told_as_they_are_and_at_the_speed_that_was_probed():
    cells = [
        replace(make_cell("pyg", 2.0, 4.0), slowdown=1.6),
        replace(make_cell("dgl", 3.0, 4.0), slowdown=2.0),
    ]
    assert predictions.list_sentences(cells, [])[:2] == [
        "The median error of 2 epochs is 38%, and the largest is 50%, of pyg full-graph gcn cora.",
        "While it trained, this machine took 1.80 times as long for the same work as when it was "
        "probed, and at most 2.00 times; without that the median error is 35%, and the largest is "
        "50%, of dgl full-graph gcn cora.",
    ]
    found = predictions.summarise(cells, [])
    assert found["steady_median_error"] == pytest.approx(0.35)
    # Of both runs together: 3 s and 4 s, or 3 s and 2.5 s at the speed that was probed.
    fast = replace(cells[0], taken_s=3.0, slowdown=1.0)
    (joined,) = predictions.join_runs([[fast], [cells[0]]])
    assert (joined.taken_s, joined.steady_s) == (3.0, pytest.approx(2.5))
    (joined,) = predictions.join_runs([[fast], [cells[0]]], median)
    assert (joined.taken_s, joined.steady_s) == (3.5, pytest.approx(2.75))


def test_the_yardstick_is_the_same_work_each_time():
    rod = Yardstick(1)
    assert all(length > 0.0 for length in rod.measure())
    lengths = [Lengths(1.0, 8.0, 3.0), Lengths(2.0, 9.0, 5.0), Lengths(9.0, 1.0, 4.0)]
    assert middle(lengths) == (2.0, 8.0, 4.0)
    assert shorter(lengths[0], lengths[2]) == (1.0, 1.0, 3.0)
    assert find_slowdown(Lengths(2.0, 4.0, 1.0), Lengths(1.0, 1.0, 1.0)) == pytest.approx(2.0)


def test_a_probe_stands_between_two_measurements_of_the_yardstick(suite, platform, monkeypatch):
    """The shorter counts, as the better of a probe's passes does."""
    order: list[str] = []

    class Watched(Fixed):
        def __init__(self, cores) -> None:
            self.cores = cores

        def measure(self):
            order.append("measured")
            return super().measure()

    def probe_libraries(host, registry, seconds):
        order.append("probed")
        assert (host, seconds) == ("a host", 3.0)
        return SimpleNamespace(platform=platform)

    monkeypatch.setattr(suite, "Yardstick", Watched)
    monkeypatch.setattr(suite, "probe", lambda seconds: "a host")
    monkeypatch.setattr(suite, "probe_libraries", probe_libraries)
    found = suite.look_now(plugins.load(), 1, 3.0)
    measured = ["measured"] * suite.MEASURED
    assert order == [*measured, "probed", *measured]
    assert found.lengths == (suite.MEASURED + 1.0, 1.0, 1.0)
    assert (found.platform, found.yardstick.cores) == (platform, 1)


def test_a_ratio_is_of_epochs_that_did_the_same():
    cells = [
        make_cell("pyg", 4.0, 2.0),
        make_cell("dgl", 2.0, 4.0),
        replace(make_cell("native", 1.0, 1.0), graph="citeseer"),
        make_cell("reference", 1.0, 1.0),
    ]
    (ratio,) = predictions.find_ratios(cells)
    assert (ratio.first, ratio.second, ratio.graph) == ("pyg", "dgl", "cora")
    assert (ratio.modelled, ratio.measured) == (0.5, 2.0)
    assert ratio.error == pytest.approx(-0.75)
    sentences = predictions.list_sentences(cells, [ratio])
    assert sentences[0] == (
        "The median error of 4 epochs is 25%, and the largest is 100%, of pyg full-graph gcn cora."
    )
    assert sentences[1].startswith("0 of 1 modelled ratios of two libraries are within 25%")
    assert sentences[2] == "  dgl / pyg, full-graph gcn cora: modelled 0.50, measured 2.00"
    assert predictions.list_sentences([], []) == ["Nothing ran here."]


def test_an_epoch_that_waited_for_others_lasts_as_long_as_it_computed(suite):
    span = Span(0, "load", "load", "host", (), CopyWork(), (), 0, 0, 0, 2.0, 0.0, 2.0)
    epoch = EpochTrace(0, (span,), {}, 0, 0, 0, 0.0, (), {}, 8.0, 0.0)
    found = suite.in_processor_time(epoch, 2.0)
    assert (found.wall_s, found.spans[0].seconds) == (2.0, 0.5)
    # Several threads may compute for longer than the epoch lasts.
    assert suite.in_processor_time(epoch, 9.0).wall_s == 8.0


def test_cores_of_a_host_reach_what_they_do_without_the_others():
    curve = RateCurve((4, 64), (30.0, 90.0), (10.0, 80.0))
    host = Device(
        "host",
        "cpu",
        "",
        Hardware(400.0, 100.0, 1),
        cores=4,
        memory=MemoryRates(core_bandwidth_bytes_per_s=40.0),
        rates=TrainerRates(gather=curve),
    )
    two = take_cores(host, 2)
    assert (two.cores, two.hardware.flops_per_s, two.hardware.memory_bandwidth_bytes_per_s) == (
        2,
        200.0,
        80.0,
    )
    assert two.rates.gather.rates == (20.0, 90.0)
    assert two.rates.update is None
    assert take_cores(host, 4) is host


def test_all_that_was_found_is_in_the_document(suite, platform, monkeypatch):
    """The machine is looked at before each graph of each run."""
    looked = []

    def look(name):
        looked.append(name)
        return platform

    monkeypatch.setattr(suite, "load_platform", look)
    arguments = ["--probed", "--dataset", GRAPH, "--model", "gat", "--mode", "full-graph"]
    arguments += ["--strategy", "native", "--strategy", "mixgcn", "--seconds", "0", "--json", "-"]
    arguments += ["--runs", "2"]
    document = read_document(CliRunner().invoke(suite.main, arguments))
    assert document["clock"] == "processor"
    assert looked == ["local"] * 2
    (one,), (other,) = document["cells"]
    assert one["strategy"] == other["strategy"] == "native"
    assert [each["strategy"] for each in document["refused"]] == ["mixgcn"]
    (joined,) = document["joined"]
    assert joined["taken_s"] == min(one["taken_s"], other["taken_s"])
    assert document["summary"]["cells"] == document["medians"]["cells"] == 1
    assert document["summary"]["median_error"] == abs(joined["error"])
    errors = [abs(each["error"]) for each in (one, other)]
    assert [run["median_error"] for run in document["runs"]] == errors


def test_of_several_runs_the_shortest_of_each_counts(suite, platform, monkeypatch, tmp_path):
    """An earlier run that said 1 ns and took 2, and an epoch that this run did not have."""
    monkeypatch.setattr(suite, "load_platform", lambda name: platform)
    arguments = ["--probed", "--dataset", GRAPH, "--model", "gcn", "--mode", "full-graph"]
    arguments += ["--strategy", "native", "--seconds", "0", "--runs", "1"]
    path = tmp_path / "run.json"
    assert CliRunner().invoke(suite.main, [*arguments, "--json", str(path)]).exit_code == 0
    document = json.loads(path.read_text())
    ((cell,),) = document["cells"]
    cell |= {"predicted_s": 1e-9, "taken_s": 2e-9}
    document["cells"][0].append(cell | {"strategy": "dgl"})
    path.write_text(json.dumps(document))
    result = CliRunner().invoke(suite.main, [*arguments, "--join", str(path), "--json", "-"])
    found = read_document(result)
    ((cell,),) = found["cells"]
    error = (1e-9 + cell["predicted_s"]) / (2e-9 + cell["taken_s"]) - 1.0
    assert found["summary"]["median_error"] == pytest.approx(0.5)
    assert found["medians"]["median_error"] == pytest.approx(abs(error))
    assert found["summary"]["cells"] == found["medians"]["cells"] == 1
    assert [run["cells"] for run in found["runs"]] == [2, 1]
    drift = cell["taken_s"] / 2e-9
    assert (
        f"The same epoch took {drift:.2f} times as long in one run as in another in the median, "
        f"and at most {drift:.2f} times." in result.stderr
    )
    assert "\nThe median error of 1 epochs is 50%" in result.stderr
    assert "By the medians of the runs: The median error of 1 epochs is " in result.stderr
    assert "Run 1 of 2 alone: The median error of 2 epochs is 50%" in result.stderr
    assert "Run 2 of 2 alone: The median error of 1 epochs is " in result.stderr


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"cores": 7}, "is of 7 cores of 'a machine', and this run has 1 of 'a machine'."),
        ({"machine": "another"}, "is of 1 cores of 'another', and this run has 1 of 'a machine'."),
        ({"cells": [[{}]]}, "is no file that --json has written: KeyError('strategy')."),
    ],
)
def test_a_run_of_something_else_is_not_joined(
    suite, platform, monkeypatch, tmp_path, change, sentence
):
    monkeypatch.setattr(suite, "load_platform", lambda name: platform)
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"machine": "a machine", "cores": 1, "cells": []} | change))
    arguments = ["--probed", "--dataset", "nothing is looked for", "--join", str(path)]
    result = CliRunner().invoke(suite.main, arguments)
    assert result.exit_code == 2
    assert f"Error: --join {path} {sentence}" in result.stderr


def test_errors_are_told_before_and_after_a_calibration(suite, platform, monkeypatch):
    """The reference has another kernel, so the calibration of native leaves it as it was."""
    monkeypatch.setattr(suite, "load_platform", lambda name: platform)
    arguments = ["--probed", "--dataset", GRAPH, "--model", "gcn", "--model", "gin"]
    arguments += ["--mode", "full-graph", "--strategy", "native", "--strategy", "reference"]
    arguments += ["--seconds", "0", "--runs", "1", "--calibrate-by"]
    result = CliRunner().invoke(suite.main, [*arguments, f"native full-graph gcn {GRAPH}"])
    assert result.exit_code == 0, result.output
    told = result.output[result.output.index("Calibrated by native full-graph gcn") :]
    assert "The others: " in told
    assert " of 3 epochs (largest " in told
    assert "Those of the same kernels and modes: " in told
    assert " of 1 epochs (largest " in told
    assert "Each by the others of its kernel and mode: " in told
    result = CliRunner().invoke(suite.main, [*arguments, "nobody"])
    assert result.exit_code == 2
    assert "--calibrate-by nobody: 0 of 4 epochs have such a name" in result.output
