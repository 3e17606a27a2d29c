"""No false verdict by way of compare: rows of other work stand apart, wrong ones cannot win, and
what one part does to the data, to the process or to itself leaves the other rows as they are."""

import dataclasses
import io
import json
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
from rich.console import Console

from gnnbench import plugins
from gnnbench.check.graphs import make_dataset, make_platform, make_workload
from gnnbench.cli.compare import exit_status
from gnnbench.comparison import PlannedRow, Request, compare, frame
from gnnbench.comparison.ranking import group_runs
from gnnbench.parts import Placement, option
from gnnbench.records import PART_KINDS
from gnnbench.report.comparison import print_comparison
from gnnbench.report.results.schema import dump_json, to_document
from gnnbench.report.verdict import summarise
from gnnbench_plugins.reference.communication import VanillaCommunication
from gnnbench_plugins.reference.kernel import TorchKernel
from gnnbench_plugins.reference.memory import HostMemory
from gnnbench_plugins.reference.placement import SinglePlacement
from gnnbench_plugins.reference.sampler import NeighbourSampler
from suites.faults.fault import make_part, offer
from tests.uneven import make_uneven


def load(*parts, extra=()):
    return plugins.load(extra, objects=[*parts, *map(offer, parts)])


def make_machine(measured):
    """Three described accelerators, or this machine's processor alone."""
    if not measured:
        return make_uneven(3)
    alone = make_platform(0)
    return dataclasses.replace(alone, host=dataclasses.replace(alone.host, virtual=False))


def request(*strategies, measured=False, epochs=2, **fields):
    return Request(
        strategies=strategies,
        dataset=make_dataset(),
        workload=make_workload("gcn", 2, epochs),
        platform=make_machine(measured),
        modes=("mini-batch",),
        **fields,
    )


def show(comparison, details=False):
    stream = io.StringIO()
    print_comparison(comparison, Console(file=stream, width=160), details=details)
    return stream.getvalue()


@pytest.fixture(autouse=True)
def few_epochs(monkeypatch):
    monkeypatch.setattr(frame, "ENOUGH_SAMPLES", 4)


def cut_in_ten(self, epoch):
    return np.array_split(np.concatenate(NeighbourSampler.rounds(self, epoch)), 10)


@dataclass(frozen=True)
class Even(Placement):
    name: ClassVar[str] = "even"
    summary: ClassVar[str] = "all accelerators, even shares"

    def trainers(self, platform):
        return platform.accelerators


OTHER_WORK = (
    make_part(NeighbourSampler, "clusters", "own clusters", law="ten clusters", rounds=cut_in_ten),
    make_part(NeighbourSampler, "frequent", "the same law, in ten updates", rounds=cut_in_ten),
    Even,
)


@pytest.fixture(scope="module")
def other_work():
    registry = load(*OTHER_WORK, extra=["suites.faults"])
    names = ("reference", "edges-none", "clusters", "frequent", "even", "neighbours-none")
    return compare(request(*names), registry)


def find_group(comparison, label):
    (group,) = (g for g in group_runs(comparison) if label in [row.label for row in g.rows])
    return group


@pytest.mark.parametrize("label", ["edges-none", "clusters", "frequent"])
def test_other_work_is_right_and_stands_apart(other_work, label):
    """Drawing nothing, another law, or ten updates instead of three: no rival of the reference."""
    (run,) = (each for each in other_work.runs if each.label == label)
    assert run.status == "done"
    assert run.equivalence.holds, run.equivalence.fault
    group = find_group(other_work, label)
    assert not group.main
    assert "reference" not in [row.label for row in group.rows]
    assert not any(f"{label} is fastest" in s for s in summarise(group_runs(other_work)))


def test_drawing_no_neighbours_is_as_cheap_as_it_says(other_work):
    works = {run.label: run.work for run in other_work.runs}
    assert works["edges-none"].edges == 0 < works["reference"].edges
    assert works["clusters"].updates == works["frequent"].updates == 10
    assert works["edges-none"].seeds == works["clusters"].seeds == works["reference"].seeds
    times = {row.label: row.metric("epoch_time") for g in group_runs(other_work) for row in g.rows}
    assert times["edges-none"].value < times["reference"].value


def test_a_sampler_that_does_not_do_what_it_says_is_not_ranked(other_work):
    label = "neighbours-none"
    (run,) = (each for each in other_work.runs if each.label == label)
    assert (run.status, run.equivalence.holds) == ("done", False)
    fault = "has 0 in-edges where sampler 'neighbours-none' says that it draws"
    assert fault in run.equivalence.fault
    assert label not in [row.label for row in find_group(other_work, label).rank("modelled")]
    assert f"{label} (not equal to the reference: " in show(other_work)
    (entry,) = (r for r in to_document(other_work).runs if r.label == label)
    assert (entry.work.ranked, entry.equivalence.equal) == (False, False)
    assert exit_status(other_work) == 1


