"""Neighbour sampling and induced blocks: compiled kernels, their twins, the statistics."""

import importlib.util
import itertools
import os
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
import scipy.sparse.csgraph
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnbench.check.graphs import make_dataset, make_platform, make_workload
from gnnbench.kernels import dispatch
from gnnbench.kernels.dispatch import sampling
from gnnbench.kernels.native import load
from gnnbench.kernels.reference import sampling as reference
from gnnbench.kernels.reference.sampling import WeightArray
from gnnbench.models import build
from gnnbench.parts import Setting
from gnnbench.records import Block, Graph, IntArray
from gnnbench_plugins.reference.sampler import NeighbourSampler


@dataclass(frozen=True)
class Case:
    graph: Graph
    seeds: IntArray
    fanouts: tuple[int, ...]
    seed: int
    epoch: int
    replace: bool = False
    weights: WeightArray | None = None


def make_graph(num_vertices, pairs):
    edges = sorted({(u, v) for a, b in pairs if a != b for u, v in ((a, b), (b, a))})
    rows = np.array([u for u, _ in edges], dtype=np.int64)
    counts = np.bincount(rows, minlength=num_vertices)
    indptr = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    indices = np.array([v for _, v in edges], dtype=np.int32)
    indptr.flags.writeable = indices.flags.writeable = False  # as in a memory-mapped graph
    return Graph(indptr, indices)


def star(num_leaves, centres=1):
    """Disjoint stars; vertex c * (num_leaves + 1) is the centre of the c-th."""
    size = num_leaves + 1
    pairs = {(c * size, c * size + leaf) for c in range(centres) for leaf in range(1, size)}
    return make_graph(size * centres, pairs)


@st.composite
def cases(draw):
    """Graphs of 1 to 40 vertices, dense, sparse or with isolated vertices; fan-outs below, at and
    above the degrees, and 0."""
    num_vertices = draw(st.integers(1, 40))
    vertex = st.integers(0, num_vertices - 1)
    pairs = draw(st.sets(st.tuples(vertex, vertex), max_size=6 * num_vertices))
    order = draw(st.permutations(range(num_vertices)))
    seeds = np.array(order[: draw(st.integers(0, num_vertices))], dtype=np.int64)
    seeds.flags.writeable = False
    return Case(
        graph=make_graph(num_vertices, pairs),
        seeds=seeds,
        fanouts=tuple(draw(st.lists(st.integers(0, 7), min_size=1, max_size=3))),
        seed=draw(st.integers(0, 2**64 - 1)),
        epoch=draw(st.integers(0, 1000)),
    )


def sample(case, threads=1, module=dispatch):
    options = {} if module is reference else {"threads": threads}
    blocks = module.sample_neighbours(
        case.graph.indptr,
        case.graph.indices,
        case.seeds,
        case.fanouts,
        seed=case.seed,
        epoch=case.epoch,
        replace=case.replace,
        weights=case.weights,
        **options,
    )
    return blocks


@st.composite
def other_cases(draw):
    """As ``cases``, with replacement, with weights (some of them 0), or with both."""
    case = draw(cases())
    with_replacement = draw(st.booleans())
    weights = None
    if not with_replacement or draw(st.booleans()):
        dtype = draw(st.sampled_from([np.float32, np.float64]))
        value = st.one_of(st.just(0.0), st.floats(2.0**-100, 2.0**100, width=32), st.just(1.0))
        size = case.graph.num_edges
        weights = np.array(draw(st.lists(value, min_size=size, max_size=size)), dtype=dtype)
    fanouts = tuple(fanout + with_replacement for fanout in case.fanouts)
    return replace(case, fanouts=fanouts, replace=with_replacement, weights=weights)


def assert_same(ours, theirs):
    assert ours.num_dst == theirs.num_dst
    for name, dtype in (("src_ids", np.int64), ("indptr", np.int64), ("indices", np.int32)):
        one, other = getattr(ours, name), getattr(theirs, name)
        assert one.dtype == other.dtype == dtype
        np.testing.assert_array_equal(one, other)


