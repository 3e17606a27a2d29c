"""PyG and DGL as kernels and samplers, held equal to dense float64 algebra."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from gnnbench import check as conformance
from gnnbench import models
from gnnbench.check.graphs import make_dataset, make_platform
from gnnbench.datasets import dgl_library as importing
from gnnbench.errors import MissingDependencyError
from gnnbench.models import BoundBlock, Degrees
from gnnbench.parts import Bundle, Kernel, Setting
from gnnbench.records import Block, BlockSize, BoolArray, Workload
from gnnbench_plugins.dgl.kernel import DGLKernel
from gnnbench_plugins.dgl.sampler import DGLSampler
from gnnbench_plugins.pyg import gnnbench_strategy as pyg_strategies
from gnnbench_plugins.pyg import kernel as pyg_kernel
from gnnbench_plugins.pyg import sampler as pyg_sampler
from gnnbench_plugins.pyg.kernel import PyGKernel
from gnnbench_plugins.pyg.sampler import PyGSampler, blocks_of
from gnnbench_plugins.reference.kernel import TorchKernel
from gnnbench_plugins.reference.sampler import NeighbourSampler
from tests.systems.training import make_setting, registry

if TYPE_CHECKING:
    from torch_geometric.sampler import NodeSamplerInput, SamplerOutput

KERNELS: list[type[Kernel]] = [PyGKernel, DGLKernel]
MATHS = next(check for check in conformance.CHECKS if check.name == "kernel-maths")
CPU = torch.device("cpu")


def block_of(edges: BoolArray) -> Block:
    """Return the block whose dense ``(D, S)`` adjacency is ``edges``."""
    indptr = np.concatenate(([0], np.cumsum(edges.sum(1)))).astype(np.int64)
    return Block(
        src_ids=np.arange(edges.shape[1], dtype=np.int64),
        num_dst=edges.shape[0],
        indptr=indptr,
        indices=np.nonzero(edges)[1].astype(np.int32),
    )


def random_edges(num_dst: int, num_src: int, share: float) -> BoolArray:
    """Draw edges; the second and the last destination have none."""
    edges: BoolArray = np.random.default_rng(7).random((num_dst, num_src)) < share
    edges[[1, -1]] = False
    return edges


BIPARTITE = random_edges(9, 14, 0.4)
#: Without self loops.
LOOPLESS = BIPARTITE & ~np.eye(9, 14, dtype=bool)


@pytest.fixture(params=KERNELS, ids=lambda kernel: kernel.name)
def kernel(request: pytest.FixtureRequest) -> Kernel:
    made: Kernel = request.param()
    return made


def draw(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape) + 1)
    values = torch.randn(shape, generator=generator, dtype=torch.float64)
    return values.to(dtype).requires_grad_()


def bind(edges: BoolArray, kernel: Kernel) -> BoundBlock:
    """Return the block of ``edges`` in float64, with degrees that are not its own."""
    return BoundBlock(block_of(edges), kernel, Degrees(np.arange(2, 16)), torch.float64, CPU)


def small_setting(model: str = "gcn", **workload: Any) -> Setting:
    workload = {"fanouts": (4, 4), **workload}
    layers = len(workload["fanouts"])
    return make_setting(make_dataset(), make_platform(1), model, layers, 1, **workload)


def test_operations_equal_the_dense_ones(kernel: Kernel) -> None:
    outcome = conformance.run_check(MATHS, registry(), f"kernel={kernel.name}")
    assert outcome.status == "passed", outcome.reason
    for shape in ((0, 4), (1, 1), (3, 5)):
        adjacency = kernel.adjacency(block_of(np.zeros(shape, dtype=bool)), torch.float64, CPU)
        h = draw(shape[1], 5)
        for out in (adjacency.sum(h), adjacency.mean(h)):
            assert out.tolist() == [[0.0] * 5] * shape[0]
        assert adjacency.edge_softmax(draw(0)).tolist() == []
    one = kernel.adjacency(block_of(np.array([[False, True]])), torch.float64, CPU)
    assert one.sum(torch.tensor([[3.0], [5.0]]).double()).tolist() == [[5.0]]


def test_edge_softmax_survives_large_scores(kernel: Kernel) -> None:
    edges = np.ones((1, 3), dtype=bool)
    scores = torch.tensor([1000.0, 1000.0, -1000.0], dtype=torch.float64)
    ours = kernel.adjacency(block_of(edges), torch.float64, CPU).edge_softmax(scores)
    assert ours.tolist() == [0.5, 0.5, 0.0]


def test_unsorted_rows_keep_the_order_of_their_edges(kernel: Kernel) -> None:
    block = Block(
        src_ids=np.arange(4, dtype=np.int64),
        num_dst=2,
        indptr=np.array([0, 3, 4], dtype=np.int64),
        indices=np.array([3, 1, 2, 0], dtype=np.int32),
    )
    adjacency = kernel.adjacency(block, torch.float64, CPU)
    weight = torch.tensor([1.0, 10.0, 100.0, 1000.0], dtype=torch.float64)
    h = torch.tensor([[1.0], [2.0], [3.0], [5.0]], dtype=torch.float64)
    assert adjacency.edge_src.tolist() == [3, 1, 2, 0]
    assert adjacency.sum(h, weight).flatten().tolist() == [325.0, 1000.0]
    assert adjacency.sum(h, weight.requires_grad_()).flatten().tolist() == [325.0, 1000.0]
    g = torch.tensor([[1.0], [2.0]], dtype=torch.float64)
    assert adjacency.sum_transposed(g, weight).flatten().tolist() == [2000.0, 10.0, 100.0, 1.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_may_be_strided(kernel: Kernel, dtype: torch.dtype) -> None:
    block = block_of(BIPARTITE)
    adjacency = kernel.adjacency(block, dtype, CPU)
    weight = draw(block.num_edges, dtype=dtype).detach()
    wide = draw(6, block.num_src, dtype=dtype)
    h = wide.t()[:, ::2]
    torch.testing.assert_close(adjacency.sum(h, weight), adjacency.sum(h.contiguous(), weight))
    (gradient,) = torch.autograd.grad(adjacency.sum(h).sum(), wide)
    expected = torch.zeros_like(wide)
    expected[::2] = torch.from_numpy(BIPARTITE.sum(0)).to(dtype)
    assert torch.equal(gradient, expected)
    g = draw(7, block.num_dst, dtype=dtype).detach().t()[:, 1:4]
    ours, packed = (adjacency.sum_transposed(rows, weight) for rows in (g, g.contiguous()))
    torch.testing.assert_close(ours, packed)


def test_kernels_are_deterministic_to_the_bit(kernel: Kernel) -> None:
    block = block_of(random_edges(400, 500, 0.1))
    h, weight = draw(500, 64, dtype=torch.float32), draw(block.num_edges, dtype=torch.float32)

    def compute() -> list[Tensor]:
        adjacency = kernel.adjacency(block, torch.float32, CPU)
        trained = adjacency.sum(h, adjacency.edge_softmax(weight))
        outputs = [adjacency.sum(h, weight.detach()), adjacency.mean(h), trained]
        total = torch.stack([output.square().sum() for output in outputs]).sum()
        return [*outputs, *torch.autograd.grad(total, (h, weight))]

    first = compute()
    for _ in range(3):
        assert all(torch.equal(a, b) for a, b in zip(first, compute(), strict=True))


def test_constant_weights_make_no_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    from gnnbench_plugins.pyg.propagation import MEAN, SUM

    block = block_of(BIPARTITE)
    adjacency = PyGKernel().adjacency(block, torch.float64, CPU)
    h, weight = draw(block.num_src, 3), draw(block.num_edges)
    widths: list[int] = []
    hooks = [
        module.register_message_forward_hook(lambda _, __, out: widths.append(out.numel()))
        for module in (SUM, MEAN)
    ]
    try:
        adjacency.sum(h).sum().backward()
        adjacency.sum(h, weight.detach()).sum().backward()
        adjacency.mean(h).sum().backward()
        with torch.no_grad():
            adjacency.sum(h, weight)
        assert widths == []
        adjacency.sum(h, weight)
        assert widths == [3 * block.num_edges]
    finally:
        for hook in hooks:
            hook.remove()


def test_pyg_holds_in_degrees_of_the_workloads_type() -> None:
    size = BlockSize(num_dst=9, num_src=14, num_edges=40)
    (shape, *_) = small_setting().layers
    single, double = (PyGKernel().adjacency_bytes(size, shape, each) for each in (4, 8))
    assert double - single == 4 * size.num_dst


def test_pyg_transposes_a_block_once() -> None:
    block = block_of(BIPARTITE)
    adjacency = PyGKernel().adjacency(block, torch.float32, CPU)
    h = draw(block.num_src, 3, dtype=torch.float32)
    weight = draw(block.num_edges, dtype=torch.float32).detach()

    def list_backward() -> set[str]:
        out = adjacency.sum(h) + adjacency.sum(h, weight) + adjacency.mean(h)
        with torch.profiler.profile() as profile:
            out.sum().backward()
        return {event.key for event in profile.key_averages()}

    assert "aten::sort" in list_backward()
    again = list_backward()
    assert "aten::sort" not in again
    assert {"aten::mm", "aten::addmm", "aten::_sparse_mm"} & again


@pytest.mark.parametrize(
    ("name", "projected"),
    [*((name, ()) for name in models.MODELS), *((name, (0, 1)) for name in models.PROJECTED)],
)
def test_models_equal_those_of_kernel_torch(
    kernel: Kernel, name: str, projected: tuple[int, ...]
) -> None:
    """Kernel ``torch`` is held equal to dense formulas in ``tests/models``."""
    chain = [LOOPLESS, random_edges(5, 9, 0.4) & ~np.eye(5, 9, dtype=bool)]
    workload = Workload(name, (6, 4, 3), 1, 5, (0, 0), seed=3, dtype="float64")
    model, h = models.build(workload, projected), draw(14, 6)
    found = []
    for each in (kernel, TorchKernel()):
        bounds = [bind(edges, each) for edges in chain]
        out = model(bounds, h)
        gradients = torch.autograd.grad(out.square().sum(), [h, *model.parameters()])
        backward = []
        for layer, bound in zip(model.stack, bounds, strict=True):
            if layer.cacheable:
                rows = draw(bound.block.num_src, layer.in_features)
                aggregate = layer.aggregate(bound, rows)
                g = draw(*aggregate.shape).detach()
                backward.append(layer.aggregate_backward(bound, g))
                (expected,) = torch.autograd.grad(aggregate, rows, g)
                torch.testing.assert_close(backward[-1], expected, rtol=1e-12, atol=1e-12)
        found.append([out, *gradients, *backward])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-12)


class RowsMultiplied(TorchFunctionMode):
    """The number of rows of each matrix product; all make rows of one width of another."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.shape = shape
        self.rows: list[int] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        out = func(*args, **(kwargs or {}))
        if func in (torch.matmul, Tensor.matmul, torch.nn.functional.linear):
            assert (args[0].shape[1], out.shape[1]) == self.shape
            self.rows.append(len(out))
        return out


