"""The functions of the Deep Graph Library that strategy 'dgl' uses."""

from __future__ import annotations

from gnnbench.records import Card

CARD = Card(
    implemented=(
        "aggregation by `dgl.ops.copy_u_sum`, `dgl.ops.u_mul_e_sum` and `dgl.ops.copy_u_mean` on "
        "bipartite blocks, attention by `dgl.ops.edge_softmax`",
        "mini-batches by `dgl.dataloading.NeighborSampler`, without its fused kernel",
        "who multiplies by W first is as in its GraphConv and SAGEConv: where rows become narrower",
        "on described machines, the loader's workers (`sampler.workers`), prefetching "
        "(`sampler.prefetch`), sampling on GPUs, from their memory or by unified addressing "
        "(`sampler.where`), pageable or pinned rows and rows read in place (`memory.rows`), and "
        "several GPUs (`sampler` dgl-loader, `placement` data-parallel)",
    ),
    simplified=(
        "layers, parameters, optimiser and loss are this project's, so that rows can be held "
        "equal: DGL's own modules are not called",
        "neighbours are drawn on one thread, so that runs repeat, unless "
        "`sampler.repeatable`=false",
        "on a described platform its kernels are priced by what they read and write and begin",
    ),
    left_out=(
        "where times are measured, its data loaders, worker processes, GPU sampling and unified "
        "addressing",
        "GraphBolt, and its distributed training (strategies distdgl and distdgl-full-graph are "
        "this project's code)",
    ),
    validated=(
        "gnnbench reproduce validation: what others measured of DGL, and what is predicted",
        "gnnbench reproduce hongtu-table5: one GPU beside HongTu's measurement of DGL",
        "tests/systems/pyg/test_peers.py: products and models equal dense ones, W comes where "
        "DGL's own "
        "modules have it, every pair is drawn equally often",
    ),
)
