"""HyScale-GNN (Lin and Prasanna): hybrid CPU + accelerator mini-batch training.

``placement`` holds the hybrid trainers, ``performance`` Equations 6 to 13, ``drm`` Algorithm 1,
``communication`` the two-stage feature prefetching, ``rounding`` features that cross as float16 or
int8.
"""

from gnnbench.hookspecs import hookimpl
from gnnbench.parts import Part
from gnnbench.records import Strategy, read_strategies
from gnnbench_plugins.hyscale.communication import (
    HalfPrecisionCommunication,
    HyScaleCommunication,
    IntegerCommunication,
)
from gnnbench_plugins.hyscale.placement import HyScalePlacement


@hookimpl
def gnnbench_parts() -> list[type[Part]]:
    return [
        HyScalePlacement,
        HyScaleCommunication,
        HalfPrecisionCommunication,
        IntegerCommunication,
    ]


@hookimpl
def gnnbench_strategy() -> list[Strategy]:
    return read_strategies(__file__)
