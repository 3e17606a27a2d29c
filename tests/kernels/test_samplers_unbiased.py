"""What the samplers draw, counted over many draws, against the probabilities that they promise.

The seeds are fixed: a test that passes once passes always. A p-value below 1e-3 fails.
"""

import itertools
from collections import Counter

import numpy as np
import pytest
import scipy.stats

from gnnbench.kernels.dispatch import sampling
from gnnbench.records import Graph


def stars(degree, centres):
    """``centres`` vertices with the same ``degree`` in-neighbours, which have none."""
    counts = np.concatenate((np.full(centres, degree), np.zeros(degree, dtype=np.int64)))
    leaves = np.tile(np.arange(centres, centres + degree, dtype=np.int32), centres)
    return Graph(np.concatenate(([0], np.cumsum(counts))).astype(np.int64), leaves)


def draw_stars(degree, fanout, centres, replace=False, weights=None, epoch=0):
    """What each centre drew, as positions in its row, int64 ``(centres, fanout)``."""
    graph = stars(degree, centres)
    all_weights = None if weights is None else np.tile(weights, centres)
    (block,) = sampling.sample_neighbours(
        graph.indptr,
        graph.indices,
        np.arange(centres, dtype=np.int64),
        (fanout,),
        seed=5,
        epoch=epoch,
        replace=replace,
        weights=all_weights,
    )
    return block.src_ids[block.indices].reshape(centres, fanout) - centres


def assert_distribution(drawn, expected):
    """Chi-square of the rows of ``drawn`` against each outcome's probability."""
    counts = Counter(map(tuple, drawn.tolist()))
    possible = [outcome for outcome, p in expected.items() if p > 0]
    assert set(counts) <= set(possible)
    expectation = np.array([expected[outcome] for outcome in possible]) * len(drawn)
    observed = [counts[outcome] for outcome in possible]
    assert expectation.min() > 5
    assert scipy.stats.chisquare(observed, expectation).pvalue > 1e-3


def successive(weights, count):
    """Probability of each set of ``count``, drawn one after the other in proportion to weights."""
    found = dict.fromkeys(itertools.combinations(range(len(weights)), count), 0.0)
    for order in itertools.permutations(range(len(weights)), count):
        p, left = 1.0, sum(weights)
        for pick in order:
            p *= weights[pick] / left
            left -= weights[pick]
        found[tuple(sorted(order))] += p
    return found


@pytest.mark.parametrize(("degree", "fanout"), [(4, 2), (5, 1), (5, 4), (9, 4), (12, 2)])
def test_every_subset_is_equally_likely(degree, fanout):
    drawn = draw_stars(degree, fanout, 30_000)
    subsets = list(itertools.combinations(range(degree), fanout))
    assert_distribution(drawn, dict.fromkeys(subsets, 1 / len(subsets)))


@pytest.mark.parametrize(
    ("degree", "fanout"), [(40, 25), (64, 10), (65, 17), (300, 25), (1100, 10), (80, 40)]
)
def test_every_neighbour_is_equally_likely(degree, fanout):
    """Degrees for which the kernel draws in different ways, as do fan-outs to 16, to 32, above."""
    drawn = draw_stars(degree, fanout, 10_000)
    mean = len(drawn) * fanout / degree
    spread = ((np.bincount(drawn.ravel(), minlength=degree) - mean) ** 2).sum() / mean
    # Counts of samples without replacement vary less than those of independent draws.
    statistic = spread * (degree - 1) / (degree - fanout)
    assert scipy.stats.chi2.sf(statistic, degree - 1) > 1e-3


@pytest.mark.parametrize(("degree", "fanout"), [(2, 3), (3, 3), (4, 2), (10, 2)])
def test_draws_with_replacement_are_independent(degree, fanout):
    outcomes = list(itertools.product(range(degree), repeat=fanout))
    drawn = draw_stars(degree, fanout, 30_000, replace=True)
    assert_distribution(drawn, dict.fromkeys(outcomes, 1 / len(outcomes)))


WEIGHTS = [
    np.array([1.0, 2, 3, 4]),
    np.array([5.0, 0, 1, 1, 0]),
    np.array([1.0, 0.5, 10, 1, 1, 2]),
    np.array([2e-300, 1e-300, 1e-300]),
]


@pytest.mark.parametrize("weights", WEIGHTS)
def test_weighted_draws_without_replacement(weights):
    drawn = draw_stars(len(weights), 2, 30_000, weights=weights)
    assert_distribution(drawn, successive(weights.tolist(), 2))


@pytest.mark.parametrize("weights", WEIGHTS)
def test_weighted_draws_with_replacement(weights):
    drawn = draw_stars(len(weights), 2, 30_000, replace=True, weights=weights)
    p = weights / weights.sum()
    outcomes = itertools.product(range(len(weights)), repeat=2)
    assert_distribution(drawn, {(a, b): p[a] * p[b] for a, b in outcomes})


