"""DistDGL (Zheng et al., 2020): mini-batches whose seeds are trained where their partition is.

``placement`` holds the partition. Sampling, and features on the host, are the plain ones.
"""

from __future__ import annotations

from gnnbench.hookspecs import hookimpl
from gnnbench.parts import Placement
from gnnbench.records import Parts, Strategy
from gnnbench_plugins.distdgl.placement import DistDGLPlacement


@hookimpl
def gnnbench_placement() -> list[type[Placement]]:
    return [DistDGLPlacement]


@hookimpl
def gnnbench_strategy() -> list[Strategy]:
    return [
        Strategy(
            name="distdgl",
            summary="mini-batches on accelerators, each trains the seeds of its METIS partition",
            source="DistDGL: Distributed Graph Neural Network Training for Billion-Scale Graphs",
            bundles={"mini-batch": Parts("neighbour", "distdgl", "vanilla", "host", "torch")},
        )
    ]
