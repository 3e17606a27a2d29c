"""Gathering, moving and adding rows, in NumPy.

bfloat16, which NumPy does not have, is the upper half of a float32's bits, carried as uint16.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gnnbench.records import FloatArray, IndexArray, IntArray

#: float32, float64, float16, or uint16 that are the bits of bfloat16.
Rows = FloatArray | npt.NDArray[np.float64] | npt.NDArray[np.float16] | npt.NDArray[np.uint16]
ByteArray = npt.NDArray[np.uint8]


def widen_bfloat(bits: npt.NDArray[np.uint16]) -> FloatArray:
    """Return the values as float32."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def narrow_bfloat(values: FloatArray) -> npt.NDArray[np.uint16]:
    """Return the nearest bfloat16, ties to even; a NaN stays a NaN."""
    bits = values.view(np.uint32)
    quiet = (bits >> np.uint32(16)) | np.uint32(0x40)
    rounded = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(values), quiet, rounded).astype(np.uint16)


def gather_rows(source: Rows, ids: IntArray | IndexArray, out: Rows, bfloat16: bool) -> None:
    """See :func:`gnnbench.kernels.dispatch.rows.gather_rows`."""
    rows = source[ids]
    out[:] = widen_bfloat(rows) if bfloat16 and out.dtype == np.float32 else rows  # type: ignore[arg-type]


def move_rows(
    source: Rows,
    source_ids: IntArray | IndexArray,
    target: Rows,
    target_ids: IntArray | IndexArray,
    add: bool,
) -> None:
    """See :func:`gnnbench.kernels.dispatch.rows.move_rows`."""
    if add:
        scatter_add_rows(target, target_ids, source[source_ids], bfloat16=False)
    else:
        target[target_ids] = source[source_ids]


def scatter_add_rows(
    target: Rows, ids: IntArray | IndexArray, values: Rows, bfloat16: bool
) -> None:
    """See :func:`gnnbench.kernels.dispatch.rows.scatter_add_rows`."""
    with np.errstate(over="ignore", invalid="ignore"):
        if not bfloat16:
            np.add.at(target, ids, values)
            return
        for vertex, row in zip(ids, values, strict=True):
            target[vertex] = narrow_bfloat(widen_bfloat(target[vertex]) + widen_bfloat(row))
