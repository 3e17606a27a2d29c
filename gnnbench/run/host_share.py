"""The host's rows that a process has: all, or the rows of its devices' partitions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gnnbench.records import IndexArray, IntArray


class HostShare:
    """The vertices with rows on the host in this process.

    ``owner`` is the device index of each vertex. A vertex is here if ``ranks`` gives its device to
    the rank ``here``. A single process has all rows, in their order.
    """

    def __init__(self, owner: IntArray, ranks: Sequence[int], here: int) -> None:
        self.num_vertices = len(owner)
        self._here = here
        self._alone = not any(ranks)
        if self._alone:
            return
        self._ranks = np.array(ranks, dtype=np.int32)[owner]
        self._ids = np.flatnonzero(self._ranks == here)
        #: The position of each vertex's row in this process; -1 if it is elsewhere.
        self._places = np.full(len(owner), -1, dtype=np.int32)
        self._places[self._ids] = np.arange(len(self._ids), dtype=np.int32)

    @property
    def whole(self) -> bool:
        """Whether all rows are here."""
        return self._alone or len(self._ids) == self.num_vertices

    @property
    def ids(self) -> IntArray:
        """The vertices with rows here, in the order of their rows."""
        return np.arange(self.num_vertices) if self._alone else self._ids

    def count(self, ids: IndexArray | IntArray, width: int) -> dict[int, int]:
        """Return how many elements of the rows of ``ids`` each rank has, by rank."""
        counts = np.bincount(self._ranks[ids]) * width
        return dict(enumerate(counts.tolist()))

    def pick(self, ids: IndexArray | IntArray, rank: int) -> IntArray:
        """Return the positions in ``ids`` of the vertices that a rank has."""
        return np.flatnonzero(self._ranks[ids] == rank)

    def split(self, ids: IndexArray) -> tuple[IntArray | slice, IndexArray]:
        """Return which of ``ids`` are here, and the positions of their rows."""
        if self._alone:
            return slice(None), ids
        which = self.pick(ids, self._here)
        return which, self._places[ids[which]]

    def place(self, ids: IntArray) -> IntArray:
        """Return the positions of the rows of ``ids`` that are here."""
        return (
            ids if self._alone else self._places[ids[self.pick(ids, self._here)]].astype(np.int64)
        )
