"""DistGNN (Md et al., SC 2021): full-graph training on CPU nodes with delayed aggregates.

``communication`` holds the delay, ``placement`` the nodes.
"""

from __future__ import annotations

from gnnbench.hookspecs import hookimpl
from gnnbench.parts import Part
from gnnbench.records import Parts, Strategy, read_card
from gnnbench_plugins.distgnn.communication import DistGNNCommunication
from gnnbench_plugins.distgnn.placement import DistGNNPlacement


@hookimpl
def gnnbench_parts() -> list[type[Part]]:
    return [DistGNNPlacement, DistGNNCommunication]


@hookimpl
def gnnbench_strategy() -> list[Strategy]:
    return [
        Strategy(
            name="distgnn",
            summary="full graph on CPU nodes, remote rows refreshed in turns (edge cut)",
            source="DistGNN: scalable distributed training for large-scale graph neural networks",
            bundles={
                "full-graph": Parts("hongtu-im", "distgnn", "distgnn", "resident", "torch"),
            },
            plain="partition",
            platform="ecs-r5x16",
            card=read_card(__file__, "distgnn"),
        )
    ]
