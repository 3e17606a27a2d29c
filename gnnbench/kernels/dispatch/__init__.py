"""The only entry to the kernels: it validates, then runs the compiled loop or its NumPy twin.

Each topic is one module, as in ``gnnbench.kernels.reference`` and ``cython_ext``.
``gnnbench.kernels.autograd`` has differentiable functions of tensors.
"""

from __future__ import annotations

from gnnbench.kernels.dispatch.aggregation import (
    SparseMatrix,
    aggregate,
    dot_edges,
    edge_softmax,
    edge_softmax_backward,
    pack_mask,
)
from gnnbench.kernels.dispatch.fpga import simulate_aggregation
from gnnbench.kernels.dispatch.layout import (
    bandwidth,
    count_reuse_times,
    edge_cut,
    partition_stream,
    reverse_cuthill_mckee,
    sort_edges_by_source,
    sort_keys,
    transpose,
)
from gnnbench.kernels.dispatch.movement import open_rounds
from gnnbench.kernels.dispatch.rows import gather_rows, move_rows, scatter_add_rows
from gnnbench.kernels.dispatch.sampling import (
    fastgcn_importance,
    find_edges,
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
    count_marks,
    count_shared_marks,
    list_fetches,
    list_marks,
    mark_sets,
    unique_ids,
)
from gnnbench.kernels.dispatch.spmm import (
    count_edges,
    count_reads,
    count_steps,
    count_wanted,
    cut_chunks,
    overlap_steps,
    sort_sources,
)
from gnnbench.kernels.dispatch.streams import (
    count_chunks,
    count_degrees,
    count_replicas,
    counting_bytes,
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
    "bandwidth",
    "compiled",
    "count_chunks",
    "count_degrees",
    "count_edges",
    "count_marks",
    "count_reads",
    "count_replicas",
    "count_reuse_times",
    "count_shared_marks",
    "count_steps",
    "count_wanted",
    "counting_bytes",
    "cut_chunks",
    "dot_edges",
    "edge_cut",
    "edge_softmax",
    "edge_softmax_backward",
    "fastgcn_importance",
    "find_edges",
    "gather_rows",
    "induce_block",
    "induce_subgraph",
    "list_fetches",
    "list_marks",
    "mark_neighbours",
    "mark_sets",
    "move_rows",
    "open_rounds",
    "overlap_steps",
    "pack_mask",
    "partition_stream",
    "reverse_cuthill_mckee",
    "saint_edge_sums",
    "saint_node_sums",
    "sample_layers",
    "sample_neighbours",
    "sample_saint_edges",
    "sample_saint_nodes",
    "sample_saint_walks",
    "scatter_add_rows",
    "simulate_aggregation",
    "sort_edges_by_source",
    "sort_keys",
    "sort_sources",
    "transpose",
    "unique_ids",
]
