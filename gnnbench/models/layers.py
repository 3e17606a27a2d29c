"""The bundled models' layers, each as AGGREGATE and UPDATE.

The split follows HyScale-GNN Equations 1 and 2 and HongTu Equation 1. ``aggregate`` turns the
source rows ``(S, f_in)`` into ``(D, w)``; ``update`` turns those into ``(D, f_out)``. If the
aggregate is linear in its input and has no parameters, ``aggregate_backward`` computes the gradient
without a forward pass. HongTu can then cache aggregates instead of recomputing them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn

from gnnbench.models.bound import BoundBlock
from gnnbench.parts import EarlyProducts, EdgeValues, FactorCounts, LayerShape, LayerTraits
from gnnbench.records import Block, BlockSize, Form, Work


def glorot(rows: int, columns: int, generator: torch.Generator) -> nn.Parameter:
    """Draw Glorot-uniform ``(rows, columns)``, in float64 so that every dtype starts alike."""
    bound = math.sqrt(6.0 / (rows + columns))
    values = torch.rand(rows, columns, generator=generator, dtype=torch.float64)
    return nn.Parameter((2.0 * values - 1.0) * bound)


class Layer(nn.Module, ABC):
    """One GNN layer. ``activation`` is False for the last layer of a model.

    A class offered as a model has a ``name`` and a ``title``, and is called as ``LayerClass``
    describes, with a ``generator`` to draw parameters from.
    """

    #: The model's name, in ``--model NAME``, and its title in reports.
    name: ClassVar[str]
    title: ClassVar[str]
    #: Adam's default learning rate. Layers that sum over neighbours without dividing by their
    #: number need a smaller one: at a hub a step counts once for each edge.
    learning_rate: ClassVar[float] = 0.01
    #: How ``aggregate`` combines the neighbours' rows; see ``Work``.
    form: ClassVar[Form] = "plain"
    #: Whether ``aggregate`` is linear and free of parameters, so that its output can be cached.
    cacheable = True
    #: Whether ``aggregate`` and ``aggregate_backward`` also accept a range of columns, see
    #: ``LayerShape``; they must be ``cacheable`` then.
    featurewise = False
    #: Whether the layer supports edge weights, and, set by ``build``, whether it multiplies edges
    #: by weights or by a sampler's scales.
    takes_weights: ClassVar[bool] = False
    weighted = False
    #: Whether its sums over neighbours are computed by ``BoundBlock``, so that a sampler may scale
    #: them.
    takes_scales: ClassVar[bool] = False
    #: Whether ``aggregate`` only multiplies its input rows by W, with ``BoundBlock.project``, which
    #: supports sparse rows.
    takes_sparse: ClassVar[bool] = False
    #: Whether AGGREGATE's backward pass applies the mask of the ReLU that ends the layer below, and
    #: whether the layer above does so. Both are set by ``build``.
    masks_below = False
    masked_above = False

    def __init__(self, in_features: int, out_features: int, *, activation: bool) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.activation = activation

    @property
    def aggregate_features(self) -> int:
        """The width of ``aggregate``'s result."""
        return self.in_features

    @property
    def macs_per_row(self) -> int:
        """The multiply-accumulates of ``update`` for one destination."""
        return self.aggregate_features * self.out_features

    @property
    def source_macs(self) -> int:
        """The multiply-accumulates of ``aggregate`` for one source, before rows are summed."""
        return 0

    @property
    def destination_macs(self) -> int:
        """The multiply-accumulates of ``aggregate`` for one destination's own row."""
        return 0

    #: Rows of products that an edge reads, where ``aggregate`` has products.
    products_read: ClassVar[int] = 1

    @property
    def product_features(self) -> int:
        """The width of the product that ``update`` begins with; see ``LayerShape``."""
        return 0

    @property
    def product_weight(self) -> nn.Parameter:
        """The weight of the product, ``(aggregate_features, product_features)``."""
        raise TypeError(f"UPDATE of {type(self).__name__} does not begin with a product")

    def update_product(self, bound: BoundBlock, product: Tensor) -> Tensor:
        """Compute the rest of UPDATE, ``(D, product_features) -> (D, out_features)``."""
        raise TypeError(f"UPDATE of {type(self).__name__} does not begin with a product")

    @property
    def edge_features(self) -> int:
        """The values per edge that the backward pass of ``aggregate`` needs; see ``LayerShape``."""
        return 0

    @property
    def hidden_features(self) -> int:
        """The values per destination between the products of UPDATE."""
        return 0

    @property
    def loop_features(self) -> int:
        """The values for each destination's self-loop, if ``aggregate`` adds one."""
        return 0

    @property
    def message_features(self) -> int:
        """The width of rows that ``aggregate`` sums with trained weights; see ``LayerShape``."""
        return self.aggregate_features if self.form == "attention" else 0

    #: The number of constants that ``aggregate`` has for each source and each destination.
    source_factors = 0
    destination_factors = 0

    @property
    def shape(self) -> LayerShape:
        return LayerShape(
            in_features=self.in_features,
            out_features=self.out_features,
            aggregate_features=self.aggregate_features,
            parameters=sum(p.numel() for p in self.parameters()),
            macs_per_row=self.macs_per_row,
            cacheable=self.cacheable,
            product_features=self.product_features,
            hidden_features=self.hidden_features,
            on_edges=EdgeValues(self.edge_features, self.loop_features, self.message_features),
            factors=FactorCounts(self.source_factors, self.destination_factors, int(self.weighted)),
            early=EarlyProducts(self.source_macs, self.destination_macs, self.products_read),
            traits=LayerTraits(self.featurewise, self.takes_scales, self.takes_sparse),
        )

    @abstractmethod
    def aggregate(self, bound: BoundBlock, h: Tensor) -> Tensor:
        """Apply AGGREGATE: ``(S, in_features) -> (D, aggregate_features)``, differentiable."""

    def aggregate_backward(
        self, bound: BoundBlock, gradient: Tensor, into: Tensor | None = None
    ) -> Tensor:
        """Return ``(D, aggregate_features) -> (S, in_features)``, added to ``into`` if given."""
        raise TypeError(f"AGGREGATE of {type(self).__name__} is recomputed, not cached")

    @abstractmethod
    def update(self, bound: BoundBlock, a: Tensor) -> Tensor:
        """Apply UPDATE, ``(D, aggregate_features) -> (D, out_features)``, ReLU unless last."""

    def aggregate_work(self, block: Block | BlockSize, itemsize: int) -> Work:
        """Return the size of AGGREGATE on a block, for pricing, without self loops."""
        return Work(
            op="aggregate",
            edges=block.num_edges,
            rows=block.num_dst,
            features=self.in_features,
            itemsize=itemsize,
            sources=block.num_src,
            form=self.form,
            weighted=self.weighted,
        )

    def update_work(self, rows: int, itemsize: int, gemms: int = 1, threads: int = 0) -> Work:
        """Return the size of UPDATE on ``rows`` destinations by ``threads`` (0: all) of the host.

        A backward pass has two products (``gemms``), or one.
        """
        return Work(
            op="update",
            rows=rows,
            features=self.out_features,
            macs=rows * self.macs_per_row * gemms,
            itemsize=itemsize,
            threads=threads,
            form="relu" if self.activation else "plain",
            products=gemms,
        )


