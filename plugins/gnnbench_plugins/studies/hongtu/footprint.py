"""Bytes of a graph's data by the formulas that Table 1's numbers follow."""

from __future__ import annotations

from gnnbench.constants import Bound
from gnnbench_plugins.studies.hongtu.quoted import PaperGraph

ITEMSIZE: Bound[int] = 4


def topology_bytes(graph: PaperGraph) -> float:
    """12 bytes an edge: a source and a destination index of 32 bits, and a weight."""
    return 12.0 * graph.edges


def vertex_bytes(graph: PaperGraph, layers: int) -> float:
    """Representations and gradients of every layer: 2 (f^0 + .. + f^L) |V| values."""
    return 2.0 * sum(graph.dims(layers)) * graph.vertices * ITEMSIZE


def intermediate_bytes(graph: PaperGraph, layers: int) -> float:
    """H W and its aggregate at every layer, and the loss's softmax: 2 (f^1 + .. + f^L) + f^L."""
    dims = graph.dims(layers)
    return (2.0 * sum(dims[1:]) + dims[-1]) * graph.vertices * ITEMSIZE
