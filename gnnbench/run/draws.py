"""A test whether neighbours are drawn by the law ``UNIFORM``, on the draws of the run itself.

Each test marks some neighbours of a row before the row is drawn, and counts the marked ones among
the drawn neighbours. Under the law the count is hypergeometric, whatever is marked. A marked
neighbour may have a high degree, be the first of its row, or have been drawn by the vertex before.
So one kind of test detects both a bias to some neighbours and a dependence on other draws.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gnnbench.records import Block, Graph, IntArray
from gnnbench.statistics import bound_tail

#: The probability of a false alarm in a run by the law, over all of its tests.
FALSE_ALARM = 1e-6
#: The logarithm of the least probability that a sentence shows.
LEAST_SHOWN = math.log(1e-99)
#: The number of neighbours that are examined in an epoch, besides one row in each block, and
#: the longest row that is examined.
EDGES_AN_EPOCH, LONGEST_ROW = 1 << 13, 1 << 16
#: The most vertices whose earlier draws are kept.
MOST_KEPT = 8192

Flags = NDArray[np.bool_]
DoubleArray = NDArray[np.float64]
#: The kind of mark, and the layer counted from the seeds, from 0.
Test = tuple[str, int]

FRONT = "stand in the first half of their rows"
FIRST = "are among as many at the front of their rows as are drawn"
LAST = "are among as many at the end of their rows as are drawn"
DEGREE = "have more neighbours than their row has on average"
PRESENT = "are vertices that the mini-batch already has"
ABOVE = "were drawn for the same vertex in the layer above"
BEFORE = "were drawn for the same vertex the time before"
ORIGIN = "were drawn for the same vertex the first time"
ALIKE = "repeat those of another vertex"
APART = "have a next one in their row that is not drawn"


@dataclass(slots=True)
class Count:
    """The marked neighbours among those ``drawn``, and the law's mean and variance of them."""

    drawn: int = 0
    found: int = 0
    expected: float = 0.0
    variance: float = 0.0

    @property
    def log_chance(self) -> float:
        """An upper bound of the log probability of a count at least as far from its mean.

        A hypergeometric count is a sum of independent zeros and ones (Vatutin and Mikhailov 1982).
        """
        return bound_tail(self.found - self.expected, self.variance)


def sum_law(drawn: int, marked: IntArray, sizes: IntArray) -> tuple[DoubleArray, DoubleArray]:
    """Return the law's mean and variance of the marked neighbours, summed over rows, ``(...)``.

    Each row draws ``drawn`` of its neighbours ``sizes``, of which ``marked`` ``(..., n)`` are.
    """
    share = marked / sizes
    left = np.maximum(sizes - 1, 1)
    variance = (drawn * share * (1 - share) * (sizes - drawn) / left).sum(axis=-1)
    return (drawn * share).sum(axis=-1), variance


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """The rows of some destinations of a block, one after the other.

    ``vertices``, ``sizes`` and ``begins`` are ``(n,)``: the destinations, their degrees, and the
    start of their rows in ``neighbours`` ``(m,)``. ``row`` and ``place`` are each neighbour's row
    and its position there. ``drawn`` has the drawn positions, ascending, ``(n, fan-out)``.
    """

    vertices: IntArray
    sizes: IntArray
    begins: IntArray
    neighbours: NDArray[np.int32]
    row: IntArray
    place: IntArray
    drawn: IntArray

    def mark(self, places: IntArray) -> Flags:
        """Return the mask of the neighbours at ``places`` ``(n, k)`` of their rows; < 0 is none."""
        marked = np.zeros(len(self.neighbours), dtype=np.bool_)
        marked[(places + self.begins[:, None])[places >= 0]] = True
        return marked

    def sum(self, marked: Flags) -> IntArray:
        """Return the number of marked neighbours ``(..., m)`` in each row ``(..., n)``."""
        found: IntArray = np.add.reduceat(marked, self.begins, axis=-1, dtype=np.int64)
        return found


