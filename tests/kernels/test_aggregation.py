"""Sums, means, maxima and numbers on edges: compiled kernels, their twins, dense products."""

import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnbench.kernels.dispatch import aggregation
from gnnbench.kernels.dispatch.aggregation import SparseMatrix
from gnnbench.kernels.native import load
from gnnbench.kernels.reference.aggregation import Float
from tests.kernels.conftest import LEVELS

WAYS = ["in place", "packed", "blocked"]
DTYPES = [np.dtype(np.float32), np.dtype(np.float64)]
#: Bytes of a vector and vectors of a tile, which stay in registers.
VECTORS = {"baseline": (16, 12), "avx2": (32, 12), "avx512": (64, 20)}

needs_compiled = pytest.mark.skipif(load("aggregation") is None, reason="kernels are not compiled")


def list_widths(level, dtype):
    """Widths for each number of vectors that a tile may have, with every tail, and for more tiles.

    The compiled loops have one copy for each of these numbers.
    """
    size, registers = VECTORS[level]
    lanes = size // dtype.itemsize
    counts = [*range(1, registers + 1), registers + 1, 2 * registers + 1]
    return [1, *(lanes * count - count % lanes for count in counts)]


@dataclass
class Case:
    matrix: SparseMatrix
    h: Float
    factors: dict[str, Any]

    def run(self, **options):
        return aggregation.aggregate(self.matrix, self.h, **self.factors, **options)

    def expected(self, before=None):
        """What the twin gives, or makes of what was there ``before``."""
        added = {} if before is None else {"out": before.copy(), "add": True}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(aggregation, "load", lambda topic: None)
            return self.run(**added)

    def force(self, way, threads):
        """Makes this the way that was fastest, whatever the size."""
        weighted = "weight" in self.factors or "src_scale" in self.factors
        mask = self.factors.get("mask")
        eighths = 8 if mask is None or mask.size == 0 else aggregation.count_eighths(mask)
        trials = self.matrix.trials(self.h.shape[1], self.h.itemsize, threads, weighted, eighths)
        trials.seconds.clear()
        trials.seconds[way] = [0.0, 0.0]


def make_matrix(num_dst, num_src, num_edges, seed=0, ascending=True):
    """Random edges, some of them more than once; every third row is empty, the first is long."""
    generator = np.random.default_rng(seed)
    rows = generator.integers(0, num_dst, num_edges)
    rows = np.where(rows % 3 == 1, 0, rows)
    indices = generator.integers(0, num_src, num_edges).astype(np.int32)
    order = np.lexsort((indices, rows)) if ascending else np.argsort(rows, kind="stable")
    indptr = np.zeros(num_dst + 1, dtype=np.int64)
    np.cumsum(np.bincount(rows, minlength=num_dst), out=indptr[1:])
    return SparseMatrix(indptr, indices[order], num_src)


def make_numbers(shape, dtype, seed=0):
    values = np.random.default_rng(seed).normal(size=shape).astype(dtype)
    return values


def make_exact(shape, dtype, seed=0):
    """Numbers of few bits, whose sums and products are exact in every order."""
    return (np.random.default_rng(seed).integers(-4, 5, shape) / 2).astype(dtype)


def make_factors(matrix, dtype, names, make=make_numbers):
    lengths = {
        "weight": matrix.num_edges,
        "src_scale": matrix.num_src,
        "dst_scale": matrix.num_dst,
        "own": matrix.num_dst,
    }
    factors = {
        name: make(length, dtype, seed)
        for seed, (name, length) in enumerate(lengths.items())
        if name in names
    }
    return {**factors, "mean": True} if "mean" in names else factors