def assert_block(block, graph, fanout):
    """A block's invariants: sizes, rows that are sub-sequences of the graph's, sources in order."""
    assert len(block.indptr) == block.num_dst + 1
    assert block.indptr[0] == 0
    assert block.indptr[-1] == len(block.indices)
    assert len(np.unique(block.src_ids)) == block.num_src
    appearing = []
    for row, vertex in enumerate(block.dst_ids):
        local = block.indices[block.indptr[row] : block.indptr[row + 1]]
        picked = block.src_ids[local]
        whole = graph.indices[graph.indptr[vertex] : graph.indptr[vertex + 1]]
        expected = len(whole) if fanout == 0 else min(fanout, len(whole))
        assert len(picked) == expected
        assert (np.diff(picked) > 0).all()  # the graph's rows ascend, so picks do, without repeats
        assert np.isin(picked, whole).all()
        appearing += [u for u in local.tolist() if u >= block.num_dst]
    assert list(dict.fromkeys(appearing)) == list(range(block.num_dst, block.num_src))


def neighbour_sets(block):
    ids = block.src_ids[block.indices]
    rows = np.split(ids, block.indptr[1:-1]) if block.num_dst else []
    return {int(v): tuple(row.tolist()) for v, row in zip(block.dst_ids, rows, strict=True)}


def test_compiled_kernels_are_used_where_they_exist(monkeypatch):
    pure = os.environ.get("GNNBENCH_PURE", "") not in ("", "0")
    built = importlib.util.find_spec("gnnbench.kernels._sampling") is not None
    assert dispatch.compiled() == (built and not pure)
    monkeypatch.setenv("GNNBENCH_PURE", "1")
    assert load.__wrapped__("sampling") is None


@given(st.one_of(cases(), other_cases()), st.data())
def test_sampled_blocks(case, data):
    """As the twin draws them; and every vertex draws alike, with its seeds on one device or two."""
    blocks, theirs = sample(case), sample(case, module=reference)
    assert len(blocks) == len(case.fanouts)
    for block, other in zip(blocks, theirs, strict=True):
        assert_same(block, other)
    np.testing.assert_array_equal(blocks[-1].dst_ids, case.seeds)
    for inner, outer in itertools.pairwise(blocks):
        np.testing.assert_array_equal(inner.dst_ids, outer.src_ids)
    if not case.replace and case.weights is None:
        for block, fanout in zip(reversed(blocks), case.fanouts, strict=True):
            assert_block(block, case.graph, fanout)
    cut = data.draw(st.integers(0, len(case.seeds)))
    for part in (case.seeds[:cut], case.seeds[cut:]):
        alone = sample(replace(case, seeds=part.copy()))
        for block, full in zip(alone, blocks, strict=True):
            assert neighbour_sets(block).items() <= neighbour_sets(full).items()


@cache
def random_graph(num_vertices, num_pairs):
    rng = np.random.default_rng(7)
    ends = rng.integers(0, num_vertices, (num_pairs, 2)).tolist()
    return make_graph(num_vertices, {(a, b) for a, b in ends})


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("with_replacement", [False, True])
def test_threads_do_not_change_what_is_drawn(weighted, with_replacement):
    graph = random_graph(4000, 30000)
    rng = np.random.default_rng(1)
    seeds = rng.permutation(4000)[:1500].astype(np.int64)
    weights = rng.random(graph.num_edges) if weighted else None
    case = Case(graph, seeds, (5, 3), 3, 1, with_replacement, weights)
    one = sample(case, threads=1)
    for threads in (0, 2, 3):
        for block, other in zip(one, sample(case, threads=threads), strict=True):
            assert_same(block, other)
        whole = dispatch.induce_block(graph.indptr, graph.indices, seeds, threads=threads)
        assert_same(whole, reference.induce_block(graph.indptr, graph.indices, seeds))
        inner = sampling.induce_subgraph(graph.indptr, graph.indices, seeds, threads=threads)
        assert_same(inner, reference.induce_subgraph(graph.indptr, graph.indices, seeds))
    for block, other in zip(one, sample(case, module=reference), strict=True):
        assert_same(block, other)