class _LinearLayer(Layer):
    """A layer with UPDATE a W + b, and ReLU except in the last layer."""

    weight: nn.Parameter
    bias: Tensor

    @property
    def product_features(self) -> int:
        return self.out_features

    @property
    def product_weight(self) -> nn.Parameter:
        return self.weight

    def update_product(self, bound: BoundBlock, product: Tensor) -> Tensor:
        return bound.kernel.linear(
            product, None, self.bias, relu=self.activation, masked=self.masked_above
        )

    def update(self, bound: BoundBlock, a: Tensor) -> Tensor:
        return bound.kernel.linear(
            a, self.weight, self.bias, relu=self.activation, masked=self.masked_above
        )


class GCNLayer(_LinearLayer):
    """Kipf and Welling's layer; HyScale-GNN Equation 3, with the self loop of HP-GNN's Â.

    a_v = sum over u in N(v) and v of h_u / sqrt((D(v)+1)(D(u)+1)); h_v = ReLU(a_v W + b). With edge
    weights, w_uv multiplies each neighbour's term, and D(v) is the sum of the weights of v's
    in-edges. A vertex's self-loop has weight 1, as in PyG.
    """

    name = "gcn"
    title = "GCN"
    form: ClassVar[Form] = "scaled"
    featurewise = True
    takes_weights: ClassVar[bool] = True
    takes_scales: ClassVar[bool] = True
    #: The constants of ``BoundBlock.gcn_scaling``.
    source_factors = 1
    destination_factors = 2

    def __init__(
        self, in_features: int, out_features: int, *, activation: bool, generator: torch.Generator
    ) -> None:
        super().__init__(in_features, out_features, activation=activation)
        self.weight = glorot(in_features, out_features, generator)
        self.bias = nn.Parameter(torch.zeros(out_features, dtype=torch.float64))

    def aggregate(self, bound: BoundBlock, h: Tensor) -> Tensor:
        return bound.sum_scaled(h)

    def aggregate_backward(
        self, bound: BoundBlock, gradient: Tensor, into: Tensor | None = None
    ) -> Tensor:
        return bound.sum_scaled_transposed(gradient, into)


