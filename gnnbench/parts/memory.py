"""Memories: where tensors live, and what is kept, recomputed or offloaded."""

from __future__ import annotations

import tempfile
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from gnnbench.machines.machine import Device
from gnnbench.parts.base import FULL_GRAPHS, MINI_BATCHES, Part, Session, Setting
from gnnbench.parts.kernel import Kernel
from gnnbench.parts.layer_shape import LayerShape
from gnnbench.parts.options import option
from gnnbench.parts.placement import Placement
from gnnbench.records import BlockSize, BoolArray, IntArray, Loading, Mode, PartKind
from gnnbench.units import format_si

#: Policies for a layer's intermediate results between forward and backward.
Intermediates = Literal["cache", "keep", "offload", "recompute"]


@dataclass(frozen=True)
class MemoryCap:
    """The cap on devices' memories, which every memory has as its first option.

    ``device_bytes`` caps every accelerator's (or lone device's) memory below the platform's own.
    """

    kind: ClassVar[PartKind] = "memory"
    device_bytes: int = option(0, "cap on each device's memory; 0 = the platform's", unit="bytes")

    def capacity_bytes(self, device: Device) -> int:
        """Return the bytes of a device's memory that a run may hold."""
        if self.device_bytes:
            return min(self.device_bytes, device.hardware.memory_bytes)
        return device.hardware.memory_bytes

    def host_capacity_bytes(self, host: Device) -> int:
        """Return the bytes of the host's memory that a run may hold."""
        return host.hardware.memory_bytes


@dataclass(frozen=True)
class DeviceMemory(MemoryCap, Part):
    """A memory with all features, representations, gradients and intermediates on the devices.

    If several devices train a full graph, each holds the tensors of its partition.
    """

    #: Whether intermediates of a full graph's layers without room on the device wait on the host
    #: for their backward pass; vertex data stays on the devices.
    swaps: ClassVar[bool] = False

    def choose_swapped(
        self, kept: Sequence[int], working: Sequence[int], rows: Sequence[int], free_bytes: int
    ) -> frozenset[int]:
        """Return the layers, from 0, whose intermediates a device swaps to the host.

        The device sends them after the forward pass, and reads them back for the backward pass.

        It is called where the memory ``swaps``. By layer, ``kept`` are the bytes of the
        intermediates on the device. ``working`` are the other bytes that the device holds while it
        works on the layer. The output of a swapped layer, ``rows`` bytes, stays until the next
        layer has read it. ``free_bytes`` is the room for all of these. The last layer cannot be
        swapped, since its backward pass follows its forward pass.
        """
        return frozenset()


@dataclass(frozen=True)
class LoadingMemory(MemoryCap, Part):
    """A memory with features on the host; a mini-batch's rows are on the device while it trains."""

    modes: ClassVar[frozenset[Mode]] = MINI_BATCHES

    @property
    def replicated(self) -> bool:
        """Whether every host of a multi-node machine holds all features.

        No features cross the network then. Otherwise each host holds those of its vertices.
        """
        return False

    @property
    def loading(self) -> Loading | None:
        """How rows reach accelerators, if the memory decides it; None leaves it to the sampler."""
        return None


@dataclass(frozen=True, slots=True, eq=False)
class Turnover:
    """A change of a cache: rows that it admits, and rows that it evicts for them.

    Both are distinct ids, int64.
    """

    admitted: IntArray
    evicted: IntArray


class CacheSession(Session):
    """The feature rows that accelerators cache in a run, by device index.

    The cache starts with the rows of ``kept`` and holds at most ``num_rows``, by default the length
    of ``kept``.

    This class is a static cache. A dynamic one overrides ``turn_over``.
    """

    def __init__(
        self, kept: Mapping[int, IntArray], num_rows: Mapping[int, int] | None = None
    ) -> None:
        self.kept = kept
        self.num_rows = num_rows or {slot: len(ids) for slot, ids in kept.items()}

    @classmethod
    def of_hottest(cls, heat: IntArray, num_rows: Mapping[int, int]) -> CacheSession:
        """Return a static cache of the vertices of the greatest ``heat``, ``(V,)``.

        It fills each device's room. Among vertices of equal heat the lowest ids come first.
        """
        hottest = np.argsort(-heat, kind="stable")
        return CacheSession({slot: hottest[:count] for slot, count in num_rows.items()})

    def turn_over(self, slot: int, asked: IntArray, found: BoolArray) -> Turnover | None:
        """Return the change of the cache of device ``slot`` after a round; None for no change.

        ``asked`` are the vertices whose rows the device reads in the round, ascending; ``found``
        says which of them are cached. Only rows asked for and not found can be admitted, since
        these are then on the device. Rounds come in order. Prefetching plans rounds before earlier
        ones are computed: a change holds from the next round on.
        """
        return None


