"""Mini-batches whose first layer is shared out by features, and the others by seeds: P3.

Every device has a range of the columns of all feature rows, and the weights' rows for it, so that
no feature ever crosses. A round's blocks of the first layer go to all devices. Each aggregates its
columns for all mini-batches and multiplies them by its rows of W (*push*); these products, of the
hidden width, go to the device that trains the mini-batch, which adds them and goes on from there by
itself (*pull*). Backward, the gradient of the sum goes back to all devices, each of which has the
gradient of its rows of W from it: they are averaged nowhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from gnnbench.lowering.memory import compute_resource
from gnnbench.lowering.mini_batch import MiniBatchLowering
from gnnbench.lowering.rounds import PUSH, PUSH_BACK, TRANSFER, RoundUnderWay
from gnnbench.lowering.unit_passes import Buffers, LayerPass, LayerPlan, Steps
from gnnbench.models import Layer
from gnnbench.parts import Bundle, ColumnPlacement, Setting
from gnnbench.platforms.machine import Device
from gnnbench.program import Buffer, Free, Hold, Item, Ledger, Section, Step, Take
from gnnbench.records import Block, Unit, Work


class FeatureParallelLowering(MiniBatchLowering):
    """Mini-batches with feature-parallel first layers; see the module's docstring.

    ``columns`` are those that a device has, by slot.
    """

    def __init__(self, bundle: Bundle, setting: Setting, layers: tuple[Layer, ...]) -> None:
        super().__init__(bundle, setting, layers)
        self._first = layers[0]
        vertices, width = setting.dataset.graph.num_vertices, setting.dataset.num_features
        if not isinstance(bundle.placement, ColumnPlacement):
            raise TypeError("feature-parallel layers take placements by columns")
        shards = bundle.placement.shard_aggregate(vertices, width, self.platform)
        self.columns = {shard.slot: shard.features for shard in shards}
        #: Of one row of what is pushed.
        self._product_bytes = self._first.product_features * self._itemsize
        # The first layer's weights, of which every device has, and updates, those of its columns.
        sharded = self._first.aggregate_features * self._product_bytes
        self._averaged_bytes -= sharded
        self._stepped_bytes -= sharded - sharded // len(self.trainers)

    def _place_features(self, ledger: Ledger) -> None:
        vertices = self.setting.dataset.graph.num_vertices
        for slot, (begin, end) in self.columns.items():
            size = vertices * (end - begin) * self._itemsize
            ledger.allocate(self.trainers[slot].name, "columns of all features", size)

    def _plan_layers(self, device: Device) -> tuple[LayerPlan, ...]:
        """The first layer is the sum of the products and what follows; every device has a part of
        its arithmetic, which is counted where it is done."""
        first, *others = super()._plan_layers(device)
        width = first.layer.product_features
        first = replace(
            first,
            shape=replace(first.shape, aggregate_features=width),
            edge_work=0,
            row_work=0,
        )
        return (first, *others)

    def _count_aggregated(self, slot: int) -> int:
        """How wide a device's columns are once they are aggregated."""
        begin, end = self.columns[slot]
        return (end - begin) * (self._first.aggregate_features // self._first.in_features)

    def _count_preparers(self) -> int:
        """None: all devices begin with the blocks of all units, and a round ends before the next is
        drawn."""
        return 0

    # ------------------------------------------------------------------ data transfer

    def transfer(self, round_: RoundUnderWay) -> Iterator[Item]:
        """The units' blocks to the devices that train them, and the first ones to all, those that
        another node's host has drawn by way of the device's own."""
        there = {host: Buffer("blocks of other nodes") for host in self.hosts}
        for slot, device in enumerate(self.trainers):
            unit = round_.unit_of(slot)
            size = self.count_topology([u.blocks[0] for u in round_.units if u.slot != slot])
            yield Hold(device.name, _first_blocks(round_), size)
            if unit is not None:
                size += self.count_topology(unit.blocks)
                taken = Take(device.name, {round_.topology: self.count_topology(unit.blocks)})
                round_.held[slot] = [taken]
                yield taken
            round_.arrived[slot] = round_.sampled
            if slot in self.accelerator_slots:
                yield Section(round_.index, (TRANSFER, slot))
                if self.hosts.index(self.hosts[slot]) == slot:
                    yield from self._send_blocks(round_, self.hosts[slot], there[self.hosts[slot]])
                work = Work("copy", bytes=size)
                step = self._send(slot, round_.index, "host to device", work)
                arrived = round_.arrived[slot] = Buffer("blocks on the device")
                step.reads, step.writes = (round_.sampled, there[self.hosts[slot]]), (arrived,)
                step.asked = True
                yield step
                round_.transfer_s = max(round_.transfer_s, step.seconds)

    def _send_blocks(self, round_: RoundUnderWay, host: Device, there: Buffer) -> Iterator[Step]:
        """The first blocks that other hosts have drawn, to this one, once for all its devices."""
        for other in self.platform.hosts:
            drawn = [u for u in round_.units if self.hosts[u.slot] == other != host]
            work = Work("copy", bytes=self.count_topology([unit.blocks[0] for unit in drawn]))
            if drawn:
                label = "first blocks of another node"
                step = self._cross(other, host, round_.index, label, work, "host_to_host")
                step.reads, step.adds = (round_.sampled,), (there,)
                yield step

    # ------------------------------------------------------------------ push, forward

    def begin(self, round_: RoundUnderWay) -> Iterator[Item]:
        """The first layer's products for all units, of all devices' columns."""
        #: By the unit's slot, the sum of its products, and the gradient of that.
        self._products = {unit.slot: Buffer("sum of products") for unit in round_.units}
        self._returned = {unit.slot: Buffer("gradient of the sum") for unit in round_.units}
        self._kept_bytes = dict.fromkeys(self.columns, 0)
        yield Section(round_.index, (PUSH, 0))
        for unit in round_.units:
            yield from self._push(round_, unit)

    def _push(self, round_: RoundUnderWay, unit: Unit) -> Iterator[Item]:
        owner, rows = self.trainers[unit.slot], unit.blocks[0].num_dst
        size = len(self.columns) * rows * self._product_bytes
        yield Hold(owner.name, "partial products", size)
        ready = Buffer("partial products")
        for slot in self.columns:
            yield from self._push_columns(round_, unit, slot, ready)
        step = self._make_step("sum products", (unit.slot,), owner, round_.index, "update")
        step.label, added = "sum of partial products", len(self.columns) - 1
        # Two rows are read and one is written.
        step.work = Work("copy", rows=rows, bytes=3 * added * rows * self._product_bytes)
        step.reads, step.writes = (ready,), (self._products[unit.slot],)
        yield step
        yield Free(owner.name, "partial products")

    def _make_step(
        self,
        op: str,
        operands: tuple[object, ...],
        device: Device,
        index: int,
        half: Literal["aggregate", "update"],
    ) -> Step:
        """A step of the first layer, whose size and buffers are still to be said."""
        held = compute_resource(device, self.platform.host, half)
        step = Step(op, operands, half, op, device.name, held, Work("copy"), 0, index)
        step.device = self.slots[device.name]
        return step

    def _push_columns(
        self, round_: RoundUnderWay, unit: Unit, slot: int, ready: Buffer
    ) -> Iterator[Item]:
        """A device's part of a unit's product, which goes to the unit's device."""
        device, block, index = self.trainers[slot], unit.blocks[0], round_.index
        (begin, end), aggregate = self.columns[slot], Buffer("aggregate of some columns")
        picked = Buffer("some columns of the input rows")
        step = self._make_pick("pick columns", (slot, block), slot, block.num_src, end - begin)
        step.round, step.reads, step.writes = index, (round_.arrived[slot],), (picked,)
        yield Hold(device.name, "some columns of input rows", step.work.bytes)
        yield step
        operands: tuple[object, ...] = (unit.slot, slot, block)
        step = self._make_step("aggregate columns", operands, device, index, "aggregate")
        step.label = "aggregate forward, some columns"
        step.work = self._first.aggregate_work(block, self._itemsize)._replace(features=end - begin)
        step.reads = (picked, *self._over(index - 1))
        step.writes = (aggregate,)
        yield step
        yield Free(device.name, "some columns of input rows")
        self._kept_bytes[slot] += block.num_dst * self._count_aggregated(slot) * self._itemsize
        yield Hold(device.name, _aggregates(round_), self._kept_bytes[slot])
        part = ready if slot == unit.slot else Buffer("partial product")
        step = self._make_product("forward", (unit.slot, slot), slot, block, index)
        step.reads, step.adds = (aggregate,), (part,)
        step.arithmetic = float(block.num_edges * (end - begin) + step.work.macs)
        yield step
        if slot != unit.slot:
            step = self._make_exchange(slot, unit.slot, block.num_dst, index, part, ready)
            step.op, step.operands = "exchange products", (unit.slot, slot)
            yield step

    def _make_product(
        self, way: str, operands: tuple[object, ...], slot: int, block: Block, index: int
    ) -> Step:
        """A product with a device's rows of W, or their gradient."""
        device, width, rows = self.trainers[slot], self._first.product_features, block.num_dst
        step = self._make_step(f"multiply columns {way}", operands, device, index, "update")
        step.label = f"update {way}, some columns"
        step.work = Work(
            "update",
            rows=rows,
            features=width,
            macs=rows * self._count_aggregated(slot) * width,
            itemsize=self._itemsize,
        )
        return step

    def _make_exchange(
        self, source: int, target: int, rows: int, index: int, part: Buffer, there: Buffer
    ) -> Step:
        """Rows of products, or of their gradients, between two devices."""
        size = rows * self._product_bytes
        work = Work("copy", rows=rows, features=self._first.product_features, bytes=size)
        label, trainers = "all-to-all of partial products", self.trainers
        step = self._cross(trainers[source], trainers[target], index, label, work, "all_to_all")
        step.layer, step.source, step.device = 0, source, target
        step.reads, step.adds = (part,), (there,)
        return step

    # ------------------------------------------------------------------ pull

    def _forward_layer(self, each: LayerPass, inputs: Buffers, output: Buffer) -> Steps:
        """From the sum of the products on, in the first layer; the others are the unit's own."""
        if each.plan.number:
            return super()._forward_layer(each, inputs, output)
        step = self._make_half("update product forward", each, self._size_rest(each))
        step.label, step.adds = "update forward", (output,)
        step.reads = (*inputs, self._products[each.key[1]])
        return (step,)

    def _backward_layer(self, each: LayerPass, inputs: Buffers, below: Buffer) -> Steps:
        """Down to the sum of the products, whose gradient all devices need."""
        if each.plan.number:
            return super()._backward_layer(each, inputs, below)
        step = self._make_half("update product backward", each, self._size_rest(each, 2))
        step.label, step.writes = "update backward", (self._returned[each.key[1]],)
        step.reads, step.adds = inputs, (below,)
        return (step,)

    def _size_rest(self, each: LayerPass, gemms: int = 1) -> Work:
        """What UPDATE of the first layer has besides the product."""
        layer, work = each.plan.layer, self._size_update(each)
        macs = layer.macs_per_row - layer.aggregate_features * layer.product_features
        return work._replace(macs=work.rows * macs * gemms)

    # ------------------------------------------------------------------ push, backward

    def synchronise(self, round_: RoundUnderWay) -> Iterator[Item]:
        """Every device has its gradients of the first weight; those of the others are averaged."""
        yield Section(round_.index, (PUSH_BACK, 0))
        for unit in round_.units:
            yield from self._push_back(round_, unit)
        for slot, device in enumerate(self.trainers):
            yield Free(device.name, _first_blocks(round_))
            if slot in self.columns:
                yield Free(device.name, _aggregates(round_))
        yield from super().synchronise(round_)

    def _push_back(self, round_: RoundUnderWay, unit: Unit) -> Iterator[Item]:
        """The gradient of the first weight by one unit's seeds, on all devices."""
        block, index = unit.blocks[0], round_.index
        for slot in self.columns:
            there = self._returned[unit.slot]
            if slot != unit.slot:
                sent, there = there, Buffer("gradient of the sum")
                step = self._make_exchange(unit.slot, slot, block.num_dst, index, sent, there)
                step.op, step.operands = "exchange gradients", (unit.slot, slot)
                yield step
            step = self._make_product("backward", (unit.slot, slot), slot, block, index)
            step.reads, step.adds = (there,), (round_.gradients,)
            yield step


def _first_blocks(round_: RoundUnderWay) -> str:
    """What a device's memory holds of the mini-batches that others train."""
    return f"first blocks of other mini-batches, round {round_.index}"


def _aggregates(round_: RoundUnderWay) -> str:
    """What it keeps of its own columns until the gradient comes."""
    return f"aggregates of some columns, round {round_.index}"
