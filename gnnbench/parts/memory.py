"""Memories: where tensors live, what is kept, recomputed or offloaded."""

from __future__ import annotations

import tempfile
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from gnnbench.parts.base import LayerShape, OfFullGraphs, OfMiniBatches, Part, Session, Setting
from gnnbench.parts.options import option
from gnnbench.platforms.machine import Device
from gnnbench.records import BlockSize, BoolArray, IntArray, PartKind
from gnnbench.units import format_si

if TYPE_CHECKING:
    from gnnbench.parts.bundle import Bundle


#: What becomes of a layer's intermediate results between forward and backward.
Intermediates = Literal["cache", "keep", "offload", "recompute"]


@dataclass(frozen=True)
class Memory(Part):
    """Where tensors live, what is kept, recomputed or offloaded. Subclass one of the kinds below.

    ``device_bytes`` caps every accelerator's (or lone device's) memory below the platform's own.
    """

    kind: ClassVar[PartKind] = "memory"
    device_bytes: int = option(0, "cap on each device's memory; 0 = the platform's", unit="bytes")

    def capacity_bytes(self, device: Device) -> int:
        """How much of a device's memory a run may hold."""
        if self.device_bytes:
            return min(self.device_bytes, device.memory_bytes)
        return device.memory_bytes

    def host_capacity_bytes(self, host: Device) -> int:
        """How much of the host's memory a run may hold."""
        return host.memory_bytes


@dataclass(frozen=True)
class DeviceMemory(Memory):
    """Features, representations, gradients and intermediates all stay on the devices.

    Where several devices train a full graph, each has those of its partition.
    """


@dataclass(frozen=True)
class SwappingMemory(OfFullGraphs, DeviceMemory):
    """Vertex data stays on the devices, and what layers keep for their backward pass waits on the
    host, of those layers for which a device has no room."""

    @abstractmethod
    def choose_swapped(
        self, kept: Sequence[int], working: Sequence[int], rows: Sequence[int], free_bytes: int
    ) -> frozenset[int]:
        """The layers, from 0, whose intermediates a device sends to the host after their forward
        pass and has back for their backward pass.

        By layer ``kept`` are the bytes that these take on the device, and ``working`` what it holds
        besides while it works on the layer. Of a layer that is swapped the output, ``rows`` bytes,
        stays until the next layer has read it. ``free_bytes`` are there for all of these. The last
        layer cannot be swapped, since its backward pass follows its forward pass.
        """

    def refuses(self, bundle: Bundle, setting: Setting) -> str | None:
        communication = bundle.communication
        if bundle.stale or bundle.halo_sampling(setting.platform) is not None:
            return (
                f"memory {self.name!r} swaps what layers keep from forward to backward, and "
                f"communication {communication.name!r} keeps rows of peers over epochs or draws "
                f"them anew; choose communication 'halo', or memory 'resident'."
            )
        return super().refuses(bundle, setting)


@dataclass(frozen=True)
class LoadingMemory(OfMiniBatches, Memory):
    """Features stay in host memory; a mini-batch's rows visit the device while it trains."""

    #: Whether every host of a machine of several has all features, so that none of them crosses the
    #: network; otherwise each has those of the vertices that are at home there.
    replicated: ClassVar[bool] = False


@dataclass(frozen=True, slots=True, eq=False)
class Turnover:
    """What changes in a cache: rows that it takes in, and others that make room for them; distinct
    ids, int64."""

    admitted: IntArray
    evicted: IntArray


class CacheSession(Session):
    """The feature rows that accelerators have copies of in a run, by slot: those of ``kept`` from
    the start, and at most ``num_rows``, which is as many where nothing else is said.

    As it is, the cache stays as it was filled. A dynamic one replaces ``turn_over``.
    """

    def __init__(
        self, kept: Mapping[int, IntArray], num_rows: Mapping[int, int] | None = None
    ) -> None:
        self.kept = kept
        self.num_rows = num_rows or {slot: len(ids) for slot, ids in kept.items()}

    @classmethod
    def of_hottest(cls, heat: IntArray, num_rows: Mapping[int, int]) -> CacheSession:
        """A static cache of the vertices of the greatest ``heat``, ``(V,)``, as many as each slot
        has room for; of equals those of the lowest ids."""
        hottest = np.argsort(-heat, kind="stable")
        return CacheSession({slot: hottest[:count] for slot, count in num_rows.items()})

    def turn_over(self, slot: int, asked: IntArray, found: BoolArray) -> Turnover | None:
        """What changes in the cache of ``slot`` after a round; None for nothing.

        ``asked`` are the vertices whose rows the device reads in the round, ascending, and
        ``found`` says which of them the cache has. Only rows that were asked for and not found can
        be admitted, since these are on the device then. Rounds come in their order, and whoever
        prefetches plans them before earlier ones are computed: what is said here holds from the
        next round on.
        """
        return None


