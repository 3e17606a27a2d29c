"""Rows travel as the plan says: forward gathers, backward accumulates, and a wrong plan shows."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnbench.kernels.dispatch import open_rounds
from gnnbench.kernels.native import load
from gnnbench.kernels.reference import movement as reference
from gnnbench.lowering.capacity import plan_rounds
from gnnbench.lowering.movement import MovementPlanner, largest_buffers, plan_movement
from gnnbench.records import Block, BufferRows, Fetch, PeerFetch, Round, RoundTraffic, Unit
from gnnbench.run.movement import Buffers, move_staged
from gnnbench_plugins.hongtu.communication import HongTuCommunication
from gnnbench_plugins.reference.communication import VanillaCommunication

WIDTH = 3
#: More than any graph here has.
VERTICES = 40


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
    return plan_rounds(communication.open(owner), rounds)


def plan_moves(rounds, traffic, shares_rows=True):
    return plan_movement(rounds, traffic, VERTICES, shares_rows=shares_rows)


CPU = torch.device("cpu")


def buffers_for(traffic, width=WIDTH):
    """Buffers as large as the largest round's, full of what would spoil any sum."""
    buffers = Buffers()
    for slot, rows in largest_buffers(traffic).items():
        buffers.make_room(slot, rows, width, torch.float64, CPU)
        buffers._neighbour[slot].fill_(torch.nan)
        buffers._transition[slot].fill_(torch.nan)
    return buffers


def pull_all(buffers, moves):
    for move in moves:
        for pull in move.pulls:
            buffers.pull(move, pull)


def gather(rounds, traffic, source, *, shares_rows=True):
    """Every unit's input rows by (round, slot), moved as the engines move them (Algorithm 2)."""
    buffers, gathered = buffers_for(traffic), {}
    moved = plan_moves(rounds, traffic, shares_rows)
    for round_, moves in zip(rounds, moved, strict=True):
        for move in moves:
            if move.direct:
                gathered[round_.index, move.slot] = source[move.host_ids]
            elif move.slot % 2:
                buffers.load(move, source[move.host_ids])
            else:
                buffers.bring(move, source)
        if shares_rows:
            pull_all(buffers, moves)
            for move in moves:
                gathered[round_.index, move.slot] = buffers.assemble(move)
                assert buffers.rows(move).isfinite().all()  # free places hold old rows
    return gathered


def go_back(buffers, moves, gradients, total):
    """One round of Algorithm 3; ``gradients`` are those of the units' inputs, by slot."""
    for move in moves:
        buffers.clear(move)
    for move in moves:
        buffers.rows(move)[move.input_places] += gradients[move.slot]
        for push in move.pushes:
            buffers.push(move, push)
    for move in moves:
        buffers.leave(move, total)


def scatter(rounds, traffic, gradients, num_vertices, *, shares_rows=True):
    """The host's gradient after every unit's was sent back (Algorithm 3)."""
    total = torch.zeros((num_vertices, WIDTH), dtype=torch.float64)
    buffers = buffers_for(traffic)
    moved = plan_moves(rounds, traffic, shares_rows)
    for round_, moves in zip(rounds, moved, strict=True):
        of_round = {move.slot: gradients[round_.index, move.slot] for move in moves}
        if shares_rows:
            go_back(buffers, moves, of_round, total)
            continue
        for move in moves:
            total.index_add_(0, torch.from_numpy(move.input_ids), of_round[move.slot])
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


DEDUPLICATED = st.builds(
    HongTuCommunication,
    p2p=st.booleans(),
    reuse=st.booleans(),
    neighbour_reuse=st.booleans(),
    buffers=st.sampled_from(["merged", "separate"]),
)


@given(communication=DEDUPLICATED | st.just(VanillaCommunication()), schedule=schedules())
@settings(deadline=None, max_examples=200)
def test_rows_come_and_gradients_go_back_exactly_as_asked_for(communication, schedule):
    """Rows to the bit, gradients as the dense sum, and as many back as came: to the host as from
    it, and to the owners as from them."""
    rounds, owner = schedule
    shares_rows = communication.shares_rows
    source = whole_numbers(len(owner), seed=1)
    gradients = {
        (round_.index, unit.slot): whole_numbers(len(unit.input_ids), seed=7 * k + unit.slot)
        for k, round_ in enumerate(rounds)
        for unit in round_.units
    }
    traffic = plan(communication, rounds, owner)
    gathered = gather(rounds, traffic, source, shares_rows=shares_rows)
    for round_ in rounds:
        for unit in round_.units:
            assert torch.equal(gathered[round_.index, unit.slot], source[unit.input_ids])
    total = scatter(rounds, traffic, gradients, len(owner), shares_rows=shares_rows)
    assert torch.equal(total, dense_sum(rounds, gradients, len(owner)))
    if not shares_rows:
        return
    every = [*itertools.chain(*plan_moves(rounds, traffic))]
    assert sum(len(m.leaving) for m in every) == sum(len(m.host_ids) for m in every)
    copied, pushed = (
        sum(exchange.rows for move in every for exchange in exchanges(move))
        for exchanges in (lambda m: m.pulls, lambda m: m.pushes)
    )
    assert pushed == copied
    check_sizes(communication, traffic, every)


