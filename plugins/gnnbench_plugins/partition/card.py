"""Description of strategies 'partition' and 'distdgl-full-graph'."""

from __future__ import annotations

from gnnbench.records import Card

PARTITION = Card(
    implemented=(
        "MixGCN's Algorithm 1, partition parallelism: a METIS partition a device, whose halo "
        "comes at every layer, and its gradients go back",
    ),
    simplified=(
        "graphs of more than 20 million stored edges, or of a million that would be cut anyway, "
        "are partitioned as a stream and not by METIS (`sampler.partitioner`)",
    ),
    left_out=("it is not a published system, but what MixGCN takes its peers to have in common",),
    validated=(
        "tests/systems/partition/test_partition_parallelism.py: equality, and MixGCN's "
        "Proposition 3.2",
        "tests/price/test_hand_counts.py: an epoch by hand",
    ),
)
DISTDGL_FULL_GRAPH = Card(
    implemented=(
        "features of all L hops come before an iteration and nothing crosses between layers, as "
        "MixGCN (section 5.1) describes it",
    ),
    simplified=(
        "MixGCN's sentence is the whole source: DistDGL's paper trains mini-batches alone",
        "vertices that several devices need are computed by each of them, all of their hops "
        "without sampling",
        "features cross in every epoch, though they never change",
    ),
    left_out=(
        "servers and their key-value store: features lie on the devices",
        "balance of training vertices and edges between the partitions",
    ),
    validated=(
        "tests/systems/partition/test_partition_parallelism.py: equality, what crosses, work done "
        "twice",
        "tests/price/test_hand_counts.py: an epoch by hand",
    ),
)
