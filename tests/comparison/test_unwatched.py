"""No false verdict by what a part does where nobody seems to look: after the first update and the
last training epoch, between its turns, where no gradients are taken, in what it says of itself."""

import dataclasses
import threading
import time
from statistics import median

import numpy as np
import pytest
import torch

from gnnbench import plugins
from gnnbench.check.graphs import make_dataset, make_long_rows, make_platform, make_workload
from gnnbench.comparison import (
    Request,
    Variant,
    compare,
    frame,
    left_work,
    make_request,
    make_setting,
)
from gnnbench.comparison.orders import tell_faults
from gnnbench.comparison.ranking import group_runs
from gnnbench.errors import UsageError
from gnnbench.jobs.job import Job
from gnnbench.report.results.schema import to_document
from gnnbench.report.verdict import summarise
from gnnbench.run.evidence import MOST_LOOKED_AT, Evidence
from gnnbench_plugins.reference.kernel import TorchAdjacency, TorchKernel
from gnnbench_plugins.reference.sampler import NeighbourSampler
from gnnbench_plugins.reference.subgraph import SaintSampler
from suites.faults import FAULTS
from suites.faults.fault import make_part, offer

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


def draw_slowly(self, setting):
    """Draws the first epochs, as a sampler that takes long."""
    NeighbourSampler.begin(self, setting)
    self.kept = range(50)
    time.sleep(0.5)


def take_kept(self, seeds, epoch, threads):
    if epoch not in self.kept:
        time.sleep(0.02)
    return NeighbourSampler.sample(self, seeds, epoch, threads)


def work_on():
    end, many = time.thread_time() + 0.05, torch.ones(300, 300)
    while time.thread_time() < end:
        torch.mm(many, many)


class Slack(TorchAdjacency):
    """Halves one row's sum from the sixteenth sum on, which a look at a few logits passes over."""

    uses = 0

    def sum_scaled(self, h, scaling):
        Slack.uses += 1
        sums = super().sum_scaled(h, scaling)
        if Slack.uses >= 16:
            sums = sums * torch.ones(len(sums), 1).index_fill(0, torch.tensor([1]), 0.5)
        return sums


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
    make_part(
        NeighbourSampler,
        "shrinking",
        "has one round from the second epoch on",
        rounds=FAULTS["late-rounds-joined"].part.rounds,
    ),
    make_part(NeighbourSampler, "begun", "begins threads that work on", rounds=begin_a_thread),
    make_part(
        NeighbourSampler, "before", "draws before its epochs", begin=draw_slowly, sample=take_kept
    ),
    make_part(
        NeighbourSampler,
        "fixed",
        "does not shuffle",
        rounds=lambda self, epoch: NeighbourSampler.rounds(self, 0),
    ),
    make_part(NeighbourSampler, "pooled", "keeps a thread that waits", rounds=keep_a_thread),
)
KERNELS = (
    make_part(TorchKernel, "slackening", "slackens", adjacency=lambda self, *given: Slack(*given)),
    make_part(TorchKernel, "knowing", "knows when it is tested", linear=know),
)


@pytest.fixture(scope="module")
def registry():
    offered = (*map(offer, SAMPLERS), *(offer(kernel, "full-graph") for kernel in KERNELS))
    known = [FAULTS[name].part for name in ("law-unsaid", "late-weights-decayed")]
    return plugins.load(objects=[*SAMPLERS, *KERNELS, *known, *offered, *map(offer, known)])


@pytest.fixture(autouse=True)
def few_epochs(monkeypatch):
    monkeypatch.setattr(frame, "ENOUGH_SAMPLES", 12)


