"""Fidelity of strategy 'neugraph' to NeuGraph."""

from __future__ import annotations

from gnnbench.records import Card

CARD = Card(
    implemented=(
        "a grid of edge chunks, by chunks of destinations and of sources, over a partition with "
        "few edges between devices (`sampler.chunks_per_device`)",
        "vertex data in the host's memory; for each piece of a chunk's in-edges the host picks the "
        "rows that are read, and those alone cross",
        "sums of pieces added up on the device, UPDATE after the last; intermediates of all chunks "
        "stay on the devices for the backward pass",
        "a piece crosses while the one before is worked on (`communication.overlap`)",
    ),
    simplified=(
        "the system is known here from what HongTu's sections 2.3 and 2.4 and Table 2 say of it, "
        "its abstract and that of its preprint, not from its own text",
        "rows cross a piece at a time, not in the sub-chunks of a piece that its scheduler chooses",
        "going back, gradients of a piece's sources are added up on the host, as everywhere here",
    ),
    left_out=(
        "rows that devices under one switch hand on to each other in a chain: HongTu says that "
        "neighbours are transferred entirely for each partition, and here each device reads all "
        "that it needs from the host",
        "models whose edges need all in-edges of a vertex at once, such as attention's softmax, "
        "which a grid separates (HongTu section 2.4): they are refused",
        "its measurements: none of its published times is in the ledger",
    ),
    validated=(
        "tests/systems/neugraph/test_grid_of_chunks.py: equality, the grid, bytes and memory by "
        "hand",
    ),
)
