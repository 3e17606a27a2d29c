"""ReLU's mask, known before AGGREGATE's backward pass: what it wants is computed and nothing else.

It replaces ReLU's own backward pass, so that losses equal those of plain training only if every
gradient was masked.
"""

import dataclasses
import itertools

import numpy as np
import pytest
import torch

from gnnbench import plugins
from gnnbench.check.graphs import make_dataset, make_platform, make_workload
from gnnbench.kernels import autograd
from gnnbench.kernels.autograd import Factors
from gnnbench.kernels.dispatch import aggregation
from gnnbench.kernels.dispatch.aggregation import SparseMatrix, pack_mask
from gnnbench.lowering.memory import masks_gradients
from gnnbench.models import MODELS, GCNLayer, build
from gnnbench.parts import Scaling, Setting
from gnnbench.price.model_clock import ModelClock
from gnnbench.records import Parts
from gnnbench.run import train
from gnnbench_plugins.mixgcn.kernel import SpuKernel
from gnnbench_plugins.mixgcn.machines import Spu
from gnnbench_plugins.reference.kernel import TorchAdjacency
from gnnbench_plugins.reference.native_kernel import NativeAdjacency
from tests.kernels.blocks import BLOCKS, draw
from tests.systems.training import PLAIN, losses

NATIVE = dataclasses.replace(PLAIN, kernel="native")
MIXGCN = Parts("mixgcn", "mixgcn", "mixgcn", "resident", "native")
MODELS_AND_LAYERS = [*itertools.product(("gcn", "sage", "gin"), (2, 3, 4)), ("commnet", 4)]
#: Rising, so that kernel 'native' aggregates before it multiplies.
DIMS = (7, 8, 9, 10, 11)

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def masks(monkeypatch):
    used = []
    plain = aggregation.aggregate

    def aggregate(matrix, h, **options):
        mask = options.get("mask")
        if isinstance(mask, np.ndarray):
            used.append(mask)
        return plain(matrix, h, **options)

    monkeypatch.setattr(autograd.kernels, "aggregate", aggregate)
    return used


def make_setting(model, num_layers, platform=None):
    workload = make_workload(model, num_layers, epochs=3)
    dims = (*DIMS[:num_layers], workload.dims[-1])
    if model == "gin":
        dims = workload.dims
    workload = dataclasses.replace(workload, dims=dims)
    shapes = build(workload).shapes
    return Setting(make_dataset(), platform or make_platform(kind="cpu"), workload, shapes)


def run(registry, setting, parts, **options):
    bundle = plugins.assemble(registry, parts, options)
    assert bundle.refusal(setting) is None
    return train(bundle, setting, ModelClock(setting.platform, bundle.kernel))


def products(adjacency, width):
    """Every transposed product, the own rows' infinities among what is summed."""
    block = adjacency.block
    g, wide = (draw(block.num_dst, count, seed=1) for count in (width, 2 * width))
    if block.num_dst:
        g[0, 0] = wide[0, 0] = torch.inf
    src, dst, own = (draw(count, seed=2) for count in (block.num_src, block.num_dst, block.num_dst))
    yield adjacency.sum_transposed(g)
    yield adjacency.sum_transposed(g, draw(block.num_edges, seed=3))
    yield adjacency.sum_scaled_transposed(g, Scaling(src, dst, own))
    yield adjacency.own_and_mean_transposed(wide)
    yield adjacency.own_plus_sum_transposed(g)


@pytest.mark.parametrize("width", [8, 11])
def test_products_are_those_of_torch_where_wanted_and_zero_elsewhere(block, width):
    where = (block, torch.float64, torch.device("cpu"))
    wanted = draw(block.num_src, width, seed=7) > 0
    native = NativeAdjacency(*where)
    masked = native.masked(pack_mask(wanted.numpy()))
    for each in zip(
        products(TorchAdjacency(*where), width),
        products(native, width),
        products(masked, width),
        strict=True,
    ):
        expected, whole, kept = each
        torch.testing.assert_close(whole, expected, rtol=1e-12, atol=1e-12, equal_nan=True)
        assert torch.equal(
            kept.nan_to_num(nan=7.0), torch.where(wanted, whole, 0.0).nan_to_num(nan=7.0)
        )


