"""Transposes, vertex orders and streaming partitions, compiled and in NumPy."""

import bisect
import itertools
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csgraph

from gnnbench.kernels.dispatch import layout
from gnnbench.kernels.reference.layout import list_reuse_times


def pack(rows):
    indptr = np.cumsum([0, *map(len, rows)]).astype(np.int64)
    indices = np.array(list(itertools.chain(*rows)), dtype=np.int32)
    for array in (indptr, indices):
        array.flags.writeable = False  # as memory-mapped graphs are
    return indptr, indices


@st.composite
def matrices(draw):
    """Rectangular, with repeated entries, empty rows and columns; rows in any order."""
    num_columns = draw(st.integers(0, 20))
    row = st.lists(st.integers(0, max(num_columns - 1, 0)), max_size=8 if num_columns else 0)
    rows = draw(st.lists(row, max_size=20))
    return (*pack(rows), num_columns)


@st.composite
def graphs(draw, symmetric=True):
    """0 to 30 vertices: several components, isolated vertices, hubs."""
    num_vertices = draw(st.integers(0, 30))
    rows = [set() for _ in range(num_vertices)]
    if num_vertices:
        vertex = st.integers(0, num_vertices - 1)
        for a, b in draw(st.lists(st.tuples(vertex, vertex), max_size=3 * num_vertices)):
            if a != b:
                rows[a].add(b)
                if symmetric:
                    rows[b].add(a)
    return pack([sorted(row) for row in rows])


def orders_of(num_vertices):
    return st.permutations(range(num_vertices)).map(lambda ids: np.array(ids, dtype=np.int32))


def random_graph(num_vertices, num_pairs, seed=1):
    rng = np.random.default_rng(seed)
    ends = (num_vertices * rng.random((2, num_pairs)) ** 2).astype(np.int32)  # some vertices hubs
    matrix = sp.coo_matrix((np.ones(num_pairs), ends), shape=(num_vertices, num_vertices))
    matrix = (matrix + matrix.T).tocsr()
    matrix.setdiag(0)
    matrix.eliminate_zeros()
    matrix.sort_indices()
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32)


def both(run):
    """What the compiled kernel makes of it, and the twin; the error's text where it raises."""
    for compiled in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            if not compiled:
                patch.setattr(layout, "load", lambda topic: None)
            try:
                yield run()
            except ValueError as error:
                yield str(error)


def assert_alike(run):
    """That compiled kernel and twin agree in value, dtype and errors; returns the twin's."""
    ours, theirs = both(run)
    assert type(ours) is type(theirs), (ours, theirs)
    pairs = zip(ours, theirs, strict=True) if isinstance(theirs, tuple) else [(ours, theirs)]
    for one, other in pairs:
        if isinstance(other, np.ndarray):
            assert one.dtype == other.dtype
            assert one.flags.c_contiguous
            assert one.flags.writeable
        np.testing.assert_array_equal(one, other)
    return theirs


@given(matrices())
def test_transpose_and_edges_by_source(matrix):
    indptr, indices, num_columns = matrix
    bounds, rows, edge = assert_alike(lambda: layout.transpose(*matrix))
    assert bounds.dtype == np.int64
    assert rows.dtype == edge.dtype == np.int32
    assert len(bounds) == num_columns + 1
    columns = np.repeat(np.arange(num_columns), np.diff(bounds))
    np.testing.assert_array_equal(indices[edge], columns)
    np.testing.assert_array_equal(np.searchsorted(indptr, edge, side="right") - 1, rows)
    assert all((np.diff(row) > 0).all() for row in np.split(edge, bounds[1:-1]))
    assert len(np.unique(edge)) == len(indices)
    for one, other in zip(
        assert_alike(lambda: layout.sort_edges_by_source(indptr, indices)),
        (columns, rows, edge),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)