@pytest.mark.parametrize("degree", [33, 64, 65, 1024, 1025, 3000])
def test_every_way_to_draw_equals_reference(degree):
    """One bitmap word, several, none; few picks and many."""
    graph = star(degree, 5)
    centres = np.arange(5, dtype=np.int64) * (degree + 1)
    for weights in (None, np.arange(graph.num_edges, dtype=np.float32) % 7):
        for fanout in (1, 15, 16, 17, 32, 33, 64, 65, 1000):
            case = Case(graph, centres, (fanout, 2), 5, 0, weights=weights)
            for one, other in zip(sample(case), sample(case, module=reference), strict=True):
                assert_same(one, other)


def test_draws_depend_on_every_key():
    """The same vertex draws anew for another seed or epoch, and at another distance."""

    def draw(seed, epoch, layer):
        # The centre is a destination of the inner block too, one step further from the seeds.
        case = Case(star(200), np.array([0]), (20, 20), seed, epoch)
        return neighbour_sets(sample(case)[layer])[0]

    first = draw(1, 1, -1)
    assert draw(1, 1, -1) == first
    assert first not in (draw(2, 1, -1), draw(1, 2, -1), draw(1, 1, 0))


@settings(max_examples=50)
@given(cases())
def test_induced_blocks(case):
    """Destinations in the order given, then the other sources ascending; every in-edge there. In
    a subgraph sources and destinations are the ids as given; every edge between them is there."""
    graph, seeds = case.graph, case.seeds
    block = dispatch.induce_block(graph.indptr, graph.indices, seeds)
    assert_same(block, reference.induce_block(graph.indptr, graph.indices, seeds))
    np.testing.assert_array_equal(block.dst_ids, seeds)
    others = block.src_ids[block.num_dst :]
    assert (np.diff(others) > 0).all()
    reached = set(block.src_ids[block.indices].tolist())
    assert set(others.tolist()) == reached - set(seeds.tolist())
    inner = sampling.induce_subgraph(graph.indptr, graph.indices, seeds)
    assert_same(inner, reference.induce_subgraph(graph.indptr, graph.indices, seeds))
    np.testing.assert_array_equal(inner.src_ids, seeds)
    for vertex, row in neighbour_sets(block).items():
        assert row == tuple(graph.indices[graph.indptr[vertex] : graph.indptr[vertex + 1]])
        assert neighbour_sets(inner)[vertex] == tuple(u for u in row if u in seeds)


@settings(max_examples=50)
@given(cases(), st.data())
def test_edges_are_found_in_the_graph(case, data):
    """Drawn in any order; -1 where the graph has none, or a block is not well formed inside."""
    graph = case.graph
    edges = {
        (int(source), vertex): place
        for vertex in range(graph.num_vertices)
        for place, source in enumerate(
            graph.indices[graph.indptr[vertex] : graph.indptr[vertex + 1]],
            start=int(graph.indptr[vertex]),
        )
    }
    ids = st.integers(-1, graph.num_vertices)
    src_ids = data.draw(st.lists(ids, min_size=1, max_size=9))
    count = data.draw(st.integers(0, len(src_ids)))
    columns = st.lists(st.integers(-1, len(src_ids)), max_size=6)
    rows = [data.draw(columns) for _ in range(count)]
    block = Block(
        np.array(src_ids, dtype=np.int64),
        count,
        np.cumsum([0, *map(len, rows)]),
        np.array([column for row in rows for column in row], dtype=np.int32),
    )
    expected = [
        edges.get((src_ids[column], src_ids[row]), -1) if 0 <= column < len(src_ids) else -1
        for row, columns in enumerate(rows)
        for column in columns
    ]
    assert dispatch.find_edges(graph.indptr, graph.indices, block).tolist() == expected
    for block in sample(case):
        found = dispatch.find_edges(graph.indptr, graph.indices, block)
        np.testing.assert_array_equal(graph.indices[found], block.src_ids[block.indices])


