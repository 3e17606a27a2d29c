"""The ids that vertices have in a file, and the numbers 0, 1, 2, ... that they get."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np

from gnnbench.datasets.attachments import Ids
from gnnbench.datasets.topology import sort_unique
from gnnbench.records import IntArray

#: Ids below this are looked up in an array that has an entry for each.
_DENSE_IDS = 1 << 28


class VertexIds:
    """The distinct ids of vertices among those that are added some at a time.

    Memory takes a byte for each id up to the largest below :data:`_DENSE_IDS`. Ids that are added
    together with others than these take 8 bytes each, and names what they are long.
    """

    def __init__(self) -> None:
        self._marks = np.zeros(0, dtype=np.bool_)
        self._others: Ids | None = None

    def add(self, ids: Ids) -> None:
        """Add ids, int64 or names, of any shape."""
        if ids.size == 0:
            return
        if _are_dense(ids):
            size = int(ids.max()) + 1
            if size > len(self._marks):
                marks = np.zeros(max(size, 2 * len(self._marks)), dtype=np.bool_)
                marks[: len(self._marks)] = self._marks
                self._marks = marks
            self._marks[ids] = True
        else:
            more = sort_unique(ids.reshape(-1).copy())
            known = more if self._others is None else np.concatenate((self._others, more))
            self._others = cast("Ids", sort_unique(known, runs=True))

    def list(self) -> Ids:
        """Return the ids, ascending."""
        dense = np.flatnonzero(self._marks)
        if self._others is None:
            return dense
        if not len(dense):
            return self._others
        return cast("Ids", sort_unique(np.concatenate((self._others, dense))))


def _are_dense(ids: Ids) -> bool:
    """Whether there may be an entry of an array for each id up to the largest."""
    return ids.dtype.kind != "U" and int(ids.min()) >= 0 and int(ids.max()) < _DENSE_IDS


def find_numbers(known: Ids) -> Callable[[Ids], IntArray]:
    """Return what gives some of the ids ``known``, which ascend, their numbers 0, 1, 2, ..."""
    if known.dtype.kind != "U" and known[0] == 0 and known[-1] == len(known) - 1:
        return lambda ids: cast("IntArray", ids)
    if _are_dense(known):
        numbers = np.zeros(int(known[-1]) + 1, dtype=np.int64)
        numbers[known] = np.arange(len(known))
        return lambda ids: numbers[ids]
    return lambda ids: np.searchsorted(known, ids)
