"""An FPGA's aggregate kernel, cycle by cycle: the machine that HP-GNN's templates describe.

HP-GNN is Lin, Zhang and Prasanna, FPGA 2022; "the paper" below. What its text, figures 5 to 7 and
Equations 6 to 9 leave open is decided here and marked *assumed*. A rule is one line of
:func:`simulate_aggregation`, in the order of this list.

**Units.** The kernel counts cycles of its clock, memory counts ticks (picoseconds, unless a caller
wants other ones); ``cycle_ticks`` relates the two. A *word* is 16 floats, a 512-bit lane of the
kernel (Equation 8's 16); it is also one DDR4 burst: 8 transfers on a 64-bit channel are 64 bytes. A
vertex's row is ``row_words`` words, f / 16 rounded up.

**Tasks** (section 4.2). Destinations are cut into equal contiguous ranges, one a die. Each die has
its own kernel and, *assumed*, the throughput of one DDR channel: X lies evenly over the channels,
so a die's requests, which the all-to-all interconnect spreads over all of them, meet those of as
many other dies. A row that two dies need is loaded by both. Edges come in the order of the stream.

**Load** (section 4.1). A die loads a row when the next of its edges has another source than the one
before, so a stream sorted by source loads each source once (RMT). The loader runs ahead of the
kernel, *assumed* without bound. The channel serves one request at a time, in order: it takes
``burst_ticks`` a word and ``miss_ticks`` (tRP + tRCD) for each DRAM page that is not open in its
bank; pages lie over the banks in turn. ``latency_ticks`` (CAS) delay a row and hold up nobody.
The effective share alpha of the bandwidth follows from this. Refresh is left out, *assumed*, and so
is reading the edges, as in Equation 8, which has rows alone.

**Feature duplicator.** It hands one word a cycle to all scatter PEs at once, which hold the row in
registers. A row is there one cycle after its last word has come, and ``row_words`` cycles after the
row before at the earliest.

**Scatter.** The die's i-th edge goes to scatter PE i mod n (*assumed*: in turn). A PE works on an
edge for ``row_words`` cycles, one word a cycle (Equation 8), and hands a word on one cycle later.
It has room for ``fifo_updates`` updates that no gather PE has taken in full yet (*assumed*).

**Butterfly network.** log2 n stages of two-way switches; stage k sets the k-th highest bit of the
update's place to that of its gather PE. A link carries one word a cycle, and an update's words in
one piece. Updates that want the same link pass in the order of the stream (*assumed*: the paper has
no arbitration rule). So every destination's updates arrive in the order of the stream, which is the
order of accumulation, and no delay can overtake another: with a shorter one nothing ends later.
Twice the PEs end nothing later than the one cycle that their network's further stage takes, since
each of its links carries a part of what one link of the smaller network does.

**Gather and RAW resolver.** Destination v of a die is kept by gather PE v mod n, counted from the
die's first. A word is read, added and written back within ``adder_cycles``; the next update of the
same destination stalls until its word is there. An update's result is complete ``adder_cycles``
after its last word was taken.

**Result buffer.** Each gather PE keeps ``buffer_words`` / n words on the chip: row r of the PE
lies in place r mod capacity. An update of a row that is not there spills the one that is, and reads
back its own where that was spilled before; each takes a page miss and ``row_words`` bursts of the
die's channel, before the rows that are not loaded yet, and the gather PE waits for it.

Backward aggregation is the same machine on the transposed edges, whose sources are gradients that
become ``ready`` while it runs. What comes after aggregation (update kernel, write-back) has no
irregular part and stands in ``gnnbench_plugins.hpgnn.cycles``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnnbench.records import FloatArray, IndexArray, IntArray


@dataclass(frozen=True, slots=True)
class Machine:
    """The aggregate kernels of all dies, and their memory; all whole numbers.

    ``pes`` is n, the scatter PEs of a die and its gather PEs, a power of two. ``page_words`` is a
    power of two. ``contended`` False lets words of any number of updates share a link and a gather
    PE, which no hardware can: it shows what conflicts cost.
    """

    dies: int
    pes: int
    adder_cycles: int
    fifo_updates: int
    buffer_words: int
    cycle_ticks: int
    burst_ticks: int
    miss_ticks: int
    latency_ticks: int
    page_words: int
    banks: int
    contended: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Aggregation:
    """What :func:`simulate_aggregation` saw. Arrays are int64, one value a die, but the first.

    ``complete`` ``(num_dst,)`` is the cycle at which each destination's last sum is there, 0 for
    one without edges. ``cycles`` is when a die's last one is, ``loads`` how many rows it loaded,
    ``channel_ticks`` how long its channel took for those, ``misses`` the pages opened for them,
    ``spilled_rows`` the rows written or read again for want of buffer. ``conflict_cycles``,
    ``hazard_cycles`` and ``load_cycles`` are summed over updates: waiting for a link or a gather
    PE, for the RAW resolver, and of scatter PEs for a row.
    """

    complete: IntArray
    cycles: IntArray
    loads: IntArray
    channel_ticks: IntArray
    misses: IntArray
    spilled_rows: IntArray
    conflict_cycles: IntArray
    hazard_cycles: IntArray
    load_cycles: IntArray


def first_rows(num_dst: int, dies: int) -> IntArray:
    """The first destination of each die, and ``num_dst``: int64 ``(dies+1,)``."""
    return np.arange(dies + 1, dtype=np.int64) * num_dst // dies


def simulate_aggregation(
    src: IndexArray,
    dst: IndexArray,
    address: IntArray,
    ready: IntArray,
    num_dst: int,
    row_words: int,
    machine: Machine,
) -> Aggregation:
    """See :func:`gnnbench.kernels.dispatch.fpga.simulate_aggregation`."""
    dies, n, width = machine.dies, machine.pes, row_words
    stages = n.bit_length() - 1
    first = first_rows(num_dst, dies)
    rows_kept = machine.buffer_words // (n * width)

    complete = np.zeros(num_dst, dtype=np.int64)
    cycles, loads, channel_ticks, misses, spilled_rows, conflicts, hazards, starved = np.zeros(
        (8, dies), dtype=np.int64
    )
    channel = [0] * dies
    held = [-1] * dies
    row_there = [-width] * dies
    open_page = [[-1] * machine.banks for _ in range(dies)]
    edges_seen = [0] * dies
    scatter_free = np.zeros((dies, n), dtype=np.int64)
    link_free = np.zeros((dies, stages, n), dtype=np.int64)
    gather_free = np.zeros((dies, n), dtype=np.int64)
    taken = np.zeros((dies, n, machine.fifo_updates), dtype=np.int64)
    last = np.full(num_dst, -machine.adder_cycles, dtype=np.int64)
    kept: dict[tuple[int, int, int], int] = {}
    spilled: set[int] = set()

    for u, v in zip(src.tolist(), dst.tolist(), strict=True):
        die = int(np.searchsorted(first, v, side="right")) - 1
        # Load, where the source is not the one that the PEs hold.
        if held[die] != u:
            held[die] = u
            first_word = int(address[u]) * width
            opened = 0
            for page in range(
                first_word // machine.page_words, (first_word + width - 1) // machine.page_words + 1
            ):
                opened += open_page[die][page % machine.banks] != page
                open_page[die][page % machine.banks] = page
            ticks = opened * machine.miss_ticks + width * machine.burst_ticks
            channel[die] = max(channel[die], int(ready[u]) * machine.cycle_ticks) + ticks
            # Feature duplicator.
            arrival = -(-(channel[die] + machine.latency_ticks) // machine.cycle_ticks) + 1
            row_there[die] = max(arrival, row_there[die] + width)
            loads[die] += 1
            misses[die] += opened
            channel_ticks[die] += ticks
        # Scatter.
        turn, pe = divmod(edges_seen[die], n)
        edges_seen[die] += 1
        slot = turn % machine.fifo_updates
        free = max(scatter_free[die, pe], taken[die, pe, slot])
        t = max(free, row_there[die])
        starved[die] += t - free
        scatter_free[die, pe] = t + width
        t += 1
        # Butterfly network.
        local = v - int(first[die])
        gather = place = local % n
        unhindered = t + stages
        place = pe
        for stage in range(stages):
            bit = n >> (stage + 1)
            place = (place & ~bit) | (gather & bit)
            if machine.contended:
                t = max(t, link_free[die, stage, place])
                link_free[die, stage, place] = t + width
            t += 1
        # Gather.
        if machine.contended:
            t = max(t, gather_free[die, gather])
        conflicts[die] += t - unhindered
        # Result buffer.
        place_kept = (die, gather, local // n % rows_kept)
        other = kept.get(place_kept, v)
        kept[place_kept] = v
        if other != v:
            moved = 1 + (v in spilled)
            spilled.add(other)
            spilled_rows[die] += moved
            channel[die] += moved * (machine.miss_ticks + width * machine.burst_ticks)
            t = max(t, -(-channel[die] // machine.cycle_ticks))
        # RAW resolver.
        safe = max(t, last[v] + machine.adder_cycles)
        hazards[die] += safe - t
        t = safe
        last[v] = t
        gather_free[die, gather] = t + width
        taken[die, pe, slot] = t + width
        complete[v] = t + width - 1 + machine.adder_cycles
        cycles[die] = max(cycles[die], complete[v])
    return Aggregation(
        complete, cycles, loads, channel_ticks, misses, spilled_rows, conflicts, hazards, starved
    )


def scatter_gather(
    src: IndexArray, dst: IndexArray, weight: FloatArray, rows: FloatArray, num_dst: int
) -> FloatArray:
    """See :func:`gnnbench.kernels.dispatch.fpga.scatter_gather`."""
    out = np.zeros((num_dst, rows.shape[1]), dtype=np.float32)
    for u, v, w in zip(src, dst, weight, strict=True):
        out[v] += w * rows[u]
    return out
