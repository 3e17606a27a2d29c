"""The results of an adjacency's operations, by dense matrices in NumPy and in float64.

Nothing here depends on how a kernel works: a block is a matrix ``(D, S)``, and every operation is a
product with it. ``bound`` is the product of the absolute values, to which rounding is relative.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from gnnbench.records import Block

Matrix = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class DenseBlock:
    """A block's edges as a matrix of ones ``(D, S)``, and each destination's own row as another.

    ``weights`` has a factor for every edge in CSR order. ``src``, ``dst`` and ``own`` are the
    factors of a normalised adjacency.
    """

    edges: Matrix
    selves: Matrix
    rows: npt.NDArray[np.int64]
    columns: npt.NDArray[np.int64]
    weights: Matrix
    src: Matrix
    dst: Matrix
    own: Matrix

    @property
    def degrees(self) -> Matrix:
        """The in-degrees, float64 ``(D,)``."""
        return np.asarray(self.edges.sum(axis=1), dtype=np.float64)

    @property
    def weighted(self) -> Matrix:
        """The edge weights as a matrix ``(D, S)``."""
        matrix = np.zeros_like(self.edges)
        matrix[self.rows, self.columns] = self.weights
        return matrix

    @property
    def averaging(self) -> Matrix:
        """The matrix ``(D, S)`` that averages the sources of each destination."""
        return self.edges / np.maximum(self.degrees, 1.0)[:, None]

    @property
    def scaled(self) -> Matrix:
        """diag(dst) A diag(src) + diag(own)."""
        scaled = self.dst[:, None] * self.edges * self.src[None, :]
        return np.asarray(scaled + self.own[:, None] * self.selves, dtype=np.float64)

    @property
    def incidence(self) -> Matrix:
        """The matrix ``(D, E)`` of ones where an edge ends in a destination."""
        matrix = np.zeros((len(self.edges), len(self.rows)))
        matrix[self.rows, np.arange(len(self.rows))] = 1.0
        return matrix


def densify(block: Block, random: np.random.Generator) -> DenseBlock:
    """Return the block as dense matrices with random factors."""
    rows = np.repeat(np.arange(block.num_dst), np.diff(block.indptr))
    columns = block.indices.astype(np.int64)
    edges = np.zeros((block.num_dst, block.num_src))
    edges[rows, columns] = 1.0
    selves = np.zeros_like(edges)
    places = np.arange(block.num_dst) if block.own is None else block.own
    selves[np.arange(block.num_dst), places] = 1.0
    return DenseBlock(
        edges,
        selves,
        rows,
        columns,
        weights=random.standard_normal(block.num_edges),
        src=random.random(block.num_src) + 0.5,
        dst=random.random(block.num_dst) + 0.5,
        own=random.random(block.num_dst) + 0.5,
    )


def round_factors(dense: DenseBlock, dtype: type[np.floating]) -> DenseBlock:
    """Return the block with its factors rounded to a kernel's dtype."""

    def narrow(values: Matrix) -> Matrix:
        return values.astype(dtype).astype(np.float64)

    return replace(
        dense,
        weights=narrow(dense.weights),
        src=narrow(dense.src),
        dst=narrow(dense.dst),
        own=narrow(dense.own),
    )


#: The operations that are one product, by method name, with the matrix that they multiply by.
PRODUCTS: dict[str, Callable[[DenseBlock], Matrix]] = {
    "sum": lambda dense: dense.edges,
    "sum with weights": lambda dense: dense.weighted,
    "mean": lambda dense: dense.averaging,
    "own_rows": lambda dense: dense.selves,
    "own_plus_sum": lambda dense: dense.edges + dense.selves,
    "sum_scaled": lambda dense: dense.scaled,
}


def softmax_edges(dense: DenseBlock, scores: Matrix) -> Matrix:
    """Return for scores ``(E,)`` the softmax ``(E,)`` over each destination's in-edges."""
    out = np.zeros_like(scores)
    for row in np.unique(dense.rows):
        mine = dense.rows == row
        powers = np.exp(scores[mine] - scores[mine].max())
        out[mine] = powers / powers.sum()
    return out


def softmax_edges_backward(dense: DenseBlock, scores: Matrix, gradient: Matrix) -> Matrix:
    """Return the scores' gradient: p_e (g_e - sum of p g over the in-edges of e's destination)."""
    p = softmax_edges(dense, scores)
    sums = dense.incidence @ (p * gradient)
    return np.asarray(p * (gradient - sums[dense.rows]), dtype=np.float64)
