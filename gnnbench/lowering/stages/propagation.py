"""Propagation of a mini-batch on one trainer: all layers forward, the loss, and all layers back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from gnnbench.lowering.footprint import layer_bytes, size_of
from gnnbench.lowering.frame import RoundFrame
from gnnbench.lowering.memory import compute_resource
from gnnbench.lowering.rounds import PROPAGATE, RoundUnderWay
from gnnbench.lowering.units import needs_aggregate_gradient, size_backward, update_gemms
from gnnbench.machines.machine import Device
from gnnbench.models import Layer
from gnnbench.parts import LayerShape
from gnnbench.program import Buffer, Drop, Item, Section, Step, Take
from gnnbench.records import Block, Share, Unit, Work

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
    aggregates_on: tuple[str, ...]
    updates_on: tuple[str, ...]


def plan_layers(frame: RoundFrame, device: Device) -> tuple[LayerPlan, ...]:
    """Return the plans of the model's layers on a trainer, from input to output."""
    host = frame.platform.host
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
            aggregates_on=compute_resource(device, host, "aggregate"),
            updates_on=compute_resource(device, host, "update"),
        )
        for number, layer in enumerate(frame.layers)
    )


@dataclass(slots=True, eq=False)
class LayerPass:
    """One layer of a unit: its block, and the size of AGGREGATE on it.

    ``key`` is the round and the slot of the unit.
    """

    plan: LayerPlan
    key: tuple[int, int]
    block: Block
    threads: int
    aggregate: Work


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
        inputs: Buffers = (round_.arrived[unit.slot], *frame.over(round_.index - 1))
        passes: list[LayerPass] = []
        for plan, block in zip(plans, unit.blocks, strict=True):
            work = self._size_aggregate(round_, plan, block, share.threads)
            each = LayerPass(plan, (round_.index, unit.slot), block, share.threads, work)
            passes.append(each)
            output = Buffer("activations")
            steps.append(self._forward_layer(each, inputs, output))
            inputs = (output,)
        steps[-1][-1].arithmetic = float(arithmetic)
        gradients = (Buffer("gradients of the logits"),)
        loss = self._make_loss(round_, unit, share, inputs, gradients)
        steps += [(step,) for step in self._bring_loss(loss, unit.slot)]
        for each in reversed(passes):
            below = Buffer("gradients of the activations") if each.plan.number else round_.gradients
            steps.append(self._backward_layer(each, gradients, below))
            gradients = (below,)
        steps[-1][-1].asked = True
        taken = Take(plans[-1].place, held)
        yield taken
        for some in steps:
            yield from some
        yield Drop(taken)
        # HyScale-GNN Equation 10's operator: max where the halves of a layer run at once, or sum.
        combine = max if plans[-1].pipelined else sum
        round_.train_s[unit.slot] = sum(
            [combine([step.seconds for step in some]) for some in steps]
        )

    def _make_loss(
        self, round_: RoundUnderWay, unit: Unit, share: Share, logits: Buffers, gradients: Buffers
    ) -> Step:
        """Return the step of the loss of a unit's seeds, and of its gradients."""
        last = self._plans[unit.slot][-1]
        rows, classes = unit.blocks[-1].num_dst, last.layer.out_features
        work = Work("update", rows=rows, features=classes, macs=rows * classes, form="loss")
        return Step(
            "loss",
            ((round_.index, unit.slot), unit.output_ids, 1.0 / round_.num_seeds),
            "update",
            "loss",
            last.place,
            last.updates_on,
            work._replace(threads=share.threads, fresh=True),
            len(self._plans[unit.slot]),
            round_.index,
            logits,
            gradients,
            device=unit.slot,
        )

    def _bring_loss(self, loss: Step, slot: int) -> Iterator[Step]:
        """Yield the loss where the unit is computed, or on the host.

        If the host computes it, the logits are sent there and the gradients back.
        """
        frame = self._frame
        device, host = frame.trainers[slot], frame.hosts[slot]
        if not frame.host_takes_loss or device == host:
            yield loss
            return
        logits, gradients = Buffer("logits on the host"), Buffer("their gradients on the host")
        size = loss.work.rows * loss.work.features * frame.itemsize
        work, index = Work("copy", rows=loss.work.rows, bytes=size), loss.round
        step = frame.cross(device, host, index, "logits to the host", work, "device_to_host")
        step.reads, step.writes = loss.reads, (logits,)
        yield step
        back = frame.cross(host, device, index, "gradients of logits", work, "host_to_device")
        back.reads, back.writes = (gradients,), loss.writes
        loss.place, loss.resources = host.name, (f"{host.name}.synchronise",)
        loss.reads, loss.writes = (logits,), (gradients,)
        yield loss
        yield back

    def _size_aggregate(
        self, round_: RoundUnderWay, plan: LayerPlan, block: Block, threads: int
    ) -> Work:
        """Return the size of AGGREGATE. Only the stored values of sparse rows are multiplied."""
        layer = plan.layer
        work = layer.aggregate_work(block, self._frame.itemsize)
        if work.threads != threads:
            work = work.on_threads(threads)
        if plan.number or round_.stored is None:
            return work
        sources, destinations = round_.stored
        # A layer that chooses the order of its products multiplies all sources by W here.
        each = layer.source_macs or layer.in_features * layer.out_features
        macs = sources * each + destinations * layer.destination_macs
        return work._replace(macs=macs // layer.in_features, columns=layer.in_features)

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
        aggregate = make_half(self._frame, "aggregate forward", each, each.aggregate)
        update = make_half(self._frame, "update forward", each, size_update(self._frame, each))
        return _join(each, aggregate, update, inputs, output)

    def _backward_layer(self, each: LayerPass, inputs: Buffers, below: Buffer) -> LayerSteps:
        """Return both passes back, to the gradients of the layer's input.

        The first layer's input needs no gradient. Its last step has the unit's gradients of the
        weights.
        """
        if self._first is not None and not each.plan.number:
            return self._first.backward(each, inputs, below)
        work = size_update(self._frame, each, each.plan.gemms)
        update = make_half(self._frame, "update backward", each, work)
        if each.plan.goes_on:
            aggregate = make_half(self._frame, "aggregate backward", each, each.aggregate)
            return _join(each, update, aggregate, inputs, below)
        update.reads, update.adds = inputs, (below,)
        return (update,)


def size_update(frame: RoundFrame, each: LayerPass, gemms: int = 1) -> Work:
    """Return the size of UPDATE of a layer with ``gemms`` matrix products."""
    layer, rows = each.plan.layer, each.block.num_dst
    return layer.update_work(rows, frame.itemsize, gemms, threads=each.threads)


def make_half(frame: RoundFrame, op: str, each: LayerPass, work: Work) -> Step:
    """Return AGGREGATE or UPDATE of a layer, without buffers."""
    plan, aggregates = each.plan, op.startswith("aggregate")
    if op.endswith("backward"):
        work = size_backward(work, first=plan.number == 0)
    step = Step(
        op,
        (each.key, plan.number, each.block),
        "aggregate" if aggregates else "update",
        op,
        plan.place,
        plan.aggregates_on if aggregates else plan.updates_on,
        work._replace(fresh=True),
        plan.number,
        each.key[0],
        device=each.key[1],
    )
    if aggregates:
        frame.announce(step, each.block)
    return step


def _join(
    each: LayerPass, first: Step, second: Step, inputs: Buffers, output: Buffer
) -> LayerSteps:
    """Order the halves of a layer one after the other, or at once on a pipelined device."""
    first.reads = second.reads = inputs
    second.adds = (output,)
    if each.plan.pipelined:
        first.adds = (output,)
    else:
        between = Buffer("aggregate, or its gradient")
        first.writes = second.reads = (between,)
    return first, second
