"""BNS-GCN (Wan et al., MLSys 2022): full-graph training on partitions that sample their halos.

``communication`` samples halos in every epoch; the partition is the one of ``partition``.
"""

from __future__ import annotations

from gnnbench.hookspecs import hookimpl
from gnnbench.parts import Part
from gnnbench.records import Parts, Strategy, read_card
from gnnbench_plugins.bnsgcn.communication import BNSGCNCommunication


@hookimpl
def gnnbench_parts() -> list[type[Part]]:
    return [BNSGCNCommunication]


@hookimpl
def gnnbench_strategy() -> list[Strategy]:
    return [
        Strategy(
            name="bnsgcn",
            summary="METIS parts on devices, a tenth of the halo drawn anew in every epoch",
            source="BNS-GCN: Efficient Full-Graph Training of Graph Convolutional Networks with "
            "Partition-Parallelism and Random Boundary Node Sampling",
            bundles={"full-graph": Parts("hongtu-im", "hongtu", "bnsgcn", "resident", "torch")},
            plain="partition",
            card=read_card(__file__, "bnsgcn"),
        )
    ]
