"""A local search over orders of chunks, by the cost of HongTu's Equation 4.

Algorithm 4 is greedy and never looks back. Two kinds of moves improve an order. One reverses a
stretch of batches (2-opt, as for the travelling salesman that §5.3 reduces to this problem). The
other exchanges two chunks of one partition between their batches. P = V_+p2p is the sum of the
batches' unions U_j. R = V_+p2p - V_+ru is the sum of |U_j ∩ U_j-1|. With both, Equation 4 is

    C = V_ori / T_dd + P (1 / T_hd - 1 / T_dd) - R (1 / T_hd - 1 / T_ru).

No order changes the first term. A reversal changes R at its two ends alone. An exchange changes two
unions, and the rows that they share with neighbouring batches.
"""

import numpy as np
import numpy.typing as npt
import torch

from gnnbench.constants import Bound
from gnnbench.kernels.dispatch import count_marks, count_shared_marks
from gnnbench.kernels.reference.sets import Bitmaps
from gnnbench.records import IntArray
from gnnbench_plugins.hongtu.volumes import (
    Order,
    Throughputs,
    unite_batches,
)

DoubleArray = npt.NDArray[np.float64]

#: A sweep tries every move once; the test suite's real graphs converge after 2 to 20.
MAX_SWEEPS: Bound[int] = 60
#: Exchanges that a bounded search looks at: a sweep of 32 chunks for each of 4 partitions.
BOUNDED_MOVES: Bound[int] = 4096
#: Number of batches whose unions are kept beside the sets themselves.
COLUMNS: Bound[int] = 16


def descend(
    marks: Bitmaps, order: Order, rates: Throughputs, max_sweeps: int = MAX_SWEEPS
) -> Order:
    """Return an order that costs no more than ``order``, after at most ``max_sweeps`` sweeps.

    Deterministic; among moves of equal gain the first goes first.
    """
    schedule = _Schedule(marks, order, rates)
    for _ in range(max_sweeps):
        moved = schedule.reverse_batches()
        for i in range(len(order)):
            moved += schedule.exchange_chunks(i)
        if not moved:
            break
    return schedule.order


