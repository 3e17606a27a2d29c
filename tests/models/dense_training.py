"""Training on dense matrices, for losses that are not the engines' own."""

from __future__ import annotations

import torch

from gnnbench.models import build


def train_on(setting, forward):
    """The losses of every epoch, full graph: ``forward`` has the layers, with the weights that all
    engines begin with, and the number of an epoch, and gives the logits ``(V, c)``."""
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
    return found
