"""Rows of features by id: gathered into a buffer, moved between two, and added to a table."""

from __future__ import annotations

import numpy as np

from gnnbench.kernels.dispatch.checks import check_vector
from gnnbench.kernels.native import load, resolve_threads
from gnnbench.kernels.reference import rows as reference
from gnnbench.kernels.reference.rows import ByteArray, Rows
from gnnbench.records import IndexArray, IntArray

_DTYPES = tuple(np.dtype(kind) for kind in (np.float32, np.float64, np.float16, np.uint16))


def gather_rows(
    source: Rows,
    ids: IntArray | IndexArray,
    *,
    out: Rows | None = None,
    bfloat16: bool = False,
    threads: int = 0,
) -> Rows:
    """Gather rows: ``out[i] = source[ids[i]]``; return ``out``.

    Parameters
    ----------
    source
        Contiguous ``(V, D)``, float32, float64, float16 or uint16, perhaps read-only or a memory
        map; only the rows in ``ids`` are read.
    ids
        int64 or int32 ``(N,)``, in any order, repeats allowed.
    out
        The caller's contiguous buffer ``(N, D)``, or None for a new array, in the dtype of
        ``source``. A float32 buffer also accepts float16, and bits of bfloat16; the values are then
        widened.
    bfloat16
        Whether uint16 values are the bits of bfloat16.
    threads
        0 for every core.

    Raises
    ------
    ValueError
        For arrays of other dtypes, shapes or layouts, and for an ``out`` that is read-only or
        shares memory with the inputs. Also for ids outside ``source``; ``out`` is then undefined.
    """
    _check_rows("source", source, bfloat16)
    _check_ids(ids)
    workers = resolve_threads(threads)
    shape = (len(ids), source.shape[1])
    if out is None:
        out = np.empty(shape, dtype=source.dtype)
    else:
        wide = np.dtype(np.float32)
        narrow = bfloat16 or source.dtype == np.float16
        _check_target("out", out, (source.dtype, wide) if narrow else (source.dtype,), shape)
        _check_apart("out", out, source=source, ids=ids)
    compiled = load("rows")
    if compiled is None or out.size == 0:
        _check_inside(ids, "source", len(source))
        reference.gather_rows(source, ids, out, bfloat16)
        return out
    sound = len(source) > 0 and compiled.gather_rows(
        _bytes(source),
        *source.shape,
        ids,
        _bytes(out),
        _element(source) if out.dtype != source.dtype else "",
        workers,
    )
    if not sound:
        _check_inside(ids, "source", len(source))
        raise ValueError("ids changed during the call; pass an array that stays unchanged.")
    return out


def scatter_add_rows(
    target: Rows,
    ids: IntArray | IndexArray,
    values: Rows,
    *,
    bfloat16: bool = False,
    threads: int = 0,
) -> None:
    """Add rows in place: ``target[ids[i]] += values[i]``, for every i in order.

    Parameters
    ----------
    target, values
        Contiguous ``(V, D)`` and ``(N, D)``, both float32, float64, float16, or uint16 with
        ``bfloat16``.
    ids
        int64 or int32 ``(N,)``, in any order, repeats allowed.
    bfloat16
        Whether uint16 values are the bits of bfloat16.
    threads
        0 for every core. Every addition rounds to the element's type, to nearest and ties to even,
        in the order of i, with any number of threads.

    Raises
    ------
    ValueError
        For arrays of other dtypes, shapes or layouts, for ids outside ``target``, and for a
        ``target`` that is read-only or shares memory with the others. ``target`` then stays
        unchanged.
    """
    _check_rows("target", target, bfloat16)
    _check_ids(ids)
    workers = resolve_threads(threads)
    _check_target("target", target, (target.dtype,), target.shape)
    _check_rows("values", values, bfloat16)
    if target.dtype == np.uint16 and not bfloat16:
        raise ValueError("target is uint16; pass bfloat16=True where these are its bits.")
    if values.dtype != target.dtype or values.shape != (len(ids), target.shape[1]):
        raise ValueError(
            f"values are {values.dtype} with shape {values.shape}; "
            f"pass {target.dtype} with shape {(len(ids), target.shape[1])}."
        )
    _check_apart("target", target, ids=ids, values=values)
    compiled = load("rows")
    if compiled is None or values.size == 0 or len(target) == 0:
        _check_inside(ids, "target", len(target))
        reference.scatter_add_rows(target, ids, values, bfloat16)
        return
    if not compiled.scatter_add_rows(
        _bytes(target),
        *target.shape,
        ids,
        _bytes(values),
        _element(target),
        workers,
    ):
        _check_inside(ids, "target", len(target))
        raise ValueError("ids changed during the call; pass an array that stays unchanged.")