def own_layer(kernel: Kernel, name: str, *dims: int) -> tuple[models.Layer, bool]:
    """Return the layer as the engine has this kernel train it, and whether W comes first there."""
    setting = small_setting(name, dims=dims, fanouts=(2,))
    first = kernel.projects_first(0, setting, "mini-batch")
    assert first == kernel.projects_first(0, setting, "full-graph")
    (layer,) = models.build(setting.workload, (0,) if first else ()).stack
    return layer, first


def test_gin_conv_sums_features_before_its_perceptron(kernel: Kernel) -> None:
    assert not own_layer(kernel, "gin", 7, 3)[1]


def test_dgl_before_0_7_never_multiplies_first() -> None:
    assert own_layer(DGLKernel(), "sage", 7, 3)[1]
    assert not own_layer(DGLKernel(projects="never"), "sage", 7, 3)[1]


@pytest.mark.parametrize("dims", [(7, 3), (3, 7), (5, 5)])
@pytest.mark.parametrize("name", ["gcn", "sage"])
def test_w_comes_where_their_own_modules_have_it(
    kernel: Kernel, name: str, dims: tuple[int, int]
) -> None:
    """GraphConv, SAGEConv and GCNConv give equal outputs, with W on the same side."""
    edges = LOOPLESS.copy()
    edges[[1, -1], 0] = True  # DGL's GraphConv refuses destinations without edges
    bound = bind(edges, kernel)
    layer, first = own_layer(kernel, name, *dims)
    h, module = draw(14, dims[0]).detach(), MODULES[kernel.name, name](layer, bound)
    with RowsMultiplied(*dims) as seen, torch.no_grad():
        theirs = module(h)
    torch.testing.assert_close(layer.update(bound, layer.aggregate(bound, h)), theirs)
    # One product, or with GraphSAGE one more for the destinations' own rows.
    assert sorted(seen.rows) == [*([9] if name == "sage" else []), 14 if first else 9]


