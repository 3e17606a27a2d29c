"""Features, labels and a split in files of their own, and which vertex each of their rows is of.

A file of arrays (``.npy``, ``.npz``, ``.pt``) has its rows in the order of vertex ids 0, 1, 2, ...
A text has an id at the beginning of each line and values behind it, in columns as an edge list has
them. Nothing is ever unpickled.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import scipy

from gnnbench.datasets.archive import Archive
from gnnbench.datasets.content import find_share_of, name_classes
from gnnbench.datasets.memory import check_memory
from gnnbench.datasets.npy import ArrayFile
from gnnbench.datasets.scipy_files import read_scipy
from gnnbench.datasets.tables import (
    VERTICES,
    data_lines,
    find_grammar,
    is_number,
    join,
    plain_word,
    read_columns,
    split_line,
)
from gnnbench.datasets.topology import AnyArray
from gnnbench.datasets.torch_files import as_numpy, load_torch
from gnnbench.errors import DatasetError
from gnnbench.records import IntArray

#: Ids of vertices as the files have them: integers, or texts.
Ids = IntArray | npt.NDArray[np.str_]
_NO_TENSORS = "no tensors"
#: The shares of a split, by number.
_SHARES = ("train", "val", "test")


@dataclass(frozen=True, slots=True, eq=False)
class Attachment:
    """A row for each of some vertices: of ``ids``, or, where there are none, of 0, 1, 2, ..."""

    file: Path
    rows: AnyArray | scipy.sparse.csr_matrix
    ids: Ids | None = None

    @property
    def count(self) -> int:
        return int(self.rows.shape[0])


def read_features(file: Path, *, string_ids: bool = False, mapped: bool = False) -> Attachment:
    """Features, ``(V, f)``: ``.npy``, which may stay on disk, ``.pt``, a sparse ``.npz`` of SciPy,
    or text.

    Raises :class:`DatasetError`: one sentence with the file and what is wrong.
    """
    if file.suffix == ".npz":
        return Attachment(file, scipy.sparse.csr_matrix(read_scipy(file)))
    if file.suffix == ".npy" and mapped:
        return Attachment(file, _of_dimensions(file, ArrayFile.find(file).map(), 2))
    if file.suffix in (".npy", ".pt"):
        return Attachment(file, _of_dimensions(file, read_array(file), 2))
    others = ".npy, .pt, a sparse .npz of SciPy"
    ids, columns = _read_text(file, string_ids, "an id and numbers", float, others)
    return Attachment(file, np.stack(columns, axis=1).astype(np.float32), ids)


def read_labels(file: Path, *, string_ids: bool = False) -> tuple[Attachment, tuple[str, ...]]:
    """One class a vertex, and what to know: classes that are names are numbered in their order.

    ``.npy``, ``.pt`` or text. Raises :class:`DatasetError`.
    """
    if file.suffix in (".npy", ".pt"):
        array = read_array(file)
        column = array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
        return Attachment(file, _of_dimensions(file, column, 1)), ()
    ids, columns = _read_text(file, string_ids, "an id and a class", str, ".npy, .pt")
    if len(columns) != 1:
        raise DatasetError(f"{file}: give an id and one class on each line.")
    texts = columns[0]
    for dtype in (np.int64, np.float64):
        if not any("_" in text for text in texts.tolist()):
            with contextlib.suppress(ValueError, OverflowError):
                return Attachment(file, texts.astype(dtype), ids), ()
    classes, note = name_classes(texts)
    return Attachment(file, classes, ids), (note,)


def read_split(
    file: Path, *, string_ids: bool = False
) -> tuple[Attachment | None, Mapping[str, AnyArray]]:
    """A text with ``train``, ``val`` or ``test`` behind each id, as numbers 0, 1, 2; or the arrays
    of a ``.npz`` or ``.pt``: masks or ids by these names. Raises :class:`DatasetError`."""
    if file.suffix == ".npz":
        with Archive(file) as archive:
            return None, {name: archive.read(name) for name in archive.names}
    if file.suffix == ".pt":
        held = load_torch(file, _NO_TENSORS)
        if not isinstance(held, dict):
            raise DatasetError(f"{file}: it holds no mapping; save train, val and test by name.")
        return None, {str(name): as_numpy(file, value) for name, value in held.items()}
    ids, columns = _read_text(file, string_ids, "an id and train, val or test", str, ".npz, .pt")
    if len(columns) != 1:
        raise DatasetError(f"{file}: give an id and train, val or test on each line.")
    words, places = np.unique(columns[0], return_inverse=True)
    shares = np.array([_SHARES.index(find_share_of(str(file), word)) for word in words.tolist()])
    return Attachment(file, shares[places.reshape(-1)], ids), {}


def read_array(file: Path) -> AnyArray:
    """The array of a ``.npy`` file, or the tensor of a ``.pt``, without unpickling anything."""
    if file.suffix == ".pt":
        return as_numpy(file, load_torch(file, _NO_TENSORS))
    found = ArrayFile.find(file)
    # Whoever asks for it makes another of it.
    check_memory(str(file), "reading it", 2 * found.header.size_bytes)
    return found.read()


def _read_text(
    file: Path, string_ids: bool, what: str, kind: type, others: str
) -> tuple[Ids, list[AnyArray]]:
    """Return ids and the columns behind them, as ``kind``.

    A first line is a heading where its id is no integer or, of names, where it is what columns of
    ids are called.
    """
    grammar = find_grammar(
        file, 2, what, numbers=not string_ids, remedy=f"{others}, or text in UTF-8"
    )
    number, line = next(iter(data_lines(file)))
    cells = split_line(line, grammar.delimiter)
    if plain_word(cells[0]) in VERTICES if string_ids else not is_number(cells[0]):
        grammar = replace(grammar, heading=tuple(cells), heading_line=number)
    kinds: dict[int, type] = {0: str if string_ids else int}
    kinds |= dict.fromkeys(range(1, grammar.width), kind)
    pieces = list(read_columns(grammar, kinds, what))
    if not pieces:
        raise DatasetError(f"{file}: there is nothing in it; give {what} on each line.")
    return join(pieces, 0), [join(pieces, column) for column in range(1, grammar.width)]


def _of_dimensions(file: Path, array: AnyArray, count: int) -> AnyArray:
    if array.ndim != count or array.dtype.kind not in "fiub":
        wanted = "(vertices, width)" if count == 2 else "(vertices,)"
        raise DatasetError(
            f"{file}: it has shape {array.shape} and dtype {array.dtype}; give numbers of shape "
            f"{wanted}."
        )
    return array
