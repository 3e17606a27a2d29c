"""What a trainer computes of a mini-batch: all layers forward, the loss, and all layers back."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from gnnbench.footprint import layer_bytes, size_of
from gnnbench.lowering.base import Lowering
from gnnbench.lowering.memory import compute_resource
from gnnbench.lowering.rounds import PROPAGATE, RoundUnderWay
from gnnbench.lowering.units import needs_aggregate_gradient, size_backward, update_gemms
from gnnbench.models import Layer
from gnnbench.parts import Bundle, LayerShape, SeedPlacement, Setting
from gnnbench.platforms.machine import Device
from gnnbench.program import Buffer, Drop, Item, Section, Step, Take
from gnnbench.records import Block, ByteKind, Share, Unit, Work

Buffers = tuple[Buffer, ...]
#: The steps of a layer, one way.
Steps = tuple[Step, ...]


@dataclass(frozen=True, slots=True, eq=False)
class LayerPlan:
    """What is the same in every round of one layer on one trainer.

    ``pipelined`` says whether its two halves run at once, ``goes_on`` whether its aggregate needs a
    gradient, ``gemms`` how many products the backward pass of UPDATE has, ``name`` what a memory
    calls its activations, which have the sizes of ``shape``. ``edge_work`` and ``row_work`` are the
    arithmetic of an edge and of a destination, for the imbalance.
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


@dataclass(slots=True, eq=False)
class LayerPass:
    """One layer of a unit: its block, and the size of AGGREGATE on it."""

    plan: LayerPlan
    key: tuple[int, int]
    block: Block
    threads: int
    aggregate: Work


