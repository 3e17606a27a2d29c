"""Each model against a formula written with dense matrices, and sampled against full-graph."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import Tensor

from gnnbench.kernels import dispatch
from gnnbench.kernels.csr import csr_tensor
from gnnbench.models import GNN, MODELS, PROJECTED, BoundBlock, Degrees, build
from gnnbench.parts import Adjacency, Kernel
from gnnbench.records import Block, Graph, Workload
from gnnbench_plugins.reference.kernel import TorchAdjacency, TorchKernel
from gnnbench_plugins.reference.native_kernel import NativeKernel
from tests.models.dense_training import FORMULAS, apply_layers, dense_of

NUM_VERTICES = 40
DIMS = (7, 5, 3)
NAMES = tuple(MODELS)
CPU = torch.device("cpu")


def make_graph() -> Graph:
    """A random symmetric graph; the last two vertices are isolated."""
    rng = np.random.default_rng(3)
    upper = np.triu(rng.random((NUM_VERTICES, NUM_VERTICES)) < 0.12, 1)
    upper[:, -2:] = False
    rows, columns = np.nonzero(upper | upper.T)
    counts = np.bincount(rows, minlength=NUM_VERTICES)
    indptr = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    return Graph(indptr, columns.astype(np.int32))


GRAPH = make_graph()


class PlainAdjacency(TorchAdjacency):
    """torch's, with the sum over edges that every kernel inherits."""

    sum_edges = Adjacency.sum_edges


class PlainKernel(TorchKernel):
    def adjacency(self, block: Block, dtype: torch.dtype, device: torch.device) -> PlainAdjacency:
        return PlainAdjacency(block, dtype, device)


def make_workload(model: str, fanouts: tuple[int, ...] = (0, 0)) -> Workload:
    return Workload(model, DIMS, epochs=1, batch_size=8, fanouts=fanouts, seed=5, dtype="float64")


def make_model(name: str, projected: tuple[int, ...] = ()) -> GNN:
    """A fresh model with its biases off zero, so that forgetting one shows."""
    model = build(make_workload(name), projected)
    generator = torch.Generator().manual_seed(9)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return model


def bind(block: Block, kernel: Kernel | None = None) -> BoundBlock:
    return BoundBlock(block, kernel or TorchKernel(), Degrees(GRAPH.degrees), torch.float64, CPU)


def whole() -> BoundBlock:
    ids = np.arange(NUM_VERTICES, dtype=np.int64)
    return bind(Block(ids, NUM_VERTICES, GRAPH.indptr, GRAPH.indices))


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("name", NAMES)
def test_forward_and_gradients_equal_the_dense_formula(name: str) -> None:
    model, h = make_model(name), draw(NUM_VERTICES, DIMS[0]).requires_grad_()
    ours = model([whole()] * 2, h)
    theirs = apply_layers(model.stack, FORMULAS[name], dense_of(GRAPH), h)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    g = draw(NUM_VERTICES, DIMS[-1], seed=1)
    inputs = (h, *model.parameters())
    for one, other in zip(
        torch.autograd.grad(ours, inputs, g), torch.autograd.grad(theirs, inputs, g), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", [name for name in NAMES if MODELS[name].cacheable])
@pytest.mark.parametrize("kind", ["whole", "sampled", "chunk"])
def test_aggregate_backward_equals_autograd(name: str, kind: str) -> None:
    seeds = np.array([3, 38, 11, 0], dtype=np.int64)
    bound = whole()
    if kind == "sampled":
        (block,) = dispatch.sample_neighbours(
            GRAPH.indptr, GRAPH.indices, seeds, (2,), seed=0, epoch=0
        )
        bound = bind(block)
    elif kind == "chunk":
        bound = bind(dispatch.induce_block(GRAPH.indptr, GRAPH.indices, seeds))
    layer = make_model(name).stack[0]
    h = draw(bound.block.num_src, DIMS[0]).requires_grad_()
    out = layer.aggregate(bound, h)
    g = draw(*out.shape, seed=1)
    (expected,) = torch.autograd.grad(out, h, g)
    torch.testing.assert_close(layer.aggregate_backward(bound, g), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["gat", "ggcn"])
def test_computation_on_edges_refuses_the_cached_backward(name: str) -> None:
    layer = make_model(name).stack[0]
    assert not layer.shape.cacheable
    with pytest.raises(TypeError, match="recomputed"):
        layer.aggregate_backward(whole(), draw(NUM_VERTICES, DIMS[1]))


@pytest.mark.parametrize(("name", "width"), [("gat", 2), ("ggcn", 2 * DIMS[1])])
def test_edge_features_are_what_autograd_keeps_of_the_edges(name: str, width: int) -> None:
    """Distinct floating-point tensors with a row per edge (or self loop) that are saved."""
    bound, layer = whole(), make_model(name).stack[0]
    num_edges = bound.block.num_edges + (bound.block.num_dst if name == "gat" else 0)
    saved: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        if tensor.is_floating_point() and len(tensor) == num_edges:
            saved[tensor.data_ptr()] = tensor.numel()
        return tensor

    h = draw(NUM_VERTICES, DIMS[0]).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        aggregated = layer.aggregate(bound, h)
    assert aggregated.requires_grad
    assert sum(saved.values()) == num_edges * width
    assert layer.shape.on_edges.kept == width


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("gat", "ggcn")])
def test_a_layer_that_is_cached_keeps_nothing_of_the_edges(name: str) -> None:
    for shape in make_model(name).shapes:
        assert shape.cacheable
        assert shape.on_edges.kept == 0


