"""ROC (Jia et al., MLSys 2020): full-graph training on ranges of vertices.

A learned linear cost model balances the ranges. If devices have no room, the data that layers keep
for the backward pass is swapped to the host.

``cost`` has the model, ``sampler`` learns it and cuts the graph by it. ``memory`` has the dynamic
program that chooses the layers to swap.
"""

from gnnbench.hookspecs import hookimpl
from gnnbench.parts import Part
from gnnbench.records import Strategy, read_strategies
from gnnbench_plugins.roc.memory import RocMemory
from gnnbench_plugins.roc.sampler import RocSampler


@hookimpl
def gnnbench_parts() -> list[type[Part]]:
    return [RocSampler, RocMemory]


@hookimpl
def gnnbench_strategy() -> list[Strategy]:
    return read_strategies(__file__)
