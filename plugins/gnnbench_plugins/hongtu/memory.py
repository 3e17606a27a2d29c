"""Intermediate data management: HongTu §4.2's hybrid, and the alternatives it is compared with."""

from dataclasses import dataclass
from typing import ClassVar

from gnnbench.parts import FULL_GRAPHS, DeviceMemory, Intermediates, LayerShape, OffloadingMemory
from gnnbench.records import Mode


@dataclass(frozen=True)
class HongTuMemory(OffloadingMemory):
    """A memory with all layers' representations and gradients on the host.

    A device holds one layer of one chunk. Hybrid: if a layer's backward pass needs only its
    aggregate, that is cached on the host (O(|V|) traffic). A layer with neural networks on edges is
    recomputed from its neighbour rows.
    """

    name: ClassVar[str] = "hongtu"
    summary: ClassVar[str] = "vertex data on the host; aggregates cached or layers recomputed"

    def intermediates(self, layer: LayerShape) -> Intermediates:
        return "cache" if layer.cacheable else "recompute"


@dataclass(frozen=True)
class RecomputingMemory(OffloadingMemory):
    """HongTu's memory with every layer recomputed from its neighbour rows: HongTu Figure 4 (b)."""

    name: ClassVar[str] = "hongtu-recompute"
    summary: ClassVar[str] = "vertex data on the host; every layer recomputed backward"

    def intermediates(self, layer: LayerShape) -> Intermediates:
        return "recompute"


@dataclass(frozen=True)
class CachingMemory(OffloadingMemory):
    """HongTu's memory without recomputation: inputs of backward passes wait on the host.

    For a cacheable layer they are its aggregate, O(|V|). For other layers they are all that
    autograd saves, O(|E|), which HongTu §4.2 expects to cost more than recomputation.
    """

    name: ClassVar[str] = "hongtu-cache"
    summary: ClassVar[str] = "vertex data and all intermediates on the host"

    def intermediates(self, layer: LayerShape) -> Intermediates:
        return "cache" if layer.cacheable else "offload"


@dataclass(frozen=True)
class InMemory(DeviceMemory):
    """HongTu-IM (§7.1): every device keeps all tensors of its partition."""

    name: ClassVar[str] = "hongtu-im"
    summary: ClassVar[str] = "vertex data and intermediates stay on the devices, by partition"
    modes: ClassVar[frozenset[Mode]] = FULL_GRAPHS
