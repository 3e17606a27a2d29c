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
from typing import Literal, NamedTuple

from gnnbench.lowering.frame import RoundFrame
from gnnbench.lowering.memory import compute_resource
from gnnbench.lowering.rounds import PUSH, PUSH_BACK, TRANSFER, BatchKey, RoundUnderWay
from gnnbench.lowering.stages.propagation import (
    Buffers,
    LayerPass,
    LayerPlan,
    LayerSteps,
    make_update,
    size_update,
)
from gnnbench.lowering.stages.transfer import make_pick
from gnnbench.machines.machine import Device
from gnnbench.program import (
    NOTHING,
    Access,
    Account,
    Buffer,
    Counts,
    Free,
    Hold,
    Item,
    Ledger,
    Place,
    Section,
    Step,
    Take,
    Times,
)
from gnnbench.records import Block, CopyWork, RowsWork, Unit, UpdateWork, Work, count_moved


class PickColumns(NamedTuple):
    """The choice of a device's columns of the input rows of a block."""

    slot: int
    block: Block


class AggregateColumns(NamedTuple):
    """AGGREGATE of the columns of the device ``slot`` for a unit, by the unit's device index."""

    unit: int
    slot: int
    block: Block


class MultiplyColumns(NamedTuple):
    """The product of a unit's aggregate of some columns with their rows of the first weight."""

    unit: int
    slot: int


class MoveProducts(NamedTuple):
    """The transfer of a product of some columns to the unit's device."""

    unit: int
    slot: int


class SumProducts(NamedTuple):
    """The sum of a unit's products over all columns."""

    unit: int


class UpdateProduct(NamedTuple):
    """UPDATE of the first layer of a mini-batch, from the sum of its products on."""

    unit: BatchKey
    layer: int
    block: Block


class UpdateProductBackward(NamedTuple):
    """UPDATE backward of the first layer of a mini-batch, to the gradient of that sum."""

    unit: BatchKey
    layer: int
    block: Block


class ReturnProductGradients(NamedTuple):
    """The transfer of the gradient of a unit's sum of products to a device with some columns."""

    unit: int
    slot: int