def make_mask(shape, kind):
    generator = np.random.default_rng(5)
    wanted = generator.random(shape) < 0.5
    if kind in ("all", "none"):
        wanted[:] = kind == "all"
    elif kind == "lines":
        wanted = np.repeat(generator.random((shape[0], -(-shape[1] // 16))) < 0.4, 16, axis=1)
        wanted = wanted[:, : shape[1]]
    elif kind == "rows":
        wanted[:] = generator.random((shape[0], 1)) < 0.5
    elif kind == "few":
        wanted = generator.random(shape) < 0.02
    mask = aggregation.pack_mask(wanted)
    if kind == "padded" and shape[1] % 8:
        mask[:, -1] |= np.uint8(256 - (1 << shape[1] % 8))  # bits beyond the row say nothing
    return mask


MASKS = ["random", "none", "lines", "few", "padded", "all", "rows"]


def assert_same_bits(one, other):
    assert one.dtype == other.dtype
    assert one.shape == other.shape
    assert one.tobytes() == other.tobytes()


def assert_close(ours, theirs, scale=1.0):
    assert ours.dtype == theirs.dtype
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-4 * scale)


def strided(rows, room, offset):
    wide = np.full((len(rows), rows.shape[1] + room), np.nan, dtype=rows.dtype)
    wide[:, offset : offset + rows.shape[1]] = rows
    return wide[:, offset : offset + rows.shape[1]]


def freeze(*arrays):
    for array in arrays:
        if isinstance(array, np.ndarray):
            array.flags.writeable = False


@st.composite
def matrices(draw):
    """Rectangular, with empty rows, perhaps without edges, rows or columns, in any order."""
    num_dst, num_src = draw(st.integers(0, 9)), draw(st.integers(0, 9))
    most = 6 if num_src else 0
    row = st.lists(st.integers(0, max(num_src - 1, 0)), max_size=most)
    rows = draw(st.lists(row, min_size=num_dst, max_size=num_dst))
    indptr = np.cumsum([0, *map(len, rows)]).astype(np.int64)
    indices = np.array([u for row in rows for u in row], dtype=np.int32)
    freeze(indptr, indices)
    return SparseMatrix(indptr, indices, num_src)


@st.composite
def products(draw):
    matrix = draw(matrices())
    dtype = draw(st.sampled_from(DTYPES))
    width = draw(st.one_of(st.integers(0, 40), st.sampled_from([63, 64, 65, 129, 192, 321, 700])))
    names = draw(st.sets(st.sampled_from(["weight", "src_scale", "dst_scale", "own", "mean"])))
    if matrix.num_dst > matrix.num_src:
        names.discard("own")
    factors = make_factors(matrix, dtype, names, make_exact)
    h = make_exact((matrix.num_src, width), dtype, 9)
    if draw(st.booleans()):
        h = strided(h, 7, draw(st.integers(0, 7)))
    if draw(st.booleans()):
        kind = draw(st.sampled_from(MASKS))
        factors["mask"] = make_mask((matrix.num_dst, width), kind)
    freeze(h, *(value for value in factors.values()))
    return Case(matrix, h, factors)


@pytest.mark.parametrize("level", LEVELS)
@settings(max_examples=70, deadline=None)
@given(
    products(), st.sampled_from(["new", "given", "added to"]), st.sampled_from(WAYS), st.booleans()
)
def test_equals_the_twin(level, case, target, way, streamed):
    added = target == "added to"
    before = make_exact((case.matrix.num_dst, case.h.shape[1]), case.h.dtype, 5)
    expected = case.expected(before if added else None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GNNBENCH_SIMD", level)
        patch.setattr(aggregation, "BLOCK_SOURCES", 3)
        if streamed:
            patch.setattr(aggregation, "STREAMED_BYTES", 0)
        case.force(way, 1)
        if target != "new":
            out = strided(before if added else np.full_like(expected, np.nan), 5, 2)
            assert case.run(out=out, add=added, threads=1) is out
            if out.base is not None and out.size:
                assert np.isnan(out.base[:, :2]).all()
                assert np.isnan(out.base[:, -3:]).all()
        else:
            out = case.run(threads=1)
    assert out.dtype == expected.dtype
    if "mean" in case.factors:
        assert_close(out, expected)
    else:
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("pure", [False, True])
@settings(max_examples=40)
@given(products())
def test_sums_what_the_formula_says(pure, case):
    """Against a dense product, which shares nothing with the twins."""
    matrix, factors = case.matrix, case.factors
    dense = np.zeros((matrix.num_dst, matrix.num_src))
    weight = factors.get("weight", np.ones(matrix.num_edges))
    for v in range(matrix.num_dst):
        for e in range(matrix.indptr[v], matrix.indptr[v + 1]):
            dense[v, matrix.indices[e]] += weight[e]
    if "src_scale" in factors:
        dense *= factors["src_scale"]
    if "mean" in factors:
        dense /= np.maximum(np.diff(matrix.indptr), 1)[:, None]
    if "dst_scale" in factors:
        dense *= factors["dst_scale"][:, None]
    if "own" in factors:
        dense[np.arange(matrix.num_dst), np.arange(matrix.num_dst)] += factors["own"]
    expected = dense @ case.h
    if "mask" in factors:
        width = case.h.shape[1]
        expected *= np.unpackbits(factors["mask"], axis=1, count=width, bitorder="little")
    with pytest.MonkeyPatch.context() as patch:
        if pure:
            patch.setattr(aggregation, "load", lambda topic: None)
        assert_close(case.run().astype(np.float64), expected)


FACTORS = [
    set(),
    {"weight"},
    {"src_scale", "dst_scale"},
    {"weight", "src_scale", "dst_scale", "own", "mean"},
]


def make_case(width, dtype, names, *, ascending=True, edges=1500):
    matrix = make_matrix(60, 90, edges, ascending=ascending)
    factors = make_factors(matrix, dtype, names)
    return Case(matrix, make_numbers((90, width), dtype, 9), factors)


@needs_compiled
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("names", [FACTORS[0], FACTORS[-1]], ids=["plain", "all factors"])
def test_widths_ways_threads_and_stores_give_the_same_bits(level, dtype, names, monkeypatch):
    """Outputs start at any address, and nothing beside them is written."""
    monkeypatch.setenv("GNNBENCH_SIMD", level)
    monkeypatch.setattr(aggregation, "BLOCK_SOURCES", 8)
    # Several threads work on matrices as small as these.
    monkeypatch.setattr(aggregation, "_threads_for", lambda matrix, h, threads: threads)
    offsets = (0, 13, 1, 64 // dtype.itemsize)
    choices = itertools.cycle(itertools.product((0, 4 << 20), (2, 1, 4), offsets))
    for width in (*list_widths(level, dtype), 8200):
        case = make_case(width, dtype, names)
        assert case.matrix.blocks is not None
        monkeypatch.setattr(aggregation, "STREAMED_BYTES", 4 << 20)
        case.force("in place", 1)
        alone = case.run(threads=1)
        assert_close(alone, case.expected(), 30.0 if dtype == np.float32 else 1e-7)
        for way, (streamed_bytes, threads, offset) in zip(WAYS, choices):  # noqa: B905
            monkeypatch.setattr(aggregation, "STREAMED_BYTES", streamed_bytes)
            room = aggregation.pool.take((alone.size + 80,), dtype)  # begins at a line
            room[:] = 7
            out = room[offset : offset + alone.size].reshape(alone.shape)
            case.force(way, threads)
            assert case.run(out=out, threads=threads) is out
            assert_same_bits(out, alone)
            assert (room[:offset] == 7).all()
            assert (room[offset + alone.size :] == 7).all()


#: Destinations and edges: with rows that nothing is wanted of and a first row much longer than what
#: is prefetched ahead of it, with many rows without edges, and with one row or no edge at all.
MASKED = [(60, 400), (1025, 5000), (60, 1500), (2600, 700), (60, 800), (1, 700), (9, 0)]


@needs_compiled
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_masked_elements_are_zero_and_the_others_as_without(level, dtype, monkeypatch):
    """With half of the rows wanted, where others are passed over, and with any other mask."""
    monkeypatch.setenv("GNNBENCH_SIMD", level)
    monkeypatch.setattr(aggregation, "BLOCK_SOURCES", 64)
    monkeypatch.setattr(aggregation, "_threads_for", lambda matrix, h, threads: threads)
    for number, width in enumerate(list_widths(level, dtype)):
        num_dst, num_edges = MASKED[number % len(MASKED)]
        matrix = make_matrix(num_dst, max(num_dst, 300), num_edges, number)
        h = make_numbers((matrix.num_src, width), dtype, 9)
        case = Case(matrix, h, make_factors(matrix, dtype, FACTORS[number % 4]))
        plain = case.run(threads=1)
        for turn, kind in enumerate(("rows", MASKS[number % 5])):
            mask = make_mask(plain.shape, kind)
            wanted = np.unpackbits(mask, axis=1, count=width, bitorder="little")
            expected = np.where(wanted, plain, np.zeros((), dtype))
            masked = replace(case, factors={**case.factors, "mask": mask})
            threads, way = 1 + number % 2, WAYS[number % 3] if turn else "in place"
            masked.force(way, threads)
            monkeypatch.setattr(aggregation, "STREAMED_BYTES", (number % 3) << 30)
            assert_same_bits(masked.run(threads=threads), expected)
            before = make_numbers(plain.shape, dtype, 4)
            masked.force(way, threads)
            sums = masked.run(out=before.copy(), add=True, threads=threads)
            assert_close(sums, before + expected, 30.0 if dtype == np.float32 else 1e-7)


@needs_compiled
def test_products_of_fewer_rows_are_timed_by_themselves(monkeypatch):
    """What is fastest without a mask says nothing of them; every way gives the same bits."""
    monkeypatch.setattr(aggregation, "TRIED_BYTES", 0)
    monkeypatch.setattr(aggregation, "BLOCK_SOURCES", 8)
    case = make_case(33, DTYPES[0], set())
    mask = make_mask((60, 33), "rows")
    masked = replace(case, factors={"mask": mask})
    before = masked.run(threads=1)
    trials = case.matrix.trials(33, 4, 1, False)
    assert trials.seconds == {way: [] for way in WAYS}
    rows = case.matrix.trials(33, 4, 1, False, aggregation.count_eighths(mask))
    assert [len(seen) for seen in rows.seconds.values()] == [1, 0, 0]
    runs = [case.run(threads=1) for _ in range(7)]
    assert {way: len(seen) for way, seen in trials.seconds.items()} == dict.fromkeys(WAYS, 2)
    for run in runs:
        assert_same_bits(run, runs[0])
    for way in WAYS:
        masked.force(way, 1)
        assert_same_bits(masked.run(threads=1), before)


def test_rows_of_which_anything_is_wanted_are_counted():
    wanted = np.zeros((16, 40), dtype=np.bool_)
    assert aggregation.count_eighths(aggregation.pack_mask(wanted)) == 0
    wanted[::2, 39] = True
    assert aggregation.count_eighths(aggregation.pack_mask(wanted)) == 4
    wanted[1::2, :3] = True
    assert aggregation.count_eighths(aggregation.pack_mask(wanted)) == 8
    assert aggregation.count_eighths(aggregation.pack_mask(wanted[:1])) == 8
    # Of many rows a sample is looked at: here every tenth.
    wanted = np.zeros((10 * aggregation.SAMPLED_ROWS, 1), dtype=np.bool_)
    wanted[1::10] = True
    assert aggregation.count_eighths(aggregation.pack_mask(wanted)) == 0
    wanted[::20] = True
    assert aggregation.count_eighths(aggregation.pack_mask(wanted)) == 4


@needs_compiled
def test_large_products_try_every_way_once_each_is_known(monkeypatch):
    monkeypatch.setattr(aggregation, "BLOCK_SOURCES", 8)
    case = make_case(33, DTYPES[0], set())
    assert list(case.matrix.trials(33, 4, 1, False).seconds) == ["in place"]
    monkeypatch.setattr(aggregation, "TRIED_BYTES", 1500 * 34 * 4)
    assert list(case.matrix.trials(34, 4, 1, False).seconds) == WAYS
    trials = case.matrix.trials(34, 4, 1, False)
    for way, seconds in zip(WAYS, ([3.0, 1.5], [9.0, 1.0], [2.0, 2.0]), strict=True):
        trials.seconds[way] = seconds
    assert trials.next() == "packed"
    # Another thread may have timed the same product at the same time.
    trials.seconds["packed"].append(4.0)
    assert trials.settled
    unsorted = make_case(33, DTYPES[0], set(), ascending=False)
    assert list(unsorted.matrix.trials(34, 4, 1, False).seconds) == WAYS[:2]


@needs_compiled
def test_blocks(monkeypatch):
    """Where heavy rows cross blocks; None where it would not pay, or rows are unsorted."""
    monkeypatch.setattr(aggregation, "BLOCK_SOURCES", 8)
    matrix = make_case(1, DTYPES[0], set()).matrix
    assert matrix.blocks is not None
    rows, cuts, least = matrix.blocks
    degrees = np.diff(matrix.indptr)
    np.testing.assert_array_equal(rows, np.flatnonzero(degrees >= least))
    assert cuts.shape == (13, len(rows))
    for row, cut in zip(rows, cuts.T, strict=True):
        begin, end = matrix.indptr[row], matrix.indptr[row + 1]
        sources = matrix.indices[begin:end]
        np.testing.assert_array_equal(cut, begin + np.searchsorted(sources, np.arange(13) * 8))
    assert make_case(1, DTYPES[0], set(), ascending=False).matrix.blocks is None
    assert make_case(1, DTYPES[0], set(), edges=90).matrix.blocks is None


@pytest.mark.usefixtures("anywhere")
@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_masked_is_zero_whatever_was_summed(bad):
    for width in (3, 16, 40, 300):
        case = make_case(width, DTYPES[0], {"dst_scale"})
        case.h[::2] = bad
        wanted = np.zeros((60, width), dtype=np.bool_)
        wanted[5:, 1] = wanted[::2, : width // 2] = True
        case.factors["mask"] = aggregation.pack_mask(wanted)
        case.factors["dst_scale"][7] = np.inf
        out = case.run()
        assert_same_bits(out[~wanted], np.zeros((~wanted).sum(), dtype=np.float32))
        assert not np.isfinite(out[wanted]).all()


@pytest.mark.parametrize("level", LEVELS)
@settings(max_examples=40, deadline=None)
@given(products())
def test_numbers_on_edges_equal_the_twin(level, case):
    """Sampled products to the bit, the softmax and its gradient to rounding."""
    matrix, h, dtype = case.matrix, case.h, case.h.dtype
    g = strided(make_exact((matrix.num_dst, h.shape[1]), dtype, 2), 3, 2)
    scores = make_numbers(matrix.num_edges, dtype) * dtype.type(10)
    gradient = make_numbers(matrix.num_edges, dtype, 1)
    freeze(g, scores, gradient)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GNNBENCH_SIMD", level)
        products = aggregation.dot_edges(matrix, g, h, threads=2)
        softmax = aggregation.edge_softmax(matrix, scores)
        back = aggregation.edge_softmax_backward(matrix, softmax, gradient)
        patch.setattr(aggregation, "load", lambda topic: None)
        assert_same_bits(products + 0, aggregation.dot_edges(matrix, g, h) + 0)
        tolerance = 1e-6 if dtype == np.float32 else 1e-14
        expected = aggregation.edge_softmax(matrix, scores)
        expected_back = aggregation.edge_softmax_backward(matrix, softmax, gradient)
    assert softmax.dtype == back.dtype == dtype
    np.testing.assert_allclose(softmax, expected, rtol=tolerance, atol=1e-30)
    np.testing.assert_allclose(back, expected_back, atol=tolerance * 4)


@needs_compiled
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_exponentials_are_accurate(level, dtype, monkeypatch):
    """Of two scores, zero and x, the ratio of the softmax is e^x; far below, it is zero."""
    monkeypatch.setenv("GNNBENCH_SIMD", level)
    x = np.linspace(-87, 0, 20011).astype(dtype)
    indptr = np.arange(0, 2 * len(x) + 1, 2, dtype=np.int64)
    matrix = SparseMatrix(indptr, np.zeros(2 * len(x), dtype=np.int32), 1)
    scores = np.stack([np.zeros_like(x), x], axis=1).ravel()
    softmax = aggregation.edge_softmax(matrix, scores).reshape(-1, 2).astype(np.float64)
    ratio = softmax[:, 1] / softmax[:, 0]
    exact = np.exp(x.astype(np.float64))
    assert np.abs(ratio / exact - 1).max() < 6 * np.finfo(dtype).eps


@pytest.mark.usefixtures("anywhere")
@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("dtype", DTYPES)
def test_softmax_of_extreme_scores(dtype):
    inf, nan = np.inf, np.nan
    rows = [[-inf, 1, -inf, 1], [5], [1e30, -1e30], [-1e30] * 4, [-900, 0], [nan, 1], [-inf, -inf]]
    expected = [[0, 0.5, 0, 0.5], [1], [1, 0], [0.25] * 4, [0, 1], [nan, nan], [nan, nan]]
    indptr = np.cumsum([0, *map(len, rows)]).astype(np.int64)
    matrix = SparseMatrix(indptr, np.zeros(indptr[-1], dtype=np.int32), 1)
    scores = np.concatenate(rows).astype(dtype)
    softmax = aggregation.edge_softmax(matrix, scores)
    np.testing.assert_array_equal(softmax, np.concatenate(expected).astype(dtype))


@needs_compiled
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_threads_give_the_same_bits(level, dtype, monkeypatch):
    monkeypatch.setenv("GNNBENCH_SIMD", level)
    monkeypatch.setattr(aggregation, "_threads_for", lambda matrix, h, threads: threads)
    matrix = make_matrix(900, 1100, 9000, ascending=False)
    scores, gradient = make_numbers(9000, dtype, 2), make_numbers(9000, dtype, 3)

    def results(width, threads):
        h, g = make_numbers((1100, width), dtype), make_numbers((900, width), dtype, 1)
        softmax = aggregation.edge_softmax(matrix, scores, threads=threads)
        yield softmax
        yield aggregation.edge_softmax_backward(matrix, softmax, gradient, threads=threads)
        yield aggregation.dot_edges(matrix, g, h, threads=threads)
        yield aggregation.aggregate(matrix, h, weight=scores, threads=threads)

    for width in (6, 130):
        for one, other in zip(results(width, 3), results(width, 1), strict=True):
            assert_same_bits(one, other)
