"""The order in which vertices are processed, and how many batches it allows: MixGCN §3.2.2.

With p_v the place of vertex v in the order, the bandwidth is b = max of p_v - p_u over all edges.
Proposition 3.5: in a pipeline of s batches nothing waits at the border of two layers when
(n - b) / 2n >= 1 / s. The remark before it prints its condition as (s-1)n/s - n/s <= b; what it
describes, and what the proposition follows from, is that the first batch depends on the first
s - 1 batches alone, n/s + b <= (s-1)n/s, so the sign is read as >=.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from gnnbench.errors import UsageError
from gnnbench.kernels.dispatch import bandwidth, reverse_cuthill_mckee
from gnnbench.records import Graph, IndexArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Ordering:
    """Vertices in the order they are processed, int32 ``(V,)``, and the order's bandwidth b."""

    order: IndexArray
    bandwidth: int

    @property
    def granularity(self) -> float:
        """(n - b) / 2n, the share of the vertices that the finest batch may have."""
        return (len(self.order) - self.bandwidth) / (2 * len(self.order))


def keep_order(graph: Graph) -> Ordering:
    """Vertices as they are numbered."""
    return Ordering(
        np.arange(graph.num_vertices, dtype=np.int32), bandwidth(graph.indptr, graph.indices)
    )


def reorder(graph: Graph, *, threads: int = 0) -> Ordering:
    """The reverse Cuthill-McKee order, of each component the better of the searches from a vertex
    of lowest and from one of highest degree.

    Components follow each other, so b is that of the widest; a vertex without neighbours is a
    component and widens nothing.
    """
    order = reverse_cuthill_mckee(graph.indptr, graph.indices, from_hubs=True, threads=threads)
    return Ordering(order, bandwidth(graph.indptr, graph.indices, order, threads=threads))


def count_stages(vertices: int, width: int, *, lag: int = 1) -> int | None:
    """The least s for which nothing waits between layers, for n vertices of bandwidth ``width``.

    Proposition 3.5, s = ceil(2n / (n - b)), for a batch that is back from the dense devices when
    the sparse ones are done with the next (``lag`` 1). One that comes back after ``lag`` sparse
    steps needs the first batch to read the first s - lag alone: s = ceil((1 + lag) n / (n - b)).

    None where a batch would have less than a vertex. With ``lag`` 1 that is b >= n - 1, a first
    vertex that reads the last: whatever s, the first batch of a layer waits for the last of the
    layer before. Raises ``ValueError`` for b outside [0, n) and a lag below 1.
    """
    if not 0 <= width < vertices or lag < 1:
        raise ValueError(f"there is no bandwidth {width} of {vertices} vertices, or lag {lag}")
    stages = -(-(1 + lag) * vertices // (vertices - width))
    return stages if stages <= vertices else None


def cut_batches(vertices: int, stages: int) -> IntArray:
    """Where batches of n/s vertices begin and the last one ends, int64 ``(s + 1,)``.

    The first is never the larger of two sizes, so that the proposition holds where s does not
    divide n. ``UsageError`` for less than one batch, or more than there are vertices.
    """
    if not 1 <= stages <= vertices:
        raise UsageError(
            f"{vertices:,} vertices cannot be cut into {stages:,} batches; ask for 1 to "
            f"{vertices:,}."
        )
    return np.arange(stages + 1, dtype=np.int64) * vertices // stages


@dataclass(frozen=True, slots=True, eq=False)
class Batches:
    """What a pass is cut into, int64 ``(s,)`` each: vertices, their in-edges, and the last batch of
    the pass before that each reads (its own counts).

    Batches come back in their order, so that ``last_read`` is the one that a batch waits for. The
    graph is symmetric: a batch reads the same batches forward and backward.
    """

    rows: IntArray
    edges: IntArray
    last_read: IntArray

    def grow(self, factor: float) -> Batches:
        """As many batches of a graph that is ``factor`` times as large, with the same reads."""
        rows, edges = (np.rint(each * factor).astype(np.int64) for each in (self.rows, self.edges))
        return Batches(rows, edges, self.last_read)


@runtime_checkable
class CutsBatches(Protocol):
    """A sampler whose rounds are the batches of a pass."""

    def cut(self, graph: Graph) -> Batches: ...


def make_batches(graph: Graph, order: IndexArray, stages: int) -> Batches:
    """The batches of ``cut_batches``, int32 ``(V,)`` ``order`` being a permutation."""
    bounds = cut_batches(graph.num_vertices, stages)
    edges = np.concatenate(([0], np.cumsum(graph.degrees[order])))
    return Batches(np.diff(bounds), np.diff(edges[bounds]), find_last_read(graph, order, bounds))


def find_last_read(graph: Graph, order: IndexArray, bounds: IntArray) -> IntArray:
    """See ``Batches.last_read``; ``bounds`` as ``cut_batches`` makes them."""
    position = np.empty(graph.num_vertices, dtype=np.int32)
    position[order] = np.arange(graph.num_vertices, dtype=np.int32)
    furthest = position.copy()
    rows = np.flatnonzero(graph.degrees)
    if len(rows):
        # Rows without edges between two others leave no gap in the indices.
        reached = np.maximum.reduceat(position[graph.indices], graph.indptr[rows])
        furthest[rows] = np.maximum(furthest[rows], reached)
    last = np.maximum.reduceat(furthest[order], bounds[:-1])
    return np.searchsorted(bounds, last, side="right").astype(np.int64) - 1
