"""Intermediate data management: HongTu §4.2's hybrid, and what it is better than."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gnnbench.parts import DeviceMemory, Intermediates, LayerShape, OffloadingMemory, OfFullGraphs


@dataclass(frozen=True)
class HongTuMemory(OffloadingMemory):
    """Representations and gradients of every layer in host memory; a device holds one layer of
    one chunk.

    Hybrid: a layer whose aggregate is all that its backward pass needs has it cached on the host
    (O(|V|) traffic); one with neural networks on edges is recomputed from its neighbour rows.
    """

    name: ClassVar[str] = "hongtu"
    summary: ClassVar[str] = "vertex data on the host; aggregates cached or layers recomputed"

    def intermediates(self, layer: LayerShape) -> Intermediates:
        return "cache" if layer.cacheable else "recompute"


@dataclass(frozen=True)
class RecomputingMemory(OffloadingMemory):
    """The same with every layer recomputed from its neighbour rows: HongTu Figure 4 (b)."""

    name: ClassVar[str] = "hongtu-recompute"
    summary: ClassVar[str] = "vertex data on the host; every layer recomputed backward"

    def intermediates(self, layer: LayerShape) -> Intermediates:
        return "recompute"


@dataclass(frozen=True)
class CachingMemory(OffloadingMemory):
    """Nothing is recomputed: what a layer's backward pass needs waits on the host.

    Of a cacheable layer that is its aggregate, O(|V|); of another all that autograd saves, O(|E|),
    which HongTu §4.2 expects to cost more than recomputing it.
    """

    name: ClassVar[str] = "hongtu-cache"
    summary: ClassVar[str] = "vertex data and all intermediates on the host"

    def intermediates(self, layer: LayerShape) -> Intermediates:
        return "cache" if layer.cacheable else "offload"


@dataclass(frozen=True)
class InMemory(OfFullGraphs, DeviceMemory):
    """HongTu-IM (§7.1): every device keeps all that belongs to its partition."""

    name: ClassVar[str] = "hongtu-im"
    summary: ClassVar[str] = "vertex data and intermediates stay on the devices, by partition"
