"""PyTorch Geometric's own layers and loader in a plain training loop, as its documentation has it.

The script is a program of gnnbench and imports nothing of it: ``python loop.py TASK_FOLDER``.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

#: The sampling law of ``NeighborLoader``.
LAW = "PyG's neighbours, drawn once for each vertex of a mini-batch"
#: How each layer's parameters are called in the task, and here, and whether they are transposed.
NAMES = {
    "gcn": [("weight", "lin.weight", True), ("bias", "bias", False)],
    "gat": [
        ("weight", "lin.weight", True),
        ("attend_src", "att_src", False),
        ("attend_dst", "att_dst", False),
        ("bias", "bias", False),
    ],
    "gin": [
        ("weight_1", "nn.0.weight", True),
        ("bias_1", "nn.0.bias", False),
        ("weight_2", "nn.2.weight", True),
        ("bias_2", "nn.2.bias", False),
    ],
}


def send(event: str, **fields: object) -> None:
    """Send a message to gnnbench."""
    print(json.dumps({"event": event, **fields}), flush=True)


class Data:
    """The arrays of a task folder as tensors."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        with open(f"{folder}/task.json", encoding="utf-8") as stream:
            self.task: dict[str, Any] = json.load(stream)
        self.indptr, self.indices = self.load("indptr"), self.load("indices")
        self.x, self.y = self.load("x"), self.load("y")
        self.train = torch.nonzero(self.load("train_mask") & (self.y >= 0)).flatten()
        with np.load(f"{folder}/{self.task['parameters']}") as stored:
            self.begin = {name: torch.from_numpy(stored[name]) for name in stored.files}

    def load(self, name: str) -> Tensor:
        """Return an array of the data set."""
        return torch.from_numpy(np.load(f"{self.folder}/dataset/{name}.npy"))

    @property
    def edge_index(self) -> Tensor:
        """The edges, sources above destinations."""
        rows = torch.arange(len(self.y)).repeat_interleave(torch.diff(self.indptr))
        return torch.stack((self.indices.long(), rows))

    @property
    def adjacency(self) -> Tensor:
        """The transposed adjacency matrix, as PyG's memory-efficient aggregation takes it."""
        size = (len(self.y), len(self.y))
        values = torch.ones(len(self.indices))
        return torch.sparse_csr_tensor(self.indptr, self.indices.long(), values, size)


class Net(nn.Module):
    """A stack of PyG's layers with ReLU between them."""

    def __init__(self, task: dict[str, Any]) -> None:
        from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv

        super().__init__()
        full = task["mode"] == "full-graph"
        make: dict[str, Callable[[int, int], nn.Module]] = {
            "gcn": lambda i, o: GCNConv(i, o, cached=full),
            "sage": SAGEConv,
            "gat": GATConv,
            "gin": lambda i, o: GINConv(nn.Sequential(nn.Linear(i, o), nn.ReLU(), nn.Linear(o, o))),
        }
        self.model = task["model"]
        self.layers = nn.ModuleList(make[self.model](*pair) for pair in pairwise(task["dims"]))

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        """Return the logits of all vertices."""
        for number, layer in enumerate(self.layers):
            x = layer(x, edges)
            if number + 1 < len(self.layers):
                x = x.relu()
        return x

    def pairs(self) -> Iterator[tuple[str, Tensor, bool]]:
        """Yield the task's name of each parameter, the parameter, and whether it is transposed."""
        for number, layer in enumerate(self.layers):
            for name, own, transposed in NAMES[self.model]:
                yield f"layers.{number}.{name}", layer.get_parameter(own), transposed

    @torch.no_grad()
    def read(self, begin: dict[str, Tensor]) -> None:
        """Take the task's parameters."""
        if self.model == "sage":
            for number, layer in enumerate(self.layers):
                own, neighbours = begin[f"layers.{number}.weight"].t().chunk(2, dim=1)
                layer.get_parameter("lin_r.weight").copy_(own)
                layer.get_parameter("lin_l.weight").copy_(neighbours)
                layer.get_parameter("lin_l.bias").copy_(begin[f"layers.{number}.bias"])
            return
        for name, own, transposed in self.pairs():
            own.copy_(begin[name].t() if transposed else begin[name].view_as(own))

    @torch.no_grad()
    def write(self, begin: dict[str, Tensor]) -> dict[str, np.ndarray[Any, Any]]:
        """Return the parameters in the task's form."""
        found: dict[str, Tensor] = {}
        if self.model == "sage":
            for number, layer in enumerate(self.layers):
                sides: list[Tensor] = [layer.get_parameter(f"lin_{side}.weight") for side in "rl"]
                found[f"layers.{number}.weight"] = torch.cat(sides, dim=1).t()
                found[f"layers.{number}.bias"] = layer.get_parameter("lin_l.bias")
        else:
            for name, own, transposed in self.pairs():
                found[name] = own.t() if transposed else own.view_as(begin[name])
        return {name: value.numpy() for name, value in found.items()}


