"""What stays on the devices between forward and backward: all that layers make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gnnbench.parts import Intermediates, LayerShape, OffloadingMemory


@dataclass(frozen=True)
class NeuGraphMemory(OffloadingMemory):
    """Representations and gradients of every layer in host memory, and on every device all
    intermediates of its chunks: HongTu §2.4 of NeuGraph and NeutronStar."""

    name: ClassVar[str] = "neugraph"
    summary: ClassVar[str] = "vertex data on the host, intermediates stay on the devices"

    def intermediates(self, layer: LayerShape) -> Intermediates:
        return "keep"
