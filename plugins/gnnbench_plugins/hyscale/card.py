"""The card of strategy 'hyscale': how faithful it is to HyScale-GNN."""

from __future__ import annotations

from gnnbench.records import Card

CARD = Card(
    implemented=(
        "hybrid training, gradients averaged by seeds (section III-B)",
        "Equations 5 to 13 and the first split that they give (section V)",
        "Algorithm 1 between rounds, for seeds, threads and sampling on accelerators "
        "(`placement.drm`, `placement.accelerator_sampling`); plain with `placement.guard`=none",
        "two-stage feature prefetching as a ring of buffers (section IV-B, `communication.stages`)",
        "features that cross as float16 or int8, which section VIII plans "
        "(`communication.precision`)",
    ),
    simplified=(
        "how far a move of DRM goes, which the paper leaves open: to where two tasks would take "
        "equally long, half of it where the performance model expects an epoch to get longer "
        "(`placement.guard`)",
        "before prefetching host tasks have all threads in turn, unless `placement.own_threads`",
        "FPGAs are priced by Equations 10 to 12, or with kernel hpgnn by HP-GNN's cycles, on the "
        "datapath of Figure 6 where that kernel's option datapath is chip; layers follow each "
        "other there, and the ledger counts activations in the board's memory all the same",
    ),
    left_out=(
        "the FPGA and GPU code: accelerators are modelled where this machine has none",
        "training over several machines, as in the paper",
    ),
    validated=(
        "gnnbench reproduce hyscale-table6: epochs beside the paper's",
        "gnnbench reproduce hyscale-table4: LUTs and DSPs of its design; URAM and BRAM less well",
        "gnnbench reproduce hyscale-figure10: 6 of 8 numbers are within 25 % at what PyG takes on "
        "GPUs, with what would have to be otherwise",
        "gnnbench reproduce hyscale-figure8 hyscale-figure11: what their text says",
        "tests/systems/hyscale/test_hyscale.py: Algorithm 1 line by line, equality with plain "
        "training",
    ),
)
