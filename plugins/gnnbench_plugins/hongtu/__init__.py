"""HongTu (Wang, Chen, Wong, He): full-graph training with CPU offload.

``sampler`` holds the two-level partition, ``memory`` the recomputation-caching hybrid,
``communication`` the deduplicated communication, and ``prefetching`` its prefetched form.
``volumes`` holds its cost and Algorithm 4. ``counts`` holds the sizes of counted chunks, and
``outlook`` the predicted epoch of such chunks. ``planner`` and ``in_memory_planner`` plan with it.
"""

from gnnbench.hookspecs import hookimpl
from gnnbench.parts import Part
from gnnbench.records import Strategy, read_strategies
from gnnbench.reproduce.studies import Planner
from gnnbench_plugins.hongtu.communication import HongTuCommunication
from gnnbench_plugins.hongtu.in_memory_planner import InMemoryPlanner
from gnnbench_plugins.hongtu.memory import (
    CachingMemory,
    HongTuMemory,
    InMemory,
    RecomputingMemory,
)
from gnnbench_plugins.hongtu.placement import HongTuPlacement
from gnnbench_plugins.hongtu.planner import HongTuPlanner
from gnnbench_plugins.hongtu.prefetching import DeduplicatedCommunication
from gnnbench_plugins.hongtu.sampler import HongTuSampler, WholePartitionSampler


@hookimpl
def gnnbench_parts() -> list[type[Part]]:
    return [
        HongTuSampler,
        WholePartitionSampler,
        HongTuPlacement,
        HongTuCommunication,
        DeduplicatedCommunication,
        HongTuMemory,
        RecomputingMemory,
        CachingMemory,
        InMemory,
    ]


@hookimpl
def gnnbench_strategy() -> list[Strategy]:
    return read_strategies(__file__)


@hookimpl
def gnnbench_planner() -> list[type[Planner]]:
    return [HongTuPlanner, InMemoryPlanner]
