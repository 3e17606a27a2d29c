"""P3 (Gandhi and Iyer, OSDI 2021): mini-batches with a feature-parallel first layer.

``placement`` divides the columns; ``communication`` transfers activations instead of features.
"""

from gnnbench.hookspecs import hookimpl
from gnnbench.parts import Part
from gnnbench.records import Strategy, read_strategies
from gnnbench_plugins.p3.communication import P3Communication
from gnnbench_plugins.p3.placement import P3Placement


@hookimpl
def gnnbench_parts() -> list[type[Part]]:
    return [P3Placement, P3Communication]


@hookimpl
def gnnbench_strategy() -> list[Strategy]:
    return read_strategies(__file__)
