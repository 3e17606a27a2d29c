"""SANCUS (Peng et al., PVLDB 2022): full-graph training on several GPUs that skips broadcasts.

``communication`` holds the broadcasts and the bound on the age of a copy. The other parts exist
already: random parts of the graph (MixGCN, section 4.3), one a device.
"""

from __future__ import annotations

from gnnbench.hookspecs import hookimpl
from gnnbench.parts import Part
from gnnbench.records import Parts, Strategy, read_card
from gnnbench_plugins.sancus.communication import SancusCommunication


@hookimpl
def gnnbench_parts() -> list[type[Part]]:
    return [SancusCommunication]


@hookimpl
def gnnbench_strategy() -> list[Strategy]:
    return [
        Strategy(
            name="sancus",
            summary="full graph on several devices, broadcasts skipped within a staleness bound",
            source="SANCUS: Staleness-Aware Communication-Avoiding Full-Graph Decentralized "
            "Training in Large-Scale Graph Neural Networks (as HongTu's Table 2 has it)",
            bundles={"full-graph": Parts("random", "hongtu", "sancus", "resident", "torch")},
            plain="partition",
            card=read_card(__file__, "sancus"),
        )
    ]
