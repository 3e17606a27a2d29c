"""The sparse accelerator's steps: counted by hand, and compiled equal to the twin."""

import dataclasses
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnbench.kernels.dispatch import SparseMatrix, pack_mask, spmm
from gnnbench.kernels.native import load
from gnnbench.kernels.reference.spmm import ReductionEngine

#: Two lanes of four adders; half a local buffer holds two words, one fills a cycle; four banks.
TINY = ReductionEngine(lanes=2, lane_adders=4, fill_words=1, local_words=2, banks=4)


def make_matrix(rows, num_src):
    """Destinations by the sources of their edges."""
    indptr = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum([len(row) for row in rows], out=indptr[1:])
    indices = np.array([u for row in rows for u in row], dtype=np.int32)
    return SparseMatrix(indptr, indices, num_src)


def draw_matrix(random, num_dst, num_src):
    adjacency = random.random((num_dst, num_src)) < random.random()
    return make_matrix([np.flatnonzero(row).tolist() for row in adjacency], num_src)


def count(matrix, wanted, engine=TINY, features=16):
    """One tile, one chunk and one slice."""
    chunks = spmm.cut_chunks(matrix, 100, 100)
    return spmm.count_steps(
        matrix, chunks, np.array(wanted, dtype=np.int32)[:, None], features, engine
    )


def test_tiles_and_chunks():
    """Two destinations a tile. The first tile reads 0, 2, 3, 7, the second 7, the third nothing."""
    matrix = make_matrix([[0, 2], [2, 3, 7], [7], [], [], []], 9)
    chunks = spmm.cut_chunks(matrix, 2, 3)
    assert chunks.first.tolist() == [0, 2, 3, 3]
    assert chunks.begin.tolist() == [0, 7, 0]
    assert chunks.rows.tolist() == [3, 1, 1]
    assert chunks.tile_of.tolist() == [0, 0, 1]
    edges, segments = spmm.count_edges(matrix, chunks)
    assert edges.tolist() == [4, 1, 1]
    assert segments.tolist() == [2, 1, 1]


def test_windows_slide_and_shrink():
    """Rows 1, 2, 5, 9 are read. Windows of 3: 1 to 2 (shrunk), 5 alone, 9 alone; of 5: 1 to 5."""
    matrix = make_matrix([[1, 5], [2, 9]], 20)
    assert spmm.cut_chunks(matrix, 2, 20, window_rows=3).rows.tolist() == [4]
    assert spmm.cut_chunks(matrix, 2, 20, window_rows=5).rows.tolist() == [6]
    # A window does not go over two chunks.
    chunks = spmm.cut_chunks(matrix, 2, 5, window_rows=5)
    assert (chunks.begin.tolist(), chunks.rows.tolist()) == ([0, 9], [5, 1])


def test_a_piece_takes_the_longer_of_filling_and_adding():
    """A row of 16 features is a word. Three edges: a piece of two and a piece of one."""
    matrix = make_matrix([[0, 1, 2]], 3)
    # 16 wanted: 2 x 16 / 4 = 8 cycles on a lane, 4 on the other; filling takes 2 and 1.
    steps = count(matrix, [16])
    assert steps.lane_cycles.tolist() == [[8]]
    assert (steps.edges[0], steps.segments[0], steps.loaded_rows[0]) == (3, 1, 3)
    # 2 wanted: 2 x 2 / 4 = 1 cycle, but two words have to come: 2.
    assert count(matrix, [2]).lane_cycles.tolist() == [[2]]
    # Five wanted: 10 / 4 rounded up.
    assert count(matrix, [5]).lane_cycles.tolist() == [[3]]
    # Twice the words a cycle: 1 for each piece.
    assert count(matrix, [2], dataclasses.replace(TINY, fill_words=2)).lane_cycles.tolist() == [[1]]


def test_pieces_go_to_the_lane_that_is_free_first():
    """Pieces of 4, 1, 2 and 3 cycles: lanes 4 | 1 2 3, so the second ends at 6."""
    matrix = make_matrix([[0], [0], [0], [0]], 1)
    assert count(matrix, [16, 4, 8, 12]).lane_cycles.tolist() == [[6]]
    # Pieces of 3, 2, 1 and 4: lanes 3 | 2 1, both free at 3, and the last ends at 7.
    assert count(matrix, [12, 8, 4, 16]).lane_cycles.tolist() == [[7]]
    one = dataclasses.replace(TINY, lanes=1)
    assert count(matrix, [16, 4, 8, 12], one).lane_cycles.tolist() == [[10]]


