"""Random partitions of vertices."""

from __future__ import annotations

import numpy as np

from gnnbench.records import IntArray


def deal_out(num_vertices: int, parts: int, seed: int) -> IntArray:
    """Return the part of every vertex, int64 ``(V,)``; sizes differ by at most one."""
    shuffled = np.random.Generator(np.random.Philox(key=seed)).permutation(num_vertices)
    owner = np.empty(num_vertices, dtype=np.int64)
    owner[shuffled] = np.arange(num_vertices) % parts
    return owner
