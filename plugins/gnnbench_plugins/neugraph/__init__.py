"""NeuGraph (Ma et al., USENIX ATC 2019): full-graph training on a grid of chunks.

Vertex data is streamed from the host, and intermediates stay on the devices.

``sampler`` cuts the grid, ``communication`` streams its pieces, and ``memory`` keeps what UPDATE's
backward pass needs.
"""

from __future__ import annotations

from gnnbench.hookspecs import hookimpl
from gnnbench.parts import Part
from gnnbench.records import Ablation, Parts, Strategy, read_card
from gnnbench_plugins.neugraph.communication import NeuGraphCommunication
from gnnbench_plugins.neugraph.memory import NeuGraphMemory
from gnnbench_plugins.neugraph.sampler import NeuGraphSampler


@hookimpl
def gnnbench_parts() -> list[type[Part]]:
    return [NeuGraphSampler, NeuGraphCommunication, NeuGraphMemory]


@hookimpl
def gnnbench_strategy() -> list[Strategy]:
    return [
        Strategy(
            name="neugraph",
            summary="a grid of chunks streamed from the host, intermediates on the devices",
            source="NeuGraph: Parallel Deep Neural Network Computation on Large Graphs",
            bundles={"full-graph": Parts("neugraph", "hongtu", "neugraph", "neugraph", "torch")},
            ablation=(
                Ablation("vanilla", swaps=(("communication", "vanilla"),)),
                Ablation("+own", options=(("communication", "overlap", "false"),)),
                Ablation("+overlap"),
            ),
            card=read_card(__file__, "neugraph"),
        )
    ]
