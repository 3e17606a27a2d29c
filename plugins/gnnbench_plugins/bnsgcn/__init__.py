"""BNS-GCN (Wan et al., MLSys 2022): full-graph training on partitions that sample their halos.

``communication`` samples halos in every epoch; the partition is the one of ``partition``.
"""

from gnnbench.hookspecs import hookimpl
from gnnbench.parts import Part
from gnnbench.records import Strategy, read_strategies
from gnnbench_plugins.bnsgcn.communication import BNSGCNCommunication


@hookimpl
def gnnbench_parts() -> list[type[Part]]:
    return [BNSGCNCommunication]


@hookimpl
def gnnbench_strategy() -> list[Strategy]:
    return read_strategies(__file__)
