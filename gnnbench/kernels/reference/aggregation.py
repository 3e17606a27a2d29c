"""Aggregation in NumPy, one edge after the other in the order of the rows."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt

from gnnbench.records import IndexArray, IntArray

#: float32 or float64, the same throughout a call.
Float = npt.NDArray[np.floating]


def check_matrix(indptr: IntArray, indices: IndexArray, num_src: int) -> int:
    """Return 0; 1 if rows descend or end past the indices; 2 if an index is not in [0, num_src)."""
    if indptr[0] != 0 or indptr[-1] != len(indices) or (indptr[1:] < indptr[:-1]).any():
        return 1
    return 2 if len(indices) and (indices.min() < 0 or indices.max() >= num_src) else 0


def edge_rows(indptr: IntArray) -> IntArray:
    """Return the destination of every edge, int64 ``(E,)``."""
    return np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))


def aggregate(
    indptr: IntArray,
    indices: IndexArray,
    h: Float,
    out: Float,
    weight: Float | None,
    src_scale: Float | None,
    dst_scale: Float | None,
    own: Float | None,
    mean: bool,
    mask: npt.NDArray[np.uint8] | None,
    add: bool,
) -> None:
    """See :func:`gnnbench.kernels.dispatch.aggregation.aggregate`."""
    before = out.copy() if add else None
    messages = h[indices]
    if src_scale is not None:
        messages = messages * src_scale[indices, None]
    if weight is not None:
        messages = messages * weight[:, None]
    out[:] = 0
    np.add.at(out, edge_rows(indptr), messages)
    if mean:
        out /= np.maximum(np.diff(indptr), 1)[:, None]
    if dst_scale is not None:
        out *= dst_scale[:, None]
    if own is not None:
        out += own[:, None] * h[: len(out)]
    if mask is not None:
        # A product would turn a masked infinity into NaN.
        out[np.unpackbits(mask, axis=1, count=out.shape[1], bitorder="little") == 0] = 0
    if before is not None:
        out += before


def dot_edges(indptr: IntArray, indices: IndexArray, g: Float, h: Float, products: Float) -> None:
    """See :func:`gnnbench.kernels.dispatch.aggregation.dot_edges`."""
    products[:] = (g[edge_rows(indptr)] * h[indices]).sum(axis=1)


def edge_softmax(indptr: IntArray, scores: Float, out: Float) -> None:
    """See :func:`gnnbench.kernels.dispatch.aggregation.edge_softmax`."""
    for begin, end in itertools.pairwise(indptr):
        if begin < end:
            powers = np.exp(scores[begin:end] - scores[begin:end].max())
            out[begin:end] = powers / powers.sum()


def edge_softmax_backward(indptr: IntArray, softmax: Float, gradient: Float, out: Float) -> None:
    """See :func:`gnnbench.kernels.dispatch.aggregation.edge_softmax_backward`."""
    for begin, end in itertools.pairwise(indptr):
        q, g = softmax[begin:end], gradient[begin:end]
        out[begin:end] = q * (g - (q * g).sum())
