"""CAGNET (Tripathy, Yelick, Buluc, SC 2020): full-graph training by broadcasts, in one dimension.

``sampler`` partitions the vertices at random, ``communication`` broadcasts.
"""

from gnnbench.hookspecs import hookimpl
from gnnbench.parts import Part
from gnnbench.records import Strategy, read_strategies
from gnnbench_plugins.cagnet.communication import BroadcastCommunication
from gnnbench_plugins.cagnet.sampler import RandomPartitionSampler


@hookimpl
def gnnbench_parts() -> list[type[Part]]:
    return [RandomPartitionSampler, BroadcastCommunication]


@hookimpl
def gnnbench_strategy() -> list[Strategy]:
    return read_strategies(__file__)
