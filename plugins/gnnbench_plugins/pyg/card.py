"""The functions of PyTorch Geometric that strategies 'pyg' and 'pyg-multi-gpu' use."""

from __future__ import annotations

from gnnbench.records import Card

#: Functions that both call.
_CALLS = (
    "aggregation with constant weights by `torch_geometric.edge_index.EdgeIndex`, which keeps the "
    "transpose for the backward pass, and where there is none by "
    "`torch_geometric.nn.MessagePassing` over a sparse CSR tensor; with trained weights by "
    "the same over an edge index; attention by `torch_geometric.utils.softmax`",
    "who multiplies by W first is as in its GCNConv (always) and SAGEConv (never)",
)
#: Differences that both have.
_OWN = (
    "layers, parameters, optimiser and loss are this project's, so that rows can be held equal: "
    "PyG's own modules are not called",
)
_LEFT_OUT = (
    "the processes of its data loaders: where times are measured, rows are loaded as every "
    "strategy's",
    "torch.compile",
)
#: Prices that both have on described machines.
_PRICED = (
    "on described machines, the loader's workers and their start (`sampler.workers`, "
    "`sampler.persistent`), prefetching (`sampler.prefetch`), accelerators that sample "
    "(`sampler.where`), pageable or pinned rows and rows read in place (`memory.rows`), and "
    "messages of edges (`kernel.messages`)"
)
PYG = Card(
    implemented=(
        *_CALLS,
        "mini-batches by `torch_geometric.sampler.NeighborSampler` where pyg-lib or torch-sparse "
        "is installed",
        _PRICED,
    ),
    simplified=(
        *_OWN,
        "without pyg-lib and torch-sparse this project's sampler draws, and modelled times are "
        "those of PyG's",
        "PyG draws a vertex's neighbours once a mini-batch; each layer's block is cut from that",
        "on a described platform its kernels are priced by what they read and write and begin",
    ),
    left_out=_LEFT_OUT,
    validated=(
        "gnnbench reproduce validation: what others measured of PyG, and what is predicted",
        "tests/systems/pyg/test_peers.py: products and models equal dense ones, W comes where "
        "PyG's own "
        "modules have it",
    ),
)
PYG_MULTI_GPU = Card(
    implemented=(
        *_CALLS,
        "HyScale-GNN's multi-GPU baseline (section VI-E1): accelerators train even shares of the "
        "seeds, the processors sample and load but do not train (`placement.accelerators`)",
        _PRICED,
    ),
    simplified=(
        *_OWN,
        "this project's sampler draws, since PyG's draws depend on how a round is split",
        "gradients are averaged on the host, where torch's distributed data parallel has a ring "
        "that starts before the backward pass is over",
    ),
    left_out=_LEFT_OUT,
    validated=(
        "gnnbench reproduce hyscale-figure10: its epochs beside HyScale-GNN's claims, with what "
        "would have to be otherwise",
        "tests/systems/hyscale/test_hyscale_peers.py: who trains what, equality",
    ),
)
