"""Sums and means over in-edges, and the edge values that attention needs.

A :class:`SparseMatrix` is a block's adjacency, checked once; every function takes one. ``threads``
(0 = every core) never changes a result.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import cached_property
from types import ModuleType
from typing import Literal, cast

import numpy as np
import numpy.typing as npt

from gnnbench.kernels.buffers import pool
from gnnbench.kernels.dispatch.checks import MaskArray, check_mask, check_vector
from gnnbench.kernels.dispatch.layout import transpose
from gnnbench.kernels.dispatch.rows import gather_rows
from gnnbench.kernels.native import limit_simd, load, resolve_threads
from gnnbench.kernels.reference import aggregation as reference
from gnnbench.kernels.reference.aggregation import Float
from gnnbench.records import IndexArray, IntArray

#: Outputs of at least this many bytes, half of a server's last-level cache, are stored with
#: non-temporal writes, since they would be evicted before their next read.
STREAMED_BYTES = 16 << 20
#: Sources of a block; their packed rows, a mebibyte, stay in a core's cache.
BLOCK_SOURCES = 4096
#: Products that read fewer bytes than this always read in place.
TRIED_BYTES = 32 << 20
#: Approximate number of rows sampled to estimate a mask's density.
SAMPLED_ROWS = 256

#: How a product reads its rows: in place; packed, some columns at a time, so that more rows fit in
#: the cache; or packed, and for rows with many edges one block of sources at a time.
Way = Literal["in place", "packed", "blocked"]


@dataclass(slots=True)
class _Trials:
    """Times of each way to compute one kind of product; all ways give the same bits."""

    seconds: dict[Way, list[float]]

    def next(self) -> Way:
        """Return a way with fewer than two trials, or else the way with the shortest time."""
        for way, seen in self.seconds.items():
            if len(seen) < 2:
                return way
        return min(self.seconds, key=lambda way: min(self.seconds[way]))

    @property
    def settled(self) -> bool:
        return all(len(seen) >= 2 for seen in self.seconds.values())


@dataclass(eq=False)
class SparseMatrix:
    """An adjacency ``(D, S)`` in CSR: row v lists the sources of v's in-edges.

    ``indptr`` int64 ``(D+1,)`` and ``indices`` int32 ``(E,)`` in ``[0, S)``, neither copied; they
    must not change afterwards. Raises ``ValueError`` for other dtypes or layouts, rows that
    descend or end elsewhere, and indices outside.

    The transpose and the fastest way to compute large products are found at first use and kept.
    """

    indptr: IntArray
    indices: IndexArray
    num_src: int
    _trials: dict[tuple[int, int, int, bool, int], _Trials] = field(
        default_factory=dict, repr=False
    )
    #: The address and version of edge values, and the values in the transpose's order.
    _values: list[tuple[Float, int, Float]] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        check_vector("indptr", self.indptr, np.dtype(np.int64))
        check_vector("indices", self.indices, np.dtype(np.int32))
        if not 0 <= self.num_src < 2**31:
            raise ValueError(f"num_src is {self.num_src}; it must be from 0 to 2^31 - 1.")
        compiled = load("aggregation")
        check = reference.check_matrix if compiled is None else compiled.check_matrix
        fault = 1 if len(self.indptr) == 0 else check(self.indptr, self.indices, self.num_src)
        if fault == 1:
            raise ValueError(
                f"indptr must ascend from 0 to the number of indices, {len(self.indices)}; "
                f"store the block as CSR."
            )
        if fault == 2:
            raise ValueError(
                f"indices hold {self.indices.min()} to {self.indices.max()}, outside the "
                f"{self.num_src} sources; use positions from 0 to {self.num_src - 1}."
            )

    @property
    def num_dst(self) -> int:
        """The number of destination rows, D."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """The number of edges, E."""
        return len(self.indices)

    @cached_property
    def transposed(self) -> tuple[SparseMatrix, IndexArray]:
        """The transpose ``(S, D)``, and for each of its edges the edge of this matrix."""
        indptr, indices, edge = transpose(self.indptr, self.indices, self.num_src)
        return SparseMatrix(indptr, indices, self.num_dst), edge

    def transpose_values(self, values: Float, *, threads: int = 0) -> Float:
        """Return edge values ``(E,)`` in the order of the transpose's edges."""
        order = self.transposed[1]
        return cast(Float, gather_rows(values[:, None], order, threads=threads)[:, 0])

    def keep_transposed(self, values: Float, version: int = 0, *, threads: int = 0) -> Float:
        """Return edge values in the transpose's order, cached for the last call.

        The cache holds for the same memory in the same ``version``, which the caller counts.
        """
        for kept, number, transposed in self._values:
            if kept.ctypes.data == values.ctypes.data and number == version:
                return transposed
        transposed = self.transpose_values(values, threads=threads)
        self._values[:] = [(values, version, transposed)]
        return transposed

    @cached_property
    def own_and_transposed(self) -> SparseMatrix:
        """The matrix ``(S, 2 D)`` of own rows and means.

        The row of source v starts with column 2 v if v is one of the first D sources, and hence a
        destination. Then column 2 u + 1 follows for every out-edge to a destination u.
        """
        matrix, _ = self.transposed
        rows = np.arange(self.num_src + 1, dtype=np.int64)
        indptr = matrix.indptr + np.minimum(rows, self.num_dst)
        indices = np.empty(self.num_edges + self.num_dst, dtype=np.int32)
        is_own = np.zeros(len(indices), dtype=np.bool_)
        is_own[indptr[: self.num_dst]] = True
        indices[is_own] = 2 * rows[: self.num_dst]
        indices[~is_own] = 2 * matrix.indices + 1
        return SparseMatrix(indptr, indices, 2 * self.num_dst)

    @cached_property
    def blocks(self) -> tuple[IndexArray, IntArray, int] | None:
        """Rows with many edges, their cuts at blocks of sources, and the least edges of such a row.

        It is None if such rows have few of the edges, or if sources do not ascend within one.
        """
        num_blocks = -(-self.num_src // BLOCK_SOURCES)
        least = max(64, 4 * num_blocks)
        degrees = np.diff(self.indptr)
        rows = np.flatnonzero(degrees >= least).astype(np.int32)
        compiled = load("aggregation")
        if compiled is None or 4 * degrees[rows].sum() < self.num_edges:
            return None
        cuts = np.empty((num_blocks + 1, len(rows)), dtype=np.int64)
        if not compiled.cut_blocks(self.indptr, self.indices, rows, BLOCK_SOURCES, cuts):
            return None
        return rows, cuts, least

    def trials(
        self, width: int, itemsize: int, threads: int, weighted: bool, eighths: int = 8
    ) -> _Trials:
        """Return the trials of this kind of product, with ``eighths`` of its rows wanted."""
        key = (width, itemsize, threads, weighted, eighths)
        if key not in self._trials:
            ways: list[Way] = ["in place"]
            reads = self.num_edges * width * itemsize
            if reads >= TRIED_BYTES and self.num_edges >= 4 * self.num_src:
                ways.append("packed")
                if self.blocks is not None:
                    ways.append("blocked")
            self._trials[key] = _Trials({way: [] for way in ways})
        return self._trials[key]


def aggregate(
    matrix: SparseMatrix,
    h: Float,
    *,
    weight: Float | None = None,
    src_scale: Float | None = None,
    dst_scale: Float | None = None,
    own: Float | None = None,
    mean: bool = False,
    mask: MaskArray | None = None,
    out: Float | None = None,
    add: bool = False,
    threads: int = 0,
) -> Float:
    """Return ``out[v] = dst_scale[v] * sum of weight[e] * src_scale[u] * h[u] + own[v] * h[v]``.

    The sum runs over v's in-edges e = (u, v) in their order.

    Parameters
    ----------
    h
        ``(S, f)`` float32 or float64, with contiguous rows and any stride between them.
    weight, src_scale, dst_scale, own
        ``(E,)``, ``(S,)``, ``(D,)`` and ``(D,)``, in the dtype of ``h``. They default to 1, ``own``
        to 0. With ``own`` the destinations are the first D sources.
    mean
        Whether to divide the sum by the number of v's in-edges, where there are any.
    mask
        uint8 ``(D, ceil(f / 8))`` of :func:`pack_mask`; other elements of the output are zero. This
        is MixGCN's S-SpMM (its Equation 4): the mask needs no extra pass, and the edges of rows
        without any wanted element are skipped.
    out, add
        The caller's buffer ``(D, f)``, or None for a new array; ``add`` adds the result to it.

    Raises
    ------
    ValueError
        For shapes or dtypes that do not fit, for ``add`` without ``out``, and for an ``out`` that
        is read-only or overlaps an input in memory.
    """
    _check_rows("h", h, matrix.num_src)
    factors = (weight, src_scale, dst_scale, own)
    _check_factors(matrix, h.dtype, *factors)
    shape = (matrix.num_dst, h.shape[1])
    if mask is not None:
        check_mask(mask, shape)
    if out is None:
        if add:
            raise ValueError("add needs an out to add to; pass one, or leave add out.")
        out = pool.take(shape, h.dtype)
    else:
        _check_out(out, shape, h.dtype)
        _check_apart(out, matrix, h, *factors, mask)
    threads = resolve_threads(threads)
    compiled = load("aggregation")
    if compiled is None or out.size == 0 or h.size == 0:
        reference.aggregate(matrix.indptr, matrix.indices, h, out, *factors, mean, mask, add)
        return out
    _multiply(compiled, matrix, h, out, factors, mean, mask, add, threads)
    return out


def _multiply(
    compiled: ModuleType,
    matrix: SparseMatrix,
    h: Float,
    out: Float,
    factors: tuple[Float | None, Float | None, Float | None, Float | None],
    mean: bool,
    mask: MaskArray | None,
    add: bool,
    threads: int,
) -> None:
    """Run the compiled product in the fastest way for its kind, or try one of the ways."""
    weighted = factors[0] is not None or factors[1] is not None
    eighths = 8 if mask is None else count_eighths(mask)
    trials = matrix.trials(h.shape[1], h.itemsize, threads, weighted, eighths)
    way = trials.next()
    blocks = matrix.blocks if way == "blocked" else None
    packed = None
    if way != "in place":
        rows = matrix.num_src + (len(blocks[0]) if blocks else 0)
        packed = pool.take((rows * (compiled.packed_row_bytes() // h.itemsize),), h.dtype)
    heavy, cuts, least = blocks or (None, None, 0)
    start = time.perf_counter()
    compiled.multiply(
        matrix.indptr,
        matrix.indices,
        h,
        out,
        *factors,
        mask,
        eighths < 8,
        mean,
        add,
        out.nbytes >= STREAMED_BYTES and not add,
        packed,
        heavy,
        cuts,
        least,
        _threads_for(matrix, h, threads),
        limit_simd(compiled.newest_level()),
    )
    if not trials.settled:
        trials.seconds[way].append(time.perf_counter() - start)


def dot_edges(matrix: SparseMatrix, g: Float, h: Float, *, threads: int = 0) -> Float:
    """Return the sampled dense-dense product (SDDMM) <g[v], h[u]> of every edge (u, v): ``(E,)``.

    ``g`` is ``(D, f)`` and ``h`` ``(S, f)``, of one dtype; both as ``h`` of :func:`aggregate`.
    """
    _check_rows("g", g, matrix.num_dst)
    _check_rows("h", h, matrix.num_src)
    if g.dtype != h.dtype or g.shape[1] != h.shape[1]:
        raise ValueError(
            f"g is {g.dtype} of width {g.shape[1]}, h {h.dtype} of width {h.shape[1]}; "
            f"give both one dtype and width."
        )
    products = np.zeros(matrix.num_edges, dtype=h.dtype)
    threads = resolve_threads(threads)
    compiled = load("aggregation")
    if compiled is None or products.size == 0 or h.shape[1] == 0:
        reference.dot_edges(matrix.indptr, matrix.indices, g, h, products)
    else:
        compiled.dot_edges(
            matrix.indptr,
            matrix.indices,
            g,
            h,
            products,
            _threads_for(matrix, h, threads),
            limit_simd(compiled.newest_level()),
        )
    return products


def edge_softmax(matrix: SparseMatrix, scores: Float, *, threads: int = 0) -> Float:
    """Return the softmax of the scores of each destination's in-edges: ``(E,) -> (E,)``."""
    _check_scale("scores", scores, matrix.num_edges)
    out = np.empty_like(scores)
    threads = resolve_threads(threads)
    compiled = load("aggregation")
    if compiled is None or scores.size == 0:
        reference.edge_softmax(matrix.indptr, scores, out)
    else:
        compiled.soften(
            matrix.indptr,
            matrix.indices,
            scores,
            out,
            _threads_for(matrix, scores, threads),
            limit_simd(compiled.newest_level()),
        )
    return out


def edge_softmax_backward(
    matrix: SparseMatrix, softmax: Float, gradient: Float, *, threads: int = 0
) -> Float:
    """Return the gradient of the scores from the softmax and its gradient, each ``(E,)``."""
    _check_scale("softmax", softmax, matrix.num_edges)
    _check_scale("gradient", gradient, matrix.num_edges, softmax.dtype)
    out = np.empty_like(softmax)
    threads = resolve_threads(threads)
    compiled = load("aggregation")
    if compiled is None or softmax.size == 0:
        reference.edge_softmax_backward(matrix.indptr, softmax, gradient, out)
    else:
        compiled.soften_back(
            matrix.indptr,
            matrix.indices,
            softmax,
            gradient,
            out,
            _threads_for(matrix, softmax, threads),
            limit_simd(compiled.newest_level()),
        )
    return out


def pack_mask(wanted: npt.NDArray[np.bool_]) -> MaskArray:
    """Return a boolean ``(D, f)`` as bits, uint8 ``(D, ceil(f / 8))``: element i is bit i % 8."""
    if not isinstance(wanted, np.ndarray) or wanted.dtype != np.bool_ or wanted.ndim != 2:
        raise ValueError("pass the wanted elements as a two-dimensional boolean array.")
    return np.packbits(wanted, axis=1, bitorder="little")


def count_eighths(mask: MaskArray) -> int:
    """Estimate the fraction of rows with any wanted output, in eighths, from a sample of rows.

    Skipping single cache lines of a row saves nothing. Reading a random half of them takes as long
    as reading all, because neighbouring lines are fetched together.
    """
    rows = mask[:: max(1, len(mask) // SAMPLED_ROWS)]
    return round(8 * np.count_nonzero(rows.any(axis=1)) / len(rows))


def _threads_for(matrix: SparseMatrix, h: Float, threads: int) -> int:
    """Return ``threads``, or 1 for a product that takes less time than starting threads."""
    small = (matrix.num_edges + matrix.num_dst) * (h.size // max(len(h), 1)) < 1 << 16
    return 1 if small else threads


# --------------------------------------------------------------------------- checks


def _check_rows(name: str, rows: Float, count: int) -> None:
    if not isinstance(rows, np.ndarray) or rows.dtype not in (np.float32, np.float64):
        kind = rows.dtype if isinstance(rows, np.ndarray) else f"a {type(rows).__name__}"
        raise ValueError(f"{name} is {kind}; pass a float32 or float64 array.")
    if rows.ndim != 2 or len(rows) != count:
        raise ValueError(f"{name} has shape {rows.shape}; it must have {count} rows.")
    _check_strides(name, rows)


def _check_strides(name: str, rows: Float) -> None:
    step, inner = rows.strides
    whole = rows.shape[1] <= 1 or inner == rows.itemsize
    apart = len(rows) <= 1 or (step % rows.itemsize == 0 and step >= rows.shape[1] * rows.itemsize)
    if rows.size and not (whole and apart and rows.flags.aligned):
        raise ValueError(
            f"{name} has strides {rows.strides}; each row must be contiguous and aligned, and the "
            f"rows in ascending order without overlap."
        )


def _check_scale(
    name: str, values: Float, length: int, dtype: np.dtype[np.generic] | None = None
) -> None:
    """Raise ``ValueError`` unless these are ``length`` contiguous values, of ``dtype`` if given."""
    if not isinstance(values, np.ndarray) or values.dtype not in (np.float32, np.float64):
        raise ValueError(f"{name} must be a float32 or float64 array.")
    flags, wanted = values.flags, dtype or values.dtype
    fits = values.dtype == wanted and values.shape == (length,)
    if not (fits and flags.c_contiguous and flags.aligned):
        raise ValueError(
            f"{name} is {values.dtype} with shape {values.shape} and strides {values.strides}; "
            f"pass a contiguous, aligned {wanted} array of {length} values."
        )


def _check_factors(
    matrix: SparseMatrix,
    dtype: np.dtype[np.generic],
    weight: Float | None,
    src_scale: Float | None,
    dst_scale: Float | None,
    own: Float | None,
) -> None:
    for name, scale, length in (
        ("weight", weight, matrix.num_edges),
        ("src_scale", src_scale, matrix.num_src),
        ("dst_scale", dst_scale, matrix.num_dst),
        ("own", own, matrix.num_dst),
    ):
        if scale is not None:
            _check_scale(name, scale, length, dtype)
    if own is not None and matrix.num_dst > matrix.num_src:
        raise ValueError(
            f"own needs the {matrix.num_dst} destinations to be among the {matrix.num_src} "
            f"sources; leave it out for a matrix with more rows than columns."
        )


#: The inputs of a product, in the order of :func:`_check_apart`.
_READ = ("h", "weight", "src_scale", "dst_scale", "own", "mask", "indptr", "indices")


def _check_apart(out: Float, matrix: SparseMatrix, *read: Float | MaskArray | None) -> None:
    for name, array in zip(_READ, (*read, matrix.indptr, matrix.indices), strict=True):
        if array is not None and np.may_share_memory(out, array):
            raise ValueError(f"out shares memory with {name}; pass a separate buffer.")


def _check_out(out: Float, shape: tuple[int, int], dtype: np.dtype[np.generic]) -> None:
    if not isinstance(out, np.ndarray) or out.dtype != dtype or out.shape != shape:
        raise ValueError(f"out must be a {dtype} array of shape {shape}.")
    _check_strides("out", out)
    if not out.flags.writeable:
        raise ValueError("out is read-only; pass a buffer that can be written.")
