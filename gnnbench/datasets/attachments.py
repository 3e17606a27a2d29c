"""Features, labels and a split in files of their own, and which vertex each of their rows is of.

A file of arrays (``.npy``, ``.npz``, ``.pt``) has its rows in the order of vertex ids 0, 1, 2, ...
A text has an id at the beginning of each line and values behind it, in columns as an edge list has
them. A text of classes or shares may have one column, in the order of vertex ids. A Parquet table
has ids in the column that is called so, or else its rows in the order of ids.
Nothing is ever unpickled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy

from gnnbench.datasets.archive import Archive
from gnnbench.datasets.content import SHARES, as_classes, find_share_of, is_mask, pick_shares
from gnnbench.datasets.content import Ids as Ids
from gnnbench.datasets.memory import check_memory
from gnnbench.datasets.npy import ArrayFile
from gnnbench.datasets.parquet_files import ParquetTable, is_parquet
from gnnbench.datasets.scipy_files import read_scipy
from gnnbench.datasets.tables import (
    VERTICES,
    Table,
    find_grammar,
    is_number,
    plain_word,
    read_whole,
)
from gnnbench.datasets.topology import AnyArray
from gnnbench.datasets.torch_files import as_numpy, load_torch
from gnnbench.errors import DatasetError

_NO_TENSORS = "no tensors"
#: What a row of a text takes at the peak, beside its values.
_BYTES_PER_ROW = 64
_NONE = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Attachment:
    """A row for each of some vertices: of ``ids``, or, where there are none, of 0, 1, 2, ..."""

    file: Path
    rows: AnyArray | scipy.sparse.csr_matrix
    ids: Ids | None = None

    def list_ids(self) -> Ids:
        """Return the id of every row."""
        return np.arange(self.rows.shape[0], dtype=np.int64) if self.ids is None else self.ids


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """The shares of a split by name: masks or ids, which a text calls as the graph's file does."""

    file: Path
    shares: Mapping[str, AnyArray]
    by_ids: bool = False

    def list_ids(self) -> Ids:
        """Return the ids that it has a share for, or 0, 1, 2, ... of masks."""
        shares = [each for each in self.shares.values() if each.ndim == 1 and len(each)]
        listed = [np.arange(len(each)) if is_mask(each) else each for each in shares]
        return np.concatenate([each for each in listed if each.dtype.kind in "iuU"] or [_NONE])


def read_features(file: Path, *, string_ids: bool = False, mapped: bool = False) -> Attachment:
    """Read features ``(V, f)`` from ``.npy``, ``.pt``, a sparse ``.npz`` of SciPy, text or Parquet.

    ``mapped`` features of a ``.npy`` stay on disk. Raises :class:`DatasetError`: one sentence with
    the file and the fault.
    """
    if file.suffix == ".npz":
        return Attachment(file, scipy.sparse.csr_matrix(read_scipy(file)))
    if file.suffix not in (".npy", ".pt"):
        others = ".npy, .pt, a sparse .npz of SciPy"
        ids, columns = _read_table(file, string_ids, "an id and numbers", float, others)
        return Attachment(file, np.column_stack(columns).astype(np.float32), ids)
    array = ArrayFile.find(file).map() if mapped and file.suffix == ".npy" else read_array(file)
    if array.ndim != 2 or array.dtype.kind not in "fiub":
        raise DatasetError(
            f"{file}: it has shape {array.shape} and dtype {array.dtype}; give numbers of shape "
            f"(vertices, width)."
        )
    return Attachment(file, array)


def read_labels(file: Path, *, string_ids: bool = False) -> tuple[Attachment, tuple[str, ...]]:
    """Read the class of each vertex from ``.npy``, ``.pt``, text or Parquet.

    Classes with names are numbered in the order of their names, which a note says. Raises
    :class:`DatasetError`.
    """
    ids: Ids | None = None
    if file.suffix in (".npy", ".pt"):
        found = read_array(file)
    else:
        ids, found = _read_words(file, string_ids, "an id and a class", ".npy, .pt")
    classes, notes = as_classes(str(file), found)
    return Attachment(file, classes, ids), notes


