"""Sampling in NumPy.

Random numbers are counter-based (splitmix64's finaliser). The draws for a vertex follow from (seed,
epoch, layer, vertex) alone, so neither threads nor the split of a round over devices can change
them. ``layer`` is the distance from the seeds, 0 for the seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gnnbench.records import Block, IndexArray, IntArray

WordArray = npt.NDArray[np.uint64]
DoubleArray = npt.NDArray[np.float64]
WeightArray = npt.NDArray[np.float32] | DoubleArray

WORD = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio
MALFORMED_ROWS = "indptr descends or points past indices; store the graph as CSR."
MALFORMED_IDS = "indices name a vertex outside the graph; every value must be in [0, V)."
MALFORMED_WEIGHTS = (
    "weights hold a negative value or a row without a finite sum; pass one value of at least 0 "
    "for every edge."
)


def mix(z: WordArray) -> WordArray:
    """Apply splitmix64's finaliser: a bijection of 64-bit words; each bit depends on all bits."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def derive_key(*words: int) -> WordArray:
    """Return one key from several words (seed, epoch, layer), uint64 ``(1,)``."""
    key = np.zeros(1, dtype=np.uint64)
    for word in words:
        key = mix(key + np.uint64((word + GOLDEN) & WORD))
    return key


def derive_keys(seed: int, epoch: int, layer: int, vertices: IntArray) -> WordArray:
    """Return one random-number stream for each vertex, uint64 ``(len(vertices),)``."""
    key = derive_key(seed, epoch, layer)
    return mix(key + vertices.astype(np.uint64) + np.uint64(GOLDEN))


def draw_words(key: WordArray, count: int) -> WordArray:
    """Return the first ``count`` random words of each stream.

    Keys broadcast against the last axis.
    """
    return mix(key + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(GOLDEN))


def scale(words: WordArray, bounds: IntArray | np.int64) -> IntArray:
    """Return integers below ``bounds``, nearly uniform: the bias is a bound over 2^32."""
    return (((words >> np.uint64(32)) * bounds.astype(np.uint64)) >> np.uint64(32)).astype(np.int64)


def exponential(words: WordArray) -> DoubleArray:
    """Return -log(u) for u uniform in (0, 1], by the series of atanh.

    All its operations round alike everywhere, unlike the logarithms of libraries.
    """
    m, e = np.frexp(((words >> np.uint64(11)) + np.uint64(1)).astype(np.float64) * 2.0**-53)
    low = m < 0.7071067811865476
    m = np.where(low, m + m, m)
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    p = np.full_like(z, 1.0 / 23)
    for odd in range(21, 0, -2):
        p = p * z + 1.0 / odd
    return -((e - low) * 0.6931471805599453 + (s + s) * p)


def draw_positions(keys: WordArray, degrees: IntArray, fanout: int) -> IntArray:
    """Draw ``fanout`` distinct positions below each degree, ascending, int64 ``(rows, fanout)``.

    The method is Floyd's subset sampling (Bentley and Floyd, "A sample of brilliance", 1987). For j
    from d - fanout to d - 1, draw t from [0, j] *inclusive* and take t, or j if t is taken already.
    Leaving j out of the draw makes subsets with large positions too rare. Every degree must exceed
    ``fanout``.
    """
    picks = np.empty((len(keys), fanout), dtype=np.int64)
    for count in range(fanout):
        j = degrees - fanout + count
        t = scale(mix(keys + np.uint64((count + 1) * GOLDEN & WORD)), j + 1)
        taken = (picks[:, :count] == t[:, None]).any(axis=1)
        picks[:, count] = np.where(taken, j, t)
    picks.sort(axis=1)
    return picks


def check_rows(indptr: IntArray, indices: IndexArray, vertices: IntArray) -> IntArray:
    """Return the degrees of ``vertices``; ``ValueError`` if a row's bounds are invalid."""
    begin, end = indptr[vertices], indptr[vertices + 1]
    # int32 cannot number a row of more than 2^31 - 1 edges.
    if ((begin < 0) | (end < begin) | (end > len(indices)) | (end - begin > 2**31 - 1)).any():
        raise ValueError(MALFORMED_ROWS)
    return end - begin


def gather_rows(indptr: IntArray, degrees: IntArray, vertices: IntArray) -> IntArray:
    """Return the positions in ``indices`` of every in-edge of ``vertices``, row after row."""
    ends = np.cumsum(degrees)
    shift = np.repeat(indptr[vertices] - (ends - degrees), degrees)
    return shift + np.arange(len(shift), dtype=np.int64)


def check_ids(ids: IndexArray, num_vertices: int) -> None:
    """Raise ``ValueError`` for an id outside [0, num_vertices)."""
    if len(ids) and (ids.min() < 0 or ids.max() >= num_vertices):
        raise ValueError(MALFORMED_IDS)


