"""gnnbench's own kernels as functions of tensors: gradients, masks, sparse features, refusals.

That they compute what dense matrices do stands in ``test_cpu_kernels.py``.
"""

import dataclasses
import gc
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from gnnbench import plugins
from gnnbench.check.graphs import make_dataset, make_platform
from gnnbench.errors import UsageError
from gnnbench.kernels import autograd
from gnnbench.kernels.autograd import Factors
from gnnbench.kernels.csr import csr_tensor
from gnnbench.kernels.dispatch.aggregation import SparseMatrix
from gnnbench.lowering.footprint import sparse_bytes
from gnnbench.models import MODELS, build
from gnnbench.models.products import keeps_sparse, projected_layers
from gnnbench.parts import Setting
from gnnbench.records import Workload
from gnnbench.run.features import feature_rows
from gnnbench_plugins.native import gnnbench_strategy
from gnnbench_plugins.reference.kernel import TorchKernel
from gnnbench_plugins.reference.native_kernel import NativeKernel
from tests.kernels.blocks import BLOCKS, draw, make_dense

BUNDLES = gnnbench_strategy()[0].bundles
MODES = ("full-graph", "mini-batch")


def as_matrix(block):
    return SparseMatrix(block.indptr, block.indices, block.num_src)


def draw_mask(*shape):
    return draw(*shape, seed=7) > 0


@pytest.mark.parametrize("mean", [False, True])
def test_every_factor_reaches_both_gradients(block, mean):
    h, weight = draw(block.num_src, 2), draw(block.num_edges, seed=1)
    src, dst, own = (
        draw(n, seed=i) for i, n in enumerate((block.num_src, block.num_dst, block.num_dst), 2)
    )
    factors = Factors(src.numpy(), dst.numpy(), own.numpy(), mean)

    def ours(rows, values):
        return autograd.aggregate(as_matrix(block), rows, values, factors)

    dense = make_dense(block, weight) @ (src.unsqueeze(1) * h)
    if mean:
        dense /= make_dense(block).sum(1, keepdim=True).clamp(min=1)
    dense = dst.unsqueeze(1) * dense + own.unsqueeze(1) * h[: block.num_dst]
    torch.testing.assert_close(ours(h, weight), dense)
    leaves = (h.requires_grad_(), weight.requires_grad_())
    assert torch.autograd.gradcheck(ours, leaves)
    g = draw(block.num_dst, 2, seed=9)
    out = autograd.multiply_transposed(as_matrix(block), g, weight.detach(), factors)
    (expected,) = torch.autograd.grad(ours(h, weight), h, g)
    torch.testing.assert_close(out, expected)


def spread(rows):
    """The same rows in other strides: part of wider ones, every other one, a transpose."""
    count, width = rows.shape
    for shape, view in (
        ((count, width + 3), lambda wide: wide[:, 2 : 2 + width]),
        ((2 * count, width), lambda wide: wide[::2]),
        ((width, count), lambda wide: wide.t()),
        ((count, 2 * width), lambda wide: wide[:, ::2]),
    ):
        strided = view(torch.full(shape, torch.nan, dtype=rows.dtype))
        strided.copy_(rows)
        yield strided


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_strides_change_nothing(dtype):
    block = BLOCKS["random"]
    matrix = as_matrix(block)
    functions = (
        lambda rows: autograd.aggregate(matrix, rows),
        lambda rows: autograd.aggregate_mean(matrix, rows),
    )
    h, g = draw(block.num_src, 6, dtype=dtype), draw(block.num_dst, 6, dtype=dtype, seed=1)
    for function in functions:
        leaf = h.clone().requires_grad_()
        out = function(leaf)
        assert out.dtype == dtype
        (gradient,) = torch.autograd.grad(out, leaf, g)
        for rows in spread(h):
            assert torch.equal(function(rows), out)
        for strided in spread(g):
            assert torch.equal(torch.autograd.grad(function(leaf), leaf, strided)[0], gradient)
        # As from a sum: one number, expanded to all rows and columns.
        leaf.grad = None
        function(leaf).sum().backward()
        (expected,) = torch.autograd.grad(function(leaf), leaf, torch.ones_like(g))
        assert leaf.grad is not None
        assert torch.equal(leaf.grad, expected)


def test_rows_in_order_are_not_copied():
    wide = draw(5, 9)
    for tensor in (wide, wide[:, 2:6], wide[1:], wide[::2], wide[:, :1], wide[2]):
        assert autograd.read(tensor).ctypes.data == tensor.data_ptr()


def test_tensors_elsewhere_are_refused():
    elsewhere = torch.empty(30, 4, device="meta")
    with pytest.raises(ValueError, match=r"run on the CPU, and a tensor is on meta\."):
        autograd.read(elsewhere)
    matrix = as_matrix(BLOCKS["random"])
    for function in (autograd.aggregate, autograd.aggregate_mean):
        with pytest.raises(ValueError, match="on meta"):
            function(matrix, elsewhere)
    with pytest.raises(UsageError, match=r"'native' runs on the CPU, .* block on cuda"):
        NativeKernel().adjacency(BLOCKS["random"], torch.float32, torch.device("cuda"))


