"""Notices a part that writes into the data set, which every other row trains on too."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import psutil

from gnnbench.records import Dataset

#: Copies are kept of data sets that take at most this share of the memory that is free.
COPY_SHARE = 0.1


class DatasetGuard:
    """Knows a data set's arrays as they were; small ones it can bring back.

    Arrays of the data set are what all rows, and the reference, are made from: one that is written
    to alters every row after it.
    """

    def __init__(self, dataset: Dataset) -> None:
        self._arrays = dict(_arrays(dataset))
        self._digests = {name: _digest(array) for name, array in self._arrays.items()}
        size = sum(array.nbytes for array in self._arrays.values())
        kept = size <= COPY_SHARE * psutil.virtual_memory().available
        self._copies = {n: array.copy() for n, array in self._arrays.items()} if kept else {}

    def restore(self) -> str:
        """What has been written to since, as a sentence, and bring it back; empty where nothing
        has. Without a copy it stays altered, and every later call says so."""
        altered = [n for n, array in self._arrays.items() if _digest(array) != self._digests[n]]
        for name in altered:
            if name in self._copies:
                _write_back(self._arrays[name], self._copies[name])
        if not altered:
            return ""
        what = ", ".join(altered)
        outcome = "were restored" if self._copies else "stay altered, and no row after this counts"
        return (
            f"a part wrote into arrays of the data set that all rows share, {what}; they {outcome}."
        )


def _write_back(array: npt.NDArray[np.generic], copy: npt.NDArray[np.generic]) -> None:
    """Also where NumPy may not write, as torch does without asking."""
    if array.flags.writeable or not array.flags.c_contiguous:
        np.copyto(array, copy)
    else:
        ctypes.memmove(array.ctypes.data, np.ascontiguousarray(copy).ctypes.data, array.nbytes)


def _arrays(dataset: Dataset) -> Iterator[tuple[str, npt.NDArray[np.generic]]]:
    yield "indptr", dataset.graph.indptr
    yield "indices", dataset.graph.indices
    if isinstance(dataset.features, np.ndarray):
        yield "features", dataset.features
    else:
        for name in ("data", "indices", "indptr"):
            yield f"features ({name})", getattr(dataset.features, name)
    for name in ("labels", "train_mask", "val_mask", "test_mask"):
        yield name, getattr(dataset, name)


def _digest(array: npt.NDArray[np.generic]) -> bytes:
    return hashlib.sha256(np.ascontiguousarray(array).data).digest()
