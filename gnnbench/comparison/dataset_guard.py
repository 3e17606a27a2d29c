"""Notices a part that writes into the data set, on which every other row trains too."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import psutil

from gnnbench.host.mapped import count_written, is_mapped, let_go
from gnnbench.records import Dataset

#: Copies are kept of data sets that take at most this share of the free memory.
COPY_SHARE = 0.1


class DatasetGuard:
    """Detects writes to a data set's arrays, and restores small arrays.

    All rows and the reference are made from these arrays, so a write to one of them alters every
    row after it.
    """

    def __init__(self, dataset: Dataset) -> None:
        self._arrays = dict(_arrays(dataset))
        #: The system knows which mapped pages were written to; their files remain unaltered.
        self._mapped = {name for name, array in self._arrays.items() if is_mapped(array)}
        owned = {n: array for n, array in self._arrays.items() if n not in self._mapped}
        self._digests = {name: _digest(array) for name, array in owned.items()}
        size = sum(array.nbytes for array in owned.values())
        kept = size <= COPY_SHARE * psutil.virtual_memory().available
        self._copies = {n: array.copy() for n, array in owned.items()} if kept else {}

    def restore(self) -> str:
        """Restore arrays that were written to, and return a sentence on them, or nothing.

        An array without a copy stays altered, and every later call says so.
        """
        altered = [name for name in self._arrays if self._is_altered(name)]
        stay = False
        for name in altered:
            if name in self._mapped:
                let_go(self._arrays[name])
            elif name in self._copies:
                _write_back(self._arrays[name], self._copies[name])
            else:
                stay = True
        if not altered:
            return ""
        what = ", ".join(altered)
        outcome = "stay altered, and no row after this counts" if stay else "were restored"
        return (
            f"a part wrote into arrays of the data set that all rows share, {what}; they {outcome}."
        )

    def _is_altered(self, name: str) -> bool:
        if name in self._mapped:
            return count_written(self._arrays[name]) > 0
        return _digest(self._arrays[name]) != self._digests[name]


def _write_back(array: npt.NDArray[np.generic], copy: npt.NDArray[np.generic]) -> None:
    """Copy into an array even if NumPy marks it read-only, since torch writes to it anyway."""
    if array.flags.writeable or not array.flags.c_contiguous:
        np.copyto(array, copy)
    else:
        ctypes.memmove(array.ctypes.data, np.ascontiguousarray(copy).ctypes.data, array.nbytes)


def _arrays(dataset: Dataset) -> Iterator[tuple[str, npt.NDArray[np.generic]]]:
    yield "indptr", dataset.graph.indptr
    yield "indices", dataset.graph.indices
    if dataset.graph.weights is not None:
        yield "edge weights", dataset.graph.weights
    if isinstance(dataset.features, np.ndarray):
        yield "features", dataset.features
    else:
        for name in ("data", "indices", "indptr"):
            yield f"features ({name})", getattr(dataset.features, name)
    for name in ("labels", "train_mask", "val_mask", "test_mask"):
        yield name, getattr(dataset, name)


def _digest(array: npt.NDArray[np.generic]) -> bytes:
    return hashlib.sha256(np.ascontiguousarray(array).data).digest()
