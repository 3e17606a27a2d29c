"""Edge lists with integer ids, read piece by piece: a text may be larger than memory."""

from __future__ import annotations

import io
import warnings
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from gnnbench.datasets.content import WEIGHTS_IGNORED
from gnnbench.datasets.texts import data_lines, find_data, readable, split_fields, text_pieces
from gnnbench.errors import DatasetError
from gnnbench.records import IntArray

Numbers = npt.NDArray[np.float64]
#: What a vertex is called by.
Name = TypeVar("Name", np.int64, np.str_)

_BOM = b"\xef\xbb\xbf"
#: An edge, and one with the weight in its third column.
_ENDS = np.dtype([("ends", np.int64, (2,))])
_WEIGHTED = np.dtype([*_ENDS.descr, ("weight", np.float64)])


def read_edges(file: Path) -> Iterator[IntArray]:
    """The ends of the edges, int64 ``(n, 2)``, in the order of the file.

    Raises :class:`DatasetError` for a line that is no edge and for what is no text.
    """
    with readable(file):
        for number, piece in text_pieces(file):
            edges = _parse_quickly(piece, _ENDS)
            yield _parse_by_line(file, number, piece) if edges is None else edges["ends"]


def read_weighted(file: Path) -> Iterator[tuple[IntArray, Numbers]]:
    """The ends of the edges, as of :func:`read_edges`, and their weights, float64 ``(n,)``."""
    with readable(file):
        for number, piece in text_pieces(file):
            edges = _parse_quickly(piece, _WEIGHTED)
            if edges is None:
                yield parse_weighted(file, find_data(io.BytesIO(piece), number), np.int64)
            else:
                yield edges["ends"], edges["weight"]


def parse_weighted(
    file: Path, lines: Iterable[tuple[int, str]], kind: type[Name]
) -> tuple[npt.NDArray[Name], Numbers]:
    """The pairs in numbered lines, names or ids as ``kind`` says, and the weights beside them."""
    pairs, weights = [], []
    for number, line in lines:
        fields = split_fields(line)
        try:
            pairs.append([kind(each) for each in fields[:2]])
            weights.append(float(fields[2]))
        except (ValueError, IndexError, OverflowError):
            raise DatasetError(
                f"{file}, line {number}: {line[:60]!r} is not an edge with a weight; write two "
                f"vertices and a number a line."
            ) from None
    return np.array(pairs, dtype=kind).reshape(-1, 2), np.array(weights, dtype=np.float64)


def note_columns(file: Path) -> tuple[str, ...]:
    """What to know of an edge list that has more than two columns.

    Raises :class:`DatasetError` for a file that has no edges or cannot be read.
    """
    first = next(data_lines(file), None)
    if first is None:
        raise DatasetError(f"{file}: there are no edges in it; give two vertex ids a line.")
    wide = len(split_fields(first[1])) > 2
    return (f"{WEIGHTS_IGNORED}: columns after the second were not read",) if wide else ()


def _parse_quickly(piece: bytes, kind: np.dtype[np.void]) -> npt.NDArray[np.void] | None:
    """The first columns by NumPy's reader; None where it stumbles, and a line is why.

    It takes one comment sign only, so a piece that uses the other below its head is left to those
    that read line by line.
    """
    first = next(find_data(io.BytesIO(piece)), None)
    if first is None:
        return np.empty(0, dtype=kind)
    text = io.TextIOWrapper(io.BytesIO(piece), encoding="utf-8-sig")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return np.loadtxt(
                text,
                dtype=kind,
                delimiter="," if "," in first[1] else None,
                usecols=range(kind.itemsize // 8),
                ndmin=1,
                comments="%" if piece.removeprefix(_BOM)[:1] == b"%" else "#",
            )
        except (ValueError, Warning):
            return None


def _parse_by_line(file: Path, number: int, piece: bytes) -> IntArray:
    pairs = array("q")
    for at, line in find_data(io.BytesIO(piece), number):
        fields = split_fields(line)
        try:
            source, destination = np.int64(fields[0]), np.int64(fields[1])
        except (ValueError, IndexError, OverflowError):
            raise DatasetError(
                f"{file}, line {at}: {line[:60]!r} is not an edge; write two integer vertex "
                f"ids a line (or give --string-ids where vertices have names), and start headers "
                f"and comments with #."
            ) from None
        pairs.extend((int(source), int(destination)))
    return np.frombuffer(pairs, dtype=np.int64).reshape(-1, 2)