def read_split(file: Path, *, string_ids: bool = False) -> Split:
    """Read the shares of a split: a mapping (``.npz``, ``.pt``) or a table.

    A mapping has masks or ids for each share. A table has ``train``, ``val`` or ``test`` behind
    each id. Raises :class:`DatasetError`.
    """
    if file.suffix == ".npz":
        with Archive(file) as archive:
            names = pick_shares(str(file), dict.fromkeys(archive.names, _NONE))
            return Split(file, {name: archive.read(name) for name in names})
    if file.suffix == ".pt":
        held = load_torch(file, _NO_TENSORS)
        if not isinstance(held, dict):
            raise DatasetError(f"{file}: it holds no mapping; save train, val and test by name.")
        arrays = {str(name): as_numpy(file, value) for name, value in held.items()}
        return Split(file, pick_shares(str(file), arrays))
    ids, words = _read_words(file, string_ids, "an id and train, val or test", ".npz, .pt")
    known, places = np.unique(words, return_inverse=True)
    shares = np.array([find_share_of(str(file), word) for word in known.tolist()])[places]
    rows = np.arange(len(words), dtype=np.int64) if ids is None else ids
    return Split(file, {name: rows[shares == name] for name in SHARES}, ids is not None)


def read_array(file: Path) -> AnyArray:
    """Read the array of a ``.npy`` file, or the tensor of a ``.pt``; nothing is unpickled."""
    if file.suffix == ".pt":
        return as_numpy(file, load_torch(file, _NO_TENSORS))
    found = ArrayFile.find(file)
    # Whoever asks for it makes another of it.
    check_memory(str(file), "reading it", 2 * found.header.size_bytes)
    return found.read()


def _read_words(
    file: Path, string_ids: bool, what: str, others: str
) -> tuple[Ids | None, AnyArray]:
    ids, columns = _read_table(file, string_ids, what, str, others)
    if len(columns) != 1:
        raise DatasetError(f"{file}: it has {len(columns)} columns of values; give {what} a row.")
    return ids, columns[0]


def _read_table(
    file: Path, string_ids: bool, what: str, kind: type, others: str
) -> tuple[Ids | None, list[AnyArray]]:
    """Return ids and the columns beside them, as ``kind``.

    A text with one column of words has no ids: line i is of vertex i. Its first line is a heading
    if it is no number and the second line is one. The first line of other texts is a heading where
    its id is no integer or, of names, where it is what columns of ids are called. Raises
    :class:`DatasetError` for an id that has two rows.
    """
    table: Table
    if is_parquet(file):
        table = ParquetTable.find(file)
        named = [n for n, name in enumerate(table.heading) if plain_word(name) in VERTICES]
        place = named[0] if named else None
    else:
        remedy = f"{others}, .parquet, or text in UTF-8"
        table = find_grammar(
            file, 2, what, numbers=not string_ids, remedy=remedy, undivided=kind is str
        )
        place = 0 if table.width > 1 else None
        first, *following = (row[0] for row in table.head)
        if place is None:
            headed = not is_number(first) and any(map(is_number, following))
        else:
            headed = plain_word(first) in VERTICES if string_ids else not is_number(first)
        if headed:
            table = table.with_heading()
    kinds: dict[int, type] = {n: kind for n in range(table.width) if n != place}
    if place is not None:
        kinds[place] = str if string_ids else int
    columns = read_whole(table, kinds, what, _BYTES_PER_ROW + 16 * table.width)
    ids: Ids | None = None if place is None else columns.pop(place)  # type: ignore[assignment]
    if ids is not None:
        known, counts = np.unique(ids, return_counts=True)
        if len(known) < len(ids):
            raise DatasetError(
                f"{file}: vertex {known[counts > 1][0]} has two lines; give each vertex one."
            )
    return ids, list(columns.values())
