"""DGL's own layers and loader in a plain training loop, as its documentation has it.

The script is a program of gnnbench and imports nothing of it: ``python loop.py TASK_FOLDER``. It
trains in several processes by ``--ranks``, as DGL's user guide on multi-GPU training does.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import types
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

sys.path.append(str(Path(__file__).parents[1] / "reference"))
from plain_loop import Data, Names, Trainer, read_parameters, start, write_parameters

NAMES: dict[str, Names] = {
    "gcn": {"weight": (("weight",), False), "bias": (("bias",), False)},
    "sage": {
        "weight": (("fc_self.weight", "fc_neigh.weight"), True),
        "bias": (("fc_self.bias",), False),
    },
    "gat": {
        "weight": (("fc.weight",), True),
        "attend_src": (("attn_l",), False),
        "attend_dst": (("attn_r",), False),
        "bias": (("bias",), False),
    },
    "gin": {
        "weight_1": (("apply_func.0.weight",), True),
        "bias_1": (("apply_func.0.bias",), False),
        "weight_2": (("apply_func.2.weight",), True),
        "bias_2": (("apply_func.2.bias",), False),
    },
}


def import_dgl() -> Any:
    """Return DGL. A GraphBolt that does not load with this torch is replaced by an empty module."""
    os.environ["DGLBACKEND"] = "pytorch"
    spec, version = importlib.util.find_spec("dgl"), torch.__version__.split("+")[0]
    folder = Path(spec.origin if spec and spec.origin else "").parent / "graphbolt"
    if not any(folder.glob(f"*graphbolt_pytorch_{version}.*")):
        empty = types.ModuleType("dgl.graphbolt")
        vars(empty)["FusedCSCSamplingGraph"] = type(None)  # the kind of graph it would have
        sys.modules["dgl.graphbolt"] = empty
    import dgl

    return dgl


class Net(nn.Module):
    """A stack of DGL's layers with ReLU between them."""

    def __init__(self, dgl: Any, task: Mapping[str, Any]) -> None:
        super().__init__()
        make: dict[str, Callable[[int, int], nn.Module]] = {
            "gcn": dgl.nn.GraphConv,
            "sage": lambda i, o: dgl.nn.SAGEConv(i, o, "mean"),
            "gat": lambda i, o: dgl.nn.GATConv(i, o, num_heads=1),
            "gin": lambda i, o: dgl.nn.GINConv(
                nn.Sequential(nn.Linear(i, o), nn.ReLU(), nn.Linear(o, o)), "sum"
            ),
        }
        self.layers = nn.ModuleList(make[task["model"]](*pair) for pair in pairwise(task["dims"]))

    def forward(self, blocks: list[Any], h: Tensor) -> Tensor:
        """Return the logits of the last block's destinations."""
        for number, (layer, block) in enumerate(zip(self.layers, blocks, strict=True)):
            h = layer(block, h).flatten(1)
            if number + 1 < len(self.layers):
                h = h.relu()
        return h


def train(rank: int, options: argparse.Namespace) -> None:
    """Train the task in one of the processes."""
    data, dgl = Data(rank, options), import_dgl()
    dgl.seed(data.task["seed"] + rank)
    net, names = Net(dgl, data.task), NAMES[data.task["model"]]
    read_parameters(net.layers, names, data.begin)
    trainer = Trainer(data, net)
    trainer.serve(
        train_whole(dgl, data, trainer) if data.full else train_batches(dgl, data, trainer),
        lambda: write_parameters(net.layers, names, data.begin),
        versions={"torch": torch.__version__, "dgl": dgl.__version__},
        **state_maths(data),
    )


def state_maths(data: Data) -> dict[str, object]:
    """Return the sampling law, and the way in which DGL's layers differ from the task's."""
    if data.full:
        other = data.task["model"] == "gcn" and data.directed
        return {"other_maths": "normalised by out-degrees"} if other else {}
    law: dict[str, object] = {"sampling": "uniform without replacement"}
    if data.task["model"] == "gcn":
        law["other_maths"] = "normalised by degrees in the block"
    if data.task["model"] == "gat":
        law["other_maths"] = "self loops are drawn"
    return law


def make_graph(dgl: Any, data: Data) -> Any:
    """Return the graph, with self loops for the layers that need them."""
    arrays = data.indptr, data.indices.long(), torch.empty(0, dtype=torch.int64)
    graph = dgl.graph(("csc", arrays), num_nodes=len(data.y))
    return dgl.add_self_loop(graph) if data.task["model"] in ("gcn", "gat") else graph


def train_whole(dgl: Any, data: Data, trainer: Trainer) -> Callable[[], Any]:
    """Return a function that trains an epoch of the full graph."""
    graph = make_graph(dgl, data).int()
    graph.create_formats_()
    blocks, labels, count = [graph] * data.task["layers"], data.y[data.train], len(data.train)

    def run_epoch() -> Any:
        with trainer.watch(graph.num_edges()):
            loss = trainer.step(trainer.model(blocks, data.x)[data.train], labels)
        return trainer.report(loss * count, 1, count)

    return run_epoch


def train_batches(dgl: Any, data: Data, trainer: Trainer) -> Callable[[], Any]:
    """Return a function that trains an epoch of mini-batches.

    Each process has its share of the seeds. DGL's ``use_ddp`` would make unequal shares equal by
    seeds that are drawn twice, and one of two equal seeds in a mini-batch gets no neighbours.
    """
    graph = make_graph(dgl, data)
    graph.ndata["x"], graph.ndata["y"] = data.x, data.y
    fanouts = [fanout or -1 for fanout in reversed(data.task["fanouts"])]
    sampler = dgl.dataloading.NeighborSampler(
        fanouts, prefetch_node_feats=["x"], prefetch_labels=["y"]
    )
    loader = dgl.dataloading.DataLoader(
        graph,
        data.share,
        sampler,
        batch_size=data.batch_size,
        shuffle=True,
        drop_last=False,
        num_workers=data.options.workers,
        persistent_workers=data.options.workers > 0,
    )

    def run_epoch() -> Any:
        losses, updates, seeds = 0.0, 0, 0
        edges = [0] * data.task["layers"]
        with trainer.join(uneven=data.uneven):
            for _, _, blocks in trainer.await_batches(loader):
                labels = blocks[-1].dstdata["y"]
                drawn = [block.num_edges() for block in blocks]
                with trainer.watch(*drawn):
                    logits = trainer.model(blocks, blocks[0].srcdata["x"])
                    losses += trainer.step(logits, labels) * len(labels)
                updates, seeds = updates + 1, seeds + len(labels)
                edges = [sum(pair) for pair in zip(edges, drawn, strict=True)]
        return trainer.report(losses, updates, seeds, edges)

    return run_epoch


if __name__ == "__main__":
    start(train)
