"""The one way to the kernels: validates, then runs the compiled loop or its NumPy twin.

Both give the same bits. ``GNNBENCH_PURE=1`` in the environment selects the twin.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from types import ModuleType

import numpy as np

from gnnbench.kernels import reference
from gnnbench.records import Block, IndexArray, IntArray

_sample: ModuleType | None = None
if os.environ.get("GNNBENCH_PURE", "") in ("", "0"):
    try:
        from gnnbench.kernels import _sample
    except ImportError:
        _sample = None


def compiled() -> bool:
    """Whether calls run the compiled kernels (False: the NumPy twins)."""
    return _sample is not None


def sample_neighbours(
    indptr: IntArray,
    indices: IndexArray,
    seeds: IntArray,
    fanouts: Sequence[int],
    *,
    seed: int,
    epoch: int,
    threads: int = 0,
) -> tuple[Block, ...]:
    """Sample the blocks below ``seeds``, uniformly without replacement; input layer first.

    ``indptr`` int64 ``(V+1,)`` and ``indices`` int32 ``(E,)`` are the in-neighbour CSR, ``seeds``
    int64, each once. ``fanouts`` run from the seeds outwards: ``fanouts[0]`` is the last block's.
    A vertex with at most that many in-neighbours, or a fan-out of 0, keeps all of them.

    A row's picks stand in the order of the graph's row. Sources follow the destinations in the
    order in which they first appear. The blocks' ``src_ids`` are views of one array, each a prefix
    of the next outer one. What is drawn for a vertex depends on (seed, epoch, distance from the
    seeds, vertex) alone, not on ``threads`` (0 = every core) and not on the other seeds.

    Raises ``ValueError`` for arrays of the wrong dtype or layout, seeds out of range or repeated,
    negative fan-outs, and rows or neighbours that point outside the graph.
    """
    _check_graph(indptr, indices)
    _check_ids("seeds", seeds, len(indptr) - 1)
    widths = [int(fanout) for fanout in fanouts]
    if any(width < 0 for width in widths):
        raise ValueError(f"fanouts are {widths}; each must be 0 (every neighbour) or more.")
    if _sample is None:
        return reference.sample_neighbours(indptr, indices, seeds, widths, seed=seed, epoch=epoch)
    order, layers = _sample.sample_layers(
        indptr,
        indices,
        seeds,
        widths,
        seed & reference.WORD,
        epoch & reference.WORD,
        threads if threads > 0 else _available_cores(),
        _scratch.of_size(len(indptr) - 1),
    )
    num_src = [rows for rows, _, _ in layers[1:]] + [len(order)]
    return tuple(
        Block(order[:size], rows, out, local)
        for size, (rows, out, local) in reversed(list(zip(num_src, layers, strict=True)))
    )


def induce_block(indptr: IntArray, indices: IndexArray, dst_ids: IntArray) -> Block:
    """The block of every in-edge of ``dst_ids``: these first, then the other sources ascending.

    Dtypes and errors as for :func:`sample_neighbours`; edges stay in the order of the graph's rows.
    """
    _check_graph(indptr, indices)
    _check_ids("dst_ids", dst_ids, len(indptr) - 1)
    if _sample is None:
        return reference.induce_block(indptr, indices, dst_ids)
    src_ids, out, local = _sample.induce(
        indptr, indices, dst_ids, _scratch.of_size(len(indptr) - 1)
    )
    return Block(src_ids, len(dst_ids), out, local)


class _Scratch(threading.local):
    """A thread's map from vertex to position, all -1 between calls, kept for graphs of one size.

    Clearing it costs a call what it touched; making it anew would cost V.
    """

    def __init__(self) -> None:
        self.position: IndexArray = np.empty(0, dtype=np.int32)

    def of_size(self, num_vertices: int) -> IndexArray:
        if len(self.position) != num_vertices:
            self.position = np.full(num_vertices, -1, dtype=np.int32)
        return self.position


_scratch = _Scratch()


def _available_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _check_graph(indptr: IntArray, indices: IndexArray) -> None:
    _check_array("indptr", indptr, np.dtype(np.int64))
    _check_array("indices", indices, np.dtype(np.int32))
    if len(indptr) == 0 or indptr[0] != 0 or indptr[-1] != len(indices):
        raise ValueError(
            f"indptr must start at 0 and end at the number of indices, {len(indices)}; "
            f"store the graph as CSR."
        )


def _check_ids(name: str, ids: IntArray, num_vertices: int) -> None:
    _check_array(name, ids, np.dtype(np.int64))
    if len(ids) == 0:
        return
    if ids.min() < 0 or ids.max() >= num_vertices:
        raise ValueError(
            f"{name} hold {ids.min()} to {ids.max()}, outside a graph of {num_vertices} "
            f"vertices; use ids from 0 to {num_vertices - 1}."
        )
    if not (np.diff(ids) > 0).all() and len(np.unique(ids)) != len(ids):
        raise ValueError(f"{name} name a vertex more than once; pass each id once.")


def _check_array(
    name: str, array: IntArray | IndexArray, dtype: np.dtype[np.signedinteger]
) -> None:
    if array.ndim != 1 or array.dtype != dtype or not array.flags.c_contiguous:
        raise ValueError(
            f"{name} is {array.dtype} with shape {array.shape}; "
            f"pass a contiguous one-dimensional {dtype} array."
        )
