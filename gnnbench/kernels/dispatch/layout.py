"""The layout of a graph in memory: transposes, vertex orders, streaming partitions.

A graph is int64 ``(V+1,)`` and int32 ``(E,)`` row pointers and values in ``[0, V)``. Functions of a
graph raise ``ValueError`` for arrays of the wrong dtype or layout. They also reject rows that
descend, values outside and sizes of 2^31 or more. ``threads`` (0 = every core) never changes a
result.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from gnnbench.kernels.dispatch.checks import check_graph, check_vector
from gnnbench.kernels.native import load, resolve_threads
from gnnbench.kernels.reference import layout as reference
from gnnbench.records import IndexArray, IntArray


def transpose(
    indptr: IntArray, indices: IndexArray, num_columns: int, *, threads: int = 0
) -> tuple[IntArray, IndexArray, IndexArray]:
    """Return the transpose of a rectangular CSR, as ``(indptr, indices, edge)``.

    Parameters
    ----------
    indptr, indices
        int64 ``(R+1,)``, and int32 ``(E,)`` with values in ``[0, num_columns)``. In a block, rows
        are destinations and values are positions of sources.

    Returns
    -------
    tuple
        int64 ``(num_columns+1,)``; int32 ``(E,)``, the rows that hold each column; and int32
        ``(E,)``, the place of each entry in the original. Entries of a column stand in the
        original's order.

    Raises
    ------
    ValueError
        For a malformed CSR, and for ``num_columns`` outside ``[0, 2^31)``.
    """
    _check_matrix(indptr, indices)
    if not 0 <= num_columns < 2**31:
        raise ValueError(f"num_columns is {num_columns}; it must be from 0 to 2^31 - 1.")
    threads = resolve_threads(threads)
    compiled = load("layout")
    if compiled is None:
        return reference.transpose(indptr, indices, num_columns)
    result: tuple[IntArray, IndexArray, IndexArray] = compiled.transpose(
        indptr, indices, num_columns, threads
    )
    return result


def sort_edges_by_source(
    indptr: IntArray, indices: IndexArray, *, threads: int = 0
) -> tuple[IndexArray, IndexArray, IndexArray]:
    """Return a block's edges sorted by source, as ``(src, dst, edge)``, int32 ``(E,)`` each.

    HP-GNN (Lin et al. 2022, section 4.1) reduces memory traffic (RMT) by this layout: it loads a
    source's features once for all of its edges. Its second pass (RRA) renames the sources in the
    order in which their features are stored, so that these loads are sequential as well;
    ``gnnbench_plugins.hpgnn.layout`` does so. Edges of a source stand in the order of the block;
    ``edge`` tells which entry of ``indices`` each was.

    ``indptr`` int64 ``(R+1,)``, ``indices`` int32 ``(E,)`` of at least 0. Raises ``ValueError`` for
    arrays of the wrong dtype or layout, rows that descend and negative values.
    """
    _check_matrix(indptr, indices)
    threads = resolve_threads(threads)
    compiled = load("layout")
    lowest, highest = indices.min(initial=0), int(indices.max(initial=-1))
    # Counting visits every column, which is too slow for a few large values.
    sparse = highest > 2**20 + 8 * len(indices)
    if compiled is None or lowest < 0 or sparse:
        return reference.sort_edges_by_source(indptr, indices)
    result: tuple[IndexArray, IndexArray, IndexArray] = compiled.sort_edges_by_source(
        indptr, indices, highest + 1, threads
    )
    return result


def sort_keys(keys: reference.Keys, low: int, high: int) -> reference.Keys:
    """Return uint64 ``keys`` ``(n,)`` in the order of their bits ``low`` to ``high - 1``.

    Keys with equal bits keep their order. The sort may use the memory of ``keys``, which hold
    nothing afterwards. Raises ``ValueError`` for keys of another dtype or layout, for keys that are
    read-only, and for bits outside ``0 <= low <= high <= 64``.
    """
    check_vector("keys", keys, np.dtype(np.uint64))
    if not keys.flags.writeable or not 0 <= low <= high <= 64:
        raise ValueError(
            f"bits {low} to {high} of keys cannot be sorted; use writable keys and 0 to 64."
        )
    compiled = load("layout")
    if compiled is None:
        return reference.sort_keys(keys, low, high)
    found: reference.Keys = compiled.sort_keys(keys, low, high)
    return found


def reverse_cuthill_mckee(
    indptr: IntArray, indices: IndexArray, *, from_hubs: bool = False, threads: int = 0
) -> IndexArray:
    """Return an order that brings neighbours close: the vertex at each new place, int32 ``(V,)``.

    The order is Cuthill and McKee's ("Reducing the bandwidth of sparse symmetric matrices", 1969),
    reversed (George 1971). Each component is searched breadth-first from a vertex of lowest degree,
    and a vertex's new neighbours by degree. Ties between vertices of lowest degree go to the first
    in NumPy's ``argsort``, and ties between neighbours to the smallest id. If rows ascend,
    ``scipy.sparse.csgraph.reverse_cuthill_mckee`` therefore gives the same order.

    ``from_hubs`` searches a second time, from a vertex of highest degree, which is often better in
    graphs with hubs, and keeps for each component the order of smaller bandwidth.

    The graph should be symmetric; the order of one that is not is a permutation and no more.
    Raises ``ValueError`` for a malformed graph.
    """
    _check_matrix(indptr, indices)
    # The sort is not stable, so the order of equal degrees depends on the dtype: it must be int32.
    starts = np.argsort(np.diff(indptr).astype(np.int32)).astype(np.int32)
    threads = resolve_threads(threads)
    compiled = load("layout")
    if compiled is None:
        return reference.reverse_cuthill_mckee(indptr, indices, starts, from_hubs)
    order: IndexArray = compiled.reverse_cuthill_mckee(indptr, indices, starts, from_hubs, threads)
    return order


def bandwidth(
    indptr: IntArray, indices: IndexArray, order: IndexArray | None = None, *, threads: int = 0
) -> int:
    """Return the largest distance between the places of two neighbours, 0 without edges.

    ``order`` int32 ``(V,)`` is a permutation as :func:`reverse_cuthill_mckee` returns it; without
    it, vertices stand in the order of their ids. Raises ``ValueError`` as for every graph and for
    an order that is no permutation.
    """
    _check_matrix(indptr, indices)
    if order is not None:
        _check_vertices("order", order, len(indptr) - 1)
    threads = resolve_threads(threads)
    compiled = load("layout")
    if compiled is None:
        return reference.bandwidth(indptr, indices, order)
    return int(compiled.bandwidth(indptr, indices, order, threads))


def edge_cut(indptr: IntArray, indices: IndexArray, part: IndexArray, *, threads: int = 0) -> int:
    """Return the number of edges with their ends in different parts.

    ``part`` int32 ``(V,)`` of any value. An undirected edge, stored twice, counts twice, as in
    ``Graph.num_edges``. Raises ``ValueError`` as for every graph and for other parts.
    """
    _check_matrix(indptr, indices)
    _check_vertices("part", part, len(indptr) - 1)
    threads = resolve_threads(threads)
    compiled = load("layout")
    if compiled is None:
        return reference.edge_cut(indptr, indices, part)
    return int(compiled.edge_cut(indptr, indices, part, threads))


def count_reuse_times(indices: IndexArray, num_columns: int) -> IntArray:
    """Return the histogram of the reuse times of ``indices``, int64 ``(B,)``.

    An entry's reuse time is its distance to the last equal entry.

    ``indices`` int32 ``(E,)`` have values in ``[0, num_columns)``, which are rows that a sum reads
    one after the other. :func:`gnnbench.kernels.reference.layout.list_reuse_times` lists the
    shortest reuse time of each bin. First occurrences are in the first bin. Raises ``ValueError``
    for other values, dtypes or layouts, and for sizes of 2^31 or more.
    """
    check_vector("indices", indices, np.dtype(np.int32))
    _check_sizes(num_columns, len(indices))
    compiled = load("layout")
    if compiled is None:
        return reference.count_reuse_times(indices, num_columns)
    bins = len(reference.list_reuse_times())
    counts: IntArray = compiled.count_reuse_times(indices, num_columns, bins)
    return counts


def partition_stream(
    indptr: IntArray,
    indices: IndexArray,
    parts: int,
    *,
    method: Literal["ldg", "fennel"] = "ldg",
    balance: Literal["vertices", "work"] = "vertices",
    slack: float = 0.1,
    passes: int = 1,
    order: IndexArray | None = None,
    seed: int = 0,
) -> IndexArray:
    """Return the part of every vertex, int32 ``(V,)``, with few edges between parts.

    Vertices arrive one by one, in ``order`` (an int32 permutation) or shuffled by ``seed``. Each
    goes, for good, to a part P of less than C vertices. C is (1 + ``slack``) V / ``parts``, or V /
    ``parts`` rounded up if that is more. It goes to the part of highest score; ties go to the
    smallest part, then to the first. With ``balance`` "work", a vertex counts as 1 + D(v) vertices
    in |P|, V and C: itself and its in-edges. A part may then exceed C by its last vertex. With N
    neighbours in P, the score is

    - "ldg": N (1 - |P| / C), linear deterministic greedy (Stanton and Kliot, "Streaming graph
      partitioning for large distributed graphs", 2012, section 4);
    - "fennel": N - alpha gamma |P|^(gamma - 1), gamma = 3/2, alpha = sqrt(``parts``) m / V^(3/2)
      for m undirected edges (Tsourakakis et al., "Fennel", 2014, section 4; its slack is 0.1). A
      vertex pays for all that it counts as, in units in which all of them count V.

    Further ``passes`` stream the vertices again and count sizes anew. Neighbours that have not
    arrived yet are in the part that the last pass gave them (Nishimura and Ugander, "Restreaming
    graph partitioning", 2013). The memory needed is one number a vertex.

    Raises ``ValueError`` as for every graph, and for an order that is no permutation. Parts and
    passes must be at least 1, and the slack finite and not negative.
    """
    _check_matrix(indptr, indices)
    vertices = len(indptr) - 1
    if not 1 <= parts < 2**31 or passes < 1:
        raise ValueError(f"parts is {parts} and passes {passes}; both must be 1 or more.")
    if not (math.isfinite(slack) and slack >= 0):
        raise ValueError(f"slack is {slack}; it must be finite and 0 or more.")
    if method not in ("ldg", "fennel"):
        raise ValueError(f'method is {method!r}; it must be "ldg" or "fennel".')
    if balance not in ("vertices", "work"):
        raise ValueError(f'balance is {balance!r}; it must be "vertices" or "work".')
    if order is None:
        order = reference.shuffle(vertices, seed)
    else:
        _check_vertices("order", order, vertices)
    parts_used = max(min(parts, vertices), 1)  # more could only stay empty
    by_work = balance == "work"
    total = vertices + len(indices) if by_work else vertices
    capacity = max(math.ceil(total / parts), int(min((1 + slack) * total / parts, total)))
    weight = 0.75 * math.sqrt(parts) * len(indices) / max(vertices, 1) ** 1.5
    fennel = method == "fennel"
    arguments = (indptr, indices, order, parts_used, capacity, fennel, by_work, weight, passes)
    compiled = load("layout")
    if compiled is None:
        return reference.partition_stream(*arguments)
    part: IndexArray = compiled.partition_stream(*arguments)
    return part


def _check_matrix(indptr: IntArray, indices: IndexArray) -> None:
    check_graph(indptr, indices)
    _check_sizes(len(indptr) - 1, len(indices))


def _check_sizes(rows: int, entries: int) -> None:
    if max(rows, entries) >= 2**31:
        raise ValueError(
            f"the graph has {rows} rows and {entries} entries; at most 2^31 - 1 of each will do, "
            f"so cut it into chunks."
        )


def _check_vertices(name: str, array: IndexArray, num_vertices: int) -> None:
    check_vector(name, array, np.dtype(np.int32))
    if len(array) != num_vertices:
        raise ValueError(
            f"{name} has {len(array)} values; pass one for each of {num_vertices} vertices."
        )
