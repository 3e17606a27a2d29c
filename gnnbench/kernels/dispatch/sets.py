"""Algebra of vertex sets, and how much many of them share.

This is what deduplicated communication counts (HongTu, Wang et al. 2023, section 5): with N_ij the
neighbours that partition i's chunk j needs, V_ori is the sum of their sizes, V_+p2p the sum over
the batches j of :func:`count_distinct` of all N_ij, and V_+ru that of the first batch's union and
:func:`count_difference` of every later one from the batch before.

A set is a contiguous int32 array of ids that ascend without repeats, 0 or more. Where many sets of
one universe meet many times they are ``Bitmaps``: uint64 ``(sets, words)``, bit k of word w being
id 64 w + k. Their union, intersection and difference are NumPy's ``|``, ``&`` and ``& ~``. Ids go
into them and come out of them as int64.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gnnbench.kernels.dispatch.checks import check_vector
from gnnbench.kernels.native import load, resolve_threads
from gnnbench.kernels.reference import sets as reference
from gnnbench.kernels.reference.sets import Bitmaps, Sets
from gnnbench.kernels.slabs import Slab
from gnnbench.records import IndexArray, IntArray


def unite(a: IndexArray, b: IndexArray) -> IndexArray:
    """The set of what ``a`` or ``b`` has. ``ValueError`` where one of them is not a set."""
    return _combine("UNITE", a, b)


def intersect(a: IndexArray, b: IndexArray) -> IndexArray:
    """The set of what both ``a`` and ``b`` have. ``ValueError`` where one of them is not a set."""
    return _combine("INTERSECT", a, b)


def subtract(a: IndexArray, b: IndexArray) -> IndexArray:
    """The set of what ``a`` has and ``b`` has not. ``ValueError`` where one is not a set."""
    return _combine("SUBTRACT", a, b)


def count_union(a: IndexArray, b: IndexArray) -> int:
    """``len(unite(a, b))``, without building it."""
    return -count_intersection(a, b) + len(a) + len(b)


def count_intersection(a: IndexArray, b: IndexArray) -> int:
    """``len(intersect(a, b))``, without building it."""
    _check_vectors(a, b)
    compiled = load("sets")
    if compiled is None:
        _check_ascending(a, b)
        return len(reference.intersect(a, b))
    count: int = compiled.count_intersection(a, b)
    if count < 0:
        raise _not_ascending(a, b)
    return count


def count_difference(a: IndexArray, b: IndexArray) -> int:
    """``len(subtract(a, b))``, without building it."""
    return -count_intersection(a, b) + len(a)


def unite_all(sets: Sequence[IndexArray], universe: int) -> IndexArray:
    """The set of what any of ``sets`` has.

    These are contiguous int32 arrays of ids in ``[0, universe)``, here in any order and with
    repeats if need be. Takes memory for a bit for each id of the universe, below 2^31. Raises
    ``ValueError`` for other arrays, ids outside the universe and one too large.
    """
    members = _check_members("sets", sets, universe)
    compiled = load("sets")
    if compiled is None:
        _check_inside("sets", members, universe)
        return reference.unite_all(members, universe)
    union: IndexArray | None = compiled.unite_all(members, universe)
    if union is None:
        raise _outside("sets", members, universe)
    return union


def count_distinct(sets: Sequence[IndexArray], universe: int) -> int:
    """``len(unite_all(sets, universe))``, without building it."""
    members = _check_members("sets", sets, universe)
    compiled = load("sets")
    if compiled is None:
        _check_inside("sets", members, universe)
        return len(reference.unite_all(members, universe))
    count: int = compiled.count_distinct(members, universe)
    if count < 0:
        raise _outside("sets", members, universe)
    return count


def unique_ids(ids: IndexArray, universe: int) -> IndexArray:
    """The set of the ids in an array, which is as :func:`unite_all`'s."""
    return unite_all((ids,), universe)


def count_intersections(
    sets_a: Sequence[IndexArray],
    sets_b: Sequence[IndexArray] | None,
    universe: int,
    *,
    threads: int = 0,
) -> IntArray:
    """How many ids ``sets_a[i]`` and ``sets_b[j]`` share, int64 ``(len(sets_a), len(sets_b))``.

    ``None`` for ``sets_b`` compares the sets of ``sets_a`` with each other in half the time. The
    sets are within ``[0, universe)``, ``universe`` below 2^31; ``threads`` is 0 for every core.
    Raises ``ValueError`` for arrays that are not such sets.
    """
    first = _check_members("sets_a", sets_a, universe)
    second = None if sets_b is None else _check_members("sets_b", sets_b, universe)
    workers = resolve_threads(threads)
    compiled = load("sets")
    counts: IntArray | None = None
    if compiled is not None:
        counts = compiled.count_intersections(first, second, universe, workers)
    if counts is None:
        for name, sets in (("sets_a", first), ("sets_b", second or ())):
            for place, ids in enumerate(sets):
                reference.check_ascending(f"{name}[{place}]", ids)
            _check_inside(name, sets, universe)
        counts = reference.count_intersections(first, first if second is None else second)
    elif second is None:
        counts += np.triu(counts, 1).T
    return counts