def test_several_devices_are_ranked_beside_one_and_said_to_be_several(other_work):
    group = find_group(other_work, "even")
    assert group.main
    devices = {row.label: row.trainers for row in group.rows}
    assert devices["even"] == ("gpu0", "gpu1", "gpu2")
    assert devices["reference"] == ("gpu0",)
    text = show(other_work)
    (heading,) = (s for s in text.splitlines() if s.startswith(" mini-batch "))
    assert "devices" in heading
    assert "edges/s a device" in heading
    ranked = [row.label for row in group.rank("modelled")]
    assert sorted(ranked) == ["even", "reference"]
    many, few = (3, 1) if ranked[0] == "even" else (1, 3)
    told = f"with {many} {'devices' if many > 1 else 'device'} against {few}"
    assert told in text or "no difference is shown" in text


def test_columns_do_not_contradict_each_other(other_work):
    for run in (run for run in other_work.runs if run.status == "done"):
        rate, epoch = run.metrics["throughput_edges"].value, run.metrics["epoch_time"].value
        assert rate * epoch == pytest.approx(run.work.edges, abs=1.0), run.label
    for group in group_runs(other_work):
        base = group.base("modelled")
        for row in group.rows:
            if not row.equivalence.holds:
                assert group.ratio(row) is None, "what computes something wrong is fast for nothing"
                continue
            ratio = base.metric("epoch_time").value / row.metric("epoch_time").value
            assert group.ratio(row).ratio == pytest.approx(ratio)


ARRAYS = ("features", "labels", "indptr", "indices", "train_mask", "test_mask")


@dataclass
class Writer(NeighbourSampler):
    """Writes into an array of the data set once, by NumPy or through torch."""

    name: ClassVar[str] = "writer"
    array: str = option("features", "which")
    way: str = option("numpy", "by numpy, or through torch")
    epoch: int = option(0, "when; -1 is when it is asked whether it fits")
    written = False

    def refuses(self, bundle, setting):
        if self.epoch < 0:
            self.write(setting.dataset)

    def rounds(self, epoch):
        found = super().rounds(epoch)
        if epoch == self.epoch:
            self.write(self._setting.dataset)
        return found

    def write(self, dataset):
        if self.written:  # twice would be as before
            return
        self.written = True
        holder = dataset.graph if hasattr(dataset.graph, self.array) else dataset
        array = getattr(holder, self.array)
        if self.way == "torch":
            view = torch.from_numpy(array).view(-1)
            view[:] = view.flip(0)
        else:
            array.flags.writeable = True
            array[...] = np.flip(array.copy())


@pytest.fixture(scope="module")
def writing():
    return load(Writer)


def writer(registry, array, way):
    parts = registry.strategy("writer").bundles["mini-batch"]
    options = (("sampler", "array", array), ("sampler", "way", way), ("sampler", "epoch", "1"))
    return PlannedRow("writer", f"{array}-{way}", "mini-batch", parts, options=options)


def plain(registry, strategy):
    parts = registry.strategy(strategy).bundles["mini-batch"]
    return PlannedRow(strategy, strategy, "mini-batch", parts)


@pytest.mark.parametrize("measured", [False, True], ids=["modelled", "in-turns"])
def test_a_part_that_writes_into_the_data_ends_its_own_row_alone(writing, measured):
    """Rows before and after it, and its rows' reference, have the data as they were."""
    written = [(array, way) for array in ARRAYS for way in ("numpy", "torch")]
    if measured:
        written = [("labels", "numpy"), ("indptr", "torch")]
    right = (plain(writing, "reference"), plain(writing, "native"))
    wrong = [writer(writing, array, way) for array, way in written]
    asked = request(measured=measured, rows=(right[0], *wrong, right[1]))
    found = compare(asked, writing)
    clean = compare(request(measured=measured, rows=right), writing)
    reference, *writers, native = found.runs
    for (array, _), run in zip(written, writers, strict=True):
        assert run.status == "error", run.label
        said = f"a part wrote into arrays of the data set that all rows share, {array};"
        assert said in run.reason
    for run, alone in zip((reference, native), clean.runs, strict=True):
        assert run.equivalence.holds
        assert (run.status, run.loss, run.accuracy) == ("done", alone.loss, alone.accuracy)
    assert found.dataset["digest"] == clean.dataset["digest"] == make_dataset().digest()
    assert asked.dataset.digest() == clean.dataset["digest"]
    assert exit_status(found) == 3


def test_writing_when_asked_whether_it_fits_is_found_too(writing):
    options = {"sampler": {"epoch": "-1"}}
    found = compare(request("writer", "reference", options=options), writing)
    writer, reference = found.runs
    assert (writer.status, reference.status) == ("error", "done")
    assert "a part wrote into arrays of the data set" in writer.reason
    assert found.dataset["digest"] == make_dataset().digest()
    assert reference.loss == compare(request("reference"), writing).runs[0].loss


