"""The plain strategies: one device, which all others must equal, and data parallelism."""

from gnnbench.hookspecs import hookimpl
from gnnbench.parts import Part
from gnnbench.records import Strategy, read_strategies
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
    return read_strategies(__file__)
