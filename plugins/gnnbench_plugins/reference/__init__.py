"""The plain strategies: one device, which all others must equal, and data parallelism."""

from __future__ import annotations

from gnnbench.hookspecs import hookimpl
from gnnbench.parts import Part
from gnnbench.records import Parts, Strategy, read_card
from gnnbench_plugins.reference.communication import (
    HaloCommunication,
    NoCommunication,
    VanillaCommunication,
)
from gnnbench_plugins.reference.data_parallel import DataParallelPlacement
from gnnbench_plugins.reference.kernel import TorchKernel
from gnnbench_plugins.reference.memory import HostMemory, ResidentMemory
from gnnbench_plugins.reference.placement import HostPlacement, SinglePlacement
from gnnbench_plugins.reference.sampler import NeighbourSampler, WholeGraphSampler
from gnnbench_plugins.reference.subgraph import LayerwiseSampler, SaintSampler


@hookimpl
def gnnbench_parts() -> list[type[Part]]:
    return [
        NeighbourSampler,
        SaintSampler,
        LayerwiseSampler,
        WholeGraphSampler,
        SinglePlacement,
        HostPlacement,
        DataParallelPlacement,
        NoCommunication,
        VanillaCommunication,
        HaloCommunication,
        HostMemory,
        ResidentMemory,
        TorchKernel,
    ]


@hookimpl
def gnnbench_strategy() -> list[Strategy]:
    return [
        Strategy(
            name="reference",
            summary="one device, plain torch: what the others must equal",
            source="gnnbench",
            bundles={
                "mini-batch": Parts("neighbour", "single", "vanilla", "host", "torch"),
                "full-graph": Parts("full-graph", "single", "none", "resident", "torch"),
            },
            card=read_card(__file__, "reference"),
        ),
        Strategy(
            name="data-parallel",
            summary="even shares of the seeds on all accelerators, features on the host",
            source="HyScale-GNN, section VI-E1: the multi-GPU baseline",
            bundles={"mini-batch": Parts("neighbour", "data-parallel", "vanilla", "host", "torch")},
            card=read_card(__file__, "data-parallel"),
        ),
    ]
