"""A block bound to a kernel and a device, with the coefficients that models read from it."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from gnnbench.parts import Adjacency, Kernel
from gnnbench.records import Block, IntArray


def with_self_loops(block: Block) -> Block:
    """The block with one more in-edge per destination, from itself, first in its row."""
    old = block.indptr
    indptr = old + np.arange(len(old), dtype=np.int64)
    indices = np.empty(block.num_edges + block.num_dst, dtype=np.int32)
    own = indptr[:-1]
    mask = np.ones(len(indices), dtype=bool)
    mask[own] = False
    indices[own] = np.arange(block.num_dst, dtype=np.int32)
    indices[mask] = block.indices
    return Block(src_ids=block.src_ids, num_dst=block.num_dst, indptr=indptr, indices=indices)


class BoundBlock:
    """What a layer aggregates over: the block's adjacency and full-graph degrees.

    ``degrees`` are the full graph's D(v), int64 ``(V,)``, also when the block is sampled; so a
    sampled GCN layer with unlimited fan-out equals the full-graph layer. Coefficients and the
    adjacency with self loops are made when first asked for, and kept.
    """

    def __init__(
        self,
        block: Block,
        kernel: Kernel,
        degrees: IntArray,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.block = block
        self.dtype = dtype
        self.device = device
        self._kernel = kernel
        self._degrees = degrees
        self._plain: Adjacency | None = None
        self._looped: Adjacency | None = None
        self._gcn: tuple[Tensor, Tensor] | None = None

    @property
    def adjacency(self) -> Adjacency:
        if self._plain is None:
            self._plain = self._kernel.adjacency(self.block, self.dtype, self.device)
        return self._plain

    @property
    def adjacency_with_self_loops(self) -> Adjacency:
        if self._looped is None:
            self._looped = self._kernel.adjacency(
                with_self_loops(self.block), self.dtype, self.device
            )
        return self._looped

    def gcn_weights(self) -> tuple[Tensor, Tensor]:
        """1/sqrt((D(v)+1)(D(u)+1)) for each edge ``(E,)`` and self loop ``(num_dst, 1)``."""
        if self._gcn is None:
            degrees = torch.from_numpy(self._degrees[self.block.src_ids])
            norm = (degrees + 1).to(self.device, torch.float64).rsqrt().to(self.dtype)
            own = norm[: self.block.num_dst]
            edge = norm.index_select(0, self.adjacency.edge_src)
            edge *= own.index_select(0, self.adjacency.edge_dst)
            self._gcn = (edge, (own * own).unsqueeze(1))
        return self._gcn
