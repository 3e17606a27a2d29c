"""SALIENT (Kaler et al., MLSys 2022): threads prepare whole mini-batches, transferred ahead.

``sampler`` has the threads; each draws a mini-batch and gathers its rows. ``communication`` has the
transfers that overlap training, features in half precision, and the ring of distributed data
parallel training. ``memory`` has a copy of the features on every node.
"""

from gnnbench.hookspecs import hookimpl
from gnnbench.parts import Part
from gnnbench.records import Strategy, read_strategies
from gnnbench_plugins.salient.communication import SalientCommunication
from gnnbench_plugins.salient.memory import SalientMemory
from gnnbench_plugins.salient.sampler import SalientSampler


@hookimpl
def gnnbench_parts() -> list[type[Part]]:
    return [SalientSampler, SalientCommunication, SalientMemory]


@hookimpl
def gnnbench_strategy() -> list[Strategy]:
    return read_strategies(__file__)
