"""Transposed, ordered and partitioned graphs in NumPy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gnnbench.kernels.reference.sampling import MALFORMED_IDS, MALFORMED_ROWS, derive_keys
from gnnbench.records import IndexArray, IntArray

#: Edges packed into numbers, uint64.
Keys = npt.NDArray[np.uint64]

MALFORMED_COLUMNS = "indices name a column outside the matrix; use values in [0, num_columns)."
MALFORMED_SOURCES = "indices hold a negative value; use the sources' positions, from 0."
MALFORMED_ORDER = "order is not a permutation; name every vertex in [0, V) once."


def check_rows(indptr: IntArray) -> None:
    """Raise ``ValueError`` where offsets descend."""
    if (indptr[1:] < indptr[:-1]).any():  # a difference might overflow
        raise ValueError(MALFORMED_ROWS)


def check_csr(
    indptr: IntArray, indices: IndexArray, num_columns: int, message: str = MALFORMED_IDS
) -> None:
    """Raise ``ValueError`` where offsets descend or an index is outside [0, num_columns)."""
    check_rows(indptr)
    if len(indices) and (indices.min() < 0 or indices.max() >= num_columns):
        raise ValueError(message)


def name_rows(indptr: IntArray) -> IndexArray:
    """Return the row of every entry, int32 ``(E,)``."""
    return np.repeat(np.arange(len(indptr) - 1, dtype=np.int32), np.diff(indptr))


def count_up(ids: IndexArray, length: int) -> IntArray:
    """Return row pointers, int64 ``(length + 1,)``, of rows that hold each id's occurrences."""
    counts: IntArray = np.bincount(ids, minlength=length)
    return np.concatenate(([0], np.cumsum(counts)))


def transpose(
    indptr: IntArray, indices: IndexArray, num_columns: int
) -> tuple[IntArray, IndexArray, IndexArray]:
    """See :func:`gnnbench.kernels.dispatch.layout.transpose`."""
    check_csr(indptr, indices, num_columns, MALFORMED_COLUMNS)
    edge = np.argsort(indices, kind="stable").astype(np.int32)
    return count_up(indices, num_columns), name_rows(indptr)[edge], edge


def sort_edges_by_source(
    indptr: IntArray, indices: IndexArray
) -> tuple[IndexArray, IndexArray, IndexArray]:
    """See :func:`gnnbench.kernels.dispatch.layout.sort_edges_by_source`."""
    check_csr(indptr, indices, 2**31, MALFORMED_SOURCES)
    edge = np.argsort(indices, kind="stable").astype(np.int32)
    return indices[edge], name_rows(indptr)[edge], edge


def sort_keys(keys: Keys, low: int, high: int) -> Keys:
    """See :func:`gnnbench.kernels.dispatch.layout.sort_keys`."""
    digits = (keys >> np.uint64(low)) & np.uint64((1 << (high - low)) - 1)
    return keys[np.argsort(digits, kind="stable")]


def invert(order: IndexArray) -> IndexArray:
    """Return each vertex's position in ``order``; ``ValueError`` unless each is there once."""
    if not np.array_equal(np.sort(order), np.arange(len(order))):
        raise ValueError(MALFORMED_ORDER)
    position = np.empty(len(order), dtype=np.int32)
    position[order] = np.arange(len(order), dtype=np.int32)
    return position


def bandwidth(indptr: IntArray, indices: IndexArray, order: IndexArray | None = None) -> int:
    """See :func:`gnnbench.kernels.dispatch.layout.bandwidth`."""
    check_csr(indptr, indices, len(indptr) - 1)
    rows = name_rows(indptr)
    if order is not None:
        position = invert(order)
        rows, indices = position[rows], position[indices]
    return int(np.abs(rows - indices).max(initial=0))


def search_components(
    indptr: IntArray, indices: IndexArray, starts: IndexArray, rank: IndexArray
) -> list[tuple[int, list[int]]]:
    """Return every component's bandwidth and its vertices in Cuthill and McKee's order (1969).

    A component is searched breadth-first from its first vertex in ``starts``, and a vertex's new
    neighbours by rank. Its bandwidth is the largest distance from a vertex to its last neighbour
    found, which in a symmetric graph is the largest of all.
    """
    seen: set[int] = set()
    components = []
    for start in starts.tolist():
        if start in seen:
            continue
        seen.add(start)
        order, widest = [start], 0
        for at, v in enumerate(order):  # grows on the way
            found = set(indices[indptr[v] : indptr[v + 1]].tolist()) - seen
            seen |= found
            order += sorted(found, key=lambda u: int(rank[u]))
            if found:
                widest = max(widest, len(order) - 1 - at)
        components.append((widest, order))
    return components


