"""Plugins that cheat or err: each check finds the wrong parts of ``suites.faults``."""

import re
import time

import pytest

from gnnbench import check as conformance
from gnnbench import plugins
from gnnbench.check import clock, reach
from gnnbench.check.subject import find_subject
from gnnbench.records import Fetch, PeerFetch
from gnnbench_plugins.reference.communication import NoCommunication, VanillaCommunication
from gnnbench_plugins.reference.kernel import TorchKernel
from gnnbench_plugins.reference.memory import HostMemory
from gnnbench_plugins.reference.placement import SinglePlacement
from gnnbench_plugins.reference.sampler import NeighbourSampler
from suites.faults import FAULTS
from suites.faults.fault import make_part, offer
from suites.faults.others import Rounding, planning

CHECKS = {check.name: check for check in conformance.CHECKS}
FOUND = [(name, check) for name, fault in FAULTS.items() for check in fault.checks]

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def registry():
    return plugins.load(["suites.faults"])


def load_wrong(base, **members):
    """A registry with a strategy ``wrong``, plain but for one part."""
    part = make_part(base, "wrong", "not what it says", **members)
    return plugins.load(objects=[part, offer(part)])


def run(registry, check, name="wrong", **fields):
    return conformance.run_check(CHECKS[check], registry, name, **fields)


@pytest.mark.parametrize(("fault", "check"), FOUND)
def test_a_check_finds_a_wrong_part(registry, monkeypatch, fault, check):
    """The check of what is reached runs all others, of which a few are enough here, and then tries
    many places, which are of no help."""
    monkeypatch.setattr(reach, "_make_scenarios", lambda subject: ())
    subject = find_subject(registry, fault)
    subject.ran |= CHECKS.keys() - {"every-vertex-once", "legal-timeline", "bytes-add-up"}
    outcome = conformance.outcome.judge(CHECKS[check], subject)
    away = check == "reached" or fault == "library-missing"
    assert outcome.status == ("not-reached" if away else "failed"), outcome.reason
    assert re.search(FAULTS[fault].checks[check], outcome.reason), outcome.reason


def test_every_check_finds_something():
    """That a part writes into the data set is tested below, array by array."""
    assert {check for _, check in FOUND} == CHECKS.keys() - {"dataset-untouched"}


@pytest.mark.parametrize(
    ("name", "check", "says"),
    [
        ("drawing", "sampling-law", "as likely as 'uniform without replacement' says"),
        ("rounding", "costs", "rows of communication 'rounding' cross as stated"),
        ("rounded-rows-lost", "costs", "rows of communication 'rounded-rows-lost' cross as stated"),
    ],
)
def test_parts_that_wrong_ones_are_made_of_are_right(registry, name, check, says):
    """So that it is the one thing that a wrong part changes that is found."""
    outcome = run(registry, check, name)
    assert outcome.status == "passed", outcome.reason
    assert says in outcome.reason


def test_rounding_that_an_option_turns_on_is_checked_with_it(registry):
    options = {"communication": {"rounded": "true"}}
    outcome = run(registry, "costs", "rounded-rows-lost", options=options)
    assert outcome.status == "failed"
    assert "unpacks a row off by" in outcome.reason


@pytest.mark.parametrize("from_peers", [False, True])
def test_a_communication_that_moves_no_rows_plans_none(from_peers):
    def plan(unit, needed, held):
        first, others, nothing = needed[:1], needed[1:], needed[:0]
        if from_peers:
            return Fetch(unit.slot, needed, nothing, others, (PeerFetch(unit.slot, first),))
        return Fetch(unit.slot, needed, first, others)

    part = planning("moves-a-row", "moves a row", "", plan, NoCommunication).part
    outcome = run(plugins.load(objects=[part]), "bytes-add-up", "communication=moves-a-row")
    assert outcome.status == "failed", outcome.reason
    assert "says that it moves no rows, and plans 1 to slot 0" in outcome.reason


def test_a_row_is_rounded_by_its_own_values():
    """One scale for all rows ruins the rows with small values."""

    def unpack(self, crossed, dtype):
        rows = crossed[0].to(dtype)
        return rows + 0.2 * rows.abs().max() if self.rounded else rows

    wrong = load_wrong(Rounding, unpack=unpack)
    outcome = run(wrong, "costs", options={"communication": {"rounded": "true"}})
    assert outcome.status == "failed", outcome.reason
    assert "unpacks a row off by" in outcome.reason


def test_a_law_of_its_own_is_said_not_to_be_tested():
    lean = FAULTS["draws-lean"].part
    outcome = run(load_wrong(lean, law="by degree"), "sampling-law")
    assert outcome.status == "passed", outcome.reason
    assert "(by degree), so it was not tested" in outcome.reason


def test_a_sampler_is_not_refused_for_other_load_beside_its_first_unforeseen_epochs():
    drawn = []

    def sample(self, seeds, epoch, threads):
        drawn.append(epoch)
        strange = {each for each in drawn if each >= clock.FIRST_UNFORESEEN}
        if epoch in strange and len(strange) <= clock.EPOCHS:
            time.sleep(0.02)
        return NeighbourSampler.sample(self, seeds, epoch, threads)

    outcome = run(load_wrong(NeighbourSampler, sample=sample), "clock")
    assert outcome.status == "passed", outcome.reason
    firsts = list(dict.fromkeys(drawn))[: 2 * clock.EPOCHS : 2]
    assert {first >= clock.FIRST_UNFORESEEN for first in firsts} == {True, False}