class DifferentiateColumns(NamedTuple):
    """A unit's part of the gradient of a device's rows of the first weight."""

    unit: int
    slot: int


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
            round_.buffers.arrived[slot] = round_.buffers.sampled
            if slot in frame.accelerator_slots:
                yield Section(round_.index, (TRANSFER, slot))
                if frame.hosts.index(host) == slot:
                    yield from self._send_blocks(round_, host, there[host])
                step = frame.send(slot, round_.index, "host to device", CopyWork(bytes=size))
                arrived = round_.buffers.arrived[slot] = Buffer("blocks on the device")
                reads, times = (round_.buffers.sampled, there[host]), Times()
                yield step._replace(times=times, access=Access(reads, (arrived,)))
                yield Account()
                round_.seconds.transfer = max(round_.seconds.transfer, times.total)

    def _send_blocks(self, round_: RoundUnderWay, host: Device, there: Buffer) -> Iterator[Step]:
        """Send a host the first blocks that other hosts have drawn, once for all its devices."""
        frame = self._frame
        for other in frame.platform.hosts:
            drawn = [u for u in round_.units if frame.hosts[u.slot] == other != host]
            work = CopyWork(bytes=frame.count_topology([unit.blocks[0] for unit in drawn]))
            if drawn:
                label = "first blocks of another node"
                step = frame.cross(other, host, round_.index, label, work, "host_to_host")
                yield step.over((round_.buffers.sampled,), adds=(there,))

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
        # Two rows are read and one is written.
        added = len(self.ranges) - 1
        work = CopyWork(3 * added * rows * self._product_bytes, rows)
        access, label = Access((ready,), (self._products[unit.slot],)), "sum of partial products"
        yield self._make_update(
            SumProducts(unit.slot), label, unit.slot, round_.index, work, access
        )
        yield Free(owner.name, "partial products")

    def _find_place(self, slot: int, half: Literal["aggregate", "update"]) -> Place:
        """Return the place of a device's half of the first layer."""
        device = self._frame.trainers[slot]
        return Place(device.name, compute_resource(device, self._frame.platform.host, half), slot)

    def _make_update(
        self,
        operation: object,
        label: str,
        slot: int,
        index: int,
        work: Work,
        access: Access,
        counts: Counts = NOTHING,
    ) -> Step:
        """Return a step of a device's part of UPDATE of the first layer."""
        place = self._find_place(slot, "update")
        return Step(operation, "update", label, place, work, 0, index, counts, access=access)

    def _push_columns(
        self, round_: RoundUnderWay, unit: Unit, slot: int, ready: Buffer
    ) -> Iterator[Item]:
        """Yield a device's part of a unit's product, and its transfer to the unit's device."""
        frame, block, index = self._frame, unit.blocks[0], round_.index
        device, (begin, end) = frame.trainers[slot], self.ranges[slot]
        picked = Buffer("some columns of the input rows")
        step = make_pick(frame, PickColumns(slot, block), slot, block.num_src, end - begin)
        yield Hold(device.name, "some columns of input rows", count_moved(step.work))
        access = Access((round_.buffers.arrived[slot],), (picked,))
        yield step._replace(round=index, access=access)
        aggregate = Buffer("aggregate of some columns")
        work = self._first.aggregate_work(block, frame.itemsize)
        yield Step(
            AggregateColumns(unit.slot, slot, block),
            "aggregate",
            "aggregate forward, some columns",
            self._find_place(slot, "aggregate"),
            work._replace(features=end - begin),
            0,
            index,
            access=Access((picked, *frame.over(index - 1)), (aggregate,)),
        )
        yield Free(device.name, "some columns of input rows")
        self._kept_bytes[slot] += block.num_dst * self._count_aggregated(slot) * frame.itemsize
        yield Hold(device.name, _aggregates(round_), self._kept_bytes[slot])
        part = ready if slot == unit.slot else Buffer("partial product")
        product, label = self._size_product(slot, block), "update forward, some columns"
        arithmetic = float(block.num_edges * (end - begin) + product.macs)
        operation, counts = MultiplyColumns(unit.slot, slot), Counts(arithmetic=arithmetic)
        access = Access((aggregate,), adds=(part,))
        yield self._make_update(operation, label, slot, index, product, access, counts)
        if slot != unit.slot:
            exchange, access = MoveProducts(unit.slot, slot), Access((part,), adds=(ready,))
            yield self._exchange(exchange, slot, unit.slot, block.num_dst, index, access)

    def _size_product(self, slot: int, block: Block) -> UpdateWork:
        """Return the size of a product with a device's rows of W, or with their gradient."""
        rows, width = block.num_dst, self._first.product_features
        macs = rows * self._count_aggregated(slot) * width
        return UpdateWork(rows, width, macs, self._frame.itemsize)

    def _exchange(
        self,
        operation: MoveProducts | ReturnProductGradients,
        source: int,
        target: int,
        rows: int,
        index: int,
        access: Access,
    ) -> Step:
        """Return the transfer of rows of products, or of their gradients, between two devices."""
        size = rows * self._product_bytes
        work = RowsWork(rows=rows, features=self._first.product_features, bytes=size)
        label, trainers = "all-to-all of partial products", self._frame.trainers
        one, other = trainers[source], trainers[target]
        step = self._frame.cross(one, other, index, label, work, "all_to_all")
        place = step.place._replace(device=target, source=source)
        return step._replace(operation=operation, layer=0, place=place, access=access)

    # ------------------------------------------------------------------ pull

    def forward(self, each: LayerPass, inputs: Buffers, output: Buffer) -> LayerSteps:
        """Return UPDATE of the first layer from the sum of the products on."""
        operation, work = UpdateProduct(*each.operands), self._size_rest(each)
        access = Access((*inputs, self._products[each.key[1]]), adds=(output,))
        return (make_update(operation, "update forward", each, work, access),)

    def backward(self, each: LayerPass, inputs: Buffers, below: Buffer) -> LayerSteps:
        """Return UPDATE backward, down to the gradient of the sum, which all devices need."""
        operation = UpdateProductBackward(*each.operands)
        work = self._size_rest(each, 2)._replace(backward=True)
        access = Access(inputs, (self._returned[each.key[1]],), (below,))
        return (make_update(operation, "update backward", each, work, access),)

    def _size_rest(self, each: LayerPass, gemms: int = 1) -> UpdateWork:
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
                exchange = ReturnProductGradients(unit.slot, slot)
                access = Access((sent,), adds=(there,))
                yield self._exchange(exchange, unit.slot, slot, block.num_dst, index, access)
            operation, work = DifferentiateColumns(unit.slot, slot), self._size_product(slot, block)
            access = Access((there,), adds=(round_.buffers.gradients,))
            label = "update backward, some columns"
            yield self._make_update(operation, label, slot, index, work, access)


def _first_blocks(round_: RoundUnderWay) -> str:
    """Return the name in a memory of the first blocks of other devices' mini-batches."""
    return f"first blocks of other mini-batches, round {round_.index}"


def _aggregates(round_: RoundUnderWay) -> str:
    """Return the name in a memory of the aggregates that are kept for the backward pass."""
    return f"aggregates of some columns, round {round_.index}"
