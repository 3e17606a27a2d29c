"""SANCUS (Peng et al., PVLDB 2022): full-graph training on several GPUs that skips broadcasts.

``communication`` holds the broadcasts and the bound on how old a copy may be; the rest is there
already: parts of the graph drawn at random (MixGCN, section 4.3), a device each.
"""

from __future__ import annotations

from gnnbench.hookspecs import hookimpl
from gnnbench.parts import Communication
from gnnbench.records import Parts, Strategy
from gnnbench_plugins.sancus.card import CARD
from gnnbench_plugins.sancus.communication import SancusCommunication


@hookimpl
def gnnbench_communication() -> list[type[Communication]]:
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
            card=CARD,
        )
    ]