@pytest.mark.parametrize("kernel", [PlainKernel, TorchKernel, NativeKernel])
@pytest.mark.parametrize("kind", ["whole", "sampled", "empty"])
def test_sum_edges_is_a_product_with_the_incidence_matrix(
    kind: str, kernel: type[TorchKernel] | type[NativeKernel]
) -> None:
    block = make_blocks("whole" if kind == "whole" else "sampled")[0]
    if kind == "empty":
        block = Block(block.src_ids, 2, np.zeros(3, dtype=np.int64), np.empty(0, dtype=np.int32))
    adjacency = bind(block, kernel()).adjacency
    messages = draw(block.num_edges, 3).requires_grad_()
    incidence = torch.zeros(block.num_dst, block.num_edges, dtype=torch.float64)
    incidence[adjacency.edge_dst, torch.arange(block.num_edges)] = 1
    out = adjacency.sum_edges(messages)
    torch.testing.assert_close(out, incidence @ messages, rtol=1e-13, atol=1e-13)
    g = draw(block.num_dst, 3, seed=1)
    (gradient,) = torch.autograd.grad(out, messages, g)
    assert torch.equal(gradient, incidence.t() @ g)


def test_the_work_of_a_gated_layer() -> None:
    """Four products, and one multiplication for each edge and column; three rows read an edge."""
    (block, _) = make_blocks("sampled")
    layer = make_model("ggcn").stack[0]
    work = layer.aggregate_work(block, 8)
    f_in, f_out = DIMS[:2]
    sources, destinations = block.num_src * f_in * f_out, block.num_dst * f_in * f_out
    assert work.macs == 2 * sources + 2 * destinations + block.num_edges * f_out
    assert (work.edges, work.rows, work.features) == (block.num_edges, block.num_dst, 3 * f_out)
    assert layer.update_work(block.num_dst, 8).macs == 0


def test_the_work_of_an_attention_layer() -> None:
    """Every source times W, and then a row for each edge, of every vertex to itself as well."""
    (block, _) = make_blocks("sampled")
    layer = make_model("gat").stack[0]
    work = layer.aggregate_work(block, 8)
    f_in, f_out = DIMS[:2]
    assert work.macs == block.num_src * f_in * f_out
    assert (work.edges, work.rows) == (block.num_edges + block.num_dst, block.num_dst)
    assert (work.features, work.sources) == (f_out, block.num_src)
    assert layer.update_work(block.num_dst, 8).macs == 0


def make_blocks(kind: str) -> list[Block]:
    ids = np.arange(NUM_VERTICES, dtype=np.int64)
    if kind == "whole":
        return [Block(ids, NUM_VERTICES, GRAPH.indptr, GRAPH.indices)] * 2
    seeds = np.array([3, 38, 11, 0], dtype=np.int64)
    return list(
        dispatch.sample_neighbours(GRAPH.indptr, GRAPH.indices, seeds, (2, 3), seed=0, epoch=0)
    )


