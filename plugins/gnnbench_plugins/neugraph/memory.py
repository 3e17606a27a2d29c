"""Memory that keeps all intermediates of layers on the devices between forward and backward."""

from dataclasses import dataclass
from typing import ClassVar

from gnnbench.parts import Intermediates, LayerShape, OffloadingMemory


@dataclass(frozen=True)
class NeuGraphMemory(OffloadingMemory):
    """Representations and gradients of all layers on the host, intermediates of chunks on devices.

    HongTu, section 2.4, describes NeuGraph and NeutronStar so.
    """

    name: ClassVar[str] = "neugraph"
    summary: ClassVar[str] = "vertex data on the host, intermediates stay on the devices"

    def intermediates(self, layer: LayerShape) -> Intermediates:
        return "keep"
