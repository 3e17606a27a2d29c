"""Importing graphs of other people: of a file of any format that is known, with what others add.

Whatever is repaired on the way is counted in the dataset's notes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np

from gnnbench.datasets.alignment import Attached, read_attached
from gnnbench.datasets.attachments import read_array
from gnnbench.datasets.content import Ids, choose_weights
from gnnbench.datasets.edge_lists import find_edge_list, note_doubts
from gnnbench.datasets.formats.folders import find_planetoid
from gnnbench.datasets.formats.libraries import read_data
from gnnbench.datasets.formats.recognition import FORMATS, recognise
from gnnbench.datasets.memory import check_memory
from gnnbench.datasets.raw import Numbering, RawGraph, assemble, note_numbering
from gnnbench.datasets.tables import read_whole
from gnnbench.datasets.texts import BYTES_PER_EDGE, strip_compression
from gnnbench.datasets.topology import MAX_VERTICES, AnyArray, sort_unique
from gnnbench.datasets.torch_files import as_numpy, load_torch
from gnnbench.errors import DatasetError
from gnnbench.host.progress import doing
from gnnbench.records import Dataset, IntArray

#: Ids below this are looked up in an array that has an entry for each.
_DENSE_IDS = 1 << 28
_LONGEST_NAME = 200
_SHOWN_EDGES = 5
_NO_GRAPH = "no tensors and no graph of PyTorch Geometric"


@dataclass(frozen=True, slots=True, eq=False)
class Extras:
    """Options of an import: further files, and how vertices and edges are read.

    With ``string_ids`` vertices have names. The columns of an edge list are divided by the
    ``delimiter`` and may have a ``heading``; both are found where they are not given. Vertices
    without an edge are left out of it unless ``keep_isolated``. With ``directed`` edges get no
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
    delimiter: str | None = None
    heading: bool | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Imported:
    """A data set, and the id that each of its vertices has in the file where it is another.

    ``read_as`` says which format the file has and how it was understood, and ``first_edges`` are
    its first ones as the file has them.
    """

    dataset: Dataset
    ids: Ids | None
    read_as: str = ""
    first_edges: tuple[str, ...] = ()


def import_file(path: str | os.PathLike[str], *, name: str | None = None) -> Dataset:
    """Import the graph in ``path`` as a dataset; see :func:`import_graph`."""
    return import_graph(path, name=name).dataset


def import_graph(
    path: str | os.PathLike[str], extras: Extras | None = None, *, name: str | None = None
) -> Imported:
    """Import the graph in ``path`` as a dataset, sorted, without loops and duplicates.

    The graph is made symmetric unless the ``extras`` or the file say that it is directed. Readable
    are the formats of :mod:`gnnbench.datasets.formats`, and:

    - gnnbench's ``.npz``, also directed or unsorted;
    - an ``edge_index`` of two rows or two columns (``.npy``, ``.pt``);
    - two columns of a Parquet table;
    - any other text as an edge list: two ids a line, divided by one delimiter. Lines with ``#`` or
      ``%`` are comments, and further columns are ignored. Texts may be compressed (``.gz``,
      ``.bz2``, ``.xz``, ``.zst``).

    Ids of an edge list or ``edge_index`` may be any integers, or names. They are numbered anew from
    0 in ascending order. ``name`` is as :func:`choose_name` has it.

    Raises :class:`DatasetError`: one sentence with the file and, for an edge list, the line.
    """
    file = Path(path)
    name = choose_name(file, name)
    extras = extras or Extras()
    attached = read_attached(extras.features, extras.labels, extras.split, extras.string_ids)
    kind = find_format(file, extras)
    with doing(f"importing {file.name}", 2) as importing:
        found = _read(file, kind, extras, attached)
        importing.advance()
        made = assemble(name, found, attached, directed=extras.directed)
    read_as = found.read_as or FORMATS[kind].description
    return Imported(made, found.numbering.renumbered, read_as, found.list_edges(_SHOWN_EDGES))


def find_format(file: Path, extras: Extras) -> str:
    """Return the format of a file, by :func:`recognise`.

    Raises :class:`DatasetError` for a delimiter or heading of a format that has none.
    """
    kind = recognise(file)
    if kind != "edges" and (extras.delimiter is not None or extras.heading is not None):
        raise DatasetError(
            f"{file}: this is {FORMATS[kind].description}, which has neither a delimiter nor a "
            f"heading; leave out --delimiter and --heading."
        )
    return kind