def reverse_cuthill_mckee(
    indptr: IntArray, indices: IndexArray, starts: IndexArray, from_hubs: bool
) -> IndexArray:
    """See :func:`gnnbench.kernels.dispatch.layout.reverse_cuthill_mckee`."""
    check_csr(indptr, indices, len(indptr) - 1)
    by_rank = np.argsort(np.diff(indptr), kind="stable").astype(np.int32)
    rank = invert(by_rank)
    best = {
        frozenset(order): (width, order)
        for width, order in search_components(indptr, indices, starts, rank)
    }
    hubs = by_rank[::-1] if from_hubs else by_rank[:0]
    for width, order in search_components(indptr, indices, hubs, rank):
        same = frozenset(order)
        if same in best and width < best[same][0]:
            best[same] = width, order
    placed = [v for _, order in best.values() for v in order]
    return np.array(placed[::-1], dtype=np.int32)


def edge_cut(indptr: IntArray, indices: IndexArray, part: IndexArray) -> int:
    """See :func:`gnnbench.kernels.dispatch.layout.edge_cut`."""
    check_csr(indptr, indices, len(part))
    return int(np.count_nonzero(part[name_rows(indptr)] != part[indices]))


def list_reuse_times() -> IntArray:
    """Return the shortest reuse time of each bin of ``count_reuse_times``.

    Times below 8 have one bin each; beyond are four bins an octave, up to 2^31.
    """
    octaves = [np.arange(4, 8, dtype=np.int64) << octave for octave in range(1, 30)]
    return np.concatenate((np.arange(8, dtype=np.int64), *octaves))


def count_reuse_times(indices: IndexArray, num_columns: int) -> IntArray:
    """See :func:`gnnbench.kernels.dispatch.layout.count_reuse_times`."""
    if len(indices) and not (indices.min() >= 0 and indices.max() < num_columns):
        raise ValueError(MALFORMED_COLUMNS)
    by_value = np.argsort(indices, kind="stable")
    ordered = indices[by_value]
    times = np.diff(by_value)[ordered[1:] == ordered[:-1]]
    bins = list_reuse_times()
    found = np.searchsorted(bins, times, side="right") - 1
    counts = np.bincount(found, minlength=len(bins)).astype(np.int64)
    counts[0] = len(indices) - len(times)
    return counts


def shuffle(length: int, seed: int) -> IndexArray:
    """Return a random permutation, int32; no two keys are alike, so any sort gives the same."""
    keys = derive_keys(seed, 0, 0, np.arange(length, dtype=np.int64))
    return np.argsort(keys).astype(np.int32)


def partition_stream(
    indptr: IntArray,
    indices: IndexArray,
    order: IndexArray,
    parts: int,
    capacity: int,
    fennel: bool,
    by_work: bool,
    weight: float,
    passes: int,
) -> IndexArray:
    """See :func:`gnnbench.kernels.dispatch.layout.partition_stream`."""
    check_csr(indptr, indices, len(order))
    invert(order)
    part = np.full(len(order), -1, dtype=np.int32)
    loads = np.ones(len(order), dtype=np.int64)
    if by_work:
        loads += np.diff(indptr)
    scale = len(order) / max(int(loads.sum()), 1)
    for _ in range(passes):
        sizes = np.zeros(parts, dtype=np.int64)
        for v in order:
            placed = part[indices[indptr[v] : indptr[v + 1]]]
            counts = np.bincount(placed[placed >= 0], minlength=parts)
            if fennel:
                scores = counts - loads[v] * scale * (weight * np.sqrt(sizes * scale))
            else:
                scores = counts * (1.0 - sizes / capacity)
            scores[sizes >= capacity] = -np.inf
            # The highest score; ties go to the smallest part, then to the first.
            part[v] = np.lexsort((sizes, -scores))[0]
            sizes[part[v]] += loads[v]
    return part
