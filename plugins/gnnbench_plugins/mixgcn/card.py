"""The card of strategy 'mixgcn': how faithful it is to MixGCN."""

from __future__ import annotations

from gnnbench.records import Card

CARD = Card(
    implemented=(
        "mixture of parallelism: AGGREGATE by ranges of features, UPDATE by ranges of vertices, "
        "an all-to-all between them (Algorithm 2)",
        "sparse and dense devices as groups, which are the same, the host (MixGCN-CPU) or sparse "
        "accelerators (MixGCN-SPU) (`placement.sparse`)",
        "the fine-grain pipeline in reverse Cuthill-McKee order, and Proposition 3.5 "
        "(`sampler.schedule`, `sampler.stages`)",
        "the adjacency divided among groups, which section 5.2.1 plans (`placement.row_groups`)",
        "kernel spu, a cycle model of the sparse accelerator, and of its rivals HyGCN and AWB-GCN",
    ),
    simplified=(
        "by default an epoch is one stage where that is shorter by the model, which the paper "
        "does not ask (`sampler.schedule`)",
        "at most 64 stages, and none where Proposition 3.5 has no number",
        "lanes, buffers, banks and tiles of the accelerator are assumed: the paper prints adders, "
        "memories and bandwidth; energy is counted by operations and bytes",
        "the condition before Proposition 3.5 is read with its sign turned round",
    ),
    left_out=(
        "synthesis of the accelerator: no clock, area or power was confirmed",
        "GAT and GraphSAGE in Figure 7: its throughput is reproduced for GCN only",
        "NCCL on four nodes: devices and links are described ones",
    ),
    validated=(
        "gnnbench reproduce mixgcn-table3 mixgcn-table4: energy, stages and reordering beside the "
        "paper's",
        "gnnbench reproduce mixgcn-figure12: contradicted: its lead over HyGCN and AWB-GCN all "
        "but vanishes where all three load the same rows",
        "gnnbench reproduce mixgcn-figure7: contradicted in every ratio: wherever its "
        "peers fit, MixGCN-CPU is slower than each; MixGCN-SPU beats it by far more than printed",
        "tests/systems/mixgcn/test_mixgcn.py: equality, and bytes of the closed form",
        "tests/systems/mixgcn/test_mixgcn_pipeline.py: Figure 5 by hand, Proposition 3.5 by trial",
        "tests/systems/mixgcn/test_mixgcn_machines.py: the machines by hand",
        "tests/price/test_hand_counts.py: an epoch by hand",
    ),
)
