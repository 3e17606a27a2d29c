"""Partitions in files, so that the ranks of a job cut a graph once, and later jobs not again.

They stand beside the data set, or in the user's cache if its folder is not writable.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import gnnbench
from gnnbench.host.files import publish, user_cache
from gnnbench.host.locks import locked
from gnnbench.records import Dataset, Graph, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class _Shelf:
    """The files of a graph's partitions: ``folders`` where they may be, best first."""

    graph: Graph
    digest: str
    folders: Sequence[Path]


_SHELF: ContextVar[_Shelf | None] = ContextVar("kept partitions", default=None)


@contextmanager
def keep_partitions(dataset: Dataset) -> Iterator[None]:
    """Keep the partitions of a data set's graph in files in the body, and read them from there."""
    folders = (*_find_beside(dataset), user_cache() / "partitions")
    token = _SHELF.set(_Shelf(dataset.graph, dataset.digest(), folders))
    try:
        yield
    finally:
        _SHELF.reset(token)


def _find_beside(dataset: Dataset) -> Sequence[Path]:
    """Return the folder beside the data set's own files, if files may be made there."""
    stored = Path(dataset.folder or dataset.origin)
    if not (dataset.folder or stored.suffix == ".npz") or not os.access(stored.parent, os.W_OK):
        return ()
    if not os.stat(stored.parent).st_mode & 0o222:  # root may write to it, and is not meant to
        return ()
    return (stored.with_name(f"{stored.name.removesuffix('.npz')}.partitions"),)


def find_kept(
    graph: Graph, method: str, seed: int, parts: int, cut: Callable[[], IntArray]
) -> IntArray:
    """Return the part of every vertex, int64 ``(V,)``, from a file or of ``cut``, which is kept.

    If another process of this machine cuts the graph alike, its partition is waited for. Raises the
    errors of ``cut``.
    """
    shelf = _SHELF.get()
    if shelf is None or shelf.graph is not graph:
        return cut()
    name = f"{shelf.digest}-{method}-{seed}-{parts}-{gnnbench.__version__}.npy"
    files = [folder / name for folder in shelf.folders]
    key = hashlib.sha256(repr(files).encode()).hexdigest()[:16]
    with contextlib.ExitStack() as opened:
        with contextlib.suppress(OSError):
            opened.enter_context(locked(key))
        if (kept := _read(files, graph.num_vertices, parts)) is not None:
            return kept
        made = cut()
        _write(files, made.astype(np.min_scalar_type(parts - 1)))
        return made


def _read(files: Sequence[Path], vertices: int, parts: int) -> IntArray | None:
    """Return the partition in the first file that has one; None if there is none."""
    for file in files:
        with contextlib.suppress(OSError, ValueError, EOFError):
            found = np.load(file, allow_pickle=False)
            if found.shape == (vertices,) and found.dtype.kind == "u" and found.max() < parts:
                kept: IntArray = found.astype(np.int64)
                return kept
    return None


def _write(files: Sequence[Path], part: npt.NDArray[np.unsignedinteger[Any]]) -> None:
    """Write a partition to the first file that can be written; a full disk keeps none."""
    for file in files:
        with contextlib.suppress(OSError):
            file.parent.mkdir(exist_ok=True, parents=True)
            with publish(file) as stream:
                np.save(stream, part)
            return