def choose_smallest(keys: DoubleArray, count: int) -> IntArray:
    """Return the positions of the ``count`` smallest keys, ascending; ties go to the first."""
    last = np.partition(keys, count - 1)[count - 1]
    smaller = np.flatnonzero(keys < last)
    equal = np.flatnonzero(keys == last)[: count - len(smaller)]
    return np.sort(np.concatenate((smaller, equal)))


def draw_in_proportion(sums: DoubleArray, words: WordArray) -> IntArray:
    """Draw positions in proportion to weights; ``sums`` are the running sums of the weights.

    A weight of zero adds nothing, so its sum is never the first above a target. A target that is
    rounded up to the whole sum goes to the last positive weight.
    """
    u = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
    last = np.searchsorted(sums, sums[-1], side="left")
    positions: IntArray = np.minimum(np.searchsorted(sums, u * sums[-1], side="right"), last)
    return positions


def draw_row(weights: DoubleArray, fanout: int, key: WordArray, replace: bool) -> IntArray:
    """Draw positions from one row in proportion to its weights, int64."""
    running = np.cumsum(weights)
    if not (weights >= 0).all() or not np.isfinite(running[-1:]).all():
        raise ValueError(MALFORMED_WEIGHTS)
    some = np.flatnonzero(weights > 0)
    if replace and len(some):
        return draw_in_proportion(running, draw_words(key, fanout))
    if fanout == 0 or len(some) <= fanout:
        return some
    with np.errstate(over="ignore"):
        arrival = exponential(draw_words(key, len(weights)))[some] / weights[some]
    return some[choose_smallest(arrival, fanout)]


def draw_neighbours(
    indptr: IntArray,
    indices: IndexArray,
    vertices: IntArray,
    fanout: int,
    keys: WordArray,
    *,
    replace: bool = False,
    weights: WeightArray | None = None,
) -> tuple[IntArray, IndexArray]:
    """Draw neighbours of ``vertices``; return row pointers and global ids."""
    degrees = check_rows(indptr, indices, vertices)
    if weights is not None:
        rows = [np.empty(0, dtype=np.int64)]
        for begin, degree, key in zip(indptr[vertices], degrees, keys, strict=True):
            row = weights[begin : begin + degree].astype(np.float64)
            rows.append(begin + draw_row(row, fanout, key, replace))
        out = np.cumsum([len(row) for row in rows])
        return out, indices[np.concatenate(rows)]
    if replace:
        some = degrees > 0
        out = np.concatenate(([0], np.cumsum(np.where(some, fanout, 0))))
        drawn = scale(draw_words(keys[some, None], fanout), degrees[some, None])
        return out, indices[(drawn + indptr[vertices[some]][:, None]).ravel()]
    if fanout == 0:
        fanout = int(degrees.max(initial=0))
    taken = np.minimum(degrees, fanout)
    out = np.concatenate(([0], np.cumsum(taken)))
    positions = np.empty(out[-1], dtype=np.int64)
    whole = degrees <= fanout
    positions[np.repeat(whole, taken)] = gather_rows(indptr, degrees[whole], vertices[whole])
    if not whole.all():
        drawn = draw_positions(keys[~whole], degrees[~whole], fanout)
        drawn += indptr[vertices[~whole]][:, None]
        positions[np.repeat(~whole, taken)] = drawn.ravel()
    return out, indices[positions]


def sample_neighbours(
    indptr: IntArray,
    indices: IndexArray,
    seeds: IntArray,
    fanouts: Sequence[int],
    *,
    seed: int,
    epoch: int,
    replace: bool = False,
    weights: WeightArray | None = None,
) -> tuple[Block, ...]:
    """See :func:`gnnbench.kernels.dispatch.sampling.sample_neighbours`."""
    num_vertices = len(indptr) - 1
    position = np.full(num_vertices, -1, dtype=np.int32)
    order = seeds.copy()
    position[order] = np.arange(len(order), dtype=np.int32)
    blocks: list[Block] = []
    for layer, fanout in enumerate(fanouts):
        keys = derive_keys(seed, epoch, layer, order)
        out, neighbours = draw_neighbours(
            indptr, indices, order, fanout, keys, replace=replace, weights=weights
        )
        check_ids(neighbours, num_vertices)
        unseen = neighbours[position[neighbours] < 0]
        _, first = np.unique(unseen, return_index=True)
        added = unseen[np.sort(first)].astype(np.int64)
        num_dst = len(order)
        order = np.concatenate((order, added))
        position[added] = np.arange(num_dst, len(order), dtype=np.int32)
        blocks.append(Block(order, num_dst, out, position[neighbours]))
    return tuple(reversed(blocks))


