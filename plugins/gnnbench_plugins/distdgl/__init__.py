"""DistDGL (Zheng et al., 2020): mini-batches, with seeds trained on the device of their partition.

``placement`` holds the partition, and DistDGLv2's static hybrid (Zheng et al., 2022), which also
prefetches (``hyscale``'s communication). Sampling and features on the host are the plain parts.
"""

from gnnbench.hookspecs import hookimpl
from gnnbench.parts import Part
from gnnbench.records import Strategy, read_strategies
from gnnbench_plugins.distdgl.placement import DistDGLPlacement, DistDGLv2Placement


@hookimpl
def gnnbench_parts() -> list[type[Part]]:
    return [DistDGLPlacement, DistDGLv2Placement]


@hookimpl
def gnnbench_strategy() -> list[Strategy]:
    return read_strategies(__file__)
