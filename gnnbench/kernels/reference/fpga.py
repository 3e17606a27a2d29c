"""An FPGA's aggregate kernel, cycle by cycle: the machine that HP-GNN's templates describe.

HP-GNN is Lin, Zhang and Prasanna, FPGA 2022; "the paper" below. Decisions that its text, figures 5
to 7 and Equations 6 to 9 leave open are marked *assumed*. The methods of :class:`_Die` apply the
rules to an edge, in the order of this list.

**Units.** The kernel counts cycles of its clock, and memory counts ticks, by default picoseconds;
``cycle_ticks`` relates the two. A *word* is 16 floats, a 512-bit lane of the kernel (Equation 8's
16). It is also one DDR4 burst: 8 transfers on a 64-bit channel are 64 bytes. A vertex's row is
``row_words`` words, f / 16 rounded up.

**Tasks** (section 4.2). Destinations are cut into equal contiguous ranges, one a die. Each die has
its own kernel and, *assumed*, the throughput of one DDR channel. X is spread evenly over the
channels, and the all-to-all interconnect spreads each die's requests over all of them. A row that
two dies need is loaded by both. Edges come in the order of the stream.

**Load** (section 4.1). A die loads a row when its next edge has another source than the last one. A
stream sorted by source therefore loads each source once (RMT). The loader runs ahead of the kernel,
*assumed* without bound. The channel serves one request at a time, in order. It takes
``burst_ticks`` a word and ``miss_ticks`` (tRP + tRCD) for each DRAM page that is not open in its
bank. Pages lie over the banks in turn. ``latency_ticks`` (CAS) delay a row but not the channel. The
effective share alpha of the bandwidth follows from this. Refresh is left out, *assumed*.

**Edges** lie in the order of the stream, ``EDGES_PER_WORD`` to a word. An edge has its source,
destination, weight and operator, four bytes each, as in the generated design. The channel brings a
word, which takes ``edge_ticks``, before the rows that its edges request, and none before the cycle
``begin``. An edge is available one cycle after its word has arrived. Equation 8 has rows alone, as
if ``edge_ticks`` were 0.

**Feature duplicator.** It hands one word a cycle to all scatter PEs at once, which hold the row in
registers. A row is available one cycle after its last word has arrived, and at the earliest
``row_words`` cycles after the previous row.

**Scatter.** The die's i-th edge goes to scatter PE i mod n (*assumed*: in turn). A PE works on an
edge for ``row_words`` cycles, one word a cycle (Equation 8), and hands a word on one cycle later.
It has room for ``fifo_updates`` updates that no gather PE has taken in full yet (*assumed*).

**Butterfly network.** It has log2 n stages of two-way switches. Stage k replaces the k-th highest
bit of the update's place by the same bit of its gather PE. A link carries one word a cycle, and an
update's words without interruption. Updates that want the same link pass in the order of the stream
(*assumed*: the paper has no arbitration rule). So every destination's updates arrive, and are
accumulated, in the order of the stream. No delay can overtake another: shortening one makes nothing
end later. With twice the PEs, each link carries a part of the load of one link of the smaller
network. Nothing then ends later, except for the one cycle of the additional stage.

**Gather and RAW resolver.** Gather PE v mod n keeps destination v of a die, counted from the die's
first. A word is read, added and written back within ``adder_cycles``. The next update of the same
destination stalls until its word is written. An update's result is complete ``adder_cycles`` after
its last word was taken.

**Result buffer.** Each gather PE keeps ``buffer_words`` / n words on the chip: row r of the PE lies
in place r mod capacity. An update of an absent row spills the row in its place, and reads its own
row back if that was spilled before. Each takes a page miss and ``row_words`` bursts of the die's
channel, before the rows that are not loaded yet. The gather PE waits for it.

Backward aggregation is the same machine on the transposed edges. Its sources are gradients that
become ``ready`` while it runs. The steps after aggregation (update kernel, write-back) have no
irregular part; ``gnnbench_plugins.hpgnn.cycles`` computes them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnnbench.constants import Bound
from gnnbench.records import IndexArray, IntArray

#: Edges in a word of 64 bytes.
EDGES_PER_WORD: Bound[int] = 4


@dataclass(frozen=True, slots=True)
class Channel:
    """The DRAM channel of a die; all fields are whole numbers. ``page_words`` is a power of two."""

    burst_ticks: int
    miss_ticks: int
    latency_ticks: int
    edge_ticks: int
    page_words: int
    banks: int


@dataclass(frozen=True, slots=True)
class Machine:
    """The aggregate kernels of all dies, each with its channel; all numbers are whole.

    ``pes`` is n, the scatter PEs of a die and its gather PEs, a power of two. With ``contended``
    False, words of any number of updates share a link and a gather
    PE. No hardware can do this; it shows the cost of conflicts.
    """

    dies: int
    pes: int
    adder_cycles: int
    fifo_updates: int
    buffer_words: int
    cycle_ticks: int
    channel: Channel
    contended: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Aggregation:
    """The counts of :func:`simulate_aggregation`: int64, one value a die, except for ``complete``.

    ``complete`` ``(num_dst,)`` is the cycle at which each destination's sum is complete, 0 for one
    without edges. ``cycles`` is the last such cycle of a die. ``loads`` is the number of rows that
    it loaded, ``channel_ticks`` the channel's time for them, and ``misses`` the pages opened for
    them. ``spilled_rows`` counts rows written or read again because the result buffer is too small.
    The last three are waiting times summed over updates. ``conflict_cycles`` wait for a link or a
    gather PE, and ``hazard_cycles`` for the RAW resolver. In ``load_cycles`` scatter PEs wait for a
    row or an edge.
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
    """Return the first destination of each die, and ``num_dst``: int64 ``(dies+1,)``."""
    return np.arange(dies + 1, dtype=np.int64) * num_dst // dies


