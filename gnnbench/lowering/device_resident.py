"""Full-graph training whose vertex data lives on the devices, a partition's rows on each.

A device keeps all that its own units make. What they read of others' rows crosses the links between
devices, and gradients go back (``peer_rows``): at every layer. Or, where a unit has a block for
each layer, it computes some of them itself, out of its own rows and of those that it reads below;
of a layer for which it computes all that it reads, nothing crosses, is copied or goes back. One
device that has the whole graph is the case in which no layer's rows do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from gnnbench.footprint import (
    ChunkSize,
    in_flight_bytes,
    mask_bytes,
    size_of,
    sparse_bytes,
)
from gnnbench.lowering.sampled_halo import SampledHalo
from gnnbench.lowering.shards import ShardPlan, Shards, ShardUnit, Staleness
from gnnbench.lowering.swapping import Swapping, name_kept
from gnnbench.models.products import keeps_sparse, projected_layers
from gnnbench.parts import Broadcast, Chunks, SwappingMemory
from gnnbench.program import Buffer, Free, Hold, Item, Ledger, Step
from gnnbench.records import RoundTraffic, Work


class DeviceResidentLowering(Swapping):
    """Everything of a partition on its device; see the module's docstring.

    ``cut`` are the shards of a graph that is partitioned, with the rows that are in them.
    """

    cut: ShardPlan

    # ------------------------------------------------------------------ preparation

    def _adopt(self, ledger: Ledger, cut: Chunks, traffic: Sequence[RoundTraffic]) -> None:
        self.cut = ShardPlan(
            cut,
            traffic,
            self.setting.dataset.train_mask,
            len(self.trainers),
            broadcasts=isinstance(self.bundle.communication, Broadcast),
        )
        exchange = self.bundle.halo_sampling(self.platform)
        if exchange is not None:
            self.halo = SampledHalo(exchange, self.cut, self.setting.workload.seed)
        self.lay_out(ledger, self.cut)

    def lay_out(self, ledger: Ledger, shards: Shards) -> None:
        """Train on ``shards``, which may be sizes alone. Each device holds its topologies, the
        features of its partition and all that its own units make; where halos are drawn, the last
        is another size in every epoch."""
        self.shards, self.whole, self.swaps = shards, shards.whole, {}
        self.staleness = Staleness(self.bundle.communication)
        self._prepare_changes()
        drawn = self.bundle.halo_sampling(self.platform) is not None
        if drawn and self.halo is None:
            raise TypeError("halos are drawn of rows, and these are sizes alone")
        swaps = isinstance(self.bundle.memory, SwappingMemory)
        units = () if drawn else shards.units
        chunks = ((unit.slot, size_of(block)) for unit in units for block in unit.topologies)
        self._place_on_devices(ledger, chunks)
        for slot, device in enumerate(self.trainers):
            size = self._count_feature_bytes(slot)
            ledger.allocate(device.name, "vertex features on the device", size)
            if self.halo is not None:
                size = self.frame.count_topology(self.halo.whole_blocks_of(slot))
                ledger.allocate(device.name, "graph that halos are drawn of", size)
            elif not swaps:
                ledger.allocate_all(device.name, tuple(self._size_kept(slot)))
            if not shards.undivided:
                self._place_for_peers(ledger, slot)
        self._plan_swaps(ledger)
        for slot, device in enumerate(self.trainers if swaps else ()):
            ledger.allocate_all(device.name, tuple(self._size_kept(slot)))

    def _size_kept(self, slot: int) -> Iterator[tuple[str, int]]:
        """What a device keeps of each layer from forward to backward, and has there all the time:
        names and bytes."""
        away = self.swaps.get(slot, {})
        for number, shape in enumerate(self._shapes):
            if number not in away:
                yield name_kept(number), self._count_kept(slot, number)
            if self.layers[number].masks_below:
                chunks = self._chunks_of(slot, number)
                size = sum(mask_bytes(chunk.rows, shape.in_features) for chunk in chunks)
                yield f"mask of layer {number + 1}'s input", size

    def _hold_drawn(self) -> tuple[Hold, ...]:
        """What devices hold of the units that they have in one epoch alone."""
        holds = []
        for slot, device in enumerate(self.trainers):
            topology = sum(self._adjacency_bytes(chunk) for chunk in self._chunks_of(slot, 0))
            sizes = ((self._topologies, topology), *self._size_kept(slot))
            holds += [Hold(device.name, name, size) for name, size in sizes]
        return tuple(holds)

    @property
    def sparse(self) -> bool:
        """Whether the features stay as they are stored, in sparse rows."""
        projected = projected_layers(self.bundle, self.setting)
        alone = self.shards.undivided
        return alone and keeps_sparse(self.bundle, self.setting, self.trainers, projected)

    def _size_products(self, number: int, work: Work) -> Work:
        """Of sparse features the stored values alone are multiplied."""
        features = self.setting.dataset.features
        if number or not self.sparse or isinstance(features, np.ndarray):
            return work
        rows, width = features.shape
        return work._replace(macs=work.macs * features.nnz // (rows * width), columns=width)

    def _count_feature_bytes(self, slot: int) -> int:
        features, count = self.setting.dataset.features, self.shards.count_rows(slot, 0)
        if self.sparse and not isinstance(features, np.ndarray):
            return int(sparse_bytes(count, features.nnz, self._itemsize))
        return count * self.layers[0].in_features * self._itemsize

    def _place_for_peers(self, ledger: Ledger, slot: int) -> None:
        """What a device holds, besides its shard, for rows that cross and for those that did."""
        name, shapes, item = self.trainers[slot].name, self._shapes, self._itemsize
        crossing = [number for number in range(len(shapes)) if self.shards.crosses(number)]
        widest = max((shapes[number].in_features for number in crossing), default=0)
        if count := self.shards.broadcast_rows:
            ledger.allocate(name, "broadcast rows", count * widest * item)
        if self.staleness.keeps("rows"):
            # The input rows of other layers are kept for the backward pass anyway.
            size = sum(
                chunk.num_src * shapes[number].in_features * item
                for number in crossing
                if shapes[number].cacheable
                for chunk in self._chunks_of(slot, number)
            )
            ledger.allocate(name, "stale rows", size)
        if self.staleness.keeps("gradients"):
            size = sum(
                self.shards.count_read_by_peers(slot, number) * shapes[number].in_features * item
                for number in crossing
                if number
            )
            ledger.allocate(name, "stale gradients", size)
        if self.staleness.delay:
            ledger.allocate(name, "rows under way", 0)
        self._place_sent(ledger, slot)

    def _chunks_of(self, slot: int, number: int) -> list[ChunkSize]:
        """The sizes of a device's blocks in one layer."""
        units = [unit for unit in self.shards.units if unit.slot == slot]
        return [size_of(unit.block_at(number)) for unit in units]

    # ------------------------------------------------------------------ one epoch

    @property
    def keeps_blocks(self) -> bool:
        """Unless halos are drawn."""
        return self.halo is None

    @property
    def steady(self) -> bool:
        """Unless halos are drawn, or rows or gradients may be stale."""
        return self.keeps_blocks and not self.bundle.stale

    def run_epoch(self, epoch: int) -> Iterator[Item]:
        """All layers forward, the loss, all layers backward, and the update."""
        self._epoch, self._round = epoch, 0
        #: After it all devices go on together; and the shards of a layer's rows, by slot.
        self._meeting = Buffer("start")
        held: tuple[Hold, ...] = ()
        if self.halo is not None:
            yield from self._draw_halos(self.halo)
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
        yield from self.reduction.synchronise(self._meeting, self._round)

    def _open(self, name: str) -> list[Buffer]:
        return [Buffer(name) for _ in self.trainers]

    # ------------------------------------------------------------------ forward

    def _forward_layer(
        self, number: int, rows: list[Buffer], outputs: list[Buffer]
    ) -> Iterator[Item]:
        yield from self._measure_changes(number, rows)
        yield from self._hold_kept(number)
        for index, units in enumerate(self.shards.rounds):
            self._round = index
            arrived, inputs = Buffer("rows have arrived"), {}
            for unit in units:
                into = inputs[unit.slot] = rows[unit.slot]
                if self.shards.crosses(number):
                    into = inputs[unit.slot] = Buffer("input rows")
                    yield from self._read_shards(number, unit, rows, into, arrived)
            after = Buffer("round is over")
            for unit in units:
                holds = self._hold_unit(number, unit, backward=False)
                yield from holds
                key, output = (number, index, unit.slot), outputs[unit.slot]
                ready = (inputs[unit.slot], arrived, self._meeting)
                block, count = unit.block_at(number), unit.blocks[0].num_src
                steps = self._forward_unit(key, block, ready, (output, after), count)
                yield from self._see_blocks(steps, first=number == 0)
                yield from self._free(holds)
            if units:
                self._meeting = after
        yield from self._let_rows_go(number)
        yield from self._swap_out(number)

    # ------------------------------------------------------------------ memory of one unit

    def _hold_unit(self, number: int, unit: ShardUnit, *, backward: bool) -> tuple[Hold, ...]:
        """What one unit of one layer takes on its device while it is worked on."""
        copied = self.shards.crosses(number)
        if not backward and copied and self.staleness.keeps("rows"):
            return ()
        slot, count = unit.slot, self.shards.count_rows
        size = in_flight_bytes(
            self._shapes[number],
            size_of(unit.block_at(number)),
            (count(slot, number + 1), count(slot, number)),
            self._itemsize,
            backward=backward,
            first=number == 0,
            copied=copied,
        )
        return (Hold(self.trainers[slot].name, "rows and gradients in flight", size),)

    @staticmethod
    def _free(holds: tuple[Hold, ...]) -> Iterator[Free]:
        for hold in holds:
            yield Free(hold.memory, hold.tensor)

    # ------------------------------------------------------------------ loss and backward

    def _take_loss(self, logits: list[Buffer], gradients: list[Buffer]) -> Iterator[Step]:
        """Mean cross entropy over the training vertices, each device's own."""
        after = Buffer("loss is known")
        for slot, device in enumerate(self.trainers):
            width = self.layers[-1].shape.out_features
            size = self.shards.num_owned[slot] * width * self._itemsize
            yield Step(
                "loss",
                (slot,),
                "update",
                "loss",
                device.name,
                (device.name,),
                Work("copy", rows=self.shards.num_train[slot], bytes=2 * size, form="loss"),
                len(self.layers),
                self._round,
                (logits[slot], self._meeting),
                (gradients[slot],),
                (after,),
                device=slot,
            )
        self._meeting = after

    def _backward_layer(
        self, number: int, gradients: list[Buffer], below: list[Buffer]
    ) -> Iterator[Item]:
        returns = number > 0 and self.shards.crosses(number)
        yield from self._swap_in(number)
        if returns:
            yield from self._clear_shards(number, below)
        for index, units in enumerate(self.shards.rounds):
            self._round = index
            after = Buffer("round is over")
            for unit in units:
                key, rows = (number, index, unit.slot), below[unit.slot]
                if returns:
                    rows = Buffer("gradients of the input rows")
                holds = self._hold_unit(number, unit, backward=True)
                yield from holds
                ready = (gradients[unit.slot], self._meeting)
                steps = self._backward_unit(key, unit.block_at(number), ready, (rows, after))
                yield from self._see_blocks(steps, first=number == len(self.layers) - 1)
                if returns:
                    yield from self._return_to_shards(number, unit, rows, below, after)
                yield from self._free(holds)
            if units:
                self._meeting = after
        yield from self._free_kept(number)

    def _clear_shards(self, number: int, below: list[Buffer]) -> Iterator[Step]:
        """The layer's input gradients, zero."""
        after, width = Buffer("gradients are clear"), self.layers[number].in_features
        for slot, device in enumerate(self.trainers):
            count = self.shards.count_rows(slot, number)
            yield Step(
                "clear gradients",
                (number, slot),
                "aggregate",
                "clear gradients",
                device.name,
                (device.name,),
                Work("copy", rows=count, bytes=count * width * self._itemsize),
                number,
                self._round,
                (self._meeting,),
                (below[slot],),
                (after,),
                device=slot,
            )
        self._meeting = after
