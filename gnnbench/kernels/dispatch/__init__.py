"""The one way to the kernels: validates, then runs the compiled loop or its NumPy twin.

One module a topic, as in ``gnnbench.kernels.reference`` and ``cython_ext``. For differentiable
functions of tensors see ``gnnbench.kernels.autograd``.
"""

from __future__ import annotations

from gnnbench.kernels.dispatch.aggregation import (
    SparseMatrix,
    aggregate,
    aggregate_max,
    dot_edges,
    edge_softmax,
    edge_softmax_backward,
    pack_mask,
    spread_maxima,
)
from gnnbench.kernels.dispatch.fpga import scatter_gather, simulate_aggregation
from gnnbench.kernels.dispatch.layout import (
    bandwidth,
    degree_order,
    edge_cut,
    partition_stream,
    relabel_graph,
    rename_vertices,
    reverse_cuthill_mckee,
    sort_edges_by_source,
    transpose,
)
from gnnbench.kernels.dispatch.movement import open_rounds
from gnnbench.kernels.dispatch.rows import gather_rows, scatter_add_rows
from gnnbench.kernels.dispatch.sampling import (
    fastgcn_importance,
    induce_block,
    induce_subgraph,
    saint_edge_sums,
    saint_node_sums,
    sample_layers,
    sample_neighbours,
    sample_saint_edges,
    sample_saint_nodes,
    sample_saint_walks,
)
from gnnbench.kernels.dispatch.sets import (
    count_difference,
    count_distinct,
    count_intersection,
    count_intersections,
    count_marks,
    count_shared_marks,
    count_union,
    intersect,
    list_marks,
    list_shared_marks,
    mark_sets,
    subtract,
    unique_ids,
    unite,
    unite_all,
)
from gnnbench.kernels.dispatch.spmm import (
    count_edges,
    count_steps,
    count_wanted,
    cut_chunks,
    multiply_masked,
    overlap_steps,
    sort_sources,
)
from gnnbench.kernels.dispatch.streams import (
    count_chunks,
    count_degrees,
    count_replicas,
    counting_bytes,
    draw_edges,
    mark_neighbours,
)
from gnnbench.kernels.native import compiled
from gnnbench.kernels.reference.sampling import LayerSample
from gnnbench.kernels.reference.streams import ChunkMarks, RmatStream

__all__ = [
    "ChunkMarks",
    "LayerSample",
    "RmatStream",
    "SparseMatrix",
    "aggregate",
    "aggregate_max",
    "bandwidth",
    "compiled",
    "count_chunks",
    "count_degrees",
    "count_difference",
    "count_distinct",
    "count_edges",
    "count_intersection",
    "count_intersections",
    "count_marks",
    "count_replicas",
    "count_shared_marks",
    "count_steps",
    "count_union",
    "count_wanted",
    "counting_bytes",
    "cut_chunks",
    "degree_order",
    "dot_edges",
    "draw_edges",
    "edge_cut",
    "edge_softmax",
    "edge_softmax_backward",
    "fastgcn_importance",
    "gather_rows",
    "induce_block",
    "induce_subgraph",
    "intersect",
    "list_marks",
    "list_shared_marks",
    "mark_neighbours",
    "mark_sets",
    "multiply_masked",
    "open_rounds",
    "overlap_steps",
    "pack_mask",
    "partition_stream",
    "relabel_graph",
    "rename_vertices",
    "reverse_cuthill_mckee",
    "saint_edge_sums",
    "saint_node_sums",
    "sample_layers",
    "sample_neighbours",
    "sample_saint_edges",
    "sample_saint_nodes",
    "sample_saint_walks",
    "scatter_add_rows",
    "scatter_gather",
    "simulate_aggregation",
    "sort_edges_by_source",
    "sort_sources",
    "spread_maxima",
    "subtract",
    "transpose",
    "unique_ids",
    "unite",
    "unite_all",
]
