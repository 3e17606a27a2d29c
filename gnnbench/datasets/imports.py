"""Reading other people's graph files: edge lists, Matrix Market, and ``.npz`` not yet canonical.

Whatever is repaired on the way is counted in the dataset's notes.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import os
import warnings
import zlib
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import numpy.typing as npt

from gnnbench.datasets.construct import build
from gnnbench.datasets.memory import check_memory, find_available_bytes
from gnnbench.datasets.npz import read_npz
from gnnbench.errors import DatasetError
from gnnbench.files import FileRefused, open_input
from gnnbench.records import Dataset, IntArray
from gnnbench.units import format_si

_COMMENTS = ("#", "%")
_UNREADABLE = (OSError, EOFError, zlib.error, lzma.LZMAError, UnicodeDecodeError)
_OPENERS: dict[str, Callable[[BinaryIO], object]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
}
#: What an edge takes at the peak: its ids, sorted, numbered anew and made symmetric.
_BYTES_PER_EDGE = 120
_LONGEST_NAME = 200
#: What an entry of a matrix can be.
_FIELDS = ("pattern", "integer", "real", "complex")
#: No line that holds an edge is as long.
_LONGEST_LINE = 1 << 20


def import_file(path: str | os.PathLike[str], *, name: str | None = None) -> Dataset:
    """The graph in ``path`` as a dataset, made symmetric, sorted, without loops and duplicates.

    Reads Matrix Market (``.mtx``), gnnbench's ``.npz`` (also directed or unsorted), and otherwise
    an edge list: two integer ids a line, separated by blanks or a comma, ``#`` and ``%`` starting
    comments, further columns ignored. Both texts may be compressed (``.gz``, ``.bz2``, ``.xz``).
    Ids of an edge list may be any integers and are numbered anew from 0 in ascending order.
    ``name`` is as :func:`choose_name` has it.

    Raises :class:`DatasetError`: one sentence with the file and, for an edge list, the line.
    """
    file = Path(path)
    name = choose_name(file, name)
    if file.suffix == ".npz":
        return _import_npz(file, name)
    if _uncompressed(file).suffix.lower() == ".mtx":
        return _import_matrix_market(file, name)
    return _import_edge_list(file, name)


def choose_name(file: Path, name: str | None = None) -> str:
    """The name of the dataset that is made of ``file``: ``name``, or the file's without endings.

    A dataset is kept as ``NAME.npz`` in one folder, and ``load`` finds it there by its name.
    Raises :class:`DatasetError` for a name that would lead elsewhere.
    """
    chosen = _uncompressed(file).stem if name is None else name
    why = None
    if not chosen.strip():
        why = "is empty"
    elif "/" in chosen or os.sep in chosen:
        why = "leads to another folder"
    elif chosen.startswith((".", "-")):
        why = f"begins with {chosen[0]!r}"
    elif chosen.endswith(".npz"):
        why = "ends as a file's does"
    elif not chosen.isprintable():
        why = "has characters that cannot be seen"
    elif len(os.fsencode(chosen)) > _LONGEST_NAME:
        why = f"is longer than {_LONGEST_NAME} bytes"
    if why is not None:
        raise DatasetError(
            f"{chosen[:60]!r} {why} and is no name for a dataset; give a plain one with --name."
        )
    return chosen


def _uncompressed(file: Path) -> Path:
    return file.with_suffix("") if file.suffix in _OPENERS and file.stem else file


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


def _describe(error: BaseException) -> str:
    """What a parser said, on one line and without a full stop."""
    if isinstance(error, UnicodeDecodeError):
        return "it is not text in UTF-8"
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__


# --------------------------------------------------------------------------- Matrix Market


@dataclass(frozen=True, slots=True)
class _MatrixHeader:
    """What a Matrix Market file says before its entries; ``lines`` is how many that takes."""

    rows: int
    columns: int
    entries: int
    field: str
    symmetric: bool
    lines: int


class _Malformed(Exception):
    """Why a text is no Matrix Market file."""


def _import_matrix_market(file: Path, name: str) -> Dataset:
    try:
        _check_text(file)
        header = _read_matrix_header(file)
        if header.rows != header.columns:
            raise DatasetError(
                f"{file}: the matrix has {header.rows:,} rows and {header.columns:,} columns; an "
                f"adjacency matrix is square."
            )
        if header.entries == 0:
            raise DatasetError(f"{file}: the matrix has no entries; a GNN needs at least one edge.")
        edges = header.entries * (2 if header.symmetric else 1)
        check_memory(str(file), f"its {header.entries:,} entries", _BYTES_PER_EDGE * edges)
        table = _read_entries(file, header)
    except (_Malformed, *_UNREADABLE) as error:
        raise DatasetError(
            f"{file}: this is not a readable Matrix Market file ({_describe(error)}); mend it or "
            f"export it again as coordinates."
        ) from error
    row, column = table["row"] - 1, table["column"] - 1
    if header.symmetric:
        below = row != column
        row, column = np.append(row, column[below]), np.append(column, row[below])
    weighted = header.field == "complex" or (
        header.field != "pattern" and bool((table["value"] != 1).any())
    )
    return build(
        name,
        np.stack((row, column)),
        num_vertices=header.rows,
        origin=f"imported from {file.name}",
        notes=("edge weights were ignored",) if weighted else (),
    )


def _read_matrix_header(file: Path) -> _MatrixHeader:
    with _open(file) as stream:
        first = stream.readline().decode("utf-8-sig").lower().split()
        if len(first) != 5 or first[:2] != ["%%matrixmarket", "matrix"]:
            raise _Malformed("it does not begin with %%MatrixMarket matrix coordinate")
        if first[2] != "coordinate":
            raise DatasetError(
                f"{file}: the matrix is stored dense; export the adjacency matrix as coordinates."
            )
        if first[3] not in _FIELDS:
            raise _Malformed(f"its entries are {first[3]!r}, not {', '.join(_FIELDS)}")
        for number, line in enumerate(stream, start=2):
            words = line.split()
            if not words or words[0].startswith(b"%"):
                continue
            if len(words) != 3 or not all(word.isdigit() and len(word) < 20 for word in words):
                raise _Malformed(f"line {number} does not say how many rows, columns and entries")
            rows, columns, entries = map(int, words)
            return _MatrixHeader(rows, columns, entries, first[3], first[4] != "general", number)
    raise _Malformed("it does not say how many rows, columns and entries there are")


def _read_entries(file: Path, header: _MatrixHeader) -> npt.NDArray[np.void]:
    """The entries as ``row``, ``column`` (int64, from 1) and, unless a pattern, ``value``."""
    names = [("row", np.int64), ("column", np.int64), ("value", np.float64)]
    columns = 2 if header.field == "pattern" else 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            table = np.loadtxt(
                file,
                dtype=names[:columns],
                usecols=range(columns),
                skiprows=header.lines,
                comments="%",
                encoding="utf-8",
            )
        except (ValueError, Warning) as error:
            raise _Malformed(f"after line {header.lines}: {_describe(error)}") from error
    table = np.atleast_1d(table)
    if len(table) != header.entries:
        raise _Malformed(f"it has {len(table):,} entries and says it has {header.entries:,}")
    for name in ("row", "column"):
        low, high = table[name].min(), table[name].max()
        if low < 1 or high > header.rows:
            wrong = low if low < 1 else high
            raise _Malformed(f"a {name} is {wrong:,} and they go from 1 to {header.rows:,}")
    return table


# --------------------------------------------------------------------------- edge lists


def _import_edge_list(file: Path, name: str) -> Dataset:
    notes = []
    try:
        _check_text(file)
        first = next(_data_lines(file), None)
        if first is None:
            raise DatasetError(f"{file}: there are no edges in it; give two vertex ids a line.")
        separator = "," if "," in first[1] else None
        pairs = _parse_quickly(file, separator)
        if pairs is None:
            pairs = _parse_by_line(file)
    except _UNREADABLE as error:
        raise DatasetError(
            f"{file}: this is not a readable text file ({_describe(error)}); it may be truncated "
            f"or of another format: give an edge list, .mtx or .npz."
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


@contextlib.contextmanager
def _open(file: Path) -> Iterator[BinaryIO]:
    """The file's bytes, uncompressed. Raises :class:`DatasetError` for what is no file."""
    try:
        stored = open_input(file)
    except FileRefused as error:
        raise DatasetError(
            f"{file}: {error.reason}; give the path of a graph to import."
        ) from error
    with stored:
        opener = _OPENERS.get(file.suffix)
        if opener is None:
            yield stored
        else:
            with cast(BinaryIO, opener(stored)) as stream:
                yield stream


