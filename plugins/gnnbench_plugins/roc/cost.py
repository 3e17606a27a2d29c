"""The cost of a vertex on a device: ROC's linear model of a layer's run time.

t(l, G) is the sum over the vertices v of G, and over five features, of w_i(l) x_i(v). The first
three are the vertex itself, the number of its neighbours, and the number |C(v)| of blocks of
consecutive ids among them. The last two are the accesses of a warp's width that load the
neighbours, and their rows, block by block.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import scipy

from gnnbench.constants import Bound
from gnnbench.records import Graph, IntArray

#: Values that the threads of a warp load in one access.
WARP: Bound[int] = 32
FEATURES: Bound[int] = 5
Numbers = npt.NDArray[np.float64]


class VertexFeatures:
    """Prefix sums of x_1 .. x_5 over vertices, int64 ``(V+1,)``; two lookups sum a range.

    x_5 depends on the width of a layer's rows; the others are equal for all layers.
    """

    def __init__(self, graph: Graph, widths: tuple[int, ...]) -> None:
        """Compute the sums; ``widths`` are the values in an aggregated row, by layer."""
        ends, lengths = _find_blocks(graph)
        self._plain = [
            np.arange(graph.num_vertices + 1, dtype=np.int64),
            graph.indptr,
            ends,
            _sum_up(ends, -(-lengths // WARP)),
        ]
        self._loads = {width: _sum_up(ends, -(-lengths * width // WARP)) for width in {*widths}}
        self._widths = widths

    def of_ranges(self, layer: int, bounds: IntArray) -> Numbers:
        """Return the sums of the features over each range's vertices, ``(n, FEATURES)``."""
        sums = [each[bounds] for each in (*self._plain, self._loads[self._widths[layer]])]
        return np.diff(np.stack(sums, axis=1).astype(np.float64), axis=0)

    def cost(self, weights: Sequence[Numbers]) -> Numbers:
        """Return prefix sums ``(V+1,)`` of the vertices' costs by every layer's ``weights``."""
        total = np.zeros(len(self._plain[0]))
        for layer, of_layer in enumerate(weights):
            columns = (*self._plain, self._loads[self._widths[layer]])
            for weight, column in zip(of_layer, columns, strict=True):
                total += weight * column
        return total


@lru_cache(maxsize=1)
def find_features(graph: Graph, widths: tuple[int, ...]) -> VertexFeatures:
    """Return the features of a graph's vertices.

    The last result is cached, because every platform of a question needs it.
    """
    return VertexFeatures(graph, widths)


def _find_blocks(graph: Graph) -> tuple[IntArray, IntArray]:
    """Find runs of consecutive ids in the rows of a graph.

    Returns the number of runs before each vertex, ``(V+1,)``, and each run's length.
    """
    first = np.ones(graph.num_edges, dtype=bool)
    np.not_equal(graph.indices[1:], graph.indices[:-1] + 1, out=first[1:])
    first[graph.indptr[:-1][graph.degrees > 0]] = True
    starts = np.flatnonzero(first)
    lengths = np.diff(np.append(starts, graph.num_edges)).astype(np.int64)
    return np.searchsorted(starts, graph.indptr).astype(np.int64), lengths


def _sum_up(ends: IntArray, values: IntArray) -> IntArray:
    """Return exact prefix sums over vertices of blocks' ``values``."""
    total = np.zeros(len(values) + 1, dtype=np.int64)
    np.cumsum(values, out=total[1:])
    return total[ends]


def learn_weights(samples: Sequence[tuple[Numbers, Numbers]]) -> Numbers:
    """Return the non-negative least-squares weights that predict seconds from features.

    A sample is an epoch: the features of its ranges, ``(n, FEATURES)``, and their seconds,
    ``(n,)``. Columns are scaled first, so that large ones do not dominate.
    """
    features, seconds = (np.concatenate(parts) for parts in zip(*samples, strict=True))
    scale = np.maximum(features.max(axis=0), 1.0)
    found, _ = scipy.optimize.nnls(features / scale, seconds)
    weights: Numbers = found / scale
    return weights


def cut_evenly(cost: Numbers, ranges: int) -> IntArray:
    """Return bounds, int64 ``(ranges+1,)``, of ranges of about equal cost, by bisection.

    ``cost`` has the prefix sums of the vertices' costs.
    """
    inner = np.searchsorted(cost, cost[-1] * np.arange(1, ranges) / ranges)
    return np.concatenate(([0], inner, [len(cost) - 1])).astype(np.int64)
