"""DistDGL (Zheng et al., 2020): mini-batches, with seeds trained on the device of their partition.

``placement`` holds the partition, and DistDGLv2's static hybrid (Zheng et al., 2022), which also
prefetches (``hyscale``'s communication). Sampling and features on the host are the plain parts.
"""

from __future__ import annotations

from gnnbench.hookspecs import hookimpl
from gnnbench.parts import Part
from gnnbench.records import Parts, Strategy, read_card
from gnnbench_plugins.distdgl.placement import DistDGLPlacement, DistDGLv2Placement


@hookimpl
def gnnbench_parts() -> list[type[Part]]:
    return [DistDGLPlacement, DistDGLv2Placement]


@hookimpl
def gnnbench_strategy() -> list[Strategy]:
    return [
        Strategy(
            name="distdgl",
            summary="mini-batches on accelerators, each trains the seeds of its METIS partition",
            source="DistDGL: Distributed Graph Neural Network Training for Billion-Scale Graphs",
            bundles={"mini-batch": Parts("neighbour", "distdgl", "vanilla", "host", "torch")},
            plain="data-parallel",
            card=read_card(__file__, "distdgl"),
        ),
        Strategy(
            name="distdgl-v2",
            summary="partitioned mini-batches, a fixed part of them trained by the CPU, prefetched",
            source="Distributed Hybrid CPU and GPU Training for Graph Neural Networks on "
            "Billion-Scale Heterogeneous Graphs (as HyScale-GNN, section VI-E2, has it)",
            bundles={"mini-batch": Parts("neighbour", "distdgl-v2", "hyscale", "host", "torch")},
            plain="data-parallel",
            card=read_card(__file__, "distdgl-v2"),
        ),
    ]