def test_sorting_a_few_large_sources():
    """Positions near 2^31 neither overflow nor take memory for each below them."""
    indptr = np.array([0, 2, 3], dtype=np.int64)
    indices = np.array([2**31 - 1, 5, 2**31 - 1], dtype=np.int32)
    src, dst, edge = assert_alike(lambda: layout.sort_edges_by_source(indptr, indices))
    assert src.tolist() == [5, 2**31 - 1, 2**31 - 1]
    assert (dst.tolist(), edge.tolist()) == ([0, 0, 1], [1, 0, 2])


@given(
    st.lists(st.integers(0, 2**64 - 1) | st.sampled_from([0, 3, 2**40, 2**63]), max_size=300),
    st.tuples(st.integers(0, 64), st.integers(0, 64)).map(sorted),
)
def test_keys_are_sorted_by_some_of_their_bits(keys, bits):
    low, high = bits
    array = np.array(keys, dtype=np.uint64)
    found = assert_alike(lambda: layout.sort_keys(array.copy(), low, high))
    assert found.tolist() == sorted(keys, key=lambda key: key >> low & (1 << (high - low)) - 1)


@pytest.mark.parametrize(
    ("keys", "low", "high"),
    [
        (np.zeros(3, dtype=np.int64), 0, 8),
        (np.zeros(6, dtype=np.uint64)[::2], 0, 8),
        (np.frombuffer(bytes(24), dtype=np.uint64), 0, 8),
        (np.zeros(3, dtype=np.uint64), -1, 8),
        (np.zeros(3, dtype=np.uint64), 9, 8),
        (np.zeros(3, dtype=np.uint64), 0, 65),
    ],
)
def test_keys_and_bits_that_are_none_raise(keys, low, high):
    with pytest.raises(ValueError, match="keys"):
        layout.sort_keys(keys, low, high)


def test_threads_do_not_change_results():
    graph = random_graph(3000, 120_000)
    assert len(graph[1]) > 3 * 2**16  # enough for three threads
    order = np.random.default_rng(5).permutation(3000).astype(np.int32)
    part = (order % 7).astype(np.int32)
    runs = [
        lambda threads: layout.transpose(*graph, 3000, threads=threads),
        lambda threads: layout.sort_edges_by_source(*graph, threads=threads),
        lambda threads: layout.reverse_cuthill_mckee(*graph, from_hubs=True, threads=threads),
        lambda threads: layout.bandwidth(*graph, order, threads=threads),
        lambda threads: layout.edge_cut(*graph, part, threads=threads),
    ]
    for run in runs:
        for threads in (1, 3, 64):
            assert_alike(partial(run, threads))


def test_threads_with_hubs_and_empty_rows():
    """Rows that span several threads' shares, and runs of rows without any edge."""
    rng = np.random.default_rng(2)
    degrees = np.zeros(5000, dtype=np.int64)
    degrees[[0, 17, 4000]] = 150_000, 3, 120_000
    indptr = np.concatenate(([0], np.cumsum(degrees)))
    indices = rng.integers(0, 40, indptr[-1]).astype(np.int32)
    for threads in (1, 2, 4):
        assert_alike(partial(layout.transpose, indptr, indices, 40, threads=threads))


def order_as_scipy(graph):
    indptr, indices = graph
    shape = (len(indptr) - 1, len(indptr) - 1)
    matrix = sp.csr_matrix((np.ones(len(indices)), indices, indptr), shape=shape)
    order = csgraph.reverse_cuthill_mckee(matrix, symmetric_mode=True)
    return order.astype(np.int32)


@given(graphs())
def test_cuthill_mckee_gives_the_order_of_scipy(graph):
    """From hubs the order is one of all vertices that is never wider."""
    order = assert_alike(lambda: layout.reverse_cuthill_mckee(*graph))
    hubs = assert_alike(lambda: layout.reverse_cuthill_mckee(*graph, from_hubs=True))
    assert order.dtype == hubs.dtype == np.int32
    assert sorted(hubs.tolist()) == list(range(len(graph[0]) - 1))
    if len(order):
        np.testing.assert_array_equal(order, order_as_scipy(graph))
        assert layout.bandwidth(*graph, hubs) <= layout.bandwidth(*graph, order)


