"""Partition parallelism (MixGCN, sections 2.2 and 3.1.1), and DistDGL as a variant of it.

``partition`` is its Algorithm 1: a METIS partition a device, whose halo crosses at every layer, so
that volume and memory grow with the halo (MixGCN, Proposition 3.2). All of its parts exist already.
``sampler`` holds the units of ``distdgl-full-graph``.
"""

from __future__ import annotations

from gnnbench.hookspecs import hookimpl
from gnnbench.parts import Part
from gnnbench.records import Parts, Strategy, read_card
from gnnbench_plugins.partition.sampler import MultiHopSampler


@hookimpl
def gnnbench_parts() -> list[type[Part]]:
    return [MultiHopSampler]


@hookimpl
def gnnbench_strategy() -> list[Strategy]:
    return [
        Strategy(
            name="partition",
            summary="METIS parts on devices, whose halo crosses at every layer",
            source="MixGCN, Algorithm 1",
            bundles={"full-graph": Parts("hongtu-im", "hongtu", "halo", "resident", "torch")},
            card=read_card(__file__, "partition"),
        ),
        Strategy(
            name="distdgl-full-graph",
            summary="METIS parts on devices, all rows of L hops are collected before an iteration",
            source="MixGCN, section 5.1, of DistDGL: Distributed Graph Neural Network Training "
            "for Billion-Scale Graphs",
            bundles={"full-graph": Parts("multi-hop", "hongtu", "halo", "resident", "torch")},
            plain="partition",
            card=read_card(__file__, "distdgl-full-graph"),
        ),
    ]
