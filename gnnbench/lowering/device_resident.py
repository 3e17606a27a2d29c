"""Full-graph training with vertex data on the devices, each of which has a partition's rows.

A device keeps all outputs of its units. Rows that its units read of other devices cross the links
between devices at every layer, and their gradients return (``stages.peers``). A unit with a block
for each layer computes some of these rows itself, from its own rows and from those that it reads
below. If a unit computes all the rows that it reads in a layer, no row of that layer is transferred
or copied. On one device with the whole graph, no layer's rows cross.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from gnnbench.lowering.base import Lowering
from gnnbench.lowering.footprint import size_of, sparse_bytes
from gnnbench.lowering.shards import Progress, ShardPlan, Shards, Staleness
from gnnbench.lowering.stages.changes import Changes, ReadChange
from gnnbench.lowering.stages.chunking import Chunking
from gnnbench.lowering.stages.halo import SampledHalo
from gnnbench.lowering.stages.peers import Crossing, Peers
from gnnbench.lowering.stages.shard_memory import ShardMemory, name_kept
from gnnbench.lowering.stages.swapping import Swapping
from gnnbench.lowering.stages.unit_passes import UnitPasses
from gnnbench.models import Layer
from gnnbench.models.products import keeps_sparse, projected_layers
from gnnbench.parts import Bundle, HaloExchange, Session, Setting
from gnnbench.program import Access, Buffer, Free, Hold, Item, Ledger, Place, Step
from gnnbench.records import AggregateWork, CopyWork, PartKind, ProductSize

#: The name in a ledger of chunks' topologies that stay on a device.
TOPOLOGIES = "chunk topologies"


class TakeLoss(NamedTuple):
    """The loss of a device's own training vertices, and the gradients of its logits."""

    slot: int


class ClearGradients(NamedTuple):
    """The clearing of a device's gradients of a layer's input."""

    layer: int
    slot: int


