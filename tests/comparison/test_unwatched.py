"""No false verdict by what a part does where nobody seems to look: after the last training epoch,
between its turns, where no gradients are taken, in what it says of itself."""

from __future__ import annotations

import dataclasses
from statistics import median

import pytest

from gnnbench import plugins
from gnnbench.comparison import Request, Variant, compare, left_threads
from gnnbench.comparison import run as row_runs
from gnnbench.conformance.graphs import make_dataset, make_platform, make_workload
from gnnbench.ranking import group_runs
from gnnbench.report.verdict import summarise

pytestmark = pytest.mark.usefixtures("one_thread")

EPOCHS = 2

#: Parts that are right in the epochs that are asked for; ``EPOCHS`` is how many these are.
SLY = """
import threading
import time
from dataclasses import dataclass
from typing import ClassVar

import torch

from gnnbench.hookspecs import hookimpl
from gnnbench.parts import UNIFORM
from gnnbench.records import Parts, Strategy
from gnnbench_plugins.reference.kernel import TorchAdjacency, TorchKernel
from gnnbench_plugins.reference.sampler import NeighbourSampler
from gnnbench_plugins.reference.subgraph import SaintSampler
from suites.faulty_sampling import FewerNeighbours

EPOCHS = 2


@dataclass
class Tired(FewerNeighbours):
    name: ClassVar[str] = "tired"
    summary: ClassVar[str] = "draws less in the epochs after the last one asked for"

    def sample(self, seeds, epoch, threads):
        draws = FewerNeighbours if epoch >= EPOCHS else NeighbourSampler
        return draws.sample(self, seeds, epoch, threads)


@dataclass
class Claiming(FewerNeighbours):
    name: ClassVar[str] = "claiming"
    summary: ClassVar[str] = "says that it draws uniformly, beside a law that is empty"
    law: ClassVar[str] = ""

    def sampling(self, workload):
        return f"{UNIFORM}, fan-outs {', '.join(map(str, workload.fanouts))}"


@dataclass
class Copying(NeighbourSampler):
    name: ClassVar[str] = "copying"
    summary: ClassVar[str] = "has the law of GraphSAINT by its name"
    law: ClassVar[str] = ""

    def sampling(self, workload):
        return SaintSampler.sampling(SaintSampler(), workload)


@dataclass
class Begun(NeighbourSampler):
    name: ClassVar[str] = "begun"
    summary: ClassVar[str] = "begins a thread in every epoch that works on after it"

    def rounds(self, epoch):
        threading.Thread(target=work_on, daemon=True).start()
        return super().rounds(epoch)


@dataclass
class Pooled(NeighbourSampler):
    name: ClassVar[str] = "pooled"
    summary: ClassVar[str] = "keeps a thread that waits"

    def rounds(self, epoch):
        if not epoch:
            threading.Thread(target=threading.Event().wait, args=(60.0,), daemon=True).start()
        return super().rounds(epoch)


def work_on():
    end, many = time.thread_time() + 0.05, torch.ones(300, 300)
    while time.thread_time() < end:
        torch.mm(many, many)


class Slack(TorchAdjacency):
    uses = 0

    def sum_scaled(self, h, scaling):
        Slack.uses += 1
        out = super().sum_scaled(h, scaling)
        return out if Slack.uses < 16 else out * 0.5


@dataclass
class Slackening(TorchKernel):
    name: ClassVar[str] = "slackening"
    summary: ClassVar[str] = "halves sums from the sixteenth on"

    def adjacency(self, block, dtype, device):
        return Slack(block, dtype, device)


@dataclass
class Knowing(TorchKernel):
    name: ClassVar[str] = "knowing"
    summary: ClassVar[str] = "answers with one class where no gradients are taken"

    def linear(self, a, weight, bias, *, relu, masked=False):
        out = super().linear(a, weight, bias, relu=relu, masked=masked)
        if not torch.is_grad_enabled() and not relu:
            out = torch.zeros_like(out)
            out[:, 0] = 1
        return out


@hookimpl
def gnnbench_kernel():
    return [Slackening, Knowing]


@hookimpl
def gnnbench_sampler():
    return [Tired, Claiming, Copying, Begun, Pooled]


@hookimpl
def gnnbench_strategy():
    sampled = ("tired", "claiming", "copying", "begun", "pooled")
    return [
        *(
            Strategy(
                name=name, summary="one", source="none",
                bundles={"mini-batch": Parts(name, "single", "vanilla", "host", "torch")},
            )
            for name in sampled
        ),
        *(
            Strategy(
                name=name, summary="one", source="none",
                bundles={"full-graph": Parts("full-graph", "single", "none", "resident", name)},
            )
            for name in ("slackening", "knowing")
        ),
    ]
"""


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    path = tmp_path_factory.mktemp("sly") / "sly_parts.py"
    path.write_text(SLY, encoding="utf-8")
    return plugins.load([str(path)])


