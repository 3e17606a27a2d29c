"""The order in which vertices are processed, and how many batches it allows: MixGCN §3.2.2.

With p_v the position of vertex v in the order, the bandwidth is b = max of p_v - p_u over all
edges. Proposition 3.5: a pipeline of s batches never waits between two layers when (n - b) / 2n >=
1 / s. The remark before it prints its condition as (s-1)n/s - n/s <= b. The text, and the
proposition, mean that the first batch depends on the first s - 1 batches alone, n/s + b <=
(s-1)n/s. The sign is therefore read as >=.
"""

from dataclasses import dataclass

import numpy as np

from gnnbench.errors import UsageError
from gnnbench.kernels.dispatch import bandwidth, induce_block, reverse_cuthill_mckee
from gnnbench.lowering.shardings import Piece
from gnnbench.records import BlockSize, Graph, IndexArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Ordering:
    """Vertices in processing order, int32 ``(V,)``, and the order's bandwidth b."""

    order: IndexArray
    bandwidth: int

    @property
    def granularity(self) -> float:
        """(n - b) / 2n, the largest share of the vertices in a batch that avoids waits."""
        return (len(self.order) - self.bandwidth) / (2 * len(self.order))


def keep_order(graph: Graph) -> Ordering:
    """Return the vertices in id order."""
    return Ordering(
        np.arange(graph.num_vertices, dtype=np.int32), bandwidth(graph.indptr, graph.indices)
    )


def reorder(graph: Graph, *, threads: int = 0) -> Ordering:
    """Return the reverse Cuthill-McKee order.

    Each component takes the better of two searches, from a vertex of lowest and from one of highest
    degree. Components follow each other, so b is the widest component's. A vertex without
    neighbours is a component and widens nothing.
    """
    order = reverse_cuthill_mckee(graph.indptr, graph.indices, from_hubs=True, threads=threads)
    return Ordering(order, bandwidth(graph.indptr, graph.indices, order, threads=threads))


def count_stages(vertices: int, width: int) -> int | None:
    """Return the least s without waits between layers, for n vertices of bandwidth ``width``.

    Proposition 3.5: s = ceil(2n / (n - b)). It assumes that a batch is back from the dense devices
    when the sparse ones finish the next.

    Returns None if a batch would have less than a vertex. Then b >= n - 1: the first vertex reads
    the last. For any s, the first batch of a layer waits for the last of the layer before. Raises
    ``ValueError`` for b outside [0, n).
    """
    if not 0 <= width < vertices:
        raise ValueError(f"there is no bandwidth {width} of {vertices} vertices")
    stages = -(-2 * vertices // (vertices - width))
    return stages if stages <= vertices else None


def cut_batches(vertices: int, stages: int) -> IntArray:
    """Return the bounds of batches of n/s vertices, int64 ``(s + 1,)``.

    The first is never the larger of two sizes, so the proposition also holds if s does not divide
    n. Raises ``UsageError`` for less than one batch, or more than there are vertices.
    """
    if not 1 <= stages <= vertices:
        raise UsageError(
            f"{vertices:,} vertices cannot be cut into {stages:,} batches; ask for 1 to "
            f"{vertices:,}."
        )
    return np.arange(stages + 1, dtype=np.int64) * vertices // stages


def cut_order(order: IndexArray, stages: int) -> list[IntArray]:
    """Return the vertices of each batch; ``order`` is a permutation, int32 ``(V,)``."""
    return np.split(order.astype(np.int64), cut_batches(len(order), stages)[1:-1])


def count_rounds(graph: Graph, order: IndexArray, stages: int) -> tuple[Piece, ...]:
    """Return an order's batches as rounds of a program: their sizes, and the batches each reads."""
    bounds = cut_batches(graph.num_vertices, stages)
    position = np.empty(len(order), dtype=np.int64)
    position[order] = np.arange(len(order))
    rounds = []
    for ids in cut_order(order, stages):
        block = induce_block(graph.indptr, graph.indices, ids)
        reads = np.unique(np.searchsorted(bounds, position[block.src_ids], side="right") - 1)
        size = BlockSize(block.num_src, block.num_dst, block.num_edges)
        rounds.append(Piece(size, tuple(reads.tolist()), picks=stages > 1))
    return tuple(rounds)
