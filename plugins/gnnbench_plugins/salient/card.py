"""Fidelity of strategy 'salient' to SALIENT."""

from __future__ import annotations

from gnnbench.records import Card

CARD = Card(
    implemented=(
        "threads of the host that draw and pick a whole mini-batch each, several at once, for each "
        "device its own (`sampler.workers`)",
        "rows that go into pinned memory once, with no copy between processes",
        "a copy of the features on every node",
        "transfers on a stream of their own, beside training on the mini-batch before; a device "
        "has two (`communication.pipelined`)",
        "features that the host keeps in half precision, and that are single precision again on "
        "the device (`communication.precision`); full unless asked for, as the maths then differ",
        "one device a process, even shares of the seeds, gradients all-reduced in a ring; PyG's "
        "message passing",
    ),
    simplified=(
        "this project's sampler draws, at a platform's rate of native ones. SALIENT's own, with a "
        "flat hash map, is faster than PyG's, and its draw without replacement is biased",
        "as many mini-batches are prepared at once as there are threads; the queue of SALIENT's "
        "program has room for all of an epoch",
        "the threads are priced as that many; on devices that exist here one thread prepares one "
        "mini-batch after the other, ahead of training, with all cores",
        "a round is as many seeds as the workload's batch, shared out; SALIENT's devices have a "
        "batch each",
        "layers, parameters, optimiser and loss are this project's, as in pyg-multi-gpu",
        "features beyond half precision's range are clipped",
    ),
    left_out=(
        "the all-reduce begins when the backward pass is over, and not, as in torch's distributed "
        "data parallel, during it",
        "sampled inference: accuracy is that of all neighbours and of features in full precision",
        "synchronisations that PyTorch Geometric's transfers had and SALIENT skipped: no row here "
        "pays for them",
    ),
    validated=(
        "gnnbench reproduce validation: epochs of its artifact's README beside predictions",
        "tests/systems/salient/test_salient.py: equality, bytes, memory, who prepares what and "
        "when",
        "tests/price/test_hand_counts.py: epochs of one, two and four threads, by hand",
    ),
)
