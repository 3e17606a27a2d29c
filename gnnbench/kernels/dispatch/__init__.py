"""The only entry to the kernels: it validates, then runs the compiled loop or its NumPy twin.

Each topic is one module, as in ``gnnbench.kernels.reference`` and ``cython_ext``.
``gnnbench.kernels.autograd`` has differentiable functions of tensors.
"""

from __future__ import annotations

from gnnbench.kernels.dispatch.aggregation import SparseMatrix as SparseMatrix
from gnnbench.kernels.dispatch.aggregation import aggregate as aggregate
from gnnbench.kernels.dispatch.aggregation import dot_edges as dot_edges
from gnnbench.kernels.dispatch.aggregation import edge_softmax as edge_softmax
from gnnbench.kernels.dispatch.aggregation import edge_softmax_backward as edge_softmax_backward
from gnnbench.kernels.dispatch.aggregation import pack_mask as pack_mask
from gnnbench.kernels.dispatch.fpga import simulate_aggregation as simulate_aggregation
from gnnbench.kernels.dispatch.layout import bandwidth as bandwidth
from gnnbench.kernels.dispatch.layout import count_reuse_times as count_reuse_times
from gnnbench.kernels.dispatch.layout import edge_cut as edge_cut
from gnnbench.kernels.dispatch.layout import partition_stream as partition_stream
from gnnbench.kernels.dispatch.layout import reverse_cuthill_mckee as reverse_cuthill_mckee
from gnnbench.kernels.dispatch.layout import sort_edges_by_source as sort_edges_by_source
from gnnbench.kernels.dispatch.layout import sort_keys as sort_keys
from gnnbench.kernels.dispatch.layout import transpose as transpose
from gnnbench.kernels.dispatch.movement import open_rounds as open_rounds
from gnnbench.kernels.dispatch.rows import gather_rows as gather_rows
from gnnbench.kernels.dispatch.rows import move_rows as move_rows
from gnnbench.kernels.dispatch.rows import scatter_add_rows as scatter_add_rows
from gnnbench.kernels.dispatch.sampling import fastgcn_importance as fastgcn_importance
from gnnbench.kernels.dispatch.sampling import find_edges as find_edges
from gnnbench.kernels.dispatch.sampling import induce_block as induce_block
from gnnbench.kernels.dispatch.sampling import induce_subgraph as induce_subgraph
from gnnbench.kernels.dispatch.sampling import saint_edge_sums as saint_edge_sums
from gnnbench.kernels.dispatch.sampling import saint_node_sums as saint_node_sums
from gnnbench.kernels.dispatch.sampling import sample_layers as sample_layers
from gnnbench.kernels.dispatch.sampling import sample_neighbours as sample_neighbours
from gnnbench.kernels.dispatch.sampling import sample_saint_edges as sample_saint_edges
from gnnbench.kernels.dispatch.sampling import sample_saint_nodes as sample_saint_nodes
from gnnbench.kernels.dispatch.sampling import sample_saint_walks as sample_saint_walks
from gnnbench.kernels.dispatch.sets import count_marks as count_marks
from gnnbench.kernels.dispatch.sets import count_shared_marks as count_shared_marks
from gnnbench.kernels.dispatch.sets import list_fetches as list_fetches
from gnnbench.kernels.dispatch.sets import list_marks as list_marks
from gnnbench.kernels.dispatch.sets import mark_sets as mark_sets
from gnnbench.kernels.dispatch.sets import unique_ids as unique_ids
from gnnbench.kernels.dispatch.spmm import count_edges as count_edges
from gnnbench.kernels.dispatch.spmm import count_reads as count_reads
from gnnbench.kernels.dispatch.spmm import count_steps as count_steps
from gnnbench.kernels.dispatch.spmm import count_wanted as count_wanted
from gnnbench.kernels.dispatch.spmm import cut_chunks as cut_chunks
from gnnbench.kernels.dispatch.spmm import overlap_steps as overlap_steps
from gnnbench.kernels.dispatch.spmm import sort_sources as sort_sources
from gnnbench.kernels.dispatch.streams import count_chunks as count_chunks
from gnnbench.kernels.dispatch.streams import count_degrees as count_degrees
from gnnbench.kernels.dispatch.streams import count_replicas as count_replicas
from gnnbench.kernels.dispatch.streams import counting_bytes as counting_bytes
from gnnbench.kernels.dispatch.streams import mark_neighbours as mark_neighbours
from gnnbench.kernels.native import compiled as compiled
from gnnbench.kernels.reference.sampling import LayerSample as LayerSample
from gnnbench.kernels.reference.streams import ChunkMarks as ChunkMarks
from gnnbench.kernels.reference.streams import RmatStream as RmatStream
