"""Aggregation by gnnbench's compiled kernels, on the CPU."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.utils.weak import WeakTensorKeyDictionary

from gnnbench.constants import Bound
from gnnbench.errors import UsageError
from gnnbench.kernels import autograd
from gnnbench.kernels.autograd import Factors
from gnnbench.kernels.dispatch.aggregation import SparseMatrix
from gnnbench.kernels.dispatch.checks import MaskArray
from gnnbench.machines.costs.aggregation import Aggregation
from gnnbench.machines.costs.passes import Passes
from gnnbench.machines.machine import DeviceKind
from gnnbench.parts import Adjacency, Kernel, LayerShape, Scaling, Setting, csr_bytes
from gnnbench.records import Block, BlockSize, Mode


class NativeAdjacency(Adjacency):
    """A block as a :class:`SparseMatrix`, which shares its arrays and keeps their transpose."""

    def __init__(self, block: Block, dtype: torch.dtype, device: torch.device) -> None:
        if device.type != "cpu":
            raise UsageError(
                f"kernel 'native' runs on the CPU, and the platform puts a block on {device}; "
                f"choose kernel 'torch' there."
            )
        self.block = block
        self._dtype = dtype
        self._matrix = SparseMatrix(block.indptr, block.indices, block.num_src)
        #: Mask of the wanted rows of transposed products; None means all.
        self._wanted: MaskArray | None = None

    def masked(self, wanted: MaskArray) -> NativeAdjacency:
        adjacency = copy(self)
        adjacency._wanted = wanted
        return adjacency

    def sum(self, h: Tensor, weight: Tensor | None = None) -> Tensor:
        return autograd.aggregate(self._matrix, h, weight)

    def mean(self, h: Tensor) -> Tensor:
        return autograd.aggregate_mean(self._matrix, h)

    def own_and_mean(self, h: Tensor) -> Tensor:
        if self.block.own is not None:
            return super().own_and_mean(h)
        return autograd.own_and_mean(self._matrix, h)

    @torch.no_grad()
    def own_and_mean_transposed(self, g: Tensor, into: Tensor | None = None) -> Tensor:
        if self.block.own is None:
            return autograd.own_and_mean_transposed(self._matrix, g, self._wanted, into)
        own, mean = g.chunk(2, dim=1)
        out = self._multiply_transposed(mean, autograd.MEAN, into)
        self.add_to_own_rows(out, own)
        return out

    def own_plus_sum(self, h: Tensor) -> Tensor:
        if self.block.own is not None:
            return super().own_plus_sum(h)
        return autograd.aggregate(self._matrix, h, None, self._plus_own(h))

    @torch.no_grad()
    def own_plus_sum_transposed(self, g: Tensor, into: Tensor | None = None) -> Tensor:
        if self.block.own is not None:
            return super().own_plus_sum_transposed(g, into)
        return self._multiply_transposed(g, self._plus_own(g), into)

    def _plus_own(self, rows: Tensor) -> Factors:
        """Return factors that add own rows unscaled."""
        return Factors(own=np.ones(self.block.num_dst, dtype=autograd.read(rows).dtype))

    def sum_transposed(
        self, g: Tensor, weight: Tensor | None = None, into: Tensor | None = None
    ) -> Tensor:
        with torch.no_grad():
            return autograd.multiply_transposed(
                self._matrix, g, weight, wanted=self._wanted, into=into
            )

    def _multiply_transposed(self, g: Tensor, factors: Factors, into: Tensor | None) -> Tensor:
        return autograd.multiply_transposed(self._matrix, g, None, factors, self._wanted, into)

    def add_to_own_rows(self, out: Tensor, rows: Tensor) -> None:
        if self._wanted is not None:
            own = slice(self.block.num_dst) if self.block.own is None else self.block.own
            rows = autograd.keep_wanted(rows, self._wanted[own])
        super().add_to_own_rows(out, rows)

    def sum_scaled(self, h: Tensor, scaling: Scaling) -> Tensor:
        """Sum in one pass if own rows come first; otherwise add own rows in a second pass."""
        if self.block.own is None:
            return autograd.aggregate(self._matrix, h, None, _factors(scaling, own=True))
        total = autograd.aggregate(self._matrix, h, None, _factors(scaling, own=False))
        return total + scaling.own.unsqueeze(1) * self.own_rows(h)

    @torch.no_grad()
    def sum_scaled_transposed(
        self, g: Tensor, scaling: Scaling, into: Tensor | None = None
    ) -> Tensor:
        if self.block.own is None:
            return self._multiply_transposed(g, _factors(scaling, own=True), into)
        out = self._multiply_transposed(g, _factors(scaling, own=False), into)
        self.add_to_own_rows(out, scaling.own.unsqueeze(1) * g)
        return out

    def edge_softmax(self, scores: Tensor) -> Tensor:
        return autograd.edge_softmax(self._matrix, scores)

    def sum_edges(self, messages: Tensor) -> Tensor:
        out: Tensor = _EdgeSum.apply(self, messages)  # type: ignore[no-untyped-call]
        return out

    @cached_property
    def incidence(self) -> SparseMatrix:
        """``(D, E)``: a matrix whose sources are each destination's in-edges."""
        count = self.block.num_edges
        return SparseMatrix(self.block.indptr, np.arange(count, dtype=np.int32), count)

    @cached_property
    def edge_src(self) -> Tensor:
        return torch.from_numpy(self.block.indices.astype(np.int64))

    @cached_property
    def edge_dst(self) -> Tensor:
        rows = np.arange(self.block.num_dst, dtype=np.int64)
        return torch.from_numpy(np.repeat(rows, np.diff(self.block.indptr)))

    @cached_property
    def in_degrees(self) -> Tensor:
        return torch.from_numpy(np.diff(self.block.indptr)).to(self._dtype)