def test_unwanted_destinations_cost_nothing():
    matrix = make_matrix([[0, 1], [1, 2, 3]], 4)
    steps = count(matrix, [1, 0])
    assert (steps.edges[0], steps.segments[0], steps.loaded_rows[0]) == (2, 1, 2)
    nothing = count(matrix, [0, 0])
    assert nothing.lane_cycles.tolist() == [[0]]
    assert (nothing.edges[0], nothing.loaded_rows[0], nothing.bank_cycles[0]) == (0, 0, 0)


def test_banks_read_a_row_once_for_all_lanes_of_a_window():
    """A window is two lanes of two edges. Sources 0 and 4 share a bank of four."""
    matrix = make_matrix([[0, 4], [0], [1], [0]], 5)
    # Window one: 0, 4, 0 again and 1, so 2 reads of the first bank; window two: 0 once more.
    steps = count(matrix, [1, 1, 1, 1])
    assert (steps.bank_cycles[0], steps.loaded_rows[0]) == (3, 3)
    # Rows of two words lie in two banks each, and half as many edges make a window.
    wide = count(matrix, [1, 1, 1, 1], features=32)
    # Windows (0, 4), (0, 1), (0): banks 0 and 1 are read for 0, 4, 0 and 0.
    assert wide.bank_cycles[0] == 4
    # Eight words on four banks take two cycles a read, of all of them.
    assert count(matrix, [1, 1, 1, 1], features=128).bank_cycles[0] == 2 * 5


def test_steps_overlap():
    """Load 5; load 5 beside compute 10; the third loads at 15 when the first is computed."""

    def end(loads, computes, writes):
        steps = (np.array(each, dtype=np.int64) for each in (loads, computes, writes))
        return spmm.overlap_steps(*steps, byte_ticks=1, cycle_ticks=1)

    assert end([5], [10], [2]) == 17
    assert end([5, 5], [10, 10], [0, 0]) == 25
    # The first half is free at 15, the third is loaded at 20, computed after the second at 35.
    assert end([5, 5, 5], [10, 10, 10], [0, 0, 0]) == 35
    # The first step's outputs, written from 15 to 22, hold up the third's load until 27.
    assert end([5, 5, 5], [10, 10, 1], [7, 0, 0]) == 28
    assert end([4, 4, 4], [1, 1, 1], [0, 0, 6]) == 4 + 4 + 4 + 1 + 6
    assert end([], [], []) == 0
    # Beyond 64 bits: a rate without a common divisor.
    step = np.array([2**50])
    assert spmm.overlap_steps(step, step, step, 10**9, 3) == 2**50 * (2 * 10**9 + 3)


def test_reads_of_each_source():
    assert spmm.count_reads(make_matrix([[0, 3], [], [3]], 5)).tolist() == [1, 0, 0, 2, 0]
    assert spmm.count_reads(make_matrix([[]], 2)).tolist() == [0, 0]


def test_wanted_features_by_slice():
    wanted = np.zeros((2, 20), dtype=np.bool_)
    wanted[0, [0, 7, 8, 19]] = True
    wanted[1, 16:] = True
    mask = pack_mask(wanted)
    assert spmm.count_wanted(mask, 2, 20, 8).tolist() == [[2, 1, 1], [0, 0, 4]]
    assert spmm.count_wanted(mask, 2, 20, 20).tolist() == [[4], [4]]
    assert spmm.count_wanted(None, 2, 20, 8).tolist() == [[8, 8, 4], [8, 8, 4]]
    # Bits behind the last feature say nothing.
    mask[:, -1] |= 0xF0
    assert spmm.count_wanted(mask, 2, 20, 8).tolist() == [[2, 1, 1], [0, 0, 4]]


