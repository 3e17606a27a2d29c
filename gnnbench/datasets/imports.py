"""Reading other people's graph files: edge lists, Matrix Market, and ``.npz`` not yet canonical.

Whatever is repaired on the way is counted in the dataset's notes.
"""

from __future__ import annotations

import gzip
import io
import os
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import scipy.io
import scipy.sparse as sp

from gnnbench.datasets.construct import build
from gnnbench.datasets.npz import read_npz
from gnnbench.errors import DatasetError
from gnnbench.records import Dataset, IntArray

_COMMENTS = ("#", "%")
_UNREADABLE = (OSError, EOFError, zlib.error, UnicodeDecodeError)


def import_file(path: str | os.PathLike[str], *, name: str | None = None) -> Dataset:
    """The graph in ``path`` as a dataset, made symmetric, sorted, without loops and duplicates.

    Reads Matrix Market (``.mtx``, ``.mtx.gz``), gnnbench's ``.npz`` (also directed or unsorted),
    and otherwise an edge list, plain or ``.gz``: two integer ids a line, separated by blanks or a
    comma, ``#`` and ``%`` starting comments, further columns ignored. Ids of an edge list may be
    any integers and are numbered anew from 0 in ascending order. ``name`` defaults to the file's.

    Raises :class:`DatasetError`: one sentence with the file and, for an edge list, the line.
    """
    file = Path(path)
    if not file.is_file():
        raise DatasetError(f"{file}: there is no such file; give the path of a graph to import.")
    stem = file.name.removesuffix(".gz")
    name = name or Path(stem).stem
    suffix = Path(stem).suffix.lower()
    if file.suffix == ".npz":
        return _import_npz(file, name)
    if suffix == ".mtx":
        return _import_matrix_market(file, name)
    return _import_edge_list(file, name)


def _import_npz(file: Path, name: str) -> Dataset:
    stored = read_npz(file)
    return build(
        name,
        (stored.indptr, stored.indices),
        features=stored.features,
        labels=stored.labels,
        masks=stored.masks,
        origin=str(file),
        notes=stored.notes,
    )


def _import_matrix_market(file: Path, name: str) -> Dataset:
    try:
        matrix = scipy.io.mmread(file)
    except (ValueError, OverflowError, MemoryError, *_UNREADABLE) as error:
        raise DatasetError(
            f"{file}: this is not a readable Matrix Market file ({error}); mend it or export it "
            f"again as coordinates."
        ) from error
    if not sp.issparse(matrix):
        raise DatasetError(
            f"{file}: the matrix is stored dense; export the adjacency matrix as coordinates."
        )
    if matrix.shape[0] != matrix.shape[1]:
        raise DatasetError(
            f"{file}: the matrix has {matrix.shape[0]:,} rows and {matrix.shape[1]:,} columns; an "
            f"adjacency matrix is square."
        )
    if matrix.nnz == 0:
        raise DatasetError(f"{file}: the matrix has no entries; a GNN needs at least one edge.")
    weighted = bool((matrix.data != 1).any())
    return build(
        name,
        np.stack((matrix.row.astype(np.int64), matrix.col.astype(np.int64))),
        num_vertices=int(matrix.shape[0]),
        origin=f"imported from {file.name}",
        notes=("edge weights were ignored",) if weighted else (),
    )


# --------------------------------------------------------------------------- edge lists


def _import_edge_list(file: Path, name: str) -> Dataset:
    notes = []
    try:
        first = next(_data_lines(file), None)
        if first is None:
            raise DatasetError(f"{file}: there are no edges in it; give two vertex ids a line.")
        separator = "," if "," in first[1] else None
        pairs = _parse_quickly(file, separator)
        if pairs is None:
            pairs = _parse_by_line(file)
    except _UNREADABLE as error:
        raise DatasetError(
            f"{file}: this is not a readable text file ({error}); it may be truncated or of "
            f"another format: give an edge list, .mtx or .npz."
        ) from error
    if len(_fields(first[1])) > 2:
        notes.append("columns after the second were ignored")
    ids, edges = np.unique(pairs, return_inverse=True)
    if ids[0] != 0 or ids[-1] != len(ids) - 1:
        notes.append(
            f"vertex ids ({ids[0]:,} to {ids[-1]:,}) were numbered anew, 0 to {len(ids) - 1:,}"
        )
    return build(
        name,
        edges.reshape(pairs.shape).T,
        num_vertices=len(ids),
        origin=f"imported from {file.name}",
        notes=notes,
    )


def _data_lines(file: Path) -> Iterator[tuple[int, str]]:
    """The lines that hold data, comments cut off, each with its number in the file."""
    with _open(file) as stream, io.TextIOWrapper(stream, encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, start=1):
            for comment in _COMMENTS:
                line = line.partition(comment)[0]
            if line.strip():
                yield number, line.strip()


def _open(file: Path) -> BinaryIO:
    if file.suffix == ".gz":
        return cast(BinaryIO, gzip.open(file, "rb"))
    return file.open("rb")


def _fields(line: str) -> list[str]:
    return line.replace(",", " ").split()


def _parse_quickly(file: Path, separator: str | None) -> IntArray | None:
    """The pairs by NumPy's reader, int64 ``(E, 2)``; None where it stumbles, and a line is why.

    It takes one comment sign only, so a file that uses the other below its head is left to
    :func:`_parse_by_line`.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return np.loadtxt(
                file,
                dtype=np.int64,
                delimiter=separator,
                usecols=(0, 1),
                ndmin=2,
                comments="%" if _starts_with_percent(file) else "#",
                encoding="utf-8-sig",
            )
        except (ValueError, Warning):
            return None


def _starts_with_percent(file: Path) -> bool:
    with _open(file) as stream:
        return stream.read(1) == b"%"


def _parse_by_line(file: Path) -> IntArray:
    pairs = []
    for number, line in _data_lines(file):
        fields = _fields(line)
        try:
            source, destination = np.int64(fields[0]), np.int64(fields[1])
        except (ValueError, IndexError, OverflowError):
            raise DatasetError(
                f"{file}, line {number}: {line[:60]!r} is not an edge; write two integer vertex "
                f"ids a line, and start headers and comments with #."
            ) from None
        pairs.append((source, destination))
    return np.array(pairs, dtype=np.int64)