def check_sizes(communication, traffic, moves):
    largest = largest_buffers(traffic)
    for slot, rows in largest.items():
        mine = [fetch for item in traffic for fetch in item.fetches if fetch.slot == slot]
        needed, transition = [f.needed for f in mine], [f.transition for f in mine]
        if communication.buffers == "merged":
            unions = map(np.union1d, needed, transition)
            assert rows == BufferRows(max(len(union) for union in unions))
        else:
            assert rows == BufferRows(max(map(len, needed)), max(map(len, transition)))
    for move in moves:
        assert move.block.num_src <= largest[move.slot].neighbour


def places_of(*sets):
    """By round, where one device without peers keeps each row, and the buffer's vertices."""
    rounds = tuple(Round(j, (reading(0, each),)) for j, each in enumerate(sets))
    traffic = plan(HongTuCommunication(), rounds, np.zeros(VERTICES, dtype=np.int64))
    for each, (move,) in zip(sets, plan_moves(rounds, traffic), strict=True):
        yield dict(zip(each, move.input_places.tolist(), strict=True)), move.block.src_ids


def test_figure_7_rows_that_stay_keep_their_places_and_are_not_written():
    """Figure 7 (a): {2,6,7} stay, {3,5,8} go to the places of the discarded {1,4,9}."""
    batches = [1, 2, 4, 6, 7, 9], [2, 3, 5, 6, 7, 8]
    (first, _), (second, _) = places_of(*batches)
    assert [first[v] for v in (1, 2, 4, 6, 7, 9)] == [0, 1, 2, 3, 4, 5]
    assert [second[v] for v in (2, 6, 7)] == [first[v] for v in (2, 6, 7)]
    assert [second[v] for v in (3, 5, 8)] == [first[v] for v in (1, 4, 9)]
    rounds = tuple(Round(j, (reading(0, batch),)) for j, batch in enumerate(batches))
    traffic = plan(HongTuCommunication(), rounds, np.zeros(10, dtype=np.int64))
    (before,), (after,) = plan_moves(rounds, traffic)
    assert before.host_ids.tolist() == [1, 2, 4, 6, 7, 9]
    assert after.host_ids.tolist() == [3, 5, 8]
    assert after.host_into.tolist() == [0, 2, 5]
    assert (after.rows_reused, after.pulls) == (3, ())


@given(sets=st.lists(st.sets(st.integers(0, 30)).map(sorted), min_size=1, max_size=6))
@settings(deadline=None, max_examples=60)
def test_places_are_the_lowest_free_and_kept(sets):
    """Against a dictionary of places and a search for the lowest free one."""
    expected, written = {}, set()
    for ids_read, (found, vertices) in zip(sets, places_of(*sets), strict=True):
        expected = {v: p for v, p in expected.items() if v in ids_read}
        for v in ids_read:
            if v not in expected:
                expected[v] = next(p for p in range(31) if p not in expected.values())
        assert found == expected
        assert len(vertices) == max(expected.values(), default=-1) + 1
        assert all(vertices[p] == v for v, p in expected.items())
        # Below the last place taken all have been written to.
        written |= set(expected.values())
        assert set(range(len(vertices))) <= written


def block_of(rows, num_dst, edges):
    """A block whose edges are (destination, source) positions in ``rows``."""
    indptr = np.searchsorted([d for d, _ in edges], np.arange(num_dst + 1)).astype(np.int64)
    return Block(ids(*rows), num_dst, indptr, np.array([s for _, s in edges], dtype=np.int32))


def with_edges(unit, random):
    rows = unit.input_ids.tolist()
    num_dst = random.randint(0, len(rows))
    pairs = itertools.product(range(num_dst), range(len(rows)))
    edges = [pair for pair in pairs if random.random() < 0.5]
    return Unit(unit.slot, (block_of(rows, num_dst, edges),))


