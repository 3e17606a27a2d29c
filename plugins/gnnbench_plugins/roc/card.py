"""Fidelity of strategy 'roc' to ROC."""

from __future__ import annotations

from gnnbench.records import Card

CARD = Card(
    implemented=(
        "contiguous ranges of vertices, a device each, cut by bisection over sums of what a linear "
        "model says that vertices cost, its five features and a model a layer, learned by least "
        "squares from what devices have taken for their ranges (`sampler.learned`)",
        "intermediates of layers on the host between forward and backward, where devices have no "
        "room; which, so that the fewest bytes cross, by a dynamic program (`memory.swap`)",
        "vertex data on the devices all the time, a layer's rows of others read of their devices",
    ),
    simplified=(
        "the system is known here from its abstract and from what HongTu's paper and others say of "
        "it, not from its own text: the features are as they are quoted there",
        "costs are learned of epochs that are gone through before the run by the platform's model, "
        "not of the first epochs of training, and weights below zero are not allowed",
        "the dynamic program takes a layer's intermediates together, where the paper's takes "
        "tensors and operators, and aggregates are never computed again",
        "computation waits for what crosses to the host and back",
        "rows of other ranges come from the devices that have them; the paper's come from the "
        "memory of their hosts",
    ),
    left_out=(
        "inference, and partitions that change while training goes on",
        "its measurements: none of its published times is in the ledger",
    ),
    validated=(
        "tests/systems/roc/test_learned_partitions.py: equality, features and cuts by hand, the "
        "choice "
        "against all choices, bytes and memory",
    ),
)