class _MeanLayer(_LinearLayer):
    """A layer with a_v = h_v || Mean(h_u), then a_v W + b."""

    form: ClassVar[Form] = "mean"
    featurewise = True
    takes_scales: ClassVar[bool] = True

    @property
    def aggregate_features(self) -> int:
        return 2 * self.in_features

    def aggregate(self, bound: BoundBlock, h: Tensor) -> Tensor:
        return bound.own_and_mean(h)

    def aggregate_backward(
        self, bound: BoundBlock, gradient: Tensor, into: Tensor | None = None
    ) -> Tensor:
        return bound.own_and_mean_transposed(gradient, into)


class SAGELayer(_MeanLayer):
    """GraphSAGE with the mean; HyScale-GNN Equation 4: a_v = h_v || Mean(h_u), then W a_v + b."""

    name = "sage"
    title = "GraphSAGE"

    def __init__(
        self, in_features: int, out_features: int, *, activation: bool, generator: torch.Generator
    ) -> None:
        super().__init__(in_features, out_features, activation=activation)
        self.weight = glorot(2 * in_features, out_features, generator)
        self.bias = nn.Parameter(torch.zeros(out_features, dtype=torch.float64))


class CommNetLayer(_MeanLayer):
    """CommNet: h_v' = ReLU(h_v H + c_v C), with c_v the mean of the neighbours' rows.

    Sukhbaatar, Szlam and Fergus 2016, with a linear module, on a graph: an agent hears its
    neighbours instead of all agents. That is GraphSAGE without a bias; ``weight`` holds H above C,
    each drawn for its own size.
    """

    name = "commnet"
    title = "CommNet"

    def __init__(
        self, in_features: int, out_features: int, *, activation: bool, generator: torch.Generator
    ) -> None:
        super().__init__(in_features, out_features, activation=activation)
        own, heard = (glorot(in_features, out_features, generator) for _ in range(2))
        self.weight = nn.Parameter(torch.cat((own.detach(), heard.detach())))
        zeros = torch.zeros(out_features, dtype=torch.float64)
        self.register_buffer("bias", zeros, persistent=False)


class MultipliedLayer(Layer):
    """A layer with all products inside AGGREGATE: UPDATE has no matrix left, only a bias."""

    cacheable = False
    bias: Tensor

    @property
    def aggregate_features(self) -> int:
        return self.out_features

    @property
    def macs_per_row(self) -> int:
        return 0

    def update(self, bound: BoundBlock, a: Tensor) -> Tensor:
        return bound.kernel.linear(
            a, None, self.bias, relu=self.activation, masked=self.masked_above
        )


