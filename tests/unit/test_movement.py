"""Rows travel as the plan says: forward gathers, backward accumulates, and a wrong plan shows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnbench.engine.movement import ForwardBuffers, GradientBuffers, plan_movement
from gnnbench.records import Block, Fetch, PeerFetch, Round, RoundTraffic, Unit
from gnnbench_plugins.hongtu.communication import HongTuCommunication
from gnnbench_plugins.reference.communication import VanillaCommunication

WIDTH = 3


def reading(slot, ids):
    """A unit that reads the rows ``ids`` and computes nothing."""
    block = Block(
        src_ids=np.array(ids, dtype=np.int64),
        num_dst=0,
        indptr=np.zeros(1, dtype=np.int64),
        indices=np.empty(0, dtype=np.int32),
    )
    return Unit(slot, (block,))


def ids(*values):
    return np.array(values, dtype=np.int64)


def plan(communication, rounds, owner):
    traffic = []
    for round_ in rounds:
        traffic.append(communication.plan(round_, traffic[-1] if traffic else None, owner))
    return traffic


def gather(rounds, traffic, source, *, shares_rows=True):
    """Every unit's input rows by (round, slot), moved as the engines move them (Algorithm 2)."""
    buffers, gathered = ForwardBuffers(), {}
    moved = plan_movement(rounds, traffic, shares_rows=shares_rows)
    for round_, moves in zip(rounds, moved, strict=True):
        for move in moves:
            rows = source[move.host_ids]
            if move.direct:
                gathered[round_.index, move.slot] = rows
                continue
            buffers.reuse(move, source, source.device)
            buffers.load(move, rows)
        if shares_rows:
            buffers.commit()
            for move in moves:
                gathered[round_.index, move.slot] = buffers.assemble(move)
    return gathered


def scatter(rounds, traffic, gradients, num_vertices, *, shares_rows=True):
    """The host's gradient after every unit's was sent back (Algorithm 3)."""
    total = torch.zeros((num_vertices, WIDTH), dtype=torch.float64)
    buffers = GradientBuffers()
    moved = plan_movement(rounds, traffic, shares_rows=shares_rows)
    for round_, moves in zip(rounds, moved, strict=True):
        if not shares_rows:
            for move in moves:
                total.index_add_(0, move.input_ids, gradients[round_.index, move.slot])
            continue
        buffers.commit({move.slot: buffers.opened(move, total) for move in moves})
        for move in moves:
            buffers.accumulate(move, gradients[round_.index, move.slot])
        for move in moves:
            total.index_add_(0, move.leaving_ids, buffers.leave(move))
    return total


def whole_numbers(rows, seed):
    """Whole numbers in float64: sums are exact in any order, so equal means equal to the bit."""
    random = np.random.default_rng(seed)
    return torch.from_numpy(random.integers(-9, 10, size=(rows, WIDTH)).astype(np.float64))


def dense_sum(rounds, gradients, num_vertices):
    total = torch.zeros((num_vertices, WIDTH), dtype=torch.float64)
    for round_ in rounds:
        for unit in round_.units:
            total.index_add_(
                0, torch.from_numpy(unit.input_ids), gradients[round_.index, unit.slot]
            )
    return total


@st.composite
def schedules(draw):
    """Rounds of any neighbour sets, in any order within a set, over any owners."""
    slots = draw(st.integers(1, 4))
    vertices = draw(st.integers(1, 12))
    vertex = st.integers(0, vertices - 1)
    rounds = tuple(
        Round(j, tuple(reading(i, draw(st.lists(vertex, unique=True))) for i in range(slots)))
        for j in range(draw(st.integers(1, 4)))
    )
    owner = draw(st.lists(st.integers(0, slots - 1), min_size=vertices, max_size=vertices))
    return rounds, ids(*owner)


COMMUNICATIONS = [
    pytest.param(HongTuCommunication(p2p=p2p, reuse=reuse), id=f"p2p={p2p}-reuse={reuse}")
    for p2p in (True, False)
    for reuse in (True, False)
] + [pytest.param(VanillaCommunication(), id="vanilla")]