Module = Callable[[Tensor], Tensor]


def normalised_edges(bound: BoundBlock) -> tuple[Tensor, Tensor, Tensor]:
    """Return sources, destinations and weights of the normalised adjacency with self loops."""
    loops = torch.arange(bound.block.num_dst)
    plain, scaling = bound.adjacency, bound.gcn_scaling
    return (
        torch.cat((plain.edge_src, loops)),
        torch.cat((plain.edge_dst, loops)),
        torch.cat((scaling.of_edges(plain), scaling.own)),
    )


def make_dgl_gcn(layer: models.Layer, bound: BoundBlock) -> Module:
    dgl = importing.load_dgl()
    from dgl.nn.pytorch import GraphConv

    src, dst, weight = normalised_edges(bound)
    graph = dgl.create_block((src, dst), bound.block.num_src, bound.block.num_dst)
    module = GraphConv(layer.in_features, layer.out_features, norm="none").double()
    module.load_state_dict(layer.state_dict())
    return lambda h: module(graph, h, edge_weight=weight)


def make_dgl_sage(layer: models.Layer, bound: BoundBlock) -> Module:
    dgl = importing.load_dgl()
    from dgl.nn.pytorch import SAGEConv

    ends = (bound.adjacency.edge_src, bound.adjacency.edge_dst)
    graph = dgl.create_block(ends, bound.block.num_src, bound.block.num_dst)
    module = SAGEConv(layer.in_features, layer.out_features, "mean").double()
    own, neighbours = layer.weight.split(layer.in_features)
    module.load_state_dict(
        {"fc_self.weight": own.t(), "fc_self.bias": layer.bias, "fc_neigh.weight": neighbours.t()}
    )
    return lambda h: module(graph, h)