@given(schedule=schedules(), merged=st.booleans(), random=st.randoms())
@settings(deadline=None, max_examples=60)
def test_a_rewritten_block_is_the_block(schedule, merged, random):
    """The same destinations, with the same in-edges in the same order, read from the buffer."""
    rounds, owner = schedule
    rounds = [Round(r.index, tuple(with_edges(unit, random) for unit in r.units)) for r in rounds]
    communication = HongTuCommunication(buffers="merged" if merged else "separate")
    traffic = plan(communication, rounds, owner)
    for round_, moves in zip(rounds, plan_moves(rounds, traffic), strict=True):
        for unit, move in zip(round_.units, moves, strict=True):
            block, placed = unit.blocks[0], move.block
            assert placed.num_dst == block.num_dst
            assert placed.dst_ids.tolist() == block.dst_ids.tolist()
            assert placed.indptr.tolist() == block.indptr.tolist()
            assert placed.src_ids[placed.indices].tolist() == block.src_ids[block.indices].tolist()
            assert placed.src_ids[move.input_places].tolist() == block.src_ids.tolist()


def test_a_slot_that_pauses_starts_again():
    """A mini-batch may leave a trainer without seeds: its rows are gone after that."""
    rounds = (Round(0, (reading(0, [1, 2]),)), Round(1, ()), Round(2, (reading(0, [2, 3]),)))
    traffic = plan(HongTuCommunication(), rounds, ids(0, 0, 0, 0))
    planner = MovementPlanner(VERTICES, shares_rows=True)
    *_, (last,) = (planner.plan(*each) for each in zip(rounds, traffic, strict=True))
    assert (last.rows_reused, len(last.host_ids)) == (0, 2)


@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize("staged", [1, 3, 100])
def test_rows_between_devices_cross_some_at_a_time(staged, add):
    source, target = torch.rand(20, WIDTH), torch.rand(30, WIDTH)
    ids = torch.randperm(20, dtype=torch.int32)[:10]
    places = torch.randperm(30, dtype=torch.int32)[:10]
    expected = target.clone()
    expected[places] = source[ids] + (target[places] if add else 0)
    move_staged(source, ids, target, places, staged, add=add)
    assert torch.equal(target, expected)


def test_buffers_grow_and_keep_what_they_hold():
    buffers = Buffers()
    buffers.make_room(0, BufferRows(2, 1), 1, torch.float64, CPU)
    buffers._neighbour[0].fill_(5.0)
    buffers.make_room(0, BufferRows(4, 1), 1, torch.float64, CPU)
    assert buffers._neighbour[0][:2].tolist() == [[5.0], [5.0]]
    assert buffers.size_bytes(0) == (4 + 1) * 8
    buffers.make_room(1, BufferRows(4), 1, torch.float64, CPU)
    assert buffers.size_bytes(1) == 4 * 8


@pytest.mark.skipif(load("movement") is None, reason="needs the compiled kernels")
@given(
    threads=st.sampled_from([1, 3]),
    buffers=st.sampled_from(["merged", "separate"]),
    schedule=schedules(),
    random=st.randoms(),
)
@settings(deadline=None, max_examples=120)
def test_the_compiled_positions_are_their_twins(threads, buffers, schedule, random):
    rounds, owner = schedule
    rounds = [Round(r.index, tuple(with_edges(unit, random) for unit in r.units)) for r in rounds]
    traffic = plan(HongTuCommunication(buffers=buffers), rounds, owner)
    if random.random() < 0.3:  # a pause
        rounds[-1], traffic[-1] = Round(len(rounds) - 1, ()), RoundTraffic((), traffic[-1].merged)
    makers = (open_rounds(VERTICES, threads=threads), reference.RoundPositions(VERTICES))
    for round_, now, after in zip(rounds, traffic, [*traffic[1:], None], strict=True):
        following = () if after is None or random.random() < 0.2 else after.fetches
        arguments = (round_.units, now.fetches, following, now.buffer_rows(), now.merged)
        made, twins = (maker.follow(*arguments) for maker in makers)
        assert len(made) == len(twins) == len(round_.units)
        for each, twin in zip(made, twins, strict=True):
            for name in ("positions", "vertices", "indices"):
                array, other = getattr(each, name), getattr(twin, name)
                assert array.dtype == other.dtype
                np.testing.assert_array_equal(array, other)
            for name in ("lengths", "copied_from", "pushed_to", "in_front"):
                assert getattr(each, name) == getattr(twin, name)


def test_a_row_read_from_a_peer_twice_crosses_once_and_goes_back_once():
    """Device 0 reads vertex 1, which device 1 owns, in both rounds."""
    rounds = (
        Round(0, (reading(0, [0, 1]), reading(1, [1]))),
        Round(1, (reading(0, [1]), reading(1, [1]))),
    )
    traffic = plan(HongTuCommunication(), rounds, ids(0, 1))
    (first, _), (second, _) = plan_moves(rounds, traffic)
    assert [(p.slot, p.rows) for p in first.pulls] == [(1, 1)]
    assert (first.pushes, second.pulls) == ((), ())
    assert second.rows_reused == 1
    assert [(p.slot, p.rows) for p in second.pushes] == [(1, 1)]


