"""Propagation of a mini-batch on one trainer: all layers forward, the loss, and all layers back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from gnnbench.lowering.footprint import layer_bytes, size_of
from gnnbench.lowering.frame import RoundFrame
from gnnbench.lowering.memory import compute_resource
from gnnbench.lowering.rounds import PROPAGATE, BatchKey, RoundUnderWay
from gnnbench.lowering.units import needs_aggregate_gradient, size_backward, update_gemms
from gnnbench.machines.machine import Device
from gnnbench.models import Layer
from gnnbench.parts import LayerShape
from gnnbench.program import (
    NOTHING,
    Access,
    Account,
    Buffer,
    Counts,
    Drop,
    Item,
    Place,
    Section,
    Step,
    Take,
    Times,
)
from gnnbench.records import (
    AggregateWork,
    Block,
    CopyWork,
    IntArray,
    LossWork,
    ProductSize,
    Share,
    Unit,
    UpdateWork,
)

Buffers = tuple[Buffer, ...]
#: The steps of a layer in one direction.
LayerSteps = tuple[Step, ...]


@dataclass(frozen=True, slots=True, eq=False)
class LayerPlan:
    """A layer on one trainer, equal in every round.

    ``pipelined`` says whether AGGREGATE and UPDATE run at once, ``goes_on`` whether the aggregate
    needs a gradient, and ``gemms`` how many products UPDATE has backward. ``name`` is the name of
    the activations in a memory, and ``shape`` their sizes. ``edge_work`` and ``row_work`` are the
    multiply-adds of an edge and of a destination row, for the imbalance.
    """

    number: int
    layer: Layer
    place: str
    pipelined: bool
    goes_on: bool
    gemms: int
    name: str
    shape: LayerShape
    edge_work: int
    row_work: int
    aggregates_on: Place
    updates_on: Place


def plan_layers(frame: RoundFrame, device: Device) -> tuple[LayerPlan, ...]:
    """Return the plans of the model's layers on a trainer, from input to output."""
    aggregates_on, updates_on = (
        Place(
            device.name,
            compute_resource(device, frame.platform.host, half),
            frame.slots[device.name],
        )
        for half in ("aggregate", "update")
    )
    return tuple(
        LayerPlan(
            number,
            layer,
            device.name,
            device.hardware.pipelined,
            needs_aggregate_gradient(layer, first=number == 0),
            update_gemms(layer, first=number == 0),
            f"activations of layer {number + 1}",
            shape=frame.bundle.kernel.shape_of(layer.shape),
            edge_work=layer.in_features,
            row_work=layer.macs_per_row,
            aggregates_on=aggregates_on,
            updates_on=updates_on,
        )
        for number, layer in enumerate(frame.layers)
    )


@dataclass(slots=True, eq=False)
class LayerPass:
    """One layer of a unit: its block, and the size of AGGREGATE on it.

    ``key`` is the round and the slot of the unit.
    """

    plan: LayerPlan
    key: BatchKey
    block: Block
    threads: int
    aggregate: AggregateWork

    @property
    def operands(self) -> tuple[BatchKey, int, Block]:
        """The unit, the layer and the block, which its operations have."""
        return self.key, self.plan.number, self.block


class AggregateBlock(NamedTuple):
    """AGGREGATE of a layer of a mini-batch."""

    unit: BatchKey
    layer: int
    block: Block


class UpdateBlock(NamedTuple):
    """UPDATE of a layer of a mini-batch."""

    unit: BatchKey
    layer: int
    block: Block


class UpdateBlockBackward(NamedTuple):
    """UPDATE backward of a layer of a mini-batch."""

    unit: BatchKey
    layer: int
    block: Block


class AggregateBlockBackward(NamedTuple):
    """AGGREGATE backward of a layer of a mini-batch."""

    unit: BatchKey
    layer: int
    block: Block


class TakeLoss(NamedTuple):
    """The loss of the seeds ``ids`` of a mini-batch, and the gradients of ``weight`` times it."""

    unit: BatchKey
    ids: IntArray
    weight: float


class FirstLayer(Protocol):
    """Replaces the steps of a unit's first layer."""

    def forward(self, each: LayerPass, inputs: Buffers, output: Buffer) -> LayerSteps:
        """Return the steps of the first layer forward, which read ``inputs``."""

    def backward(self, each: LayerPass, inputs: Buffers, below: Buffer) -> LayerSteps:
        """Return the steps of the first layer backward, which add to the gradients ``below``."""