def make_pyg_gcn(layer: models.Layer, bound: BoundBlock) -> Module:
    from torch_geometric.nn import GCNConv

    src, dst, weight = normalised_edges(bound)
    module = GCNConv(layer.in_features, layer.out_features, normalize=False).double()
    module.load_state_dict({"bias": layer.bias, "lin.weight": layer.weight.t()})
    return lambda h: module(h, torch.stack((src, dst)), weight)[: bound.block.num_dst]


def make_pyg_sage(layer: models.Layer, bound: BoundBlock) -> Module:
    from torch_geometric.nn import SAGEConv

    module = SAGEConv(layer.in_features, layer.out_features).double()
    own, neighbours = layer.weight.split(layer.in_features)
    module.load_state_dict(
        {"lin_r.weight": own.t(), "lin_l.weight": neighbours.t(), "lin_l.bias": layer.bias}
    )
    edge_index = torch.stack((bound.adjacency.edge_src, bound.adjacency.edge_dst))
    return lambda h: module((h, h[: bound.block.num_dst]), edge_index)


MODULES = {
    ("dgl", "gcn"): make_dgl_gcn,
    ("dgl", "sage"): make_dgl_sage,
    ("pyg", "gcn"): make_pyg_gcn,
    ("pyg", "sage"): make_pyg_sage,
}


def test_the_gated_layer_is_pygs_without_its_inner_biases() -> None:
    from torch_geometric.nn import ResGatedGraphConv

    workload = Workload("ggcn", (5, 3), 1, 5, (0,), seed=3, dtype="float64")
    (layer,) = models.build(workload).stack
    bound = bind(LOOPLESS, PyGKernel())
    module = ResGatedGraphConv(5, 3).double()
    state = {name: torch.zeros_like(value) for name, value in module.state_dict().items()}
    for theirs, ours in (("key", "gate_dst"), ("query", "gate_src"), ("value", "message")):
        state[f"lin_{theirs}.weight"] = layer.get_parameter(ours).t()
    module.load_state_dict(state | {"lin_skip.weight": layer.get_parameter("own").t()})
    h = draw(14, 5).detach()
    with torch.no_grad():
        index = torch.stack((bound.adjacency.edge_src, bound.adjacency.edge_dst))
        expected = module((h, h[:9]), index)
        torch.testing.assert_close(layer.update(bound, layer.aggregate(bound, h)), expected)


def begun(setting: Setting) -> DGLSampler:
    sampler = DGLSampler()
    sampler.begin(setting)
    return sampler