@pytest.mark.parametrize("kernel", [TorchKernel, NativeKernel], ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("kind", ["whole", "sampled"])
@pytest.mark.parametrize(
    ("sparse", "projected"),
    [(False, (0,)), (False, (1,)), (False, (0, 1)), (True, (0,)), (True, (0, 1))],
)
@pytest.mark.parametrize("name", list(PROJECTED))
def test_w_first_or_last_is_the_same(
    name: str, sparse: bool, projected: tuple[int, ...], kind: str, kernel: type[Kernel]
) -> None:
    blocks = make_blocks(kind)
    plain, other = make_model(name), make_model(name, projected)
    assert plain.state_dict().keys() == other.state_dict().keys()
    other.load_state_dict(plain.state_dict())
    x = draw(blocks[0].num_src, DIMS[0])
    x[(x < 0.3) | (x.sum(1, keepdim=True) > 2)] = 0
    given = x.clone().requires_grad_()
    if sparse:
        stored = sp.csr_matrix(x.numpy())
        parts = (torch.from_numpy(a) for a in (stored.indptr, stored.indices, stored.data))
        given = csr_tensor(*parts, x.shape)
    x.requires_grad_()
    theirs = plain([bind(block) for block in blocks], x)
    made = kernel()
    ours = other([bind(block, made) for block in blocks], given)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    g = draw(*theirs.shape, seed=1)
    leaves = [] if sparse else [given]
    gradients = torch.autograd.grad(ours, [*other.parameters(), *leaves], g)
    expected = torch.autograd.grad(theirs, [*plain.parameters(), x][: len(gradients)], g)
    for one, two in zip(gradients, expected, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", list(PROJECTED))
def test_w_first_changes_shapes_but_no_parameters(name: str) -> None:
    plain, projected = make_model(name), make_model(name, (0, 1))
    for one, other in zip(plain.shapes, projected.shapes, strict=True):
        assert other.parameters == one.parameters
        assert (other.in_features, other.out_features) == (one.in_features, one.out_features)
        assert other.aggregate_features == one.out_features
        assert not other.cacheable
    h = draw(NUM_VERTICES, DIMS[0])
    for layer in projected.stack:
        aggregated = layer.aggregate(whole(), h)
        assert aggregated.shape[1] == layer.shape.aggregate_features
        h = layer.update(whole(), aggregated)
        with pytest.raises(TypeError, match="recomputed"):
            layer.aggregate_backward(whole(), h)
    # As many multiplications as when W comes last, where every row is a destination.
    block = whole().block
    for one, other in zip(plain.stack, projected.stack, strict=True):
        work = [layer.aggregate_work(block, 8) for layer in (one, other)]
        updates = [layer.update_work(block.num_dst, 8) for layer in (one, other)]
        assert work[0].macs + updates[0].macs == work[1].macs + updates[1].macs
        assert [w.features for w in work] == [one.in_features, one.out_features]


@pytest.mark.parametrize("name", NAMES)
def test_unlimited_fanout_equals_the_full_graph(name: str) -> None:
    """A mini-batch that samples every neighbour computes what full-graph training computes."""
    model, x = make_model(name), draw(NUM_VERTICES, DIMS[0])
    seeds = np.array([5, 39, 0, 17, 22, 8], dtype=np.int64)
    blocks = dispatch.sample_neighbours(GRAPH.indptr, GRAPH.indices, seeds, (0, 0), seed=0, epoch=0)
    batch = model([bind(block) for block in blocks], x[torch.from_numpy(blocks[0].src_ids)])
    full = model([whole()] * 2, x)[torch.from_numpy(seeds)]
    torch.testing.assert_close(batch, full, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_shapes_say_what_the_layers_do(name: str) -> None:
    model, h = make_model(name), draw(NUM_VERTICES, DIMS[0])
    for layer in model.stack:
        aggregated = layer.aggregate(whole(), h)
        assert aggregated.shape[1] == layer.shape.aggregate_features
        assert layer.shape.parameters == sum(p.numel() for p in layer.parameters())
        h = layer.update(whole(), aggregated)
        assert h.shape[1] == layer.shape.out_features


@pytest.mark.parametrize("name", NAMES)
def test_every_dtype_starts_from_the_same_parameters(name: str) -> None:
    workload = make_workload(name)
    narrow = Workload(
        name, DIMS, epochs=1, batch_size=8, fanouts=(0, 0), seed=workload.seed, dtype="float32"
    )
    pairs = list(zip(build(workload).parameters(), build(narrow).parameters(), strict=True))
    assert pairs
    for wide, short in pairs:
        assert short.dtype == torch.float32
        assert torch.equal(wide.float(), short)
