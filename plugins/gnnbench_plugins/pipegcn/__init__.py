"""PipeGCN (Wan et al., ICLR 2022): full-graph training with the halo of the last epoch.

``communication`` holds the delay; the partition is the one of ``partition``.
"""

from __future__ import annotations

from gnnbench.hookspecs import hookimpl
from gnnbench.parts import Part
from gnnbench.records import Parts, Strategy, read_card
from gnnbench_plugins.pipegcn.communication import PipeGCNCommunication


@hookimpl
def gnnbench_parts() -> list[type[Part]]:
    return [PipeGCNCommunication]


@hookimpl
def gnnbench_strategy() -> list[Strategy]:
    return [
        Strategy(
            name="pipegcn",
            summary="METIS parts on devices, the halo of the epoch before, hidden by computation",
            source="PipeGCN: Efficient Full-Graph Training of Graph Convolutional Networks with "
            "Pipelined Feature Communication",
            bundles={"full-graph": Parts("hongtu-im", "hongtu", "pipegcn", "resident", "torch")},
            plain="partition",
            card=read_card(__file__, "pipegcn"),
        )
    ]
