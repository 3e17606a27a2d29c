"""DGL's own layers and loader in a plain training loop, as its documentation has it.

The script is a program of gnnbench and imports nothing of it: ``python loop.py TASK_FOLDER``.
"""

from __future__ import annotations

import json
import os
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

#: How each layer's parameters are called in the task, and here, and whether they are transposed.
NAMES = {
    "gcn": [("weight", "weight", False), ("bias", "bias", False)],
    "gat": [
        ("weight", "fc.weight", True),
        ("attend_src", "attn_l", False),
        ("attend_dst", "attn_r", False),
        ("bias", "bias", False),
    ],
    "gin": [
        ("weight_1", "apply_func.0.weight", True),
        ("bias_1", "apply_func.0.bias", False),
        ("weight_2", "apply_func.2.weight", True),
        ("bias_2", "apply_func.2.bias", False),
    ],
}


def import_dgl() -> Any:
    """Return DGL. A GraphBolt that does not load with this torch is replaced by an empty module."""
    os.environ["DGLBACKEND"] = "pytorch"
    try:
        import dgl
    except (ImportError, OSError):
        for name in [name for name in sys.modules if name.split(".")[0] == "dgl"]:
            del sys.modules[name]
        sys.modules["dgl.graphbolt"] = types.ModuleType("dgl.graphbolt")
        import dgl
    return dgl


def send(event: str, **fields: object) -> None:
    """Send a message to gnnbench."""
    print(json.dumps({"event": event, **fields}), flush=True)


class Data:
    """The arrays of a task folder as tensors."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        with open(f"{folder}/task.json", encoding="utf-8") as stream:
            self.task: dict[str, Any] = json.load(stream)
        with open(f"{folder}/dataset/manifest.json", encoding="utf-8") as stream:
            self.directed = bool(json.load(stream)["directed"])
        self.indptr, self.indices = self.load("indptr"), self.load("indices")
        self.x, self.y = self.load("x"), self.load("y")
        self.train = torch.nonzero(self.load("train_mask") & (self.y >= 0)).flatten()
        with np.load(f"{folder}/{self.task['parameters']}") as stored:
            self.begin = {name: torch.from_numpy(stored[name]) for name in stored.files}

    def load(self, name: str) -> Tensor:
        """Return an array of the data set."""
        return torch.from_numpy(np.load(f"{self.folder}/dataset/{name}.npy"))

    def make_graph(self, dgl: Any) -> Any:
        """Return the graph, with self loops for the layers that need them."""
        arrays = self.indptr, self.indices.long(), torch.empty(0, dtype=torch.int64)
        graph = dgl.graph(("csc", arrays), num_nodes=len(self.y))
        return dgl.add_self_loop(graph) if self.task["model"] in ("gcn", "gat") else graph


class Net(nn.Module):
    """A stack of DGL's layers with ReLU between them."""

    def __init__(self, dgl: Any, task: dict[str, Any]) -> None:
        super().__init__()
        make: dict[str, Callable[[int, int], nn.Module]] = {
            "gcn": dgl.nn.GraphConv,
            "sage": lambda i, o: dgl.nn.SAGEConv(i, o, "mean"),
            "gat": lambda i, o: dgl.nn.GATConv(i, o, num_heads=1),
            "gin": lambda i, o: dgl.nn.GINConv(
                nn.Sequential(nn.Linear(i, o), nn.ReLU(), nn.Linear(o, o)), "sum"
            ),
        }
        self.model = task["model"]
        self.layers = nn.ModuleList(make[self.model](*pair) for pair in pairwise(task["dims"]))

    def forward(self, blocks: list[Any], h: Tensor) -> Tensor:
        """Return the logits of the last block's destinations."""
        for number, (layer, block) in enumerate(zip(self.layers, blocks, strict=True)):
            h = layer(block, h).flatten(1)
            if number + 1 < len(self.layers):
                h = h.relu()
        return h

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
                layer.get_parameter("fc_self.weight").copy_(own)
                layer.get_parameter("fc_neigh.weight").copy_(neighbours)
                layer.get_parameter("fc_self.bias").copy_(begin[f"layers.{number}.bias"])
            return
        for name, own, transposed in self.pairs():
            own.copy_(begin[name].t() if transposed else begin[name].view_as(own))

    @torch.no_grad()
    def write(self, begin: dict[str, Tensor]) -> dict[str, np.ndarray[Any, Any]]:
        """Return the parameters in the task's form."""
        found: dict[str, Tensor] = {}
        if self.model == "sage":
            for number, layer in enumerate(self.layers):
                sides: list[Tensor] = [
                    layer.get_parameter(f"fc_{side}.weight") for side in ("self", "neigh")
                ]
                found[f"layers.{number}.weight"] = torch.cat(sides, dim=1).t()
                found[f"layers.{number}.bias"] = layer.get_parameter("fc_self.bias")
        else:
            for name, own, transposed in self.pairs():
                found[name] = own.t() if transposed else own.view_as(begin[name])
        return {name: value.numpy() for name, value in found.items()}


