"""The card of strategy 'hpgnn': how faithful it is to HP-GNN."""

from __future__ import annotations

from gnnbench.records import Card

CARD = Card(
    implemented=(
        "the user's program, its parser and abstraction, and models of one's own (section 3)",
        "RMT and RRA as orders of edges (section 4.1, `sampler.rmt`, `sampler.rra`)",
        "Equations 3 to 11 and Algorithm 4, a die's designs or the whole board's "
        "(`placement.scope`), bounded by block RAM and UltraRAM besides",
        "W in tiles where a die has no room for all of it (block matrix multiplication, section "
        "4.2), in the resource model and the cycle model; generated kernels keep it whole",
        "generated HLS kernels, forward and backward on one array of MACs, and a host that draws "
        "neighbours, computes the loss and updates the weights",
        "sampling ahead of the board (Equation 4, `communication.overlap`); the loss and the "
        "weights' update on the host, between which and the board logits and weights cross",
    ),
    simplified=(
        "the kernels' times are Equations 8 and 9 or a cycle model of them (`kernel.clock`); what "
        "its rules assume stands in gnnbench.kernels.reference.fpga",
        "GraphSAINT's aggregators are normalised where asked, by an option of samplers "
        "'hpgnn-saint' and 'hpgnn-layerwise'; its loss is that of the seeds, of which every "
        "training vertex is one once an epoch",
    ),
    left_out=(
        "synthesis: no clock, resource or time was confirmed by Vitis or on a board",
        "samplers other than the neighbours' in the generated host, which reads their batches",
    ),
    validated=(
        "gnnbench reproduce hpgnn-table6: RMT and RRA earn at most 33 % where the paper has 57 %; "
        "its rows are lost",
        "gnnbench reproduce hpgnn-table7: contradicted, with what would have to be otherwise",
        "tests/systems/hpgnn/test_hpgnn_generator.py: the C simulation computes what the "
        "reference does, "
        "counts what the cycle model counts, and trains as torch does",
        "tests/systems/hpgnn/test_hpgnn.py: the equations and the cycles by hand",
    ),
)