def main(folder: str) -> None:
    """Train the task, epoch by epoch, as gnnbench orders it."""
    data = Data(folder)
    task = data.task
    torch.set_num_threads(task["threads"])
    torch.manual_seed(task["seed"])
    if task["edge_weights"]:
        return send("refused", reason="it does not use edge weights.")
    import torch_geometric

    full = task["mode"] == "full-graph"
    if not full and not any(map(importlib.util.find_spec, ("pyg_lib", "torch_sparse"))):
        return send(
            "refused",
            reason="PyG's NeighborLoader draws with pyg-lib or torch-sparse, and neither is "
            "installed here; install one to train mini-batches.",
        )
    net = Net(task)
    net.read(data.begin)
    optimiser = torch.optim.Adam(
        net.parameters(), task["learning_rate"], weight_decay=task["weight_decay"], fused=True
    )

    def step(logits: Tensor, labels: Tensor) -> float:
        loss = cross_entropy(logits, labels)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        return float(loss.detach())

    run_epoch = train_whole(data, net, step) if full else train_batches(data, net, step)
    versions = {"torch": torch.__version__, "torch_geometric": torch_geometric.__version__}
    stated = {} if full else {"sampling": LAW}
    send("ready", versions=versions, **stated)
    for line in sys.stdin:
        order = json.loads(line)
        if order["order"] == "save":
            np.savez(order["file"], **net.write(data.begin))  # type: ignore[arg-type]
            send("done")
            continue
        send("epoch_begin", epoch=order["epoch"])
        send("epoch_end", epoch=order["epoch"], **run_epoch())


#: One optimiser step from logits and labels, which returns the loss.
Step = Callable[[Tensor, Tensor], float]


def train_whole(data: Data, net: Net, step: Step) -> Callable[[], dict[str, object]]:
    """Return a function that trains an epoch of the full graph."""
    # GATConv works edge by edge in any case.
    edges = data.edge_index if net.model == "gat" else data.adjacency
    labels = data.y[data.train]

    def run_epoch() -> dict[str, object]:
        loss = step(net(data.x, edges)[data.train], labels)
        return {"loss": loss, "updates": 1, "seeds": len(data.train)}

    return run_epoch


def train_batches(data: Data, net: Net, step: Step) -> Callable[[], dict[str, object]]:
    """Return a function that trains an epoch of mini-batches."""
    import torch_geometric.data
    from torch_geometric.loader import NeighborLoader

    task = data.task
    graph = torch_geometric.data.Data(x=data.x, y=data.y, edge_index=data.edge_index)
    loader = NeighborLoader(
        graph,
        num_neighbors=[fanout or -1 for fanout in task["fanouts"]],
        input_nodes=data.train,
        batch_size=task["batch_size"],
        shuffle=True,
    )

    def run_epoch() -> dict[str, object]:
        losses, updates, seeds = 0.0, 0, 0
        for batch in loader:
            count = batch.batch_size
            losses += step(net(batch.x, batch.edge_index)[:count], batch.y[:count]) * count
            updates, seeds = updates + 1, seeds + count
        return {"loss": losses / seeds, "updates": updates, "seeds": seeds}

    return run_epoch


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1])