@pytest.mark.parametrize("fanout", [1, 5, 0])
def test_edges_of_long_rows_are_found_in_any_order_by_several_threads(fanout):
    graph = random_graph(3000, 200_000)
    seeds = np.random.default_rng(2).permutation(3000).astype(np.int64)
    (block,) = dispatch.sample_neighbours(
        graph.indptr, graph.indices, seeds, [fanout], seed=1, epoch=0
    )
    row = np.repeat(np.arange(3000), np.diff(block.indptr))
    mixed = np.lexsort((np.random.default_rng(3).random(len(row)), row))
    for places in (np.arange(len(row)), mixed):
        made = Block(block.src_ids, 3000, block.indptr, block.indices[places])
        found = dispatch.find_edges(graph.indptr, graph.indices, made, threads=2)
        vertex = seeds[row]
        assert ((graph.indptr[vertex] <= found) & (found < graph.indptr[vertex + 1])).all()
        np.testing.assert_array_equal(graph.indices[found], made.src_ids[made.indices])


@pytest.mark.parametrize("offsets", [[0, 1], [0, 2, 1], [1, 1, 1], [0, 1, 3]])
def test_offsets_that_are_none_have_no_edges(offsets):
    graph = star(3)
    broken = Block(np.arange(4), 2, np.array(offsets), np.array([1], dtype=np.int32))
    with pytest.raises(ValueError, match="the block's offsets"):
        dispatch.find_edges(graph.indptr, graph.indices, broken)


@pytest.mark.parametrize("count", [3, 400])
def test_few_sources_are_sorted_and_many_are_marked(count):
    graph = random_graph(6000, 40_000)
    seeds = np.random.default_rng(2).permutation(6000)[:count].astype(np.int64)
    block = dispatch.induce_block(graph.indptr, graph.indices, seeds)
    assert (64 * (block.num_src - count) < 6000) == (count == 3)
    assert_same(block, reference.induce_block(graph.indptr, graph.indices, seeds))


@settings(max_examples=50)
@given(cases(), st.data())
def test_layer_samples(case, data):
    """Compiled equals twin; a budget of new sources, all edges from those, none from others."""
    graph, seeds = case.graph, case.seeds
    budgets = data.draw(st.lists(st.integers(1, 12), min_size=1, max_size=3))
    importance = None
    if data.draw(st.booleans()):
        importance = sampling.fastgcn_importance(graph.indptr, graph.indices)
        importance[:: data.draw(st.integers(2, 5))] = 0
    arguments = {"seed": case.seed, "epoch": case.epoch, "importance": importance}
    ours = sampling.sample_layers(graph.indptr, graph.indices, seeds, budgets, **arguments)
    theirs = reference.sample_layers(graph.indptr, graph.indices, seeds, budgets, **arguments)
    for one, other in zip(ours.blocks, theirs.blocks, strict=True):
        assert_same(one, other)
    for weight, other_weight in zip(ours.weights, theirs.weights, strict=True):
        np.testing.assert_array_equal(weight, other_weight)
    dst_ids = seeds
    for block, weight, budget in zip(
        reversed(ours.blocks), reversed(ours.weights), budgets, strict=True
    ):
        np.testing.assert_array_equal(block.dst_ids, dst_ids)
        reached = reference.induce_block(graph.indptr, graph.indices, dst_ids).src_ids
        if importance is not None:
            reached = np.union1d(dst_ids, np.flatnonzero(importance))
        drawn = block.src_ids[block.num_dst :]
        assert np.isin(drawn, reached).all()
        assert (np.diff(drawn) > 0).all()
        assert len(drawn) == min(budget, len(reached) - block.num_dst)
        assert (weight >= 1).all()
        assert (weight[: block.num_dst] == 1).all()
        if len(drawn) < budget:
            assert (weight == 1).all()
        for vertex, row in neighbour_sets(block).items():
            whole = graph.indices[graph.indptr[vertex] : graph.indptr[vertex + 1]]
            assert row == tuple(whole[np.isin(whole, block.src_ids)].tolist())
        dst_ids = block.src_ids


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1))
def test_exponential_is_the_logarithm(words):
    word = np.array([0, 2**64 - 1, 2**63, *words], dtype=np.uint64)
    u = ((word >> np.uint64(11)) + np.uint64(1)).astype(np.float64) * 2.0**-53
    np.testing.assert_allclose(reference.exponential(word), -np.log(u), rtol=1e-15, atol=0)


