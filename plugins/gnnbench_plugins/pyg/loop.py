"""PyTorch Geometric's own layers and loader in a plain training loop, as its documentation has it.

The script is a program of gnnbench and imports nothing of it: ``python loop.py TASK_FOLDER``. It
trains in several processes by ``--ranks``, as PyG's tutorial on multi-GPU training does.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

sys.path.append(str(Path(__file__).parents[1] / "reference"))
from plain_loop import Data, Names, Trainer, read_parameters, start, write_parameters

#: The sampling law of ``NeighborLoader``.
LAW = "PyG's neighbours, drawn once for each vertex of a mini-batch"
NAMES: dict[str, Names] = {
    "gcn": {"weight": (("lin.weight",), True), "bias": (("bias",), False)},
    "sage": {
        "weight": (("lin_r.weight", "lin_l.weight"), True),
        "bias": (("lin_l.bias",), False),
    },
    "gat": {
        "weight": (("lin.weight",), True),
        "attend_src": (("att_src",), False),
        "attend_dst": (("att_dst",), False),
        "bias": (("bias",), False),
    },
    "gin": {
        "weight_1": (("nn.0.weight",), True),
        "bias_1": (("nn.0.bias",), False),
        "weight_2": (("nn.2.weight",), True),
        "bias_2": (("nn.2.bias",), False),
    },
}


class Net(nn.Module):
    """A stack of PyG's layers with ReLU between them."""

    def __init__(self, task: Mapping[str, Any]) -> None:
        from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv

        super().__init__()
        full = task["mode"] == "full-graph"
        make: dict[str, Callable[[int, int], nn.Module]] = {
            "gcn": lambda i, o: GCNConv(i, o, cached=full),
            "sage": SAGEConv,
            "gat": GATConv,
            "gin": lambda i, o: GINConv(nn.Sequential(nn.Linear(i, o), nn.ReLU(), nn.Linear(o, o))),
        }
        self.layers = nn.ModuleList(make[task["model"]](*pair) for pair in pairwise(task["dims"]))

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        """Return the logits of all vertices."""
        for number, layer in enumerate(self.layers):
            x = layer(x, edges)
            if number + 1 < len(self.layers):
                x = x.relu()
        return x


def refuse(task: Mapping[str, Any]) -> str:
    """Return why PyG cannot train the task here; empty if it can."""
    drawers = map(importlib.util.find_spec, ("pyg_lib", "torch_sparse"))
    if task["mode"] == "full-graph" or any(drawers):
        return ""
    return (
        "PyG's NeighborLoader draws with pyg-lib or torch-sparse, and neither is installed here; "
        "install one to train mini-batches."
    )


def train(rank: int, options: argparse.Namespace) -> None:
    """Train the task in one of the processes."""
    import torch_geometric

    data = Data(rank, options)
    net, names = Net(data.task), NAMES[data.task["model"]]
    read_parameters(net.layers, names, data.begin)
    trainer = Trainer(data, net)
    trainer.serve(
        train_whole(data, trainer) if data.full else train_batches(data, trainer),
        lambda: write_parameters(net.layers, names, data.begin),
        versions={"torch": torch.__version__, "torch_geometric": torch_geometric.__version__},
        sampling="" if data.full else LAW,
    )


def find_edge_index(data: Data) -> Tensor:
    """Return the edges, sources above destinations."""
    rows = torch.arange(len(data.y)).repeat_interleave(torch.diff(data.indptr))
    return torch.stack((data.indices.long(), rows))


def train_whole(data: Data, trainer: Trainer) -> Callable[[], Any]:
    """Return a function that trains an epoch of the full graph."""
    vertices, num_edges = len(data.y), len(data.indices)
    if data.task["model"] == "gat":  # GATConv works edge by edge in any case.
        edges = find_edge_index(data)
    else:  # the transposed adjacency matrix, as PyG's memory-efficient aggregation takes it
        values = torch.ones(num_edges)
        edges = torch.sparse_csr_tensor(
            data.indptr, data.indices.long(), values, (vertices, vertices)
        )
    labels, count = data.y[data.train], len(data.train)

    def run_epoch() -> Any:
        with trainer.watch(num_edges, num_edges + vertices):
            loss = trainer.step(trainer.model(data.x, edges)[data.train], labels)
        return trainer.report(loss * count, 1, count)

    return run_epoch


def train_batches(data: Data, trainer: Trainer) -> Callable[[], Any]:
    """Return a function that trains an epoch of mini-batches."""
    import torch_geometric.data
    from torch_geometric.loader import NeighborLoader

    workers = data.options.workers
    graph = torch_geometric.data.Data(x=data.x, y=data.y, edge_index=find_edge_index(data))
    loader = NeighborLoader(
        graph,
        num_neighbors=[fanout or -1 for fanout in data.task["fanouts"]],
        input_nodes=data.share,
        batch_size=data.batch_size,
        shuffle=True,
        num_workers=workers,
        persistent_workers=workers > 0,
    )

    def run_epoch() -> Any:
        losses, updates, seeds = 0.0, 0, 0
        with trainer.join(uneven=data.uneven):
            for batch in trainer.await_batches(loader):
                count = batch.batch_size
                with trainer.watch(batch.num_edges, batch.num_edges + batch.num_nodes):
                    logits = trainer.model(batch.x, batch.edge_index)[:count]
                    losses += trainer.step(logits, batch.y[:count]) * count
                updates, seeds = updates + 1, seeds + count
        return trainer.report(losses, updates, seeds)

    return run_epoch


if __name__ == "__main__":
    start(train, refuse)
