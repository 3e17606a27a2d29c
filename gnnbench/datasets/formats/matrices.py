"""Adjacency matrices: Matrix Market, SciPy's ``.npz``, ``shchur/gnn-benchmark``, and MATLAB.

Rows are sources and columns destinations. Zeros that a matrix stores are edges.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import scipy

from gnnbench.datasets.archive import Archive
from gnnbench.datasets.content import (
    WEIGHTS_IGNORED,
    as_classes,
    as_pairs,
    choose_weights,
    note_zeros,
)
from gnnbench.datasets.formats.apart import read_apart
from gnnbench.datasets.memory import check_memory
from gnnbench.datasets.raw import Numbering, RawGraph
from gnnbench.datasets.scipy_files import make_csr, read_scipy
from gnnbench.datasets.tables import Grammar, read_whole
from gnnbench.datasets.texts import BYTES_PER_EDGE, text_lines
from gnnbench.errors import DatasetError
from gnnbench.records import IntArray

#: By what the entries of a Matrix Market file are, how many columns it has.
_WIDTHS = {"pattern": 2, "integer": 3, "real": 3, "complex": 4}
_SYMMETRIES = ("general", "symmetric", "skew-symmetric", "hermitian")
#: The column of Facebook100's ``local_info`` that is the class: 1 or 2, and 0 where it is unknown.
_GENDER = 1


def read_matrix_market(file: Path, *, weighted: bool) -> RawGraph:
    """Read the entries of a ``.mtx`` (Boisvert, Pozo, Remington 1996); vertices count from 1.

    Entries are parsed as any other table is, since SciPy's parser crashes on damaged ones.
    """
    (rows, columns, entries), field, symmetry, header_lines = _read_header(file)
    if entries == 0:
        raise DatasetError(f"{file}: the matrix has no entries; a GNN needs at least one edge.")
    mirrored = symmetry != "general"
    edges = entries * (1 + mirrored)
    check_memory(str(file), f"its {entries:,} entries", BYTES_PER_EDGE * edges)
    grammar = Grammar(file, " ", _WIDTHS[field], heading_line=header_lines)
    valued = field in ("integer", "real")
    kinds: dict[int, type] = {0: int, 1: int} | ({2: float} if valued else {})
    held = read_whole(grammar, kinds, "an entry of the matrix", BYTES_PER_EDGE)
    row, column, found = held[0] - 1, held[1] - 1, len(held[0])
    if found != entries:
        raise _malformed(file, f"it has {found:,} entries and says it has {entries:,}")
    for name, ends, bound in (("row", row, rows), ("column", column, columns)):
        if not 0 <= ends.min() <= ends.max() < bound:
            wrong = ends.min() + 1 if ends.min() < 0 else ends.max() + 1
            raise _malformed(file, f"a {name} is {wrong:,} and they go from 1 to {bound:,}")
    values = held[2] if valued else np.ones(found)
    if mirrored:
        below = row != column
        sign = -1 if symmetry == "skew-symmetric" else 1
        row, column = np.append(row, column[below]), np.append(column, row[below])
        values = np.append(values, sign * values[below])
    matrix = scipy.sparse.coo_matrix((values, (row, column)), shape=(rows, columns))
    raw = _as_graph(file, matrix, weighted=weighted, valued=valued, first=1)
    if field == "complex":
        return replace(raw, notes=(*raw.notes, WEIGHTS_IGNORED))
    return raw


def _read_header(file: Path) -> tuple[tuple[int, int, int], str, str, int]:
    """Return the sizes, what the entries are, the symmetry, and the number of the last line."""
    lines = text_lines(file)
    _, banner = next(lines, (1, b""))
    words = banner[:200].removeprefix(b"\xef\xbb\xbf").decode("latin1").lower().split()
    if len(words) != 5 or words[:2] != ["%%matrixmarket", "matrix"]:
        raise _malformed(file, "it does not begin with %%MatrixMarket matrix coordinate")
    if words[2] != "coordinate":
        raise DatasetError(
            f"{file}: the matrix is stored dense; export the adjacency matrix as coordinates."
        )
    for word, known in ((words[3], _WIDTHS), (words[4], _SYMMETRIES)):
        if word not in known:
            raise _malformed(file, f"it is {word!r}, not {', '.join(known)}")
    for number, line in lines:
        sizes = line.split()
        if sizes and not sizes[0].startswith(b"%"):
            if len(sizes) == 3 and all(size.isdigit() and len(size) < 19 for size in sizes):
                rows, columns, entries = map(int, sizes)
                return (rows, columns, entries), words[3], words[4], number
            break
    raise _malformed(file, "it does not say how many rows, columns and entries there are")


def _malformed(file: Path, why: str) -> DatasetError:
    return DatasetError(
        f"{file}: this is not a readable Matrix Market file ({why}); mend it or export it again as "
        f"coordinates."
    )


def read_scipy_graph(file: Path, *, weighted: bool) -> RawGraph:
    """Read an adjacency matrix of ``scipy.sparse.save_npz``."""
    return _as_graph(file, read_scipy(file), weighted=weighted)


def holds_benchmark(names: tuple[str, ...]) -> bool:
    """Return whether arrays of these names are a graph of ``shchur/gnn-benchmark``."""
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
    raw = _as_graph(file, make_csr(str(file), arrays, "adj").tocoo(), weighted=weighted)
    features = arrays.get("attr_matrix")
    if features is None and "attr_data" in arrays:
        features = make_csr(str(file), arrays, "attr")
    notes, labels = raw.notes, None
    if "labels" in arrays:
        labels, said = as_classes(str(file), arrays["labels"])
        notes = (*notes, *said)
    return replace(raw, features=features, labels=labels, notes=notes)


def read_matlab(file: Path, *, weighted: bool) -> RawGraph:
    """Read the only square sparse matrix of a MATLAB file, or ``A`` of SuiteSparse's ``Problem``.

    Facebook100 has columns on each person in ``local_info``. As in Lim et al. (NeurIPS 2021),
    gender is the class, and each value of the other columns is a feature.
    """
    held = read_apart("matlab", file)
    shape = tuple(held["shape"].tolist())
    matrix = scipy.sparse.coo_matrix((held["data"], (held["row"], held["column"])), shape=shape)
    raw = _as_graph(file, matrix, weighted=weighted)
    known = held.get("local_info")
    if known is None or known.shape[:1] != (raw.num_vertices,):
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
    """Return the graph of an adjacency matrix; its values are weights if it is ``valued``."""
    rows, columns = matrix.shape
    if rows != columns:
        raise DatasetError(
            f"{file}: the matrix has {rows:,} rows and {columns:,} columns; an adjacency matrix is "
            f"square."
        )
    weights, lost = choose_weights(str(file), matrix.data if valued else None, weighted=weighted)
    return RawGraph(
        as_pairs(matrix),
        rows,
        f"imported from {file.name}",
        (*note_zeros(matrix), *lost),
        weights=weights,
        numbering=Numbering(first=first),
    )