class DeviceResidentLowering(Lowering):
    """The lowering of full-graph training with everything of a partition on its device.

    ``cut`` are the shards of a partitioned graph, with their rows. ``now`` is the position in an
    epoch. ``halo`` draws halos where they are sampled. A reader that computes sets ``read_change``
    before ``prepare``.
    """

    cut: ShardPlan
    now: Progress
    halo: SampledHalo | None = None
    read_change: ReadChange | None = None

    def __init__(self, bundle: Bundle, setting: Setting, layers: tuple[Layer, ...]) -> None:
        super().__init__(bundle, setting, layers)
        self._chunking = Chunking(self.frame, TOPOLOGIES)
        self._passes = UnitPasses(self.frame, self._size_products)

    # ------------------------------------------------------------------ preparation

    def prepare(self, ledger: Ledger) -> None:
        """Partition, plan the traffic, and place what stays for the whole run."""
        cut, traffic = self._chunking.cut(ledger)
        self.cut_notes, one = cut.notes, self.bundle.communication
        self.cut = ShardPlan(
            cut,
            traffic,
            self.setting.dataset.train_mask,
            len(self.trainers),
            broadcasts=isinstance(one, HaloExchange) and one.broadcasts,
            keep=self.setting.keep,
        )
        exchange = self.bundle.halo_sampling(self.platform)
        if exchange is not None:
            self.halo = SampledHalo(exchange, self.cut, self.setting.workload.seed)
        self.lay_out(ledger, self.cut)

    def lay_out(self, ledger: Ledger, shards: Shards) -> None:
        """Train on ``shards``, which may be sizes alone, and place what stays for the whole run.

        Each device holds its topologies, the features of its partition and all outputs of its
        units. The units' sizes change in every epoch if halos are drawn.
        """
        frame, self.whole = self.frame, shards.whole
        frame.keeps_blocks = self.halo is None
        now = self.now = Progress(shards, Staleness(self.bundle.communication))
        self._memory = ShardMemory(frame, now)
        self._changes = Changes(frame, now, self.read_change)
        self._peers = Peers(frame, now, self._changes, self.halo)
        self._swapping = Swapping(frame, now, self._memory)
        drawn = self.bundle.halo_sampling(self.platform) is not None
        if drawn and self.halo is None:
            raise TypeError("halos are drawn of rows, and these are sizes alone")
        swaps = self.bundle.swaps
        units = () if drawn else shards.units
        chunks = ((unit.slot, size_of(block)) for unit in units for block in unit.topologies)
        self._chunking.place(ledger, chunks)
        for slot, device in enumerate(self.trainers):
            size = self._count_feature_bytes(slot)
            ledger.allocate(device.name, "vertex features on the device", size)
            if self.halo is not None:
                size = frame.count_topology(self.halo.whole_blocks_of(slot))
                ledger.allocate(device.name, "graph that halos are drawn of", size)
            elif not swaps:
                ledger.allocate_all(device.name, tuple(self._size_kept(slot)))
            if not shards.undivided:
                self._memory.place_for_peers(ledger, slot)
                self._changes.place(ledger, slot)
        self._swapping.plan_swaps(ledger)
        for slot, device in enumerate(self.trainers if swaps else ()):
            ledger.allocate_all(device.name, tuple(self._size_kept(slot)))

    @property
    def shards(self) -> Shards:
        """The rows of each device in the current epoch."""
        return self.now.shards

    @property
    def staleness(self) -> Staleness:
        """The rule that says which rows and gradients may be stale."""
        return self.now.staleness

    @property
    def swaps(self) -> Mapping[int, Mapping[int, int]]:
        """By slot and layer, the bytes of intermediates that cross in one direction."""
        return self._swapping.swaps

    def scale_of(self, crossing: Crossing) -> float:
        """Return the factor of rows that cross, and of their gradients."""
        return self._peers.scale_of(crossing)

    def sessions(self) -> Mapping[PartKind, Session]:
        """Return what the communication part has opened for this run."""
        return {"communication": self._chunking.traffic}

    def notes(self) -> tuple[str, ...]:
        """Return what stays on disk, and how often rows had changed by too little to cross."""
        return (*super().notes(), *self._changes.notes())

    def _size_kept(self, slot: int) -> Iterator[tuple[str, int]]:
        """Yield the names and bytes of the intermediates that stay on a device for backward."""
        away = self.swaps.get(slot, {})
        for number in range(len(self.layers)):
            if number not in away:
                yield name_kept(number), self._memory.count_kept(slot, number)
            yield from self._memory.list_masks(slot, number)

    def _hold_drawn(self) -> tuple[Hold, ...]:
        """Return the holds on devices for the units that were drawn in one epoch."""
        holds = []
        for slot, device in enumerate(self.trainers):
            chunks = self._memory.chunks_of(slot, 0)
            topology = sum(map(self._chunking.adjacency_bytes, chunks))
            sizes = ((TOPOLOGIES, topology), *self._size_kept(slot))
            holds += [Hold(device.name, name, size) for name, size in sizes]
        return tuple(holds)

    @property
    def sparse(self) -> bool:
        """Whether the features stay in sparse rows, in their stored form."""
        projected = projected_layers(self.bundle, self.setting)
        alone = self.shards.undivided
        return alone and keeps_sparse(self.bundle, self.setting, self.trainers, projected)

    def _size_products(self, number: int, work: AggregateWork) -> AggregateWork:
        """Return the size of AGGREGATE that multiplies only the stored values of features."""
        features = self.setting.dataset.features
        if number or not self.sparse or isinstance(features, np.ndarray):
            return work
        rows, width = features.shape
        macs = work.macs * features.nnz // (rows * width)
        return work._replace(product=ProductSize(macs, columns=width))

    def _count_feature_bytes(self, slot: int) -> int:
        features, count = self.setting.dataset.features, self.shards.count_rows(slot, 0)
        if self.sparse and not isinstance(features, np.ndarray):
            return int(sparse_bytes(count, features.nnz, self.frame.itemsize))
        return count * self.layers[0].in_features * self.frame.itemsize

    # ------------------------------------------------------------------ one epoch

    @property
    def steady(self) -> bool:
        """Whether every epoch is the same program: no halos are drawn, and nothing is stale."""
        return self.halo is None and not self.bundle.stale

    def run_epoch(self, epoch: int) -> Iterator[Item]:
        """Yield all layers forward, the loss, all layers backward, and the update."""
        self.now.epoch, self.now.round, self.now.meeting = epoch, 0, Buffer("start")
        held: tuple[Hold, ...] = ()
        if self.halo is not None:
            yield from self._peers.draw_halos(self.halo)
            held = self._hold_drawn()
            yield from held
        rows = self._open("features")
        for number in range(len(self.layers)):
            outputs = self._open(f"rows of layer {number + 1}")
            yield from self._forward_layer(number, rows, outputs)
            rows = outputs
        gradients = self._open("gradients of the logits")
        yield from self._take_loss(rows, gradients)
        for number in reversed(range(len(self.layers))):
            below = self._open(f"gradients of layer {number}")
            yield from self._backward_layer(number, gradients, below)
            gradients = below
        yield from self._free(held)
        yield from self.reduction.synchronise(self.now.meeting, self.now.round)

    def _open(self, name: str) -> list[Buffer]:
        return [Buffer(name) for _ in self.trainers]

    # ------------------------------------------------------------------ forward

    def _forward_layer(
        self, number: int, rows: list[Buffer], outputs: list[Buffer]
    ) -> Iterator[Item]:
        yield from self._changes.measure(number, rows)
        yield from self._swapping.hold_kept(number)
        for index, units in enumerate(self.now.shards.rounds):
            self.now.round = index
            arrived, inputs = Buffer("rows have arrived"), {}
            for unit in units:
                into = inputs[unit.slot] = rows[unit.slot]
                if self.now.shards.crosses(number):
                    into = inputs[unit.slot] = Buffer("input rows")
                    yield from self._peers.read_shards(number, unit, rows, into, arrived)
            after = Buffer("round is over")
            for unit in units:
                holds = self._memory.hold_unit(number, unit, backward=False)
                yield from holds
                key, output = (number, index, unit.slot), outputs[unit.slot]
                ready = (inputs[unit.slot], arrived, self.now.meeting)
                block, count = unit.block_at(number), unit.blocks[0].num_src
                steps = self._passes.forward(key, block, ready, (output, after), count)
                yield from self._peers.see_blocks(steps, first=number == 0)
                yield from self._free(holds)
            if units:
                self.now.meeting = after
        yield from self._swapping.let_rows_go(number)
        yield from self._swapping.swap_out(number)

    @staticmethod
    def _free(holds: tuple[Hold, ...]) -> Iterator[Free]:
        for hold in holds:
            yield Free(hold.memory, hold.tensor)

    # ------------------------------------------------------------------ loss and backward

    def _take_loss(self, logits: list[Buffer], gradients: list[Buffer]) -> Iterator[Step]:
        """Yield the mean cross entropy over the training vertices, a step for each device's own."""
        after = Buffer("loss is known")
        for slot, device in enumerate(self.trainers):
            width = self.layers[-1].shape.out_features
            size = self.now.shards.num_owned[slot] * width * self.frame.itemsize
            yield Step(
                TakeLoss(slot),
                "update",
                "loss",
                Place(device.name, (device.name,), slot),
                CopyWork(2 * size, self.now.shards.num_train[slot], loss=True),
                len(self.layers),
                self.now.round,
                access=Access((logits[slot], self.now.meeting), (gradients[slot],), (after,)),
            )
        self.now.meeting = after

    def _backward_layer(
        self, number: int, gradients: list[Buffer], below: list[Buffer]
    ) -> Iterator[Item]:
        returns = number > 0 and self.now.shards.crosses(number)
        yield from self._swapping.swap_in(number)
        if returns:
            yield from self._clear_shards(number, below)
        for index, units in enumerate(self.now.shards.rounds):
            self.now.round = index
            after = Buffer("round is over")
            for unit in units:
                key, rows = (number, index, unit.slot), below[unit.slot]
                if returns:
                    rows = Buffer("gradients of the input rows")
                holds = self._memory.hold_unit(number, unit, backward=True)
                yield from holds
                ready = (gradients[unit.slot], self.now.meeting)
                steps = self._passes.backward(key, unit.block_at(number), ready, (rows, after))
                yield from self._peers.see_blocks(steps, first=number == len(self.layers) - 1)
                if returns:
                    yield from self._peers.return_to_shards(number, unit, rows, below, after)
                yield from self._free(holds)
            if units:
                self.now.meeting = after
        yield from self._swapping.free_kept(number)

    def _clear_shards(self, number: int, below: list[Buffer]) -> Iterator[Step]:
        """Yield the steps that set the gradients of a layer's input to zero."""
        after, width = Buffer("gradients are clear"), self.layers[number].in_features
        for slot, device in enumerate(self.trainers):
            count = self.now.shards.count_rows(slot, number)
            yield Step(
                ClearGradients(number, slot),
                "aggregate",
                "clear gradients",
                Place(device.name, (device.name,), slot),
                CopyWork(count * width * self.frame.itemsize, count),
                number,
                self.now.round,
                access=Access((self.now.meeting,), (below[slot],), (after,)),
            )
        self.now.meeting = after
