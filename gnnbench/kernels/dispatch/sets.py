"""Sets of vertex ids as bitmaps, and the ids that sets share.

Deduplicated communication counts these (HongTu, Wang et al. 2023, section 5). N_ij are the
neighbours that partition i's chunk j needs, and V_ori is the sum of their sizes. V_+p2p is the sum
over the batches j of the size of the union of all N_ij. V_+ru is the size of the first batch's
union plus, for every later batch, the size of its union without the last one.

``Bitmaps`` are uint64 ``(sets, words)``: bit k of word w is id 64 w + k. Their union, intersection
and difference are NumPy's ``|``, ``&`` and ``& ~``. Ids go into them and come out of them as int64.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gnnbench.kernels.dispatch.checks import check_vector
from gnnbench.kernels.native import load, resolve_threads
from gnnbench.kernels.reference import sets as reference
from gnnbench.kernels.reference.sets import Bitmaps
from gnnbench.kernels.slabs import Slab
from gnnbench.records import IndexArray, IntArray


def unique_ids(ids: IndexArray, universe: int) -> IndexArray:
    """Return the distinct ids of an array, ascending int32.

    ``ids`` is a contiguous int32 array in ``[0, universe)``, in any order. It takes one bit of
    memory for each id of the universe, which is below 2^31. Raises ``ValueError`` for other arrays,
    ids outside the universe and a universe that is too large.
    """
    if not 0 <= universe < 2**31:
        raise ValueError(f"universe is {universe}; it must be from 0 to 2^31 - 1.")
    check_vector("ids", ids, np.dtype(np.int32))
    compiled = load("sets")
    unique: IndexArray | None = None
    if compiled is not None:
        unique = compiled.unique_ids(ids, universe)
    if unique is None:
        reference.check_inside("ids", ids, universe)
        unique = reference.unique_ids(ids, universe)
    return unique


def mark_sets(sets: Sequence[IntArray], universe: int, *, threads: int = 0) -> Bitmaps:
    """Return bitmaps of int64 arrays of ids in ``[0, universe)``, in any order, repeats allowed.

    All bitmaps of one universe have equally many words, a multiple of 8. ``threads``, here and
    below, is 0 for every core. Raises ``ValueError`` for other arrays and ids outside the universe.
    """
    workers = resolve_threads(threads)
    if universe < 0:
        raise ValueError(f"universe is {universe}; it must be 0 or more.")
    members = tuple(sets)
    for place, ids in enumerate(members):
        check_vector(f"sets[{place}]", ids, np.dtype(np.int64))
    words = _count_words(universe)
    compiled = load("sets")
    bitmaps: Bitmaps | None = None
    if compiled is not None:
        bitmaps = compiled.mark_sets(members, universe, words, workers)
    if bitmaps is None:
        for place, ids in enumerate(members):
            reference.check_inside(f"sets[{place}]", ids, universe)
        bitmaps = reference.mark_sets(members, words)
    return bitmaps


def list_marks(bitmaps: Bitmaps, slab: Slab | None = None, *, threads: int = 0) -> list[IntArray]:
    """Return the ids of every bitmap, ascending int64; cut from ``slab``, if there is one."""
    workers = resolve_threads(threads)
    _check_bitmaps(bitmaps)
    compiled = load("sets")
    if compiled is None:
        return reference.list_marks(bitmaps)
    listed: list[IntArray] = compiled.list_marks(bitmaps, slab, workers)
    return listed


def list_fetches(
    needed: Bitmaps,
    transition: Bitmaps,
    held: Bitmaps,
    read: Bitmaps,
    slab: Slab | None = None,
    *,
    threads: int = 0,
) -> list[list[IntArray]]:
    """Return the rows that deduplicated communication moves in a round, by slot.

    See HongTu, sections 5.1, 5.2 and 6. Each table has one bitmap for each of the round's ``s``
    slots. ``needed`` is N_ij. ``transition`` is T_ij, disjoint or each equal to ``needed``.
    ``held`` are the rows of T_i,j-1 that may stay, and ``read`` the rows read from peers that may
    stay.

    A slot's lists are 3 + 2 s ascending int64 arrays, cut from ``slab`` if given. The first three
    are N_ij, T_ij without ``held``, and T_ij within ``held``. The others cover the needed rows
    outside T_ij. First, for each peer k from 0 to s - 1, come the rows in T_kj that were not
    ``read``; then, for each k, the rows that were. Raises ``ValueError`` for tables of different
    shapes.
    """
    workers = resolve_threads(threads)
    for other in (transition, held, read):
        _check_bitmaps(needed, other)
        if len(other) != len(needed):
            raise ValueError(
                f"there are {len(needed)} and {len(other)} bitmaps; pass one for every slot."
            )
    compiled = load("sets")
    if compiled is None:
        return reference.list_fetches(needed, transition, held, read)
    listed: list[list[IntArray]] = compiled.list_fetches(
        needed, transition, held, read, slab, workers
    )
    return listed


def count_marks(bitmaps: Bitmaps) -> IntArray:
    """Return the number of ids of every bitmap, int64 ``(len(bitmaps),)``."""
    _check_bitmaps(bitmaps)
    compiled = load("sets")
    if compiled is None:
        return np.array([len(ids) for ids in reference.list_marks(bitmaps)], dtype=np.int64)
    counts: IntArray = compiled.count_marks_of(bitmaps)
    return counts


def count_shared_marks(bitmaps: Bitmaps, others: Bitmaps, *, threads: int = 0) -> IntArray:
    """Count the ids that each pair of bitmaps shares: int64 ``(len(bitmaps), len(others))``."""
    workers = resolve_threads(threads)
    _check_bitmaps(bitmaps, others)
    compiled = load("sets")
    if compiled is None:
        shared = [[len(ids) for ids in reference.list_marks(bitmap & others)] for bitmap in bitmaps]
        return np.array(shared, dtype=np.int64).reshape(len(bitmaps), len(others))
    counts: IntArray = compiled.count_shared_marks(bitmaps, others, workers)
    return counts


def _count_words(universe: int) -> int:
    """Return the number of words of a bitmap: whole cache lines."""
    return -(-universe // 512) * 8


def _other_universe(words: int, others: int) -> ValueError:
    return ValueError(
        f"bitmaps of {words} and {others} words are of two universes; pass bitmaps of one."
    )


def _check_bitmaps(bitmaps: Bitmaps, others: Bitmaps | None = None) -> None:
    for each in (bitmaps, bitmaps if others is None else others):
        if each.ndim != 2 or each.dtype != np.uint64 or not each.flags.c_contiguous:
            raise ValueError(
                f"bitmaps are {each.dtype} with shape {each.shape}; pass contiguous rows of "
                f"uint64, as mark_sets makes them."
            )
        if each.shape[1] != bitmaps.shape[1]:
            raise _other_universe(bitmaps.shape[1], each.shape[1])
