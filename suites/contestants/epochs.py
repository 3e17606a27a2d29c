"""Whole epochs of training: our strategy, peers' strategies, and plain loops over peers' layers.

Strategies differ in their parts and share the engine, the model's mathematics, its initial weights
and the optimiser. ``dgl.nn`` and ``pyg.nn`` share only the weights: they are the libraries' own
layers in a plain loop, without anything of this project around them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gnnbench import datasets, plugins
from gnnbench.comparison import Request, make_setting
from gnnbench.datasets.dgl_library import load_dgl
from gnnbench.errors import MissingDependencyError
from gnnbench.kernels.csr import csr_tensor
from gnnbench.machines.describe import LOCAL, load_platform
from gnnbench.models import build
from gnnbench.models.layers import GATLayer
from gnnbench.parts import MiniBatchSampler, Setting
from gnnbench.price.wall_clock import WallClock
from gnnbench.records import Dataset, Mode, Workload
from gnnbench.run import make_engine
from gnnbench.run.recorder import Recorder
from gnnbench_plugins.pyg.kernel import require_pyg
from gnnbench_plugins.pyg.sampler import can_draw
from suites.contestants import Scope
from suites.race import OURS, Case, Contestant, Target, WrongResultError

#: Datasets by the names that their graphs have in tables.
DATASETS = {
    "rmat-4k": "rmat:vertices=4096,edges=60000,features=100",
    "rmat-1m": "rmat:vertices=1M,edges=16M,features=100",
    "coauthor_physics": "coauthor_physics",
}
HIDDEN = 256
FANOUTS = (15, 10, 5)
BATCH = 1024
#: Training vertices of a mini-batch epoch: enough batches for a stable time.
MOST_SEEDS = 8 * BATCH
FACTOR = 1.5
#: Epochs after the first in which the native kernels try each of their three ways to sum rows of a
#: full graph twice (``SparseMatrix.trials``).
TRIALS = 5


@dataclass(frozen=True, eq=False)
class Task:
    """Three layers of a model, of 256 hidden units, for one epoch a call."""

    spec: str
    mode: Mode
    model: str

    @property
    def dataset(self) -> Dataset:
        return load_dataset(self.spec, self.mode)

    def setting(self, strategy: str) -> Setting:
        dataset = self.dataset
        workload = Workload(
            model=self.model,
            dims=(dataset.num_features, HIDDEN, HIDDEN, dataset.num_classes),
            epochs=1,
            batch_size=BATCH,
            fanouts=FANOUTS,
            seed=0,
            threads=torch.get_num_threads(),
        )
        platform = load_platform(LOCAL)
        request = Request((strategy,), dataset, workload, platform, check=False, modes=(self.mode,))
        return make_setting(request)

    def check(self, loss: float, ours: float) -> None:
        """Check that losses are equal on a full graph and about equal on mini-batches.

        Mini-batch draws differ, and the losses of an epoch's first batches still fluctuate.
        """
        tolerance = 1e-4 if self.mode == "full-graph" else 0.25
        if not abs(loss - ours) <= tolerance * abs(ours):
            raise WrongResultError(
                f"ends its first epoch with loss {loss:.6g}, ours with {ours:.6g}."
            )


@lru_cache(maxsize=2)
def load_dataset(spec: str, mode: Mode) -> Dataset:
    """Return the dataset; for mini-batches, with at most ``MOST_SEEDS`` training vertices."""
    dataset = datasets.load(spec)
    if mode == "full-graph" or len(dataset.train_ids) <= MOST_SEEDS:
        return dataset
    train = np.zeros_like(dataset.train_mask)
    train[dataset.train_ids[:MOST_SEEDS]] = True
    return dataclasses.replace(dataset, train_mask=train)


# --------------------------------------------------------------------------- strategies


def run_strategy(
    task: Task, name: str, options: Mapping[str, object], warm_ups: int = 0
) -> Contestant:
    """Prepare the bundled strategy in the engine."""
    registry, setting = plugins.load(), task.setting(name)
    bundle = plugins.assemble(registry, registry.strategy(name).bundles[task.mode], {})
    for option, value in options.items():
        if hasattr(bundle.sampler, option):
            setattr(bundle.sampler, option, value)
    bundle = bundle.begin(setting)
    engine = make_engine(bundle, setting, Recorder(WallClock()))
    engine.prepare()
    return Contestant(lambda turn: engine.run_epoch(turn).loss, warm_ups=warm_ups)


# --------------------------------------------------------------------------- libraries


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """The inputs of a plain training loop: features, labels, layers with our weights, optimiser."""

    setting: Setting
    x: Tensor
    y: Tensor
    train: Tensor
    layers: nn.ModuleList
    optimiser: torch.optim.Optimizer

    def step(self, logits: Tensor, labels: Tensor) -> float:
        loss = nn.functional.cross_entropy(logits, labels)
        self.optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()
        return float(loss.detach())

    def forward(self, apply: Callable[[int, nn.Module, Tensor], Tensor], h: Tensor) -> Tensor:
        for number, layer in enumerate(self.layers):
            h = apply(number, layer, h)
            if number + 1 < len(self.layers):
                h = torch.relu(h)
        return h


#: Functions that make a library's layer, and that give it our weights: the layer and our parameters
#: by name.
Make = Callable[[int, int], nn.Module]
Place = Callable[..., None]


def make_loop(task: Task, name: str, make: Make, place: Place) -> Loop:
    """Return a loop over a library's layers, with the weights that our model begins with."""
    setting = task.setting(name)
    dataset, workload = setting.dataset, setting.workload
    layers = nn.ModuleList(make(*pair) for pair in pairwise(workload.dims))
    with torch.no_grad():
        for layer, ours in zip(layers, build(workload).stack, strict=True):
            place(layer, **dict(ours.named_parameters()))
    optimiser = torch.optim.Adam(
        layers.parameters(), workload.learning_rate, weight_decay=workload.weight_decay, fused=True
    )
    everything = np.arange(dataset.graph.num_vertices)
    return Loop(
        setting,
        torch.from_numpy(dataset.rows(everything)),
        torch.from_numpy(dataset.labels),
        torch.from_numpy(dataset.train_ids),
        layers,
        optimiser,
    )