def induce_block(indptr: IntArray, indices: IndexArray, dst_ids: IntArray) -> Block:
    """See :func:`gnnbench.kernels.dispatch.sampling.induce_block`."""
    num_vertices = len(indptr) - 1
    degrees = check_rows(indptr, indices, dst_ids)
    neighbours = indices[gather_rows(indptr, degrees, dst_ids)]
    check_ids(neighbours, num_vertices)
    is_source = np.zeros(num_vertices, dtype=np.bool_)
    is_source[neighbours] = True
    is_source[dst_ids] = False
    src_ids = np.concatenate((dst_ids, np.flatnonzero(is_source)))
    position = np.empty(num_vertices, dtype=np.int32)
    position[src_ids] = np.arange(len(src_ids), dtype=np.int32)
    out = np.concatenate(([0], np.cumsum(degrees)))
    return Block(src_ids, len(dst_ids), out, position[neighbours])


def induce_subgraph(indptr: IntArray, indices: IndexArray, ids: IntArray) -> Block:
    """See :func:`gnnbench.kernels.dispatch.sampling.induce_subgraph`."""
    degrees = check_rows(indptr, indices, ids)
    neighbours = indices[gather_rows(indptr, degrees, ids)]
    check_ids(neighbours, len(indptr) - 1)
    position = np.full(len(indptr) - 1, -1, dtype=np.int32)
    position[ids] = np.arange(len(ids), dtype=np.int32)
    out = np.concatenate(([0], np.cumsum(degrees)))
    return keep_edges(ids, out, position[neighbours])


def keep_edges(dst_ids: IntArray, out: IntArray, local: IndexArray) -> Block:
    """Return the block of ``dst_ids`` alone, from a CSR without its values below 0."""
    kept = local >= 0
    counts = np.concatenate(([0], np.cumsum(kept)))
    return Block(dst_ids, len(out) - 1, counts[out], local[kept])


def race(key: int, ids: IntArray, weights: DoubleArray) -> DoubleArray:
    """Draw exponential variables with rates ``weights``, one for each vertex of ``ids``."""
    streams = mix(np.uint64(key) + ids.astype(np.uint64) + np.uint64(GOLDEN))
    with np.errstate(over="ignore"):
        return exponential(draw_words(streams[:, None], 1)[:, 0]) / weights


@dataclass(frozen=True, slots=True, eq=False)
class LayerSample:
    """The blocks of a layer-wise sample, input layer first, and their sources' weights.

    ``weights`` holds float64 ``(num_src,)`` for every block: the inverse of the source's inclusion
    probability, and 1 for the destinations, which are always kept. Multiply every edge from u by
    u's weight: the expected aggregation of the block is then the whole layer's.
    """

    blocks: tuple[Block, ...]
    weights: tuple[DoubleArray, ...]


def sample_layers(
    indptr: IntArray,
    indices: IndexArray,
    seeds: IntArray,
    budgets: Sequence[int],
    *,
    seed: int,
    epoch: int,
    importance: DoubleArray | None = None,
    induce: Callable[[IntArray, IndexArray, IntArray], Block] = induce_block,
    race: Callable[[int, IntArray, DoubleArray], DoubleArray] = race,
) -> LayerSample:
    """See :func:`gnnbench.kernels.dispatch.sampling.sample_layers`."""
    dst_ids = seeds
    blocks: list[Block] = []
    weights: list[DoubleArray] = []
    for layer, budget in enumerate(budgets):
        whole = induce(indptr, indices, dst_ids)
        rows = len(dst_ids)
        candidates = neighbours = whole.src_ids[rows:]
        if importance is None:
            degrees = np.diff(whole.indptr)
            share = np.repeat(1.0 / (degrees + 1), degrees)
            sums = np.bincount(whole.indices, share, minlength=whole.num_src)
            rates = sums[rows:] / (check_rows(indptr, indices, candidates) + 1)
        else:
            is_candidate = importance > 0
            is_candidate[dst_ids] = False
            candidates = np.flatnonzero(is_candidate)
            rates = importance[candidates]
        weight = np.ones(len(candidates))
        if budget < len(candidates):
            keys = race(int(derive_key(seed, epoch, layer)[0]), candidates, rates)
            chosen = choose_smallest(keys, budget)
            threshold = np.partition(keys, budget)[budget]
            candidates = candidates[chosen]
            weight = -1.0 / np.expm1(-rates[chosen] * threshold)
        src_ids = np.concatenate((dst_ids, candidates))
        local = np.full(whole.num_src, -1, dtype=np.int32)
        local[:rows] = np.arange(rows, dtype=np.int32)
        _, at, there = np.intersect1d(
            neighbours, candidates, assume_unique=True, return_indices=True
        )
        local[rows + at] = rows + there
        blocks.append(keep_edges(src_ids, whole.indptr, local[whole.indices]))
        weights.append(np.concatenate((np.ones(rows), weight)))
        dst_ids = src_ids
    return LayerSample(tuple(reversed(blocks)), tuple(reversed(weights)))