class _ProjectedLayer(MultipliedLayer):
    """A layer that multiplies by W before it aggregates, A (H W) instead of (A H) W.

    It has the parameters of the layer that it replaces. W is now inside AGGREGATE, which can
    therefore not be cached, nor differentiated without its forward pass.
    """

    featurewise = False

    @property
    def product_features(self) -> int:
        return 0

    def aggregate_backward(
        self, bound: BoundBlock, gradient: Tensor, into: Tensor | None = None
    ) -> Tensor:
        return Layer.aggregate_backward(self, bound, gradient, into)

    def aggregate_work(self, block: Block | BlockSize, itemsize: int) -> Work:
        return Work(
            op="aggregate",
            edges=block.num_edges,
            rows=block.num_dst,
            features=self.out_features,
            macs=block.num_src * self.source_macs + block.num_dst * self.destination_macs,
            itemsize=itemsize,
            sources=block.num_src,
            form=self.form,
            weighted=self.weighted,
        )

    @property
    def source_macs(self) -> int:
        return self.in_features * self.out_features


class ProjectedGCNLayer(_ProjectedLayer, GCNLayer):
    """GCN with the product first."""

    def aggregate(self, bound: BoundBlock, h: Tensor) -> Tensor:
        return bound.sum_scaled(bound.project(h, self.weight))


class _ProjectedMeanLayer(_ProjectedLayer, _MeanLayer):
    """A mean layer, products first: W's upper half for the own row, its lower for the mean."""

    def aggregate(self, bound: BoundBlock, h: Tensor) -> Tensor:
        own, neighbours = torch.split(self.weight, self.in_features)
        mean = bound.mean(bound.project(h, neighbours))
        return mean + bound.project(bound.own_rows(h), own)

    @property
    def destination_macs(self) -> int:
        return self.in_features * self.out_features


class ProjectedSAGELayer(_ProjectedMeanLayer, SAGELayer):
    """GraphSAGE with the products first."""


class ProjectedCommNetLayer(_ProjectedMeanLayer, CommNetLayer):
    """CommNet with the products first."""


class GINLayer(Layer):
    """Graph isomorphism layer, epsilon 0: a_v = h_v + sum of h_u, then a two-layer perceptron."""

    name = "gin"
    title = "GIN"
    form: ClassVar[Form] = "plus-own"
    learning_rate = 0.001
    featurewise = True
    takes_scales: ClassVar[bool] = True

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

    @property
    def hidden_features(self) -> int:
        return self.out_features

    def aggregate(self, bound: BoundBlock, h: Tensor) -> Tensor:
        return bound.own_plus_sum(h)

    def aggregate_backward(
        self, bound: BoundBlock, gradient: Tensor, into: Tensor | None = None
    ) -> Tensor:
        return bound.own_plus_sum_transposed(gradient, into)

    @property
    def product_features(self) -> int:
        return self.out_features

    @property
    def product_weight(self) -> nn.Parameter:
        return self.weight_1

    def update_product(self, bound: BoundBlock, product: Tensor) -> Tensor:
        return self._update_hidden(
            bound, bound.kernel.linear(product, None, self.bias_1, relu=True)
        )

    def update(self, bound: BoundBlock, a: Tensor) -> Tensor:
        hidden = bound.kernel.linear(a, self.weight_1, self.bias_1, relu=True)
        return self._update_hidden(bound, hidden)

    def _update_hidden(self, bound: BoundBlock, hidden: Tensor) -> Tensor:
        """Compute the perceptron's second layer."""
        return bound.kernel.linear(
            hidden, self.weight_2, self.bias_2, relu=self.activation, masked=self.masked_above
        )


class ProjectedGINLayer(_ProjectedLayer, GINLayer):
    """GIN with the perceptron's first product before the sum; UPDATE has the second."""

    @property
    def macs_per_row(self) -> int:
        return self.out_features * self.out_features

    def aggregate(self, bound: BoundBlock, h: Tensor) -> Tensor:
        return bound.own_plus_sum(bound.project(h, self.weight_1))

    def update(self, bound: BoundBlock, a: Tensor) -> Tensor:
        return GINLayer.update_product(self, bound, a)


