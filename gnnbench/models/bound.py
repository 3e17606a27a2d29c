"""A block bound to a kernel and a device, with the coefficients that models read from it."""

from __future__ import annotations

from copy import copy
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gnnbench.errors import PluginError
from gnnbench.kernels.csr import csr_tensor
from gnnbench.kernels.dispatch import find_edges
from gnnbench.kernels.dispatch.checks import MaskArray
from gnnbench.parts import Adjacency, Kernel, MiniBatchSampler, Scaling, Setting
from gnnbench.records import Block, Dataset, FloatArray, Graph, IntArray, Workload


def with_self_loops(block: Block) -> Block:
    """Return the block with one more in-edge per destination, from itself, first in its row."""
    old = block.indptr
    indptr = old + np.arange(len(old), dtype=np.int64)
    indices = np.empty(block.num_edges + block.num_dst, dtype=np.int32)
    own = indptr[:-1]
    mask = np.ones(len(indices), dtype=bool)
    mask[own] = False
    indices[own] = np.arange(block.num_dst, dtype=np.int32) if block.own is None else block.own
    indices[mask] = block.indices
    return replace(block, indptr=indptr, indices=indices)


class EdgeValues:
    """A value for each edge of a graph, ``(E,)``: its weight, or a sampler's scale."""

    def __init__(self, graph: Graph, values: FloatArray) -> None:
        self._graph = graph
        self._values = values

    def of(self, block: Block) -> FloatArray:
        """Return the values of a block's edges. Raises ``ValueError`` for an unknown edge."""
        graph = self._graph
        if block.indices is graph.indices:
            return self._values
        places = find_edges(graph.indptr, graph.indices, block)
        if (places < 0).any():
            raise ValueError("a block has an edge that the graph does not have")
        return self._values[places]


def list_scales(sampler: MiniBatchSampler | None, setting: Setting) -> tuple[EdgeValues, ...]:
    """Return, by layer, the edge scales of a sampler that has begun; empty if it scales none.

    Raises ``PluginError`` unless there is a finite number for each edge, and if ``scales_edges``
    contradicts the scales.
    """
    if sampler is None:
        return ()
    graph, found = setting.dataset.graph, []
    for layer in range(setting.workload.num_layers):
        scales = sampler.edge_scales(layer)
        if (scales is not None) != sampler.scales_edges:
            raise PluginError(
                f"sampler {sampler.name!r} says that scales_edges is {sampler.scales_edges}; "
                f"edge_scales({layer}) has {'none' if scales is None else 'some'}."
            )
        if scales is None:
            continue
        values = np.asarray(scales, dtype=np.float32)
        if values.shape != (graph.num_edges,) or not np.isfinite(values).all():
            raise PluginError(
                f"edge_scales({layer}) of sampler {sampler.name!r} is to have a finite number for "
                f"each of {graph.num_edges:,} edges; it has {values.size:,}, "
                f"{np.count_nonzero(~np.isfinite(values)):,} of them not finite."
            )
        found.append(EdgeValues(graph, values))
    return tuple(found)


class Degrees:
    """D(v) of a graph's vertices, int64 ``(V,)``, and GCN's factors from it, computed once.

    A model that multiplies by edge weights passes the ``weighted`` graph; D(v) is then the sum of
    its weights. ``counts`` remain numbers of edges.
    """

    def __init__(self, counts: IntArray, weighted: Graph | None = None) -> None:
        self.counts = counts
        self._graph = weighted
        self._norms: dict[torch.dtype, Tensor] = {}

    @classmethod
    def of(cls, dataset: Dataset, workload: Workload) -> Degrees:
        """Return the degrees that a workload's model uses on a data set."""
        graph = dataset.graph
        return cls(graph.degrees, graph if workload.edge_weights else None)

    @property
    def weighted(self) -> bool:
        """Whether D(v) sums edge weights."""
        return self._graph is not None

    def norms(self, dtype: torch.dtype) -> Tensor:
        """Return 1/sqrt(D(v)+1), ``(V,)``, rounded to ``dtype`` once."""
        if dtype not in self._norms:
            whole = torch.from_numpy(self._sum_weights()).to(torch.float64, copy=True)
            self._norms[dtype] = whole.add_(1).rsqrt_().to(dtype)
        return self._norms[dtype]

    def _sum_weights(self) -> IntArray | npt.NDArray[np.float64]:
        graph = self._graph
        if graph is None or graph.weights is None:
            return self.counts
        rows = np.repeat(np.arange(graph.num_vertices), graph.degrees)
        return np.bincount(rows, graph.weights, minlength=graph.num_vertices)

    def find_weights(self, block: Block) -> FloatArray:
        """Return the weights of a block's edges, ``(E,)``.

        Raises ``ValueError`` for an edge that is not in the graph.
        """
        graph = self._graph
        if graph is None or graph.weights is None:
            raise ValueError("this model takes no edge weights")
        return EdgeValues(graph, graph.weights).of(block)


