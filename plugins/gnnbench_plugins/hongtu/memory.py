"""Recomputation-caching-hybrid management of intermediate data: HongTu §4.2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from gnnbench.parts import FULL_GRAPH, Intermediates, LayerShape, Memory, option
from gnnbench.records import Mode


@dataclass
class HongTuMemory(Memory):
    """Representations and gradients of every layer in host memory; a device holds one layer of
    one chunk.

    Hybrid: a layer whose aggregate is all that its backward pass needs has it cached on the host
    (O(|V|) traffic); one with neural networks on edges is recomputed from its neighbour rows.
    """

    name: ClassVar[str] = "hongtu"
    summary: ClassVar[str] = "vertex data on the host; aggregates cached or layers recomputed"
    modes: ClassVar[frozenset[Mode]] = FULL_GRAPH
    vertex_data: ClassVar[Literal["host", "device"]] = "host"

    intermediate: Literal["hybrid", "recompute"] = option(
        "hybrid", "cache aggregates where a layer allows it, or recompute every layer"
    )

    def intermediates(self, layer: LayerShape) -> Intermediates:
        return "cache" if self.intermediate == "hybrid" and layer.cacheable else "recompute"
