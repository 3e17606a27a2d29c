"""The FPGA's aggregate kernel: cases counted by hand, the compiled loops and their twin, errors."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnbench.kernels.dispatch import fpga
from gnnbench.kernels.native import load
from gnnbench.kernels.reference import fpga as reference
from gnnbench.kernels.reference.fpga import Aggregation, Channel, Machine
from gnnbench.machines.tables import replace_fields

#: Small numbers, so that cycles can be counted: a tick is a cycle, a burst takes one, and a page
#: holds 4 words and costs 3 more to open.
TINY = Machine(
    dies=1,
    pes=1,
    adder_cycles=4,
    fifo_updates=2,
    buffer_words=1000,
    cycle_ticks=1,
    channel=Channel(
        burst_ticks=1, miss_ticks=3, latency_ticks=0, edge_ticks=0, page_words=4, banks=2
    ),
)


def run(edges, machine, *, words=2, num_dst=4, **when):
    """Edges as (source, destination); eight sources, each at the address of its number."""
    src, dst = np.array(edges, dtype=np.int32).reshape(-1, 2).T.copy()
    return fpga.simulate_aggregation(src, dst, np.arange(8), num_dst, words, machine, **when)


def test_one_edge():
    """3 to open the page, 2 bursts, 1 duplicator: scatter at 6. At the gather PE at 7, its second
    word at 8, summed 4 later."""
    seen = run([(0, 0)], TINY)
    assert seen.complete.tolist() == [12, 0, 0, 0]
    assert (seen.cycles[0], seen.loads[0], seen.misses[0], seen.channel_ticks[0]) == (12, 1, 1, 5)
    # CAS delays the row by 7 cycles and holds the channel no longer.
    late = run([(0, 0)], replace_fields(TINY, latency_ticks=7))
    assert (late.cycles[0], late.channel_ticks[0]) == (19, 5)


def test_no_edge():
    seen = run([], TINY)
    assert seen.cycles.tolist() == [0]
    assert seen.complete.tolist() == [0] * 4


def test_a_source_is_loaded_once_for_all_edges_that_follow():
    """Scatter at 6, then 8; the second sum, another row, waits for nothing: 14."""
    seen = run([(0, 0), (0, 1)], TINY)
    assert seen.complete.tolist() == [12, 14, 0, 0]
    assert seen.loads[0] == 1
    # Two sources in turn are loaded anew each time, RMT or not: only the order decides.
    assert run([(0, 0), (1, 0), (0, 1), (1, 1)], TINY).loads[0] == 4
    assert run([(0, 0), (0, 1), (1, 0), (1, 1)], TINY).loads[0] == 2


def test_the_raw_resolver_stalls():
    """Row 0's word was taken at 7 and is there at 11; the second update came at 9."""
    seen = run([(0, 0), (0, 0)], TINY)
    assert seen.complete[0] == 16
    assert seen.hazard_cycles[0] == 2
    # An adder as fast as the next word comes stalls nobody: 9 + 2 - 1 + 2.
    quick = run([(0, 0), (0, 0)], replace_fields(TINY, adder_cycles=2))
    assert (quick.complete[0], quick.hazard_cycles[0]) == (12, 0)


def test_row_hits_and_misses():
    """A page has two rows. The second row hits: its bursts follow, there at 8. The third misses."""
    hit = run([(0, 0), (1, 1)], TINY)
    assert (hit.cycles[0], hit.misses[0]) == (14, 1)
    miss = run([(0, 0), (2, 1)], TINY)
    # Channel until 5, then 5 more, duplicator 11, gather 12, last word 13, summed 17.
    assert (miss.cycles[0], miss.misses[0]) == (17, 2)
    # Pages 0 and 1 are in different banks and stay open; 0 and 2 share one.
    assert run([(0, 0), (2, 1), (1, 2), (3, 3)], TINY).misses[0] == 2
    assert run([(0, 0), (4, 1), (1, 2)], TINY).misses[0] == 3
    # A row of three words lies over two pages.
    assert run([(1, 0)], TINY, words=3).misses[0] == 2