def make_perceptron(in_features: int, out_features: int) -> nn.Sequential:
    """Return the perceptron at the end of a GIN layer."""
    return nn.Sequential(
        nn.Linear(in_features, out_features), nn.ReLU(), nn.Linear(out_features, out_features)
    )


def place_perceptron(
    made: nn.Sequential, weight_1: Tensor, bias_1: Tensor, weight_2: Tensor, bias_2: Tensor
) -> None:
    for linear, weight, bias in ((made[0], weight_1, bias_1), (made[2], weight_2, bias_2)):
        linear.get_parameter("weight").copy_(weight.t())
        linear.get_parameter("bias").copy_(bias)


def run_dgl_full(task: Task) -> Contestant:
    """Prepare DGL's ``GraphConv``, one-head ``GATConv`` or ``GINConv`` on the full graph.

    The first two get the graph with self loops.
    """
    dgl = load_dgl()

    def place_gcn(layer: Any, weight: Tensor, bias: Tensor) -> None:
        layer.weight.copy_(weight)
        layer.bias.copy_(bias)

    def place_gat(
        layer: Any, weight: Tensor, attend_src: Tensor, attend_dst: Tensor, bias: Tensor
    ) -> None:
        layer.fc.weight.copy_(weight.t())
        layer.attn_l.copy_(attend_src.view_as(layer.attn_l))
        layer.attn_r.copy_(attend_dst.view_as(layer.attn_r))
        layer.bias.copy_(bias)

    def place_gin(layer: Any, **parameters: Tensor) -> None:
        place_perceptron(layer.apply_func, **parameters)

    ways: Mapping[str, tuple[Make, Place]] = {
        "gcn": (dgl.nn.GraphConv, place_gcn),
        "gat": (
            lambda i, o: dgl.nn.GATConv(i, o, num_heads=1, negative_slope=GATLayer.slope),
            place_gat,
        ),
        "gin": (lambda i, o: dgl.nn.GINConv(make_perceptron(i, o), "sum"), place_gin),
    }
    loop = make_loop(task, "dgl", *ways[task.model])
    graph = dgl_graph(task)
    if task.model != "gin":
        graph = dgl.add_self_loop(graph)
    graph = graph.formats(["coo", "csc", "csr"] if task.model == "gat" else ["csc", "csr"]).int()
    graph.create_formats_()

    def call(_: int) -> float:
        logits = loop.forward(lambda _, layer, h: layer(graph, h).flatten(1), loop.x)
        return loop.step(logits[loop.train], loop.y[loop.train])

    return Contestant(call)


