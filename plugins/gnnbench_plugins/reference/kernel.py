"""Plain torch: aggregation as a sparse matrix product, update as a dense one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, cast

import numpy as np
import scipy
import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import FunctionCtx, once_differentiable

from gnnbench.constants import Bound
from gnnbench.errors import UsageError
from gnnbench.kernels.csr import csr_tensor
from gnnbench.parts import Adjacency, Kernel, LayerShape, Scaling
from gnnbench.records import Block, BlockSize, IndexArray, IntArray
from gnnbench_plugins.reference.loader import RegularisedModel

#: CSR indices are 32 bits wide, the only width that every build of MKL takes.
MAX_EDGES: Bound[int] = 2**31 - 1


@dataclass
class TorchKernel(RegularisedModel, Kernel):
    """torch's CSR products (MKL on a CPU, cuSPARSE on a GPU)."""

    name: ClassVar[str] = "torch"
    summary: ClassVar[str] = "plain torch: CSR times dense, and its transpose backward"
    adds_in_place: ClassVar[bool] = True

    def adjacency_bytes(self, block: BlockSize, layer: LayerShape, itemsize: int) -> int:
        """Return the bytes of both CSRs, of a value and an edge number per edge, and of in-degrees.

        If a layer has values on edges, the edges' ends and rows in 64 bits are added.
        """
        size = super().adjacency_bytes(block, layer, itemsize)
        size += (4 + itemsize) * block.num_edges + itemsize * block.num_dst
        if layer.on_edges.kept:
            size += 16 * block.num_edges + 8 * (block.num_dst + 1)
        return size

    def adjacency(self, block: Block, dtype: torch.dtype, device: torch.device) -> TorchAdjacency:
        if block.num_edges > MAX_EDGES:
            raise UsageError(
                f"a block of {block.num_edges} edges is more than the {MAX_EDGES} that kernel "
                f"'torch' can index; cut the graph into more chunks."
            )
        return TorchAdjacency(block, dtype, device)


#: Attributes of a :class:`TorchAdjacency` that lie on its device.
_ON_DEVICE = (
    *("edge_src", "edge_dst", "in_degrees", "row_ptr", "edge_matrix"),
    *("_own", "_ones", "_rows", "_columns"),
)