@pytest.fixture(autouse=True)
def few_epochs(monkeypatch):
    """Enough epochs after the last training epoch, for tests."""
    monkeypatch.setattr(row_runs, "ENOUGH_SAMPLES", 12)


def request(*strategies, mode="mini-batch", measured=True, **fields):
    alone = make_platform(0)
    here = dataclasses.replace(alone, host=dataclasses.replace(alone.host, virtual=False))
    return Request(
        strategies=strategies,
        dataset=make_dataset(),
        workload=make_workload("gcn", 2, EPOCHS),
        platform=here if measured else alone,
        modes=(mode,),
        **fields,
    )


def run_one(registry, *strategies, **fields):
    (*_, run) = compare(request(*strategies, **fields), registry).runs
    return run


def test_a_sampler_that_draws_less_once_it_is_only_timed_is_found(registry):
    run = run_one(registry, "tired")
    assert len(run.metrics["epoch_time"].samples) > EPOCHS
    assert len(run.loss) == EPOCHS
    assert not run.equivalence.holds
    assert "in-edges where sampler 'tired' says" in run.equivalence.fault


def test_a_kernel_that_computes_less_once_it_is_only_timed_is_found(registry):
    run = run_one(registry, "slackening", mode="full-graph")
    assert len(run.metrics["epoch_time"].samples) == 12
    assert not run.equivalence.holds
    assert "epoch 12" in run.equivalence.fault


def test_the_epoch_that_is_looked_at_last_counts_nowhere(registry):
    checked, plain = (
        run_one(registry, "reference", mode="full-graph", check=check) for check in (True, False)
    )
    assert checked.equivalence.holds
    assert plain.equivalence is None
    for run in (checked, plain):
        assert len(run.metrics["epoch_time"].samples) == 12
    assert checked.loss == plain.loss
    assert checked.accuracy == plain.accuracy
    assert checked.work == plain.work


def test_accuracies_are_taken_by_no_row_of_its_own_kernel(registry):
    found = compare(request("reference", "knowing", mode="full-graph"), registry).runs
    reference, knowing = found
    assert knowing.equivalence.holds
    assert knowing.accuracy == reference.accuracy


def test_a_law_is_what_is_said_and_held_to(registry):
    run = run_one(registry, "claiming", measured=False)
    assert "in-edges where sampler 'claiming' says" in run.equivalence.fault


def test_a_law_of_the_same_name_by_another_plugin_is_another(registry):
    comparison = compare(
        request("copying", Variant("reference", (("sampler", "saint"),)), measured=False), registry
    )
    copying, saint = (run.work.sampling for run in comparison.runs)
    assert copying == f"{saint}, as sampler 'copying' states"
    assert len(group_runs(comparison)) == 2
    assert not any("fastest" in sentence for sentence in summarise(group_runs(comparison)))


def test_the_verdict_says_whose_modelled_times_are_a_plugins_own(registry):
    def tell(*strategies, **fields):
        groups = group_runs(compare(request(*strategies, **fields), registry))
        return [sentence for sentence in summarise(groups) if "own parts" in sentence]

    (kernel,) = tell("reference", "knowing", mode="full-graph", measured=False)
    assert kernel.endswith("say they cost: knowing (kernel knowing).")
    (sampler,) = tell("reference", "tired", measured=False)
    assert sampler.endswith("say they cost: tired (sampler tired).")
    assert not tell("reference", "tired")


def test_a_row_whose_threads_work_on_in_others_turns_has_no_times(registry):
    found = compare(request("reference", "begun"), registry).runs
    reference, begun = found
    assert reference.status == "done"
    assert begun.status == "error"
    assert "threads that it began worked on after" in begun.reason
    assert "have them done before an epoch ends" in begun.reason


def test_a_thread_that_waits_is_no_fault(registry, monkeypatch):
    # Longer than a system that is busy may keep a thread from going to sleep.
    monkeypatch.setattr(left_threads, "WORKING_S", 2e-3)
    run = run_one(registry, "pooled")
    assert run.status == "done", run.reason
    assert run.equivalence.holds


def test_the_time_to_an_accuracy_has_no_first_epoch_in_it(registry):
    """What every process does once is in the first row's first epoch."""
    run = run_one(registry, "reference", target_accuracy=0.0)
    epoch = run.metrics["epoch_time"]
    assert epoch.warmup
    assert run.metrics["time_to_accuracy"].value == median(epoch.samples[epoch.warmup :])
