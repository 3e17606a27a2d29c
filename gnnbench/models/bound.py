"""A block bound to a kernel and a device, with the coefficients that models read from it."""

from __future__ import annotations

from copy import copy
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gnnbench.kernels.csr import csr_tensor
from gnnbench.kernels.dispatch import find_edges
from gnnbench.kernels.dispatch.checks import MaskArray
from gnnbench.parts import Adjacency, Kernel, Scaling
from gnnbench.records import Block, Dataset, FloatArray, Graph, IntArray, Workload


def with_self_loops(block: Block) -> Block:
    """The block with one more in-edge per destination, from itself, first in its row."""
    old = block.indptr
    indptr = old + np.arange(len(old), dtype=np.int64)
    indices = np.empty(block.num_edges + block.num_dst, dtype=np.int32)
    own = indptr[:-1]
    mask = np.ones(len(indices), dtype=bool)
    mask[own] = False
    indices[own] = np.arange(block.num_dst, dtype=np.int32) if block.own is None else block.own
    indices[mask] = block.indices
    return replace(block, indptr=indptr, indices=indices)


class Degrees:
    """D(v) of a graph's vertices, ``counts``, int64 ``(V,)``, and what GCN makes of it, once.

    For a model that multiplies by edge weights the ``weighted`` graph is given, and D(v) is the sum
    of its weights; ``counts`` stay numbers of edges.
    """

    def __init__(self, counts: IntArray, weighted: Graph | None = None) -> None:
        self.counts = counts
        self._graph = weighted
        self._norms: dict[torch.dtype, Tensor] = {}

    @classmethod
    def of(cls, dataset: Dataset, workload: Workload) -> Degrees:
        """Those that a workload's model has on a data set."""
        graph = dataset.graph
        return cls(graph.degrees, graph if workload.edge_weights else None)

    @property
    def weighted(self) -> bool:
        return self._graph is not None

    def norms(self, dtype: torch.dtype) -> Tensor:
        """1/sqrt(D(v)+1), ``(V,)``, rounded to ``dtype`` once."""
        if dtype not in self._norms:
            whole = torch.from_numpy(self._sum_weights() + 1).to(torch.float64)
            self._norms[dtype] = whole.rsqrt_().to(dtype)
        return self._norms[dtype]

    def _sum_weights(self) -> IntArray | npt.NDArray[np.float64]:
        graph = self._graph
        if graph is None or graph.weights is None:
            return self.counts
        rows = np.repeat(np.arange(graph.num_vertices), graph.degrees)
        return np.bincount(rows, graph.weights, minlength=graph.num_vertices)

    def find_weights(self, block: Block) -> FloatArray:
        """The weights of a block's edges, ``(E,)``. Raises ``ValueError`` for one with an edge that
        the graph does not have."""
        graph = self._graph
        if graph is None or graph.weights is None:
            raise ValueError("this model takes no edge weights")
        if block.indices is graph.indices:
            return graph.weights
        places = find_edges(graph.indptr, graph.indices, block)
        if (places < 0).any():
            raise ValueError("a block has an edge that the graph does not have")
        return graph.weights[places]


