"""Sparse accelerators: the steps that compute Z = A H ⊙ M, and the cost of each step.

The machine is MixGCN's S-SpMM engine (its section 3.2.1 and Figure 4; "the paper" below); the tiles
and windows serve its rivals too (``gnnbench_plugins.studies.mixgcn.rivals``). Decisions that the
paper leaves open are marked *assumed*. This module counts; memory cycles are added elsewhere.

**Words.** A word is 16 floats, 64 bytes. A slice is a range of H's features; its rows have
``row_words``.

**Tiles** (*assumed*; the paper says what the buffers hold, not in which order). Destinations are
cut into tiles of ``tile_rows``. A tile's outputs stay in the output buffer until they are complete:
no partial sum leaves the chip. A tile processes its slices of features one after the other. The
source rows that a tile's edges read are cut, in the order of their ids, into chunks of
``chunk_rows``, which fill one half of the node feature buffer. One tile, slice and chunk is a
*step*. Every source row that a tile reads is loaded once for each slice, and rows that it does not
read are not. ``window_rows`` above 1 models HyGCN. A window of that size slides to the first row
that is read, then shrinks to the last one that is. All rows between them are loaded.

**Index decoder.** It issues the edges of a step destination by destination, sources ascending. It
skips destinations with no wanted feature in any slice: neither their edges nor rows that only they
read cost anything.

**Lanes.** The reduction engine has ``lanes``. Each has ``lane_adders`` adders and a local double
buffer; half of the buffer holds ``local_words`` (*assumed*: the paper has neither number). An edge
brings a whole row into a local buffer. A *piece* of work is therefore up to
``local_words // row_words`` edges of one destination, at least one. Pieces go, in order, to the
lane that is free first. A destination of many edges has many pieces, and the reduction network
joins their sums. The distribution network fills ``fill_words`` words a cycle into each lane.

**Mask.** The multiplexers take the wanted features from the local buffer and pack them (*assumed*
without gaps, over the edges of a piece). A piece of e edges and w wanted features takes
``ceil(e w / lane_adders)`` cycles of the adders. Filling the next piece overlaps it (local double
buffers): the piece takes the longer of the two.

**Banks.** Word j of source row u lies in bank (u row_words + j) mod ``banks`` of the node feature
buffer. Here row_words is rounded up to a power of two. A bank reads one word a cycle. Lanes that
need a row at the same time share one read: the fat tree copies it. "The same time" is one window of
``lanes`` pieces' worth of edges (*assumed*). Requests queue at the banks, so a step takes at least
as long as its busiest bank.

**Order of accumulation.** An output is the sum over its edges with ascending sources, each added to
the running sum, starting from 0. Chunks follow each other in this order, and lanes that share a
destination are joined in it. The sums therefore equal the kernel ``aggregate``'s bit for bit.

Fewer wanted outputs, more lanes, adders, banks or words a cycle never take longer. Each piece takes
no more cycles, and pieces are independent and issued in the same order. A greedy list of
independent pieces ends no later if one of them is shorter or a lane is added.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt

from gnnbench.constants import Constant
from gnnbench.records import IndexArray, IntArray

#: Floats of a word.
WORD_FLOATS: Annotated[int, Constant("", "assumed", "64 bytes; MixGCN names no width")] = 16


@dataclass(frozen=True, slots=True)
class ReductionEngine:
    """The reduction engine and its networks; whole numbers, ``banks`` a power of two."""

    lanes: int
    lane_adders: int
    fill_words: int
    local_words: int
    banks: int

    def piece_edges(self, row_words: int) -> int:
        """Return the number of edges in a full piece: half a local buffer holds their rows."""
        return max(1, self.local_words // row_words)

    def bank_groups(self, row_words: int) -> int:
        """Return the number of bank groups; each holds one row."""
        return max(1, self.banks >> (row_words - 1).bit_length())


@dataclass(frozen=True, slots=True, eq=False)
class Chunks:
    """The cut of tiles into chunks: tile t has the chunks ``first[t]`` to ``first[t + 1]``.

    A chunk has the sources from ``begin`` to the ``begin`` of the tile's next chunk, and loads
    ``rows`` of them. All are int64.
    """

    tile_rows: int
    first: IntArray
    begin: IntArray
    rows: IntArray

    @property
    def tile_of(self) -> IntArray:
        """The tile of each chunk."""
        return np.repeat(np.arange(len(self.first) - 1), np.diff(self.first))


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """The costs of chunks; int64, one value a chunk, ``lane_cycles`` ``(chunks, slices)``.

    ``edges`` counts edges of destinations with any wanted feature, ``segments`` the destinations
    with such edges, and ``loaded_rows`` the rows that they read. ``bank_cycles`` is the busiest
    bank's time. ``lane_cycles`` is when the last lane ends.
    """

    edges: IntArray
    segments: IntArray
    loaded_rows: IntArray
    bank_cycles: IntArray
    lane_cycles: IntArray


def cut_chunks(
    indptr: IntArray,
    indices: IndexArray,
    num_src: int,
    tile_rows: int,
    chunk_rows: int,
    window_rows: int,
) -> tuple[IntArray, IntArray, IntArray]:
    """Return ``first``, ``begin`` and ``rows`` of :class:`Chunks`."""
    first, begin, rows = [0], [], []
    for v in range(0, len(indptr) - 1, tile_rows):
        last = min(v + tile_rows, len(indptr) - 1)
        read = np.unique(indices[indptr[v] : indptr[last]])
        place = held = opened = 0
        while place < len(read):
            # Slide to the first row that is read, shrink to the last one.
            after = int(np.searchsorted(read, read[place] + window_rows))
            span = int(read[after - 1] - read[place]) + 1
            if held and held + span > chunk_rows:
                begin.append(opened)
                rows.append(held)
                held = 0
            if not held:
                opened = int(read[place]) if len(begin) > first[-1] else 0
            held += span
            place = after
        if held:
            begin.append(opened)
            rows.append(held)
        first.append(len(begin))
    return (
        np.array(first, dtype=np.int64),
        np.array(begin, dtype=np.int64),
        np.array(rows, dtype=np.int64),
    )


def list_segments(
    indptr: IntArray, indices: IndexArray, num_src: int, chunks: Chunks
) -> Iterator[tuple[int, list[tuple[int, IndexArray]]]]:
    """Yield for each chunk its destinations with the sources of their edges in it; tile by tile."""
    num_dst = len(indptr) - 1
    for tile in range(len(chunks.first) - 1):
        v = tile * chunks.tile_rows
        last = min(v + chunks.tile_rows, num_dst)
        steps = range(int(chunks.first[tile]), int(chunks.first[tile + 1]))
        bounds = [*chunks.begin[steps.start : steps.stop], num_src]
        for place, step in enumerate(steps):
            segments = []
            for row in range(v, last):
                sources = indices[indptr[row] : indptr[row + 1]]
                low, high = np.searchsorted(sources, bounds[place : place + 2])
                segments.append((row, sources[low:high]))
            yield step, segments


def count_edges(
    indptr: IntArray, indices: IndexArray, num_src: int, chunks: Chunks
) -> tuple[IntArray, IntArray]:
    """See :func:`gnnbench.kernels.dispatch.spmm.count_edges`."""
    counted = np.zeros((2, len(chunks.begin)), dtype=np.int64)
    for step, segments in list_segments(indptr, indices, num_src, chunks):
        for _, sources in segments:
            counted[:, step] += len(sources), len(sources) > 0
    return counted[0], counted[1]


def count_reads(indices: IndexArray, num_src: int) -> IndexArray:
    """See :func:`gnnbench.kernels.dispatch.spmm.count_reads`."""
    return np.bincount(indices, minlength=num_src).astype(np.int32)


def walk_chunks(
    indptr: IntArray,
    indices: IndexArray,
    num_src: int,
    chunks: Chunks,
    wanted: IndexArray,
    selected: npt.NDArray[np.uint8],
    cycles_of: IntArray,
    engine: ReductionEngine,
    row_words: int,
) -> Steps:
    """See :func:`gnnbench.kernels.dispatch.spmm.count_steps`."""
    num_steps, num_slices = len(chunks.begin), wanted.shape[1]
    counted = np.zeros((4, num_steps), dtype=np.int64)
    lane_cycles = np.zeros((num_steps, num_slices), dtype=np.int64)
    piece = engine.piece_edges(row_words)
    groups = engine.bank_groups(row_words)
    passes = -(-row_words // engine.banks)
    window_edges = engine.lanes * piece
    for step, segments in list_segments(indptr, indices, num_src, chunks):
        reads = np.zeros(groups, dtype=np.int64)
        free = np.zeros((num_slices, engine.lanes), dtype=np.int64)
        rows: set[int] = set()
        in_window: set[tuple[int, int]] = set()
        position = 0
        for v, sources in segments:
            count = len(sources)
            if selected[v]:
                counted[:2, step] += count, count > 0
                for u in sources.tolist():
                    window = (position // window_edges, u)
                    if window not in in_window:
                        in_window.add(window)
                        reads[u % groups] += 1
                    rows.add(u)
                    position += 1
                for s in range(num_slices):
                    for edges in [piece] * (count // piece) + [count % piece]:
                        if edges:
                            free[s, free[s].argmin()] += cycles_of[edges, wanted[v, s]]
            else:
                position += count
        counted[2, step] = len(rows)
        counted[3, step] = reads.max() * passes
        lane_cycles[step] = free.max(axis=1)
    return Steps(counted[0], counted[1], counted[2], counted[3], lane_cycles)


def overlap_steps(
    loads: IntArray, computes: IntArray, writes: IntArray, byte_ticks: int, cycle_ticks: int
) -> int:
    """See :func:`gnnbench.kernels.dispatch.spmm.overlap_steps`."""
    memory = 0
    ends, pending = [0, 0], [0, 0]  # of the step before the last, and of the last
    for load, compute, write in zip(
        loads.tolist(), computes.tolist(), writes.tolist(), strict=True
    ):
        memory = max(memory, ends[0]) + pending[0] + load * byte_ticks
        ends = [ends[1], max(ends[1], memory) + compute * cycle_ticks]
        pending = [pending[1], write * byte_ticks]
    for end, write in zip(ends, pending, strict=True):
        memory = max(memory, end) + write
    return memory
