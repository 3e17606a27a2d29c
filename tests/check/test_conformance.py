"""The bundled strategies keep their promises, and faults of records are found."""

import dataclasses
import re

import numpy as np
import pytest

from gnnbench import check as conformance
from gnnbench import plugins
from gnnbench.check import faults, graphs
from gnnbench.check.subject import find_subject
from gnnbench.parts import find_coverage_fault
from gnnbench.program.recorder import Recorder
from gnnbench.records import (
    AggregateWork,
    Block,
    Fetch,
    PeerFetch,
    Round,
    RoundTraffic,
    Scheduled,
    Span,
    Unit,
)

BUNDLED = tuple(strategy.name for strategy in plugins.load().strategies)
CHECKS = {check.name: check for check in conformance.CHECKS}


#: What other maths, or the want of options to choose, leave nothing to say about.
APPLIES_NOT = {
    "same-maths": {"bnsgcn", "distgnn", "pipegcn", "sancus"},
    "every-choice": {"native", "p3"},
}


@pytest.mark.long
@pytest.mark.parametrize("strategy", BUNDLED)
def test_bundled_strategy_conforms(registry, strategy, one_thread):
    outcomes = conformance.check_strategy(registry, strategy)
    assert [outcome.check for outcome in outcomes] == list(CHECKS)
    for outcome in outcomes:
        left_out = strategy in APPLIES_NOT.get(outcome.check, ())
        if outcome.check in ("sampling-law", "clock"):
            left_out = "mini-batch" not in registry.strategy(strategy).bundles
        due = "not-applicable" if left_out else "passed"
        assert outcome.status == due, f"{outcome.check}: {outcome.reason}"
        assert outcome.reason


#: Parts that no bundled strategy has, and checks of what their kind may get wrong.
OF_SAMPLERS = ("every-vertex-once", "sampling-law", "clock", "every-choice", "costs")
PARTS = {
    "sampler=saint": OF_SAMPLERS,
    "sampler=layerwise": OF_SAMPLERS,
    "sampler=hpgnn-saint": OF_SAMPLERS,
    "sampler=dgl": OF_SAMPLERS,
    "communication=hyscale-int8": ("costs", "bytes-add-up", "every-choice"),
    "memory=hongtu-cache": ("costs", "bytes-add-up", "capacity"),
    "kernel=spu": ("kernel-maths", "costs", "legal-timeline"),
}


@pytest.mark.parametrize("part", PARTS)
def test_bundled_part_conforms(registry, part, one_thread):
    for check in PARTS[part]:
        outcome = conformance.run_check(CHECKS[check], registry, part)
        assert outcome.status == "passed", f"{outcome.check}: {outcome.reason}"


@pytest.mark.long
@pytest.mark.parametrize("part", PARTS)
def test_bundled_part_conforms_in_all(registry, part, one_thread):
    for outcome in conformance.check_strategy(registry, part):
        assert outcome.status in ("passed", "not-applicable"), f"{outcome.check}: {outcome.reason}"


def test_nothing_is_sampled_of_a_full_graph(registry):
    outcome = conformance.run_check(CHECKS["sampling-law"], registry, "hongtu-im")
    assert outcome.status == "not-applicable"
    assert "nothing is sampled for a full graph" in outcome.reason


def test_rows_that_a_device_has_cached_are_looked_for_in_what_crossed(registry, monkeypatch):
    check = CHECKS["bytes-add-up"]
    outcome = conformance.run_check(check, registry, "pagraph")
    assert outcome.status == "passed", outcome.reason
    assert re.search(r"in a run 0 rows crossed and [1-9]\d* were reused", outcome.reason)

    end_epoch = Recorder.end_epoch

    def forget_reuse(self, *counted):
        trace = end_epoch(self, *counted)
        return dataclasses.replace(trace, bytes={**trace.bytes, "reused": 0})

    monkeypatch.setattr(Recorder, "end_epoch", forget_reuse)
    outcome = conformance.run_check(check, registry, "pagraph")
    assert outcome.status == "failed"
    assert_matches(
        r"of \d+ rows that were to cross or to be reused 0 crossed and 0 were reused",
        outcome.reason,
    )


