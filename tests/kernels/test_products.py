"""Dense products with bias and ReLU, and their gradients: compiled loops, their twin, and torch."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnbench.kernels import autograd
from gnnbench.kernels.buffers import pool
from gnnbench.kernels.dispatch import products
from gnnbench.kernels.native import load

#: About the sizes at which loops end: of tiles, vectors, panels, blocks.
SIZES = st.sampled_from([1, 2, 5, 13, 14, 15, 16, 17, 31, 32, 33, 47, 64, 100])
ROWS = st.sampled_from([1, 2, 13, 14, 15, 29, 125, 126, 127, 253, 400])


def draw(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def check(ours, expected, terms):
    """Equal but for the order in which so many terms are added."""
    assert ours is not None
    np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=2e-6 * max(terms, 8))


@pytest.mark.usefixtures("both_ways")
@settings(max_examples=40, deadline=None)
@given(
    n=ROWS,
    k=st.one_of(SIZES, st.sampled_from([255, 256, 257, 600])),
    f=SIZES,
    relu=st.booleans(),
    biased=st.booleans(),
    turned=st.booleans(),
    threads=st.integers(1, 3),
)
def test_products_and_gradients(n, k, f, relu, biased, turned, threads):
    a, g = draw(n, k + 3)[:, 1 : k + 1], draw(n, f + 2, seed=1)[:, :f]  # rows with gaps
    w = draw(f, k, seed=2).T if turned else draw(k, f, seed=2)
    bias = draw(f, seed=3) if biased else None
    out = products.multiply(a, w, bias, relu=relu, threads=threads)
    exact = a.astype(np.float64) @ w + (0.0 if bias is None else bias)
    check(out, np.maximum(exact, 0) if relu else exact, k)

    masked = np.where(out > 0, g, 0).astype(np.float64) if relu else g.astype(np.float64)
    grads = products.differentiate(g, w, a, out if relu else None, threads=threads)
    for grad, expected, terms in zip(
        grads,
        (masked @ w.T, a.T.astype(np.float64) @ masked, masked.sum(0)),
        (f, n, n),
        strict=True,
    ):
        check(grad, expected, terms)
    alone = products.differentiate(g, w, None, out if relu else None, of_a=False, threads=threads)
    assert alone[0] is None
    assert alone[1] is None
    assert np.array_equal(alone[2], grads[2])


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("shape", [(0, 4, 3), (4, 0, 3), (4, 3, 0), (0, 0, 0)])
def test_products_of_nothing(shape):
    n, k, f = shape
    a, w, bias = draw(n, k), draw(k, f), draw(f)
    assert np.array_equal(products.multiply(a, w, bias), np.broadcast_to(bias, (n, f)))
    g = draw(n, f)
    grad_a, grad_w, grad_bias = products.differentiate(g, w, a)
    assert grad_a is not None
    assert grad_a.shape == (n, k)
    assert not grad_a.any()
    assert grad_w is not None
    assert grad_w.shape == (k, f)
    assert not grad_w.any()
    assert np.allclose(grad_bias, g.sum(axis=0))


@pytest.mark.usefixtures("both_ways")
def test_what_is_no_number_stays_none():
    """ReLU keeps NaN, and so does its gradient; nothing of it goes elsewhere."""
    a, w = draw(20, 17), draw(17, 18)
    a[3, 5] = np.nan
    a[4, 0] = np.inf
    w[0] = 1
    out = products.multiply(a, w, relu=True)
    assert np.isnan(out[3]).all()
    assert np.isinf(out[4]).all()
    assert np.isfinite(np.delete(out, (3, 4), axis=0)).all()
    grad_a, _, grad_bias = products.differentiate(np.ones_like(out), w, None, out)
    check(grad_a, np.where(out <= 0, 0.0, 1.0) @ w.T, 18)
    check(grad_bias, np.where(out <= 0, 0.0, 1.0).sum(0), 20)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"a": draw(4, 5)}, r"a must be float32 of shape \(4, 3\)"),
        ({"a": draw(3, 4).T}, "rows contiguous"),
        ({"a": draw(4, 3).astype(np.float64)}, "a must be float32"),
        ({"w": draw(3)}, "w must be a two-dimensional float32"),
        ({"w": draw(3, 2).astype(np.float64)}, "w must be a two-dimensional float32"),
        ({"bias": draw(3)}, r"bias must be a contiguous float32 array of shape \(2,\)"),
        ({"bias": draw(4)[::2]}, "bias must be a contiguous"),
        ({"threads": -1}, "threads is -1"),
        ({"g": draw(4, 3)}, r"g must be float32 of shape \(4, 2\)"),
        ({"g": draw(4, 2), "a": draw(5, 3)}, r"a must be float32 of shape \(4, 3\)"),
        ({"output": draw(4, 3)}, r"output must be float32 of shape \(4, 2\)"),
    ],
)
def test_refuses_other_arrays(changes, message):
    call = products.differentiate if {"g", "output"} & changes.keys() else products.multiply
    right = {"a": draw(4, 3), "w": draw(3, 2)}
    right |= {"g": draw(4, 2)} if call is products.differentiate else {"bias": draw(2)}
    with pytest.raises(ValueError, match=message):
        call(**{**right, **changes})


def test_same_bits_every_time():
    """Whatever lies in the memory that is used again."""
    a, w, bias, g = draw(1500, 300), draw(300, 70), draw(70), draw(1500, 70, seed=1)

    def compute():
        out = products.multiply(a, w, bias, relu=True, threads=2)
        grads = products.differentiate(g, w, a, out, threads=2)
        return [array.tobytes() for array in (out, *grads) if array is not None]

    first = compute()
    spoilt = pool.take((1500, 300), np.float32)
    spoilt[:] = np.nan
    del spoilt
    assert compute() == first


def leaves(n, k, f, wanted):
    made = (draw(k, n).T, draw(k, f, seed=1), draw(f, seed=2))
    a, w, b = (
        torch.from_numpy(array).requires_grad_(name in wanted)
        for name, array in zip("awb", made, strict=True)
    )
    return a, w, b


@pytest.fixture(params=["ours", "torch"])
def whose(request, monkeypatch):
    """With our products wherever they are compiled, and with torch's."""
    wanted = request.param == "ours"
    monkeypatch.setattr(products, "outrun_torch", lambda: wanted)