@dataclass(frozen=True)
class CacheMemory(LoadingMemory):
    """Features on the host, and on every accelerator a cache of feature rows, static or dynamic.

    Rows that are found there are neither loaded nor transferred.
    """

    cache_bytes: int = option(
        0, "size of each device's cache; 0 = what mini-batches leave free", unit="bytes"
    )

    @abstractmethod
    def open(self, setting: Setting, num_rows: Mapping[int, int]) -> CacheSession:
        """Plan the caches of a run; ``num_rows`` is how many rows there is room for, by slot."""

    def count_rows(self, setting: Setting, free_bytes: int, mini_batch_bytes: int) -> int:
        """How many rows a device has room for, of whose memory ``free_bytes`` are left, where
        mini-batches take at most ``mini_batch_bytes``."""
        size_bytes = self.cache_bytes or max(0, free_bytes - mini_batch_bytes)
        return size_bytes // (setting.dataset.num_features * setting.workload.itemsize)

    def refuses(self, bundle: Bundle, setting: Setting) -> str | None:
        if bundle.shares_rows:
            return (
                f"memory {self.name!r} caches rows on the devices, and communication "
                f"{bundle.communication.name!r} keeps others from round to round; choose "
                f"communication 'vanilla' or 'hyscale', or memory 'host'."
            )
        return None


@dataclass(frozen=True)
class PreSampledCache(CacheMemory):
    """A cache that is filled by what mini-batches read which are drawn before the run, as those
    that are trained on will be, in epochs of their own."""

    @property
    @abstractmethod
    def sampled_epochs(self) -> int:
        """How many epochs are drawn; 0 where an option has none, and ``open`` plans the caches."""

    @abstractmethod
    def open_sampled(
        self, setting: Setting, num_rows: Mapping[int, int], drawn: IntArray
    ) -> CacheSession:
        """Plan the caches as ``open`` does; ``drawn`` is how many of those mini-batches read the
        row of each vertex, int64 ``(V,)``."""


#: One in so many of a device's bytes may go to topologies that wait there between their turns.
TOPOLOGY_PART = 8


@dataclass(frozen=True)
class OffloadingMemory(OfFullGraphs, Memory):
    """Vertex data of the whole graph on the host within a budget, and on its disk beyond that.

    What goes to disk is chosen once for a run, :func:`gnnbench.footprint.choose_spilled`.
    """

    host_bytes: int = option(0, "cap on the host's memory; 0 = the platform's", unit="bytes")
    spill_dir: str = option("", "directory for what outgrows the host; empty = the system's")
    topology: str = option(
        "auto", "where chunks' topologies wait: device, host, or auto: device if it has room enough"
    )

    @abstractmethod
    def intermediates(self, layer: LayerShape) -> Intermediates:
        """What happens to a layer's intermediate results between forward and backward: the
        aggregate cached on the host, all of them moved there (``offload``), all kept on the device
        that made them, or everything recomputed. Only a layer that is ``cacheable`` may be cached,
        and only one that is not may be offloaded."""

    def streams_topology(self) -> bool:
        """Whether a chunk's topology waits on the host and crosses with its vertex data, in place
        of staying on the device for the whole run; once settled."""
        return self.topology == "host"

    def settle(self, bundle: Bundle, setting: Setting) -> tuple[Part, tuple[str, ...]]:
        """The same with where topologies wait, if that is left open: on a device that has room for
        those of all its chunks in a small part of its memory; else on the host."""
        if self.topology != "auto":
            return self, ()
        graph, trainers = setting.dataset.graph, bundle.placement.trainers(setting.platform)
        capacity_bytes, itemsize = (
            min(map(self.capacity_bytes, trainers)),
            setting.workload.itemsize,
        )
        chunks = BlockSize(graph.num_vertices, 0, graph.num_edges // len(trainers))
        size = max(
            bundle.kernel.adjacency_bytes(chunks, layer, itemsize) for layer in setting.layers
        )
        if size * TOPOLOGY_PART <= capacity_bytes:
            return replace(self, topology="device"), ()
        why = (
            f"chunks' topologies wait on the host and cross with their rows: on a device of "
            f"{format_si(capacity_bytes, 'B')} all would take {format_si(size, 'B')} or more"
        )
        return replace(self, topology="host"), (why,)

    def refuses(self, bundle: Bundle, setting: Setting) -> str | None:
        if self.topology not in ("auto", "device", "host"):
            return f"memory.topology is {self.topology!r}; it must be auto, device or host."
        if not self.spill_directory().is_dir():
            return f"memory.spill_dir {self.spill_dir!r} is not a directory; name one that exists."
        return None

    def host_capacity_bytes(self, host: Device) -> int:
        if self.host_bytes:
            return min(self.host_bytes, host.memory_bytes)
        return host.memory_bytes

    def spill_directory(self) -> Path:
        """Where vertex data goes that the host cannot hold."""
        return Path(self.spill_dir or tempfile.gettempdir())