def test_data_that_cannot_be_written_to_are_brought_back_all_the_same(writing):
    """As arrays of a file are: NumPy refuses, torch does not ask."""
    asked = request("writer", "reference", options={"sampler": {"way": "torch"}})
    whole = asked.dataset.features
    whole.flags.writeable = False
    dataset = dataclasses.replace(asked.dataset, features=whole[:])
    digest = dataset.digest()
    found = compare(dataclasses.replace(asked, dataset=dataset), writing)
    assert [run.status for run in found.runs] == ["error", "done"]
    assert dataset.digest() == digest
    assert not dataset.features.flags.writeable


class Unlike(BaseException):
    """No Exception."""


class MuteError(Exception):
    def __str__(self):
        raise RuntimeError("no words")


ENDINGS = {"exit": SystemExit(0), "unlike": Unlike("unlike others"), "mute": MuteError()}
PLAIN_PARTS = (NeighbourSampler, SinglePlacement, VanillaCommunication, HostMemory, TorchKernel)


def make_parts(ending):
    """For every public method of the plain parts, a part in which a call of it ends so."""

    def end(*given, **named):
        raise ENDINGS[ending]

    return [
        make_part(part, f"{part.kind}-{hook}", "ends", **{hook: end})
        for part in PLAIN_PARTS
        for hook in dir(part)
        if not hook.startswith("_") and callable(getattr(part, hook)) and hook != "kind"
    ]


def run_hooks(ending, measured):
    """A row for every hook, between two that are right; for some hooks, where rows take turns or
    it is not by ``sys.exit`` that they end."""
    parts = make_parts(ending)
    assert len(parts) > 40
    if ending != "exit" or measured:
        parts = [part for part in parts if part.name in SOME]
    names = [part.name for part in parts]
    asked = request("reference", *names, "native", measured=measured)
    result = compare(asked, load(*parts))
    return result, {run.label: run for run in result.runs}


#: What every run asks of its parts, in whatever way it is timed.
ALWAYS_CALLED = (
    *(f"{kind}-{hook}" for kind in PART_KINDS for hook in ("refuses", "settle", "begin", "notes")),
    *(f"{kind}-idle" for kind in PART_KINDS),
    "sampler-rounds", "sampler-sample", "sampler-sampling", "placement-trainers",
    "placement-open", "memory-capacity_bytes", "kernel-adjacency",
    "kernel-projects_first",
)  # fmt: skip


#: Asked before anything runs, before a run, in a stage of it, and after it.
SOME = ("memory-refuses", "kernel-begin", "sampler-sample", "placement-open", "sampler-idle")


@pytest.mark.parametrize("measured", [False, True], ids=["modelled", "measured"])
@pytest.mark.parametrize(
    ("ending", "said"),
    [
        ("exit", "a part called sys.exit, which ends its own run alone."),
        ("unlike", "Unlike: unlike others"),
        ("mute", "Mute"),
    ],
)
def test_however_a_hook_ends_it_ends_its_own_row_alone(ending, said, measured):
    result, runs = run_hooks(ending, measured)
    assert runs["reference"].status == runs["native"].status == "done"
    called = {label for label, run in runs.items() if run.status == "error"}
    assert {run.status for run in result.runs} == {"done", "error"}
    # A hook that ends a run is one that was called, and those that always are end theirs.
    missed = {label for label in ALWAYS_CALLED if label in runs} - called
    assert not missed
    if ending == "exit" and not measured:
        assert {"kernel-seconds", "communication-open"} <= called
    for label in called:
        assert said in runs[label].reason, label
    plain = {run.loss for label, run in runs.items() if run.status == "done" and label != "native"}
    assert len(plain) == 1
    assert exit_status(result) == 3
    assert json.loads(dump_json(to_document(result)))
    assert "error: " in show(result, details=True)


@pytest.mark.parametrize(
    ("measured", "epoch"), [(False, 0), (False, 1), (True, 3)], ids=["first", "second", "in-turns"]
)
def test_an_interrupt_leaves_the_rows_that_were_trained(measured, epoch):
    """Where rows take turns, the first has trained both epochs when the fourth is interrupted."""

    def interrupt(self, number):
        if number == epoch:
            raise KeyboardInterrupt
        return NeighbourSampler.rounds(self, number)

    part = make_part(NeighbourSampler, "interrupted", "is interrupted", rounds=interrupt)
    registry = load(part)
    asked = request("reference", "interrupted", "native", measured=measured)
    found = compare(asked, registry)
    (whole,) = compare(request("reference", measured=measured), registry).runs
    runs = {run.label: run for run in found.runs}
    assert found.interrupted == "interrupted."
    assert (runs["reference"].status, runs["reference"].loss) == ("done", whole.loss)
    assert runs["reference"].equivalence.holds
    if not measured:
        others = [runs["interrupted"], runs["native"]]
        assert {run.status for run in others} == {"skipped"}
        assert all("interrupted before this run was over" in run.reason for run in others)
    assert exit_status(found) == 130
    assert set(runs) == {"reference", "interrupted", "native"}