@pytest.mark.parametrize("communication", COMMUNICATIONS)
@given(schedule=schedules())
@settings(deadline=None, max_examples=60)
def test_forward_gathers_exactly_the_rows_asked_for(communication, schedule):
    rounds, owner = schedule
    source = whole_numbers(len(owner), seed=1)
    traffic = plan(communication, rounds, owner)
    gathered = gather(rounds, traffic, source, shares_rows=communication.shares_rows)
    for round_ in rounds:
        for unit in round_.units:
            assert torch.equal(gathered[round_.index, unit.slot], source[unit.input_ids])


@pytest.mark.parametrize("communication", COMMUNICATIONS)
@given(schedule=schedules())
@settings(deadline=None, max_examples=60)
def test_backward_accumulates_exactly_the_dense_sum(communication, schedule):
    rounds, owner = schedule
    gradients = {
        (round_.index, unit.slot): whole_numbers(len(unit.input_ids), seed=7 * k + unit.slot)
        for k, round_ in enumerate(rounds)
        for unit in round_.units
    }
    traffic = plan(communication, rounds, owner)
    total = scatter(rounds, traffic, gradients, len(owner), shares_rows=communication.shares_rows)
    assert torch.equal(total, dense_sum(rounds, gradients, len(owner)))


@given(schedule=schedules())
@settings(deadline=None, max_examples=60)
def test_as_many_rows_leave_backward_as_come_from_the_host_forward(schedule):
    rounds, owner = schedule
    traffic = plan(HongTuCommunication(), rounds, owner)
    moved = plan_movement(rounds, traffic, shares_rows=True)
    arrived = sum(move.rows_from_host for moves in moved for move in moves)
    left = sum(len(move.leaving) for moves in moved for move in moves)
    assert left == arrived


# --------------------------------------------------------------------------- wrong plans

#: Two devices, two rounds; device 0 owns vertices 0 and 1, device 1 owns 2 and 3.
ROUNDS = (
    Round(0, (reading(0, [2, 0]), reading(1, [0, 2, 3]))),
    Round(1, (reading(0, [1, 0]), reading(1, [3, 1]))),
)
OWNER = ids(0, 0, 1, 1)


def right_plan():
    return plan(HongTuCommunication(), ROUNDS, OWNER)


def changed(traffic, round_index, slot, **fields):
    fetches = list(traffic[round_index].fetches)
    fetches[slot] = replace(fetches[slot], **fields)
    return [
        RoundTraffic(tuple(fetches)) if index == round_index else item
        for index, item in enumerate(traffic)
    ]


def test_the_plan_that_is_broken_below():
    (first, second) = (t.fetches for t in right_plan())
    assert [f.transition.tolist() for f in first] == [[0], [2, 3]]
    assert [f.transition.tolist() for f in second] == [[0, 1], [3]]
    assert [f.reused.tolist() for f in second] == [[0], [3]]
    assert [f.from_host.tolist() for f in second] == [[1], []]
    assert [[(p.slot, p.ids.tolist()) for p in f.from_peers] for f in first] == [
        [(1, [2])],
        [(0, [0])],
    ]


@pytest.mark.parametrize(
    ("round_index", "slot", "fields", "says"),
    [
        pytest.param(
            0, 0, {"from_peers": ()}, "each of its 2 rows exactly once", id="a fetch left out"
        ),
        pytest.param(
            0,
            0,
            {"from_peers": (PeerFetch(1, ids(2)), PeerFetch(1, ids(2)))},
            "each of its 2 rows exactly once",
            id="a row fetched twice",
        ),
        pytest.param(
            1,
            1,
            {"from_host": ids(), "reused": ids()},
            "each of its 2 rows exactly once",
            id="a transition row left out",
        ),
        pytest.param(0, 1, {"from_host": ids(3)}, "does not hold it", id="a host row left out"),
        pytest.param(
            1,
            1,
            {"reused": ids(1, 3), "from_peers": ()},
            "does not hold it",
            id="a row kept that was not there",
        ),
    ],
)
def test_a_plan_with_a_hole_is_refused(round_index, slot, fields, says):
    traffic = changed(right_plan(), round_index, slot, **fields)
    with pytest.raises(ValueError, match=says):
        plan_movement(ROUNDS, traffic, shares_rows=True)