class Propagation:
    """The propagation stage, by the plans of all trainers' layers.

    ``first`` replaces the steps of the first layer, where devices share it.
    """

    def __init__(
        self,
        frame: RoundFrame,
        plans: tuple[tuple[LayerPlan, ...], ...],
        first: FirstLayer | None = None,
    ) -> None:
        self._frame = frame
        self._plans = plans
        self._first = first

    def propagate(self, round_: RoundUnderWay, slot: int) -> Iterator[Item]:
        """Yield one trainer's part of a round, which is empty for a trainer without seeds."""
        unit = round_.unit_of(slot)
        if unit is None:
            return
        share = round_.shares[slot][0]
        yield Section(round_.index, (PROPAGATE, slot), share.threads, "compute")
        yield from self._train(round_, unit, share)
        for taken in round_.held.pop(slot):
            yield Drop(taken)

    def _train(self, round_: RoundUnderWay, unit: Unit, share: Share) -> Iterator[Item]:
        """Yield the forward and backward pass of one trainer.

        The loss is a sum over its seeds. The gradients are those of its seeds' share of the
        round's mean loss.
        """
        frame, plans = self._frame, self._plans[unit.slot]
        held, arithmetic = self._size_passes(plans, unit)
        # All steps are made before the first is taken: between kernels no code is in a cache.
        steps: list[LayerSteps] = []
        inputs: Buffers = (round_.buffers.arrived[unit.slot], *frame.over(round_.index - 1))
        passes: list[LayerPass] = []
        for plan, block in zip(plans, unit.blocks, strict=True):
            work = self._size_aggregate(round_, plan, block, share.threads)
            each = LayerPass(plan, (round_.index, unit.slot), block, share.threads, work)
            passes.append(each)
            output = Buffer("activations")
            steps.append(self._forward_layer(each, inputs, output))
            inputs = (output,)
        *others, last = steps[-1]
        steps[-1] = (*others, last._replace(counts=Counts(arithmetic=float(arithmetic))))
        gradients = (Buffer("gradients of the logits"),)
        loss = self._make_loss(round_, unit, share, inputs, gradients)
        steps += [(step,) for step in self._bring_loss(loss, unit.slot, unit.blocks[-1].num_dst)]
        for each in reversed(passes):
            below = (
                Buffer("gradients of the activations")
                if each.plan.number
                else round_.buffers.gradients
            )
            steps.append(self._backward_layer(each, gradients, below))
            gradients = (below,)
        taken = Take(plans[-1].place, held)
        took = [Times() for _ in steps]
        timed = [step.timed(t) for some, t in zip(steps, took, strict=True) for step in some]
        yield taken
        yield from timed
        yield Account()
        yield Drop(taken)
        # HyScale-GNN Equation 10's operator: max where the halves of a layer run at once, or sum.
        combine = max if plans[-1].pipelined else sum
        round_.seconds.train[unit.slot] = sum([combine(times.seconds) for times in took])

    def _make_loss(
        self, round_: RoundUnderWay, unit: Unit, share: Share, logits: Buffers, gradients: Buffers
    ) -> Step:
        """Return the step of the loss of a unit's seeds, and of its gradients."""
        last = self._plans[unit.slot][-1]
        rows, classes = unit.blocks[-1].num_dst, last.layer.out_features
        return Step(
            TakeLoss((round_.index, unit.slot), unit.output_ids, 1.0 / round_.num_seeds),
            "update",
            "loss",
            last.updates_on,
            LossWork(rows, classes, rows * classes, threads=share.threads, fresh=True),
            len(self._plans[unit.slot]),
            round_.index,
            access=Access(logits, gradients),
        )

    def _bring_loss(self, loss: Step, slot: int, rows: int) -> Iterator[Step]:
        """Yield the loss where the unit is computed, or on the host.

        If the host computes it, the logits are sent there and the gradients back.
        """
        frame = self._frame
        device, host = frame.trainers[slot], frame.hosts[slot]
        if not frame.host_takes_loss or device == host:
            yield loss
            return
        logits, gradients = Buffer("logits on the host"), Buffer("their gradients on the host")
        size = rows * self._plans[slot][-1].layer.out_features * frame.itemsize
        work, index, access = CopyWork(size, rows), loss.round, loss.access
        step = frame.cross(device, host, index, "logits to the host", work, "device_to_host")
        yield step.over(access.reads, (logits,))
        place = Place(host.name, (f"{host.name}.synchronise",), slot)
        yield loss._replace(place=place, access=Access((logits,), (gradients,)))
        step = frame.cross(host, device, index, "gradients of logits", work, "host_to_device")
        yield step.over((gradients,), access.writes)

    def _size_aggregate(
        self, round_: RoundUnderWay, plan: LayerPlan, block: Block, threads: int
    ) -> AggregateWork:
        """Return the size of AGGREGATE. Only the stored values of sparse rows are multiplied."""
        layer = plan.layer
        work = layer.aggregate_work(block, self._frame.itemsize)
        if work.threads != threads:
            work = work._replace(threads=threads)
        if plan.number or round_.stored is None:
            return work
        sources, destinations = round_.stored
        # A layer that chooses the order of its products multiplies all sources by W here.
        each = layer.source_macs or layer.in_features * layer.out_features
        macs = sources * each + destinations * layer.destination_macs
        product = ProductSize(macs // layer.in_features, columns=layer.in_features)
        return work._replace(product=product)

    def _size_passes(self, plans: tuple[LayerPlan, ...], unit: Unit) -> tuple[dict[str, int], int]:
        """Return the bytes that a unit's layers hold on a device, by name, and their arithmetic.

        Gradients in flight take the place of the gradients of the layer above.
        """
        held: dict[str, int] = {}
        itemsize = self._frame.itemsize
        in_flight = arithmetic = rows = 0
        for plan, block in zip(plans, unit.blocks, strict=True):
            rows = block.num_dst
            held[plan.name], gradients = layer_bytes(
                plan.shape, size_of(block), itemsize, first=plan.number == 0
            )
            in_flight = max(in_flight, gradients)
            arithmetic += len(block.indices) * plan.edge_work + rows * plan.row_work
        held["logits and their gradient"] = 2 * plan.layer.out_features * itemsize * rows
        held["gradients in flight"] = in_flight
        return held, arithmetic

    # ------------------------------------------------------------------ one layer

    def _forward_layer(self, each: LayerPass, inputs: Buffers, output: Buffer) -> LayerSteps:
        if self._first is not None and not each.plan.number:
            return self._first.forward(each, inputs, output)
        first, second = _find_access(each, inputs, output)
        operands, work = each.operands, size_update(self._frame, each)
        return (
            make_aggregate(self._frame, AggregateBlock(*operands), each, first),
            make_update(UpdateBlock(*operands), "update forward", each, work, second),
        )

    def _backward_layer(self, each: LayerPass, inputs: Buffers, below: Buffer) -> LayerSteps:
        """Return both passes back, to the gradients of the layer's input.

        The first layer's input needs no gradient. Its last step has the unit's gradients of the
        weights.
        """
        if self._first is not None and not each.plan.number:
            return self._first.backward(each, inputs, below)
        operands, label = each.operands, "update backward"
        work = size_update(self._frame, each, each.plan.gemms)._replace(backward=True)
        operation = UpdateBlockBackward(*operands)
        if not each.plan.goes_on:
            access = Access(inputs, adds=(below,))
            return (make_update(operation, label, each, work, access),)
        first, second = _find_access(each, inputs, below)
        return (
            make_update(operation, label, each, work, first),
            make_aggregate(self._frame, AggregateBlockBackward(*operands), each, second),
        )


def size_update(frame: RoundFrame, each: LayerPass, gemms: int = 1) -> UpdateWork:
    """Return the size of UPDATE of a layer with ``gemms`` matrix products."""
    layer, rows = each.plan.layer, each.block.num_dst
    return layer.update_work(rows, frame.itemsize, gemms, threads=each.threads)


def make_aggregate(
    frame: RoundFrame,
    operation: AggregateBlock | AggregateBlockBackward,
    each: LayerPass,
    access: Access,
) -> Step:
    """Return AGGREGATE of a layer."""
    plan, work = each.plan, each.aggregate
    backward = isinstance(operation, AggregateBlockBackward)
    if backward:
        work = size_backward(work, first=plan.number == 0)
    return Step(
        operation,
        "aggregate",
        "aggregate backward" if backward else "aggregate forward",
        plan.aggregates_on,
        work._replace(fresh=True),
        plan.number,
        each.key[0],
        NOTHING,
        frame.announce(each.block, backward=backward),
        None,
        access,
    )


def make_update(
    operation: object, label: str, each: LayerPass, work: UpdateWork, access: Access
) -> Step:
    """Return UPDATE of a layer."""
    plan, work = each.plan, work._replace(fresh=True)
    return Step(
        operation,
        "update",
        label,
        plan.updates_on,
        work,
        plan.number,
        each.key[0],
        NOTHING,
        None,
        None,
        access,
    )


def _find_access(each: LayerPass, inputs: Buffers, output: Buffer) -> tuple[Access, Access]:
    """Return the buffers of the halves of a layer."""
    adds = (output,)
    if each.plan.pipelined:
        return Access(inputs, adds=adds), Access(inputs, adds=adds)
    between = (Buffer("aggregate, or its gradient"),)
    return Access(inputs, between), Access(between, adds=adds)