def random_graph(num_vertices, num_pairs):
    """A symmetric graph whose degrees differ."""
    rng = np.random.default_rng(4)
    dense = np.zeros((num_vertices, num_vertices), dtype=bool)
    ends = (num_vertices * rng.random((2, num_pairs)) ** 2).astype(np.int64)
    dense[ends[0], ends[1]] = dense[ends[1], ends[0]] = True
    np.fill_diagonal(dense, False)
    rows, columns = np.nonzero(dense)
    indptr = np.searchsorted(rows, np.arange(num_vertices + 1)).astype(np.int64)
    return Graph(indptr, columns.astype(np.int32))


def test_layer_draws_follow_the_importance():
    """LADIES: candidates of two destinations, each draw in proportion to the column's norm."""
    graph = random_graph(12, 30)
    seeds = np.array([9, 10], dtype=np.int64)
    norm = 1.0 / np.sqrt(graph.degrees + 1)
    rates = np.zeros(12)
    for seed in seeds:
        row = graph.indices[graph.indptr[seed] : graph.indptr[seed + 1]]
        rates[row] += (norm[seed] * norm[row]) ** 2
    rates[seeds] = 0
    drawn = []
    for epoch in range(5000):
        (block,) = sampling.sample_layers(
            graph.indptr, graph.indices, seeds, (2,), seed=3, epoch=epoch
        ).blocks
        drawn.append(block.src_ids[2:])
    assert_distribution(np.array(drawn), successive(rates.tolist(), 2))


@pytest.mark.parametrize("distribution", ["layer", "global"])
def test_layer_weights_make_sums_unbiased(distribution):
    """Two layers of weighted sums, against the sums over everything."""
    graph = random_graph(60, 300)
    seeds = np.arange(0, 60, 13, dtype=np.int64)
    importance = None
    if distribution == "global":
        importance = sampling.fastgcn_importance(graph.indptr, graph.indices)
    dense = np.zeros((60, 60))
    for vertex in range(60):
        dense[vertex, graph.indices[graph.indptr[vertex] : graph.indptr[vertex + 1]]] = 1
    values = np.random.default_rng(0).random(60)
    estimates = np.empty((1500, len(seeds)))
    for epoch in range(len(estimates)):
        sample = sampling.sample_layers(
            graph.indptr, graph.indices, seeds, (9, 15), seed=1, epoch=epoch, importance=importance
        )
        h = values[sample.blocks[0].src_ids]
        for block, weights in zip(sample.blocks, sample.weights, strict=True):
            rows = np.repeat(np.arange(block.num_dst), np.diff(block.indptr))
            h = np.bincount(rows, (weights * h)[block.indices], minlength=block.num_dst)
        estimates[epoch] = h
    assert scipy.stats.ttest_1samp(estimates, (dense @ dense @ values)[seeds]).pvalue.min() > 1e-3


def draw_saint(sample, graph, *budgets):
    return np.array([
        sample(graph.indptr, graph.indices, *budgets, seed=2, epoch=1, round=round)
        for round in range(5000)
    ])  # fmt: skip


def test_saint_nodes_follow_the_column_norm():
    graph = random_graph(12, 30)
    drawn = draw_saint(sampling.sample_saint_nodes, graph, 1)
    rows = np.repeat(np.arange(12), graph.degrees)
    norms = np.bincount(graph.indices, 1.0 / graph.degrees[rows] ** 2, minlength=12)
    p = norms / norms.sum()
    assert_distribution(drawn, {(v,): p[v] for v in range(12)})


def test_saint_edges_follow_the_degrees():
    graph = random_graph(12, 30)
    drawn = draw_saint(sampling.sample_saint_edges, graph, 1)
    rows = np.repeat(np.arange(12), graph.degrees)
    pairs = [(int(u), int(v)) for u, v in zip(rows, graph.indices, strict=True) if u < v]
    shares = [1 / graph.degrees[u] + 1 / graph.degrees[v] for u, v in pairs]
    expected = {pair: share / sum(shares) for pair, share in zip(pairs, shares, strict=True)}
    assert_distribution(drawn, expected)


def test_saint_edges_of_a_directed_graph_follow_in_degrees():
    """A source without in-edges adds nothing to its edges' shares."""
    edges = [(0, 1), (0, 2), (0, 3), (1, 2), (3, 1)]
    rows = np.array([v for v, _ in edges])
    indptr = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=4)))).astype(np.int64)
    graph = Graph(indptr, np.array([u for _, u in edges], dtype=np.int32), directed=True)
    drawn = draw_saint(sampling.sample_saint_edges, graph, 1)
    degrees = graph.degrees.tolist()
    shares = [sum(1 / degrees[each] for each in edge if degrees[each]) for edge in edges]
    expected = {}
    for edge, share in zip(edges, shares, strict=True):
        pair = min(edge), max(edge)
        expected[pair] = expected.get(pair, 0.0) + share / sum(shares)
    assert_distribution(drawn, expected)


def test_saint_walks_are_uniform():
    graph = random_graph(12, 30)
    drawn = draw_saint(sampling.sample_saint_walks, graph, 1, 1)
    expected = Counter()
    for root in range(12):
        row = graph.indices[graph.indptr[root] : graph.indptr[root + 1]].tolist()
        for step in row:
            expected[(min(root, step), max(root, step))] += 1 / 12 / len(row)
    assert (graph.degrees > 0).all()
    assert_distribution(drawn, expected)
