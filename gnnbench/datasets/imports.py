"""Reading other people's graph files: edge lists, Matrix Market, and ``.npz`` not yet canonical.

Whatever is repaired on the way is counted in the dataset's notes.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt

from gnnbench.datasets.alignment import (
    Attached,
    align_features,
    align_labels,
    align_split,
    read_attached,
)
from gnnbench.datasets.attachments import Ids, read_array
from gnnbench.datasets.construct import build
from gnnbench.datasets.content import WEIGHTS_IGNORED, choose_weights
from gnnbench.datasets.edge_lists import (
    note_columns,
    parse_weighted,
    read_edges,
    read_weighted,
)
from gnnbench.datasets.memory import check_memory
from gnnbench.datasets.npz import StoredArrays, read_npz
from gnnbench.datasets.texts import (
    BYTES_PER_EDGE,
    UNREADABLE,
    check_text,
    data_lines,
    open_text,
    readable,
    split_fields,
    strip_compression,
)
from gnnbench.datasets.topology import MAX_VERTICES, AnyArray
from gnnbench.errors import DatasetError
from gnnbench.records import Dataset, IndexArray, IntArray

_LONGEST_NAME = 200
#: What an entry of a matrix can be.
_FIELDS = ("pattern", "integer", "real", "complex")


@dataclass(frozen=True, slots=True, eq=False)
class Extras:
    """Files of what a graph's own does not have, how its vertices are called, and which edges are
    meant.

    With ``string_ids`` vertices have names, any text without blanks and commas. Vertices without an
    edge are left out of an edge list unless ``keep_isolated``. With ``directed`` edges get no
    reverse, nor do those of a ``.npz`` that says so itself. With ``weighted`` they keep the weights
    of a third column, or of a matrix; those of a ``.npz`` are kept in any case.
    """

    features: Path | None = None
    labels: Path | None = None
    split: Path | None = None
    string_ids: bool = False
    keep_isolated: bool = False
    directed: bool = False
    weighted: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Imported:
    """A data set, and the id that each of its vertices has in the file where it is another."""

    dataset: Dataset
    ids: Ids | None


def import_file(path: str | os.PathLike[str], *, name: str | None = None) -> Dataset:
    """The graph in ``path`` as a dataset; see :func:`import_graph`."""
    return import_graph(path, name=name).dataset


def import_graph(
    path: str | os.PathLike[str], extras: Extras | None = None, *, name: str | None = None
) -> Imported:
    """The graph in ``path`` as a dataset, sorted, without loops and duplicates; made symmetric,
    unless the ``extras`` or the file say that it is directed.

    Reads Matrix Market (``.mtx``), gnnbench's ``.npz`` (also directed or unsorted), an
    ``edge_index`` of two rows or two columns (``.npy``, ``.pt``), and otherwise an edge list: two
    ids a line, separated by blanks or a comma, ``#`` and ``%`` starting comments, further columns
    ignored. Texts may be compressed (``.gz``, ``.bz2``, ``.xz``). Ids of an edge list or
    ``edge_index`` may be any integers, or names, and are numbered anew from 0 in ascending order.
    ``name`` is as :func:`choose_name` has it.

    Raises :class:`DatasetError`: one sentence with the file and, for an edge list, the line.
    """
    file = Path(path)
    name = choose_name(file, name)
    extras = extras or Extras()
    attached = read_attached(extras.features, extras.labels, extras.split, extras.string_ids)
    if file.suffix == ".npz":
        found = _read_npz(file)
    elif strip_compression(file).suffix.lower() == ".mtx":
        found = _read_matrix_market(file, extras.weighted)
    else:
        pairs, weights, notes = _read_pairs(file, extras)
        found = _number(file, pairs, notes, attached, extras.keep_isolated)
        found = replace(found, weights=weights)
    directed = extras.directed or (found.stored is not None and found.stored.directed)
    return Imported(_attach(name, found, attached, directed), found.renumbered)


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """A graph in a file: its edges between vertices 0, 1, 2, ..., and each one's id there.

    ``ids`` is None where they count from ``first``; ``renumbered`` has them where they are others
    than 0, 1, 2, ...
    """

    edges: IntArray | tuple[IntArray, IndexArray]
    num_vertices: int
    origin: str
    notes: tuple[str, ...] = ()
    stored: StoredArrays | None = None
    ids: Ids | None = None
    first: int = 0
    renumbered: Ids | None = None
    weights: AnyArray | None = None

    def list_ids(self) -> Ids:
        """The id of every vertex in the file."""
        if self.ids is not None:
            return self.ids
        check_memory(self.origin, "its vertices", 8 * self.num_vertices)
        return np.arange(self.first, self.first + self.num_vertices, dtype=np.int64)


def _attach(name: str, found: _Found, attached: Attached, directed: bool) -> Dataset:
    """The data set of a graph, with what other files have of its vertices."""
    stored = found.stored
    features = None if stored is None else stored.features
    labels = None if stored is None else stored.labels
    masks = None if stored is None else stored.masks
    notes = list(found.notes)
    if attached.features is not None:
        features = align_features(attached.features, found.list_ids())
    if attached.labels is not None:
        labels, said = align_labels(attached.labels, found.list_ids())
        notes += [*attached.notes, *said]
    if attached.split is not None:
        masks = align_split(attached.split, found.list_ids())
    return build(
        name,
        found.edges,
        num_vertices=found.num_vertices,
        features=features,
        labels=labels,
        masks=masks,
        origin=found.origin,
        notes=notes,
        directed=directed,
        weights=found.weights,
    )


def choose_name(file: Path, name: str | None = None) -> str:
    """The name of the dataset that is made of ``file``: ``name``, or the file's without endings.

    A dataset is kept as ``NAME.npz`` in one folder, and ``load`` finds it there by its name.
    Raises :class:`DatasetError` for a name that would lead elsewhere.
    """
    chosen = strip_compression(file).stem if name is None else name
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


def _read_npz(file: Path) -> _Found:
    stored = read_npz(file)
    edges = (stored.indptr, stored.indices)
    return _Found(
        edges,
        len(stored.indptr) - 1,
        str(file),
        stored.notes,
        stored,
        weights=stored.weights,
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


def _read_matrix_market(file: Path, weighted: bool) -> _Found:
    try:
        check_text(file)
        header = _read_matrix_header(file)
        if header.rows != header.columns:
            raise DatasetError(
                f"{file}: the matrix has {header.rows:,} rows and {header.columns:,} columns; an "
                f"adjacency matrix is square."
            )
        if header.entries == 0:
            raise DatasetError(f"{file}: the matrix has no entries; a GNN needs at least one edge.")
        edges = header.entries * (2 if header.symmetric else 1)
        check_memory(str(file), f"its {header.entries:,} entries", BYTES_PER_EDGE * edges)
        table = _read_entries(file, header)
    except (_Malformed, *UNREADABLE) as error:
        raise DatasetError(
            f"{file}: this is not a readable Matrix Market file ({_describe(error)}); mend it or "
            f"export it again as coordinates."
        ) from error
    row, column = table["row"] - 1, table["column"] - 1
    values = None if header.field in ("pattern", "complex") else table["value"]
    if header.symmetric:
        below = row != column
        row, column = np.append(row, column[below]), np.append(column, row[below])
        values = None if values is None else np.append(values, values[below])
    values, notes = choose_weights(str(file), values, weighted=weighted)
    return _Found(
        np.stack((row, column)),
        header.rows,
        f"imported from {file.name}",
        (WEIGHTS_IGNORED,) if header.field == "complex" else notes,
        first=1,
        weights=values,
    )


def _read_matrix_header(file: Path) -> _MatrixHeader:
    with open_text(file) as stream:
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


def _read_pairs(file: Path, extras: Extras) -> tuple[Ids, AnyArray | None, tuple[str, ...]]:
    """The ends of every edge as the file calls them, ``(E, 2)``, weights, and notes."""
    if file.suffix in (".npy", ".pt"):
        choose_weights(str(file), None, weighted=extras.weighted)
        edges = read_array(file)
        if edges.ndim != 2 or 2 not in edges.shape or edges.dtype.kind not in "iu":
            raise DatasetError(
                f"{file}: it has shape {edges.shape} and dtype {edges.dtype}; give integers of "
                f"shape (2, E), sources above destinations."
            )
        check_memory(str(file), "its graph", BYTES_PER_EDGE * edges.size // 2)
        # Two edges as two rows and as two columns look alike: rows are meant.
        pairs = edges.T if edges.shape[0] == 2 else edges
        return np.ascontiguousarray(pairs, dtype=np.int64), None, ()
    with readable(file):
        check_text(file)
        notes = note_columns(file)
        if extras.weighted:
            if extras.string_ids:
                return *parse_weighted(file, data_lines(file), np.str_), ()
            ends, weights = zip(*read_weighted(file), strict=True)
            return np.concatenate(ends), np.concatenate(weights), ()
        if extras.string_ids:
            return _parse_names(file), None, notes
        return np.concatenate(list(read_edges(file))), None, notes


def _number(
    file: Path, pairs: Ids, notes: tuple[str, ...], attached: Attached, keep_isolated: bool
) -> _Found:
    """Vertices numbered in ascending order of their ids: those of edges, and with
    ``keep_isolated`` all that are known of."""
    ids, said, renumbered = number_vertices(
        file, cast("Ids", np.unique(pairs)), notes, attached, keep_isolated
    )
    edges = np.searchsorted(ids, pairs).T.astype(np.int64)
    origin = f"imported from {file.name}"
    return _Found(edges, len(ids), origin, said, ids=ids, renumbered=renumbered)


def number_vertices(
    file: Path, ids: Ids, notes: tuple[str, ...], attached: Attached, keep_isolated: bool
) -> tuple[Ids, tuple[str, ...], Ids | None]:
    """The id of each vertex, of which those of edges are ``ids``, ascending; the ``notes`` and what
    else to know; and the ids once more where they are others than 0, 1, 2, ...

    Raises :class:`DatasetError` where there are none.
    """
    if len(ids) == 0:
        raise DatasetError(f"{file}: there are no edges in it; give two vertex ids a line.")
    known = attached.list_ids(ids, file)
    alone = len(np.setdiff1d(known, ids))
    said = list(notes)
    if keep_isolated:
        ids = known if attached.any or ids.dtype.kind == "U" else _fill_gaps(file, ids)
    elif alone:
        said.append(
            f"vertices without an edge were left out: {alone:,} (--keep-isolated keeps them)"
        )
    renumbered = None
    if ids.dtype.kind == "U":
        said.append(f"vertices were numbered in the order of their names, 0 to {len(ids) - 1:,}")
        renumbered = ids
    elif ids[0] != 0 or ids[-1] != len(ids) - 1:
        said.append(
            f"vertex ids ({ids[0]:,} to {ids[-1]:,}) were numbered anew, 0 to {len(ids) - 1:,}"
        )
        renumbered = ids
    return ids, tuple(said), renumbered


def _fill_gaps(file: Path, ids: Ids) -> IntArray:
    """Every id from 0 to the largest, where nothing but the edges says which vertices there are."""
    first, last = int(ids[0]), int(ids[-1])
    if first < 0 or last >= MAX_VERTICES:
        raise DatasetError(
            f"{file}: isolated vertices are to be kept, and ids go from {first:,} to {last:,}; "
            f"number vertices from 0, or give features or labels that say which there are."
        )
    check_memory(str(file), "its vertices", 64 * last)
    return np.arange(last + 1, dtype=np.int64)


def _parse_names(file: Path) -> npt.NDArray[np.str_]:
    """The pairs of an edge list whose vertices have names."""
    pairs = []
    for number, line in data_lines(file):
        fields = split_fields(line)
        if len(fields) < 2:
            raise DatasetError(
                f"{file}, line {number}: {line[:60]!r} is not an edge; write two names of vertices "
                f"a line, without blanks and commas in them."
            )
        pairs.append(fields[:2])
    return np.array(pairs, dtype=np.str_).reshape(-1, 2)