class BoundBlock:
    """What a layer aggregates over: the block's adjacency and full-graph degrees.

    Degrees are the full graph's also when the block is sampled; so a sampled GCN layer with
    unlimited fan-out equals the full-graph layer. Coefficients and the adjacency with self loops
    are made when first asked for, and kept.

    ``thinned`` says that in-edges of its destinations were left out, and that means divide by the
    full graph's degrees all the same: the sources that are left stand for the others too, and their
    rows are scaled for it.
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
    ) -> None:
        self.block = block
        self.dtype = dtype
        self.device = device
        self.kernel = kernel
        self._degrees = degrees
        self._plain: Adjacency | None = None
        self._looped: Adjacency | None = None
        self._gcn: Scaling | None = None
        self._shares = self._count_shares() if thinned else None

    def _count_shares(self) -> Tensor:
        """Which share of its in-edges each destination has in the block, ``(D, 1)``."""
        here = torch.from_numpy(np.diff(self.block.indptr)).to(torch.float64)
        whole = torch.from_numpy(self._degrees.counts[self.block.dst_ids]).clamp(min=1)
        return (here / whole).unsqueeze(1).to(self.device, self.dtype)

    @property
    def adjacency(self) -> Adjacency:
        if self._plain is None:
            self._plain = self.kernel.adjacency(self.block, self.dtype, self.device)
        return self._plain

    @property
    def adjacency_with_self_loops(self) -> Adjacency:
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
        """1/sqrt((D(v)+1)(D(u)+1)) for each edge, and for a vertex's own row; times the edge's
        weight, where there are weights."""
        if self._gcn is None:
            ids = torch.from_numpy(self.block.src_ids)
            norm = self._degrees.norms(self.dtype).index_select(0, ids).to(self.device)
            own = self.adjacency.own_rows(norm)
            self._gcn = Scaling(src=norm, dst=own, own=own * own)
            if self._degrees.weighted:
                weights = torch.from_numpy(self._degrees.find_weights(self.block))
                factors = self._gcn.of_edges(self.adjacency)
                factors *= weights.to(self.device, self.dtype)
        return self._gcn

    def sum_scaled(self, h: Tensor) -> Tensor:
        """``(S, f) -> (D, f)``: the sum over in-edges and the own row by ``gcn_scaling``."""
        adjacency, scaling = self.adjacency, self.gcn_scaling
        if not self._degrees.weighted:
            return adjacency.sum_scaled(h, scaling)
        own = scaling.own.unsqueeze(1) * adjacency.own_rows(h)
        return adjacency.sum(h, scaling.of_edges(adjacency)) + own

    @torch.no_grad()
    def sum_scaled_transposed(self, g: Tensor, into: Tensor | None = None) -> Tensor:
        """``(D, f) -> (S, f)``: the backward pass of ``sum_scaled`` without its forward."""
        adjacency, scaling = self.adjacency, self.gcn_scaling
        if not self._degrees.weighted:
            return adjacency.sum_scaled_transposed(g, scaling, into)
        out = adjacency.sum_transposed(g, scaling.of_edges(adjacency), into)
        adjacency.add_to_own_rows(out, scaling.own.unsqueeze(1) * g)
        return out

    def mean(self, h: Tensor) -> Tensor:
        """``(S, f) -> (D, f)``: the mean over in-edges, over all that the full graph has."""
        mean = self.adjacency.mean(h)
        return mean if self._shares is None else mean * self._shares

    def own_and_mean(self, h: Tensor) -> Tensor:
        """``(S, f) -> (D, 2 f)``: each destination's own row, and beside it the ``mean``."""
        both = self.adjacency.own_and_mean(h)
        if self._shares is not None:
            both[:, h.shape[1] :] *= self._shares
        return both

    def own_and_mean_transposed(self, g: Tensor, into: Tensor | None = None) -> Tensor:
        """``(D, 2 f) -> (S, f)``: the backward pass of ``own_and_mean`` without its forward."""
        if self._shares is not None:
            own, mean = g.chunk(2, dim=1)
            g = torch.cat((own, mean * self._shares), dim=1)
        return self.adjacency.own_and_mean_transposed(g, into)

    def masked(self, wanted: MaskArray) -> BoundBlock:
        """The same, whose adjacency's transposed products are zero but where they are ``wanted``;
        see :meth:`gnnbench.parts.Adjacency.masked`."""
        bound = copy(self)
        bound._plain = self.adjacency.masked(wanted)
        return bound

    def release(self) -> None:
        """Let go of what was made; it is made again when asked for."""
        self._plain = self._looped = self._gcn = None

    def offload(self) -> None:
        """Let go of what is on a device, but not of what it was made from on the host."""
        for adjacency in (self._plain, self._looped):
            if adjacency is not None:
                adjacency.offload()
        self._gcn = None

    def project(self, h: Tensor, weight: Tensor) -> Tensor:
        """``h W``, of dense rows or of features as a sparse CSR tensor."""
        if h.layout == torch.sparse_csr:
            return self.kernel.multiply_sparse(h, weight)
        return self.kernel.multiply(h, weight)

    def own_rows(self, h: Tensor) -> Tensor:
        """The destinations' own rows, ``(S, f) -> (D, f)``; sparse rows must stand first."""
        count = self.block.num_dst
        if count == len(h) and self.block.own is None:
            return h
        if h.layout != torch.sparse_csr:
            return self.adjacency.own_rows(h)
        row_ptr = h.crow_indices()[: count + 1]
        stop = int(row_ptr[-1])
        return csr_tensor(row_ptr, h.col_indices()[:stop], h.values()[:stop], (count, h.shape[1]))