# --------------------------------------------------------------------------- bitmaps


def mark_sets(sets: Sequence[IntArray], universe: int, *, threads: int = 0) -> Bitmaps:
    """Bitmaps of int64 arrays of ids in ``[0, universe)``, in any order, with repeats if need be.

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
    """The ids of every bitmap, ascending int64; cut from ``slab``, if there is one."""
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
    """What deduplicated communication moves in a round (HongTu, sections 5.1, 5.2 and 6), by slot.

    Of the ``s`` slots of a round, in rows of equally large bitmaps: ``needed`` N_ij; ``transition``
    T_ij, disjoint or each equal to ``needed``; ``held``, the rows of T_i,j-1 that may stay; and
    ``read``, those that were read from peers and may. A slot's lists are 3 + 2 s ascending int64
    arrays, cut from ``slab``, if there is one: N_ij; T_ij without ``held``, and with it; of what it
    needs and has not in T_ij the rows that are in each T_kj and were not ``read``, k from 0 to
    s - 1; and in the same order those that were. Raises ``ValueError`` for tables of bitmaps of
    different shapes.
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
    """How many ids every bitmap has, int64 ``(len(bitmaps),)``."""
    _check_bitmaps(bitmaps)
    compiled = load("sets")
    if compiled is None:
        return np.array([len(ids) for ids in reference.list_marks(bitmaps)], dtype=np.int64)
    counts: IntArray = compiled.count_marks_of(bitmaps)
    return counts


def count_shared_marks(bitmaps: Bitmaps, others: Bitmaps, *, threads: int = 0) -> IntArray:
    """How many ids every bitmap shares with every other, int64 ``(len(bitmaps), len(others))``."""
    workers = resolve_threads(threads)
    _check_bitmaps(bitmaps, others)
    compiled = load("sets")
    if compiled is None:
        shared = [[len(ids) for ids in reference.list_marks(bitmap & others)] for bitmap in bitmaps]
        return np.array(shared, dtype=np.int64).reshape(len(bitmaps), len(others))
    counts: IntArray = compiled.count_shared_marks(bitmaps, others, workers)
    return counts


def _count_words(universe: int) -> int:
    """Words of a bitmap: whole cache lines."""
    return -(-universe // 512) * 8


def _other_universe(words: int, others: int) -> ValueError:
    return ValueError(
        f"bitmaps of {words} and {others} words are of two universes; pass those of one."
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


# --------------------------------------------------------------------------- checks


def _combine(operation: str, a: IndexArray, b: IndexArray) -> IndexArray:
    _check_vectors(a, b)
    compiled = load("sets")
    if compiled is None:
        _check_ascending(a, b)
        twin = {
            "UNITE": reference.unite,
            "INTERSECT": reference.intersect,
            "SUBTRACT": reference.subtract,
        }
        return twin[operation](a, b)
    result: IndexArray | None = compiled.combine(getattr(compiled, operation), a, b)
    if result is None:
        raise _not_ascending(a, b)
    return result


def _check_vectors(a: IndexArray, b: IndexArray) -> None:
    check_vector("a", a, np.dtype(np.int32))
    check_vector("b", b, np.dtype(np.int32))


def _check_ascending(a: IndexArray, b: IndexArray) -> None:
    reference.check_ascending("a", a)
    reference.check_ascending("b", b)


def _not_ascending(a: IndexArray, b: IndexArray) -> ValueError:
    """The error that the compiled loops found."""
    _check_ascending(a, b)
    return ValueError("a or b changed during the call; pass arrays that nobody writes to.")


def _check_members(name: str, sets: Sequence[IndexArray], universe: int) -> Sets:
    if not 0 <= universe < 2**31:
        raise ValueError(f"universe is {universe}; it must be from 0 to 2^31 - 1.")
    members = tuple(sets)
    for place, ids in enumerate(members):
        check_vector(f"{name}[{place}]", ids, np.dtype(np.int32))
    return members


def _check_inside(name: str, sets: Sets, universe: int) -> None:
    for place, ids in enumerate(sets):
        reference.check_inside(f"{name}[{place}]", ids, universe)


def _outside(name: str, sets: Sets, universe: int) -> ValueError:
    """The error that the compiled loops found."""
    _check_inside(name, sets, universe)
    return ValueError(f"{name} changed during the call; pass arrays that nobody writes to.")