def move_rows(
    source: Rows,
    source_ids: IntArray | IndexArray,
    target: Rows,
    target_ids: IntArray | IndexArray,
    *,
    add: bool = False,
    threads: int = 0,
) -> None:
    """Move rows in order: ``target[target_ids[i]] = source[source_ids[i]]``, ``+=`` if ``add``.

    There is no intermediate buffer. The result does not depend on ``threads`` (0 = every core).

    Parameters
    ----------
    source, target
        Contiguous ``(V, D)`` and ``(W, D)``, both float32, float64 or float16. ``source`` may be
        read-only or a memory map; only the rows in ``source_ids`` are read.
    source_ids, target_ids
        int64 or int32 ``(N,)``, in any order, repeats allowed.

    Raises
    ------
    ValueError
        For arrays of other dtypes, shapes or layouts, for ids outside either table, and for a
        ``target`` that is read-only or shares memory with the others. ``target`` stays unchanged.
    """
    _check_move(source, source_ids, target, target_ids)
    workers = resolve_threads(threads)
    compiled = load("rows")
    empty = not (len(source_ids) and source.size and target.size)
    if (
        compiled is not None
        and not empty
        and compiled.move_rows(
            _bytes(source),
            len(source),
            source_ids,
            _bytes(target),
            *target.shape,
            target_ids,
            _element(target),
            add,
            workers,
        )
    ):
        return
    _check_inside(source_ids, "source", len(source), "source_ids")
    _check_inside(target_ids, "target", len(target), "target_ids")
    if compiled is not None and not empty:
        raise ValueError("ids changed during the call; pass arrays that stay unchanged.")
    reference.move_rows(source, source_ids, target, target_ids, add)


def _check_move(
    source: Rows,
    source_ids: IntArray | IndexArray,
    target: Rows,
    target_ids: IntArray | IndexArray,
) -> None:
    """Check that the tables match in dtype and width, share no memory, and have as many ids."""
    for name, rows in (("source", source), ("target", target)):
        _check_rows(name, rows, bfloat16=False)
    _check_ids(source_ids, "source_ids")
    _check_ids(target_ids, "target_ids")
    if source.dtype == np.uint16 or target.dtype != source.dtype:
        raise ValueError(
            f"source is {source.dtype} and target {target.dtype}; pass two arrays of one dtype, "
            f"float32, float64 or float16."
        )
    _check_target("target", target, (source.dtype,), (len(target), source.shape[1]))
    if len(source_ids) != len(target_ids):
        raise ValueError(
            f"there are {len(source_ids)} source_ids and {len(target_ids)} target_ids; each row "
            f"needs one of either."
        )
    _check_apart("target", target, source=source, source_ids=source_ids, target_ids=target_ids)


def _bytes(rows: Rows) -> ByteArray:
    return rows.reshape(-1).view(np.uint8)


def _element(rows: Rows) -> str:
    return "bfloat16" if rows.dtype == np.uint16 else rows.dtype.name


def _check_ids(ids: IntArray | IndexArray, name: str = "ids") -> None:
    narrow = isinstance(ids, np.ndarray) and ids.dtype == np.int32
    check_vector(name, ids, np.dtype(np.int32 if narrow else np.int64))


def _check_inside(ids: IntArray | IndexArray, name: str, rows: int, ids_name: str = "ids") -> None:
    if len(ids) and (ids.min() < 0 or ids.max() >= rows):
        raise ValueError(
            f"{ids_name} hold {ids.min()} to {ids.max()}; every one must be a row of {name}, which "
            f"has {rows}."
        )


def _check_rows(name: str, rows: Rows, bfloat16: bool) -> None:
    if not isinstance(rows, np.ndarray) or (
        rows.ndim != 2
        or rows.dtype not in _DTYPES
        or not (rows.flags.c_contiguous and rows.flags.aligned)
    ):
        raise ValueError(
            f"{name} must be a contiguous two-dimensional array of float32, float64, float16, or "
            f"uint16 for bfloat16."
        )
    if bfloat16 and rows.dtype != np.uint16:
        raise ValueError(f"{name} is {rows.dtype}; bfloat16 is carried as uint16.")


def _check_target(
    name: str, rows: Rows, dtypes: tuple[np.dtype[np.generic], ...], shape: tuple[int, ...]
) -> None:
    if not isinstance(rows, np.ndarray) or (
        rows.dtype not in dtypes
        or rows.shape != shape
        or not (rows.flags.c_contiguous and rows.flags.aligned and rows.flags.writeable)
    ):
        kinds = " or ".join(str(dtype) for dtype in dtypes)
        raise ValueError(f"{name} must be a contiguous writeable {kinds} array of shape {shape}.")


def _check_apart(name: str, target: Rows, **others: Rows | IntArray | IndexArray) -> None:
    for other, array in others.items():
        if np.may_share_memory(target, array):
            raise ValueError(f"{name} shares memory with {other}; pass a separate buffer.")