def test_rounds_and_training_set_divide_unevenly():
    dataset, workload = graphs.make_dataset(), graphs.make_workload()
    assert (dataset.train_mask & (dataset.labels < 0)).any()
    assert len(dataset.train_ids) % workload.batch_size != 0
    assert workload.batch_size % len(graphs.make_platform().accelerators) != 0


def assert_matches(pattern, text):
    assert text is not None
    with pytest.raises(AssertionError, match=pattern):
        raise AssertionError(text)


def ids(*values):
    return np.array(values, dtype=np.int64)


def round_of(*inputs):
    units = []
    for slot, rows in enumerate(inputs):
        empty = np.zeros(len(rows) + 1, dtype=np.int64)
        block = Block(ids(*rows), len(rows), empty, np.empty(0, dtype=np.int32))
        units.append(Unit(slot, (block,)))
    return Round(0, tuple(units))


def test_sharing_by_hand_is_without_fault():
    """Two slots need {0,1,2} and {1,2,3}; slot 0 brings 0 and 1, slot 1 brings 2 and 3."""
    round_ = round_of((0, 1, 2), (3, 2, 1))
    first = RoundTraffic(
        (
            Fetch(0, ids(0, 1, 2), ids(0, 1), ids(), (PeerFetch(1, ids(2)),)),
            Fetch(1, ids(1, 2, 3), ids(2, 3), ids(), (PeerFetch(0, ids(1)),)),
        )
    )
    again = RoundTraffic(
        tuple(dataclasses.replace(f, from_host=ids(), reused=f.from_host) for f in first.fetches)
    )
    assert conformance.find_traffic_fault(round_, first, None) is None
    assert conformance.find_traffic_fault(round_, again, first) is None


@pytest.mark.parametrize(
    ("fetch", "says"),
    [
        (Fetch(0, ids(0, 1), ids(0, 1), ids()), "needed and the unit's input differ by 1 rows"),
        (Fetch(0, ids(0, 1, 2), ids(1, 0, 2), ids()), "from_host does not ascend"),
        (Fetch(0, ids(0, 1, 2), ids(0, 1, 2), ids(2)), "row 2 both crosses from the host and is"),
        (Fetch(0, ids(0, 1, 2), ids(0, 1), ids(2)), "row 2 is reused, but the slot did not hold"),
        (Fetch(0, ids(0, 1, 2), ids(0, 1), ids()), "row 2 is needed and comes from nowhere"),
        (
            Fetch(0, ids(0, 1, 2), ids(0), ids(), (PeerFetch(1, ids(1, 2)),)),
            "row 1 comes from slot 1, which does not bring it in",
        ),
        (
            Fetch(0, ids(0, 1, 2), ids(0, 1, 2), ids(), (PeerFetch(1, ids(2)),)),
            "row 2 comes from slot 1 and from elsewhere too",
        ),
        (
            Fetch(0, ids(0, 1, 2), ids(0, 1, 2), ids(), (PeerFetch(1, ids(3)),)),
            "row 3 comes from slot 1 but the unit does not need it",
        ),
        (
            Fetch(0, ids(0, 1, 2), ids(0, 1), ids(), (PeerFetch(2, ids(2)),)),
            "a peer fetch from slot 2, which is no peer",
        ),
        (Fetch(1, ids(0, 1, 2), ids(0, 1, 2), ids()), r"fetches for slots \[1, 1\]"),
    ],
)
def test_traffic_fault_is_found(fetch, says):
    round_ = round_of((0, 1, 2), (2, 3))
    traffic = RoundTraffic((fetch, Fetch(1, ids(2, 3), ids(2, 3), ids())))
    assert_matches(says, conformance.find_traffic_fault(round_, traffic, None))


