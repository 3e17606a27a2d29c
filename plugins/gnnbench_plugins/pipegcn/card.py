"""Fidelity of strategy 'pipegcn' to PipeGCN."""

from __future__ import annotations

from gnnbench.records import Card

CARD = Card(
    implemented=(
        "rows of peers and their gradients of the epoch before, zero in the first, while the next "
        "cross behind the computation: other maths than full-graph training "
        "(`communication.staleness`; 0 is equal to it)",
        "smoothing of stale rows and gradients, PipeGCN-F, -G and -GF, as in its program: averages "
        "that start at zero and by default decay by 0.95 (`communication.smoothing`, "
        "`communication.decay_rate`); off unless asked for",
        "METIS partitions, a device each",
    ),
    simplified=(
        "METIS minimises cut edges, where PipeGCN's program minimises the rows that cross unless "
        "told otherwise",
        "a transfer goes straight between devices; its program copies through the hosts' memory",
        "an average is taken when rows are read, where its program has a stream of its own for it",
        "features of peers cross in every epoch and are late too, where its program can "
        "precompute the first layer's aggregates and send none",
    ),
    left_out=(
        "dropout and layer normalisation of its GraphSAGE",
        "its measurements: none of its published times is in the ledger",
    ),
    validated=(
        "tests/systems/sancus/test_staleness.py: losses of a GCN on dense matrices with the same "
        "copies, "
        "smoothed or not, bytes, memory, and nothing that waits",
        "tests/price/test_hand_counts.py: an epoch by hand",
    ),
)
