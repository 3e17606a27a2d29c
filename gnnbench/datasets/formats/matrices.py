"""Adjacency matrices: Matrix Market, SciPy's ``.npz``, ``shchur/gnn-benchmark``, and MATLAB.

Rows are sources and columns destinations. Zeros that a matrix stores are no edges.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import scipy

from gnnbench.datasets.archive import Archive
from gnnbench.datasets.content import (
    WEIGHTS_IGNORED,
    as_classes,
    as_pairs,
    choose_weights,
    drop_zeros,
)
from gnnbench.datasets.memory import check_memory
from gnnbench.datasets.raw import RawGraph
from gnnbench.datasets.scipy_files import read_scipy
from gnnbench.datasets.texts import BYTES_PER_EDGE, check_text, open_text
from gnnbench.datasets.topology import AnyArray
from gnnbench.errors import DatasetError, reason_of
from gnnbench.files import FileRefused, open_input
from gnnbench.records import IntArray

#: The column of Facebook100's ``local_info`` that is the class: 1 or 2, and 0 where it is unknown.
_GENDER = 1


def read_matrix_market(file: Path, *, weighted: bool) -> RawGraph:
    """Read the entries of a ``.mtx``; its vertices count from 1."""
    check_text(file)
    _, _, entries, kind, field, symmetry = _parse(file, "Matrix Market", scipy.io.mminfo)
    if kind != "coordinate":
        raise DatasetError(
            f"{file}: the matrix is stored dense; export the adjacency matrix as coordinates."
        )
    if entries == 0:
        raise DatasetError(f"{file}: the matrix has no entries; a GNN needs at least one edge.")
    edges = entries if symmetry == "general" else 2 * entries
    check_memory(str(file), f"its {entries:,} entries", BYTES_PER_EDGE * edges)
    matrix = scipy.sparse.coo_matrix(_parse(file, "Matrix Market", scipy.io.mmread))
    if field in ("pattern", "complex"):
        matrix.data = np.ones(matrix.nnz)
    valued = field not in ("pattern", "complex")
    raw = _as_graph(file, matrix, weighted=weighted, valued=valued, first=1)
    return replace(raw, notes=(*raw.notes, WEIGHTS_IGNORED)) if field == "complex" else raw


def _parse(file: Path, what: str, parse: Callable[[Any], Any]) -> Any:
    """Return what ``parse`` makes of the file's bytes; raises :class:`DatasetError`."""
    try:
        with open_text(file) as stream, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return parse(stream)
    except DatasetError:
        raise
    except Exception as error:  # whatever a damaged file makes a foreign parser raise
        raise DatasetError(
            f"{file}: this is not a readable {what} file ({reason_of(error)}); mend it, or export "
            f"it again."
        ) from error


def read_scipy_graph(file: Path, *, weighted: bool) -> RawGraph:
    """Read an adjacency matrix of ``scipy.sparse.save_npz``."""
    return _as_graph(file, read_scipy(file), weighted=weighted)


def holds_benchmark(names: tuple[str, ...]) -> bool:
    """Whether an archive with arrays of these names is a graph of ``shchur/gnn-benchmark``."""
    return {"adj_data", "adj_indices", "adj_indptr", "adj_shape"} <= set(map(_plain, names))


def _plain(name: str) -> str:
    """Return an array's name as newer files of ``shchur/gnn-benchmark`` have it."""
    return name.replace("adj_matrix.", "adj_").replace("attr_matrix.", "attr_")


def read_benchmark(file: Path, *, weighted: bool) -> RawGraph:
    """Read a graph of ``shchur/gnn-benchmark`` (Shchur et al. 2018): CSR, attributes, labels."""
    with Archive(file) as archive:
        names = {_plain(name): name for name in archive.names}
        wanted = [name for name in names if name.startswith(("adj_", "attr_")) or name == "labels"]
        needed = sum(archive.header(names[name]).size_bytes for name in wanted)
        check_memory(str(file), "its arrays", 4 * needed)
        arrays = {
            name: archive.read(names[name])
            for name in wanted
            if archive.header(names[name]).dtype.kind in "fiub"
        }
    raw = _as_graph(file, _as_csr(file, arrays, "adj").tocoo(), weighted=weighted)
    features = arrays.get("attr_matrix")
    if features is None and "attr_data" in arrays:
        features = _as_csr(file, arrays, "attr")
    notes, labels = raw.notes, None
    if "labels" in arrays:
        labels, said = as_classes(str(file), arrays["labels"])
        notes = (*notes, *said)
    return replace(raw, features=features, labels=labels, notes=notes)


