"""Partition parallelism (MixGCN, sections 2.2 and 3.1.1), and DistDGL as a variant of it.

``partition`` is its Algorithm 1: a METIS partition a device, whose halo crosses at every layer, so
that volume and memory grow with the halo (MixGCN, Proposition 3.2). All of its parts exist already.
``sampler`` holds the units of ``distdgl-full-graph``.
"""

from gnnbench.hookspecs import hookimpl
from gnnbench.parts import Part
from gnnbench.records import Strategy, read_strategies
from gnnbench_plugins.partition.sampler import MultiHopSampler


@hookimpl
def gnnbench_parts() -> list[type[Part]]:
    return [MultiHopSampler]


@hookimpl
def gnnbench_strategy() -> list[Strategy]:
    return read_strategies(__file__)