def _check_text(file: Path) -> None:
    """Refuse a text that is too long for this machine, before any of it is kept: a few kilobytes
    of a compressed file can hold gigabytes."""
    available = find_available_bytes()
    lines = unbroken = 0
    with _open(file) as stream:
        while chunk := stream.read(_LONGEST_LINE):
            lines += max(chunk.count(b"\n"), chunk.count(b"\r"))
            end = max(chunk.rfind(b"\n"), chunk.rfind(b"\r"))
            unbroken = unbroken + len(chunk) if end < 0 else len(chunk) - end
            if unbroken > _LONGEST_LINE:
                raise DatasetError(
                    f"{file}: line {lines + 1:,} is longer than {_LONGEST_LINE:,} bytes; give two "
                    f"vertex ids a line."
                )
            if _BYTES_PER_EDGE * lines > available:
                raise DatasetError(
                    f"{file}: its first {lines:,} lines alone would take "
                    f"{format_si(float(_BYTES_PER_EDGE * lines), 'B')} of memory and "
                    f"{format_si(float(available), 'B')} are free here; use a smaller graph, or a "
                    f"machine with more memory."
                )


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
    pairs = array("q")
    for number, line in _data_lines(file):
        fields = _fields(line)
        try:
            source, destination = np.int64(fields[0]), np.int64(fields[1])
        except (ValueError, IndexError, OverflowError):
            raise DatasetError(
                f"{file}, line {number}: {line[:60]!r} is not an edge; write two integer vertex "
                f"ids a line, and start headers and comments with #."
            ) from None
        pairs.extend((int(source), int(destination)))
    return np.frombuffer(pairs, dtype=np.int64).reshape(-1, 2)