#: One optimiser step from logits and labels, which returns the loss.
Step = Callable[[Tensor, Tensor], float]


def main(folder: str) -> None:
    """Train the task, epoch by epoch, as gnnbench orders it."""
    data = Data(folder)
    task = data.task
    torch.set_num_threads(task["threads"])
    if task["edge_weights"]:
        return send("refused", reason="it does not use edge weights.")
    dgl = import_dgl()
    dgl.seed(task["seed"])
    torch.manual_seed(task["seed"])
    net = Net(dgl, task)
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

    full = task["mode"] == "full-graph"
    run_epoch = train_whole(dgl, data, net, step) if full else train_batches(dgl, data, net, step)
    versions = {"torch": torch.__version__, "dgl": dgl.__version__}
    send("ready", versions=versions, **state_maths(data))
    for line in sys.stdin:
        order = json.loads(line)
        if order["order"] == "save":
            np.savez(order["file"], **net.write(data.begin))  # type: ignore[arg-type]
            send("done")
            continue
        send("epoch_begin", epoch=order["epoch"])
        send("epoch_end", epoch=order["epoch"], **run_epoch())


def state_maths(data: Data) -> dict[str, object]:
    """Return the sampling law, and the way in which DGL's layers differ from the task's."""
    if data.task["mode"] == "full-graph":
        other = data.task["model"] == "gcn" and data.directed
        return {"other_maths": "normalised by out-degrees"} if other else {}
    law: dict[str, object] = {"sampling": "uniform without replacement"}
    if data.task["model"] == "gcn":
        law["other_maths"] = "normalised by degrees in the block"
    if data.task["model"] == "gat":
        law["other_maths"] = "self loops are drawn"
    return law


def train_whole(dgl: Any, data: Data, net: Net, step: Step) -> Callable[[], dict[str, object]]:
    """Return a function that trains an epoch of the full graph."""
    graph = data.make_graph(dgl).int()
    graph.create_formats_()
    blocks, labels = [graph] * len(net.layers), data.y[data.train]

    def run_epoch() -> dict[str, object]:
        loss = step(net(blocks, data.x)[data.train], labels)
        return {"loss": loss, "updates": 1, "seeds": len(data.train)}

    return run_epoch


def train_batches(dgl: Any, data: Data, net: Net, step: Step) -> Callable[[], dict[str, object]]:
    """Return a function that trains an epoch of mini-batches."""
    task = data.task
    graph = data.make_graph(dgl)
    graph.ndata["x"], graph.ndata["y"] = data.x, data.y
    fanouts = [fanout or -1 for fanout in reversed(task["fanouts"])]
    sampler = dgl.dataloading.NeighborSampler(
        fanouts, prefetch_node_feats=["x"], prefetch_labels=["y"]
    )
    loader = dgl.dataloading.DataLoader(
        graph, data.train, sampler, batch_size=task["batch_size"], shuffle=True, drop_last=False
    )

    def run_epoch() -> dict[str, object]:
        losses, updates, seeds = 0.0, 0, 0
        edges = [0] * len(net.layers)
        for _, _, blocks in loader:
            labels = blocks[-1].dstdata["y"]
            losses += step(net(blocks, blocks[0].srcdata["x"]), labels) * len(labels)
            updates, seeds = updates + 1, seeds + len(labels)
            edges = [sum(pair) for pair in zip(edges, (b.num_edges() for b in blocks), strict=True)]
        return {"loss": losses / seeds, "updates": updates, "seeds": seeds, "edges": edges}

    return run_epoch


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1])
