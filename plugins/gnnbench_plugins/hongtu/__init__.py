"""HongTu (Wang, Chen, Wong, He): full-graph training with CPU offload.

``sampler`` holds the two-level partition, ``memory`` the recomputation-caching hybrid,
``communication`` the deduplicated communication, ``volumes`` its cost and Algorithm 4.
"""

from __future__ import annotations

from gnnbench.hookspecs import hookimpl
from gnnbench.parts import (
    Communication,
    FullGraphSampler,
    Memory,
    MiniBatchSampler,
    Placement,
)
from gnnbench.records import Parts, Strategy
from gnnbench_plugins.hongtu.communication import HongTuCommunication
from gnnbench_plugins.hongtu.memory import HongTuMemory
from gnnbench_plugins.hongtu.placement import HongTuPlacement
from gnnbench_plugins.hongtu.sampler import HongTuSampler


@hookimpl
def gnnbench_sampler() -> list[type[MiniBatchSampler] | type[FullGraphSampler]]:
    return [HongTuSampler]


@hookimpl
def gnnbench_placement() -> list[type[Placement]]:
    return [HongTuPlacement]


@hookimpl
def gnnbench_communication() -> list[type[Communication]]:
    return [HongTuCommunication]


@hookimpl
def gnnbench_memory() -> list[type[Memory]]:
    return [HongTuMemory]


@hookimpl
def gnnbench_strategy() -> list[Strategy]:
    return [
        Strategy(
            name="hongtu",
            summary="full-graph training from host memory, deduplicated communication",
            source="HongTu: Scalable Full-Graph GNN Training on Multiple GPUs (via "
            "communication-optimized CPU data offloading)",
            bundles={"full-graph": Parts("hongtu", "hongtu", "hongtu", "hongtu", "torch")},
        )
    ]
