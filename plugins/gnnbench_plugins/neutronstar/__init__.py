"""NeutronStar (Wang et al., SIGMOD 2022): full-graph training on partitions.

A device computes some remote rows itself and reads the others, whichever is cheaper.

``dependencies`` has the choice, NeutronStar's Algorithm 4, and ``prices`` its cost model.
``sampler`` makes units of it. The partition is the one of ``partition``.
"""

from gnnbench.hookspecs import hookimpl
from gnnbench.parts import Part
from gnnbench.records import Strategy, read_strategies
from gnnbench_plugins.neutronstar.sampler import NeutronStarSampler


@hookimpl
def gnnbench_parts() -> list[type[Part]]:
    return [NeutronStarSampler]


@hookimpl
def gnnbench_strategy() -> list[Strategy]:
    return read_strategies(__file__)
