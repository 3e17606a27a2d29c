"""HongTu §5.3: communication volumes, their cost (Equation 4), and reorganisation (Algorithm 4).

A chunk is known here by its neighbour set alone: ascending vertex ids, ``sets[i][j]`` being N_ij
of partition i, chunk j.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gnnbench.records import IntArray

NeighbourSets = Sequence[Sequence[IntArray]]


@dataclass(frozen=True, slots=True)
class Volumes:
    """Rows that cross the host link in one layer: all (V_ori), with inter-GPU deduplication
    (V_+p2p), and with intra-GPU reuse as well (V_+ru)."""

    original: int
    with_p2p: int
    with_reuse: int


@dataclass(frozen=True, slots=True)
class Throughputs:
    """Rows per second between host and GPU (T_hd), GPUs (T_dd), and within a GPU (T_ru)."""

    host_device: float
    device_device: float
    reuse: float


def count_volumes(sets: NeighbourSets, num_vertices: int) -> Volumes:
    """V_ori, V_+p2p and V_+ru of chunks scheduled in the order given."""
    original = with_p2p = with_reuse = 0
    previous = np.zeros(num_vertices, dtype=bool)
    for batch in zip(*sets, strict=True):
        union = np.zeros(num_vertices, dtype=bool)
        for neighbours in batch:
            original += len(neighbours)
            union[neighbours] = True
        with_p2p += int(union.sum())
        with_reuse += int((union & ~previous).sum())
        previous = union
    return Volumes(original, with_p2p, with_reuse)


def cost_s(volumes: Volumes, rates: Throughputs) -> float:
    """Equation 4, seconds for one layer's rows."""
    return (
        volumes.with_reuse / rates.host_device
        + (volumes.original - volumes.with_p2p) / rates.device_device
        + (volumes.with_p2p - volumes.with_reuse) / rates.reuse
    )


def reorganise(sets: NeighbourSets, num_vertices: int) -> list[list[int]]:
    """Algorithm 4: ``order[i][j]`` is the chunk of partition i that runs in batch j.

    Phase 1 puts chunks of different partitions that share most neighbours into the same batch;
    phase 2 orders the batches so that neighbouring ones share most. Ties go to the lowest chunk.
    """
    partitions, chunks = len(sets), len(sets[0])
    unions = np.zeros((chunks, num_vertices), dtype=bool)
    grouped = [[0] * chunks for _ in range(partitions)]
    for j in range(chunks):  # lines 1 and 2
        grouped[0][j] = j
        unions[j, sets[0][j]] = True
    for i in range(1, partitions):  # lines 3 to 7
        left = list(range(chunks))
        for j in range(chunks):
            k = max(left, key=lambda k: (int(unions[j, sets[i][k]].sum()), -k))
            grouped[i][j] = k
            unions[j, sets[i][k]] = True
            left.remove(k)
    batches = [0]  # lines 8 and 9
    left = list(range(1, chunks))  # line 10
    while left:  # lines 11 to 15
        last = unions[batches[-1]]
        k = max(left, key=lambda k: (int((unions[k] & last).sum()), -k))
        batches.append(k)
        left.remove(k)
    return [[grouped[i][j] for j in batches] for i in range(partitions)]
