"""Layers and training on dense matrices, for values that are not the engines' own."""

import numpy as np
import torch
from torch import Tensor

from gnnbench.models import build
from gnnbench.models.layers import CommNetLayer, GATLayer, GCNLayer, GGCNLayer, GINLayer, SAGELayer


def train_on(setting, forward):
    """Return the losses of every full-graph epoch, and the parameters after the last.

    ``forward`` takes the layers, with the weights that all engines begin with, and the number of an
    epoch. It returns the logits ``(V, c)``."""
    workload, dataset = setting.workload, setting.dataset
    model = build(workload)
    optimiser = torch.optim.Adam(
        model.parameters(), lr=workload.learning_rate, weight_decay=workload.weight_decay
    )
    ids = torch.from_numpy(dataset.train_ids)
    labels = torch.from_numpy(dataset.labels)[ids]
    found = []
    for epoch in range(workload.epochs):
        logits = forward(model.stack, epoch)
        loss = torch.nn.functional.cross_entropy(logits[ids], labels)
        found.append(float(loss.detach()))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return found, {name: each.detach().numpy() for name, each in model.named_parameters()}


def train_dense(setting, maths, adjacent):
    """Train as :func:`train_on` does, by ``maths`` of each layer on the matrix ``adjacent``."""
    h = torch.from_numpy(setting.dataset.rows(np.arange(len(adjacent)))).double()
    return train_on(setting, lambda layers, _: apply_layers(layers, maths, adjacent, h))


def apply_layers(layers, maths, adjacent: Tensor, h: Tensor) -> Tensor:
    for layer in layers:
        h = maths(layer, adjacent, h)
        h = torch.relu(h) if layer.activation else h
    return h


def dense_of(graph) -> Tensor:
    """Return ``(V, V)``: one where the column has an edge to the row."""
    adjacent = torch.zeros(graph.num_vertices, graph.num_vertices, dtype=torch.float64)
    adjacent[np.repeat(np.arange(graph.num_vertices), graph.degrees), graph.indices] = 1
    return adjacent


def compute_gcn(layer: GCNLayer, a: Tensor, h: Tensor) -> Tensor:
    looped = a + torch.eye(len(a), dtype=a.dtype)
    scale = torch.diag(looped.sum(1) ** -0.5)
    return scale @ looped @ scale @ h @ layer.weight + layer.bias


def compute_sage(layer: SAGELayer, a: Tensor, h: Tensor) -> Tensor:
    mean = torch.diag(1 / a.sum(1).clamp(min=1)) @ a @ h
    own, neighbours = layer.weight[: h.shape[1]], layer.weight[h.shape[1] :]
    return h @ own + mean @ neighbours + layer.bias


def compute_gin(layer: GINLayer, a: Tensor, h: Tensor) -> Tensor:
    total = (a + torch.eye(len(a), dtype=a.dtype)) @ h
    hidden = torch.relu(total @ layer.weight_1 + layer.bias_1)
    return hidden @ layer.weight_2 + layer.bias_2


def compute_gat(layer: GATLayer, a: Tensor, h: Tensor) -> Tensor:
    z = h @ layer.weight
    scores = z @ layer.attend_dst + (z @ layer.attend_src).t()
    scores = torch.where(scores > 0, scores, 0.2 * scores)
    looped = a + torch.eye(len(a), dtype=a.dtype)
    attention = torch.softmax(scores.masked_fill(looped == 0, -torch.inf), dim=1)
    return attention @ z + layer.bias


def compute_commnet(layer: CommNetLayer, a: Tensor, h: Tensor) -> Tensor:
    mean = torch.diag(1 / a.sum(1).clamp(min=1)) @ a @ h
    own, heard = layer.weight[: h.shape[1]], layer.weight[h.shape[1] :]
    return h @ own + mean @ heard


def compute_ggcn(layer: GGCNLayer, a: Tensor, h: Tensor) -> Tensor:
    """With a gate for every pair of vertices, ``(V, V, f)``."""
    gates = torch.sigmoid((h @ layer.gate_dst)[:, None] + (h @ layer.gate_src)[None])
    messages = a[:, :, None] * gates * (h @ layer.message)[None]
    return h @ layer.own + messages.sum(1) + layer.bias


FORMULAS = {
    "gcn": compute_gcn,
    "sage": compute_sage,
    "gin": compute_gin,
    "gat": compute_gat,
    "commnet": compute_commnet,
    "ggcn": compute_ggcn,
}