def _read(file: Path, kind: str, extras: Extras, attached: Attached) -> RawGraph:
    """Return the graph in a file of the format ``kind``; see :func:`recognise`."""
    if (read := FORMATS[kind].read) is not None:
        return read(file, weighted=extras.weighted)
    if kind == "edges":
        pairs, weights, notes, read_as = _read_text(file, extras)
    else:
        held = load_torch(file, _NO_GRAPH) if kind == "torch" else read_array(file)
        if not hasattr(held, "shape"):
            return read_data(file, held, weighted=extras.weighted)
        choose_weights(str(file), None, weighted=extras.weighted)
        edges = as_numpy(file, held) if kind == "torch" else cast("AnyArray", held)
        check_memory(str(file), "its graph", BYTES_PER_EDGE * edges.size // 2)
        pairs = np.ascontiguousarray(as_pairs(file, edges), dtype=np.int64)
        weights, notes, read_as = None, (), ""
    found = _number(file, pairs, notes, attached, extras.keep_isolated)
    return replace(found, weights=weights, read_as=read_as)


def choose_name(file: Path, name: str | None = None) -> str:
    """Return the name of the dataset that is made of ``file``: ``name``, or the file's stem.

    A dataset is kept as ``NAME.npz`` in one folder, and ``load`` finds it there by its name.
    Raises :class:`DatasetError` for a name that would lead elsewhere.
    """
    planetoid = find_planetoid(file)
    stem = strip_compression(file).stem if planetoid is None else planetoid[1]
    chosen = stem if name is None else name
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


# --------------------------------------------------------------------------- edge lists


def as_pairs(file: Path, edges: AnyArray) -> AnyArray:
    """Return the ends of every edge of an array, integers ``(E, 2)``.

    Raises :class:`DatasetError` for arrays of another shape or dtype.
    """
    if edges.ndim != 2 or 2 not in edges.shape or edges.dtype.kind not in "iu":
        raise DatasetError(
            f"{file}: it has shape {edges.shape} and dtype {edges.dtype}; give integers of "
            f"shape (2, E), sources above destinations."
        )
    # Two edges as two rows and as two columns look alike: rows are meant.
    return edges.T if edges.shape[0] == 2 else edges


def _read_text(file: Path, extras: Extras) -> tuple[Ids, AnyArray | None, tuple[str, ...], str]:
    """Return the ends of every edge as in the file, ``(E, 2)``, weights, notes and the format."""
    found = find_edge_list(
        file,
        names=extras.string_ids,
        weighted=extras.weighted,
        delimiter=extras.delimiter,
        heading=extras.heading,
    )
    columns = read_whole(found.table, found.kinds, found.a_line, BYTES_PER_EDGE)
    ends = cast("Ids", np.stack((columns[found.source], columns[found.target]), axis=1))
    weights = None if found.weight is None else columns[found.weight]
    return ends, weights, (*found.notes, *note_doubts(found, ends)), found.describe()


def _number(
    file: Path, pairs: Ids, notes: tuple[str, ...], attached: Attached, keep_isolated: bool
) -> RawGraph:
    """Renumber vertices in ascending order of ids: those of edges, or all if ``keep_isolated``."""
    ids, said, renumbered = number_vertices(
        file, find_ids((pairs,)), notes, attached, keep_isolated
    )
    edges = find_numbers(ids)(pairs).T
    origin = f"imported from {file.name}"
    numbering = Numbering(ids, renumbered=renumbered, complete=False)
    return RawGraph(edges, len(ids), origin, said, numbering=numbering)


def number_vertices(
    file: Path, ids: Ids, notes: tuple[str, ...], attached: Attached, keep_isolated: bool
) -> tuple[Ids, tuple[str, ...], Ids | None]:
    """Return the id of each vertex, the notes, and the ids again unless they are 0, 1, 2, ...

    ``ids`` are the ids of edges, ascending. Raises :class:`DatasetError` where there are none.
    """
    if len(ids) == 0:
        raise DatasetError(f"{file}: there are no edges in it; give two vertex ids a line.")
    known = attached.list_ids(ids, file)
    alone = len(known) - len(ids)
    said = list(notes)
    if keep_isolated:
        ids = known if attached.any or ids.dtype.kind == "U" else _fill_gaps(file, ids)
    elif alone:
        said.append(
            f"vertices without an edge were left out: {alone:,} (--keep-isolated keeps them)"
        )
    note, renumbered = note_numbering(ids)
    return ids, (*said, *note), renumbered


def _fill_gaps(file: Path, ids: Ids) -> IntArray:
    """Return every id from 0 to the largest, for a graph whose vertices only its edges name."""
    first, last = int(ids[0]), int(ids[-1])
    if first < 0 or last >= MAX_VERTICES:
        raise DatasetError(
            f"{file}: isolated vertices cannot be kept, because ids go from {first:,} to "
            f"{last:,}. Number vertices from 0, or give features or labels for each vertex."
        )
    check_memory(str(file), "its vertices", 64 * last)
    return np.arange(last + 1, dtype=np.int64)


def find_ids(parts: Iterable[Ids], tell: Callable[[int], None] | None = None) -> Ids:
    """Return the distinct ids among int64 ids, or names, in arrays of any shape, ascending.

    Memory takes a byte for each id up to the largest below :data:`_DENSE_IDS`. Ids of a part with
    others than these take 8 bytes each, and names what they are long. ``tell`` is called after
    each part with a number of distinct ids so far, which may be too small.
    """
    marks = np.zeros(0, dtype=np.bool_)
    others: list[Ids] = []
    for part in parts:
        if part.size and _are_dense(part):
            if int(part.max()) >= len(marks):
                marks.resize(max(int(part.max()) + 1, 2 * len(marks)), refcheck=False)
            marks[part] = True
        elif part.size:
            both = np.concatenate([*others, sort_unique(part.flatten())])
            others = [cast("Ids", sort_unique(both, runs=True))]
        if tell is not None:
            tell(max(int(np.count_nonzero(marks)), *map(len, others), 0))
    dense = np.flatnonzero(marks)
    if not others or not len(dense):
        return others[0] if others else dense
    return cast("Ids", sort_unique(np.append(others[0], dense)))


def _are_dense(ids: Ids) -> bool:
    """Return whether an array may have an entry for each id up to the largest."""
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
