"""The sizes of a layer, which memory, traffic and cost are counted from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EdgeValues:
    """The values that a layer has on edges, in the workload's dtype.

    ``kept`` is the number that the backward pass needs for every edge of a block, besides rows; 0
    in a ``cacheable`` layer. They are what autograd saves of AGGREGATE's ``(E,)`` and ``(E, f)``
    tensors. These tensors stay on the device from a chunk's forward pass to the end of its backward
    pass. Integer indices and tensors freed within a pass are not counted. ``of_loops`` is that
    number for the self-loop that AGGREGATE adds to every destination; 0 where it adds none.
    ``messages`` is the width of the rows that AGGREGATE sums with trained weights. A kernel without
    a fused sum writes these rows for each edge; for other kernels :meth:`Kernel.shape_of` sets the
    width to 0.
    """

    kept: int = 0
    of_loops: int = 0
    messages: int = 0


@dataclass(frozen=True, slots=True)
class FactorCounts:
    """The number of AGGREGATE's constants for every source, destination and edge of a block, such
    as GCN's 1/sqrt(D(v)+1).

    ``edges`` is 1 where the graph's weights, or those of a sampler that scales edges, are used.
    """

    sources: int = 0
    destinations: int = 0
    edges: int = 0


@dataclass(frozen=True, slots=True)
class EarlyProducts:
    """The products of a layer that multiplies by W before it aggregates.

    ``source_macs`` and ``destination_macs`` are the multiply-accumulates for each source and each
    destination; 0 in other layers. An edge reads ``read`` rows of products.
    """

    source_macs: int = 0
    destination_macs: int = 0
    read: int = 1


@dataclass(frozen=True, slots=True)
class LayerTraits:
    """The ways in which a layer's AGGREGATE can be computed.

    ``featurewise`` says that AGGREGATE treats features independently, so a range of columns can be
    aggregated without the others. Its output is then one or more matrices of the input's width,
    side by side. ``takes_scales`` says that it is a sum or mean over neighbours that a sampler may
    scale. ``takes_sparse`` says that it begins with W times its input rows, which may be sparse.
    """

    featurewise: bool = False
    takes_scales: bool = False
    takes_sparse: bool = False


@dataclass(frozen=True, slots=True)
class LayerShape:
    """The sizes of a layer: f^{l-1} in, f^l out, and ``aggregate_features``, the width of
    AGGREGATE's output.

    ``cacheable`` says that the backward pass needs no other intermediates. HongTu §4.2 caches
    aggregates of GCN, SAGE and GIN; attention has O(|E|) intermediates and is recomputed.
    ``product_features`` is the width of the matrix product that UPDATE begins with, to which every
    column of the aggregate contributes; 0 where UPDATE begins otherwise. ``hidden_features`` is the
    width between two products of UPDATE; 0 where there is one product.
    """

    in_features: int
    out_features: int
    aggregate_features: int
    parameters: int
    macs_per_row: int
    cacheable: bool
    product_features: int = 0
    hidden_features: int = 0
    on_edges: EdgeValues = EdgeValues()
    factors: FactorCounts = FactorCounts()
    early: EarlyProducts = EarlyProducts()
    traits: LayerTraits = LayerTraits()

    @property
    def summed_features(self) -> int:
        """The number of values that an edge reads; they are products where the layer multiplies
        first."""
        if self.early.source_macs:
            return self.early.read * self.out_features
        return self.in_features

    @property
    def narrow_side(self) -> int:
        """The narrower side of the weights; rates of products are tabulated by it."""
        return min(self.in_features, self.out_features)
