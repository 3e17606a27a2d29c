"""Small blocks, their dense matrices, and random tensors."""

import numpy as np
import torch
from torch import Tensor

from gnnbench.records import Block


def make_block(num_src: int, rows: list[list[int]]) -> Block:
    indptr = np.concatenate(([0], np.cumsum([len(row) for row in rows]))).astype(np.int64)
    indices = np.array([u for row in rows for u in row], dtype=np.int32)
    return Block(np.arange(num_src, dtype=np.int64), len(rows), indptr, indices)


def random_block(num_src: int, num_dst: int, num_edges: int) -> Block:
    rng = np.random.default_rng(num_src + num_edges)
    chosen = np.sort(rng.choice(num_src * num_dst, size=num_edges, replace=False))
    indptr = np.searchsorted(chosen // num_src, np.arange(num_dst + 1)).astype(np.int64)
    return Block(np.arange(num_src), num_dst, indptr, (chosen % num_src).astype(np.int32))


BLOCKS = {
    "unsorted rows": make_block(5, [[4, 1], [0, 3, 2], [1]]),
    "rows without edges": make_block(6, [[], [5, 0], [], [2, 3, 4], []]),
    "no edges": make_block(3, [[], []]),
    "one vertex": make_block(1, [[]]),
    "one self edge": make_block(1, [[0]]),
    "no destinations": make_block(2, []),
    "random": random_block(30, 12, 90),
}


def draw(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def make_dense(block: Block, weight: Tensor | None = None) -> Tensor:
    """The block as a dense ``(D, S)`` matrix, differentiable in ``weight``."""
    dst = torch.from_numpy(np.repeat(np.arange(block.num_dst), np.diff(block.indptr)))
    src = torch.from_numpy(block.indices.astype(np.int64))
    values = torch.ones(block.num_edges, dtype=torch.float64) if weight is None else weight
    zeros = torch.zeros(block.num_dst, block.num_src, dtype=values.dtype)
    return zeros.index_put((dst, src), values, accumulate=True)
