"""P3 (Gandhi and Iyer, OSDI 2021): mini-batches with a feature-parallel first layer.

``placement`` divides the columns; ``communication`` transfers activations instead of features.
"""

from __future__ import annotations

from gnnbench.hookspecs import hookimpl
from gnnbench.parts import Part
from gnnbench.records import Parts, Strategy, read_card
from gnnbench_plugins.p3.communication import P3Communication
from gnnbench_plugins.p3.placement import P3Placement


@hookimpl
def gnnbench_parts() -> list[type[Part]]:
    return [P3Placement, P3Communication]


@hookimpl
def gnnbench_strategy() -> list[Strategy]:
    return [
        Strategy(
            name="p3",
            summary="first layer by columns of the features, the others by seeds; none crosses",
            source="P3: Distributed Deep Graph Learning at Scale (as HyScale-GNN, section VI-E2, "
            "has it)",
            bundles={"mini-batch": Parts("neighbour", "p3", "p3", "resident", "torch")},
            plain="data-parallel",
            card=read_card(__file__, "p3"),
        )
    ]