def find_edges(
    indptr: IntArray,
    indices: IndexArray,
    dst_ids: IntArray,
    rows: IntArray,
    src_ids: IntArray,
    columns: IndexArray,
) -> IntArray:
    """See :func:`gnnbench.kernels.dispatch.sampling.find_edges`."""
    places = np.full(len(columns), -1, dtype=np.int64)
    of_edge = np.repeat(dst_ids, np.diff(rows))
    known = (of_edge >= 0) & (of_edge < len(indptr) - 1)
    known &= (columns >= 0) & (columns < len(src_ids))
    destinations, sources = of_edge[known], src_ids[columns[known]]
    low, end = indptr[destinations], indptr[destinations + 1]
    high = end.copy()
    while (open_ := low < high).any():
        middle = np.minimum((low + high) // 2, len(indices) - 1)
        below = open_ & (indices[middle] < sources)
        low = np.where(below, middle + 1, low)
        high = np.where(open_ & ~below, middle, high)
    found = low < end
    found[found] = indices[low[found]] == sources[found]
    places[known] = np.where(found, low, -1)
    return places


def invert(degrees: IntArray) -> DoubleArray:
    """Return 1 / degree, and 0 for a degree of 0."""
    return np.divide(1.0, degrees, out=np.zeros(len(degrees)), where=degrees > 0)


def fastgcn_importance(indptr: IntArray, indices: IndexArray) -> DoubleArray:
    """See :func:`gnnbench.kernels.dispatch.sampling.fastgcn_importance`."""
    degrees = np.diff(indptr)
    share = 1.0 / (degrees + 1)
    around = np.bincount(indices, np.repeat(share, degrees), minlength=len(degrees))
    return (around + share) * share


def saint_node_sums(indptr: IntArray, indices: IndexArray) -> DoubleArray:
    """See :func:`gnnbench.kernels.dispatch.sampling.saint_node_sums`."""
    degrees = np.diff(indptr)
    share = np.repeat(invert(degrees) ** 2, degrees)
    return np.cumsum(np.bincount(indices, share, minlength=len(degrees)), dtype=np.float64)


def saint_edge_sums(indptr: IntArray, indices: IndexArray) -> DoubleArray:
    """See :func:`gnnbench.kernels.dispatch.sampling.saint_edge_sums`."""
    degrees = np.diff(indptr)
    share = invert(degrees)
    return np.cumsum(np.repeat(share, degrees) + share[indices])


def sample_saint_nodes(
    sums: DoubleArray, budget: int, *, seed: int, epoch: int, round: int
) -> IntArray:
    """See :func:`gnnbench.kernels.dispatch.sampling.sample_saint_nodes`."""
    return np.unique(draw_in_proportion(sums, draw_words(derive_key(seed, epoch, round), budget)))


def sample_saint_edges(
    indptr: IntArray,
    indices: IndexArray,
    sums: DoubleArray,
    budget: int,
    *,
    seed: int,
    epoch: int,
    round: int,
) -> IntArray:
    """See :func:`gnnbench.kernels.dispatch.sampling.sample_saint_edges`."""
    edges = draw_in_proportion(sums, draw_words(derive_key(seed, epoch, round), budget))
    rows = np.searchsorted(indptr, edges, side="right") - 1
    rows = rows.clip(0, len(indptr) - 2)
    if ((indptr[rows] > edges) | (indptr[rows + 1] <= edges)).any():
        raise ValueError(MALFORMED_ROWS)
    check_ids(indices[edges], len(indptr) - 1)
    return np.unique(np.concatenate((rows, indices[edges])))


def sample_saint_walks(
    indptr: IntArray,
    indices: IndexArray,
    roots: int,
    length: int,
    *,
    seed: int,
    epoch: int,
    round: int,
) -> IntArray:
    """See :func:`gnnbench.kernels.dispatch.sampling.sample_saint_walks`."""
    num_vertices = len(indptr) - 1
    keys = derive_keys(seed, epoch, round, np.arange(roots, dtype=np.int64))
    words = draw_words(keys[:, None], length + 1)
    at = scale(words[:, 0], np.int64(num_vertices))
    visited = [at]
    for step in range(1, length + 1):
        degrees = check_rows(indptr, indices, at)
        moves = degrees > 0
        at = at.copy()
        reached = indices[indptr[at[moves]] + scale(words[moves, step], degrees[moves])]
        check_ids(reached, num_vertices)
        at[moves] = reached
        visited.append(at)
    return np.unique(np.concatenate(visited))
