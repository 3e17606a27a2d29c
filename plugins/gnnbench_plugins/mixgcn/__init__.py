"""MixGCN: full-graph training by mixture of parallelism and mixture of accelerators.

``placement`` holds the two shardings (its Algorithm 2) and the groups of sparse and dense devices.
``communication`` holds the all-to-all between them, ``sampler`` the order and the stages of the
pipeline between the groups (section 3.2.2). ``ordering`` has bandwidths and Proposition 3.5.
``outlook`` predicts an epoch from its program: ``sampler`` and ``placement`` choose by it, and
``planner`` plans with it.

``machines`` has the sparse accelerator, cycle by cycle; ``kernel`` prices AGGREGATE by it.
"""

from gnnbench.hookspecs import hookimpl
from gnnbench.parts import Part
from gnnbench.records import Strategy, read_strategies
from gnnbench.reproduce.studies import Planner
from gnnbench_plugins.mixgcn.communication import MixGCNCommunication
from gnnbench_plugins.mixgcn.kernel import SpuKernel
from gnnbench_plugins.mixgcn.placement import MixGCNPlacement
from gnnbench_plugins.mixgcn.planner import MixGCNPlanner
from gnnbench_plugins.mixgcn.sampler import MixGCNSampler


@hookimpl
def gnnbench_parts() -> list[type[Part]]:
    return [MixGCNSampler, MixGCNPlacement, MixGCNCommunication, SpuKernel]


@hookimpl
def gnnbench_strategy() -> list[Strategy]:
    return read_strategies(__file__)


@hookimpl
def gnnbench_planner() -> list[type[Planner]]:
    return [MixGCNPlanner]