def _as_csr(file: Path, arrays: Mapping[str, AnyArray], name: str) -> scipy.sparse.csr_matrix:
    try:
        data, indices, indptr, shape = (
            arrays[f"{name}_{part}"] for part in ("data", "indices", "indptr", "shape")
        )
        matrix = scipy.sparse.csr_matrix((data, indices, indptr), shape=tuple(shape.tolist()))
        matrix.check_format()
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise DatasetError(
            f"{file}: its sparse matrix {name} is broken ({reason_of(error)}); save it once more."
        ) from error
    return matrix


def read_matlab(file: Path, *, weighted: bool) -> RawGraph:
    """Read the only square sparse matrix of a MATLAB file, or ``A`` of SuiteSparse's ``Problem``.

    Facebook100 keeps what it knows of people in ``local_info``: gender is their class, and all else
    features, one for each value, as Lim et al. (NeurIPS 2021) have it.
    """
    try:
        with open_input(file) as stream:
            held = scipy.io.loadmat(stream, spmatrix=True)
    except FileRefused as error:
        raise DatasetError(f"{file}: {error.reason}; give the path of a .mat file.") from error
    except NotImplementedError as error:
        raise DatasetError(
            f"{file}: this is a MATLAB file of version 7.3, which is not read; save it with -v7."
        ) from error
    except Exception as error:  # SciPy raises whatever a damaged file makes it stumble on
        raise DatasetError(
            f"{file}: this is not a readable MATLAB file ({reason_of(error)}); save it again."
        ) from error
    if "Problem" in held and getattr(held["Problem"], "dtype", None) is not None:
        held = dict(zip(held["Problem"].dtype.names or (), held["Problem"].flat[0], strict=False))
    square = {
        name: matrix
        for name, matrix in held.items()
        if scipy.sparse.issparse(matrix) and matrix.shape[0] == matrix.shape[1]
    }
    if len(square) != 1:
        raise DatasetError(
            f"{file}: it has {len(square)} square sparse matrices "
            f"({', '.join(square) or ', '.join(n for n in held if n[0] != '_')}); save one alone."
        )
    raw = _as_graph(file, scipy.sparse.coo_matrix(*square.values()), weighted=weighted)
    known = held.get("local_info")
    if not isinstance(known, np.ndarray) or known.shape[:1] != (raw.num_vertices,):
        return raw
    classes = cast(IntArray, known[:, _GENDER].astype(np.int64)) - 1
    features = _spread(np.delete(known.astype(np.int64), _GENDER, axis=1))
    note = "labels are column 1 of local_info, gender, and features its other columns, one by value"
    return replace(raw, features=features, labels=classes, notes=(*raw.notes, note))


def _spread(columns: IntArray) -> scipy.sparse.csr_matrix:
    """Return one feature for each value of each column, 1 where a row has it."""
    parts = []
    for column in columns.T:
        _, places = np.unique(column, return_inverse=True)
        ones = np.ones(len(column), dtype=np.float32)
        parts.append(scipy.sparse.csr_matrix((ones, (np.arange(len(column)), places.reshape(-1)))))
    return scipy.sparse.csr_matrix(scipy.sparse.hstack(parts))


def _as_graph(
    file: Path,
    matrix: scipy.sparse.coo_matrix,
    *,
    weighted: bool,
    valued: bool = True,
    first: int = 0,
) -> RawGraph:
    """Return the graph of an adjacency matrix, whose values are weights where it is ``valued``."""
    rows, columns = matrix.shape
    if rows != columns:
        raise DatasetError(
            f"{file}: the matrix has {rows:,} rows and {columns:,} columns; an adjacency matrix is "
            f"square."
        )
    matrix, zeros = drop_zeros(matrix)
    weights, lost = choose_weights(str(file), matrix.data if valued else None, weighted=weighted)
    return RawGraph(
        as_pairs(matrix),
        rows,
        f"imported from {file.name}",
        (*zeros, *lost),
        weights=weights,
        first=first,
    )