def test_cuthill_mckee_from_hubs_may_be_narrower_than_scipy():
    """Graphs with enough vertices for both sorts, many components and isolated vertices."""
    widths = []
    for seed, pairs in ((4, 400), (5, 1500), (6, 4000)):
        graph = random_graph(3000, pairs, seed)
        theirs = order_as_scipy(graph)
        np.testing.assert_array_equal(
            assert_alike(partial(layout.reverse_cuthill_mckee, *graph)), theirs
        )
        order = assert_alike(partial(layout.reverse_cuthill_mckee, *graph, from_hubs=True))
        widths.append([layout.bandwidth(*graph, ids) for ids in (order, theirs)])
    assert widths == [[13, 13], [184, 208], [902, 902]]


@given(graphs(symmetric=False), st.data())
def test_bandwidth(graph, data):
    indptr, indices = graph
    order = data.draw(orders_of(len(indptr) - 1))
    rows = np.repeat(np.arange(len(order)), np.diff(indptr))
    for at in (None, order):
        place = np.arange(len(order)) if at is None else np.argsort(at)
        width = assert_alike(partial(layout.bandwidth, indptr, indices, at))
        assert width == np.abs(place[rows] - place[indices]).max(initial=0)


@given(
    graphs(),
    st.integers(1, 40),
    st.sampled_from(["ldg", "fennel"]),
    st.sampled_from(["vertices", "work"]),
    st.sampled_from([0.0, 0.1, 0.5, 1e300]),
    st.integers(1, 3),
    st.data(),
)
def test_streaming(graph, parts, method, balance, slack, passes, data):
    num_vertices = len(graph[0]) - 1
    order = data.draw(st.none() | orders_of(num_vertices))
    how = {"method": method, "balance": balance, "slack": slack, "passes": passes, "order": order}
    part = assert_alike(lambda: layout.partition_stream(*graph, parts, **how, seed=4))
    assert part.dtype == np.int32
    assert len(part) == num_vertices
    loads = np.ones(num_vertices, dtype=np.int64)
    if balance == "work":
        loads += np.diff(graph[0])
    sizes = np.bincount(part, weights=loads, minlength=parts)
    assert len(sizes) == parts
    even = -(-loads.sum() // parts)
    # The last vertex may go beyond a capacity that is not yet used up.
    beyond = loads.max(initial=1) - 1
    assert sizes.max() <= max(even, (1 + slack) * loads.sum() / parts) + beyond
    cut = assert_alike(lambda: layout.edge_cut(*graph, part))
    ends = zip(np.repeat(np.arange(num_vertices), np.diff(graph[0])), graph[1], strict=True)
    assert cut == sum(part[v] != part[u] for v, u in ends)


def blocks_graph(blocks, size):
    """Dense groups with a few edges between them, vertices shuffled."""
    rng = np.random.default_rng(0)
    group = rng.permutation(np.repeat(np.arange(blocks), size))
    likely = np.where(group[:, None] == group, 0.5, 0.01)
    upper = np.triu(rng.random((blocks * size,) * 2) < likely, 1)
    matrix = sp.csr_matrix(upper | upper.T)
    return (matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32)), group.astype(np.int32)


@pytest.mark.parametrize("method", ["ldg", "fennel"])
def test_streaming_finds_groups(method):
    graph, group = blocks_graph(4, 60)
    cuts = [
        layout.edge_cut(*graph, layout.partition_stream(*graph, 4, method=method, passes=passes))
        for passes in (1, 8)
    ]
    random = layout.edge_cut(*graph, np.random.default_rng(1).permutation(group))
    assert cuts[0] < 0.7 * random
    assert cuts[1] <= cuts[0]
    if method == "fennel":
        assert cuts[1] < 2 * layout.edge_cut(*graph, group)


