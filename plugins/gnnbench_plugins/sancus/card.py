"""Fidelity of strategy 'sancus' to SANCUS."""

from __future__ import annotations

from gnnbench.records import Card

CARD = Card(
    implemented=(
        "broadcasts of whole partitions that are skipped while copies are new enough, so that "
        "rows are of earlier epochs: other maths than full-graph training "
        "(`communication.staleness`; 0 is equal to it)",
        "staleness bounded adaptively, each device and layer by itself: a broadcast is skipped "
        "while its embeddings have changed by little since the last, by the Frobenius norm "
        "(`communication.metric`, `communication.change`); measuring that, telling all others and "
        "keeping what was sent is in the program",
        "features cross once; no parameter server, but a ring that averages gradients",
        "vertices dealt out at random, as MixGCN (section 4.3) says of it",
    ),
    simplified=(
        "the paper's text is not at hand: a change is relative to what was broadcast last, and "
        "the default bound is this project's",
        "adaptive bounds rest on values, so that a plan refuses them; as its public program, a "
        "row bounds epochs unless asked otherwise, the same for all devices and layers",
        "gradients cross in every epoch, unless `communication.stale_gradients`, which waits for "
        "epochs alone",
        "a broadcast to m - 1 peers takes m - 1 copies over the sender's links",
    ),
    left_out=(
        "its other staleness metrics, the bounds on errors that are proved for them, and the "
        "training without any skip at the start that its public program has",
        "quantised broadcasts of its successor",
    ),
    validated=(
        "gnnbench reproduce hongtu-table6: epochs and full memories beside those that HongTu "
        "measured",
        "tests/systems/sancus/test_staleness.py: losses of a GCN on dense matrices with the same "
        "copies, "
        "for either metric, bytes and memory",
    ),
)
