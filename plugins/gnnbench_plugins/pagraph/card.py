"""Fidelity of strategy 'pagraph' to PaGraph."""

from __future__ import annotations

from gnnbench.records import Card

CARD = Card(
    implemented=(
        "a static cache of the rows of highest degree on each device, in what mini-batches leave "
        "free (`memory.cache_bytes`)",
        "rows that the cache misses alone are loaded and cross",
        "beside PaGraph's own order that of GNNLab's PreSC, by what mini-batches of epochs before "
        "the run read (`memory.policy`, `memory.presampled`); off unless asked for",
    ),
    simplified=("all devices keep the same vertices, since seeds may be anywhere",),
    left_out=(
        "the computation-aware partitions and their redundant hops, which give each device a "
        "cache of its own",
        "prefetching, and the isolation of CPU cores between loaders",
        "of GNNLab all but its order: no device samples for others, and what pre-sampling takes is "
        "preprocessing, which is measured and not modelled",
    ),
    validated=(
        "tests/systems/hyscale/test_hyscale_peers.py: which rows cross by either order, equality",
    ),
)