class TorchAdjacency(Adjacency):
    """A block as a ``(D, S)`` CSR matrix and, from the first backward pass on, its transpose.

    Both have int32 indices and cost O(D + S + E); only the backward pass of ``sum_edges`` makes
    an ``(E, f)`` tensor.
    """

    def __init__(self, block: Block, dtype: torch.dtype, device: torch.device) -> None:
        self.block = block
        self.dtype = dtype
        self.device = device

    def sum(self, h: Tensor, weight: Tensor | None = None) -> Tensor:
        out: Tensor = _WeightedSum.apply(self, h, weight)  # type: ignore[no-untyped-call]
        return out

    def mean(self, h: Tensor) -> Tensor:
        return self.sum(h) / self.in_degrees.clamp(min=1).unsqueeze(1)

    # Without autograd a sum is written directly to its destination.

    def sum_scaled(self, h: Tensor, scaling: Scaling) -> Tensor:
        if torch.is_grad_enabled() and h.requires_grad:
            return super().sum_scaled(h, scaling)
        out = h.new_empty(self.block.num_dst, h.shape[1])
        self._copy_own(h, out).mul_(scaling.own.unsqueeze(1))
        return _multiply(self.matrix(scaling.of_edges(self)), h, out)

    def own_plus_sum(self, h: Tensor) -> Tensor:
        if torch.is_grad_enabled() and h.requires_grad:
            return super().own_plus_sum(h)
        out = h.new_empty(self.block.num_dst, h.shape[1])
        return _multiply(self.matrix(), h, self._copy_own(h, out))

    def own_and_mean(self, h: Tensor) -> Tensor:
        if torch.is_grad_enabled() and h.requires_grad:
            return super().own_and_mean(h)
        out = h.new_zeros(self.block.num_dst, 2 * h.shape[1])
        own, mean = out.chunk(2, dim=1)
        self._copy_own(h, own)
        _multiply(self.matrix(), h, mean).div_(self.in_degrees.clamp(min=1).unsqueeze(1))
        return out

    @torch.no_grad()
    def own_and_mean_transposed(self, g: Tensor, into: Tensor | None = None) -> Tensor:
        own, mean = g.chunk(2, dim=1)
        shares = self.in_degrees.reciprocal().repeat_interleave(self.row_ptr.diff())
        out = self.sum_transposed(mean, shares, into)
        self.add_to_own_rows(out, own)
        return out

    def _copy_own(self, h: Tensor, out: Tensor) -> Tensor:
        """Copy the destinations' own rows into ``out`` ``(D, f)``, and return it."""
        if self._own is None:
            return out.copy_(h[: self.block.num_dst])
        return torch.index_select(h, 0, self._own, out=out)

    def sum_transposed(
        self, g: Tensor, weight: Tensor | None = None, into: Tensor | None = None
    ) -> Tensor:
        with torch.no_grad():
            return _multiply(self.transpose(weight), g, into)

    def edge_softmax(self, scores: Tensor) -> Tensor:
        out: Tensor = _EdgeSoftmax.apply(self, scores)  # type: ignore[no-untyped-call]
        return out

    @cached_property
    def edge_src(self) -> Tensor:
        return torch.from_numpy(self.block.indices.astype(np.int64)).to(self.device)

    @cached_property
    def edge_dst(self) -> Tensor:
        rows = np.arange(self.block.num_dst, dtype=np.int64)
        return torch.from_numpy(np.repeat(rows, np.diff(self.block.indptr))).to(self.device)

    @cached_property
    def in_degrees(self) -> Tensor:
        return torch.from_numpy(np.diff(self.block.indptr)).to(self.device, self.dtype)

    def matrix(self, weight: Tensor | None = None) -> Tensor:
        """Return the ``(D, S)`` CSR matrix with the values ``weight`` ``(E,)``, by default ones."""
        row_ptr, columns = self._rows
        values = self._ones if weight is None else weight
        return csr_tensor(row_ptr, columns, values, (self.block.num_dst, self.block.num_src))

    def transpose(self, weight: Tensor | None = None) -> Tensor:
        """Return the ``(S, D)`` transpose of :meth:`matrix`."""
        row_ptr, columns, edge = self._columns
        values = self._ones if weight is None else weight.index_select(0, edge)
        return csr_tensor(row_ptr, columns, values, (self.block.num_src, self.block.num_dst))

    def sum_edges(self, messages: Tensor) -> Tensor:
        out: Tensor = _EdgeSum.apply(self, messages)  # type: ignore[no-untyped-call]
        return out

    def sum_scores(self, values: Tensor) -> Tensor:
        """Return the sum over each destination's in-edges: ``(E,) -> (D,)``."""
        return torch.segment_reduce(values, "sum", offsets=self.row_ptr, initial=0.0)

    def max_scores(self, values: Tensor) -> Tensor:
        """Return the largest of each destination's in-edges, ``(E,) -> (D,)``; -inf for none."""
        return torch.segment_reduce(values, "max", offsets=self.row_ptr, initial=-torch.inf)

    @cached_property
    def row_ptr(self) -> Tensor:
        """Row pointers, int64 ``(D+1,)``."""
        return _share(self.block.indptr).to(self.device)

    @cached_property
    def _ones(self) -> Tensor:
        return torch.ones(self.block.num_edges, dtype=self.dtype, device=self.device)

    @cached_property
    def _rows(self) -> tuple[Tensor, Tensor]:
        """Row pointers and columns; int32, which MKL and cuSPARSE take without a copy."""
        row_ptr = torch.from_numpy(self.block.indptr.astype(np.int32))
        return row_ptr.to(self.device), _share(self.block.indices).to(self.device)

    @cached_property
    def edge_matrix(self) -> Tensor:
        """The ``(D, E)`` CSR matrix of ones that sums each destination's in-edges."""
        columns = torch.arange(self.block.num_edges, dtype=torch.int32, device=self.device)
        size = (self.block.num_dst, self.block.num_edges)
        return csr_tensor(self._rows[0], columns, self._ones, size)

    @cached_property
    def _columns(self) -> tuple[Tensor, Tensor, Tensor]:
        """Row pointers and columns of the transpose, and the edge number of each of its entries."""
        row_ptr, columns, edge = (part.to(self.device) for part in self._columns_on_host)
        return row_ptr, columns, edge

    @cached_property
    def _columns_on_host(self) -> tuple[Tensor, Tensor, Tensor]:
        edges = np.arange(self.block.num_edges, dtype=np.int32)
        # A counting sort by source: edges of a source stay in CSR order, so sums are repeatable.
        by_source = scipy.sparse.csr_matrix(
            (edges, self.block.indices, self.block.indptr),
            shape=(self.block.num_dst, self.block.num_src),
        ).tocsc()
        arrays = (by_source.indptr, by_source.indices, by_source.data)
        row_ptr, columns, edge = (
            torch.from_numpy(array.astype(np.int32, copy=False)) for array in arrays
        )
        return row_ptr, columns, edge

    def offload(self) -> None:
        if self.device.type != "cpu":
            for name in _ON_DEVICE:
                self.__dict__.pop(name, None)


