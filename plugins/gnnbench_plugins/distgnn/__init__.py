"""DistGNN (Md et al., SC 2021): full-graph training on CPU nodes with delayed aggregates.

``communication`` holds the delay, ``placement`` the nodes.
"""

from gnnbench.hookspecs import hookimpl
from gnnbench.parts import Part
from gnnbench.records import Strategy, read_strategies
from gnnbench_plugins.distgnn.communication import DistGNNCommunication
from gnnbench_plugins.distgnn.placement import DistGNNPlacement


@hookimpl
def gnnbench_parts() -> list[type[Part]]:
    return [DistGNNPlacement, DistGNNCommunication]


@hookimpl
def gnnbench_strategy() -> list[Strategy]:
    return read_strategies(__file__)
