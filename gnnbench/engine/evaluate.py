"""Full-graph evaluation of a trained model, outside everything that is timed."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import numpy as np
import torch

from gnnbench.engine.machinery import torch_dtype
from gnnbench.models import GNN, BoundBlock
from gnnbench.parts import Kernel, Setting
from gnnbench.records import Block, Dataset


def whole_graph_block(dataset: Dataset) -> Block:
    """The whole graph as one block: every vertex is a source and a destination."""
    graph = dataset.graph
    return Block(
        src_ids=np.arange(graph.num_vertices, dtype=np.int64),
        num_dst=graph.num_vertices,
        indptr=graph.indptr,
        indices=graph.indices,
    )


class Evaluator:
    """Computes the training loss and accuracies over the whole graph, on the host."""

    def __init__(self, setting: Setting, kernel: Kernel) -> None:
        dataset = setting.dataset
        self._dataset = dataset
        self._dtype = torch_dtype(setting.workload)
        self._bound = BoundBlock(
            whole_graph_block(dataset),
            kernel,
            dataset.graph.degrees,
            self._dtype,
            torch.device("cpu"),
        )

    @torch.no_grad()
    def evaluate(self, model: GNN) -> tuple[float, Mapping[str, float]]:
        """The mean training loss, and accuracy on train, val and test (absent when empty)."""
        dataset = self._dataset
        h = torch.from_numpy(dataset.rows(np.arange(dataset.graph.num_vertices))).to(self._dtype)
        if next(model.parameters()).device.type != "cpu":
            model = copy.deepcopy(model).to("cpu")
        logits = model([self._bound] * len(model.stack), h)
        labels = torch.from_numpy(dataset.labels)
        train = torch.from_numpy(dataset.train_ids)
        loss = float(torch.nn.functional.cross_entropy(logits[train], labels[train]))
        correct = (logits.argmax(dim=1) == labels).numpy()
        accuracy = {}
        for name, mask in (
            ("train", dataset.train_mask),
            ("val", dataset.val_mask),
            ("test", dataset.test_mask),
        ):
            chosen = mask & (dataset.labels >= 0)
            if chosen.any():
                accuracy[name] = float(correct[chosen].mean())
        return loss, accuracy
