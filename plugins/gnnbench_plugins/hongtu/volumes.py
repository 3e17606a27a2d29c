"""HongTu §5.3: communication volumes, their cost (Equation 4), and reorganisation (Algorithm 4).

A chunk is known here by its neighbour set alone: ``sets[i][j]`` has the vertex ids N_ij of
partition i, chunk j. All sets together are ``marks``, bitmaps of shape ``(m, n, words)``. A batch's
union is a bitwise or, an intersection a bitwise and. The bitmaps take m n |V| bits, as much as the
ids themselves if every vertex is read m n / 64 times. ``order[i][j]`` is the chunk of partition i
that runs in batch j.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from gnnbench.kernels.dispatch import count_marks, count_shared_marks, mark_sets
from gnnbench.kernels.reference.sets import Bitmaps
from gnnbench.records import IndexArray, IntArray

NeighbourSets = Sequence[Sequence[IntArray | IndexArray]]
Order = list[list[int]]


@dataclass(frozen=True, slots=True)
class Volumes:
    """Rows that cross the host link in one layer.

    They are all rows (V_ori), rows with inter-GPU deduplication (V_+p2p), and rows with intra-GPU
    reuse as well (V_+ru).
    """

    original: int
    with_p2p: int
    with_reuse: int


@dataclass(frozen=True, slots=True)
class Throughputs:
    """Rows per second between host and GPU (T_hd), GPUs (T_dd), and within a GPU (T_ru)."""

    host_device: float
    device_device: float
    reuse: float


def mark_chunks(sets: NeighbourSets, num_vertices: int) -> Bitmaps:
    """Return the bitmaps of all chunks, uint64 ``(m, n, words)``; ids may be in any order."""
    flat = [np.ascontiguousarray(ids, dtype=np.int64) for ids in chain.from_iterable(sets)]
    return mark_sets(flat, num_vertices).reshape(len(sets), len(sets[0]), -1)


def unite_batches(marks: Bitmaps, order: Order) -> Bitmaps:
    """Return U_j of every batch, ``(n, words)``."""
    union = marks[0, order[0]]
    for row, chosen in zip(marks[1:], order[1:], strict=True):
        union |= row[chosen]
    return union


def volumes_of(marks: Bitmaps, order: Order) -> Volumes:
    """Return V_ori, V_+p2p and V_+ru of chunks in an order."""
    unions = unite_batches(marks, order)
    return Volumes(
        original=int(count_marks(marks.reshape(-1, marks.shape[2])).sum()),
        with_p2p=int(count_marks(unions).sum()),
        with_reuse=int(
            count_marks(unions[:1]).sum() + count_marks(unions[1:] & ~unions[:-1]).sum()
        ),
    )


def cost_s(volumes: Volumes, rates: Throughputs) -> float:
    """Return Equation 4, in seconds for one layer's rows."""
    return (
        volumes.with_reuse / rates.host_device
        + (volumes.original - volumes.with_p2p) / rates.device_device
        + (volumes.with_p2p - volumes.with_reuse) / rates.reuse
    )


def regroup(marks: Bitmaps) -> Order:
    """Apply Algorithm 4. Ties go to the lowest chunk.

    Phase 1 puts chunks of different partitions with the most shared neighbours into one batch.
    Phase 2 orders the batches so that neighbouring ones share most. Within one pass of lines 5 to 7
    each batch's union is compared before it grows. One table of |N_ik ∩ N_j^U| therefore serves
    them all.
    """
    first, *others = marks
    grouped = [list(range(len(first)))]  # lines 1 and 2
    unions = first.copy()
    for row in others:  # lines 3 to 7
        shared = count_shared_marks(unions, row)
        chosen = [_take(shared, j) for j in range(len(row))]
        unions |= row[chosen]
        grouped.append(chosen)
    shared = count_shared_marks(unions, unions)
    shared[:, 0] = -1  # line 10
    batches = [0]  # lines 8 and 9
    while len(batches) < len(unions):  # lines 11 to 15
        batches.append(_take(shared, batches[-1]))
    return [[chosen[j] for j in batches] for chosen in grouped]


def _take(shared: IntArray, j: int) -> int:
    """Return the first column of row ``j`` with the largest count, and mark it as taken."""
    k = int(shared[j].argmax())
    shared[:, k] = -1
    return k