def request(
    *strategies, mode="mini-batch", measured=True, epochs=EPOCHS, model="gcn", layers=2, **fields
):
    alone = make_platform(0)
    here = dataclasses.replace(alone, host=dataclasses.replace(alone.host, virtual=False))
    return Request(
        strategies=strategies,
        dataset=make_dataset(),
        workload=make_workload(model, layers, epochs),
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
    assert "in epoch 12, round 0" in run.equivalence.fault


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
        return [sentence for sentence in summarise(groups) if "plugins state" in sentence]

    (kernel,) = tell("reference", "knowing", mode="full-graph", measured=False)
    assert kernel.endswith("state for their parts: knowing (kernel knowing).")
    (sampler,) = tell("reference", "tired", measured=False)
    assert sampler.endswith("state for their parts: tired (sampler tired).")
    assert not tell("reference", "tired")


def test_a_row_whose_threads_work_on_in_others_turns_has_no_times(registry):
    found = compare(request("reference", "begun"), registry).runs
    reference, begun = found
    assert reference.status == "done"
    assert begun.status == "error"
    assert "its threads or processes kept working after" in begun.reason
    assert "Let them finish before an epoch ends" in begun.reason


def test_a_thread_that_waits_is_no_fault(registry, monkeypatch):
    # Longer than a system that is busy may keep a thread from going to sleep.
    monkeypatch.setattr(left_work, "WORKING_S", 2e-3)
    run = run_one(registry, "pooled")
    assert run.status == "done", run.reason
    assert run.equivalence.holds


def test_mini_batches_drawn_before_the_clock_have_no_times(registry):
    """The row's figures would be those of an epoch without sampling."""
    found = compare(request("reference", "before"), registry).runs
    assert [run.status for run in found] == ["done", "error"]
    assert "were prepared before their epochs began" in found[1].reason


def test_seeds_that_are_not_shuffled_are_said_and_ranked_apart(registry):
    comparison = compare(request("fixed", "reference", epochs=4, measured=False), registry)
    fixed, reference = comparison.runs
    assert fixed.equivalence.holds
    assert fixed.work.sampling == f"{reference.work.sampling}, seeds not shuffled"
    main, apart = group_runs(comparison)
    assert [row.label for row in main.rows] == ["reference"]
    assert "seeds not shuffled" in apart.title
    said = "Seeds are not shuffled, so all epochs have the same mini-batches: fixed."
    assert said in summarise((main, apart))


def test_the_time_to_an_accuracy_has_no_first_epoch_in_it(registry):
    """What every process does once is in the first row's first epoch; what was prepared is in."""
    run = run_one(registry, "reference", target_accuracy=0.0)
    epoch = run.metrics["epoch_time"]
    assert epoch.warmup
    before_s = run.metrics["preprocessing_time"].value
    assert run.metrics["time_to_accuracy"].value == median(epoch.steady) + before_s


def test_epochs_of_other_work_are_ranked_apart(registry):
    """Three updates in the first epoch and one in the second: not the reference's three in each,
    and not what makes two in each."""
    comparison = compare(request("reference", "shrinking", measured=False), registry)
    main, other = group_runs(comparison)
    assert [row.label for row in main.rows] == ["reference"]
    assert [row.label for row in other.rows] == ["shrinking"]
    work = other.rows[0].work
    assert (work.updates, work.seeds, work.different) == (2, 29, ((1, 29), (3, 29)))
    assert "2 updates on average, 1 to 3, from 29 seeds an epoch" in other.title
    even = dataclasses.replace(work, different=())
    assert even.alike != work.alike
    document = to_document(comparison)
    (entry,) = (run for run in document.runs if run.label == "shrinking")
    assert (entry.work.updates, entry.work.different) == (2, ((1, 29), (3, 29)))


def test_a_row_whose_repeats_did_other_work_is_not_ranked(registry):
    comparison = compare(request("reference", measured=False, repeats=2), registry)
    one, other = comparison.runs
    odd = dataclasses.replace(other, work=dataclasses.replace(other.work, updates=1))
    ((row,), (changed,)) = (
        group_runs(dataclasses.replace(comparison, runs=runs))[0].rows
        for runs in ((one, other), (one, odd))
    )
    assert row.ranked
    assert changed.why_not == "its repeats did other work"


def test_weights_that_change_between_epochs_are_found(registry):
    run = run_one(registry, "late-weights-decayed", measured=False, epochs=4)
    assert run.status == "done", run.reason
    assert "by other than the optimiser before epoch 2, round 0" in run.equivalence.fault


@pytest.mark.parametrize(("model", "layers"), [("gcn", 2), ("sage", 3), ("gin", 2), ("gat", 2)])
@pytest.mark.parametrize("mode", ["mini-batch", "full-graph"])
def test_all_updates_are_looked_at_and_right_ones_are_right(registry, mode, model, layers):
    run = run_one(
        registry, "reference", mode=mode, measured=False, epochs=5, model=model, layers=layers
    )
    assert run.equivalence.holds, run.equivalence.fault
    updates = 15 if mode == "mini-batch" else 5
    assert (run.equivalence.updates, run.equivalence.looked_at) == (3, (updates, updates))


def test_of_long_epochs_some_rounds_are_looked_at_and_others_in_other_epochs():
    setting = make_setting(request("reference"))
    evidence = Evidence(setting, 3)
    looked = [{n for n in range(100) if evidence.looks_at(epoch, n, 100)} for epoch in range(3)]
    assert all(len(rounds) == MOST_LOOKED_AT and {0, 99} <= rounds for rounds in looked)
    assert len(set(map(frozenset, looked))) == 3
    assert all(evidence.looks_at(0, n, MOST_LOOKED_AT) for n in range(MOST_LOOKED_AT))


def test_what_another_rank_has_found_is_known_in_all():
    class Ranks:
        def gather(self, told):
            return [told, "", "layers.0.bias was changed"]

    evidence = Evidence(make_setting(request("reference")), 0)
    tell_faults(evidence, Ranks())
    assert evidence.fault == "in rank 2, layers.0.bias was changed"


@pytest.mark.parametrize("sizes", [(60, 45, 45), (30, 59, 61), (60, 30, 60)])
def test_rounds_have_the_sizes_that_the_batch_size_makes(sizes):
    setting = make_setting(request("reference"))
    workload = dataclasses.replace(setting.workload, batch_size=60)
    dataset = make_long_rows(sum(sizes))
    evidence = Evidence(dataclasses.replace(setting, dataset=dataset, workload=workload), 0)
    evidence.audit_seeds(2, np.split(dataset.train_ids, np.cumsum(sizes)[:-1]))
    even = sorted(sizes) == [30, 60, 60]
    said = f"rounds of {min(sizes)} to {max(sizes)} seeds where a batch size of 60 makes rounds of"
    assert evidence.fault is None if even else said in evidence.fault


def test_as_many_updates_as_asked_for_are_computed_once_more(registry):
    job = Job("reference", epochs=4, checked_updates=4)
    asked = make_request(job, plugins.load())
    assert asked.checked_updates == 4
    run = run_one(
        registry, "reference", measured=False, mode="full-graph", epochs=4, checked_updates=4
    )
    assert run.equivalence.updates == 4
    with pytest.raises(UsageError, match="checked_updates is 4, and nothing is checked"):
        dataclasses.replace(job, check=False)
    with pytest.raises(UsageError, match="checked_updates is 0"):
        dataclasses.replace(job, checked_updates=0)
