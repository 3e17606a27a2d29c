"""No false verdict by what a part does where nobody seems to look: after the last training epoch,
between its turns, where no gradients are taken, in what it says of itself."""

import dataclasses
import threading
import time
from statistics import median

import pytest
import torch

from gnnbench import plugins
from gnnbench.comparison import Request, Variant, compare, left_threads
from gnnbench.comparison import run as row_runs
from gnnbench.conformance.graphs import make_dataset, make_platform, make_workload
from gnnbench.ranking import group_runs
from gnnbench.report.verdict import summarise
from gnnbench_plugins.reference.kernel import TorchAdjacency, TorchKernel
from gnnbench_plugins.reference.sampler import NeighbourSampler
from gnnbench_plugins.reference.subgraph import SaintSampler
from suites.faults import FAULTS
from suites.faults.fault import make_part, offer

pytestmark = pytest.mark.usefixtures("one_thread")

EPOCHS = 2

FEWER = FAULTS["fanouts-less-one"].part


def tire(self, seeds, epoch, threads):
    draws = FEWER if epoch >= EPOCHS else NeighbourSampler
    return draws.sample(self, seeds, epoch, threads)


def begin_a_thread(self, epoch):
    threading.Thread(target=work_on, daemon=True).start()
    return NeighbourSampler.rounds(self, epoch)


def keep_a_thread(self, epoch):
    if not epoch:
        threading.Thread(target=threading.Event().wait, args=(60.0,), daemon=True).start()
    return NeighbourSampler.rounds(self, epoch)


def work_on():
    end, many = time.thread_time() + 0.05, torch.ones(300, 300)
    while time.thread_time() < end:
        torch.mm(many, many)


class Slack(TorchAdjacency):
    """Halves sums from the sixteenth on."""

    uses = 0

    def sum_scaled(self, h, scaling):
        Slack.uses += 1
        return super().sum_scaled(h, scaling) * (1.0 if Slack.uses < 16 else 0.5)


def know(self, a, weight, bias, *, relu, masked=False):
    """The first class is the answer where no gradients are taken."""
    out = TorchKernel.linear(self, a, weight, bias, relu=relu, masked=masked)
    if not torch.is_grad_enabled() and not relu:
        out = torch.zeros_like(out)
        out[:, 0] = 1
    return out


SAMPLERS = (
    make_part(NeighbourSampler, "tired", "draws less once it is only timed", sample=tire),
    make_part(
        NeighbourSampler,
        "copying",
        "states the law of GraphSAINT",
        law="",
        sampling=lambda self, workload: SaintSampler().sampling(workload),
    ),
    make_part(NeighbourSampler, "begun", "begins threads that work on", rounds=begin_a_thread),
    make_part(NeighbourSampler, "pooled", "keeps a thread that waits", rounds=keep_a_thread),
)
KERNELS = (
    make_part(TorchKernel, "slackening", "slackens", adjacency=lambda self, *given: Slack(*given)),
    make_part(TorchKernel, "knowing", "knows when it is tested", linear=know),
)


@pytest.fixture(scope="module")
def registry():
    offered = (*map(offer, SAMPLERS), *(offer(kernel, "full-graph") for kernel in KERNELS))
    claiming = FAULTS["law-unsaid"].part
    return plugins.load(objects=[*SAMPLERS, *KERNELS, claiming, *offered, offer(claiming)])


@pytest.fixture(autouse=True)
def few_epochs(monkeypatch):
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
    run = run_one(registry, "law-unsaid", measured=False)
    assert "in-edges where sampler 'law-unsaid' says" in run.equivalence.fault


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
