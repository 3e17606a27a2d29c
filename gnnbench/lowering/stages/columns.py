"""A first layer that devices share out by features, as in P3; other layers go by seeds.

Every device has a range of the columns of all feature rows, and the weights' rows for it, so that
no feature is transferred. All devices receive a round's blocks of the first layer. Each aggregates
its columns for all mini-batches and multiplies them by its rows of W (*push*). These products, of
the hidden width, go to the device that trains the mini-batch, which adds them and computes the
other layers (*pull*). Backward, the gradient of the sum goes back to all devices. Each computes
the gradient of its rows of W from it; these gradients are averaged nowhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from gnnbench.lowering.frame import RoundFrame
from gnnbench.lowering.memory import compute_resource
from gnnbench.lowering.rounds import PUSH, PUSH_BACK, TRANSFER, RoundUnderWay
from gnnbench.lowering.stages.propagation import (
    Buffers,
    LayerPass,
    LayerPlan,
    LayerSteps,
    make_half,
    size_update,
)
from gnnbench.lowering.stages.transfer import make_pick
from gnnbench.machines.machine import Device
from gnnbench.program import Buffer, Free, Hold, Item, Ledger, Section, Step, Take
from gnnbench.records import Block, Unit, Work


class Columns:
    """The first layer of all units of a round, on all devices.

    ``ranges`` are the columns of each device, by slot. ``weight_bytes`` is the size of the first
    layer's weight, and ``own_weight_bytes`` the size of one device's rows of it.
    """

    def __init__(self, frame: RoundFrame) -> None:
        self._frame = frame
        self._first = frame.layers[0]
        vertices, width = frame.setting.dataset.graph.num_vertices, frame.width
        if not frame.bundle.by_features:
            raise TypeError("feature-parallel layers take placements by columns")
        shards = frame.bundle.placement.shard_aggregate(vertices, width, frame.platform)
        self.ranges = {shard.slot: shard.features for shard in shards}
        #: Bytes of one row of the products that are pushed.
        self._product_bytes = self._first.product_features * frame.itemsize
        self.weight_bytes = self._first.aggregate_features * self._product_bytes
        self.own_weight_bytes = self.weight_bytes // len(frame.trainers)

    def place_features(self, ledger: Ledger) -> None:
        """Place each device's columns of all feature rows."""
        frame = self._frame
        vertices = frame.setting.dataset.graph.num_vertices
        for slot, (begin, end) in self.ranges.items():
            size = vertices * (end - begin) * frame.itemsize
            ledger.allocate(frame.trainers[slot].name, "columns of all features", size)

    def plan_layers(self, plans: tuple[LayerPlan, ...]) -> tuple[LayerPlan, ...]:
        """Return a trainer's plans with a first layer that begins at the sum of the products.

        The arithmetic before the sum is counted on the devices that do it.
        """
        first, *others = plans
        shape = replace(first.shape, aggregate_features=first.layer.product_features)
        return (replace(first, shape=shape, edge_work=0, row_work=0), *others)

    def _count_aggregated(self, slot: int) -> int:
        """Return the width of the aggregate of a device's columns."""
        begin, end = self.ranges[slot]
        return (end - begin) * (self._first.aggregate_features // self._first.in_features)

    # ------------------------------------------------------------------ data transfer

    def transfer(self, round_: RoundUnderWay) -> Iterator[Item]:
        """Yield the transfers of blocks: a unit's to its trainer, and all first blocks to all.

        Blocks that another host has drawn are sent by way of the device's own host.
        """
        frame = self._frame
        there = {host: Buffer("blocks of other nodes") for host in frame.hosts}
        for slot, device in enumerate(frame.trainers):
            unit, host = round_.unit_of(slot), frame.hosts[slot]
            size = frame.count_topology([u.blocks[0] for u in round_.units if u.slot != slot])
            yield Hold(device.name, _first_blocks(round_), size)
            if unit is not None:
                own = frame.count_topology(unit.blocks)
                size += own
                taken = Take(device.name, {round_.topology: own})
                round_.held[slot] = [taken]
                yield taken
            round_.arrived[slot] = round_.sampled
            if slot in frame.accelerator_slots:
                yield Section(round_.index, (TRANSFER, slot))
                if frame.hosts.index(host) == slot:
                    yield from self._send_blocks(round_, host, there[host])
                step = frame.send(slot, round_.index, "host to device", Work("copy", bytes=size))
                arrived = round_.arrived[slot] = Buffer("blocks on the device")
                step.reads, step.writes = (round_.sampled, there[host]), (arrived,)
                step.asked = True
                yield step
                round_.transfer_s = max(round_.transfer_s, step.seconds)

    def _send_blocks(self, round_: RoundUnderWay, host: Device, there: Buffer) -> Iterator[Step]:
        """Send a host the first blocks that other hosts have drawn, once for all its devices."""
        frame = self._frame
        for other in frame.platform.hosts:
            drawn = [u for u in round_.units if frame.hosts[u.slot] == other != host]
            work = Work("copy", bytes=frame.count_topology([unit.blocks[0] for unit in drawn]))
            if drawn:
                label = "first blocks of another node"
                step = frame.cross(other, host, round_.index, label, work, "host_to_host")
                step.reads, step.adds = (round_.sampled,), (there,)
                yield step

    # ------------------------------------------------------------------ push, forward

    def push(self, round_: RoundUnderWay) -> Iterator[Item]:
        """Yield the first layer's products for all units, of all devices' columns."""
        #: By the unit's slot, the sum of its products, and the gradient of that sum.
        self._products = {unit.slot: Buffer("sum of products") for unit in round_.units}
        self._returned = {unit.slot: Buffer("gradient of the sum") for unit in round_.units}
        self._kept_bytes = dict.fromkeys(self.ranges, 0)
        yield Section(round_.index, (PUSH, 0))
        for unit in round_.units:
            yield from self._push_unit(round_, unit)

    def _push_unit(self, round_: RoundUnderWay, unit: Unit) -> Iterator[Item]:
        owner, rows = self._frame.trainers[unit.slot], unit.blocks[0].num_dst
        size = len(self.ranges) * rows * self._product_bytes
        yield Hold(owner.name, "partial products", size)
        ready = Buffer("partial products")
        for slot in self.ranges:
            yield from self._push_columns(round_, unit, slot, ready)
        step = self._make_step("sum products", (unit.slot,), owner, round_.index, "update")
        step.label, added = "sum of partial products", len(self.ranges) - 1
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
        """Return a step of the first layer, without size and buffers."""
        held = compute_resource(device, self._frame.platform.host, half)
        step = Step(op, operands, half, op, device.name, held, Work("copy"), 0, index)
        step.device = self._frame.slots[device.name]
        return step

    def _push_columns(
        self, round_: RoundUnderWay, unit: Unit, slot: int, ready: Buffer
    ) -> Iterator[Item]:
        """Yield a device's part of a unit's product, and its transfer to the unit's device."""
        frame, block, index = self._frame, unit.blocks[0], round_.index
        device, (begin, end) = frame.trainers[slot], self.ranges[slot]
        picked = Buffer("some columns of the input rows")
        step = make_pick(frame, "pick columns", (slot, block), slot, block.num_src, end - begin)
        step.round, step.reads, step.writes = index, (round_.arrived[slot],), (picked,)
        yield Hold(device.name, "some columns of input rows", step.work.bytes)
        yield step
        aggregate = Buffer("aggregate of some columns")
        operands: tuple[object, ...] = (unit.slot, slot, block)
        step = self._make_step("aggregate columns", operands, device, index, "aggregate")
        step.label = "aggregate forward, some columns"
        work = self._first.aggregate_work(block, frame.itemsize)
        step.work = work._replace(features=end - begin)
        step.reads = (picked, *frame.over(index - 1))
        step.writes = (aggregate,)
        yield step
        yield Free(device.name, "some columns of input rows")
        self._kept_bytes[slot] += block.num_dst * self._count_aggregated(slot) * frame.itemsize
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
        """Return a product with a device's rows of W, or with their gradient."""
        device, rows = self._frame.trainers[slot], block.num_dst
        width = self._first.product_features
        step = self._make_step(f"multiply columns {way}", operands, device, index, "update")
        step.label = f"update {way}, some columns"
        step.work = Work(
            "update",
            rows=rows,
            features=width,
            macs=rows * self._count_aggregated(slot) * width,
            itemsize=self._frame.itemsize,
        )
        return step

    def _make_exchange(
        self, source: int, target: int, rows: int, index: int, part: Buffer, there: Buffer
    ) -> Step:
        """Return the transfer of rows of products, or of their gradients, between two devices."""
        size = rows * self._product_bytes
        work = Work("copy", rows=rows, features=self._first.product_features, bytes=size)
        label, trainers = "all-to-all of partial products", self._frame.trainers
        one, other = trainers[source], trainers[target]
        step = self._frame.cross(one, other, index, label, work, "all_to_all")
        step.layer, step.source, step.device = 0, source, target
        step.reads, step.adds = (part,), (there,)
        return step

    # ------------------------------------------------------------------ pull

    def forward(self, each: LayerPass, inputs: Buffers, output: Buffer) -> LayerSteps:
        """Return UPDATE of the first layer from the sum of the products on."""
        step = make_half(self._frame, "update product forward", each, self._size_rest(each))
        step.label, step.adds = "update forward", (output,)
        step.reads = (*inputs, self._products[each.key[1]])
        return (step,)

    def backward(self, each: LayerPass, inputs: Buffers, below: Buffer) -> LayerSteps:
        """Return UPDATE backward, down to the gradient of the sum, which all devices need."""
        step = make_half(self._frame, "update product backward", each, self._size_rest(each, 2))
        step.label, step.writes = "update backward", (self._returned[each.key[1]],)
        step.reads, step.adds = inputs, (below,)
        return (step,)

    def _size_rest(self, each: LayerPass, gemms: int = 1) -> Work:
        """Return the size of UPDATE of the first layer without the product."""
        layer, work = each.plan.layer, size_update(self._frame, each)
        macs = layer.macs_per_row - layer.aggregate_features * layer.product_features
        return work._replace(macs=work.rows * macs * gemms)

    # ------------------------------------------------------------------ push, backward

    def push_back(self, round_: RoundUnderWay) -> Iterator[Item]:
        """Yield the gradient of every device's rows of the first weight."""
        yield Section(round_.index, (PUSH_BACK, 0))
        for unit in round_.units:
            yield from self._push_unit_back(round_, unit)
        for slot, device in enumerate(self._frame.trainers):
            yield Free(device.name, _first_blocks(round_))
            if slot in self.ranges:
                yield Free(device.name, _aggregates(round_))

    def _push_unit_back(self, round_: RoundUnderWay, unit: Unit) -> Iterator[Item]:
        """Yield the gradient of the first weight from one unit's seeds, on all devices."""
        block, index = unit.blocks[0], round_.index
        for slot in self.ranges:
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
    """Return the name in a memory of the first blocks of other devices' mini-batches."""
    return f"first blocks of other mini-batches, round {round_.index}"


def _aggregates(round_: RoundUnderWay) -> str:
    """Return the name in a memory of the aggregates that are kept for the backward pass."""
    return f"aggregates of some columns, round {round_.index}"
