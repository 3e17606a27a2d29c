"""PaGraph (Lin et al., SoCC 2020): mini-batches on GPUs that keep the hottest feature rows.

``memory`` holds the cache. It works with any placement, and with any communication that transfers
rows from the host, such as HyScale-GNN's. In this strategy only the accelerators train.
"""

from __future__ import annotations

from gnnbench.hookspecs import hookimpl
from gnnbench.parts import Part
from gnnbench.records import Parts, Strategy, read_card
from gnnbench_plugins.pagraph.memory import PaGraphMemory


@hookimpl
def gnnbench_parts() -> list[type[Part]]:
    return [PaGraphMemory]


@hookimpl
def gnnbench_strategy() -> list[Strategy]:
    return [
        Strategy(
            name="pagraph",
            summary="mini-batches on accelerators with a static cache of the hottest feature rows",
            source="PaGraph: Scaling GNN Training on Large Graphs via Computation-aware Caching "
            "(as HyScale-GNN, section VI-E2, has it)",
            bundles={
                "mini-batch": Parts("neighbour", "data-parallel", "vanilla", "pagraph", "torch")
            },
            plain="data-parallel",
            card=read_card(__file__, "pagraph"),
        )
    ]
