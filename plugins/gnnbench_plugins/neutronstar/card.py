"""Fidelity of strategy 'neutronstar' to NeutronStar."""

from __future__ import annotations

from gnnbench.records import Card

CARD = Card(
    implemented=(
        "hybrid dependency management: of each layer, a device computes some rows of others again "
        "(DepCache) and reads the rest of their owners (DepComm), whose gradients it returns: the "
        "same maths (`sampler.split`; cached and communicated are the two extremes)",
        "Algorithm 4, layer by layer: a row is cached while what it depends on, and the device "
        "does not have, costs less than reading it, by T_v and T_e for vertices and edges against "
        "T_c for values that cross; the cheapest first, within a bound of memory "
        "(`sampler.spare_bytes`)",
        "what was computed for one row is there for others (its V_rep)",
        "features of others, which take memory and no time, are kept from before the first epoch "
        "(`sampler.features`)",
        "METIS partitions, a device each",
    ),
    simplified=(
        "the algorithm is known here from its abstract, its program's page and an account of it, "
        "not from the paper's text: that T_v, T_e and T_c are of both passes, that a subtree may "
        "read what the layer below reads of peers anyway, and that what does not fit is read, is "
        "our reading",
        "T_v, T_e and T_c follow from the rates that the platform is described with, where it "
        "measures them in short runs; latencies and launches are no part of them, so that a layer "
        "that reads few rows is not spared its messages",
        "rows that would cost more than to be read when a layer is begun are tried last and are "
        "not in order of their cost",
        "a row is computed again only for the device as a whole, with all of its in-edges",
        "devices exchange rows one at a time and before a layer begins, as every halo here does",
    ),
    left_out=(
        "its ring of messages that overlap computation, chunk by chunk, and queues without locks",
        "CPU and GPU of a node sharing the work",
        "its measurements: none of its published times is in the ledger",
    ),
    validated=(
        "tests/systems/neutronstar/test_hybrid_dependencies.py: equality, the two extremes, the "
        "choice by hand, "
        "bytes and memory",
        "tests/price/test_hand_counts.py: an epoch by hand",
    ),
)