@given(schedule=schedules())
@settings(deadline=None, max_examples=60)
def test_keeping_neighbours_saves_what_it_keeps(schedule):
    rounds, owner = schedule

    def rows(communication):
        traffic = plan(communication, rounds, owner)
        peers = [peer for item in traffic for fetch in item.fetches for peer in fetch.from_peers]
        return sum(len(peer.ids) for peer in peers), sum(len(peer.kept) for peer in peers)

    copied, kept = rows(HongTuCommunication())
    assert (copied + kept, 0) == rows(HongTuCommunication(neighbour_reuse=False))


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


#: By what is wrong: of which round and slot, what its fetch becomes, and what the error says.
HOLES = {
    "a fetch left out": (0, 0, {"from_peers": ()}, "each of its 2 rows exactly once"),
    "a row fetched twice": (0, 0, {"from_peers": (PeerFetch(1, ids(2)),) * 2}, "exactly once"),
    "a transition row left out": (1, 1, {"from_host": ids(), "reused": ids()}, "exactly once"),
    "a host row left out": (0, 1, {"from_host": ids(3)}, "exactly once"),
    "a row kept that never came": (0, 0, {"from_peers": (PeerFetch(1, ids(), ids(2)),)}, "keeps"),
    "a row copied and kept": (1, 1, {"from_peers": (PeerFetch(0, ids(1), ids(1)),)}, "exactly"),
    "one twice": (0, 1, {"from_host": ids(2), "from_peers": (PeerFetch(0, ids(0)),) * 2}, "once"),
    "a row not there": (1, 1, {"reused": ids(1, 3), "from_peers": ()}, "does not hold"),
}


@pytest.mark.parametrize("hole", HOLES.values(), ids=HOLES.keys())
def test_a_plan_with_a_hole_is_refused(hole):
    round_index, slot, fields, says = hole
    traffic = changed(right_plan(), round_index, slot, **fields)
    with pytest.raises(ValueError, match=says):
        plan_moves(ROUNDS, traffic)


@pytest.mark.parametrize("last", [30, 10**6])
def test_rows_that_stay_do_not_cross_however_far_apart_they_are(last):
    """Of input rows in any order."""
    inputs = np.array([last, 4, 9, 1, 7])
    block = Block(inputs, 1, np.array([0, 4]), np.arange(1, 5, dtype=np.int32))
    fetch = Fetch(0, np.sort(inputs), from_host=ids(1, 9), reused=ids(4, 7, last))
    ((moved,),) = plan_movement(
        [Round(0, (Unit(0, (block,)),))], [RoundTraffic((fetch,))], last + 1, shares_rows=False
    )
    assert moved.host_ids.tolist() == [9, 1]
    assert moved.rows_reused == 3


def test_rows_outside_the_graph_and_edges_without_a_source_are_refused():
    far = (Round(0, (reading(0, [1, VERTICES]),)),)
    fetch = Fetch(0, needed=ids(1, VERTICES), from_host=ids(1, VERTICES), reused=ids())
    with pytest.raises(ValueError, match="a row outside the 40 of the graph"):
        plan_moves(far, [RoundTraffic((fetch,))])
    unit = Unit(0, (block_of([1, 2], 1, [(0, 2)]),))
    fetch = Fetch(0, needed=ids(1, 2), from_host=ids(1, 2), reused=ids())
    with pytest.raises(ValueError, match="comes from none of its 2 sources"):
        plan_movement((Round(0, (unit,)),), [RoundTraffic((fetch,))], VERTICES, shares_rows=True)
    with pytest.raises(ValueError, match="num_vertices is -1"):
        open_rounds(-1)


@pytest.mark.skipif(load("movement") is None, reason="needs the compiled kernels")
@pytest.mark.parametrize("rows", [np.int32, np.uint64, np.float64, ">i8"])
def test_lists_of_another_type_are_refused(rows):
    rounds = (Round(0, (reading(0, [1, 2]),)),)
    for table in (np.array([1, 2], dtype=rows), ids(1, 2)[None], ids(1, 0, 2, 0)[::2]):
        fetch = Fetch(0, needed=ids(1, 2), from_host=table, reused=ids())
        with pytest.raises(ValueError, match=r"one dimension|contiguous"):
            plan_moves(rounds, [RoundTraffic((fetch,))])
