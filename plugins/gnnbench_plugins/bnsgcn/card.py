"""Fidelity of strategy 'bnsgcn' to BNS-GCN."""

from __future__ import annotations

from gnnbench.records import Card

CARD = Card(
    implemented=(
        "Algorithm 1: in every epoch each device keeps each row of its halo with probability p, "
        "the same for all layers and their gradients, and trains on the edges that are left: "
        "other maths than full-graph training (`communication.rate`; 1 is equal to it, and with 0 "
        "devices train on their own rows alone)",
        "rows that were drawn are multiplied by 1/p, so that sums are unbiased, and so are their "
        "gradients; means divide by the degree in the whole graph, as its program's do",
        "rows that were not drawn neither cross nor are computed on nor take memory",
        "METIS partitions, a device each",
    ),
    simplified=(
        "METIS minimises cut edges, where BNS-GCN has it minimise the rows that cross",
        "rows are drawn independently, as the algorithm says, where its program draws a fixed "
        "number of each peer's and scales by the share that this is",
        "both ends draw from one seed, so that nobody is told what was drawn; its devices send "
        "each other the ids, once an epoch",
        "drawing costs a pass over the partition's topology and writing what is left of it; what a "
        "kernel makes of a graph that is new to it is priced where the platform was measured with "
        "that kernel",
        "a transfer goes straight between devices; its program copies through the hosts' memory "
        "unless it runs with MPI",
        "features cross in every epoch, where its program aggregates the first layer's once, over "
        "whole halos",
    ),
    left_out=(
        "attention: a model that computes on edges is refused, where its program trains GAT on the "
        "sampled graph and leaves open whether the rows are to be scaled",
        "dropout and layer normalisation of its GraphSAGE",
        "its measurements: none of its published times is in the ledger",
    ),
    validated=(
        "tests/systems/bnsgcn/test_boundary_sampling.py: losses of a GCN, a GraphSAGE and a GIN "
        "on dense "
        "matrices with the same rows left out, unbiased sums, bytes and memory",
        "tests/price/test_hand_counts.py: an epoch by hand",
    ),
)
