"""Models of one's own that are pinned beside the bundled ones: a plugin, loaded from this file."""

import torch
from torch import Tensor, nn

from gnnbench.hookspecs import hookimpl
from gnnbench.models import BoundBlock, Layer, TorchLayer, glorot


class SelfAndMean(TorchLayer):
    """A product of the own row and the neighbours' mean, as in the README."""

    name, title = "self-and-mean", "own row and mean"

    def __init__(
        self, in_features: int, out_features: int, *, activation: bool, generator: torch.Generator
    ) -> None:
        super().__init__(in_features, out_features, activation=activation)
        self.weight = glorot(in_features, out_features, generator)
        self.bias = nn.Parameter(torch.zeros(out_features))

    def forward(self, block: BoundBlock, h: Tensor) -> Tensor:
        rows = block.own_rows(h) + block.adjacency.mean(h)
        out = rows @ self.weight + self.bias
        return torch.relu(out) if self.activation else out


class OnEdges(TorchLayer):
    """Attention whose values on edges are tensors that autograd keeps."""

    name, title = "on-edges", "attention on edges"

    def __init__(
        self, in_features: int, out_features: int, *, activation: bool, generator: torch.Generator
    ) -> None:
        super().__init__(in_features, out_features, activation=activation)
        self.project = glorot(in_features, out_features, generator)
        self.score = glorot(2 * out_features, 1, generator)

    @property
    def edge_features(self) -> int:
        """The rows at both ends and the message, and three numbers."""
        return 3 * self.out_features + 3

    def forward(self, block: BoundBlock, h: Tensor) -> Tensor:
        edges, rows = block.adjacency, h @ self.project
        sources, ends = rows[edges.edge_src], block.own_rows(rows)[edges.edge_dst]
        scores = (torch.cat((sources, ends), dim=1) @ self.score).squeeze(1)
        weights = edges.edge_softmax(torch.nn.functional.leaky_relu(scores, 0.2))
        out = block.own_rows(rows) + edges.sum_edges(weights.unsqueeze(1) * sources)
        return torch.relu(out) if self.activation else out


@hookimpl
def gnnbench_model() -> list[type[Layer]]:
    return [SelfAndMean, OnEdges]