def test_fennel_takes_the_part_of_the_highest_score():
    """N - alpha gamma sqrt(|P|), with gamma = 3/2 and alpha = sqrt(parts) m / V^(3/2)."""
    graph, _ = blocks_graph(4, 20)
    order = np.random.default_rng(5).permutation(80).astype(np.int32)
    part = layout.partition_stream(*graph, 3, method="fennel", slack=2.0, order=order)
    alpha = np.sqrt(3) * (len(graph[1]) / 2) / 80**1.5
    sizes, placed = np.zeros(3), np.full(80, -1)
    for vertex in order:
        near = placed[graph[1][graph[0][vertex] : graph[0][vertex + 1]]]
        scores = np.bincount(near[near >= 0], minlength=3) - 1.5 * alpha * np.sqrt(sizes)
        assert scores[part[vertex]] == pytest.approx(scores.max())
        placed[vertex] = part[vertex]
        sizes[part[vertex]] += 1


@pytest.mark.parametrize(("slack", "first"), [(0.0, 3), (0.1, 3), (0.5, 4), (1.0, 6)])
def test_slack_is_how_far_a_part_may_exceed_an_even_share(slack, first):
    """Six vertices, all of them neighbours, fill the first part up to its capacity."""
    graph = pack([[u for u in range(6) if u != v] for v in range(6)])
    order = np.arange(6, dtype=np.int32)
    part = assert_alike(lambda: layout.partition_stream(*graph, 2, slack=slack, order=order))
    assert part.tolist() == [0] * first + [1] * (6 - first)


def test_the_seed_decides_the_order_of_arrival():
    graph, _ = blocks_graph(4, 20)
    first, again, other = (layout.partition_stream(*graph, 4, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    natural = np.arange(80, dtype=np.int32)
    assert not np.array_equal(first, layout.partition_stream(*graph, 4, order=natural, seed=1))


@settings(max_examples=40)
@given(st.lists(st.integers(0, 5), max_size=60), st.integers(0, 3000))
def test_reuse_times(values, gap):
    """Values in the order given, and one more at both ends of a gap, each counted by hand."""
    indices = np.array([*values, 6, *[7] * gap, 6], dtype=np.int32)
    counts = assert_alike(lambda: layout.count_reuse_times(indices, 8))
    shortest = list_reuse_times()
    assert counts.dtype == np.int64
    assert len(counts) == len(shortest)
    expected = [0] * len(shortest)
    last = {}
    for place, value in enumerate(indices.tolist()):
        time = place - last.get(value, place)
        expected[bisect.bisect_right(shortest, time) - 1] += 1
        last[value] = place
    assert counts.tolist() == expected


def test_bins_of_reuse_times_are_quarters_of_an_octave_up_to_the_longest():
    shortest = list_reuse_times().tolist()
    assert shortest[:12] == [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14]
    assert shortest[-1] == 7 << 29
    assert all(before < after for before, after in itertools.pairwise(shortest))


GRAPH_CALLS = {
    "transpose": lambda indptr, indices: layout.transpose(indptr, indices, 3),
    "sort_edges_by_source": layout.sort_edges_by_source,
    "bandwidth": layout.bandwidth,
    "reverse_cuthill_mckee": layout.reverse_cuthill_mckee,
    "edge_cut": lambda indptr, indices: layout.edge_cut(
        indptr, indices, np.zeros(3, dtype=np.int32)
    ),
    "partition_stream": lambda indptr, indices: layout.partition_stream(indptr, indices, 2),
}


@pytest.mark.parametrize("name", GRAPH_CALLS)
@settings(max_examples=50)
@given(
    bounds=st.lists(st.sampled_from([-(2**63), -1, 0, 1, 2, 4, 5, 2**63 - 1]), max_size=4),
    values=st.lists(st.sampled_from([-(2**31), -1, 0, 1, 2, 3, 2**31 - 1]), max_size=4),
)
def test_any_arrays_are_a_graph_or_an_error(name, bounds, values):
    """Three rows or an error; whichever it is, both say the same."""
    indptr = np.array([0, *bounds[:-1], len(values)], dtype=np.int64)
    indices = np.array(values, dtype=np.int32)
    result = assert_alike(lambda: GRAPH_CALLS[name](indptr, indices))
    ascends = (indptr[1:] >= indptr[:-1]).all()
    highest = 2**31 if name == "sort_edges_by_source" else 3 if name == "transpose" else None
    limit = len(indptr) - 1 if highest is None else highest
    if not ascends or any(not 0 <= value < limit for value in values):
        assert isinstance(result, str)


@pytest.mark.parametrize("name", GRAPH_CALLS)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"indptr": np.array([0, 1, 2, 4], dtype=np.int32)}, "indptr is int32"),
        ({"indptr": np.array([0, 1, 2, 5], dtype=np.int64)}, "end at the number of indices, 4"),
        ({"indices": np.zeros(4, dtype=np.int64)}, "indices is int64"),
        ({"indices": np.array([0, 1, -1, 0], dtype=np.int32)}, "indices (name|hold)"),
    ],
)
def test_bad_graphs_raise(name, change, message):
    graph = {
        "indptr": np.array([0, 1, 2, 4], dtype=np.int64),
        "indices": np.array([1, 0, 1, 0], dtype=np.int32),
    }
    GRAPH_CALLS[name](**graph)
    for result in both(lambda: GRAPH_CALLS[name](**{**graph, **change})):
        assert isinstance(result, str)
    with pytest.raises(ValueError, match=message):
        GRAPH_CALLS[name](**{**graph, **change})


