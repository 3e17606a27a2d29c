"""GCN, GraphSAGE, GIN and GAT layers, each as AGGREGATE and UPDATE.

The split follows HyScale-GNN Equations 1 and 2 and HongTu Equation 1. ``aggregate`` turns the
source rows ``(S, f_in)`` into ``(D, w)``; ``update`` turns those into ``(D, f_out)``. Where the
aggregate is linear in its input and has no parameters, ``aggregate_backward`` gives the gradient
without a forward pass, which is what lets HongTu cache aggregates instead of recomputing them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from gnnbench.models.bound import BoundBlock
from gnnbench.parts import LayerShape
from gnnbench.records import Block, Work


def glorot(rows: int, columns: int, generator: torch.Generator) -> nn.Parameter:
    """Glorot-uniform ``(rows, columns)``, drawn in float64 so that every dtype starts alike."""
    bound = math.sqrt(6.0 / (rows + columns))
    values = torch.rand(rows, columns, generator=generator, dtype=torch.float64)
    return nn.Parameter((2.0 * values - 1.0) * bound)


class Layer(nn.Module, ABC):
    """One GNN layer. ``activation`` is False for the last layer of a model."""

    #: Whether ``aggregate`` is linear and free of parameters, so that its output can be cached.
    cacheable = True

    def __init__(self, in_features: int, out_features: int, *, activation: bool) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.activation = activation

    @property
    def aggregate_features(self) -> int:
        """Width of what ``aggregate`` returns."""
        return self.in_features

    @property
    def macs_per_row(self) -> int:
        """Multiply-accumulates of ``update`` for one destination."""
        return self.aggregate_features * self.out_features

    @property
    def shape(self) -> LayerShape:
        return LayerShape(
            in_features=self.in_features,
            out_features=self.out_features,
            aggregate_features=self.aggregate_features,
            parameters=sum(p.numel() for p in self.parameters()),
            macs_per_row=self.macs_per_row,
            cacheable=self.cacheable,
        )

    @abstractmethod
    def aggregate(self, bound: BoundBlock, h: Tensor) -> Tensor:
        """AGGREGATE: ``(S, in_features) -> (D, aggregate_features)``, differentiable."""

    @abstractmethod
    def aggregate_backward(self, bound: BoundBlock, gradient: Tensor) -> Tensor:
        """``(D, aggregate_features) -> (S, in_features)``; only where ``cacheable``."""

    @abstractmethod
    def linear(self, a: Tensor) -> Tensor:
        """UPDATE before its activation: ``(D, aggregate_features) -> (D, out_features)``."""

    def update(self, a: Tensor) -> Tensor:
        """UPDATE with its activation (ReLU, none in the last layer)."""
        h = self.linear(a)
        return torch.relu(h) if self.activation else h

    def aggregate_work(self, block: Block, itemsize: int) -> Work:
        """The size of AGGREGATE on a block, for pricing; self loops not counted as edges."""
        return Work(
            op="aggregate",
            edges=block.num_edges,
            rows=block.num_dst,
            features=self.in_features,
            itemsize=itemsize,
        )

    def update_work(self, rows: int, itemsize: int, gemms: int = 1) -> Work:
        """The size of UPDATE on ``rows`` destinations; backward has two products, or one."""
        return Work(
            op="update",
            rows=rows,
            features=self.out_features,
            macs=rows * self.macs_per_row * gemms,
            itemsize=itemsize,
        )


class GCNLayer(Layer):
    """Kipf and Welling's layer; HyScale-GNN Equation 3, with the self loop of HP-GNN's Â.

    a_v = sum over u in N(v) and v of h_u / sqrt((D(v)+1)(D(u)+1)); h_v = ReLU(a_v W + b).
    """

    def __init__(
        self, in_features: int, out_features: int, *, activation: bool, generator: torch.Generator
    ) -> None:
        super().__init__(in_features, out_features, activation=activation)
        self.weight = glorot(in_features, out_features, generator)
        self.bias = nn.Parameter(torch.zeros(out_features, dtype=torch.float64))

    def aggregate(self, bound: BoundBlock, h: Tensor) -> Tensor:
        edge, own = bound.gcn_weights()
        return bound.adjacency.sum(h, edge) + own * h[: bound.block.num_dst]

    def aggregate_backward(self, bound: BoundBlock, gradient: Tensor) -> Tensor:
        edge, own = bound.gcn_weights()
        out = bound.adjacency.sum_transposed(gradient, edge)
        out[: bound.block.num_dst] += own * gradient
        return out

    def linear(self, a: Tensor) -> Tensor:
        return torch.addmm(self.bias, a, self.weight)


class SAGELayer(Layer):
    """GraphSAGE with the mean; HyScale-GNN Equation 4: a_v = h_v || Mean(h_u), then W a_v + b."""

    def __init__(
        self, in_features: int, out_features: int, *, activation: bool, generator: torch.Generator
    ) -> None:
        super().__init__(in_features, out_features, activation=activation)
        self.weight = glorot(2 * in_features, out_features, generator)
        self.bias = nn.Parameter(torch.zeros(out_features, dtype=torch.float64))

    @property
    def aggregate_features(self) -> int:
        return 2 * self.in_features

    def aggregate(self, bound: BoundBlock, h: Tensor) -> Tensor:
        return torch.cat((h[: bound.block.num_dst], bound.adjacency.mean(h)), dim=1)

    def aggregate_backward(self, bound: BoundBlock, gradient: Tensor) -> Tensor:
        own, mean = gradient[:, : self.in_features], gradient[:, self.in_features :]
        degree = bound.adjacency.in_degrees.clamp(min=1).unsqueeze(1)
        out = bound.adjacency.sum_transposed(mean / degree)
        out[: bound.block.num_dst] += own
        return out

    def linear(self, a: Tensor) -> Tensor:
        return torch.addmm(self.bias, a, self.weight)


class GINLayer(Layer):
    """Graph isomorphism layer, epsilon 0: a_v = h_v + sum of h_u, then a two-layer perceptron."""

    def __init__(
        self, in_features: int, out_features: int, *, activation: bool, generator: torch.Generator
    ) -> None:
        super().__init__(in_features, out_features, activation=activation)
        self.weight_1 = glorot(in_features, out_features, generator)
        self.bias_1 = nn.Parameter(torch.zeros(out_features, dtype=torch.float64))
        self.weight_2 = glorot(out_features, out_features, generator)
        self.bias_2 = nn.Parameter(torch.zeros(out_features, dtype=torch.float64))

    @property
    def macs_per_row(self) -> int:
        return (self.in_features + self.out_features) * self.out_features

    def aggregate(self, bound: BoundBlock, h: Tensor) -> Tensor:
        return bound.adjacency.sum(h) + h[: bound.block.num_dst]

    def aggregate_backward(self, bound: BoundBlock, gradient: Tensor) -> Tensor:
        out = bound.adjacency.sum_transposed(gradient)
        out[: bound.block.num_dst] += gradient
        return out

    def linear(self, a: Tensor) -> Tensor:
        hidden = torch.relu(torch.addmm(self.bias_1, a, self.weight_1))
        return torch.addmm(self.bias_2, hidden, self.weight_2)


class GATLayer(Layer):
    """Graph attention, one head; HongTu Equation 3 with the projected rows summed, as in GAT.

    Scores are LeakyReLU(a · [W h_v || W h_u]) with slope 0.2, softmax over N(v) and v.
    """

    cacheable = False
    slope = 0.2

    def __init__(
        self, in_features: int, out_features: int, *, activation: bool, generator: torch.Generator
    ) -> None:
        super().__init__(in_features, out_features, activation=activation)
        self.weight = glorot(in_features, out_features, generator)
        self.attend_src = glorot(out_features, 1, generator)
        self.attend_dst = glorot(out_features, 1, generator)
        self.bias = nn.Parameter(torch.zeros(out_features, dtype=torch.float64))

    @property
    def aggregate_features(self) -> int:
        return self.out_features

    @property
    def macs_per_row(self) -> int:
        return 0

    def aggregate(self, bound: BoundBlock, h: Tensor) -> Tensor:
        adjacency = bound.adjacency_with_self_loops
        projected = h @ self.weight
        src = (projected @ self.attend_src).squeeze(1)
        dst = (projected[: bound.block.num_dst] @ self.attend_dst).squeeze(1)
        scores = nn.functional.leaky_relu(
            src.index_select(0, adjacency.edge_src) + dst.index_select(0, adjacency.edge_dst),
            self.slope,
        )
        return adjacency.sum(projected, adjacency.edge_softmax(scores))

    def aggregate_backward(self, bound: BoundBlock, gradient: Tensor) -> Tensor:
        raise TypeError("attention has parameters and intermediates; it is recomputed, not cached")

    def linear(self, a: Tensor) -> Tensor:
        return a + self.bias

    def aggregate_work(self, block: Block, itemsize: int) -> Work:
        return Work(
            op="aggregate",
            edges=block.num_edges + block.num_dst,
            rows=block.num_dst,
            features=self.out_features,
            macs=block.num_src * self.in_features * self.out_features,
            itemsize=itemsize,
        )