def run_dgl_sage(task: Task) -> Contestant:
    """Prepare DGL's ``SAGEConv`` on the blocks that ``NeighborSampler`` draws."""
    dgl = load_dgl()

    def place(layer: Any, weight: Tensor, bias: Tensor) -> None:
        own, neighbours = weight.t().chunk(2, dim=1)
        layer.fc_self.weight.copy_(own)
        layer.fc_neigh.weight.copy_(neighbours)
        layer.bias.copy_(bias) if hasattr(layer, "bias") else layer.fc_self.bias.copy_(bias)

    loop = make_loop(task, "dgl", partial(dgl.nn.SAGEConv, aggregator_type="mean"), place)
    graph = dgl_graph(task)
    sampler = dgl.dataloading.NeighborSampler(list(reversed(FANOUTS)))

    def call(turn: int) -> float:
        losses = []
        for seeds in shuffle_seeds(loop.setting, turn):
            inputs, _, blocks = sampler.sample_blocks(graph, seeds)
            h = loop.x[inputs]
            logits = loop.forward(lambda n, layer, h: layer(blocks[n], h), h)  # noqa: B023
            losses.append(loop.step(logits, loop.y[seeds]) * len(seeds))
        return sum(losses) / len(loop.train)

    return Contestant(call)


def run_pyg_full(task: Task) -> Contestant:
    """Prepare PyG's ``GCNConv``, ``GINConv`` or ``GATConv`` on the full graph.

    The first two take a sparse CSR tensor, with a cached normalisation. ``GATConv`` works edge by
    edge in any case and takes a list of edges.
    """
    require_pyg()
    from torch_geometric.nn import GATConv, GCNConv, GINConv

    def place_gcn(layer: Any, weight: Tensor, bias: Tensor) -> None:
        layer.lin.weight.copy_(weight.t())
        layer.bias.copy_(bias)

    def place_gat(
        layer: Any, weight: Tensor, attend_src: Tensor, attend_dst: Tensor, bias: Tensor
    ) -> None:
        place_gcn(layer, weight, bias)
        layer.att_src.copy_(attend_src.view_as(layer.att_src))
        layer.att_dst.copy_(attend_dst.view_as(layer.att_dst))

    def place_gin(layer: Any, **parameters: Tensor) -> None:
        place_perceptron(layer.nn, **parameters)

    ways: Mapping[str, tuple[Make, Place]] = {
        "gcn": (partial(GCNConv, cached=True), place_gcn),
        "gat": (partial(GATConv, negative_slope=GATLayer.slope), place_gat),
        "gin": (lambda i, o: GINConv(make_perceptron(i, o)), place_gin),
    }
    loop = make_loop(task, "pyg", *ways[task.model])
    adjacency = edge_index(task) if task.model == "gat" else csr_adjacency(task)

    def call(_: int) -> float:
        logits = loop.forward(lambda _, layer, h: layer(h, adjacency), loop.x)
        return loop.step(logits[loop.train], loop.y[loop.train])

    return Contestant(call)


def csr_adjacency(task: Task) -> Tensor:
    """Return the graph as PyG's sparse matrix."""
    graph = task.dataset.graph
    return csr_tensor(
        torch.from_numpy(graph.indptr).int(),
        torch.from_numpy(graph.indices),
        torch.ones(graph.num_edges),
        (graph.num_vertices, graph.num_vertices),
    )