def test_a_stream_keeps_the_rows_of_its_own_vertices_and_no_others():
    """Slot 0 computes 0 and 1, and reads 2 besides."""
    block = Block(ids(0, 1, 2), 2, np.array([0, 1, 1]), np.array([2], dtype=np.int32))
    round_ = Round(0, (Unit(0, (block,)),))
    before = RoundTraffic((Fetch(0, ids(0, 1, 2), ids(0, 1, 2), ids()),))
    own = RoundTraffic((Fetch(0, ids(0, 1, 2), ids(2), ids(0, 1)),))
    other = RoundTraffic((Fetch(0, ids(0, 1, 2), ids(1), ids(0, 2)),))

    def find(traffic, *, keeps_own):
        return conformance.find_traffic_fault(
            round_, traffic, before, shares_rows=False, keeps_own=keeps_own
        )

    assert find(own, keeps_own=True) is None
    for traffic, keeps_own in ((own, False), (other, True)):
        assert_matches("the part does not set shares_rows", find(traffic, keeps_own=keeps_own))


@pytest.mark.parametrize(
    ("shares", "says"),
    [
        ([(0, 5), (1, 4)], "shares of 9 seeds in all for a round of 10"),
        ([(1, 5), (0, 5)], "must ascend"),
        ([(0, 5), (2, 5)], "lie in 0 to 1"),
        ([(0, 11), (1, -1)], "a share of -1 seeds"),
    ],
)
def test_split_fault_is_found(shares, says):
    assert conformance.find_split_fault([(0, 10), (1, 0)], 10, 2) is None
    assert_matches(says, conformance.find_split_fault(shares, 10, 2))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([ids(0, 1)], "1 vertices in no unit, the first is 2"),
        ([ids(0, 1), ids(1, 2)], "vertex 1 in 2 units"),
        ([ids(0, 1), ids(2, 7)], "vertex 7 in a unit although it is none of the vertices"),
    ],
)
def test_coverage_fault_is_found(given, says):
    assert find_coverage_fault([ids(2), ids(0, 1)], ids(0, 1, 2), "vertices") is None
    assert_matches(says, find_coverage_fault(given, ids(0, 1, 2), "vertices"))


@pytest.mark.parametrize(
    ("src", "indptr", "indices", "fanouts", "says"),
    [
        ((0, 1, 2), (0, 2), (1, 1), (2,), "vertex 0 has an in-edge twice"),
        ((3, 0, 2), (0, 2), (1, 2), (2,), "or one that the graph does not have"),
        ((0, 1, 2), (0, 2), (1, 2), (1,), "vertex 0 has 2 in-edges where 1 are due"),
        ((0, 1), (0, 1), (1,), (0,), "vertex 0 has 1 in-edges where 3 are due"),
        ((0, 1), (0, 1), (1,), (2,), "1 in-edges where 2 are due, of a fan-out of 2 and 3 n"),
        ((0, 1, 1), (0, 1), (1,), None, "a source row twice"),
    ],
)
def test_unit_fault_is_found(src, indptr, indices, fanouts, says):
    star = graphs.Graph(ids(0, 3, 4, 5, 6), np.array([1, 2, 3, 0, 0, 0], dtype=np.int32))
    block = Block(ids(*src), 1, ids(*indptr), np.array(indices, dtype=np.int32))
    assert_matches(says, conformance.find_unit_fault(Unit(0, (block,)), star, fanouts))


def test_blocks_that_do_not_fit_on_each_other_are_found():
    lonely = graphs.Graph(ids(0, 0, 0), np.empty(0, dtype=np.int32))
    none = np.empty(0, dtype=np.int32)
    below, above = Block(ids(0), 1, ids(0, 0), none), Block(ids(1), 1, ids(0, 0), none)
    fault = conformance.find_unit_fault(Unit(0, (below, above)), lonely, (2, 2))
    assert_matches("are not the sources of the next", fault)


