"""ROC (Jia et al., MLSys 2020): full-graph training on ranges of vertices.

A learned linear cost model balances the ranges. If devices have no room, the data that layers keep
for the backward pass is swapped to the host.

``cost`` has the model, ``sampler`` learns it and cuts the graph by it. ``memory`` has the dynamic
program that chooses the layers to swap.
"""

from __future__ import annotations

from gnnbench.hookspecs import hookimpl
from gnnbench.parts import Part
from gnnbench.records import Parts, Strategy, read_card
from gnnbench_plugins.roc.memory import RocMemory
from gnnbench_plugins.roc.sampler import RocSampler


@hookimpl
def gnnbench_parts() -> list[type[Part]]:
    return [RocSampler, RocMemory]


@hookimpl
def gnnbench_strategy() -> list[Strategy]:
    return [
        Strategy(
            name="roc",
            summary="ranges of vertices by a learned cost, intermediates on the host where devices "
            "have no room",
            source="Improving the Accuracy, Scalability, and Performance of Graph Neural Networks "
            "with Roc",
            bundles={"full-graph": Parts("roc", "hongtu", "halo", "roc", "torch")},
            plain="partition",
            card=read_card(__file__, "roc"),
        )
    ]