def test_saint_samplers_keep_to_the_graph():
    """Sorted distinct ids; edges come with both ends, walks along edges."""
    keys = {"seed": 1, "epoch": 2, "round": 3}
    graph, isolated = random_graph(300, 500), make_graph(5, set())
    csr = graph.indptr, graph.indices
    for ids, most in (
        (sampling.sample_saint_nodes(*csr, 40, **keys), 40),
        (sampling.sample_saint_edges(*csr, 40, **keys), 80),
        (sampling.sample_saint_walks(*csr, 10, 4, **keys), 50),
    ):
        assert ids.dtype == np.int64
        assert most / 2 < len(ids) <= most
        assert (np.diff(ids) > 0).all()
    source, vertex = sampling.sample_saint_edges(*csr, 1, **keys)
    assert source in graph.indices[graph.indptr[vertex] : graph.indptr[vertex + 1]]
    walk = sampling.sample_saint_walks(*csr, 1, 30, **keys)
    assert len(walk) > 1
    block = sampling.induce_subgraph(*csr, walk)
    matrix = scipy.sparse.csr_matrix((np.ones(block.num_edges), block.indices, block.indptr))
    assert scipy.sparse.csgraph.connected_components(matrix)[0] == 1
    csr = isolated.indptr, isolated.indices
    assert len(sampling.sample_saint_walks(*csr, 1, 9, **keys)) == 1
    for sampler in (sampling.sample_saint_nodes, sampling.sample_saint_edges):
        with pytest.raises(ValueError, match="graph with edges"):
            sampler(*csr, 3, **keys)
        with pytest.raises(ValueError, match="budget is -1"):
            sampler(graph.indptr, graph.indices, -1, **keys)


@pytest.mark.parametrize("sums_of", [sampling.saint_node_sums, sampling.saint_edge_sums])
def test_saint_sums_may_be_kept(sums_of):
    graph = random_graph(100, 300)
    nodes = sums_of is sampling.saint_node_sums
    draw = sampling.sample_saint_nodes if nodes else sampling.sample_saint_edges
    arguments = {"seed": 0, "epoch": 0, "round": 0}
    anew = draw(graph.indptr, graph.indices, 20, **arguments)
    kept = draw(
        graph.indptr, graph.indices, 20, sums=sums_of(graph.indptr, graph.indices), **arguments
    )
    np.testing.assert_array_equal(anew, kept)
    with pytest.raises(ValueError, match="sums must be"):
        draw(graph.indptr, graph.indices, 20, sums=np.ones(7), **arguments)
    dense = np.zeros((100, 100))
    for row in range(100):
        dense[row, graph.indices[graph.indptr[row] : graph.indptr[row + 1]]] = 1
    walk = dense / np.maximum(dense.sum(axis=1), 1)[:, None]
    expected = (walk**2).sum(axis=0) if nodes else (walk + walk.T)[dense > 0]
    np.testing.assert_allclose(sums_of(graph.indptr, graph.indices), np.cumsum(expected))