def listing(blocks: tuple[Block, ...]) -> list[list[list[int]]]:
    return [
        [block.src_ids.tolist(), block.indptr.tolist(), block.indices.tolist()] for block in blocks
    ]


def test_dgl_draws_depend_on_seed_epoch_and_batch_alone() -> None:
    setting = small_setting()
    sampler, reference = begun(setting), NeighbourSampler()
    reference.begin(setting)
    for seeds, expected in zip(sampler.rounds(2), reference.rounds(2), strict=True):
        assert np.array_equal(seeds, expected)
    first, second = sampler.rounds(0)[:2]
    threads = torch.get_num_threads()
    drawn = listing(sampler.sample(first, epoch=0, threads=0))
    assert torch.get_num_threads() == threads
    assert listing(sampler.sample(second, epoch=0, threads=0)) != drawn
    assert listing(sampler.sample(first, epoch=1, threads=0)) != drawn
    assert listing(sampler.sample(first, epoch=0, threads=0)) == drawn
    assert listing(begun(small_setting(seed=12)).sample(first, epoch=0, threads=0)) != drawn


def digest_draws() -> str:
    sampler = begun(small_setting())
    drawn = [listing(sampler.sample(seeds, 0, 0)) for seeds in sampler.rounds(0)]
    return hashlib.sha256(str(drawn).encode()).hexdigest()


def sampler_output(hops: bool) -> SamplerOutput:
    """Return PyG's output for seeds 5 and 9: 5 drew 7 and 9, 9 drew 5, then 7 drew 5 and 2."""
    from torch_geometric.sampler import SamplerOutput

    return SamplerOutput(
        node=torch.tensor([5, 9, 7, 2]),
        row=torch.tensor([2, 1, 0, 0, 3]),
        col=torch.tensor([0, 0, 1, 2, 2]),
        edge=None,
        num_sampled_nodes=[2, 1, 1] if hops else None,
        num_sampled_edges=[3, 2] if hops else None,
    )


@pytest.mark.parametrize("hops", [True, False], ids=["pyg-lib", "torch-sparse"])
def test_pyg_output_becomes_blocks(hops: bool) -> None:
    blocks = blocks_of(sampler_output(hops), num_seeds=2, num_layers=2)
    assert listing(blocks) == [
        [[5, 9, 7, 2], [0, 2, 3, 5], [2, 1, 0, 0, 3]],
        [[5, 9, 7], [0, 2, 3], [2, 1, 0]],
    ]
    assert [block.num_dst for block in blocks] == [3, 2]
    assert blocks[0].indices.dtype == np.int32
    assert blocks[0].src_ids.dtype == blocks[0].indptr.dtype == np.int64


def test_pyg_output_without_edges_becomes_empty_blocks() -> None:
    from torch_geometric.sampler import SamplerOutput

    nothing = torch.empty(0, dtype=torch.int64)
    output = SamplerOutput(node=torch.tensor([3, 1]), row=nothing, col=nothing, edge=None)
    blocks = blocks_of(output, num_seeds=2, num_layers=2)
    assert listing(blocks) == [[[3, 1], [0, 0, 0], []]] * 2


def test_pyg_samples_only_where_it_can_draw(
    bundle_of_pyg: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = small_setting()

    def install(*names: str) -> None:
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda name: object() if name in names else None
        )

    install()
    reason = bundle_of_pyg.sampler.refuses(bundle_of_pyg, setting)
    assert reason is not None
    assert "pyg-lib or torch-sparse" in reason
    assert pyg_strategies()[0].bundles["mini-batch"].sampler == "pyg-loader"
    install("torch_sparse")
    assert bundle_of_pyg.sampler.refuses(bundle_of_pyg, setting) is not None
    for names in (("pyg_lib",), ("torch_sparse", "torch_scatter")):
        install(*names)
        assert bundle_of_pyg.sampler.refuses(bundle_of_pyg, setting) is None
        assert pyg_strategies()[0].bundles["mini-batch"].sampler == "pyg"


def test_pyg_sampler_needs_a_library_that_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch_geometric.typing

    monkeypatch.setattr(torch_geometric.typing, "WITH_PYG_LIB", False)
    monkeypatch.setattr(torch_geometric.typing, "WITH_TORCH_SPARSE", False)
    with pytest.raises(MissingDependencyError, match="neither loads"):
        PyGSampler().begin(small_setting())