@pytest.mark.usefixtures("whose")
@pytest.mark.parametrize("wanted", ["awb", "wb", "a", "aw", "b"])
@pytest.mark.parametrize("relu", [False, True])
def test_linear_is_addmm(relu, wanted):
    inputs = leaves(300, 40, 20, wanted)
    a, w, b = inputs
    expected = torch.addmm(b, a, w)
    expected = torch.relu(expected) if relu else expected
    ours = autograd.linear(a, w, b, relu=relu)
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-4)
    learned = [leaf for leaf in inputs if leaf.requires_grad]
    g = torch.from_numpy(draw(20, 300, seed=4)).t()
    for one, other in zip(
        torch.autograd.grad(ours, learned, g),
        torch.autograd.grad(expected, learned, g),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-3)


@pytest.mark.usefixtures("whose")
def test_multiply_is_a_product():
    a, w, _ = leaves(50, 7, 9, "aw")
    ours, expected = autograd.multiply(a, w[:7]), a @ w[:7]
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-4)
    g = torch.ones(1, 1).expand(50, 9)
    for one, other in zip(
        torch.autograd.grad(ours, (a, w), g), torch.autograd.grad(expected, (a, w), g), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(load("products") is None, reason="the compiled kernels are not built")
def test_the_processor_decides(monkeypatch):
    """MKL has AVX-512 on Intel's processors; without AVX-512 our loops do not run."""
    compiled = load("products")
    monkeypatch.setenv("GNNBENCH_SIMD", "avx2")
    assert not products.outrun_torch()
    monkeypatch.delenv("GNNBENCH_SIMD")
    for runs, intel in ((True, False), (True, True), (False, False)):
        monkeypatch.setattr(compiled, "runs", lambda runs=runs: runs)
        monkeypatch.setattr(compiled, "made_by_intel", lambda intel=intel: intel)
        assert products.outrun_torch() is (runs and not intel)
    monkeypatch.setattr(products, "load", lambda topic: None)
    assert not products.outrun_torch()
