"""Fidelity of strategies 'distdgl' and 'distdgl-v2' to these systems."""

from __future__ import annotations

from gnnbench.records import Card

#: Features of the systems' servers that both omit.
_LEFT_OUT = (
    "sampling at the servers that own the vertices: the host samples the whole graph",
    "the key-value store: features lie on one host, and no row comes from another machine",
    "METIS's balance of training vertices",
)
DISTDGL = Card(
    implemented=(
        "METIS partitions, and each accelerator trains the seeds of its own "
        "(`placement.accelerators`)",
        "synchronous updates, gradients averaged by seeds",
    ),
    simplified=(
        "a round's seeds are drawn from all partitions together, where each trainer draws a batch "
        "of its own from its own",
    ),
    left_out=_LEFT_OUT,
    validated=(
        "tests/systems/hyscale/test_hyscale_peers.py: whose seeds are trained where, equality",
    ),
)
DISTDGL_V2 = Card(
    implemented=(
        "a fixed part of the seeds trained by the CPU beside the accelerators",
        "mini-batches prefetched asynchronously, by HyScale-GNN's two stages "
        "(`communication.stages`)",
    ),
    simplified=("the CPU's part is a constant that is set, and not one that the system tuned",),
    left_out=(*_LEFT_OUT, "heterogeneous graphs", "two-level partitions"),
    validated=("tests/systems/hyscale/test_hyscale_peers.py: the CPU's part, equality",),
)
