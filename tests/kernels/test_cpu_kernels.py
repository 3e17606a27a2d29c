"""The CPU kernels against dense matrices, in float64, and their gradients against differences."""

import dataclasses
import importlib
import warnings

import numpy as np
import pytest
import torch

from gnnbench.errors import UsageError
from gnnbench.kernels.native import load
from gnnbench.parts import Scaling
from gnnbench.records import Block
from gnnbench_plugins.reference.kernel import TorchKernel
from gnnbench_plugins.reference.native_kernel import NativeKernel
from tests.commands import run_python
from tests.kernels.blocks import BLOCKS, draw, make_dense

KERNELS = [TorchKernel, NativeKernel]
CPU = torch.device("cpu")


@pytest.fixture(params=KERNELS, ids=lambda kernel: kernel.name)
def kernel(request):
    made = request.param()
    return made


def bind(kernel, block, dtype=torch.float64):
    return kernel.adjacency(block, dtype, CPU)


def test_sum(kernel, block):
    adjacency, weight = bind(kernel, block), draw(block.num_edges, seed=1)
    for h in (draw(block.num_src, 1), draw(block.num_src, 3)):
        torch.testing.assert_close(adjacency.sum(h), make_dense(block) @ h)
        torch.testing.assert_close(adjacency.sum(h, weight), make_dense(block, weight) @ h)


def test_mean_and_own_row(kernel, block):
    h, dense = draw(block.num_src, 3).requires_grad_(), make_dense(block)
    mean = (dense / dense.sum(1, keepdim=True).clamp(min=1)) @ h
    adjacency = bind(kernel, block)
    torch.testing.assert_close(adjacency.mean(h), mean)
    both = torch.cat((h[: block.num_dst], mean), dim=1)
    torch.testing.assert_close(adjacency.own_and_mean(h), both)
    assert torch.autograd.gradcheck(adjacency.own_and_mean, (h,))


def test_sum_transposed(kernel, block):
    g, weight = draw(block.num_dst, 3), draw(block.num_edges, seed=1).requires_grad_()
    adjacency = bind(kernel, block)
    torch.testing.assert_close(adjacency.sum_transposed(g), make_dense(block).t() @ g)
    out = adjacency.sum_transposed(g, weight)
    assert not out.requires_grad
    torch.testing.assert_close(out, make_dense(block, weight.detach()).t() @ g)


@pytest.mark.parametrize("moved", [False, True])
def test_transposed_products_add_to_what_is_there(kernel, block, moved):
    """In place, also where destinations' own rows are not the first."""
    if block.num_dst > block.num_src:
        pytest.skip("destinations are among the sources")
    if moved:
        own = np.arange(block.num_src, dtype=np.int64)[::-1][: block.num_dst].copy()
        block = dataclasses.replace(block, own=own)
    adjacency, scaling = bind(kernel, block), draw_scaling(block)
    g, wide = draw(block.num_dst, 3), draw(block.num_dst, 6)
    products = (
        lambda into: adjacency.sum_transposed(g, None, into),
        lambda into: adjacency.sum_transposed(g, draw(block.num_edges, seed=1), into),
        lambda into: adjacency.sum_scaled_transposed(g, scaling, into),
        lambda into: adjacency.own_plus_sum_transposed(g, into),
        lambda into: adjacency.own_and_mean_transposed(wide, into),
    )
    for product in products:
        before = draw(block.num_src, 3, seed=7)
        into = before.clone()
        assert product(into).data_ptr() == into.data_ptr()
        torch.testing.assert_close(into, before + product(None))


def draw_scaling(block):
    factors = (draw(count, seed=seed) for seed, count in enumerate((block.num_src, block.num_dst)))
    return Scaling(*factors, own=draw(block.num_dst, seed=2))


def make_scaled(block, scaling):
    own = torch.eye(block.num_dst, block.num_src, dtype=torch.float64) * scaling.own.unsqueeze(1)
    return torch.diag(scaling.dst) @ make_dense(block) @ torch.diag(scaling.src) + own


def test_sum_scaled(kernel, block):
    h, g, scaling = draw(block.num_src, 3), draw(block.num_dst, 3, seed=3), draw_scaling(block)
    adjacency, dense = bind(kernel, block), make_scaled(block, scaling)
    torch.testing.assert_close(adjacency.sum_scaled(h, scaling), dense @ h)
    out = adjacency.sum_scaled_transposed(g.requires_grad_(), scaling)
    assert not out.requires_grad
    torch.testing.assert_close(out, dense.t() @ g.detach())


def test_edge_softmax(kernel, block):
    scores = draw(block.num_edges) * 50  # large enough to overflow without the shift
    minus_infinity = torch.full((block.num_dst, block.num_src), -torch.inf, dtype=torch.float64)
    adjacency = bind(kernel, block)
    index = (adjacency.edge_dst, adjacency.edge_src)
    expected = torch.softmax(minus_infinity.index_put(index, scores * 50), dim=1)[index]
    torch.testing.assert_close(adjacency.edge_softmax(scores * 50), expected)