@pytest.mark.parametrize("masked", [False, True])
def test_destinations_that_stand_elsewhere(masked):
    """``Block.own``: their rows are not the first ones."""
    plain = BLOCKS["random"]
    own = np.arange(plain.num_src - plain.num_dst, plain.num_src, dtype=np.int32)[::-1].copy()
    block = dataclasses.replace(plain, own=own)
    where = (block, torch.float64, torch.device("cpu"))
    wanted = draw(block.num_src, 5, seed=7) > 0
    native = NativeAdjacency(*where)
    adjacency = native.masked(pack_mask(wanted.numpy())) if masked else native
    for ours, theirs in zip(
        products(adjacency, 5), products(TorchAdjacency(*where), 5), strict=True
    ):
        expected = torch.where(wanted, theirs, 0.0) if masked else theirs
        torch.testing.assert_close(ours, expected, rtol=1e-12, atol=1e-12, equal_nan=True)
    h = draw(block.num_src, 5)
    torch.testing.assert_close(
        native.own_plus_sum(h), TorchAdjacency(*where).own_plus_sum(h), rtol=1e-12, atol=1e-12
    )


def test_own_plus_sum_and_its_gradient(block):
    native, torch_ = (
        made(block, torch.float64, torch.device("cpu"))
        for made in (NativeAdjacency, TorchAdjacency)
    )
    h = draw(block.num_src, 3).requires_grad_()
    torch.testing.assert_close(native.own_plus_sum(h), torch_.own_plus_sum(h))
    assert torch.autograd.gradcheck(native.own_plus_sum, (h,))


def test_masks_that_do_not_fit_are_refused():
    adjacency = TorchAdjacency(BLOCKS["random"], torch.float64, torch.device("cpu"))
    with pytest.raises(TypeError, match="TorchAdjacency takes no masks"):
        adjacency.masked(np.zeros((5, 1), dtype=np.uint8))
    matrix = SparseMatrix(np.array([0, 1]), np.zeros(1, dtype=np.int32), 2)
    with pytest.raises(ValueError, match="mask must be a contiguous uint8 array"):
        autograd.multiply_transposed(
            matrix, torch.ones(1, 4), None, Factors(), np.zeros((1, 1), dtype=np.uint8)
        )


def test_a_masked_gradient_passes_relu_as_it_is():
    """And nothing is kept to mask it with."""
    a, weight, bias = draw(5, 3), draw(3, 4, seed=1), draw(4, seed=2)
    leaves = [tensor.requires_grad_() for tensor in (a, weight, bias)]
    plain, masked = (
        autograd.linear(a, weight, bias, relu=True, masked=masked) for masked in (False, True)
    )
    assert torch.equal(plain, masked)
    g = draw(5, 4, seed=3) * (plain > 0)
    for one, other in zip(
        torch.autograd.grad(plain, leaves, g), torch.autograd.grad(masked, leaves, g), strict=True
    ):
        assert torch.equal(one, other)
    untouched = draw(5, 4, seed=3)
    again = autograd.linear(a, None, draw(3), relu=True, masked=True)
    (passed,) = torch.autograd.grad(again, a, untouched[:, :3])
    assert torch.equal(passed, untouched[:, :3])


@pytest.mark.parametrize(("model", "num_layers"), MODELS_AND_LAYERS)
def test_native_trains_as_plain_torch_does(registry, masks, model, num_layers):
    setting = make_setting(model, num_layers)
    plain = losses(run(registry, setting, PLAIN))
    assert not masks
    found = losses(run(registry, setting, NATIVE))
    assert found == pytest.approx(plain, rel=1e-9, abs=0)
    # The first layer's AGGREGATE has no backward pass, and the last one's has W.
    assert len(masks) == 3 * (num_layers - 2)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize(("model", "num_layers"), MODELS_AND_LAYERS)