class DrawAudit:
    """Counts, over the epochs of a run, of the draws of a sampler that claims to draw uniformly.

    In every block, some rows longer than the fan-out are examined, which the ``seed`` chooses. A
    vertex has one draw in a layer of an epoch, and counts once.
    """

    def __init__(self, graph: Graph, fanouts: Sequence[int], seed: int) -> None:
        count = graph.num_vertices
        self._graph = graph
        self._fanouts = fanouts
        self._degrees = graph.degrees
        self._priority = np.random.default_rng(seed).permutation(count)
        self._epoch = -1
        self._counts: dict[Test, Count] = {}
        #: The epoch in which a vertex was last examined, by layer, and whether a block has it.
        self._looked = np.full((len(fanouts), count), -1, dtype=np.int32)
        self._present = np.zeros(count, dtype=np.bool_)
        #: By layer and kept vertex, the positions drawn in this epoch, the time before, and
        #: the first time; -1 is none.
        self._slots = np.full(count, -1, dtype=np.int32)
        self._num_slots = 0
        shape = (len(fanouts), min(count, MOST_KEPT), max(fanouts, default=0))
        self._now, self._before, self._origin = (
            np.full(shape, -1, dtype=np.int32) for _ in range(3)
        )

    def look(self, epoch: int, blocks: Sequence[Block], num_rounds: int) -> str | None:
        """Count the draws of a mini-batch, input layer first; the epoch has ``num_rounds`` rounds.

        The numbers of neighbours must be right. Returns a sentence about an edge that is not the
        graph's, or occurs twice; else None.
        """
        if epoch != self._epoch:
            self._epoch = epoch
            self._now[:] = -1
        most = EDGES_AN_EPOCH // max(1, num_rounds * len(blocks))
        for depth, block in enumerate(reversed(blocks)):
            rows = self._read(block, depth, most)
            if rows is None:
                continue
            if not rows.drawn.size:
                return "a block has an in-edge twice, or one that the graph does not have"
            drawn = rows.mark(rows.drawn)
            kinds, marks = zip(*self._mark(rows, depth, block), strict=True)
            marked = np.stack(marks)
            self._count(kinds, depth, rows.sum(drawn & marked), rows.sum(marked), rows.sizes)
            self._count_apart(rows, drawn, depth)
            self._keep(rows, depth)
        return None

    def find_fault(self, name: str) -> str | None:
        """Return how the draws of the sampler ``name`` are not uniform, as a sentence, or None."""
        tests = sorted(self._counts.items(), key=lambda test: test[1].log_chance)
        if not tests or tests[0][1].log_chance >= math.log(FALSE_ALARM / len(tests)):
            return None
        (what, depth), count = tests[0]
        return (
            f"of {count.drawn:,} neighbours that sampler {name!r} drew in layer {depth} from the "
            f"seeds, {count.found:,} {what}. Uniform draws without replacement make "
            f"{count.expected:,.0f}, and such a count has a probability below "
            f"{math.exp(max(count.log_chance, LEAST_SHOWN)):.0e}"
        )

    # ------------------------------------------------------------------ what is looked at

    def _read(self, block: Block, depth: int, most: int) -> Rows | None:
        """Return rows of a block with about ``most`` neighbours, or None if it has none to examine.

        ``drawn`` is empty if the rows have a wrong edge.
        """
        fanout, ids = self._fanouts[depth], block.dst_ids
        sizes = self._degrees[ids]
        open_ = (sizes > fanout) & (sizes <= LONGEST_ROW) & (self._looked[depth, ids] < self._epoch)
        chosen = np.flatnonzero(open_) if fanout else ids[:0]
        if len(chosen) > 1:
            chosen = chosen[np.argsort(self._priority[ids[chosen]])]
            chosen = chosen[: max(1, int((np.cumsum(sizes[chosen]) <= most).sum()))]
        if not len(chosen):
            return None
        vertices, sizes = ids[chosen], sizes[chosen]
        self._looked[depth, vertices] = self._epoch
        ends = np.cumsum(sizes)
        begins = ends - sizes
        row = np.repeat(np.arange(len(chosen)), sizes)
        place = np.arange(ends[-1]) - begins[row]
        neighbours = self._graph.indices[self._graph.indptr[vertices][row] + place]
        # Rows of the graph ascend, and so do these keys.
        width = self._graph.num_vertices
        edges = block.indptr[chosen][:, None] + np.arange(fanout)
        sources = block.src_ids[block.indices[edges]]
        keys, wanted = row * width + neighbours, np.arange(len(chosen))[:, None] * width + sources
        at = np.sort(np.searchsorted(keys, wanted), axis=1)
        known = at[:, -1].max() < len(keys) and np.array_equal(keys[at], np.sort(wanted, axis=1))
        drawn = at - begins[:, None]
        if not known or (drawn[:, 1:] == drawn[:, :-1]).any():
            drawn = drawn[:0]
        return Rows(vertices, sizes, begins, neighbours, row, place, drawn)

    def _mark(self, rows: Rows, depth: int, block: Block) -> Iterator[tuple[str, Flags]]:
        """Yield marks that do not depend on the draws of the rows, each with its meaning."""
        fanout, sizes = self._fanouts[depth], rows.sizes[rows.row]
        yield FRONT, 2 * rows.place < sizes
        yield FIRST, rows.place < fanout
        yield LAST, rows.place >= sizes - fanout
        degrees = self._degrees[rows.neighbours]
        means = np.add.reduceat(degrees, rows.begins) / rows.sizes
        yield DEGREE, degrees > means[rows.row]
        self._present[block.dst_ids] = True
        yield PRESENT, self._present[rows.neighbours]
        self._present[block.dst_ids] = False
        slots = self._slots[rows.vertices]
        kept: Mapping[str, IntArray] = {BEFORE: self._before[depth], ORIGIN: self._origin[depth]}
        if depth:
            kept = {**kept, ABOVE: self._now[depth - 1]}
        for what, places in kept.items():
            yield what, rows.mark(np.where(slots[:, None] < 0, -1, places[slots]))
        # Rows of similar lengths, each beside the previous one: positions scale with the length.
        order = np.argsort(rows.sizes, kind="stable")
        scale = rows.sizes[order[1:], None] / rows.sizes[order[:-1], None]
        places = np.full_like(rows.drawn, -1)
        places[order[1:]] = (rows.drawn[order[:-1]] * scale).astype(np.int64)
        yield ALIKE, rows.mark(places)

    def _count_apart(self, rows: Rows, drawn: Flags, depth: int) -> None:
        """Count the drawn neighbours whose successor, around the row, is not drawn.

        With k of d neighbours drawn, this count has a known law. It is the law of the marked
        neighbours among k drawn of d - 1, if d - k are marked.
        """
        following = np.arange(1, len(drawn) + 1)
        following[rows.begins + rows.sizes - 1] = rows.begins
        found = rows.sum(drawn & ~drawn[following])[None]
        marked = (rows.sizes - self._fanouts[depth])[None]
        self._count((APART,), depth, found, marked, rows.sizes - 1)

    def _count(
        self, kinds: Sequence[str], depth: int, found: IntArray, marked: IntArray, sizes: IntArray
    ) -> None:
        """Add rows: by kind, ``(k, n)``, ``found`` of their ``marked`` neighbours are drawn."""
        drawn = self._fanouts[depth]
        sums = (found.sum(axis=1), *sum_law(drawn, marked, sizes))
        for what, *one in zip(kinds, *(each.tolist() for each in sums), strict=True):
            count = self._counts.setdefault((what, depth), Count())
            count.drawn += drawn * len(sizes)
            count.found += one[0]
            count.expected += one[1]
            count.variance += one[2]

    def _keep(self, rows: Rows, depth: int) -> None:
        """Keep the draws of as many vertices as there is room for."""
        new = rows.vertices[self._slots[rows.vertices] < 0]
        new = new[: self._now.shape[1] - self._num_slots]
        self._slots[new] = np.arange(self._num_slots, self._num_slots + len(new))
        self._num_slots += len(new)
        slots = self._slots[rows.vertices]
        slots, drawn = slots[slots >= 0], rows.drawn[slots >= 0]
        width = drawn.shape[1]
        first = self._origin[depth, slots, 0] < 0
        self._origin[depth, slots[first], :width] = drawn[first]
        for places in (self._now, self._before):
            places[depth, slots, :width] = drawn
