"""PipeGCN (Wan et al., ICLR 2022): full-graph training with the halo of the last epoch.

``communication`` holds the delay; the partition is the one of ``partition``.
"""

from gnnbench.hookspecs import hookimpl
from gnnbench.parts import Part
from gnnbench.records import Strategy, read_strategies
from gnnbench_plugins.pipegcn.communication import PipeGCNCommunication


@hookimpl
def gnnbench_parts() -> list[type[Part]]:
    return [PipeGCNCommunication]


@hookimpl
def gnnbench_strategy() -> list[Strategy]:
    return read_strategies(__file__)
