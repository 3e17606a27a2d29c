"""SALIENT (Kaler et al., MLSys 2022): threads prepare whole mini-batches, transferred ahead.

``sampler`` has the threads; each draws a mini-batch and gathers its rows. ``communication`` has the
transfers that overlap training, features in half precision, and the ring of distributed data
parallel training. ``memory`` has a copy of the features on every node.
"""

from __future__ import annotations

from gnnbench.hookspecs import hookimpl
from gnnbench.parts import Part
from gnnbench.records import Ablation, PartKind, Parts, Strategy, read_card
from gnnbench_plugins.salient.communication import SalientCommunication
from gnnbench_plugins.salient.memory import SalientMemory
from gnnbench_plugins.salient.sampler import SalientSampler

_BLOCKING: tuple[PartKind, str, str] = ("communication", "pipelined", "false")


@hookimpl
def gnnbench_parts() -> list[type[Part]]:
    return [SalientSampler, SalientCommunication, SalientMemory]


@hookimpl
def gnnbench_strategy() -> list[Strategy]:
    return [
        Strategy(
            name="salient",
            summary="whole mini-batches prepared by a thread each, transfers beside training",
            source="Accelerating Training and Inference of Graph Neural Networks with Fast "
            "Sampling and Pipelining (SALIENT)",
            bundles={"mini-batch": Parts("salient", "data-parallel", "salient", "salient", "pyg")},
            ablation=(
                Ablation(
                    "one after the other", swaps=(("sampler", "neighbour"),), options=(_BLOCKING,)
                ),
                Ablation("+prepared ahead", options=(_BLOCKING,)),
                Ablation("+pipelined transfers"),
            ),
            plain="pyg-multi-gpu",
            card=read_card(__file__, "salient"),
        )
    ]
