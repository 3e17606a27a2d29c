"""Fidelity of strategy 'cagnet' to CAGNET."""

from __future__ import annotations

from gnnbench.records import Card

CARD = Card(
    implemented=(
        "the 1D algorithm: a block of rows of the adjacency and of the features on each device, "
        "and every block broadcast to all at every layer, needed there or not",
        "vertices dealt out at random, as MixGCN (section 4.3) says of it",
    ),
    simplified=(
        "a broadcast to m - 1 peers takes m - 1 copies over the sender's links, neither a tree "
        "nor NCCL's ring",
        "backward each device returns as many rows of gradients as it received, where the 1D "
        "algorithm adds up outer products by an all-reduce or a reduce-scatter",
    ),
    left_out=(
        "the 1.5D, 2D and 3D algorithms, and the replication of blocks among groups of devices: "
        "what the paper shows to move less than 1D",
        "the split of features by columns that MixGCN mentions, which belongs to 2D and 3D",
        "the clusters of its measurements: none of its published times is in the ledger",
    ),
    validated=(
        "tests/systems/partition/test_partition_parallelism.py: equality, and (m - 1) |V| f "
        "values a layer",
        "tests/price/test_hand_counts.py: an epoch by hand",
    ),
)