class UnitPasses(Lowering):
    """Propagation of one mini-batch on one trainer; see the module's docstring."""

    def __init__(self, bundle: Bundle, setting: Setting, layers: tuple[Layer, ...]) -> None:
        super().__init__(bundle, setting, layers)
        self._plans = tuple(self._plan_layers(device) for device in self.trainers)

    def _plan_layers(self, device: Device) -> tuple[LayerPlan, ...]:
        """The model's layers on a trainer, input to output."""
        host = self.platform.host
        return tuple(
            LayerPlan(
                number,
                layer,
                device.name,
                device.pipelined,
                needs_aggregate_gradient(layer, first=number == 0),
                update_gemms(layer, first=number == 0),
                f"activations of layer {number + 1}",
                shape=self.bundle.kernel.shape_of(layer.shape),
                edge_work=layer.in_features,
                row_work=layer.macs_per_row,
                aggregates_on=compute_resource(device, host, "aggregate"),
                updates_on=compute_resource(device, host, "update"),
            )
            for number, layer in enumerate(self.layers)
        )

    def _cross(
        self, source: Device, target: Device, index: int, label: str, work: Work, kind: ByteKind
    ) -> Step:
        """A transfer in a round, whose bytes are of a ``kind``; who waits is still to be said."""
        route = self.platform.route(source, target)
        step = Step("", (), "transfer", label, route.place, route.lanes, work, round=index)
        step.moves = ((kind, work.bytes),)
        return step

    def propagate(self, round_: RoundUnderWay, slot: int) -> Iterator[Item]:
        """One trainer's part of a round; one that got no seeds is done at once."""
        unit = round_.unit_of(slot)
        if unit is None:
            return
        share = round_.shares[slot][0]
        yield Section(round_.index, (PROPAGATE, slot), share.threads, "compute")
        yield from self._train(round_, unit, share)
        for taken in round_.held.pop(slot):
            yield Drop(taken)

    def _train(self, round_: RoundUnderWay, unit: Unit, share: Share) -> Iterator[Item]:
        """Forward and backward of one trainer. Its loss is a sum over its seeds, and its gradients
        are those of their share of the round's mean loss."""
        plans, key = self._plans[unit.slot], (round_.index, unit.slot)
        held, arithmetic = self._size_passes(plans, unit)
        # All steps are made before the first is taken: between kernels no code is in a cache.
        steps: list[Steps] = []
        inputs: Buffers = (round_.arrived[unit.slot], *self._over(round_.index - 1))
        passes: list[LayerPass] = []
        for plan, block in zip(plans, unit.blocks, strict=True):
            work = self._size_aggregate(round_, plan, block, share.threads)
            passes.append(LayerPass(plan, key, block, share.threads, work))
            output = Buffer("activations")
            steps.append(self._forward_layer(passes[-1], inputs, output))
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
        """The loss of a unit's seeds, and its gradients, where the unit is computed."""
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
        """The loss, or, where it is the host's, the logits to it, the loss and the gradients
        back."""
        device, host = self.trainers[slot], self.hosts[slot]
        if not self._host_takes_loss or device == host:
            yield loss
            return
        logits, gradients = Buffer("logits on the host"), Buffer("their gradients on the host")
        size = loss.work.rows * loss.work.features * self._itemsize
        work, index = Work("copy", rows=loss.work.rows, bytes=size), loss.round
        step = self._cross(device, host, index, "logits to the host", work, "device_to_host")
        step.reads, step.writes = loss.reads, (logits,)
        yield step
        back = self._cross(host, device, index, "gradients of logits", work, "host_to_device")
        back.reads, back.writes = (gradients,), loss.writes
        loss.place, loss.resources = host.name, (f"{host.name}.synchronise",)
        loss.reads, loss.writes = (logits,), (gradients,)
        yield loss
        yield back

    @property
    def _host_takes_loss(self) -> bool:
        """Whether the loss of what an accelerator computes is its host's."""
        placement = self.bundle.placement
        return isinstance(placement, SeedPlacement) and placement.host_takes_loss

    @abstractmethod
    def _over(self, index: int) -> Buffers:
        """What is written when a round is over and every trainer has its model; a round before the
        first is over."""

    def _size_aggregate(
        self, round_: RoundUnderWay, plan: LayerPlan, block: Block, threads: int
    ) -> Work:
        """The size of AGGREGATE; of sparse input rows the stored values alone are multiplied."""
        layer = plan.layer
        work = layer.aggregate_work(block, self._itemsize)
        if work.threads != threads:
            work = work.on_threads(threads)
        if plan.number or round_.stored is None:
            return work
        sources, destinations = round_.stored
        # Where a layer multiplies in whatever order, it is all sources by W.
        each = layer.source_macs or layer.in_features * layer.out_features
        macs = sources * each + destinations * layer.destination_macs
        return work._replace(macs=macs // layer.in_features, columns=layer.in_features)

    def _size_passes(self, plans: tuple[LayerPlan, ...], unit: Unit) -> tuple[dict[str, int], int]:
        """What a device's memory holds of a unit's layers, and their arithmetic.

        What is held is named in the order in which it comes, until the end of the backward pass;
        gradients in flight take the place of those of the layer above.
        """
        held: dict[str, int] = {}
        in_flight = arithmetic = rows = 0
        for plan, block in zip(plans, unit.blocks, strict=True):
            rows = block.num_dst
            held[plan.name], gradients = layer_bytes(
                plan.shape, size_of(block), self._itemsize, first=plan.number == 0
            )
            in_flight = max(in_flight, gradients)
            arithmetic += len(block.indices) * plan.edge_work + rows * plan.row_work
        held["logits and their gradient"] = 2 * plan.layer.out_features * self._itemsize * rows
        held["gradients in flight"] = in_flight
        return held, arithmetic

    # ------------------------------------------------------------------ one layer

    def _forward_layer(self, each: LayerPass, inputs: Buffers, output: Buffer) -> Steps:
        aggregate = self._make_half("aggregate forward", each, each.aggregate)
        update = self._make_half("update forward", each, self._size_update(each))
        return self._join(each, aggregate, update, inputs, output)

    def _backward_layer(self, each: LayerPass, inputs: Buffers, below: Buffer) -> Steps:
        """Both passes back, to the gradients of the layer's input; the first layer's goes nowhere,
        and the last step there has the unit's gradients of the weights."""
        update = self._make_half("update backward", each, self._size_update(each, each.plan.gemms))
        if each.plan.goes_on:
            aggregate = self._make_half("aggregate backward", each, each.aggregate)
            return self._join(each, update, aggregate, inputs, below)
        update.reads, update.adds = inputs, (below,)
        return (update,)

    def _size_update(self, each: LayerPass, gemms: int = 1) -> Work:
        return each.plan.layer.update_work(
            each.block.num_dst, self._itemsize, gemms, threads=each.threads
        )

    def _make_half(self, op: str, each: LayerPass, work: Work) -> Step:
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
            self._announce(step, each.block)
        return step

    @staticmethod
    def _join(each: LayerPass, first: Step, second: Step, inputs: Buffers, output: Buffer) -> Steps:
        """One half of a layer after the other, or, on a pipelined device, both at once."""
        first.reads = second.reads = inputs
        second.adds = (output,)
        if each.plan.pipelined:
            first.adds = (output,)
        else:
            between = Buffer("aggregate, or its gradient")
            first.writes = second.reads = (between,)
        return first, second
