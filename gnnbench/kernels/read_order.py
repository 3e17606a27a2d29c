"""The order in which a sum over edges reads rows, and the share of reads that hit a cache."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gnnbench.kernels.dispatch import count_reuse_times, transpose
from gnnbench.kernels.reference.layout import list_reuse_times
from gnnbench.records import Block, IntArray


class BlockOrder:
    """The order in which AGGREGATE over a block reads rows.

    Forward, it reads each destination's source rows in turn. Backward, it reads each source's
    destination rows in turn.

    A least-recently-used cache still holds a row if fewer distinct rows than its capacity were read
    since. The mean number of distinct rows among w consecutive reads is a sum over all t below w.
    Its terms are the shares of reads that come more than t reads after the last read of their row.
    The source is Denning and Schwartz, "Properties of the working-set model", 1972. Reuse times are
    counted at first use, for each direction.
    """

    __slots__ = ("_block", "_curves")

    def __init__(self, block: Block) -> None:
        self._block = block
        self._curves: dict[bool, tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]] = {}

    def __eq__(self, other: object) -> bool:
        """Return whether both read the same rows in the same order."""
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
        """Return the share of reads that hit a cache of the ``rows`` distinct rows read last.

        The first read of a row is a miss.
        """
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
    """Return working-set sizes and hit shares, one for each reuse time t of ``list_reuse_times``.

    The size is the mean number of distinct rows among t reads. The share counts reads that come at
    most t reads after the last read of their row. ``counts`` is the histogram of reuse times.
    """
    reads = max(1, int(counts.sum()))
    again = counts.copy()
    again[0] = 0
    times = list_reuse_times()
    #: Reads of earlier bins are certainly within a bin's shortest time. Reads of the bin itself lie
    #: somewhere in it and are not counted.
    shares = np.concatenate(([0.0], np.cumsum(again)[:-1])) / reads
    shares[:8] = np.cumsum(again)[:8] / reads
    new = 1.0 - shares
    steps = np.diff(times) * (new[1:] + new[:-1]) / 2
    steps[:7] = new[:7]
    return np.concatenate(([0.0], np.cumsum(steps))), shares