def bound_sweeps(marks: Bitmaps) -> int:
    """Return the sweeps that make up ``BOUNDED_MOVES`` exchanges, m n^2 a sweep; at least one."""
    partitions, chunks = len(marks), len(marks[0])
    return min(MAX_SWEEPS, max(1, BOUNDED_MOVES // (partitions * chunks * chunks)))


class _Schedule:
    """An order, the unions of its batches, and each union with another chunk in it.

    ``_tables[i][:, k, j]`` are row counts of batch j's union with chunk k of partition i in place
    of its own: all rows, and rows shared with the batches before and after j, which do not change.
    ``_beside[i][j]`` counts rows that batches j and j+1 share after an exchange of their chunks of
    partition i. Columns in ``_stale[i]`` have yet to be computed.
    """

    def __init__(self, marks: Bitmaps, order: Order, rates: Throughputs) -> None:
        self.order = [list(row) for row in order]
        self._marks = marks
        _, n, words = marks.shape
        self._batches = n
        self._per_row = 1 / rates.host_device - 1 / rates.device_device
        self._per_kept = 1 / rates.host_device - 1 / rates.reuse
        # Less than the worth of a row, and more than rounding makes of zero.
        self._least = 1e-9 * max(abs(self._per_row), abs(self._per_kept))
        # Pairs of batches that are not neighbours, above the diagonal.
        self._apart = np.triu(np.ones((n, n), dtype=np.bool_), 2)
        # Batch j is row j + 1; the first and the last row are empty.
        self._unions = np.zeros((n + 2, words), dtype=np.uint64)
        self._unions[1:-1] = unite_batches(marks, self.order)
        self._sizes = count_marks(marks.reshape(-1, words)).reshape(-1, n)
        self._tables = [np.zeros((3, n, n), dtype=np.int64) for _ in marks]
        self._beside = [np.zeros(n - 1, dtype=np.int64) for _ in marks]
        self._stale = [set(range(n)) for _ in marks]
        #: Whether unions have changed since no reversal helped.
        self._changed = True

    # ------------------------------------------------------------------ reversals

    def reverse_batches(self) -> int:
        """Reverse stretches of batches, always the one with the largest gain; return how many."""
        if not self._changed:
            return 0
        self._changed = False
        n = self._batches
        shared = np.zeros((n + 2, n + 2))  # first and last: no batch
        shared[1:-1, 1:-1] = _count_shared(self._unions[1:-1], self._unions[1:-1])
        place = np.arange(n + 2)
        moves = 0
        while True:
            now = shared[np.ix_(place, place)]
            step = np.diagonal(now, 1)
            # [a, b]: batches a to b reversed bring a-1 beside b and a beside b+1.
            kept = now[:-2, 1:-1] + now[1:-1, 2:] - step[:-1, None] - step[None, 1:]
            gain = self._per_kept * np.triu(kept, 1)
            a, b = divmod(int(np.argmax(gain)), n)
            if gain[a, b] <= self._least:
                break
            place[a + 1 : b + 2] = place[a + 1 : b + 2][::-1].copy()
            moves += 1
        if moves:
            batches = (place[1:-1] - 1).tolist()
            self.order = [[row[j] for j in batches] for row in self.order]
            self._unions = self._unions[place]
            self._stale = [set(range(n)) for _ in self._stale]
        return moves

    # ------------------------------------------------------------------ exchanges

    def exchange_chunks(self, i: int) -> int:
        """Exchange chunks of partition ``i`` between batches; return the number of exchanges.

        Exchanges with the largest gains go first. A gain stays valid while its two batches and
        their neighbours are unchanged, so the next exchanges are taken from other batches. If
        nothing changed since no exchange gained, none gains now.
        """
        if not self._stale[i]:
            return 0
        self._refresh(i)
        gain = self._gains(i).ravel()
        pairs = np.flatnonzero(gain > self._least)
        if not len(pairs):
            return 0
        ranked = pairs[np.argsort(-gain[pairs], kind="stable")]
        row, touched, moves = self.order[i], set[int](), 0
        for a, b in zip(*(at.tolist() for at in divmod(ranked, self._batches)), strict=True):
            if a in touched or b in touched:
                continue
            row[a], row[b] = row[b], row[a]
            for j in (a, b):
                self._unions[j + 1] = 0
                for chunks, chosen in zip(self._marks, self.order, strict=True):
                    self._unions[j + 1] |= chunks[chosen[j]]
                touched.update((j - 1, j, j + 1))
            moves += 1
        self._changed |= moves > 0
        for stale in self._stale:
            stale.update(j for j in touched if 0 <= j < self._batches)
        return moves

    def _gains(self, i: int) -> DoubleArray:
        """Return seconds gained by exchanging the chunks of batches a and b, above the diagonal."""
        rows, before, after = self._tables[i][:, self.order[i]]  # [b, a]: chunk of b put into a
        worth = self._per_kept * (before + after) - self._per_row * rows
        own = worth.diagonal()
        gain: DoubleArray = worth + worth.T - own[:, None] - own[None, :]
        gain *= self._apart
        # Both of two neighbours change: their shared rows are counted once, and separately.
        kept = self._beside[i] + before.diagonal(-1) + after.diagonal(1)
        kept -= before.diagonal()[:-1] + after.diagonal()[:-1] + after.diagonal()[1:]
        more = rows.diagonal(-1) + rows.diagonal(1)
        more -= rows.diagonal()[:-1] + rows.diagonal()[1:]
        gain.ravel()[1 : -1 : self._batches + 1] = self._per_kept * kept - self._per_row * more
        return gain

    def _refresh(self, i: int) -> None:
        """Compute the stale columns of partition ``i``, a few at a time to save memory."""
        stale = sorted(self._stale[i])
        self._stale[i] = set()
        for start in range(0, len(stale), COLUMNS):
            columns = stale[start : start + COLUMNS]
            left = sorted({j for at in columns for j in (at - 1, at) if 0 <= j < self._batches - 1})
            right = [j + 1 for j in left]
            batches = sorted({*columns, *left, *right})
            rest = self._rest(i, batches)
            place = {j: at for at, j in enumerate(batches)}
            chosen = rest if batches == columns else rest[[place[j] for j in columns]]
            self._tables[i][:, :, columns] = self._count(i, np.array(columns), chosen)
            row = self.order[i]
            mine, other = (self._marks[i, [row[j] for j in at]] for at in (left, right))
            other |= rest[[place[j] for j in left]]
            mine |= rest[[place[j] for j in right]]
            other &= mine
            self._beside[i][left] = count_marks(other)

    def _rest(self, i: int, batches: list[int]) -> Bitmaps:
        """Return the rows that partitions other than ``i`` read in some batches."""
        rest = np.zeros((len(batches), self._marks.shape[2]), dtype=np.uint64)
        for k, row in enumerate(self.order):
            if k != i:
                rest |= self._marks[k, [row[j] for j in batches]]
        return rest

    def _count(self, i: int, batches: IntArray, rest: Bitmaps) -> IntArray:
        """Return columns of ``_tables[i]``, int64 ``(3, n, len(batches))``.

        ``rest`` is from ``_rest``. Both counts use inclusion and exclusion. Let O be the rows that
        the other partitions' chunks read in a batch, N a chunk and U a neighbouring batch's union.
        The new union has |O| + |N| - |O ∩ N| rows. It shares |O ∩ U| + |N ∩ U| - |O ∩ N ∩ U| of
        them with U.
        """
        # Sizes of O, U before, O ∩ U before, U after and O ∩ U after, and the part of each in N.
        each = np.empty((5, *rest.shape), dtype=np.uint64)
        each[0] = rest
        np.take(self._unions, batches, axis=0, out=each[1])
        np.bitwise_and(rest, each[1], out=each[2])
        np.take(self._unions, batches + 2, axis=0, out=each[3])
        np.bitwise_and(rest, each[3], out=each[4])
        around = each.reshape(-1, rest.shape[1])
        size = count_marks(around).reshape(5, -1)
        has = _count_shared(self._marks[i], around).reshape(self._batches, 5, -1)
        has = has.transpose(1, 0, 2)
        return np.stack(
            (
                size[0] + self._sizes[i][:, None] - has[0],
                size[2] + has[1] - has[2],
                size[4] + has[3] - has[4],
            )
        )


def _count_shared(bitmaps: Bitmaps, others: Bitmaps) -> IntArray:
    return count_shared_marks(bitmaps, others, threads=torch.get_num_threads())