class _Context(FunctionCtx):
    """State that a forward pass saves for its backward pass."""

    adjacency: NativeAdjacency


class _EdgeSum(Function):
    """The sum over each destination's in-edges.

    Backward: dm_e = g_v for each edge e = (u, v), which needs no transpose.
    """

    @staticmethod
    def forward(ctx: _Context, adjacency: NativeAdjacency, messages: Tensor) -> Tensor:
        ctx.adjacency = adjacency
        return autograd.aggregate(adjacency.incidence, messages)

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, g: Tensor) -> tuple[None, Tensor]:
        return None, g.index_select(0, ctx.adjacency.edge_dst)


def _factors(scaling: Scaling, *, own: bool) -> Factors:
    return Factors(scaling.src.numpy(), scaling.dst.numpy(), scaling.own.numpy() if own else None)


@dataclass
class NativeArithmetic:
    """The numbers and costs of kernels that compute by gnnbench's compiled kernels."""

    reuses_outputs: ClassVar[bool] = True
    adds_in_place: ClassVar[bool] = True
    #: Scaling, own rows and biases are in the same pass as the sum or the product.
    aggregation: ClassVar[Aggregation] = Aggregation(
        index_bytes=4.0,
        weighted=frozenset(),
        of_rows={"mean": ((1, 1), (1, 0))},
        softmax_passes=4,
    )
    update_passes: ClassVar[Bound[Passes]] = ((0, 0), (0, 0))
    hidden_passes: ClassVar[Bound[Passes]] = ((0, 0), (2, 1))

    #: Features that a full graph multiplies in every epoch, with their transpose.
    _features: WeakTensorKeyDictionary = field(
        default_factory=WeakTensorKeyDictionary, init=False, repr=False, compare=False
    )

    def adjacency_bytes(self, block: BlockSize, layer: LayerShape, itemsize: int) -> int:
        """Return the bytes of both CSRs, with 64-bit row pointers and the transpose's edge numbers.

        If a layer has values on edges, the edges' ends in 64 bits and a value each are added. If
        own rows stand beside means, the joint transpose of both is added.
        """
        size = csr_bytes(block)
        size += 4 * (block.num_dst + 1 + block.num_src + 1 + block.num_edges)
        if layer.aggregate_features == 2 * layer.in_features and not block.own:
            size += 8 * (block.num_src + 1) + 4 * (block.num_edges + block.num_dst)
        if layer.on_edges.kept:
            size += 20 * block.num_edges
        return size

    def masks_gradients(self) -> bool:
        return True

    def linear(
        self, a: Tensor, weight: Tensor | None, bias: Tensor, *, relu: bool, masked: bool = False
    ) -> Tensor:
        return autograd.linear(a, weight, bias, relu=relu, masked=masked)

    def multiply(self, rows: Tensor, weight: Tensor) -> Tensor:
        return autograd.multiply(rows, weight)

    def multiply_sparse(self, rows: Tensor, weight: Tensor) -> Tensor:
        if rows not in self._features:
            self._features[rows] = SparseMatrix(
                rows.crow_indices().numpy().astype(np.int64),
                rows.col_indices().numpy(),
                rows.shape[1],
            )
        return autograd.aggregate(self._features[rows], weight, rows.values())


@dataclass
class NativeKernel(NativeArithmetic, Kernel):
    """gnnbench's compiled kernels, which keep rows in registers during products.

    Sparse features stay sparse unless a large share of their values is stored. W comes before the
    aggregation if that leaves less to aggregate. In a full graph AGGREGATE then has rows as wide as
    the layer's output, forward and backward. Otherwise they are as wide as its input, and the first
    layer has no backward pass. In a mini-batch W would multiply many more rows. Only sparse
    features, with their cheap product, are multiplied first there.
    """

    name: ClassVar[str] = "native"
    summary: ClassVar[str] = "gnnbench's own kernels, on the CPU"
    device_kinds: ClassVar[frozenset[DeviceKind]] = frozenset({"cpu"})
    takes_sparse_features: ClassVar[bool] = True

    def adjacency(self, block: Block, dtype: torch.dtype, device: torch.device) -> Adjacency:
        return NativeAdjacency(block, dtype, device)

    def projects_first(self, layer: int, setting: Setting, mode: Mode) -> bool:
        if layer == 0 and setting.dataset.multiplies_stored:
            return True
        shape = setting.layers[layer]
        passes = 1 if layer == 0 else 2
        return mode == "full-graph" and 2 * shape.out_features < passes * shape.in_features