@pytest.mark.parametrize("width", [1, 67, 300])
def test_a_mean_beside_the_own_row_is_the_mean(width):
    """Written past the cache, into rows that begin anywhere."""
    degrees = np.arange(20_000) % 5
    indptr = np.concatenate(([0], np.cumsum(degrees)))
    indices = (np.arange(indptr[-1]) * 7919 % 20_001).astype(np.int32)
    matrix = SparseMatrix(indptr, indices, 20_001)
    h = draw(20_001, width, dtype=torch.float32)
    both = autograd.own_and_mean(matrix, h)
    assert torch.equal(both[:, :width], h[:20_000])
    assert torch.equal(both[:, width:], autograd.aggregate_mean(matrix, h))


def make_sparse(dense):
    stored = sp.csr_matrix(dense.numpy())
    return csr_tensor(
        torch.from_numpy(stored.indptr),
        torch.from_numpy(stored.indices),
        torch.from_numpy(stored.data),
        dense.shape,
    )


@pytest.mark.parametrize("kernel", [NativeKernel(), TorchKernel()], ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("shape", [(9, 14), (14, 9), (1, 1), (4, 0), (0, 4)])
def test_sparse_rows_times_weights(kernel, shape):
    dense = draw(*shape) * draw_mask(*shape)
    dense[1:2] = 0
    rows = make_sparse(dense)
    both = draw(2 * shape[1], 5, seed=1).requires_grad_()
    for weight in (both[: shape[1]], both[shape[1] :], both[: shape[1], 1:4]):
        for _ in range(2):  # a second time, from what the first one kept
            ours, theirs = kernel.multiply_sparse(rows, weight), dense @ weight
            torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
            g = draw(*theirs.shape, seed=2)
            (one,), (other,) = (torch.autograd.grad(out, both, g) for out in (ours, theirs))
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_kept_features_do_not_outlive_their_tensor():
    kernel = NativeKernel()
    rows = make_sparse(torch.eye(3))
    kernel.multiply_sparse(rows, torch.ones(3, 2))
    seen = weakref.ref(rows)
    del rows
    gc.collect()
    assert seen() is None
    again = make_sparse(torch.eye(3) * 2)
    assert torch.equal(kernel.multiply_sparse(again, torch.ones(3, 2)), torch.full((3, 2), 2.0))


def with_sparse_features(dataset):
    assert isinstance(dataset.features, np.ndarray)
    kept = np.where(dataset.features > 1, dataset.features, 0)
    kept[5] = 0
    return dataclasses.replace(dataset, features=sp.csr_matrix(kept))


def make_setting(model="gcn", dims=(7, 6, 3), *, sparse=True, accelerators=0):
    dataset = make_dataset()
    if sparse:
        dataset = with_sparse_features(dataset)
    workload = Workload(model, dims, 2, 13, (4, 3, 2)[: len(dims) - 1], 5, dtype="float64")
    return Setting(dataset, make_platform(accelerators), workload, build(workload).shapes)


@pytest.mark.parametrize(
    ("mode", "sparse", "dims", "first"),
    [
        # The first layer has no backward pass through its aggregation, so it saves half as much.
        ("full-graph", False, (7, 6, 3), {1: True, 0: False}),
        ("full-graph", False, (7, 4, 3), {1: True, 0: False}),
        ("full-graph", False, (7, 3, 3), {1: False, 0: True}),
        ("full-graph", True, (7, 6, 3), {1: True, 0: True}),
        ("mini-batch", False, (7, 3, 1), {1: False, 0: False}),
        ("mini-batch", True, (7, 6, 3), {1: False, 0: True}),
    ],
)
def test_w_comes_first_where_that_leaves_less(mode, sparse, dims, first):
    setting = make_setting(dims=dims, sparse=sparse)
    assert {n: NativeKernel().projects_first(n, setting, mode) for n in (0, 1)} == first


def test_w_never_comes_first_where_the_maths_forbids_it(registry):
    bundle = plugins.assemble(registry, BUNDLES["full-graph"], {})
    for model in MODELS:
        projected = {0, 1} if model in ("gcn", "sage", "gin", "commnet") else set()
        assert projected_layers(bundle, make_setting(model)) == projected


def sparse_here(registry, parts, setting):
    bundle = plugins.assemble(registry, parts, {})
    projected = projected_layers(bundle, setting)
    return keeps_sparse(bundle, setting, bundle.placement.trainers(setting.platform), projected)


@pytest.mark.parametrize("mode", MODES)
def test_features_stay_sparse_only_on_their_way_into_a_product(registry, mode):
    parts = BUNDLES[mode]
    for model in ("gcn", "sage", "gin", "gat", "ggcn"):
        assert sparse_here(registry, parts, make_setting(model)) == (model != "ggcn")
    assert not sparse_here(registry, parts, make_setting(sparse=False))
    single = dataclasses.replace(parts, placement="single")
    assert not sparse_here(registry, single, make_setting(accelerators=1))
    assert not sparse_here(registry, dataclasses.replace(parts, kernel="torch"), make_setting())
    large = dataclasses.replace(
        make_dataset(), features=SimpleNamespace(nnz=2**31, shape=(2**31, 5))
    )
    assert not sparse_here(registry, parts, dataclasses.replace(make_setting(), dataset=large))
    # Rows that are shared wait in buffers.
    sharing = dataclasses.replace(
        parts, communication="hongtu", memory="hongtu" if mode == "full-graph" else "host"
    )
    assert not sparse_here(registry, sharing, make_setting())


@pytest.mark.parametrize(("stored", "sparse"), [(9, True), (10, False), (40, False)])
def test_rows_with_many_values_are_multiplied_dense(registry, stored, sparse):
    """Of 5 rows of 8 columns, 10 values are one in four."""
    values = np.zeros(40, dtype=np.float32)
    values[:stored] = 1
    features = sp.csr_matrix(values.reshape(5, 8))
    dataset = dataclasses.replace(make_dataset(), features=features)
    assert dataset.multiplies_stored == sparse
    setting = dataclasses.replace(make_setting(dims=(8, 6, 3)), dataset=dataset)
    # In a mini-batch dense rows are aggregated first.
    assert NativeKernel().projects_first(0, setting, "mini-batch") == sparse
    assert sparse_here(registry, BUNDLES["mini-batch"], setting) == sparse
    assert not make_dataset().multiplies_stored
    stored = dataset.with_full_rows()
    assert isinstance(stored.features, np.ndarray) != sparse
    assert np.array_equal(stored.rows(np.arange(5)), values.reshape(5, 8))
    assert stored.digest() == dataset.digest()


def test_values_that_stay_are_transposed_once(block):
    matrix = as_matrix(block)
    weight = torch.rand(matrix.num_edges, dtype=torch.float64)
    h = torch.rand(matrix.num_src, 3, dtype=torch.float64, requires_grad=True)

    def gradient():
        (found,) = torch.autograd.grad(autograd.aggregate(matrix, h, weight).sum(), h)
        return found

    def expected():
        sums = torch.zeros(matrix.num_src, dtype=torch.float64)
        sums.index_add_(0, torch.from_numpy(matrix.indices.astype(np.int64)), weight)
        return sums.unsqueeze(1).expand(-1, 3)

    torch.testing.assert_close(gradient(), expected())
    if not matrix.num_edges:
        return
    (kept,) = matrix._values
    torch.testing.assert_close(gradient(), expected())
    assert matrix._values[0] is kept
    # What has changed in place is not what it was, and other memory is other values.
    weight.mul_(3)
    torch.testing.assert_close(gradient(), expected())
    weight = torch.rand(matrix.num_edges, dtype=torch.float64)
    torch.testing.assert_close(gradient(), expected())
    # Those that are trained are never kept.
    (kept,) = matrix._values
    weight = torch.rand(matrix.num_edges, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(gradient(), expected().detach())
    assert matrix._values[0] is kept


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_as_they_are_stored(dtype):
    setting = make_setting()
    setting = dataclasses.replace(
        setting, workload=dataclasses.replace(setting.workload, dtype=dtype)
    )
    ids = np.array([9, 5, 0, 33])
    rows, dense = (feature_rows(setting, ids, sparse=sparse) for sparse in (True, False))
    assert rows.layout == torch.sparse_csr
    assert rows.dtype == dense.dtype == getattr(torch, dtype)
    assert torch.equal(rows.to_dense(), dense)
    count, size = int((dense != 0).sum()), dense.element_size()
    parts = (rows.crow_indices(), rows.col_indices(), rows.values())
    stored = sum(part.numel() * part.element_size() for part in parts)
    assert stored == count * size + 4 * count + 4 * 5 == sparse_bytes(len(ids), count, size)


@pytest.mark.parametrize("mode", MODES)
def test_a_device_of_another_kind_is_refused(registry, mode):
    """A described GPU as much as a real one: both compute on ``cpu`` or ``cuda:0`` here."""
    parts = dataclasses.replace(BUNDLES[mode], placement="single")
    bundle = plugins.assemble(registry, parts, {})
    assert bundle.refusal(make_setting()) is None
    setting = make_setting(accelerators=1)
    for where in ("cpu", "cuda:0"):
        gpu = dataclasses.replace(setting.platform.accelerators[0], torch_device=where)
        machine = dataclasses.replace(setting.platform, accelerators=(gpu,))
        reason = bundle.refusal(dataclasses.replace(setting, platform=machine))
        assert reason is not None
        assert "placement 'single' trains on gpu0, a GPU" in reason


def test_own_rows_must_be_among_the_sources():
    matrix = SparseMatrix(np.array([0, 1, 1]), np.zeros(1, dtype=np.int32), 1)
    with pytest.raises(ValueError, match="2 destinations must be among the 1 sources"):
        autograd.own_and_mean(matrix, torch.ones(1, 3))
    with pytest.raises(ValueError, match="2 destinations must be among the 1 sources"):
        autograd.own_and_mean_transposed(matrix, torch.zeros(2, 4))