def test_two_pes_work_side_by_side():
    """One stage more. Edges to 0 and 1 go straight through: both at the gather PEs at 8."""
    two = replace_fields(TINY, pes=2)
    seen = run([(0, 0), (0, 1)], two)
    assert seen.complete.tolist() == [13, 13, 0, 0]
    assert seen.conflict_cycles[0] == 0
    # Both want gather PE 0: the second waits for its words to pass.
    clash = run([(0, 0), (0, 2)], two)
    assert clash.complete.tolist() == [13, 0, 15, 0]
    assert clash.conflict_cycles[0] == 2
    ideal = run([(0, 0), (0, 2)], replace_fields(two, contended=False))
    assert ideal.complete.tolist() == [13, 0, 13, 0]


def test_a_butterfly_blocks_within():
    """n = 4: updates from PE 0 to 0 and from PE 2 to 1 share the first stage's link at place 0."""
    four = replace_fields(TINY, pes=4)
    seen = run([(0, 0), (0, 2), (0, 1), (0, 3)], four)
    # PE 1 to 2 and PE 3 to 3 share the link at place 3 likewise. Scatter 6, network 7 and 8,
    # gather 9, last word 10, summed 14; those that waited two cycles at 16.
    assert seen.complete.tolist() == [14, 16, 14, 16]
    assert seen.conflict_cycles[0] == 4


def test_scatter_pes_wait_for_their_fifo():
    """Room for two updates: the third of a PE begins when its first has been taken in full.

    All eight edges are of destination 0, one every 4 cycles: taken at 7, 11, 15, ... ; the last at
    35, done at 35 + 2 - 1 + 4 whatever the room, since the adder is the bottleneck.
    """
    edges = [(0, 0)] * 8
    assert run(edges, TINY).complete[0] == 40
    assert run(edges, replace_fields(TINY, fifo_updates=8)).complete[0] == 40
    # Room for one: an edge begins two cycles after the one before was taken, and is stalled 1.
    assert run(edges, replace_fields(TINY, fifo_updates=1)).hazard_cycles[0] == 7


def test_dies_work_by_themselves():
    """Destinations 0, 1 on die 0 and 2, 3 on die 1; both load source 0."""
    seen = run([(0, 0), (0, 2), (0, 3)], replace_fields(TINY, dies=2))
    assert seen.cycles.tolist() == [12, 14]
    assert seen.loads.tolist() == [1, 1]


def test_gradients_are_loaded_when_they_are_ready():
    ready = np.array([20, 0, 0, 0, 0, 0, 0, 0])
    assert run([(0, 0)], TINY, ready=ready).cycles[0] == 32


def test_a_batch_too_large_spills():
    """One row of buffer: row 1 sends row 0 out (5 ticks), row 0 comes back for row 1 (10 ticks)."""
    small = replace_fields(TINY, buffer_words=2)
    seen = run([(0, 0), (0, 1), (0, 0)], small)
    assert seen.spilled_rows[0] == 3
    # Channel until 5; out until 10, so row 1 is taken at 10; back until 20, then 20 + 2 - 1 + 4.
    assert seen.complete.tolist() == [25, 15, 0, 0]
    assert run([(0, 0), (0, 1), (0, 0)], TINY).spilled_rows[0] == 0