class BoundBlock:
    """The input of AGGREGATE: a block's adjacency and full-graph degrees.

    Degrees are the full graph's even if the block is sampled, so a sampled GCN layer with unlimited
    fan-out equals the full-graph layer. Coefficients and the adjacency with self loops are built on
    first use, and kept.

    ``thinned`` says that in-edges of its destinations were left out, while means still divide by
    the full graph's degrees. The remaining sources represent the others too, and their rows are
    scaled accordingly. ``scales`` are the factors of sampled edges that make sums estimate the full
    graph's (``MiniBatchSampler.edge_scales``). ``own`` says whether a destination's own row counts:
    if its in-edges are in several blocks, it counts in one of them.
    """

    def __init__(
        self,
        block: Block,
        kernel: Kernel,
        degrees: Degrees,
        dtype: torch.dtype,
        device: torch.device,
        *,
        thinned: bool = False,
        scales: EdgeValues | None = None,
        own: bool = True,
    ) -> None:
        self.block = block
        self.dtype = dtype
        self.device = device
        self.kernel = kernel
        self._degrees = degrees
        self._own = own
        self._plain: Adjacency | None = None
        self._looped: Adjacency | None = None
        self._gcn: Scaling | None = None
        self._shares = self._count_shares() if thinned else None
        self._scales = None if scales is None else self._place(scales.of(block))

    def _place(self, values: FloatArray | IntArray) -> Tensor:
        return torch.from_numpy(values).to(self.device, self.dtype)

    def _count_shares(self) -> Tensor:
        """Return the share of each destination's in-edges that are in the block, ``(D, 1)``."""
        here = torch.from_numpy(np.diff(self.block.indptr)).to(torch.float64)
        whole = torch.from_numpy(self._degrees.counts[self.block.dst_ids]).clamp(min=1)
        return (here / whole).unsqueeze(1).to(self.device, self.dtype)

    @property
    def adjacency(self) -> Adjacency:
        """The kernel's adjacency of the block, opened at first use."""
        if self._plain is None:
            self._plain = self.kernel.adjacency(self.block, self.dtype, self.device)
        return self._plain

    @property
    def adjacency_with_self_loops(self) -> Adjacency:
        """The kernel's adjacency of the block with self loops, opened at first use."""
        if self._looped is None:
            self._looped = self.kernel.adjacency(
                with_self_loops(self.block), self.dtype, self.device
            )
        return self._looped

    @property
    def degrees(self) -> Tensor:
        """D(u) of each source in the full graph, ``(S,)``, in the dtype of the features."""
        counts = torch.from_numpy(self._degrees.counts[self.block.src_ids])
        return counts.to(self.device, self.dtype)

    @property
    def gcn_scaling(self) -> Scaling:
        """1/sqrt((D(v)+1)(D(u)+1)) of each edge and own row, times the edge weight and scale."""
        if self._gcn is None:
            ids = torch.from_numpy(self.block.src_ids)
            norm = self._degrees.norms(self.dtype).index_select(0, ids).to(self.device)
            own = self.adjacency.own_rows(norm)
            self._gcn = Scaling(src=norm, dst=own, own=own * own * self._own)
            if self._own_factors:
                factors = self._gcn.of_edges(self.adjacency)
                if self._degrees.weighted:
                    factors *= self._place(self._degrees.find_weights(self.block))
                if self._scales is not None:
                    factors *= self._scales
        return self._gcn

    @property
    def _own_factors(self) -> bool:
        """Whether GCN's edges have factors besides the two ends'."""
        return self._degrees.weighted or self._scales is not None

    def sum_scaled(self, h: Tensor) -> Tensor:
        """Return the sum over in-edges and the own row by ``gcn_scaling``: ``(S, f) -> (D, f)``."""
        adjacency, scaling = self.adjacency, self.gcn_scaling
        if not self._own_factors:
            return adjacency.sum_scaled(h, scaling)
        own = scaling.own.unsqueeze(1) * adjacency.own_rows(h)
        return adjacency.sum(h, scaling.of_edges(adjacency)) + own

    @torch.no_grad()
    def sum_scaled_transposed(self, g: Tensor, into: Tensor | None = None) -> Tensor:
        """Run ``sum_scaled`` backward, ``(D, f) -> (S, f)``, without its forward pass."""
        adjacency, scaling = self.adjacency, self.gcn_scaling
        if not self._own_factors:
            return adjacency.sum_scaled_transposed(g, scaling, into)
        out = adjacency.sum_transposed(g, scaling.of_edges(adjacency), into)
        adjacency.add_to_own_rows(out, scaling.own.unsqueeze(1) * g)
        return out

    def mean(self, h: Tensor) -> Tensor:
        """Return the mean over in-edges, ``(S, f) -> (D, f)``, by the full graph's degree."""
        if self._scales is not None:
            return self.adjacency.sum(h, self._mean_factors(self._scales))
        mean = self.adjacency.mean(h)
        return mean if self._shares is None else mean * self._shares

    def own_and_mean(self, h: Tensor) -> Tensor:
        """Return each destination's own row beside the ``mean``: ``(S, f) -> (D, 2 f)``."""
        if self._scales is not None:
            return torch.cat((self.adjacency.own_rows(h), self.mean(h)), dim=1)
        both = self.adjacency.own_and_mean(h)
        if self._shares is not None:
            both[:, h.shape[1] :] *= self._shares
        if not self._own:
            both[:, : h.shape[1]] = 0
        return both

    @torch.no_grad()
    def own_and_mean_transposed(self, g: Tensor, into: Tensor | None = None) -> Tensor:
        """Run ``own_and_mean`` backward, ``(D, 2 f) -> (S, f)``, without its forward pass."""
        if self._scales is not None:
            own, mean = g.chunk(2, dim=1)
            factors = self._mean_factors(self._scales)
            out = self.adjacency.sum_transposed(mean.contiguous(), factors, into)
            self.adjacency.add_to_own_rows(out, own)
            return out
        if self._shares is not None:
            own, mean = g.chunk(2, dim=1)
            g = torch.cat((own * self._own, mean * self._shares), dim=1)
        return self.adjacency.own_and_mean_transposed(g, into)

    def _mean_factors(self, scales: Tensor) -> Tensor:
        """Return the factor of each edge in a mean over the full graph's in-edges, ``(E,)``."""
        counts = self._place(self._degrees.counts[self.block.dst_ids]).clamp(min=1)
        return scales / counts.index_select(0, self.adjacency.edge_dst)

    def own_plus_sum(self, h: Tensor) -> Tensor:
        """Return each destination's own row plus the sum over in-edges: ``(S, f) -> (D, f)``."""
        if not self._own:
            return self.adjacency.sum(h, self._scales)
        if self._scales is None:
            return self.adjacency.own_plus_sum(h)
        return self.adjacency.sum(h, self._scales) + self.adjacency.own_rows(h)

    @torch.no_grad()
    def own_plus_sum_transposed(self, g: Tensor, into: Tensor | None = None) -> Tensor:
        """Run ``own_plus_sum`` backward, ``(D, f) -> (S, f)``, without its forward pass."""
        if not self._own:
            return self.adjacency.sum_transposed(g, self._scales, into)
        if self._scales is None:
            return self.adjacency.own_plus_sum_transposed(g, into)
        out = self.adjacency.sum_transposed(g, self._scales, into)
        self.adjacency.add_to_own_rows(out, g)
        return out

    def masked(self, wanted: MaskArray) -> BoundBlock:
        """Return the bound block with transposed products that are zero except where ``wanted``.

        See :meth:`gnnbench.parts.Adjacency.masked`.
        """
        bound = copy(self)
        bound._plain = self.adjacency.masked(wanted)
        return bound

    def release(self) -> None:
        """Free the adjacencies and coefficients; they are rebuilt on the next use."""
        self._plain = self._looped = self._gcn = None

    def offload(self) -> None:
        """Free the tensors on a device, and keep the host arrays that they were made from."""
        for adjacency in (self._plain, self._looped):
            if adjacency is not None:
                adjacency.offload()
        self._gcn = None

    def project(self, h: Tensor, weight: Tensor) -> Tensor:
        """Return ``h W``, from dense rows or from features as a sparse CSR tensor."""
        if h.layout == torch.sparse_csr:
            return self.kernel.multiply_sparse(h, weight)
        return self.kernel.multiply(h, weight)

    def own_rows(self, h: Tensor) -> Tensor:
        """Return the destinations' own rows, ``(S, f) -> (D, f)``; sparse rows must stand first."""
        count = self.block.num_dst
        if count == len(h) and self.block.own is None:
            return h
        if h.layout != torch.sparse_csr:
            return self.adjacency.own_rows(h)
        row_ptr = h.crow_indices()[: count + 1]
        stop = int(row_ptr[-1])
        return csr_tensor(row_ptr, h.col_indices()[:stop], h.values()[:stop], (count, h.shape[1]))