class GATLayer(MultipliedLayer):
    """Graph attention, one head; HongTu Equation 3 with the projected rows summed, as in GAT.

    Scores are LeakyReLU(a · [W h_v || W h_u]) with slope 0.2, softmax over N(v) and v.
    """

    name = "gat"
    title = "GAT"
    form: ClassVar[Form] = "attention"
    takes_sparse: ClassVar[bool] = True
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
    def edge_features(self) -> int:
        """The two values per edge: the score before LeakyReLU, and the softmax."""
        return 2

    @property
    def loop_features(self) -> int:
        """The values of an edge, since attention is over N(v) and v."""
        return self.edge_features

    def aggregate(self, bound: BoundBlock, h: Tensor) -> Tensor:
        adjacency = bound.adjacency_with_self_loops
        projected = bound.project(h, self.weight)
        src = (projected @ self.attend_src).squeeze(1)
        dst = (bound.own_rows(projected) @ self.attend_dst).squeeze(1)
        scores = nn.functional.leaky_relu(
            src.index_select(0, adjacency.edge_src) + dst.index_select(0, adjacency.edge_dst),
            self.slope,
        )
        return adjacency.sum(projected, adjacency.edge_softmax(scores))

    @property
    def source_macs(self) -> int:
        return self.in_features * self.out_features

    def aggregate_work(self, block: Block | BlockSize, itemsize: int) -> Work:
        return Work(
            op="aggregate",
            edges=block.num_edges + block.num_dst,
            rows=block.num_dst,
            features=self.out_features,
            macs=block.num_src * self.source_macs,
            itemsize=itemsize,
            sources=block.num_src,
            form=self.form,
        )


class GGCNLayer(MultipliedLayer):
    """Gated graph convolution: a neural network on every edge.

    h_v' = ReLU(h_v U + sum over u in N(v) of eta_uv * (h_u W) + b), element by element, with the
    gate eta_uv = sigmoid(h_v A + h_u B). This is the gated graph ConvNet of Bresson and Laurent
    2017, without its residual and batch normalisation. It turns the scalar edge gates of
    Marcheggiani and Titov 2017 into vectors. HongTu §4.2 names GGCN for its computation on edges,
    without an equation. It cites Li et al. 2016, whose gates (a GRU) are on vertices.
    """

    name = "ggcn"
    title = "GGCN"
    form: ClassVar[Form] = "gated"
    learning_rate = 0.001
    #: h_v A, h_u B and h_u W.
    products_read: ClassVar[int] = 3

    def __init__(
        self, in_features: int, out_features: int, *, activation: bool, generator: torch.Generator
    ) -> None:
        super().__init__(in_features, out_features, activation=activation)
        self.own = glorot(in_features, out_features, generator)
        self.message = glorot(in_features, out_features, generator)
        self.gate_dst = glorot(in_features, out_features, generator)
        self.gate_src = glorot(in_features, out_features, generator)
        self.bias = nn.Parameter(torch.zeros(out_features, dtype=torch.float64))

    @property
    def source_macs(self) -> int:
        return 2 * self.in_features * self.out_features

    @property
    def destination_macs(self) -> int:
        return 2 * self.in_features * self.out_features

    @property
    def edge_features(self) -> int:
        """The values per edge: the gate, which is the sigmoid's output and a factor, and h_u W."""
        return 2 * self.out_features

    def aggregate(self, bound: BoundBlock, h: Tensor) -> Tensor:
        adjacency, own = bound.adjacency, bound.own_rows(h)
        gates = torch.sigmoid(
            (own @ self.gate_dst).index_select(0, adjacency.edge_dst)
            + (h @ self.gate_src).index_select(0, adjacency.edge_src)
        )
        messages = gates * (h @ self.message).index_select(0, adjacency.edge_src)
        return own @ self.own + adjacency.sum_edges(messages)

    def aggregate_work(self, block: Block | BlockSize, itemsize: int) -> Work:
        """Return the size of AGGREGATE; an edge reads three rows, priced as one of triple width.

        Multiplications: four products, B and W over the sources, U and A over the destinations, and
        eta * (h_u W) of each edge. The sigmoid is not counted.
        """
        products = block.num_src * self.source_macs + block.num_dst * self.destination_macs
        return Work(
            op="aggregate",
            edges=block.num_edges,
            rows=block.num_dst,
            features=self.products_read * self.out_features,
            macs=products + block.num_edges * self.out_features,
            itemsize=itemsize,
            sources=block.num_src,
            form=self.form,
        )
