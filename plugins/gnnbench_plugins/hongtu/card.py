"""Cards of strategies 'hongtu' and 'hongtu-im': how faithful they are to HongTu."""

from __future__ import annotations

from gnnbench.records import Card

HONGTU = Card(
    implemented=(
        "two-level partitions, by METIS and then by ranges of balanced edges (section 4.1, "
        "`sampler.chunks_per_partition`)",
        "vertex data in host memory, one layer of one chunk on a device (Algorithm 1)",
        "the hybrid of cached aggregates and recomputed layers (section 4.2); memories "
        "hongtu-cache and hongtu-recompute are its two halves alone",
        "transition sets between devices and between batches, and a deduplicated gradient on the "
        "way back (Algorithms 2 and 3, `communication.p2p`, `communication.reuse`)",
        "one merged buffer that is updated in place, and peers asked in turn (section 6, "
        "`communication.buffers`, `communication.interleaved`)",
        "Equation 4 and Algorithm 4 (section 5.3, `sampler.search`)",
        "rows at the socket of their device (section 7.3, `placement.numa_aware`)",
        "CUDA kernels that read and write rows in the host's pinned memory (section 6, zero-copy)",
    ),
    simplified=(
        "a local search goes on from Algorithm 4's order, unless `sampler.search`=greedy, and an "
        "order that Equation 4 finds dearer than the ranges' is not taken",
        "graphs of more than 20 million stored edges, or of a million that would be cut anyway, "
        "are partitioned as a stream and not by METIS (`sampler.partitioner`)",
        "zero-copy and peer access of CUDA kernels are modelled as transfers of the described "
        "links at their bandwidths; a kernel is priced by its equations",
        "GGCN and CommNet are readings: the paper prints no equation of theirs",
        "a batch begins when the one before is over; with `communication.overlap`, which is not "
        "the paper's, transfers of a batch go on beside its neighbours",
    ),
    left_out=(
        "CUDA kernels that read peers themselves: torch copies rows",
        "training of its three large graphs, which are predicted from the volumes that the paper "
        "prints",
    ),
    validated=(
        "gnnbench reproduce hongtu-table1 hongtu-table5 hongtu-table6 hongtu-table7 "
        "hongtu-table9: memory and epochs beside the paper's, with the error of each cell",
        "gnnbench reproduce hongtu-breakdown hongtu-figure9 hongtu-figure11: what its stages, its "
        "steps and more devices earn; some cells, most of them of graph IT, are half off",
        "gnnbench reproduce hongtu-figure10: memory and time with more chunks",
        "gnnbench reproduce hongtu-headlines: the abstract's claims, judged by the tables' cells",
        "tests/systems/hongtu/test_hongtu.py: Figure 6 by hand, and rows that cross as the sets "
        "say",
        "tests/systems/hongtu/test_hongtu_planning.py: Algorithm 4 line by line, no better order",
        "tests/run/test_engines.py: equality with plain training, every model and memory",
        "tests/price/test_hand_counts.py: an epoch by hand",
    ),
)
HONGTU_IM = Card(
    implemented=(
        "everything that belongs to a partition stays on its device (section 7.1)",
        "rows of other partitions come from their devices at every layer, and gradients go back",
    ),
    simplified=(
        "the paper says of this version only that all data is on the GPUs; a partition of one "
        "chunk (`sampler.chunks_per_partition`) and what crosses are a reading",
    ),
    left_out=("CUDA kernels that read peers themselves: torch copies rows",),
    validated=(
        "gnnbench reproduce hongtu-table5 hongtu-table6: epochs and full memories beside the "
        "paper's",
        "tests/systems/hongtu/test_hongtu_memory.py: equality, and no byte over the host's links",
        "tests/systems/hongtu/test_hongtu_plan.py: a plan has the bytes and the time of training",
    ),
)
