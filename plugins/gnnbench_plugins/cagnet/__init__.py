"""CAGNET (Tripathy, Yelick, Buluc, SC 2020): full-graph training by broadcasts, in one dimension.

``sampler`` partitions the vertices at random, ``communication`` broadcasts.
"""

from __future__ import annotations

from gnnbench.hookspecs import hookimpl
from gnnbench.parts import Part
from gnnbench.records import Parts, Strategy, read_card
from gnnbench_plugins.cagnet.communication import BroadcastCommunication
from gnnbench_plugins.cagnet.sampler import RandomPartitionSampler


@hookimpl
def gnnbench_parts() -> list[type[Part]]:
    return [RandomPartitionSampler, BroadcastCommunication]


@hookimpl
def gnnbench_strategy() -> list[Strategy]:
    return [
        Strategy(
            name="cagnet",
            summary="random parts on devices, every part's rows broadcast to all at every layer",
            source="CAGNET: Reducing Communication in Graph Neural Network Training, its 1D "
            "algorithm (as MixGCN has it)",
            bundles={"full-graph": Parts("random", "hongtu", "cagnet", "resident", "torch")},
            plain="partition",
            card=read_card(__file__, "cagnet"),
        )
    ]