def test_edges_are_read_four_at_a_time():
    """A word of edges takes 5 ticks before the row of the first: there at 11 instead of 6, and so
    is its sum at 17. The fifth edge, of the same row, waits for the second word: the channel was
    free at 10, so it comes at 15, is taken at 17, and its second word is summed at 22."""
    reading = replace_fields(TINY, edge_ticks=5)
    seen = run([(0, 0), (0, 1), (0, 2), (0, 3), (0, 4)], reading, num_dst=5)
    assert seen.complete.tolist() == [17, 19, 21, 23, 25]  # one word of a row a cycle, in turn
    assert seen.load_cycles[0] == 11
    two = replace_fields(reading, pes=8)
    side_by_side = run([(0, 0), (0, 1), (0, 2), (0, 3), (0, 4)], two, num_dst=5)
    # Three stages of the network more. The fifth was at its PE from 11 on.
    assert side_by_side.complete.tolist() == [20, 20, 20, 20, 25]
    # The channel has the word, and then the row of its third edge.
    assert run([(0, 0), (0, 1), (1, 2)], reading).complete.tolist() == [17, 19, 21, 0]
    assert run([(0, 0), (0, 1), (2, 2)], reading).complete.tolist() == [17, 19, 22, 0]
    # CAS delays a word that no row comes after: it has come at 45, and passes the network at 50.
    late = run(
        [(0, 0)] * 4 + [(0, 1)], replace_fields(reading, pes=8, adder_cycles=1, latency_ticks=30)
    )
    assert late.complete[1] == 52
    # Rows are counted apart.
    assert (seen.channel_ticks[0], seen.loads[0], seen.misses[0]) == (5, 1, 1)


def test_no_edge_is_read_before_the_channel_is_free():
    seen = run([(0, 0)], replace_fields(TINY, edge_ticks=5), begin=100)
    assert seen.complete[0] == 117
    # A row may be ready later still.
    ready = np.full(8, 200)
    assert (
        run([(0, 0)], replace_fields(TINY, edge_ticks=5), begin=100, ready=ready).complete[0] == 212
    )


def test_edges_and_spilled_rows_share_the_channel():
    """As in the test of spilling, with a word of edges before it: 5 ticks, all 5 cycles later."""
    small = replace_fields(TINY, buffer_words=2, edge_ticks=5)
    assert run([(0, 0), (0, 1), (0, 0)], small).complete.tolist() == [30, 20, 0, 0]


def test_slower_memory_than_clock():
    """Two ticks a cycle: the row is there after 5 ticks, which is cycle 3, and 1 more."""
    assert run([(0, 0)], replace_fields(TINY, cycle_ticks=2)).cycles[0] == 10


@settings(max_examples=80, deadline=None)
@given(st.data())
@pytest.mark.skipif(load("fpga") is None, reason="needs the compiled kernels")
def test_compiled_equals_twin_to_the_cycle(data):
    pes = 2 ** data.draw(st.integers(0, 5))
    words = data.draw(st.integers(1, 9))
    machine = Machine(
        dies=data.draw(st.integers(1, 4)),
        pes=pes,
        adder_cycles=data.draw(st.integers(1, 12)),
        fifo_updates=data.draw(st.integers(1, 9)),
        buffer_words=pes * words * data.draw(st.integers(1, 4)),
        cycle_ticks=data.draw(st.integers(1, 5)),
        channel=Channel(
            burst_ticks=data.draw(st.integers(1, 5)),
            miss_ticks=data.draw(st.integers(0, 20)),
            latency_ticks=data.draw(st.integers(0, 9)),
            edge_ticks=data.draw(st.integers(0, 4)),
            page_words=2 ** data.draw(st.integers(0, 5)),
            banks=data.draw(st.integers(1, 5)),
        ),
        contended=data.draw(st.booleans()),
    )
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    num_src, num_dst = data.draw(st.integers(1, 60)), data.draw(st.integers(1, 60))
    count = data.draw(st.integers(0, 150))
    src = random.integers(0, num_src, count).astype(np.int32)
    if data.draw(st.booleans()):
        src.sort()
    dst = random.integers(0, num_dst, count).astype(np.int32)
    address = random.integers(0, 100, num_src)
    ready = random.integers(0, 200, num_src)
    begin = data.draw(st.integers(0, 50))
    assert_like_twin(src, dst, address, ready, num_dst, words, machine, begin)