def test_mixture_of_parallelism_masks_every_workers_columns(
    registry, masks, model, num_layers, workers
):
    setting = make_setting(model, num_layers, make_platform(workers, "cpu"))
    plain = losses(run(registry, setting, PLAIN))
    options = {"sampler": {"stages": "2"}, "placement": {"accelerators": str(workers)}}
    found = run(registry, setting, MIXGCN, **options)
    assert losses(found) == pytest.approx(plain, rel=1e-9, abs=0)
    assert len(masks) == 3 * 2 * workers * (num_layers - 1)
    assert (
        run(registry, setting, dataclasses.replace(MIXGCN, kernel="torch"), **options)
        .epochs[-1]
        .bytes
        == found.epochs[-1].bytes
    )


def test_partitions_mask_what_they_return_to_each_other(registry, masks):
    setting = make_setting("gin", 3)
    parts = registry.strategy("partition").bundles["full-graph"]
    found = run(registry, setting, dataclasses.replace(parts, kernel="native"))
    plain = losses(run(registry, setting, PLAIN))
    assert losses(found) == pytest.approx(plain, rel=1e-9, abs=0)
    assert masks


@pytest.mark.parametrize(
    ("strategy", "mode"),
    [("sancus", "full-graph"), ("hongtu", "full-graph"), ("native", "mini-batch")],
)
def test_stale_rows_and_chunks_on_the_host_and_mini_batches_are_not_masked(
    registry, strategy, mode
):
    """A stale row's mask is not its owner's; the other two keep no tape, or gain nothing."""
    parts = dataclasses.replace(registry.strategy(strategy).bundles[mode], kernel="native")
    assert not masks_gradients(plugins.assemble(registry, parts, {}))


class _Tanh(GCNLayer):
    """GCN with another activation: a gradient is zero nowhere."""

    def update(self, bound, a):
        out = a @ self.weight + self.bias
        return torch.tanh(out) if self.activation else out


@pytest.mark.parametrize("kernel", ["torch", "native"])
def test_layers_of_ones_own_are_not_masked(registry, masks, kernel):
    setting = dataclasses.replace(make_setting("gcn", 3), model=_Tanh)
    found = run(registry, setting, dataclasses.replace(PLAIN, kernel=kernel))
    assert losses(found) == pytest.approx(losses(run(registry, setting, PLAIN)), rel=1e-9, abs=0)
    assert not masks


def test_every_hidden_layer_that_aggregates_first_masks():
    for name in MODELS:
        workload = make_workload(name, 4)
        assert not any(layer.masks_below for layer in build(workload).stack)
        stack = build(workload, masked=True).stack
        expected = [MODELS[name].cacheable] * 3
        assert [layer.masks_below for layer in stack] == [False, *expected]
        assert [layer.masked_above for layer in stack] == [*expected, False]
    stack = build(make_workload("gcn", 4), (2,), masked=True).stack
    assert [layer.masks_below for layer in stack] == [False, True, False, True]
    assert [layer.masked_above for layer in stack] == [True, False, True, False]


@pytest.mark.parametrize("model", ["gcn", "sage", "gin"])
def test_the_masks_priced_are_the_masks_used(registry, masks, monkeypatch, model):
    priced = []
    plain = Spu.run

    def run_spu(self, matrix, width, mask=None):
        if mask is not None:
            priced.append(mask)
        return plain(self, matrix, width, mask)

    monkeypatch.setattr(Spu, "run", run_spu)
    platform = make_platform(2)
    accelerators = tuple(
        dataclasses.replace(device, kind=kind)
        for device, kind in zip(platform.accelerators, ("sparse", "gpu"), strict=True)
    )
    setting = make_setting(model, 3, dataclasses.replace(platform, accelerators=accelerators))
    parts = dataclasses.replace(MIXGCN, kernel=SpuKernel.name)
    options = {"placement": {"sparse_devices": "1", "accelerators": "1"}}
    whole = run(registry, setting, parts, **options)
    assert not masks
    assert not priced
    masked = run(registry, setting, parts, **options, kernel={"masked": "true"})
    assert losses(masked) == pytest.approx(losses(run(registry, setting, PLAIN)), rel=1e-9, abs=0)
    assert losses(masked) == pytest.approx(losses(whole), rel=1e-12, abs=0)
    assert masks
    assert len(priced) == len(masks)
    assert all(np.array_equal(*pair) for pair in zip(priced, masks, strict=True))
