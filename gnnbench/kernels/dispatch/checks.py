"""Checks of arguments that every dispatcher runs before a typed loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gnnbench.records import IndexArray, IntArray

MaskArray = npt.NDArray[np.uint8]


def check_graph(indptr: IntArray, indices: IndexArray) -> None:
    """Raise ``ValueError`` unless these are int64 ``(V+1,)`` and int32 ``(E,)`` with matching ends.

    The kernels check the rows that they read.
    """
    check_vector("indptr", indptr, np.dtype(np.int64))
    check_vector("indices", indices, np.dtype(np.int32))
    if len(indptr) == 0 or indptr[0] != 0 or indptr[-1] != len(indices):
        raise ValueError(
            f"indptr must start at 0 and end at the number of indices, {len(indices)}; "
            f"store the graph as CSR."
        )


def check_distinct(name: str, ids: IntArray, num_vertices: int) -> None:
    """Raise ``ValueError`` unless these are int64, within the graph and distinct."""
    check_vector(name, ids, np.dtype(np.int64))
    check_range(name, ids, num_vertices)
    if not (np.diff(ids) > 0).all() and len(np.unique(ids)) != len(ids):
        raise ValueError(f"{name} name a vertex more than once; pass each id once.")


def check_range(name: str, ids: IntArray | IndexArray, num_vertices: int) -> None:
    """Raise ``ValueError`` unless every id is in ``[0, num_vertices)``."""
    if len(ids) and (ids.min() < 0 or ids.max() >= num_vertices):
        raise ValueError(
            f"{name} hold {ids.min()} to {ids.max()}, outside a graph of {num_vertices} "
            f"vertices; use ids from 0 to {num_vertices - 1}."
        )


def check_vector(name: str, array: npt.NDArray[np.integer[Any]], dtype: np.dtype[Any]) -> None:
    """Raise ``ValueError`` unless this is a contiguous vector of exactly this dtype."""
    if not isinstance(array, np.ndarray) or (
        array.ndim != 1
        or array.dtype != dtype
        or not array.flags.c_contiguous
        or not array.flags.aligned
    ):
        raise ValueError(
            f"{name} is {_describe(array)}; pass a contiguous one-dimensional {dtype} array."
        )


def check_mask(mask: MaskArray, shape: tuple[int, int]) -> None:
    """Raise ``ValueError`` unless this is a mask, as ``pack_mask`` makes it, for such an output."""
    expected = (shape[0], -(-shape[1] // 8))
    if (
        not isinstance(mask, np.ndarray)
        or mask.dtype != np.uint8
        or mask.shape != expected
        or not mask.flags.c_contiguous
    ):
        raise ValueError(
            f"mask must be a contiguous uint8 array of shape {expected} for an output of shape "
            f"{shape}; make it with pack_mask."
        )


def _describe(array: object) -> str:
    if isinstance(array, np.ndarray):
        return f"{array.dtype} with shape {array.shape}"
    return f"a {type(array).__name__}"