@dataclass(frozen=True)
class CacheMemory(MemoryCap, Part):
    """A memory with features on the host and a cache of rows on every accelerator.

    The cache is static or dynamic.

    Rows found in the cache are neither loaded nor transferred. ``replicated`` is that of
    :class:`LoadingMemory`. Mini-batches may be drawn before the
    run to fill it, in epochs of their own, by the sampler that training uses.
    """

    modes: ClassVar[frozenset[Mode]] = MINI_BATCHES
    replicated: ClassVar[bool] = False

    cache_bytes: int = option(
        0, "size of each device's cache; 0 = what mini-batches leave free", unit="bytes"
    )

    @abstractmethod
    def open(self, setting: Setting, num_rows: Mapping[int, int]) -> CacheSession:
        """Plan the caches of a run.

        ``num_rows`` is the number of rows with room, by device index.
        """

    def count_rows(self, setting: Setting, free_bytes: int, mini_batch_bytes: int) -> int:
        """Return the number of rows that fit a device with ``free_bytes`` of memory left.

        Mini-batches take at most ``mini_batch_bytes``.
        """
        size_bytes = self.cache_bytes or max(0, free_bytes - mini_batch_bytes)
        return size_bytes // (setting.dataset.num_features * setting.workload.itemsize)

    @property
    def sampled_epochs(self) -> int:
        """The number of epochs drawn before the run; with 0 ``open`` plans the caches."""
        return 0

    def open_sampled(
        self, setting: Setting, num_rows: Mapping[int, int], drawn: IntArray
    ) -> CacheSession:
        """Plan the caches as ``open`` does, from mini-batches drawn before.

        ``drawn`` counts the sampled mini-batches that read each vertex's row, int64 ``(V,)``.
        """
        return CacheSession.of_hottest(drawn, num_rows)


#: One in ``TOPOLOGY_PART`` bytes of a device may hold topologies of chunks that wait for their
#: turn.
TOPOLOGY_PART = 8


@dataclass(frozen=True)
class OffloadingMemory(MemoryCap, Part):
    """A memory with all vertex data on the host, within a budget, and the rest on disk.

    :func:`gnnbench.lowering.footprint.choose_spilled` chooses the data on disk once for a run.
    """

    modes: ClassVar[frozenset[Mode]] = FULL_GRAPHS

    host_bytes: int = option(0, "cap on the host's memory; 0 = the platform's", unit="bytes")
    spill_dir: str = option("", "directory for what outgrows the host; empty = the system's")
    topology: str = option(
        "auto", "where chunks' topologies wait: device, host, or auto: device if it has room enough"
    )

    @abstractmethod
    def intermediates(self, layer: LayerShape) -> Intermediates:
        """Return the policy for a layer's intermediate results between forward and backward.

        ``cache`` puts the aggregate on the host, ``offload`` moves all intermediates there,
        ``keep`` leaves them on the device, ``recompute`` computes them again. Only a ``cacheable``
        layer may be cached, and only another layer may be offloaded.
        """

    def list_intermediates(self, layers: Sequence[LayerShape]) -> tuple[Intermediates, ...]:
        """Return the policy of each layer, first layer first.

        A memory that treats a layer by its place among the ``layers`` overrides it.
        """
        return tuple(map(self.intermediates, layers))

    def streams_topology(self) -> bool:
        """Return whether a chunk's topology waits on the host and crosses with its vertex data.

        Otherwise it stays on the device for the whole run. Valid once settled.
        """
        return self.topology == "host"

    def settle(self, bundle: Any, setting: Setting) -> tuple[Part, tuple[str, ...]]:
        """Return the memory with the location of topologies decided, if left open.

        It is the device if all its chunks fit a small part of its memory, else the host.
        """
        if self.topology != "auto":
            return self, ()
        kernel: Kernel = bundle.kernel
        placement: Placement = bundle.placement
        graph, trainers = setting.dataset.graph, placement.trainers(setting.platform)
        capacity_bytes, itemsize = (
            min(map(self.capacity_bytes, trainers)),
            setting.workload.itemsize,
        )
        chunks = BlockSize(graph.num_vertices, 0, graph.num_edges // len(trainers))
        size = max(kernel.adjacency_bytes(chunks, layer, itemsize) for layer in setting.layers)
        if size * TOPOLOGY_PART <= capacity_bytes:
            return replace(self, topology="device"), ()
        why = (
            f"chunks' topologies wait on the host and cross with their rows: on a device of "
            f"{format_si(capacity_bytes, 'B')} all would take {format_si(size, 'B')} or more"
        )
        return replace(self, topology="host"), (why,)

    def refuses(self, bundle: Any, setting: Setting) -> str | None:
        if self.topology not in ("auto", "device", "host"):
            return f"memory.topology is {self.topology!r}; it must be auto, device or host."
        if not self.spill_directory().is_dir():
            return f"memory.spill_dir {self.spill_dir!r} is not a directory; name one that exists."
        return None

    def host_capacity_bytes(self, host: Device) -> int:
        if self.host_bytes:
            return min(self.host_bytes, host.hardware.memory_bytes)
        return host.hardware.memory_bytes

    def spill_directory(self) -> Path:
        """Return the directory for vertex data that the host cannot hold."""
        return Path(self.spill_dir or tempfile.gettempdir())


#: The location of tensors, and what is kept, recomputed or offloaded.
Memory = DeviceMemory | LoadingMemory | CacheMemory | OffloadingMemory
