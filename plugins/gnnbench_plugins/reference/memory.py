"""The two plain memories: everything on the device, or vertex data on the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from gnnbench.parts import (
    Intermediates,
    LayerShape,
    Memory,
    OfMiniBatches,
)


@dataclass
class ResidentMemory(Memory):
    """Features, representations, gradients and intermediates all stay on the device.

    Where several devices train a full graph, each has those of its partition.
    """

    name: ClassVar[str] = "resident"
    summary: ClassVar[str] = "everything stays on the device"
    vertex_data: ClassVar[Literal["host", "device"]] = "device"

    def intermediates(self, layer: LayerShape) -> Intermediates:
        return "keep"


@dataclass
class HostMemory(OfMiniBatches, Memory):
    """Features stay in host memory; a mini-batch's rows visit the device while it trains."""

    name: ClassVar[str] = "host"
    summary: ClassVar[str] = "features on the host, one mini-batch at a time on the device"
    vertex_data: ClassVar[Literal["host", "device"]] = "host"

    def intermediates(self, layer: LayerShape) -> Intermediates:
        return "keep"