def test_pyg_draws_are_seeded_and_leave_torch_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch_geometric.typing
    from torch_geometric.sampler import NeighborSampler, SamplerOutput

    def draw_from_torch(sampler: NeighborSampler, inputs: NodeSamplerInput) -> SamplerOutput:
        seeds: Tensor = inputs.node
        first = int(seeds[0])
        begin, end = sampler.colptr[first : first + 2].tolist()
        neighbour = sampler.row[begin + int(torch.randint(end - begin, (1,)))]
        return SamplerOutput(
            node=torch.cat((seeds, neighbour.view(1))),
            row=torch.tensor([len(seeds)]),
            col=torch.tensor([0]),
            edge=None,
        )

    monkeypatch.setattr(torch_geometric.typing, "WITH_TORCH_SPARSE", True)
    monkeypatch.setattr(NeighborSampler, "sample_from_nodes", draw_from_torch)
    setting = small_setting()
    sampler = PyGSampler()
    sampler.begin(setting)
    seeds = np.array([8], dtype=np.int64)
    state = torch.get_rng_state()
    drawn = [listing(sampler.sample(seeds, epoch, threads=0)) for epoch in (0, 1, 2, 3, 0, 1)]
    assert torch.equal(torch.get_rng_state(), state)
    assert drawn[:2] == drawn[4:]
    assert any(other != drawn[0] for other in drawn[1:4])
    graph = setting.dataset.graph
    neighbours = graph.indices[graph.indptr[8] : graph.indptr[9]].tolist()
    assert all(blocks[0][0][1] in neighbours for blocks in drawn)


@pytest.fixture
def bundle_of_pyg() -> Bundle:
    return Bundle(PyGSampler(), None, None, None, PyGKernel())  # type: ignore[arg-type]


PROGRAM = """
import json, sys, warnings
import gnnbench_plugins.dgl, gnnbench_plugins.pyg
for plugin in (gnnbench_plugins.pyg, gnnbench_plugins.dgl):
    plugin.gnnbench_parts(), plugin.gnnbench_strategy()
offered = [name for name in ("dgl", "torch_geometric") if name in sys.modules]
warnings.simplefilter("error")
from gnnbench.datasets.dgl_library import AbsentGraphBolt, load_dgl
dgl = load_dgl()
assert load_dgl() is dgl
from dgl import graphbolt
warnings.simplefilter("default")
from tests.systems.pyg.test_peers import digest_draws
print(json.dumps([offered, dgl.__version__, isinstance(graphbolt, AbsentGraphBolt),
                  digest_draws()]))
"""


def test_a_fresh_process_imports_late_quietly_and_draws_the_same(tmp_path: Path) -> None:
    """Offering the peers imports neither, DGL writes nothing home, and other threads draw alike."""
    path = os.pathsep.join((str(Path(__file__).parents[3]), *sys.path))
    environment = {"PYTHONPATH": path, "HOME": str(tmp_path), "OMP_NUM_THREADS": "3"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    offered, version, absent, drawn = json.loads(done.stdout)
    assert offered == []
    assert version == importing.load_dgl().__version__
    package = Path(importing.load_dgl().__file__ or "").parent
    assert absent == (not importing.graphbolt_loads(package))
    assert drawn == digest_draws()
    assert list(tmp_path.iterdir()) == []


def test_graphbolt_loads_only_for_this_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "graphbolt"
    folder.mkdir()
    (folder / "libgraphbolt_pytorch_0.1.0.so").touch()
    assert not importing.graphbolt_loads(tmp_path)

    version = torch.__version__.split("+")[0]
    library = folder / f"libgraphbolt_pytorch_{version}.so"
    library.write_bytes(b"not a library")
    monkeypatch.setitem(sys.modules, "torchdata.datapipes.iter", sys)
    assert not importing.graphbolt_loads(tmp_path)

    loaded: list[str] = []
    monkeypatch.setattr(torch.classes, "load_library", loaded.append)
    assert importing.graphbolt_loads(tmp_path)
    assert loaded == [str(library)]


def test_missing_libraries_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    importing.load_dgl.cache_clear()
    monkeypatch.delitem(sys.modules, "dgl", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match="pip install dgl"):
        DGLKernel().begin(small_setting())

    monkeypatch.setitem(sys.modules, "gnnbench_plugins.pyg.propagation", None)
    with pytest.raises(MissingDependencyError, match="pip install torch-geometric"):
        pyg_kernel.require_pyg()
    assert not pyg_sampler.can_draw()