def test_edges_and_degrees(kernel, block):
    adjacency = bind(kernel, block)
    pairs = list(zip(adjacency.edge_dst.tolist(), adjacency.edge_src.tolist(), strict=True))
    rows = np.split(block.indices, block.indptr[1:-1]) if block.num_dst else []
    assert pairs == [(v, int(u)) for v, row in enumerate(rows) for u in row]
    assert adjacency.edge_src.dtype == adjacency.edge_dst.dtype == torch.int64
    torch.testing.assert_close(adjacency.in_degrees, make_dense(block).sum(1))


def test_gradients_against_differences(kernel, block):
    adjacency = bind(kernel, block)
    h = draw(block.num_src, 2).requires_grad_()
    weight = draw(block.num_edges, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(adjacency.sum, (h,))
    assert torch.autograd.gradcheck(lambda rows: adjacency.sum(rows, weight.detach()), (h,))
    assert torch.autograd.gradcheck(lambda w: adjacency.sum(h.detach(), w), (weight,))
    assert torch.autograd.gradcheck(adjacency.sum, (h, weight))
    assert torch.autograd.gradcheck(adjacency.mean, (h,))
    scaling = draw_scaling(block)
    assert torch.autograd.gradcheck(lambda rows: adjacency.sum_scaled(rows, scaling), (h,))
    assert torch.autograd.gradcheck(
        lambda rows, scores: adjacency.sum(rows, adjacency.edge_softmax(scores)), (h, weight)
    )


def test_saves_rows_only_for_a_learned_weight(kernel):
    """A backward pass that needs no source rows must not keep them alive."""
    block = BLOCKS["random"]
    adjacency = bind(kernel, block)
    h = draw(block.num_src, 3).requires_grad_()
    weight = draw(block.num_edges, seed=1)

    def saved(out):
        assert out.grad_fn is not None
        return [t for t in out.grad_fn.saved_tensors if t is not None]

    assert saved(adjacency.sum(h)) == []
    assert [t.shape for t in saved(adjacency.sum(h, weight))] == [weight.shape]
    learned = saved(adjacency.sum(h, weight.clone().requires_grad_()))
    assert [t.shape for t in learned] == [weight.shape, h.shape]


def test_too_many_edges_for_32_bit_indices_raise():
    one = np.zeros(1, dtype=np.int32)
    many = np.lib.stride_tricks.as_strided(one, shape=(2**31,), strides=(0,))
    block = Block(np.arange(1), 1, np.array([0, 2**31]), many)
    with pytest.raises(UsageError, match="more chunks"):
        bind(TorchKernel(), block)


def test_no_edge_by_width_intermediate_and_no_warning(kernel):
    """In a fresh process peak memory of both passes is a few ``(S, f)``, far below ``(E, f)``.

    torch warns that sparse CSR is beta, once a process; users see none of it.
    """
    code = f"""
import resource
import numpy as np, torch
from gnnbench.records import Block
from {type(kernel).__module__} import {type(kernel).__name__} as Kernel
rng = np.random.default_rng(0)
n, degree, width = 1000, 200, 1000
indptr = np.arange(0, n * degree + 1, degree, dtype=np.int64)
indices = rng.integers(0, n, n * degree).astype(np.int32)
indices.flags.writeable = False  # as in a memory-mapped graph
block = Block(np.arange(n), n, indptr, indices)
adjacency = Kernel().adjacency(block, torch.float32, torch.device("cpu"))
scores = torch.rand(n * degree, requires_grad=True)
def step(width):
    h = torch.rand(n, width, requires_grad=True)
    adjacency.sum(h, adjacency.edge_softmax(scores)).sum().backward()
step(1)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
step(width)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / (4 * n * width))
"""
    run = run_python("-W", "always", "-c", code, check=True)
    assert run.stderr == ""
    # In units of (S, f); one (E, f) would be 200, and the twin in NumPy makes every message.
    assert float(run.stdout) < 20 or (kernel.name == "native" and load("aggregation") is None)


def test_kernels_that_are_built_and_cannot_be_loaded_are_said(monkeypatch):
    def break_off(name):
        raise ImportError(f"{name}: undefined symbol")

    monkeypatch.setenv("GNNBENCH_PURE", "")
    monkeypatch.setattr(importlib, "import_module", break_off)
    with pytest.warns(RuntimeWarning, match="kernels of rows cannot be loaded .*undefined symbol"):
        assert load.__wrapped__("rows") is None


def test_kernels_that_are_not_built_are_no_reason_to_warn(monkeypatch):
    monkeypatch.setenv("GNNBENCH_PURE", "")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load.__wrapped__("nothing_of_this_name") is None