ORDER_OF_2 = np.array([1, 0], dtype=np.int32)
METIS = "metis"


BAD_ARGUMENTS = [
    (lambda g: layout.transpose(*g, -1), "num_columns is -1"),
    (lambda g: layout.transpose(*g, 1), "outside the matrix"),
    (lambda g: layout.transpose(*g, 2, threads=-1), "threads is -1"),
    (lambda g: layout.bandwidth(*g, np.array([0, 0], dtype=np.int32)), "permutation"),
    (lambda g: layout.bandwidth(*g, np.array([-1, 0], dtype=np.int32)), "permutation"),
    (lambda g: layout.bandwidth(*g, np.array([0], dtype=np.int32)), "one for each of 2"),
    (lambda g: layout.bandwidth(*g, np.array([0, 1])), "order is int64"),
    (lambda g: layout.edge_cut(*g, np.zeros(3, dtype=np.int32)), "one for each of 2"),
    (lambda g: layout.count_reuse_times(g[1], 1), "outside the matrix"),
    (lambda g: layout.count_reuse_times(g[1], 2**31), "2147483648 rows"),
    (lambda g: layout.count_reuse_times(g[0], 2), "indices is int64"),
    (lambda g: layout.partition_stream(*g, 0), "parts is 0"),
    (lambda g: layout.partition_stream(*g, 2, passes=0), "passes 0"),
    (lambda g: layout.partition_stream(*g, 2, balance=METIS), "balance is 'metis'"),
    (lambda g: layout.partition_stream(*g, 2, slack=float("nan")), "slack is nan"),
    (lambda g: layout.partition_stream(*g, 2, method=METIS), "method is 'metis'"),
    (lambda g: layout.partition_stream(*g, 2, order=ORDER_OF_2 * 0), "permutation"),
]


@pytest.mark.parametrize(("run", "message"), BAD_ARGUMENTS)
def test_bad_arguments_raise(run, message):
    graph = pack([[1], [0]])
    ours, theirs = both(lambda: run(graph))
    assert ours == theirs
    with pytest.raises(ValueError, match=message):
        run(graph)