def test_fastgcn_importance_is_the_squared_column_norm():
    graph = random_graph(60, 150)
    dense = np.eye(60)
    for row in range(60):
        dense[row, graph.indices[graph.indptr[row] : graph.indptr[row + 1]]] = 1
    scale = dense.sum(axis=1) ** -0.5
    expected = ((scale[:, None] * dense * scale) ** 2).sum(axis=0)
    np.testing.assert_allclose(sampling.fastgcn_importance(graph.indptr, graph.indices), expected)


@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf])
@pytest.mark.parametrize("module", [sampling, reference])
def test_bad_weights_raise(module, bad):
    graph, weights = star(3), np.ones(6)
    weights[1] = bad
    for with_replacement in (False, True):
        case = Case(graph, np.array([0]), (2,), 0, 0, with_replacement, weights)
        with pytest.raises(ValueError, match="weights hold a negative value"):
            sample(case, module=module)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"budgets": (0,)}, "at least 1"),
        ({"importance": np.ones(3)}, "importance must be a contiguous"),
        ({"importance": np.array([1, 1, 1, -1.0])}, "negative or non-finite"),
        ({"seeds": np.array([1, 1], dtype=np.int64)}, "more than once"),
    ],
)
def test_bad_layer_samples_raise(change, message):
    graph = star(3)
    arguments = {"seeds": np.array([0]), "budgets": (2,), **change}
    with pytest.raises(ValueError, match=message):
        sampling.sample_layers(graph.indptr, graph.indices, **arguments, seed=0, epoch=0)


@settings(max_examples=120)
@given(st.data())
def test_no_array_is_read_outside(data):
    """Any row pointers and ids: the compiled kernels and the twins raise alike or agree."""
    small = st.integers(-3, 9)
    wild = st.one_of(small, st.sampled_from([2**31, 2**62, -(2**63), 2**63 - 1]))
    indices = np.array(data.draw(st.lists(small, max_size=8)), dtype=np.int32)
    middle = data.draw(st.lists(wild, max_size=5))
    indptr = np.array([0, *middle, len(indices)], dtype=np.int64)
    seeds = np.array(data.draw(st.lists(st.integers(-1, 7), max_size=4)), dtype=np.int64)
    fanouts = data.draw(st.lists(st.integers(0, 3), max_size=2))
    weights = np.ones(len(indices)) if data.draw(st.booleans()) else None

    def outcomes(module):
        found = []
        for run in (
            lambda: module.sample_neighbours(
                indptr, indices, seeds, fanouts, seed=0, epoch=0, weights=weights
            ),
            lambda: (module.induce_block(indptr, indices, seeds),),
            lambda: (module.induce_subgraph(indptr, indices, seeds),),
            lambda: module.sample_layers(indptr, indices, seeds, [2], seed=0, epoch=0).blocks,
            lambda: module.sample_saint_walks(indptr, indices, 3, 2, seed=0, epoch=0, round=0),
        ):
            try:
                result = run()
            except ValueError as error:
                found.append(str(error))
                continue
            found.append(
                [
                    (b.num_dst, b.src_ids.tolist(), b.indptr.tolist(), b.indices.tolist())
                    for b in result
                ]
                if isinstance(result, tuple)
                else result.tolist()
            )
        return found

    ours = outcomes(sampling)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling, "load", lambda topic: None)
        assert outcomes(sampling) == ours


