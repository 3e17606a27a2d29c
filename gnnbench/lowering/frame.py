"""The state that a lowering shares with its stages: parts, layers and devices."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import numpy as np
import torch

from gnnbench.kernels.read_order import BlockOrder
from gnnbench.lowering.homes import Homes
from gnnbench.lowering.rounds import Pipeline, RoundUnderWay, open_pipeline
from gnnbench.machines.machine import Device
from gnnbench.models import Layer
from gnnbench.models.products import keeps_sparse, projected_layers
from gnnbench.parts import (
    Bundle,
    CacheMemory,
    DeviceMemory,
    Kernel,
    LoadingMemory,
    MiniBatchSampler,
    Setting,
    ShardExchange,
    TrafficSession,
)
from gnnbench.parts.sizes import Draws, SizedDraws
from gnnbench.program import Buffer, Counts, Place, Step
from gnnbench.records import (
    Block,
    BlockSize,
    ByteKind,
    CopyWork,
    IntArray,
    Loading,
    ReadOrder,
    RowsWork,
)


def open_traffic(bundle: Bundle, owner: IntArray) -> TrafficSession:
    """Return a session that plans the sources of every round's rows.

    ``owner`` int64 ``(V,)`` is the device index of each vertex. Raises ``TypeError`` for a
    communication part that transfers no rows.
    """
    communication = bundle.communication
    if isinstance(communication, ShardExchange):
        raise TypeError(f"communication {communication.name!r} transfers no rows")
    return communication.open(owner)


class Frame:
    """The parts, layers and devices of a run.

    ``trainers`` are the devices that train, ``slots`` their indices by name, and ``hosts`` the host
    of each trainer. ``homes`` says which host has each vertex. ``shapes`` are the layers' shapes as
    the kernel stores them. ``itemsize`` is in bytes. ``keeps_blocks`` says that every epoch reads
    the same blocks. A reader may set ``deciding``, a context in which parts take decisions. Its
    time belongs to the parts, not to the harness.
    """

    keeps_blocks: bool = False
    deciding: Callable[[], AbstractContextManager[None]] = nullcontext

    def __init__(self, bundle: Bundle, setting: Setting, layers: tuple[Layer, ...]) -> None:
        self.bundle = bundle
        self.setting = setting
        self.layers = layers
        self.platform = setting.platform
        self.trainers = bundle.placement.trainers(setting.platform)
        self.slots = {device.name: slot for slot, device in enumerate(self.trainers)}
        self.hosts = tuple(setting.platform.host_of(device) for device in self.trainers)
        self.homes = Homes.spread(setting.platform, setting.dataset.graph.num_vertices)
        self.itemsize = setting.workload.itemsize
        self.shapes = tuple(bundle.kernel.shape_of(layer.shape) for layer in layers)
        self._expects = type(bundle.kernel).expect is not Kernel.expect
        self._orders: dict[int, BlockOrder] = {}

    @property
    def in_processes(self) -> bool:
        """Whether each trainer is a process on cores of this machine.

        A host that trains alone is one process, and its trainer has the host's threads.
        """
        return all(device.pinned for device in self.trainers) and self.trainers != self.hosts

    def count_topology(self, blocks: Iterable[Block]) -> int:
        """Return the bytes of blocks, as links transfer them and devices store them.

        Edge weights, float32, are included where the model reads them.
        """
        weighted = any(layer.weighted for layer in self.layers)
        return sum(block.topology_bytes + 4 * weighted * block.num_edges for block in blocks)

    def find_order(self, block: Block | BlockSize | None) -> ReadOrder | None:
        """Return the order in which sums over a block read rows, if the block stays."""
        if not (self.keeps_blocks and isinstance(block, Block) and block.lists_edges):
            return None
        if id(block) not in self._orders:
            self._orders[id(block)] = BlockOrder(block)
        return self._orders[id(block)]

    def announce(
        self, block: Block | BlockSize | None, *, backward: bool
    ) -> Callable[[], None] | None:
        """Return the index work of a step that aggregates over a block, if the kernel asks for it.

        It lets the kernel know the block.
        """
        if not (self._expects and isinstance(block, Block)):
            return None
        return partial(self.bundle.kernel.expect, block, backward=backward)

    def cross(
        self,
        source: Device,
        target: Device,
        index: int,
        label: str,
        work: CopyWork | RowsWork,
        kind: ByteKind,
    ) -> Step:
        """Return a transfer in round ``index``, without buffers; its bytes are of a ``kind``."""
        place = self.find_route(source, target)
        counts = Counts(((kind, work.bytes),))
        return Step(None, "transfer", label, place, work, round=index, counts=counts)

    def find_route(self, source: Device, target: Device) -> Place:
        """Return the place of transfers from one device to another."""
        route = self.platform.route(source, target)
        return Place(route.place, route.lanes)


class RoundFrame(Frame):
    """The frame of mini-batch training, with what all stages of a round need to know.

    ``preparers`` is how many threads of a trainer's host draw and load one whole mini-batch each,
    in turn. If it is 0, all threads share each mini-batch. ``resident`` says that features are on
    the devices. ``draws`` makes the mini-batches: the sampler, or sizes in its place. ``stored``
    has the number of stored values of each sparse feature row, or is None.
    ``row_bytes`` is the size of a feature row, ``packed_bytes`` its size on a link, and
    ``picked_bytes`` its size in the host's memory.
    """

    preparers: int = 0

    def __init__(self, bundle: Bundle, setting: Setting, layers: tuple[Layer, ...]) -> None:
        super().__init__(bundle, setting, layers)
        if not isinstance(bundle.sampler, MiniBatchSampler):
            raise TypeError("a mini-batch lowering takes mini-batch samplers")
        self.sampler, self.placement = bundle.sampler, bundle.placement
        self.loader = bundle.sampler.loader()
        sizes, seeds = setting.sizes, setting.workload.batch_size
        self.draws: Draws = bundle.sampler if sizes is None else SizedDraws(sizes, seeds)
        chosen = bundle.memory.loading if isinstance(bundle.memory, LoadingMemory) else None
        self.loading: Loading = chosen or bundle.sampler.loading
        self.host_takes_loss = bundle.placement.host_takes_loss
        self.resident = isinstance(bundle.memory, DeviceMemory)
        memory, features = bundle.memory, setting.dataset.features
        self.replicated = isinstance(memory, LoadingMemory | CacheMemory) and memory.replicated
        projected = projected_layers(bundle, setting)
        sparse = keeps_sparse(bundle, setting, self.trainers, projected) and not self.resident
        self.stored: IntArray | None = None
        if sparse and not isinstance(features, np.ndarray):
            self.stored = np.diff(features.indptr)
        self.prefetch = bundle.prefetch_stages(setting.platform)
        self.pipeline: Pipeline = open_pipeline(self.prefetch)
        host = self.platform.host.name
        self.accelerator_slots = tuple(
            slot for slot, device in enumerate(self.trainers) if device.name != host
        )
        self._set_row_sizes()
        #: By round, the buffer that is written when every trainer has the new model.
        self.ends: list[Buffer] = []

    def _set_row_sizes(self) -> None:
        self.width = self.setting.dataset.num_features
        self.row_bytes = self.packed_bytes = self.width * self.itemsize
        self.rounding = self.bundle.rounding
        self.keeps_packed = False
        if self.rounding is not None:
            single = self.setting.workload.dtype == "float32"
            dtype = torch.float32 if single else torch.float64
            self.packed_bytes = self.rounding.row_bytes(self.width, dtype)
            alone = len(self.accelerator_slots) == len(self.trainers)
            self.keeps_packed = self.rounding.keeps_packed and alone
        self.picked_bytes = self.packed_bytes if self.keeps_packed else self.row_bytes

    @property
    def loads_apart(self) -> bool:
        """Whether each unit's rows are loaded by one thread or by the process that trains it."""
        return bool(self.preparers) or self.in_processes

    def over(self, index: int) -> tuple[Buffer, ...]:
        """Return the buffer that is written at the end of a round, or nothing before the first."""
        return (self.ends[index],) if index >= 0 else ()

    def drawn(self, round_: RoundUnderWay, slot: int) -> Buffer:
        """Return the buffer that is written once a trainer's mini-batch is drawn.

        If all threads share each mini-batch, it is written once all mini-batches are drawn.
        """
        return round_.buffers.drawn[slot] if self.preparers else round_.buffers.sampled

    def host_thread(self, stage: str, host: Device, index: int, slot: int) -> str:
        """Return the resource of a host that a stage of a round occupies.

        It is all of the host's threads together, or the one that prepares the mini-batch of the
        trainer ``slot``.
        """
        if self.preparers and host is self.hosts[slot]:
            return f"{host.name}.prepare {slot}.{index % self.preparers}"
        return f"{host.name}.{stage}"

    def count_threads(self, planned: int) -> int:
        """Return how many of this machine's threads a kernel may use; 0 means all.

        The result is at most what the workload allows. If the host is this machine, it is also at
        most the number ``planned`` for the host.
        """
        allowed = self.setting.workload.threads
        if not planned or self.platform.host.virtual:
            return allowed
        return min(planned, allowed) if allowed else planned

    def send(self, slot: int, index: int, label: str, work: CopyWork | RowsWork) -> Step:
        """Return a transfer to an accelerator from its host, without buffers."""
        host, device = self.hosts[slot], self.trainers[slot]
        step = self.cross(host, device, index, label, work, "host_to_device")
        return step._replace(place=step.place._replace(device=slot))
