"""Canonical topology: rows of in-neighbours that ascend, without self loops and duplicates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import scipy

from gnnbench.errors import DatasetError
from gnnbench.records import BoolArray, FloatArray, Graph, IndexArray, IntArray

AnyArray = npt.NDArray[np.generic]
Key = TypeVar("Key", bound=np.generic)

#: What :func:`symmetrise` takes at its peak.
BYTES_PER_EDGE = 50
#: Vertex ids are stored as int32.
MAX_VERTICES = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Repairs:
    """The changes of :func:`symmetrise`, in directed edges; ``weighted`` duplicates are summed."""

    self_loops: int
    duplicates: int
    reverses: int
    weighted: bool = False

    def sentences(self) -> tuple[str, ...]:
        """Return the notes that name the repairs."""
        merged = "added up" if self.weighted else "removed"
        said = (
            (self.self_loops, f"self loops removed: {self.self_loops:,}"),
            (self.duplicates, f"duplicate edges {merged}: {self.duplicates:,}"),
            (self.reverses, f"missing reverse edges added: {self.reverses:,}"),
        )
        return tuple(sentence for count, sentence in said if count)


def sort_unique(keys: npt.NDArray[Key], *, runs: bool = False) -> npt.NDArray[Key]:
    """Return the distinct values of ``keys``, ascending; sorts its argument in place.

    Keys that are a few ascending ``runs`` are merged.
    """
    keys.sort(kind="stable" if runs else None)
    if len(keys) == 0:
        return keys
    first = np.empty(len(keys), dtype=bool)
    first[0] = True
    np.not_equal(keys[1:], keys[:-1], out=first[1:])
    return keys[first]


def symmetrise(
    src: IntArray,
    dst: IntArray,
    num_vertices: int,
    *,
    directed: bool = False,
    weights: FloatArray | None = None,
) -> tuple[Graph, Repairs]:
    """Make the canonical graph of edges ``src[i] -> dst[i]`` (int64, in range), and count repairs.

    Every edge gets its reverse, unless they are to stay ``directed``. An edge is packed into one
    int64 key, row x V + column, so that two in-place sorts do the work; the peak is about
    ``BYTES_PER_EDGE`` bytes per directed edge. ``weights``, float32 ``(E,)``, of equal edges are
    added up; a reverse that was not given has its edge's weight.
    """
    keys = dst * num_vertices
    keys += src
    if weights is not None:
        return _weigh(keys, weights, src != dst, num_vertices, directed=directed)
    keys = keys[src != dst]
    self_loops = len(src) - len(keys)
    kept = sort_unique(keys)
    duplicates = len(keys) - len(kept)
    del keys
    reverses = 0
    if not directed:
        both = np.empty(2 * len(kept), dtype=np.int64)
        both[: len(kept)] = kept
        row, column = np.divmod(kept, num_vertices)
        both[len(kept) :] = column * num_vertices + row
        del row, column
        both[len(kept) :].sort()
        both = sort_unique(both, runs=True)
        reverses = len(both) - len(kept)
        kept = both
        del both
    indptr, indices = _unpack(kept, num_vertices)
    return Graph(indptr, indices, directed), Repairs(self_loops, duplicates, reverses)


def _weigh(
    keys: IntArray,
    weights: FloatArray,
    chosen: BoolArray,
    num_vertices: int,
    *,
    directed: bool,
) -> tuple[Graph, Repairs]:
    """Do the work of :func:`symmetrise` with weights, on the packed ``chosen`` edges: no loops."""
    given, keys, weights = len(keys), keys[chosen], weights[chosen]
    self_loops = given - len(keys)
    order = np.argsort(keys, kind="stable")
    kept, first = np.unique(keys[order], return_index=True)
    duplicates = len(keys) - len(kept)
    sums = np.add.reduceat(weights[order].astype(np.float64), first) if len(kept) else weights
    reverses = 0
    if not directed:
        row, column = np.divmod(kept, num_vertices)
        back = column * num_vertices + row
        lacking = ~np.isin(back, kept, assume_unique=True)
        reverses = int(np.count_nonzero(lacking))
        kept, sums = np.append(kept, back[lacking]), np.append(sums, sums[lacking])
        order = np.argsort(kept)
        kept, sums = kept[order], sums[order]
    indptr, indices = _unpack(kept, num_vertices)
    graph = Graph(indptr, indices, directed, sums.astype(np.float32))
    return graph, Repairs(self_loops, duplicates, reverses, weighted=True)


def _unpack(keys: IntArray, num_vertices: int) -> tuple[IntArray, IndexArray]:
    """Return the CSR of packed edges, which ascend; the keys are overwritten."""
    indptr = np.zeros(num_vertices + 1, dtype=np.int64)
    np.cumsum(np.bincount(keys // num_vertices, minlength=num_vertices), out=indptr[1:])
    keys %= num_vertices
    return indptr, keys.astype(np.int32)


def as_edge_weights(where: str, weights: AnyArray, num_edges: int) -> FloatArray:
    """Return edge weights as float32 ``(E,)``.

    Raises :class:`DatasetError` unless there is one for each edge, finite and not negative, and
    some edge has one above zero.
    """
    if weights.ndim == 2 and weights.shape[1] == 1:
        weights = weights[:, 0]
    if weights.shape != (num_edges,) or weights.dtype.kind not in "fiub":
        raise DatasetError(
            f"{where}: edge weights have shape {weights.shape} and dtype {weights.dtype}; give one "
            f"number for each of {num_edges:,} edges."
        )
    with np.errstate(over="ignore"):
        single = np.ascontiguousarray(weights, dtype=np.float32)
    wrong = single[~np.isfinite(single) | (single < 0)]
    if len(wrong) or not single.any():
        what = f"contain {wrong[0]:g}" if len(wrong) else "are all zero"
        raise DatasetError(
            f"{where}: edge weights {what}; give finite ones that are not negative, since degrees "
            f"are sums of them."
        )
    return single


def find_fault(indptr: IntArray, indices: IndexArray, *, directed: bool = False) -> str | None:
    """Return why a well-formed CSR is not canonical (the first reason found), or None when it is.

    Canonical: rows ascend strictly, no self loops, and every edge is stored in both directions
    unless the graph is ``directed``. O(E).
    """
    num_vertices = len(indptr) - 1
    rows = np.repeat(np.arange(num_vertices, dtype=np.int32), np.diff(indptr))
    same_row = rows[1:] == rows[:-1]
    for wrong, what in (
        (same_row & (indices[1:] < indices[:-1]), "is not sorted in row"),
        (same_row & (indices[1:] == indices[:-1]), "has duplicate edges in row"),
    ):
        if wrong.any():
            return f"{what} {rows[int(np.argmax(wrong))]:,}"
    loops = rows == indices
    if loops.any():
        count = int(np.count_nonzero(loops))
        return f"has self loops ({count:,}, the first at vertex {rows[int(np.argmax(loops))]:,})"
    if directed:
        return None
    # Transposing is a counting sort that leaves rows sorted, so equal arrays mean equal graphs.
    entries = np.ones(len(indices), dtype=np.int8)
    transposed = scipy.sparse.csr_matrix(
        (entries, indices, indptr), shape=(num_vertices,) * 2
    ).T.tocsr()
    if np.array_equal(transposed.indptr, indptr) and np.array_equal(transposed.indices, indices):
        return None
    keys = rows.astype(np.int64) * num_vertices + indices
    reverse_keys = indices.astype(np.int64) * num_vertices + rows
    row, column = divmod(int(np.setdiff1d(keys, reverse_keys)[0]), num_vertices)
    return f"is directed: row {row:,} lists {column:,} but row {column:,} does not list {row:,}"


def check_csr(where: str, indptr: IntArray, indices: IntArray | IndexArray) -> None:
    """Raise :class:`DatasetError` unless the arrays are a CSR of at least one vertex and edge."""
    check_offsets(where, indptr, len(indices))
    check_range(where, "indices", indices, len(indptr) - 1)


def check_offsets(where: str, indptr: IntArray, num_entries: int) -> None:
    """Raise :class:`DatasetError` unless these are offsets of rows with ``num_entries`` entries."""
    if len(indptr) < 2:
        raise DatasetError(
            f"{where}: indptr has length {len(indptr)}, so the graph has no vertices; "
            f"store one more entry than there are vertices."
        )
    if len(indptr) - 1 > MAX_VERTICES:
        raise DatasetError(
            f"{where}: indptr describes {len(indptr) - 1:,} vertices, but indices are int32; "
            f"use a graph of at most {MAX_VERTICES:,} vertices."
        )
    if indptr[0] != 0:
        raise DatasetError(
            f"{where}: indptr starts at {indptr[0]}, not at 0; store the offsets of the rows."
        )
    if (indptr[1:] < indptr[:-1]).any():
        row = int(np.argmax(indptr[1:] < indptr[:-1]))
        raise DatasetError(
            f"{where}: indptr decreases after row {row:,}; store the ascending offsets of the rows."
        )
    if indptr[-1] != num_entries:
        raise DatasetError(
            f"{where}: indptr ends at {indptr[-1]:,} but indices has {num_entries:,} entries; "
            f"store both whole, from the same graph."
        )
    if num_entries == 0:
        raise DatasetError(
            f"{where}: indices is empty, so the graph has no edges; a GNN needs at least one."
        )


def check_range(where: str, array: str, ids: IntArray | IndexArray, bound: int) -> None:
    """Raise :class:`DatasetError` unless all ids are in 0 to ``bound`` - 1."""
    low, high = ids.min(), ids.max()
    if low < 0 or high >= bound:
        wrong = low if low < 0 else high
        raise DatasetError(
            f"{where}: {array} contains {wrong:,}, outside 0 to {bound - 1:,}; "
            f"number from 0 and store every one that is used."
        )
