"""Cards of the strategies 'reference' and 'data-parallel'."""

from __future__ import annotations

from gnnbench.records import Card

REFERENCE = Card(
    implemented=(
        "training on one device, by CSR products of plain torch (`addmm_`): every "
        "other strategy's losses and weights are held against its",
    ),
    simplified=(
        "one step follows the other: neither prefetching nor overlap",
        "neighbours are drawn uniformly without replacement, for a vertex of an epoch always the "
        "same, however a round is split",
    ),
    left_out=("it is not a published system",),
    validated=(
        "tests/models/test_models.py: every layer and its gradients equal their dense formulas",
        "tests/kernels/test_sampling.py: every set of neighbours is drawn equally often",
        "tests/price/test_hand_counts.py: an epoch by hand",
    ),
)
DATA_PARALLEL = Card(
    implemented=(
        "HyScale-GNN's multi-GPU baseline (section VI-E1) on plain torch: accelerators train even "
        "shares of the seeds (`placement.accelerators`), features come from the host",
    ),
    simplified=(
        "gradients are averaged on the host, where torch's distributed data parallel has a ring "
        "that starts before the backward pass is over",
        "one step of a round follows the other: no prefetching",
    ),
    left_out=("it is not a published system, but what several of them are compared with",),
    validated=(
        "tests/systems/hyscale/test_hyscale_peers.py: equality, beside all its peers",
        "tests/price/test_hand_counts.py: a mini-batch on two devices by hand",
    ),
)