class _Context(FunctionCtx):
    """State that forward passes save for their backward passes."""

    adjacency: TorchAdjacency
    needs_input_grad: tuple[bool, ...]
    saved_tensors: tuple[Tensor | None, ...]


class _WeightedSum(Function):
    """``A h``, differentiable in the values of A as well.

    Backward: dh = A^T g; dw_e = <g_v, h_u> for each edge e = (u, v). The latter is a sampled
    dense-dense product, without an ``(E, f)`` intermediate.
    """

    @staticmethod
    def forward(
        ctx: _Context, adjacency: TorchAdjacency, h: Tensor, weight: Tensor | None
    ) -> Tensor:
        ctx.adjacency = adjacency
        learned = weight is not None and weight.requires_grad
        ctx.save_for_backward(weight, h if learned else None)  # type: ignore[arg-type]
        return _multiply(adjacency.matrix(weight), h)

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, g: Tensor) -> tuple[None, Tensor | None, Tensor | None]:
        adjacency = ctx.adjacency
        weight, h = ctx.saved_tensors
        _, wants_h, wants_weight = ctx.needs_input_grad
        g = g.contiguous()
        grad_h = _multiply(adjacency.transpose(weight), g) if wants_h else None
        grad_weight = None
        if wants_weight and h is not None:
            products = torch.sparse.sampled_addmm(adjacency.matrix(), g, h.t(), beta=0.0)
            grad_weight = products.values()
        return None, grad_h, grad_weight


class _EdgeSum(Function):
    """The sum over each destination's in-edges. Backward: dm_e = g_v for each edge e = (u, v)."""

    @staticmethod
    def forward(ctx: _Context, adjacency: TorchAdjacency, messages: Tensor) -> Tensor:
        ctx.adjacency = adjacency
        return _multiply(adjacency.edge_matrix, messages)

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, g: Tensor) -> tuple[None, Tensor]:
        adjacency = ctx.adjacency
        return None, g.index_select(0, adjacency.edge_dst)


class _EdgeSoftmax(Function):
    """Softmax over each destination's in-edges.

    Backward: ds_e = p_e (dp_e - sum of p dp over the in-edges of e's destination).
    """

    @staticmethod
    def forward(ctx: _Context, adjacency: TorchAdjacency, scores: Tensor) -> Tensor:
        dst = adjacency.edge_dst
        p = torch.exp(scores - adjacency.max_scores(scores).index_select(0, dst))
        p /= adjacency.sum_scores(p).index_select(0, dst)
        ctx.adjacency = adjacency
        ctx.save_for_backward(p)
        return p

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, g: Tensor) -> tuple[None, Tensor]:
        adjacency = ctx.adjacency
        p = cast(Tensor, ctx.saved_tensors[0])
        weighted = p * g
        return None, weighted - p * adjacency.sum_scores(weighted).index_select(
            0, adjacency.edge_dst
        )


def _share(array: IntArray | IndexArray) -> Tensor:
    """Return the array as a tensor; only a read-only one is copied, since torch warns about it."""
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def _multiply(matrix: Tensor, dense: Tensor, into: Tensor | None = None) -> Tensor:
    """Multiply CSR by dense, in place into ``into`` or zeros; ``@`` would hold a second result."""
    if into is None:
        into = dense.new_zeros(matrix.shape[0], dense.shape[1])
    return into.addmm_(matrix, dense)