def assert_like_twin(src, dst, address, ready, num_dst, words, machine, begin=0):
    for array in (src, dst, address, ready):
        array.flags.writeable = False
    mine = fpga.simulate_aggregation(
        src, dst, address, num_dst, words, machine, ready=ready, begin=begin
    )
    twin = reference.simulate_aggregation(src, dst, address, ready, num_dst, words, machine, begin)
    for field in dataclasses.fields(Aggregation):
        assert np.array_equal(getattr(mine, field.name), getattr(twin, field.name)), field.name
    return mine


@pytest.mark.skipif(load("fpga") is None, reason="needs the compiled kernels")
@pytest.mark.parametrize(
    ("pes", "rows_kept", "by_source", "edge_ticks"),
    [(1, 3, True, 0), (4, 3, False, 3), (32, 3, True, 3), (4, 1000, True, 0), (32, 1000, False, 3)],
)
def test_long_streams_equal_the_twin_to_the_cycle(pes, rows_kept, by_source, edge_ticks):
    """Longer than what the compiled loops take at a time, whatever is carried over in between."""
    machine = Machine(
        dies=3,
        pes=pes,
        adder_cycles=7,
        fifo_updates=2,
        buffer_words=pes * 2 * rows_kept,
        cycle_ticks=5,
        channel=Channel(
            burst_ticks=4,
            miss_ticks=23,
            latency_ticks=11,
            edge_ticks=edge_ticks,
            page_words=4,
            banks=3,
        ),
    )
    random = np.random.default_rng(pes)
    src = random.integers(0, 900, 4000).astype(np.int32)
    if by_source:
        src.sort()
    dst = random.integers(0, 301, 4000).astype(np.int32)
    ready = np.sort(random.integers(0, 4000, 900))
    seen = assert_like_twin(src, dst, random.permutation(900), ready, 301, 2, machine)
    assert (seen.spilled_rows.sum() > 0) == (rows_kept == 3)


GOOD = np.array([0, 1], dtype=np.int32)
PLACES = np.arange(2, dtype=np.int64)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pes": 3}, "pes is 3; it must be a power of two"),
        ({"page_words": 12}, "page_words is 12; it must be a power of two"),
        ({"dies": 0}, "dies is 0"),
        ({"miss_ticks": -1}, "miss_ticks is -1"),
        ({"cycle_ticks": 2**40}, "cycle_ticks is"),
        ({"buffer_words": 3, "pes": 2}, "the result buffer has 3 words"),
    ],
)
def test_impossible_machines_raise(change, message):
    with pytest.raises(ValueError, match=message):
        run([(0, 0)], replace_fields(TINY, **change))


HUGE = 2**40 - 1
ROOMY = replace_fields(TINY, buffer_words=HUGE)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"src": GOOD.astype(np.int64)}, "src is int64"),
        ({"dst": GOOD[:1]}, "src has 2 values and dst 1"),
        ({"address": PLACES[:1]}, "src hold 0 to 1"),
        ({"num_dst": 1}, "dst hold 0 to 1"),
        ({"num_dst": -1}, "num_dst is -1"),
        ({"address": PLACES - 1}, "address holds -1"),
        ({"ready": PLACES[:1]}, "ready has 1 values"),
        ({"row_words": 0}, "row_words is 0"),
        (
            {"machine": replace_fields(ROOMY, miss_ticks=HUGE, page_words=1), "row_words": 2**25},
            "too large to add up",
        ),
        (
            {"machine": ROOMY, "address": PLACES + HUGE - 1, "row_words": 2**25},
            "too large to add up",
        ),
        (
            {"machine": replace_fields(ROOMY, cycle_ticks=2**30), "ready": PLACES + HUGE - 1},
            "too large to add up",
        ),
    ],
)
def test_bad_streams_and_times_too_large_to_add_up_raise(change, message):
    fields = {"src": GOOD, "dst": GOOD, "address": PLACES, "num_dst": 2, "row_words": 1}
    with pytest.raises(ValueError, match=message):
        fpga.simulate_aggregation(**{**fields, "machine": TINY, **change})
