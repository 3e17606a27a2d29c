"""SANCUS (Peng et al., PVLDB 2022): full-graph training on several GPUs that skips broadcasts.

``communication`` holds the broadcasts and the bound on the age of a copy. The other parts exist
already: random parts of the graph (MixGCN, section 4.3), one a device.
"""

from gnnbench.hookspecs import hookimpl
from gnnbench.parts import Part
from gnnbench.records import Strategy, read_strategies
from gnnbench_plugins.sancus.communication import SancusCommunication


@hookimpl
def gnnbench_parts() -> list[type[Part]]:
    return [SancusCommunication]


@hookimpl
def gnnbench_strategy() -> list[Strategy]:
    return read_strategies(__file__)
