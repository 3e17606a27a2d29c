"""In which order a sum over edges reads rows, and which of them a cache still has."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gnnbench.kernels.dispatch import count_reuse_times, transpose
from gnnbench.kernels.reference.layout import list_reuse_times
from gnnbench.records import Block, IntArray


class BlockOrder:
    """The order in which AGGREGATE over a block reads rows: destination after destination those of
    their sources, and backward source after source those of their destinations.

    A cache that keeps the rows that were read last has a row where fewer different ones than it
    holds were read since. Among w reads in a row so many are different, on average, as the shares
    of reads that come more than 0, 1, .. w - 1 reads after the last of the same row add up to
    (Denning and Schwartz, "Properties of the working-set model", 1972). How soon rows come again is
    counted when somebody asks first, in each direction.
    """

    __slots__ = ("_block", "_curves")

    def __init__(self, block: Block) -> None:
        self._block = block
        self._curves: dict[bool, tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]] = {}

    def __eq__(self, other: object) -> bool:
        """Whether both read the same rows in the same order."""
        if not isinstance(other, BlockOrder) or hash(self) != hash(other):
            return False
        ours, theirs = self._block, other._block
        return ours is theirs or (
            np.array_equal(ours.indices, theirs.indices)
            and np.array_equal(ours.indptr, theirs.indptr)
        )

    def __hash__(self) -> int:
        block = self._block
        return hash((block.num_src, block.num_dst, block.num_edges))

    def kept(self, rows: float, *, backward: bool = False) -> float:
        """The share of reads whose row is one of the ``rows`` different ones that were read last;
        those that read a row for the first time are none of them."""
        if backward not in self._curves:
            self._curves[backward] = find_working_sets(self._count(backward))
        sizes, shares = self._curves[backward]
        return float(np.interp(rows, sizes, shares))

    def _count(self, backward: bool) -> IntArray:
        block = self._block
        if not backward:
            return count_reuse_times(block.indices, block.num_src)
        _, destinations, _ = transpose(block.indptr, block.indices, block.num_src)
        return count_reuse_times(destinations, block.num_dst)


def find_working_sets(
    counts: IntArray,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """How many different rows are among so many reads, and the share of reads whose row is among
    so many before, for the reuse times of ``list_reuse_times``; from ``counts`` of reuse times."""
    reads = max(1, int(counts.sum()))
    again = counts.copy()
    again[0] = 0
    times = list_reuse_times()
    #: Of reads whose last read of the same row is at most as long ago as the bin's shortest time,
    #: all of earlier bins; those of the bin itself are somewhere in it.
    shares = np.concatenate(([0.0], np.cumsum(again)[:-1])) / reads
    shares[:8] = np.cumsum(again)[:8] / reads
    new = 1.0 - shares
    steps = np.diff(times) * (new[1:] + new[:-1]) / 2
    steps[:7] = new[:7]
    return np.concatenate(([0.0], np.cumsum(steps))), shares
