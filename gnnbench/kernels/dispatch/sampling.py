"""Drawing mini-batches: neighbour, layer-wise and subgraph sampling, and induced blocks.

HP-GNN distinguishes the same three families (Lin et al. 2022, section 2.3).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial

import numpy as np

from gnnbench.kernels.dispatch.checks import check_distinct, check_graph, check_vector
from gnnbench.kernels.native import load, resolve_threads
from gnnbench.kernels.reference import sampling as reference
from gnnbench.kernels.reference.sampling import DoubleArray, LayerSample, WeightArray
from gnnbench.records import Block, IndexArray, IntArray


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
    threads: int = 0,
) -> tuple[Block, ...]:
    """Sample the blocks below ``seeds``; input layer first.

    ``indptr`` int64 ``(V+1,)`` and ``indices`` int32 ``(E,)`` are the in-neighbour CSR, ``seeds``
    int64, each once. ``fanouts`` run from the seeds outwards: ``fanouts[0]`` is the last block's.

    Without replacement, a vertex with at most that many in-neighbours, or a fan-out of 0, keeps all
    of them. A row's picks stand in the order of the graph's row. With ``replace``, each vertex that
    has in-neighbours draws exactly that many times. Its picks stand in the order drawn, and a
    repeated edge is listed each time.

    With ``weights``, float32 or float64 ``(E,)``, each draw is proportional to the edge's weight;
    without them, it is uniform. An edge of weight 0 is never drawn nor kept. Without replacement
    this is successive sampling by exponential keys. It takes the ``fanout`` smallest -log(u) /
    weight (Efraimidis and Spirakis, "Weighted random sampling with a reservoir", 2006).

    Sources follow the destinations in the order in which they first appear. The blocks' ``src_ids``
    are views of one array, each a prefix of the next outer one. The draws for a vertex depend only
    on (seed, epoch, distance from the seeds, vertex). They depend neither on ``threads`` (0 = every
    core) nor on the other seeds.

    Raises ``ValueError`` for arrays of the wrong dtype or layout, seeds out of range or repeated,
    negative fan-outs, and a fan-out of 0 with replacement. In the rows that are read, it rejects
    bounds or neighbours outside the graph, and weights that are negative or have no finite sum.
    """
    check_graph(indptr, indices)
    check_vector("seeds", seeds, np.dtype(np.int64))
    widths = _read_fanouts(fanouts, replace=replace)
    if weights is not None:
        _check_weights("weights", weights, len(indices))
    compiled = load("sampling")
    if compiled is None:
        check_distinct("seeds", seeds, len(indptr) - 1)
        return reference.sample_neighbours(
            indptr, indices, seeds, widths, seed=seed, epoch=epoch, replace=replace, weights=weights
        )
    order, layers = compiled.sample_neighbours(
        indptr,
        indices,
        seeds,
        widths,
        seed & reference.WORD,
        epoch & reference.WORD,
        replace,
        weights,
        resolve_threads(threads),
        _scratch.of_size(len(indptr) - 1),
    )
    return _cut_blocks(order, layers)


def _cut_blocks(
    order: IntArray, layers: Sequence[tuple[int, IntArray, IndexArray]]
) -> tuple[Block, ...]:
    """Return blocks, input layer first; their sources are prefixes of ``order``.

    Each layer, from the seeds outwards, has its number of destinations and its CSR.
    """
    num_src = [*(rows for rows, _, _ in layers), len(order)][1:]
    return tuple(
        Block(order[:size], rows, out, local)
        for size, (rows, out, local) in reversed(list(zip(num_src, layers, strict=True)))
    )


def induce_block(
    indptr: IntArray, indices: IndexArray, dst_ids: IntArray, *, threads: int = 0
) -> Block:
    """Return the block of every in-edge of ``dst_ids``: these first, then other sources ascending.

    Dtypes and errors as for :func:`sample_neighbours`; edges stay in the order of the graph's rows.
    """
    check_graph(indptr, indices)
    check_vector("dst_ids", dst_ids, np.dtype(np.int64))
    compiled = load("sampling")
    if compiled is None:
        check_distinct("dst_ids", dst_ids, len(indptr) - 1)
        return reference.induce_block(indptr, indices, dst_ids)
    src_ids, out, local = compiled.induce_block(
        indptr, indices, dst_ids, resolve_threads(threads), _scratch.of_size(len(indptr) - 1)
    )
    return Block(src_ids, len(dst_ids), out, local)


def induce_subgraph(
    indptr: IntArray, indices: IndexArray, ids: IntArray, *, threads: int = 0
) -> Block:
    """Return the block of the edges with both ends in ``ids``, its destinations and sources.

    Dtypes and errors as for :func:`sample_neighbours`; edges stay in the order of the graph's rows.
    """
    check_graph(indptr, indices)
    check_vector("ids", ids, np.dtype(np.int64))
    compiled = load("sampling")
    if compiled is None:
        check_distinct("ids", ids, len(indptr) - 1)
        return reference.induce_subgraph(indptr, indices, ids)
    out, local = compiled.induce_subgraph(
        indptr, indices, ids, resolve_threads(threads), _scratch.of_size(len(indptr) - 1)
    )
    return Block(ids, len(ids), out, local)


def find_edges(
    indptr: IntArray, indices: IndexArray, block: Block, *, threads: int = 0
) -> IntArray:
    """Return the position of each of a block's edges in the graph's ``indices``, int64 ``(E,)``.

    It is -1 for an edge that the graph does not have.

    Rows of the graph must ascend; rows of the block need not. ``threads`` is as in
    ``sample_neighbours``. Raises ``ValueError`` if ``indptr`` of the block is not a valid CSR.
    """
    check_graph(indptr, indices)
    count = block.num_dst
    rows, sources, dst_ids = (
        np.ascontiguousarray(each, dtype=np.int64)
        for each in (block.indptr, block.src_ids, block.dst_ids)
    )
    columns = np.ascontiguousarray(block.indices, dtype=np.int32)
    if len(rows) != count + 1 or rows[0] != 0 or rows[-1] != block.num_edges:
        raise ValueError(f"the block's offsets are not for {count:,} rows")
    if (rows[1:] < rows[:-1]).any():
        raise ValueError("the block's offsets decrease")
    compiled = load("sampling")
    if compiled is None:
        return reference.find_edges(indptr, indices, dst_ids, rows, sources, columns)
    places: IntArray = compiled.find_edges(
        indptr, indices, dst_ids, rows, sources, columns, resolve_threads(threads)
    )
    return places


def sample_layers(
    indptr: IntArray,
    indices: IndexArray,
    seeds: IntArray,
    budgets: Sequence[int],
    *,
    seed: int,
    epoch: int,
    importance: DoubleArray | None = None,
    threads: int = 0,
) -> LayerSample:
    """Sample layer-wise: draw ``budgets[l]`` new sources for the whole l-th layer from the seeds.

    Graph and seeds as for :func:`sample_neighbours`. The candidates of a layer are the
    in-neighbours of its destinations that are not destinations, which stay sources in any case.
    They are drawn without replacement, with one exponential key for each vertex. The law is LADIES
    (Zou et al., "Layer-Dependent Importance Sampling", 2019, Algorithm 1): in proportion to the sum
    over the layer's rows v of P_vu^2. Here P = D'^-1/2 (A + I) D'^-1/2 and D' = D + 1. LADIES
    itself also draws the destinations, so part of its budget may go to vertices that it already
    has.

    With ``importance`` float64 ``(V,)``, the same for every layer, every vertex of positive
    importance is a candidate. With :func:`fastgcn_importance` this is FastGCN.

    A block has the edges between its destinations and from the drawn sources. The drawn sources
    follow the destinations, ascending. A layer with no more candidates than its budget takes all.
    ``weights`` are the inverse of each source's inclusion probability, given the key of the first
    vertex left out. This makes estimates unbiased (Cohen and Kaplan, "Summarizing data using
    bottom-k sketches", 2007).

    Raises ``ValueError`` as :func:`sample_neighbours` does, for budgets below 1, and for an
    importance that is negative, not finite or not of that shape.
    """
    check_graph(indptr, indices)
    check_vector("seeds", seeds, np.dtype(np.int64))
    check_distinct("seeds", seeds, len(indptr) - 1)
    sizes = [int(budget) for budget in budgets]
    if any(size < 1 for size in sizes):
        raise ValueError(f"budgets are {sizes}; each must be at least 1.")
    if importance is not None:
        _check_weights("importance", importance, len(indptr) - 1)
        if not (np.isfinite(importance) & (importance >= 0)).all():
            raise ValueError("importance has negative or non-finite values; pass only others.")
        importance = importance.astype(np.float64, copy=False)
    compiled = load("sampling")
    return reference.sample_layers(
        indptr,
        indices,
        seeds,
        sizes,
        seed=seed,
        epoch=epoch,
        importance=importance,
        induce=partial(induce_block, threads=threads),
        race=reference.race if compiled is None else compiled.race,
    )


def fastgcn_importance(indptr: IntArray, indices: IndexArray) -> DoubleArray:
    """Return every vertex's squared column norm of P = D'^-1/2 (A + I) D'^-1/2, float64 ``(V,)``.

    FastGCN (Chen, Ma and Xiao 2018, Algorithm 2) draws in proportion to it. ``ValueError`` for a
    malformed graph.
    """
    _check_whole_graph(indptr, indices)
    return reference.fastgcn_importance(indptr, indices)


def saint_node_sums(indptr: IntArray, indices: IndexArray) -> DoubleArray:
    """Return the running sums of the weights of :func:`sample_saint_nodes`, float64 ``(V,)``.

    The weight is the squared column norm of D^-1 A: the sum of 1 / D(v)^2 over the rows v that u is
    in.
    """
    _check_whole_graph(indptr, indices)
    return reference.saint_node_sums(indptr, indices)


def saint_edge_sums(indptr: IntArray, indices: IndexArray) -> DoubleArray:
    """Return the running sums of the weights of :func:`sample_saint_edges`, float64 ``(E,)``.

    The weight is 1 / D(u) + 1 / D(v) for the edge u, v. A degree of 0, which occurs in graphs that
    are not symmetric, adds nothing.
    """
    _check_whole_graph(indptr, indices)
    return reference.saint_edge_sums(indptr, indices)


def sample_saint_nodes(
    indptr: IntArray,
    indices: IndexArray,
    budget: int,
    *,
    seed: int,
    epoch: int,
    round: int,
    sums: DoubleArray | None = None,
) -> IntArray:
    """Sample sorted distinct ids, int64, by GraphSAINT's node sampler.

    The sampler (Zeng et al. 2020, Algorithm 2) draws ``budget`` vertices with replacement in
    proportion to the squared column norm of D^-1 A, the paper's choice. ``sums`` are what
    :func:`saint_node_sums` returns for this graph; without them every call computes them anew.

    Raises ``ValueError`` for a malformed graph, a negative budget, sums of the wrong dtype or
    shape, and a graph without edges.
    """
    check_graph(indptr, indices)
    _check_counts(budget=budget)
    if sums is None:
        sums = saint_node_sums(indptr, indices)
    _check_sums(sums, len(indptr) - 1)
    return reference.sample_saint_nodes(sums, budget, seed=seed, epoch=epoch, round=round)


def sample_saint_edges(
    indptr: IntArray,
    indices: IndexArray,
    budget: int,
    *,
    seed: int,
    epoch: int,
    round: int,
    sums: DoubleArray | None = None,
) -> IntArray:
    """Sample sorted distinct ids, int64, by GraphSAINT's edge sampler.

    The sampler (Zeng et al. 2020, Algorithm 2) draws ``budget`` edges u, v with replacement in
    proportion to 1 / D(u) + 1 / D(v); the ids are their ends. ``sums`` are what
    :func:`saint_edge_sums` returns for this graph. Errors as for :func:`sample_saint_nodes`.
    """
    check_graph(indptr, indices)
    _check_counts(budget=budget)
    if sums is None:
        sums = saint_edge_sums(indptr, indices)
    _check_sums(sums, len(indices))
    return reference.sample_saint_edges(
        indptr, indices, sums, budget, seed=seed, epoch=epoch, round=round
    )


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
    """Sample sorted distinct ids, int64, by GraphSAINT's random walks.

    The sampler (Zeng et al. 2020, Algorithm 2) draws ``roots`` vertices uniformly with replacement.
    From each, ``length`` steps go to a uniformly drawn in-neighbour, or stay where there is none.
    The ids are all vertices visited.

    Raises ``ValueError`` for a malformed graph, negative counts, and roots in an empty graph.
    """
    check_graph(indptr, indices)
    _check_counts(roots=roots, length=length)
    if roots and len(indptr) == 1:
        raise ValueError("roots cannot be drawn from a graph without vertices; pass roots=0.")
    return reference.sample_saint_walks(
        indptr, indices, roots, length, seed=seed, epoch=epoch, round=round
    )


def _read_fanouts(fanouts: Sequence[int], *, replace: bool) -> list[int]:
    widths = [int(fanout) for fanout in fanouts]
    if any(width < int(replace) for width in widths):
        raise ValueError(
            f"fanouts are {widths}; each must be "
            + ("at least 1 with replacement." if replace else "0 (every neighbour) or more.")
        )
    if any(width >= 2**31 for width in widths):
        raise ValueError(f"fanouts are {widths}; each must be below 2^31, or 0 for all.")
    return widths


def _check_counts(**counts: int) -> None:
    for name, count in counts.items():
        if count < 0:
            raise ValueError(f"{name} is {count}; it must be 0 or more.")


def _check_whole_graph(indptr: IntArray, indices: IndexArray) -> None:
    check_graph(indptr, indices)
    if (indptr[1:] < indptr[:-1]).any():
        raise ValueError(reference.MALFORMED_ROWS)
    reference.check_ids(indices, len(indptr) - 1)


def _check_sums(sums: DoubleArray, length: int) -> None:
    _check_weights("sums", sums, length)
    if not (length and sums.dtype == np.float64 and 0 < sums[-1] < np.inf):
        raise ValueError("sums must be float64 and end above 0; draw from a graph with edges.")


def _check_weights(name: str, weights: WeightArray, length: int) -> None:
    if not isinstance(weights, np.ndarray) or (
        weights.dtype not in (np.float32, np.float64)
        or weights.shape != (length,)
        or not weights.flags.c_contiguous
    ):
        raise ValueError(
            f"{name} must be a contiguous float32 or float64 array of shape ({length},)."
        )


class _Scratch(threading.local):
    """A thread's numbering of vertices, kept for graphs of one size: int32 ``(2, V + 1)``.

    The first row maps a vertex to its number plus a base, which stands in the last column. Each
    call raises the base above all that it wrote, so no call has to clear the row. The second row
    lists the numbered vertices.
    """

    def __init__(self) -> None:
        self.numbers: IndexArray = np.empty((2, 0), dtype=np.int32)

    def of_size(self, num_vertices: int) -> IndexArray:
        if num_vertices >= 2**31:
            raise ValueError(f"the graph has {num_vertices} vertices; at most 2^31 - 1 will do.")
        if self.numbers.shape[1] != num_vertices + 1:
            self.numbers = np.full((2, num_vertices + 1), -1, dtype=np.int32)
            self.numbers[0, num_vertices] = 0
        return self.numbers


_scratch = _Scratch()