def test_samplers_of_full_graphs_state_no_costs(registry):
    outcome = run(registry, "costs", "sampler=full-graph")
    said = (outcome.status, outcome.reason)
    assert said == ("not-applicable", "samplers of full graphs state no costs")


WRITES = {
    "features": "dataset.features[0, 0] += 1",
    "labels": "dataset.labels[0] = 1 - dataset.labels[0]",
    "indptr": "dataset.graph.indptr[-2:-1] -= 1",
    "indices": "dataset.graph.indices[:2] = dataset.graph.indices[1::-1]",
    "train_mask": "dataset.train_mask[1] = True",
    "test_mask": "dataset.test_mask[:] = False",
}


@pytest.mark.parametrize("array", WRITES)
def test_a_part_that_writes_into_the_dataset_is_caught(array):
    base = NeighbourSampler if array in ("features", "indptr", "test_mask") else HostMemory

    def begin(self, setting):
        exec(WRITES[array], {"dataset": setting.dataset})
        base.begin(self, setting)

    outcome = run(load_wrong(base, begin=begin), "dataset-untouched")
    assert outcome.status == "failed"
    said = rf"wrote into the dataset it was handed \(conformance\): .*\b{array} changed"
    assert re.search(said, outcome.reason), outcome.reason


def test_a_strategy_that_refuses_the_first_graph_is_tried_on_another():
    def refuse(self, bundle, setting):
        return None if setting.dataset.graph.degrees.min() else "no isolated vertices, please."

    wrong = load_wrong(SinglePlacement, refuses=refuse)
    for check in ("every-vertex-once", "legal-timeline", "deterministic", "capacity"):
        assert run(wrong, check).status == "passed"
    assert run(wrong, "sampling-law").status == "not-reached"


def test_models_that_are_not_compared_are_named_with_the_reason():
    def refuse(self, bundle, setting):
        summed = all(layer.cacheable for layer in setting.layers)
        return None if summed else "no edges, please."

    outcome = run(load_wrong(SinglePlacement, refuses=refuse), "same-maths")
    assert outcome.status == "passed", outcome.reason
    compared, _, left_out = outcome.reason.partition(". Not compared: ")
    assert compared.startswith("commnet, gcn, gin, sage: losses within")
    assert left_out.startswith("gat, ggcn; ")
    assert left_out.endswith("no edges, please.")


class UnreadableError(Exception):
    def __str__(self):
        raise ValueError("no words")


class Base(BaseException):
    pass


def fail_with(raised):
    def fail(self, *given):
        raise raised

    return fail


#: In each kind of part, where it is called; each kind of exception somewhere.
RAISED = [
    (NeighbourSampler, "rounds", SystemExit(0), "a part called sys.exit"),
    (SinglePlacement, "open", Base("gone"), "Base: gone"),
    (HostMemory, "begin", UnreadableError(), "Unreadable"),
    (TorchKernel, "adjacency", GeneratorExit(), "GeneratorExit"),
    (VanillaCommunication, "open", UnreadableError(), "Unreadable"),
]


@pytest.mark.parametrize(("base", "method", "raised", "says"), RAISED)
def test_whatever_a_part_raises_is_a_failed_check_with_a_sentence(base, method, raised, says):
    wrong = load_wrong(base, **{method: fail_with(raised)})
    outcomes = [run(wrong, check) for check in ("same-maths", "legal-timeline", "deterministic")]
    assert {outcome.status for outcome in outcomes} == {"failed"}
    assert all(says in outcome.reason for outcome in outcomes)
    assert all("\n" not in outcome.reason for outcome in outcomes)


def test_a_strategy_has_an_outcome_of_every_check():
    wrong = load_wrong(NeighbourSampler, rounds=fail_with(SystemExit(0)))
    outcomes = conformance.check_strategy(wrong, "wrong")
    assert [outcome.check for outcome in outcomes] == list(CHECKS)
    assert all(outcome.reason and "\n" not in outcome.reason for outcome in outcomes)


def test_the_keyboard_still_interrupts():
    with pytest.raises(KeyboardInterrupt):
        run(load_wrong(HostMemory, begin=fail_with(KeyboardInterrupt())), "deterministic")


def test_a_part_is_checked_in_a_strategy_that_takes_it(registry):
    documented = run(registry, "options-documented", "communication=hongtu").reason
    assert "p2p (true or false" in documented
    assert "numa_aware" not in documented
    assert run(registry, "described", "communication=hongtu").reason.endswith("1 parts")


def test_a_part_in_no_strategy_is_put_into_the_reference():
    alone = [FAULTS["wide-columns-lost"].part]
    outcome = run(plugins.load(objects=alone), "kernel-maths", "kernel=wide-columns-lost")
    assert outcome.status == "failed"
    said = "kernel 'wide-columns-lost', float32, a block with isolated rows: sum of width 65"
    assert said in outcome.reason


@pytest.mark.parametrize("shuffled", [True, False])
def test_seeds_that_are_not_shuffled_are_named(shuffled):
    rounds = {} if shuffled else {"rounds": lambda self, _: NeighbourSampler.rounds(self, 0)}
    outcome = run(load_wrong(NeighbourSampler, **rounds), "sampling-law")
    assert outcome.status == "passed"
    assert ("seeds are not shuffled" in outcome.reason) is not shuffled