def edge_index(task: Task) -> Tensor:
    """Return the graph as PyG's list of edges, ``(2, E)``."""
    graph = task.dataset.graph
    rows = torch.repeat_interleave(torch.from_numpy(np.diff(graph.indptr)))
    return torch.stack((torch.from_numpy(graph.indices).long(), rows))


def run_pyg_sage(task: Task) -> Contestant:
    """Prepare PyG's ``SAGEConv`` on the subgraphs of ``NeighborLoader``, trimmed layer by layer."""
    require_pyg()
    if not can_draw():
        raise MissingDependencyError("PyG's NeighborLoader draws with pyg-lib or torch-sparse")
    from torch_geometric.data import Data
    from torch_geometric.loader import NeighborLoader
    from torch_geometric.nn import SAGEConv

    def place(layer: Any, weight: Tensor, bias: Tensor) -> None:
        own, neighbours = weight.t().chunk(2, dim=1)
        layer.lin_r.weight.copy_(own)
        layer.lin_l.weight.copy_(neighbours)
        layer.lin_l.bias.copy_(bias)

    loop = make_loop(task, "pyg", SAGEConv, place)
    data = Data(x=loop.x, y=loop.y, edge_index=edge_index(task))
    loader = NeighborLoader(
        data, list(FANOUTS), input_nodes=loop.train, batch_size=BATCH, shuffle=True
    )

    def call(_: int) -> float:
        losses: list[float] = []
        for batch in loader:
            edges, seeds = batch.edge_index, batch.batch_size
            logits = loop.forward(lambda _, layer, h: layer(h, edges), batch.x)[:seeds]  # noqa: B023
            losses.append(loop.step(logits, batch.y[:seeds]) * seeds)
        return sum(losses) / len(loop.train)

    return Contestant(call)


def shuffle_seeds(setting: Setting, epoch: int) -> Iterator[Tensor]:
    """Yield the seeds of every batch, as our strategies shuffle them."""
    sampler = plugins.load().part("sampler", "neighbour")()
    assert isinstance(sampler, MiniBatchSampler)
    sampler.begin(setting)
    return (torch.from_numpy(seeds) for seeds in sampler.rounds(epoch))


def dgl_graph(task: Task) -> Any:
    graph = task.dataset.graph
    arrays = (torch.from_numpy(graph.indptr), torch.from_numpy(graph.indices).long())
    return load_dgl().graph(
        ("csc", (*arrays, torch.empty(0, dtype=torch.int64))), num_nodes=graph.num_vertices
    )


CONTESTANTS: dict[Mode, dict[str, Callable[[Task], Contestant]]] = {
    "full-graph": {
        OURS: partial(run_strategy, name="native", options={}, warm_ups=TRIALS),
        "dgl": partial(run_strategy, name="dgl", options={}),
        "pyg": partial(run_strategy, name="pyg", options={}),
        "dgl.nn": run_dgl_full,
        "pyg.nn": run_pyg_full,
    },
    "mini-batch": {
        OURS: partial(run_strategy, name="native", options={}),
        "dgl": partial(run_strategy, name="dgl", options={"repeatable": False}),
        "pyg": partial(run_strategy, name="pyg", options={}),
        "dgl.nn": run_dgl_sage,
        "pyg.nn": run_pyg_sage,
    },
}


TITLES: Mapping[Mode, str] = {"full-graph": "full graph", "mini-batch": "mini-batch"}
#: Models by mode. Mini-batches have one model, for which the libraries' own layers take the same
#: blocks.
MODELS: Mapping[Mode, Sequence[str]] = {
    "full-graph": ("gcn", "gin", "gat"),
    "mini-batch": ("sage",),
}


def race_cases(scope: Scope) -> Iterator[Case]:
    for name, _ in scope.graphs:
        if name not in DATASETS:
            continue
        for mode, makers in CONTESTANTS.items():
            for model in MODELS[mode]:
                task = Task(DATASETS[name], mode, model)
                yield Case(
                    kernel="epochs",
                    graph=name,
                    name=f"3-layer {model.upper()} {TITLES[mode]}",
                    makers={who: partial(make, task) for who, make in makers.items()},
                    check=task.check,
                    targets=(Target("", FACTOR),),
                    lengthy=True,
                )