def test_one_row_twice_and_another_never_is_refused():
    """The count is right, the rows are not."""
    rounds = (Round(0, (reading(0, [2, 3]), reading(1, [2, 3]), reading(2, [2]))),)
    host = [ids(), ids(2, 3), ids(2)]
    peers = [(PeerFetch(1, ids(2)), PeerFetch(2, ids(2))), (), ()]
    fetches = tuple(
        Fetch(
            slot=slot,
            needed=np.sort(unit.input_ids),
            from_host=host[slot],
            reused=ids(),
            from_peers=peers[slot],
        )
        for slot, unit in enumerate(rounds[0].units)
    )
    with pytest.raises(ValueError, match="each of its 2 rows exactly once"):
        plan_movement(rounds, [RoundTraffic(fetches)], shares_rows=True)


@pytest.mark.parametrize(
    "tamper",
    [
        pytest.param(lambda move: setattr(move, "host_ids", move.host_ids ^ 1), id="host rows"),
        pytest.param(
            lambda move: setattr(move, "host_into", move.host_into.flip(0)), id="places in a buffer"
        ),
        pytest.param(
            lambda move: setattr(move.pulls[0], "source", move.pulls[0].source.flip(0)),
            id="rows of a buffer",
        ),
    ],
)
def test_forward_follows_the_movement(tamper):
    """Rows come from where the movement says, not from where they happen to be right."""
    source = torch.arange(4 * WIDTH, dtype=torch.float64).reshape(4, WIDTH)
    moves = plan_movement(ROUNDS, right_plan(), shares_rows=True)[0]
    tamper(moves[1])  # transition rows 2 and 3
    buffers = ForwardBuffers()
    for move in moves:
        buffers.reuse(move, source, source.device)
        buffers.load(move, source[move.host_ids])
    buffers.commit()
    assert not torch.equal(buffers.assemble(moves[1]), source[moves[1].input_ids])


def test_backward_follows_the_movement():
    """A gradient that is kept and one that leaves are told apart by the movement alone."""
    gradients = {
        (round_.index, unit.slot): torch.ones((len(unit.input_ids), WIDTH), dtype=torch.float64)
        for round_ in ROUNDS
        for unit in round_.units
    }
    right = dense_sum(ROUNDS, gradients, 4)
    assert torch.equal(scatter(ROUNDS, right_plan(), gradients, 4), right)
    # Round 1 loads row 3 again instead of keeping it: now round 0 lets it go, and it all adds up.
    again = changed(right_plan(), 1, 1, from_host=ids(3), reused=ids())
    assert torch.equal(scatter(ROUNDS, again, gradients, 4), right)
    # Where only round 0 believes so, the gradient of row 3 is added twice.
    kept, loaded = (plan_movement(ROUNDS, t, shares_rows=True) for t in (right_plan(), again))
    total = torch.zeros((4, WIDTH), dtype=torch.float64)
    buffers = GradientBuffers()
    for round_, moves in zip(ROUNDS, (loaded[0], kept[1]), strict=True):
        buffers.commit({move.slot: buffers.opened(move, total) for move in moves})
        for move in moves:
            buffers.accumulate(move, gradients[round_.index, move.slot])
        for move in moves:
            total.index_add_(0, move.leaving_ids, buffers.leave(move))
    assert torch.equal(total[3], right[3] + 1)
    assert torch.equal(total[:3], right[:3])


def test_the_direct_movement_has_no_buffers():
    traffic = plan(VanillaCommunication(), ROUNDS, OWNER)
    for round_, moves in zip(
        ROUNDS, plan_movement(ROUNDS, traffic, shares_rows=False), strict=True
    ):
        for unit, move in zip(round_.units, moves, strict=True):
            assert move.direct
            assert move.rows_from_host == len(unit.input_ids)
            assert (move.rows_reused, move.rows_from_peers, move.pulls) == (0, (), ())


def test_a_fetch_without_reuse_is_its_own_transition():
    fetch = Fetch(slot=0, needed=ids(1, 2), from_host=ids(1, 2), reused=ids())
    assert fetch.transition.tolist() == [1, 2]