def test_numbers_of_earlier_calls_do_not_count():
    """The numbering's base rises with every call, and starts anew before it would overflow."""
    graph, seeds = random_graph(50, 200), np.arange(10, dtype=np.int64)
    before = sample(Case(graph, seeds, (3, 3), 0, 0))
    numbers = sampling._scratch.of_size(50)
    for base in (numbers[0, 50], 2**31 - 1 - 50, 2**31 - 1 - 49, 2**31 - 1):
        numbers[0, :50] = np.arange(50)
        numbers[0, 50] = max(base, 50)
        for one, other in zip(before, sample(Case(graph, seeds, (3, 3), 0, 0)), strict=True):
            assert_same(one, other)
    if load("sampling") is not None:
        assert numbers[0, 50] == before[0].num_src


def test_calls_leave_no_trace_in_each_other():
    """The scratch map is clean after every call, also after one that raised half way."""
    graph = random_graph(50, 200)
    seeds = np.arange(10, dtype=np.int64)
    before = sample(Case(graph, seeds, (3, 3), 0, 0))
    broken = graph.indices.copy()
    broken[graph.indptr[9] :] = 50
    for _ in range(2):
        with pytest.raises(ValueError, match="outside the graph"):
            dispatch.sample_neighbours(graph.indptr, broken, seeds, (0, 0), seed=0, epoch=0)
        with pytest.raises(ValueError, match="outside the graph"):
            dispatch.induce_block(graph.indptr, broken, seeds)
    for one, other in zip(before, sample(Case(graph, seeds, (3, 3), 0, 0)), strict=True):
        assert_same(one, other)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": np.array([-1])}, "outside a graph of 4 vertices"),
        ({"seeds": np.array([2, 0, 2])}, "more than once"),
        ({"seeds": np.array([0], dtype=np.int32)}, "seeds is int32"),
        ({"seeds": np.arange(4)[::2]}, "contiguous"),
        ({"seeds": np.zeros((1, 1), dtype=np.int64)}, "one-dimensional"),
        ({"fanouts": (-1,)}, "each must be 0"),
        ({"fanouts": (2**31,)}, r"below 2\^31"),
        ({"replace": True, "fanouts": (0,)}, "at least 1 with replacement"),
        ({"weights": np.ones(6, dtype=np.float16)}, "weights must be a contiguous"),
        ({"weights": np.ones(12)[::2]}, "weights must be a contiguous"),
        ({"indptr": np.array([0, 3, 4, 5, 6], dtype=np.int32)}, "indptr is int32"),
        ({"indptr": np.array([0, 3, 4, 5, 7])}, "end at the number of indices, 6"),
        ({"indptr": np.empty(0, dtype=np.int64)}, "must start at 0"),
        ({"indices": np.zeros(6, dtype=np.int64)}, "indices is int64"),
        ({"indices": np.array([1, -1, 3, 0, 0, 0], dtype=np.int32)}, "outside the graph"),
        ({"indptr": np.array([0, -1, 4, 5, 6])}, "indptr descends"),
        ({"indptr": np.array([0, 99, 4, 5, 6])}, "indptr descends"),
    ],
)
def test_bad_arguments_raise(change, message):
    graph = star(3)
    graph_and_seeds = {"indptr": graph.indptr, "indices": graph.indices, "seeds": np.array([0])}
    with pytest.raises(ValueError, match=message):
        dispatch.sample_neighbours(
            **{**graph_and_seeds, "fanouts": (3,), **change}, seed=0, epoch=0
        )


def test_neighbour_sampler_draws_with_the_workload():
    workload = make_workload()
    setting = Setting(make_dataset(), make_platform(), workload, build(workload).shapes)
    sampler = NeighbourSampler()
    sampler.begin(setting)
    seeds = sampler.rounds(2)[0]
    case = Case(setting.dataset.graph, seeds, workload.fanouts, workload.seed, 2)
    for one, other in zip(sampler.sample(seeds, 2, threads=1), sample(case), strict=True):
        assert_same(one, other)
    sampler.begin(replace(setting, workload=replace(workload, seed=workload.seed + 1)))
    assert not np.array_equal(sampler.rounds(2)[0], seeds)