def simulate_aggregation(
    src: IndexArray,
    dst: IndexArray,
    address: IntArray,
    ready: IntArray,
    num_dst: int,
    row_words: int,
    machine: Machine,
    begin: int = 0,
) -> Aggregation:
    """See :func:`gnnbench.kernels.dispatch.fpga.simulate_aggregation`."""
    first = first_rows(num_dst, machine.dies)
    dies = [_Die(machine, row_words, int(count), begin) for count in np.diff(first)]
    complete = np.zeros(num_dst, dtype=np.int64)
    for u, v in zip(src.tolist(), dst.tolist(), strict=True):
        die = int(np.searchsorted(first, v, side="right")) - 1
        local = v - int(first[die])
        complete[v] = dies[die].take_edge(u, int(address[u]), int(ready[u]), local)
    return Aggregation(complete, *np.array([die.counted for die in dies], dtype=np.int64).T)


class _Die:
    """A die's kernel and its channel: the time until which each part is busy, and the counts.

    It has ``num_dst`` destinations, counted from the die's first. Times are cycles; the channel's
    times are ticks. The methods are the rules, in the order of the list above.
    """

    def __init__(self, machine: Machine, row_words: int, num_dst: int, begin: int) -> None:
        n = machine.pes
        self.machine, self.channel, self.row_words = machine, machine.channel, row_words
        self.stages = n.bit_length() - 1
        self.rows_kept = machine.buffer_words // (n * row_words)
        self.channel_free = begin * machine.cycle_ticks
        self.edge_there = 0
        self.open_page = [-1] * machine.channel.banks
        self.held = -1
        self.row_there = -row_words
        self.edges_seen = 0
        self.scatter_free = [0] * n
        self.link_free = [[0] * n for _ in range(self.stages)]
        self.gather_free = [0] * n
        self.taken = [[0] * machine.fifo_updates for _ in range(n)]
        self.kept: dict[tuple[int, int], int] = {}
        self.spilled: set[int] = set()
        self.last = [-machine.adder_cycles] * num_dst
        self.cycles = self.loads = self.channel_ticks = self.misses = 0
        self.spilled_rows = self.conflicts = self.hazards = self.starved = 0

    @property
    def counted(self) -> tuple[int, ...]:
        """The fields of :class:`Aggregation` that have a value a die."""
        return (
            self.cycles,
            self.loads,
            self.channel_ticks,
            self.misses,
            self.spilled_rows,
            self.conflicts,
            self.hazards,
            self.starved,
        )

    def take_edge(self, source: int, address: int, ready: int, v: int) -> int:
        """Process the next edge of the stream; return the cycle at which it is added to ``v``."""
        if self.edges_seen % EDGES_PER_WORD == 0:
            self._read_edges()
        if self.held != source:
            self.held = source
            self._duplicate(self._load(address, ready))
        turn, pe = divmod(self.edges_seen, self.machine.pes)
        self.edges_seen += 1
        slot = turn % self.machine.fifo_updates
        gather = v % self.machine.pes
        t = self._scatter(pe, slot)
        t = self._cross(pe, gather, t)
        t = self._hold_result(v, gather, t)
        t = self._resolve_hazard(v, t)
        self.gather_free[gather] = self.taken[pe][slot] = t + self.row_words
        complete = t + self.row_words - 1 + self.machine.adder_cycles
        self.cycles = max(self.cycles, complete)
        return complete

    def _read_edges(self) -> None:
        """Read the next word of edges."""
        self.channel_free += self.channel.edge_ticks
        self.edge_there = self._arrive(self.channel_free + self.channel.latency_ticks)

    def _arrive(self, ticks: int) -> int:
        """Return the cycle after an arrival at ``ticks``."""
        return -(-ticks // self.machine.cycle_ticks) + 1

    def _load(self, address: int, ready: int) -> int:
        """Load a row; return the tick at which its last word has arrived."""
        channel, width = self.channel, self.row_words
        first_word = address * width
        first_page = first_word // channel.page_words
        last_page = (first_word + width - 1) // channel.page_words
        opened = 0
        for page in range(first_page, last_page + 1):
            opened += self.open_page[page % channel.banks] != page
            self.open_page[page % channel.banks] = page
        ticks = opened * channel.miss_ticks + width * channel.burst_ticks
        self.channel_free = max(self.channel_free, ready * self.machine.cycle_ticks) + ticks
        self.loads += 1
        self.misses += opened
        self.channel_ticks += ticks
        return self.channel_free + channel.latency_ticks

    def _duplicate(self, loaded_ticks: int) -> None:
        """Pass a row through the feature duplicator."""
        self.row_there = max(self._arrive(loaded_ticks), self.row_there + self.row_words)

    def _scatter(self, pe: int, slot: int) -> int:
        """Scatter an edge; return the cycle at which the update's first word is passed on."""
        free = max(self.scatter_free[pe], self.taken[pe][slot])
        t = max(free, self.row_there, self.edge_there)
        self.starved += t - free
        self.scatter_free[pe] = t + self.row_words
        return t + 1

    def _cross(self, pe: int, gather: int, t: int) -> int:
        """Cross the butterfly network; return the cycle at which the gather PE is free."""
        unhindered = t + self.stages
        place = pe
        for stage in range(self.stages):
            bit = self.machine.pes >> (stage + 1)
            place = (place & ~bit) | (gather & bit)
            if self.machine.contended:
                t = max(t, self.link_free[stage][place])
                self.link_free[stage][place] = t + self.row_words
            t += 1
        if self.machine.contended:
            t = max(t, self.gather_free[gather])
        self.conflicts += t - unhindered
        return t

    def _hold_result(self, v: int, gather: int, t: int) -> int:
        """Return the cycle at which the result buffer holds the row of ``v``."""
        place = (gather, v // self.machine.pes % self.rows_kept)
        other = self.kept.get(place, v)
        self.kept[place] = v
        if other == v:
            return t
        moved = 1 + (v in self.spilled)
        self.spilled.add(other)
        self.spilled_rows += moved
        row_ticks = self.channel.miss_ticks + self.row_words * self.channel.burst_ticks
        self.channel_free += moved * row_ticks
        return max(t, -(-self.channel_free // self.machine.cycle_ticks))

    def _resolve_hazard(self, v: int, t: int) -> int:
        """Return the cycle at which the RAW resolver lets the update start."""
        safe = max(t, self.last[v] + self.machine.adder_cycles)
        self.hazards += safe - t
        self.last[v] = safe
        return safe