@settings(max_examples=60, deadline=None)
@given(st.data())
@pytest.mark.skipif(load("spmm") is None, reason="needs the compiled kernels")
def test_compiled_equals_twin(data):
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    matrix = draw_matrix(random, data.draw(st.integers(1, 25)), data.draw(st.integers(1, 90)))
    width = data.draw(st.integers(1, 70))
    features = data.draw(st.sampled_from([8, 16, 32, width]))
    engine = draw_engine(data)
    window = data.draw(st.integers(1, 9))
    sizes = data.draw(st.integers(1, 20)), data.draw(st.integers(window, 40))
    mask = pack_mask(random.random((matrix.num_dst, width)) < random.choice([0.02, 0.5]))
    wanted = spmm.count_wanted(mask, matrix.num_dst, width, features)

    def run():
        chunks = spmm.cut_chunks(matrix, *sizes, window_rows=window)
        return (
            chunks,
            spmm.count_edges(matrix, chunks),
            spmm.count_steps(matrix, chunks, wanted, features, engine),
            spmm.overlap_steps(*times, *ticks),
        )

    times = [random.integers(0, 2**40, 12) for _ in range(3)]
    ticks = tuple(int(each) for each in random.integers(1, 2**30, 2))
    mine = run()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spmm, "load", lambda topic: None)
        twin = run()
    for ours, theirs in ((mine[0], twin[0]), (mine[2], twin[2])):
        for field in dataclasses.fields(ours):
            assert np.array_equal(getattr(ours, field.name), getattr(theirs, field.name)), (
                field.name
            )
    assert np.array_equal(mine[1], twin[1])
    assert mine[3] == twin[3]


def draw_engine(data):
    return ReductionEngine(
        lanes=data.draw(st.integers(1, 5) | st.just(1000)),
        lane_adders=data.draw(st.integers(1, 20)),
        fill_words=data.draw(st.integers(1, 3)),
        local_words=data.draw(st.integers(1, 9)),
        banks=2 ** data.draw(st.integers(0, 5)),
    )


def test_rows_are_sorted_where_they_are_not():
    matrix = make_matrix([[2, 0, 1], [], [1, 0]], 3)
    ordered = spmm.sort_sources(matrix)
    assert ordered.indices.tolist() == [0, 1, 2, 0, 1]
    assert ordered.indptr.tolist() == [0, 3, 3, 5]
    # Descending from one row to the next is no fault.
    assert spmm.sort_sources(ordered) is ordered
    empty = make_matrix([[], []], 3)
    assert spmm.sort_sources(empty) is empty


def test_impossible_requests_raise():
    matrix = make_matrix([[0, 1]], 2)
    chunks = spmm.cut_chunks(matrix, 1, 2)
    one, no_lanes, six_banks = np.ones((1, 1), dtype=np.int32), {"lanes": 0}, {"banks": 6}
    engines = [dataclasses.replace(TINY, **change) for change in (no_lanes, six_banks)]
    two, three = np.zeros(2, dtype=np.int64), np.zeros(3, dtype=np.int64)
    masks = [np.zeros((1, count), dtype=np.uint8) for count in (3, 2)]
    steps = (matrix, chunks)
    for function, given_, message in (
        (spmm.cut_chunks, (matrix, 0, 1), "tile_rows is 0"),
        (
            partial(spmm.cut_chunks, window_rows=3),
            (matrix, 1, 2),
            "a window of 3 rows does not fit",
        ),
        (spmm.count_steps, (*steps, one, 16, engines[0]), "the engine's lanes is 0"),
        (spmm.count_steps, (*steps, one, 16, engines[1]), "banks are 6; they must be a power of"),
        (spmm.count_steps, (*steps, one.astype(np.int64), 16, TINY), "wanted is int64"),
        (spmm.count_steps, (*steps, 17 * one, 16, TINY), "wanted holds 17 to 17; a slice has 16"),
        (spmm.count_wanted, (masks[0], 1, 20, 12), "slices of 12 features cut bytes of the mask"),
        (spmm.count_wanted, (masks[1], 1, 20, 8), "mask must be"),
        (spmm.overlap_steps, (two, three, two, 1, 1), "are 2, 3, 2 long"),
        (spmm.overlap_steps, (two, two - 1, two, 1, 1), "none may be negative"),
    ):
        with pytest.raises(ValueError, match=message):
            function(*given_)
