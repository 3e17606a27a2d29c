"""Features, labels and a split in files of their own, and which vertex each of their rows is of.

A file of arrays (``.npy``, ``.npz``, ``.pt``) has its rows in the order of vertex ids 0, 1, 2, ...
A text has an id at the beginning of each line, as an edge list has ids, and values behind it,
separated by blanks or commas. Nothing is ever unpickled.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import scipy

from gnnbench.datasets.archive import Archive
from gnnbench.datasets.memory import check_memory
from gnnbench.datasets.npy import ArrayFile
from gnnbench.datasets.texts import data_lines, split_fields
from gnnbench.datasets.topology import AnyArray
from gnnbench.errors import DatasetError
from gnnbench.files import FileRefused, open_input
from gnnbench.records import IntArray

#: Ids of vertices as the files have them: integers, or texts.
Ids = IntArray | npt.NDArray[np.str_]
#: What the arrays of a sparse matrix are called in a ``.npz`` of SciPy's.
_SPARSE = ("data", "indices", "indptr", "shape")
#: What a text calls the shares of a split.
_SHARES = {"train": 0, "val": 1, "valid": 1, "test": 2}
_NAMED_CLASSES = 8


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
        return Attachment(file, _read_sparse(file))
    if file.suffix == ".npy" and mapped:
        return Attachment(file, _of_dimensions(file, ArrayFile.find(file).map(), 2))
    if file.suffix in (".npy", ".pt"):
        return Attachment(file, _of_dimensions(file, read_array(file), 2))
    ids, values = _read_text(file, string_ids, ".npy, .pt, a sparse .npz of SciPy")
    widths = {len(row) for row in values}
    if len(widths) > 1:
        raise DatasetError(
            f"{file}: vertices have between {min(widths):,} and {max(widths):,} features; give "
            f"each the same number of them."
        )
    try:
        return Attachment(file, np.array(values, dtype=np.float32), ids)
    except ValueError as error:
        raise DatasetError(
            f"{file}: {error} in the features; give an id and then numbers on each line."
        ) from error


def read_labels(file: Path, *, string_ids: bool = False) -> tuple[Attachment, tuple[str, ...]]:
    """One class a vertex, and what to know: classes that are names are numbered in their order.

    ``.npy``, ``.pt`` or text. Raises :class:`DatasetError`.
    """
    if file.suffix in (".npy", ".pt"):
        array = read_array(file)
        column = array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
        return Attachment(file, _of_dimensions(file, column, 1)), ()
    ids, values = _read_text(file, string_ids, ".npy, .pt")
    if any(len(row) != 1 for row in values):
        raise DatasetError(f"{file}: give an id and one class on each line.")
    texts = np.array([row[0] for row in values])
    for dtype in (np.int64, np.float64):
        with contextlib.suppress(ValueError, OverflowError):
            return Attachment(file, texts.astype(dtype), ids), ()
    names, classes = np.unique(texts, return_inverse=True)
    shown = ", ".join(f"{number} {name}" for number, name in enumerate(names[:_NAMED_CLASSES]))
    more = ", ..." if len(names) > _NAMED_CLASSES else ""
    note = f"classes were numbered in the order of their names: {shown}{more}"
    return Attachment(file, classes.astype(np.int64), ids), (note,)


def read_split(
    file: Path, *, string_ids: bool = False
) -> tuple[Attachment | None, Mapping[str, AnyArray]]:
    """A text with ``train``, ``val`` or ``test`` behind each id, as numbers 0, 1, 2; or the arrays
    of a ``.npz`` or ``.pt``: masks or ids by these names. Raises :class:`DatasetError`."""
    if file.suffix == ".npz":
        with Archive(file) as archive:
            return None, {name: archive.read(name) for name in archive.names}
    if file.suffix == ".pt":
        held = _load_tensors(file)
        if not isinstance(held, dict):
            raise DatasetError(f"{file}: it holds no mapping; save train, val and test by name.")
        return None, {str(name): _as_numpy(file, value) for name, value in held.items()}
    ids, values = _read_text(file, string_ids, ".npz, .pt")
    shares = [row[0].lower() if row else "" for row in values]
    unknown = next((share for share in shares if share not in _SHARES), None)
    if unknown is not None:
        raise DatasetError(
            f"{file}: {unknown[:40]!r} is no share of a split; write train, val or test behind "
            f"each id."
        )
    return Attachment(file, np.array([_SHARES[share] for share in shares]), ids), {}


def read_array(file: Path) -> AnyArray:
    """The array of a ``.npy`` file, or the tensor of a ``.pt``, without unpickling anything."""
    if file.suffix == ".pt":
        return _as_numpy(file, _load_tensors(file))
    found = ArrayFile.find(file)
    # Whoever asks for it makes another of it.
    check_memory(str(file), "reading it", 2 * found.header.size_bytes)
    return found.read()


def _load_tensors(file: Path) -> object:
    import torch

    from gnnbench.datasets.pickles import arrays_only

    try:
        with open_input(file) as stream, arrays_only(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.load(stream, map_location="cpu", weights_only=True)
    except FileRefused as error:
        raise DatasetError(f"{file}: {error.reason}; give the path of a tensor.") from error
    except Exception as error:  # whatever a damaged file makes torch raise
        raise DatasetError(
            f"{file}: this holds no tensors that can be read ({_first_line(error)}); save them "
            f"with torch.save."
        ) from error


def _as_numpy(file: Path, held: object) -> AnyArray:
    import torch

    if not isinstance(held, torch.Tensor):
        raise DatasetError(f"{file}: it holds a {type(held).__name__}, not a tensor; save one.")
    array: AnyArray = held.to_dense().numpy(force=True)
    return array


def _read_sparse(file: Path) -> scipy.sparse.csr_matrix:
    with Archive(file) as archive:
        lacking = [name for name in _SPARSE if name not in archive.names]
        if lacking:
            raise DatasetError(
                f"{file}: it has no {', '.join(lacking)}; save sparse features with "
                f"scipy.sparse.save_npz, and dense ones as .npy."
            )
        data, indices, indptr, shape = (archive.read(name) for name in _SPARSE)
    try:
        matrix = scipy.sparse.csr_matrix((data, indices, indptr), shape=tuple(shape.tolist()))
        matrix.check_format()
    except (ValueError, TypeError, IndexError) as error:
        raise DatasetError(
            f"{file}: its sparse matrix is broken ({_first_line(error)}); save it once more."
        ) from error
    return matrix


def _read_text(file: Path, string_ids: bool, others: str) -> tuple[Ids, list[list[str]]]:
    """Ids and the fields behind them; a first line whose id is no number is a heading.

    ``others`` are the formats that can be given instead.
    """
    ids: list[str] = []
    values: list[list[str]] = []
    for number, line in data_lines(file, f"{others}, or text in UTF-8"):
        name, *fields = split_fields(line) or [""]
        if not string_ids and not _is_whole(name):
            if not ids:
                continue
            raise DatasetError(
                f"{file}, line {number}: {name[:40]!r} is no vertex id; begin each line with a "
                f"whole number, or give --string-ids where vertices have names."
            )
        ids.append(name)
        values.append(fields)
    if not ids:
        raise DatasetError(f"{file}: there is nothing in it; give an id and values on each line.")
    return (np.array(ids) if string_ids else np.array(ids, dtype=np.int64)), values


def _is_whole(text: str) -> bool:
    return text.removeprefix("-").isdecimal() and len(text) < 19


def _of_dimensions(file: Path, array: AnyArray, count: int) -> AnyArray:
    if array.ndim != count or array.dtype.kind not in "fiub":
        wanted = "(vertices, width)" if count == 2 else "(vertices,)"
        raise DatasetError(
            f"{file}: it has shape {array.shape} and dtype {array.dtype}; give numbers of shape "
            f"{wanted}."
        )
    return array


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
