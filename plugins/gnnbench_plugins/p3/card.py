"""Fidelity of strategy 'p3' to P3."""

from __future__ import annotations

from gnnbench.records import Card

CARD = Card(
    implemented=(
        "push-pull parallelism: the first layer by columns of the features, which never cross, and "
        "partial products of it all-to-all",
        "the layers above by seeds",
    ),
    simplified=("columns are as even as they can be; no cache of partial activations",),
    left_out=(
        "pipelined rounds: a round's push waits for the one before",
        "hash partitions over machines: the devices are one machine's",
    ),
    validated=("tests/systems/hyscale/test_hyscale_peers.py: what crosses, equality",),
)
