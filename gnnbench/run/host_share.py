"""Which of the host's rows a process has: all, or those of its own devices' partitions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gnnbench.records import IndexArray, IntArray


class HostShare:
    """The vertices whose rows on the host this process has: of ``owner``, the slot of each vertex,
    those that ``ranks`` gives to the rank ``here``. One process alone has all, as they stand."""

    def __init__(self, owner: IntArray, ranks: Sequence[int], here: int) -> None:
        self.num_vertices = len(owner)
        self._here = here
        self._alone = not any(ranks)
        if self._alone:
            return
        self._ranks = np.array(ranks, dtype=np.int32)[owner]
        self._ids = np.flatnonzero(self._ranks == here)
        #: Where the row of each vertex is among those of this process; -1 elsewhere.
        self._places = np.full(len(owner), -1, dtype=np.int32)
        self._places[self._ids] = np.arange(len(self._ids), dtype=np.int32)

    @property
    def whole(self) -> bool:
        """Whether all rows are here."""
        return self._alone or len(self._ids) == self.num_vertices

    @property
    def ids(self) -> IntArray:
        """The vertices whose rows are here, in the order of their rows."""
        return np.arange(self.num_vertices) if self._alone else self._ids

    def count(self, ids: IndexArray | IntArray, width: int) -> dict[int, int]:
        """By rank, how many elements it has of the rows of ``ids``."""
        counts = np.bincount(self._ranks[ids]) * width
        return dict(enumerate(counts.tolist()))

    def pick(self, ids: IndexArray | IntArray, rank: int) -> IntArray:
        """Which of ``ids`` a rank has, by their positions."""
        return np.flatnonzero(self._ranks[ids] == rank)

    def split(self, ids: IndexArray) -> tuple[IntArray | slice, IndexArray]:
        """Which of ``ids`` are here, and the places of their rows."""
        if self._alone:
            return slice(None), ids
        which = self.pick(ids, self._here)
        return which, self._places[ids[which]]

    def place(self, ids: IntArray) -> IntArray:
        """The places of the rows of ``ids`` that are here."""
        return (
            ids if self._alone else self._places[ids[self.pick(ids, self._here)]].astype(np.int64)
        )
