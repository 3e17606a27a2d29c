"""The full-graph engine: all units of a layer, then the next layer, forward and then backward.

The flow is HongTu's Algorithm 1. Per layer and round: the rows that the units read arrive as the
communication part planned, every device aggregates and updates its unit, and the outputs go where
the memory part keeps vertex data. Backward, the gradients of the input rows go back the same ways.
The gradient of the input features is nobody's need and is not computed.

Here is what is the same wherever vertex data lives: preparation, the work on one unit, and the
update of the model. ``host_resident`` and ``device_resident`` bring rows and take results away.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from gnnbench.engine.base import Engine
from gnnbench.engine.evidence import Evidence
from gnnbench.engine.passes import (
    AggregateTape,
    UpdateTape,
    run_aggregate,
    run_aggregate_backward,
    run_update,
    run_update_backward,
    take_gradients,
)
from gnnbench.engine.recorder import Recorder
from gnnbench.footprint import ChunkSize, adjacency_bytes, size_of
from gnnbench.lowering.capacity import TrainerCapacity
from gnnbench.lowering.memory import allocate_host_graph, allocate_model, compute_resource
from gnnbench.lowering.units import needs_aggregate_gradient, update_gemms
from gnnbench.models import BoundBlock
from gnnbench.parts import Bundle, FullGraphSampler, Setting
from gnnbench.platforms.machine import Device
from gnnbench.records import EpochTrace, IntArray, RoundTraffic, Stage, Unit, Work

#: Spans that later ones wait for.
Ids = tuple[int, ...]


class LayerMajorEngine(Engine):
    """Trains on the whole graph; see the module's docstring."""

    def __init__(
        self,
        bundle: Bundle,
        setting: Setting,
        recorder: Recorder,
        evidence: Evidence | None = None,
    ) -> None:
        super().__init__(bundle, setting, recorder, evidence)
        if not isinstance(bundle.sampler, FullGraphSampler):
            raise TypeError("the layer-major engine takes full-graph samplers")
        self._sampler = bundle.sampler
        self._train_ids = torch.from_numpy(setting.dataset.train_ids)
        self._layers = self.replicas.master.stack

    # ------------------------------------------------------------------ preparation

    @property
    def _topologies(self) -> str:
        """What the ledger calls those that stay on a device."""
        return "chunk topologies"

    def prepare(self) -> None:
        """Partition, plan the traffic, bind the blocks, and place what stays for the whole run."""
        setting, bundle, ledger = self._setting, self._bundle, self.ledger
        allocate_host_graph(ledger, setting)
        shapes = self.replicas.master.shapes
        self._sampler.limit(TrainerCapacity(bundle, ledger, self._trainers, shapes, self._itemsize))
        self._rounds = self._sampler.chunks(setting, len(self._trainers))
        owner = self._sampler.owner()
        traffic: list[RoundTraffic] = []
        for round_ in self._rounds:
            previous = traffic[-1] if traffic else None
            traffic.append(bundle.communication.plan(round_, previous, owner))
        self._adopt(traffic, owner)
        del traffic
        self._bounds: dict[tuple[int, int], tuple[BoundBlock, ...]] = {}
        topology = dict.fromkeys((device.name for device in self._trainers), 0)
        for round_ in self._rounds:
            for unit in round_.units:
                device = self._trainers[unit.slot]
                if not bundle.memory.streams_topology():
                    topology[device.name] += sum(
                        adjacency_bytes(shapes, size, self._itemsize, bundle.kernel)
                        for size in self._sizes_of(unit)
                    )
                self._bounds[round_.index, unit.slot] = tuple(
                    BoundBlock(
                        block,
                        bundle.kernel,
                        self._degrees,
                        self._dtype,
                        torch.device(device.torch_device),
                    )
                    for block in unit.blocks
                )
        for device in self._trainers:
            ledger.allocate(device.name, self._topologies, topology[device.name])
            allocate_model(ledger, setting, device)
        self._place()

    @abstractmethod
    def _adopt(self, traffic: Sequence[RoundTraffic], owner: IntArray) -> None:
        """Take over the plan of where the rows of each round come from."""

    @abstractmethod
    def _place(self) -> None:
        """Put vertex data where it lives, and account for what stays for the whole run."""

    def _sizes_of(self, unit: Unit) -> tuple[ChunkSize, ...]:
        """The sizes of a unit's blocks."""
        return tuple(size_of(block) for block in unit.blocks)

    # ------------------------------------------------------------------ one epoch

    def run_epoch(self, epoch: int) -> EpochTrace:
        """One full-graph iteration: forward, loss, backward, update."""
        self._recorder.start_epoch(epoch)
        self._epoch = epoch
        self._begin_update()
        self._tapes: dict[tuple[int, int, int], tuple[AggregateTape, UpdateTape]] = {}
        self._barrier: Ids = ()
        loss = self._propagate()
        self._synchronise()
        return self._recorder.end_epoch(loss, [loss], len(self._train_ids))

    @abstractmethod
    def _propagate(self) -> float:
        """All layers forward, the loss, which is returned, and all layers backward."""

    # ------------------------------------------------------------------ one unit of one layer

    def _bound(self, number: int, round_index: int, slot: int) -> BoundBlock:
        """A unit's block of a layer; a chunk has one for all layers."""
        bounds = self._bounds[round_index, slot]
        return bounds[number] if len(bounds) > 1 else bounds[0]

    def _forward_unit(
        self,
        number: int,
        round_index: int,
        unit: Unit,
        device: Device,
        h: Tensor,
        after: Ids,
        *,
        stages: tuple[Stage, Stage],
        keep_tape: bool,
    ) -> tuple[tuple[AggregateTape, UpdateTape], Ids]:
        """AGGREGATE and UPDATE of one unit, in the first pass or as recomputation."""
        layer = self.replicas.on(device).stack[number]
        bound = self._bound(number, round_index, unit.slot)
        first = number == 0
        with self._recorder.span(
            stages[0],
            "aggregate forward",
            device.name,
            layer.aggregate_work(bound.block, self._itemsize),
            after=after,
            resources=compute_resource(device, self._host, "aggregate"),
            layer=number,
        ) as aggregate:
            if keep_tape:
                tape = run_aggregate(layer, bound, h, first=first)
            else:
                with torch.no_grad():
                    tape = AggregateTape(None, layer.aggregate(bound, h))
        updated, update = self._update_unit(
            number, bound, device, tape.output,
            after if device.pipelined else (aggregate.id,), stages[1], keep_tape=keep_tape,
        )  # fmt: skip
        return (tape, updated), ((aggregate.id, update) if device.pipelined else (update,))

    def _update_unit(
        self,
        number: int,
        bound: BoundBlock,
        device: Device,
        aggregate: Tensor,
        after: Ids,
        stage: Stage,
        *,
        keep_tape: bool,
    ) -> tuple[UpdateTape, int]:
        layer = self.replicas.on(device).stack[number]
        with self._recorder.span(
            stage,
            "update forward",
            device.name,
            layer.update_work(bound.block.num_dst, self._itemsize),
            after=after,
            resources=compute_resource(device, self._host, "update"),
            layer=number,
        ) as span:
            if keep_tape:
                needs = needs_aggregate_gradient(layer, first=number == 0)
                tape = run_update(layer, bound, aggregate, needs_input_gradient=needs)
            else:
                with torch.no_grad():
                    tape = UpdateTape(aggregate, layer.update(bound, aggregate))
        return tape, span.id

    def _backward_unit(
        self,
        number: int,
        round_index: int,
        unit: Unit,
        device: Device,
        upper: Tensor,
        aggregate: AggregateTape | None,
        updated: UpdateTape,
        after: Ids,
        *,
        into: Tensor | None = None,
    ) -> tuple[Tensor | None, Ids]:
        """The gradients of a unit's input rows, None for features, added to ``into`` if given."""
        layer = self.replicas.on(device).stack[number]
        bound = self._bound(number, round_index, unit.slot)
        first = number == 0
        gemms = update_gemms(layer, first=first)
        with self._recorder.span(
            "update",
            "update backward",
            device.name,
            layer.update_work(bound.block.num_dst, self._itemsize, gemms),
            after=after,
            resources=compute_resource(device, self._host, "update"),
            layer=number,
        ) as update:
            below = run_update_backward(updated, upper)
        if below is None:
            return None, (update.id,)
        with self._recorder.span(
            "aggregate",
            "aggregate backward",
            device.name,
            layer.aggregate_work(bound.block, self._itemsize),
            after=after if device.pipelined else (update.id,),
            resources=compute_resource(device, self._host, "aggregate"),
            layer=number,
        ) as span:
            rows = run_aggregate_backward(layer, bound, aggregate, below, first=first, into=into)
        return rows, ((span.id, update.id) if device.pipelined else (span.id,))

    def _count_unit(self, number: int, round_index: int, slot: int, num_inputs: int) -> None:
        """Count what one unit, which reads ``num_inputs`` features, computes in a layer."""
        layer, block = self._layers[number], self._bound(number, round_index, slot).block
        self._recorder.count_traversed(
            block.num_edges, block.num_dst + (num_inputs if number == 0 else 0)
        )
        self._recorder.count_work(
            self._trainers[slot].name,
            float(block.num_edges * layer.in_features + block.num_dst * layer.macs_per_row),
        )

    def _synchronise(self) -> None:
        """All-reduce the gradients among the devices and update every replica."""
        recorder, devices = self._recorder, self._trainers
        size = self._setting.parameter_bytes
        spans: list[int] = []
        if len(devices) > 1:
            # A ring: every device sends 2 (m-1)/m of the model to its neighbour.
            share = 2 * (len(devices) - 1) * size // len(devices)
            ring = self._bundle.communication.all_reduce == "ring"
            for slot, device in enumerate(devices):
                peer = devices[(slot + 1) % len(devices)] if ring else self._host
                with recorder.transfer(
                    "synchronize",
                    "all-reduce gradients",
                    self._platform.route(device, peer),
                    Work("copy", bytes=share if ring else 2 * size),
                    after=self._barrier,
                ) as span:
                    pass
                recorder.count_bytes("all_reduce", share if ring else 2 * size)
                spans.append(span.id)
        with recorder.span(
            "synchronize",
            "average and step",
            devices[0].name,
            Work("copy", bytes=3 * size),
            after=tuple(spans) or self._barrier,
        ):
            models = {d.torch_device: self.replicas.on(d).stack for d in devices}
            gradients = [take_gradients(stack) for stack in models.values()]
            self._step(
                [
                    torch.stack([part.to("cpu") for part in parts]).sum(dim=0)
                    for parts in zip(*gradients, strict=True)
                ]
            )