def entry(number, start_s, seconds, resource="gpu0", after=(), end_s=None):
    of_gpu = ("aggregate", "work", resource, (resource,), AggregateWork(), after)
    span = Span(
        number, *of_gpu, epoch=0, round=0, layer=0, seconds=seconds, wall_start_s=0, wall_s=0
    )
    return Scheduled(span, start_s, start_s + seconds if end_s is None else end_s)


@pytest.mark.parametrize(
    ("timeline", "says"),
    [
        ([entry(0, 0.0, 2.0), entry(1, 1.0, 2.0)], "spans 0 and 1 hold gpu0 at the same time"),
        (
            [entry(0, 0.0, 2.0), entry(1, 1.0, 2.0, "gpu1", after=(0,))],
            "span 1 .* starts before span 0, which it waits for, has ended",
        ),
        ([entry(0, 0.0, 1.0, after=(5,))], "waits for span 5, which is not on the timeline"),
        ([entry(0, 0.0, float("nan"))], "lasts nan s"),
        ([entry(0, -1.0, 1.0)], r"starts at -1\.0 s"),
        ([entry(0, 0.0, 1.0, end_s=3.0)], r"lasts 1\.0 s but stands for 3\.0 s"),
    ],
)
def test_timeline_fault_is_found(timeline, says):
    legal = [entry(0, 0.0, 2.0), entry(1, 2.0, 1.0, after=(0,)), entry(2, 0.0, 3.0, "gpu1")]
    assert conformance.find_timeline_fault(legal) is None
    assert_matches(says, conformance.find_timeline_fault(timeline))


def test_spans_may_meet_on_a_lane_that_is_shared_and_are_never_faster_for_it():
    meeting = [entry(0, 0.0, 1.0, "up", end_s=2.0), entry(1, 0.0, 1.0, "up", end_s=2.0)]
    assert conformance.find_timeline_fault(meeting, {"up"}) is None
    assert_matches("stands for", conformance.find_timeline_fault(meeting))
    fast = [entry(0, 0.0, 2.0, "up", end_s=1.0)]
    assert_matches("stands for", conformance.find_timeline_fault(fast, {"up"}))


def test_pieces_of_a_grid_are_joined_before_their_vertices_are_counted():
    """Vertices 0 and 1 with in-edges of 2 in one piece, and of each other and 3 in the next."""
    first = Block(ids(0, 1, 2), 2, np.array([0, 1, 2]), np.array([2, 2], dtype=np.int32))
    second = Block(ids(0, 1, 3), 2, np.array([0, 2, 3]), np.array([1, 2, 0], dtype=np.int32))
    rounds = [Round(number, (Unit(0, (block,)),)) for number, block in enumerate((first, second))]
    (unit,) = faults.join_pieces(rounds, 2)
    (block,) = unit.blocks
    found = [
        sorted(block.src_ids[block.indices[block.indptr[row] : block.indptr[row + 1]]].tolist())
        for row in range(2)
    ]
    assert (block.dst_ids.tolist(), found) == ([0, 1], [[1, 2, 3], [0, 2]])
    assert len(faults.join_pieces(rounds, 1)) == 2
    # Other destinations are no piece of the same.
    other = Round(1, (Unit(0, (Block(ids(3), 1, np.array([0, 0]), first.indices[:0]),)),))
    assert len(faults.join_pieces([rounds[0], other], 2)) == 2


def test_a_communication_is_put_where_several_devices_have_something_to_move(registry):
    """Not into the reference, which has it as well and trains on one."""
    for name in ("vanilla", "halo"):
        subject = find_subject(registry, f"communication={name}")
        for mode in subject.modes:
            _, _, platform = subject.small(mode)
            trainers = subject.assemble(mode).placement.trainers(platform)
            assert len(trainers) > 1, (name, mode)
