"""The full-graph engine: all units of a layer, then the next layer, forward and then backward.

The flow is HongTu's Algorithm 1, of which training in one device's memory is the case of one round
and no movement. Per layer and round: the rows that the units read arrive as the communication part
planned (Algorithm 2), every device aggregates and updates its unit, and the outputs go where the
memory part keeps vertex data. Backward, per layer and round: what the memory part kept, cached or
dropped is used, loaded or recomputed, and the gradients of the input rows go back the same ways
(Algorithm 3). The gradient of the input features is nobody's need and is not computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from gnnbench.engine.base import Engine
from gnnbench.engine.capacity import TrainerCapacity
from gnnbench.engine.checkpoints import Checkpoints
from gnnbench.engine.host_store import HostStore, page_bytes, trim_heap
from gnnbench.engine.machinery import (
    allocate_host_graph,
    allocate_model,
    compute_resource,
    feature_rows,
    fill_features,
    shares_features,
    stored_bytes,
)
from gnnbench.engine.movement import (
    Buffers,
    SlotMovement,
    largest_buffers,
    plan_movement,
    read_rows,
)
from gnnbench.engine.passes import (
    AggregateTape,
    UpdateTape,
    needs_aggregate_gradient,
    run_aggregate,
    run_aggregate_backward,
    run_update,
    run_update_backward,
    take_gradients,
    update_gemms,
    without_outputs,
)
from gnnbench.engine.recorder import Recorder
from gnnbench.engine.saved import SavedTensors
from gnnbench.engine.shards import History, Read, Sharded, ShardPlan
from gnnbench.footprint import (
    ChunkSize,
    host_tensors,
    in_flight_bytes,
    intermediate_bytes,
    kept_bytes,
    size_of,
    working_bytes,
)
from gnnbench.kernels.buffers import pool
from gnnbench.models import BoundBlock, Layer
from gnnbench.parts import Bundle, FullGraphSampler, PeerData, Setting
from gnnbench.platforms.machine import DISK, Device, Route
from gnnbench.records import (
    BoolArray,
    EpochTrace,
    Fetch,
    IntArray,
    Round,
    RoundTraffic,
    Stage,
    Unit,
    Work,
)

Ids = tuple[int, ...]
#: Vertex data of one layer: all rows on the host (or of the one device), or each device's own.
Rows = Tensor | Sharded


def _in_place(round_: Round) -> RoundTraffic:
    """The movement of rows that are on the devices: none."""
    nothing = np.empty(0, dtype=np.int64)
    needed = [(unit.slot, np.sort(unit.input_ids)) for unit in round_.units]
    return RoundTraffic(tuple(Fetch(slot, ids, nothing, ids) for slot, ids in needed))


class LayerMajorEngine(Engine):
    """Trains on the whole graph; see the module's docstring."""

    def __init__(
        self,
        bundle: Bundle,
        setting: Setting,
        recorder: Recorder,
        checkpoints: Checkpoints | None = None,
    ) -> None:
        super().__init__(bundle, setting, recorder, checkpoints)
        if not isinstance(bundle.sampler, FullGraphSampler):
            raise TypeError("the layer-major engine takes full-graph samplers")
        self._sampler = bundle.sampler
        self._on_host = bundle.memory.vertex_data == "host"
        self._train_ids = torch.from_numpy(setting.dataset.train_ids)
        self._layers = self.replicas.master.stack

    # ------------------------------------------------------------------ preparation

    def prepare(self) -> None:
        """Partition, plan the traffic, bind the blocks, and place what stays for the whole run."""
        setting, bundle, ledger = self._setting, self._bundle, self.ledger
        allocate_host_graph(ledger, setting)
        shapes = self.replicas.master.shapes
        self._sampler.limit(TrainerCapacity(bundle, ledger, self._trainers, shapes, self._itemsize))
        self._rounds = self._sampler.chunks(setting, len(self._trainers))
        owner = self._sampler.owner()
        self._remote = self._mark_remote(owner)
        traffic: list[RoundTraffic] = []
        for round_ in self._rounds:
            previous = traffic[-1] if traffic else None
            traffic.append(bundle.communication.plan(round_, previous, owner))
        shares_rows = self._on_host and bundle.communication.shares_rows
        movement = traffic if self._on_host else [_in_place(round_) for round_ in self._rounds]
        self._moves = plan_movement(
            self._rounds, movement, setting.dataset.graph.num_vertices, shares_rows=shares_rows
        )
        self._buffer_rows = largest_buffers(traffic) if shares_rows else {}
        self._bounds: dict[tuple[int, int], BoundBlock] = {}
        topology: dict[str, int] = {}
        for round_, moves in zip(self._rounds, self._moves, strict=True):
            for unit, move in zip(round_.units, moves, strict=True):
                device = self._trainers[move.slot]
                size = self._size_of(unit).topology_bytes
                topology[device.name] = topology.get(device.name, 0) + size
                self._bounds[round_.index, move.slot] = BoundBlock(
                    move.block,
                    bundle.kernel,
                    self._degrees,
                    self._dtype,
                    torch.device(device.torch_device),
                )
        # One unit that is the whole graph in the device's memory: tensors need no copies at all.
        everything = np.arange(setting.dataset.graph.num_vertices)
        self._undivided = (
            not self._on_host
            and len(self._bounds) == 1
            and np.array_equal(self._rounds[0].units[0].input_ids, everything)
        )
        for device in self._trainers:
            ledger.allocate(device.name, "chunk topologies", topology.get(device.name, 0))
            allocate_model(ledger, setting, device)
        if self._on_host:
            # The chunks as they were cut are not needed beside those that read buffers.
            self._rounds = tuple(
                Round(round_.index, tuple(Unit(move.slot, (move.block,)) for move in moves))
                for round_, moves in zip(self._rounds, self._moves, strict=True)
            )
            self._place_on_host()
            del traffic, movement
            if self._host_store.spilled:
                trim_heap()
            return
        if not self._undivided:
            self._shards = ShardPlan(
                self._rounds,
                traffic,
                owner,
                len(self._trainers),
                broadcasts=bundle.communication.broadcasts,
            )
            self._history = History(bundle.communication)
        self._place_on_devices()

    def _place_on_host(self) -> None:
        """h^0 .. h^L, two buffers for their gradients and the cached aggregates, as ``HostStore``
        divides them between memory and disk; all are there for the whole run."""
        setting, shapes, memory = self._setting, self.replicas.master.shapes, self._bundle.memory
        vertices = setting.dataset.graph.num_vertices
        units = [unit for round_ in self._rounds for unit in round_.units]
        policies = [memory.intermediates(shape) for shape in shapes]
        shared = shares_features(setting)
        tensors = host_tensors(
            shapes,
            policies,
            num_vertices=vertices,
            num_sources=sum(self._size_of(unit).rows for unit in units),
            num_edges=sum(unit.blocks[0].num_edges for unit in units),
            itemsize=self._itemsize,
            own_features=not shared,
        )
        budget_bytes = self.ledger.free_bytes(self._host.name)
        if self._host in self._trainers:
            chunks = [self._size_of(unit) for unit in units]
            budget_bytes -= working_bytes(shapes, policies, chunks, self._itemsize)
        self._host_store = HostStore(
            tensors,
            budget_bytes,
            memory.spill_directory(),
            self.ledger,
            self._host.name,
            self._dtype,
        )
        if self._host_store.spilled and self._platform.virtual:
            _ = self._platform.disk  # refuses a platform that cannot price it
        dims = setting.workload.dims
        self._representations: list[Rows] = [torch.empty(0)] * len(dims)
        self._gradients: dict[int, Tensor] = {}
        self._cached: dict[int, Tensor] = {}
        if shared:
            self._representations[0] = torch.from_numpy(setting.dataset.features)
        for tensor in tensors:
            if tensor.what == "saved intermediates":
                continue
            flat = self._host_store.empty(tensor.name)
            for number in tensor.layers:
                if tensor.kind == "intermediates":
                    self._cached[number - 1] = flat.view(vertices, -1)
                elif tensor.kind == "gradients":
                    self._gradients[number] = flat[: vertices * dims[number]].view(vertices, -1)
                else:
                    self._representations[number] = flat.view(vertices, -1)
        own = self._representations[0]
        if not shared and isinstance(own, Tensor):
            fill_features(setting, own)
            self._host_store.drop_pages()

    def _mark_remote(self, owner: IntArray) -> dict[str, Tensor]:
        """By accelerator, whether each vertex's rows lie at another socket of the host, bool
        ``(V,)``; empty for a host of one socket."""
        if self._host.sockets == 1 or not self._on_host:
            return {}
        sockets = self._bundle.placement.sockets(self._platform, owner)
        return {
            device.name: torch.from_numpy(sockets != self._platform.socket(device))
            for device in self._trainers
            if device != self._host
        }

    def _remote_bytes(self, ids: Tensor, device: Device, row_bytes: int) -> int:
        """How much of the rows ``ids`` crosses the host's sockets, to or from a device."""
        remote = self._remote.get(device.name)
        return 0 if remote is None else int(remote[ids].sum()) * row_bytes

    def _size_of(self, unit: Unit) -> ChunkSize:
        return size_of(unit.blocks[0], self._buffer_rows.get(unit.slot))

    def notes(self) -> tuple[str, ...]:
        """What was spilled."""
        return self._host_store.notes() if self._on_host else ()

    def _place_on_devices(self) -> None:
        """Each device holds the features of its partition and all that its own units make."""
        setting = self._setting
        if self._undivided:
            everything = np.arange(setting.dataset.graph.num_vertices)
            features = [feature_rows(setting, everything, sparse=self._sparse)]
            self._representations = [features[0]]
        else:
            features = [
                feature_rows(setting, ids, sparse=False).to(device.torch_device)
                for ids, device in zip(self._shards.owned, self._trainers, strict=True)
            ]
            self._representations = [dict(enumerate(features))]
        for slot, (device, rows) in enumerate(zip(self._trainers, features, strict=True)):
            self.ledger.allocate(device.name, "vertex features on the device", stored_bytes(rows))
            chunks = [
                self._size_of(unit)
                for round_ in self._rounds
                for unit in round_.units
                if unit.slot == slot
            ]
            for number, shape in enumerate(self.replicas.master.shapes):
                self.ledger.allocate(
                    device.name,
                    f"kept intermediates of layer {number + 1}",
                    kept_bytes(shape, chunks, self._itemsize, copied=not self._undivided),
                )
            if not self._undivided:
                self._allocate_for_peers(slot, device, chunks)

    def _allocate_for_peers(self, slot: int, device: Device, chunks: Sequence[ChunkSize]) -> None:
        """What a device holds, besides its shard, for rows that cross and for those that did."""
        shapes, item = self.replicas.master.shapes, self._itemsize
        widest = max(shape.in_features for shape in shapes)
        if count := self._shards.broadcast_rows:
            self.ledger.allocate(device.name, "broadcast rows", count * widest * item)
        if self._history.keeps("rows"):
            # The input rows of other layers are kept for the backward pass anyway.
            width = sum(shape.in_features for shape in shapes if shape.cacheable)
            count = sum(chunk.num_src for chunk in chunks)
            self.ledger.allocate(device.name, "stale rows", count * width * item)
        if self._history.keeps("gradients"):
            width = sum(shape.in_features for shape in shapes[1:])
            count = self._shards.count_read_by_peers(slot)
            self.ledger.allocate(device.name, "stale gradients", count * width * item)

    # ------------------------------------------------------------------ one epoch

    def run_epoch(self, epoch: int) -> EpochTrace:
        """One full-graph iteration: forward, loss, backward, update."""
        self._recorder.start_epoch(epoch)
        if self._checkpoints is not None:
            self._checkpoints.visit(self.replicas, self._recorder)
        self._tapes: dict[tuple[int, int, int], tuple[AggregateTape, UpdateTape]] = {}
        self._saved: dict[tuple[int, int, int], SavedTensors] = {}
        self._barrier: Ids = ()
        for number in range(len(self._layers)):
            self._forward_layer(number)
        loss, gradient = self._loss()
        for number in reversed(range(len(self._layers))):
            gradient = self._backward_layer(number, gradient)
        self._synchronise()
        if not self._on_host:
            del self._representations[1:]
        return self._recorder.end_epoch(loss, [loss])

    def _forward_layer(self, number: int) -> None:
        layer = self._layers[number]
        source = self._representations[number]
        output = self._open_output(number)
        policy = self._bundle.memory.intermediates(layer.shape)
        buffers = self._make_room(number, "rows")
        for round_, moves in zip(self._rounds, self._moves, strict=True):
            self._recorder.round = round_.index
            inputs, arrived = self._bring(number, source, moves, buffers)
            ends: list[int] = []
            for unit, move in zip(round_.units, moves, strict=True):
                device = self._trainers[unit.slot]
                saved = self._record_saved(number, device) if policy == "offload" else None
                with self.ledger.scope(device.name):
                    self._hold_unit(layer, unit, device, move, backward=False)
                    with nullcontext() if saved is None else saved.recording():
                        tape, last = self._forward_unit(
                            number, round_.index, unit, device, inputs.pop(unit.slot), arrived,
                            stages=("aggregate", "update"),
                            keep_tape=policy in ("keep", "offload"),
                        )  # fmt: skip
                    ids = torch.from_numpy(unit.output_ids)
                    if self._undivided:
                        output = tape[1].output.detach()
                    else:
                        into, ids = self._place_of(output, round_.index, unit)
                        last = self._store(
                            number, into, ids, tape[1].output.detach(), device, last, "outputs"
                        )
                    if policy == "cache":
                        last = self._store(
                            number, self._cached[number], ids, tape[0].output, device, last,
                            "aggregates",
                        )  # fmt: skip
                    if saved is not None:
                        tape = without_outputs(*tape)
                        last = self._offload_saved(number, saved, device, last)
                        self._saved[number, round_.index, unit.slot] = saved
                if policy in ("keep", "offload"):
                    self._tapes[number, round_.index, unit.slot] = tape
                block = unit.blocks[0]
                inputs_rows = len(move.input_ids) if number == 0 else 0
                self._recorder.count_traversed(block.num_edges, block.num_dst + inputs_rows)
                self._recorder.count_work(
                    device.name,
                    float(block.num_edges * layer.in_features + block.num_dst * layer.macs_per_row),
                )
                ends.extend(last)
            self._end_round(round_, ends)
        self._free_room("rows")
        if not self._on_host:
            self._representations.append(output)

    def _open_output(self, number: int) -> Rows:
        """Where a layer's outputs go; where the graph is undivided, they stay what they are."""
        if self._on_host:
            return self._representations[number + 1]
        if self._undivided:
            return torch.empty(0)
        return self._open_shards(self._layers[number].out_features)

    def _open_shards(self, width: int) -> Sharded:
        return {
            slot: torch.zeros(
                (len(ids), width), dtype=self._dtype, device=self._trainers[slot].torch_device
            )
            for slot, ids in enumerate(self._shards.owned)
        }

    def _place_of(self, rows: Rows, round_index: int, unit: Unit) -> tuple[Tensor, Tensor]:
        """The tensor that has the rows of a unit's destinations, and where they stand in it."""
        if isinstance(rows, Tensor):
            return rows, torch.from_numpy(unit.output_ids)
        return rows[unit.slot], self._shards.outputs[round_index, unit.slot].to(
            rows[unit.slot].device
        )

    def _end_round(self, round_: Round, ends: Sequence[int]) -> None:
        self._barrier = tuple(ends) or self._barrier
        if not self._on_host:
            return
        self._host_store.drop_pages()
        if self._host_store.spilled:
            # Memory is short: what a round made of its blocks is made again for the next layer.
            for unit in round_.units:
                self._bounds[round_.index, unit.slot].release()
            pool.release()
            trim_heap()

    def _make_room(self, number: int, what: Literal["rows", "gradients"]) -> Buffers:
        """The buffers of one pass over a layer's rounds, as large as the largest of them needs."""
        buffers = Buffers()
        width = self._layers[number].in_features
        row_bytes = width * self._itemsize
        for slot, rows in self._buffer_rows.items():
            device = self._trainers[slot]
            self.ledger.allocate(device.name, f"neighbour {what}", rows.neighbour * row_bytes)
            if rows.transition is not None:
                self.ledger.allocate(device.name, f"transition {what}", rows.transition * row_bytes)
            buffers.make_room(slot, rows, width, self._dtype, torch.device(device.torch_device))
        return buffers

    def _free_room(self, what: Literal["rows", "gradients"]) -> None:
        # The next layer's arrays have other widths; this one's are given back to the system.
        pool.release()
        for slot, rows in self._buffer_rows.items():
            kinds = ["neighbour"] if rows.transition is None else ["neighbour", "transition"]
            self.ledger.free(self._trainers[slot].name, *(f"{kind} {what}" for kind in kinds))

    def _bring(
        self,
        number: int,
        source: Rows,
        moves: Sequence[SlotMovement],
        buffers: Buffers,
    ) -> tuple[dict[int, Tensor], Ids]:
        """The input rows of a round's units, by slot, and the spans they arrive with."""
        if isinstance(source, dict):
            return self._read_shards(number, source, moves)
        if self._undivided:
            return {move.slot: source for move in moves}, self._barrier
        row_bytes = source.shape[1] * self._itemsize
        inputs: dict[int, Tensor] = {}
        arrived: list[int] = []
        for move in moves:
            device = self._trainers[move.slot]
            size = move.rows_from_host * row_bytes
            with self._recorder.transfer(
                "transfer",
                "host to device",
                self._platform.route(self._host, device),
                Work(
                    "copy",
                    rows=move.rows_from_host,
                    bytes=size,
                    remote_bytes=self._remote_bytes(move.host_ids, device, row_bytes),
                ),
                after=self._cross_disk(
                    "load", "read from disk", number, source, move.host_ids, self._barrier
                ),
                layer=number,
            ) as span:
                rows = read_rows(source, move.host_ids, torch.device(device.torch_device))
                if move.direct:
                    inputs[move.slot] = rows
                else:
                    buffers.load(move, rows)
            self._recorder.count_bytes("host_to_device", size)
            self._recorder.count_bytes("reused", move.rows_reused * row_bytes)
            arrived.append(span.id)
        if inputs:
            return inputs, tuple(arrived)
        loaded = tuple(arrived)
        keeps = self._bundle.memory.intermediates(self._layers[number].shape) == "keep"
        for move in moves:
            ready = loaded
            for pull in move.pulls:
                with self._exchange_rows(
                    move.slot, pull, row_bytes, ready, number, push=False
                ) as span:
                    buffers.pull(move, pull)
                ready = (*loaded, span.id)
                arrived.append(span.id)
            rows = buffers.rows(move)
            # What autograd keeps over the rounds must not lie where the next one writes.
            inputs[move.slot] = rows.clone() if keeps else rows
        return inputs, tuple(arrived)

    def _read_shards(
        self, number: int, source: Sharded, moves: Sequence[SlotMovement]
    ) -> tuple[dict[int, Tensor], Ids]:
        """A round's input rows, from the units' own shards and from their peers'."""
        inputs: dict[int, Tensor] = {}
        arrived: list[int] = []
        for move in moves:
            own = source[move.slot]
            shape = (len(move.input_ids), own.shape[1])
            rows = self._history.inputs(number, self._recorder.round, move.slot, shape, own)
            ready = self._barrier
            for read in self._shards.reads[self._recorder.round, move.slot]:
                crossing = read.pick(self._choose(number, "rows", move.slot, read))
                if not crossing.rows:
                    continue
                with self._exchange_rows(
                    move.slot, crossing, own.shape[1] * self._itemsize, ready, number, push=False
                ) as span:
                    crossing.receive(rows, source[read.slot])
                ready = (span.id,)
            inputs[move.slot] = rows
            arrived.extend(ready)
        return inputs, tuple(arrived)

    def _choose(self, number: int, what: PeerData, slot: int, read: Read) -> BoolArray:
        """Which rows of a read cross in this epoch; those of the own shard always do."""
        if read.slot == slot:
            return np.ones(read.rows, dtype=np.bool_)
        with self._recorder.inside_part():
            return self._history.choose(self._recorder.epoch, number, what, read)

    def _hold_unit(
        self, layer: Layer, unit: Unit, device: Device, move: SlotMovement, *, backward: bool
    ) -> None:
        """Account for one unit of one layer on its device; the caller's scope releases it."""
        if not self._on_host:
            if not backward and not self._undivided and self._history.keeps("rows"):
                return
            chunk = self._size_of(unit)
            owned = chunk.num_dst if self._undivided else len(self._shards.owned[unit.slot])
            size = in_flight_bytes(
                layer.shape, chunk, owned, self._itemsize, backward=backward,
                first=layer is self._layers[0], copied=not self._undivided,
            )  # fmt: skip
            self.ledger.allocate(device.name, "rows and gradients in flight", size)
            return
        name, item, shape = device.name, self._itemsize, layer.shape
        policy = self._bundle.memory.intermediates(shape)
        chunk = self._size_of(unit)
        rows_in = chunk.rows * layer.in_features * item
        made = intermediate_bytes(shape, chunk, item)
        if move.direct and (not backward or policy == "recompute"):
            self.ledger.allocate(name, "neighbour rows", rows_in)
        elif backward and policy == "offload":
            self.ledger.allocate(name, "restored rows", rows_in)
        self.ledger.allocate(name, "chunk intermediates", made)
        if backward:
            self.ledger.allocate(name, "chunk gradients", made)
            if move.direct and layer is not self._layers[0]:
                self.ledger.allocate(name, "neighbour gradients", rows_in)

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
        bound = self._bounds[round_index, unit.slot]
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

    def _store(
        self,
        number: int,
        into: Tensor,
        ids: Tensor,
        rows: Tensor,
        device: Device,
        after: Ids,
        what: str,
    ) -> Ids:
        """Copy a unit's rows to where the vertex data lives."""
        if not self._on_host:
            into[ids] = rows.to(into.device)
            return after
        size = rows.numel() * self._itemsize
        remote_bytes = self._remote_bytes(ids, device, rows.shape[1] * self._itemsize)
        with self._recorder.transfer(
            "offload",
            f"{what} to host",
            self._platform.route(device, self._host),
            Work("copy", rows=len(ids), bytes=size, remote_bytes=remote_bytes),
            after=after,
            layer=number,
        ) as span:
            into[ids] = rows.to(into.device)
        self._recorder.count_bytes("device_to_host", size)
        return self._cross_disk("offload", "write to disk", number, into, ids, (span.id,))

    def _fetch(
        self, number: int, source: Tensor, ids: Tensor, device: Device, after: Ids, what: str
    ) -> tuple[Tensor, Ids]:
        """Copy rows of vertex data to a unit's device."""
        if not self._on_host:
            rows = source if self._undivided else source[ids]
            return rows.to(device.torch_device), after
        after = self._cross_disk("load", "read from disk", number, source, ids, after)
        size = len(ids) * source.shape[1] * self._itemsize
        remote_bytes = self._remote_bytes(ids, device, source.shape[1] * self._itemsize)
        with self._recorder.transfer(
            "transfer",
            f"{what} to device",
            self._platform.route(self._host, device),
            Work("copy", rows=len(ids), bytes=size, remote_bytes=remote_bytes),
            after=after,
            layer=number,
        ) as span:
            rows = source[ids].to(device.torch_device)
        self._recorder.count_bytes("host_to_device", size)
        return rows, (span.id,)

    def _cross_disk(
        self,
        stage: Stage,
        label: str,
        number: int,
        tensor: Tensor,
        ids: Tensor | None,
        after: Ids,
    ) -> Ids:
        """Rows ``ids`` (all where None) between the host's memory and its disk, if they lie there.

        The pages move when they are touched, which is in the span that copies the rows; here they
        are priced.
        """
        if not self._host_store.is_on_disk(tensor):
            return after
        row_bytes = tensor.shape[1] * self._itemsize
        size = len(tensor) * row_bytes if ids is None else page_bytes(ids, row_bytes)
        return self._disk_span(stage, label, number, size, after)

    def _disk_span(self, stage: Stage, label: str, number: int, size: int, after: Ids) -> Ids:
        work = Work("copy", bytes=size)
        with self._recorder.transfer(
            stage, label, Route(DISK, (DISK,)), work, after=after, layer=number
        ) as span:
            pass
        return (span.id,)

    def _record_saved(self, number: int, device: Device) -> SavedTensors:
        return SavedTensors(list(self.replicas.on(device).stack[number].parameters()))

    def _offload_saved(self, number: int, saved: SavedTensors, device: Device, after: Ids) -> Ids:
        """What autograd saved of one unit goes to the host."""
        name = f"saved intermediates of layer {number + 1}"
        size = saved.size_bytes
        with self._recorder.transfer(
            "offload",
            "intermediates to host",
            self._platform.route(device, self._host),
            Work("copy", bytes=size),
            after=after,
            layer=number,
        ) as span:
            saved.offload(lambda tensor: self._host_store.like(name, tensor))
        self._recorder.count_bytes("device_to_host", size)
        if self._host_store.memory_of(name) == DISK:
            return self._disk_span("offload", "write to disk", number, size, (span.id,))
        return (span.id,)

    def _restore_saved(self, number: int, saved: SavedTensors, device: Device, after: Ids) -> Ids:
        """And comes back for the unit's backward pass."""
        size = saved.size_bytes
        if self._host_store.memory_of(f"saved intermediates of layer {number + 1}") == DISK:
            after = self._disk_span("load", "read from disk", number, size, after)
        with self._recorder.transfer(
            "transfer",
            "intermediates to device",
            self._platform.route(self._host, device),
            Work("copy", bytes=size),
            after=after,
            layer=number,
        ) as span:
            saved.restore(torch.device(device.torch_device))
        self._recorder.count_bytes("host_to_device", size)
        return (span.id,)

    def _sharded_loss(self, logits: Sharded) -> tuple[float, Sharded]:
        """The same, of each device's own training vertices."""
        gradient = {slot: torch.zeros_like(rows) for slot, rows in logits.items()}
        total, ends = 0.0, []
        for slot, device in enumerate(self._trainers):
            rows, ids = logits[slot], self._shards.owned[slot]
            chosen_ids = ids[np.isin(ids, self._train_ids.numpy(), assume_unique=True)]
            with self._recorder.span(
                "update",
                "loss",
                device.name,
                Work("copy", rows=len(chosen_ids), bytes=2 * rows.numel() * self._itemsize),
                after=self._barrier,
                layer=len(self._layers),
            ) as span:
                positions = self._shards.find(chosen_ids, slot).to(rows.device)
                chosen = rows[positions].requires_grad_()
                labels = self._labels[torch.from_numpy(chosen_ids)].to(rows.device)
                loss = torch.nn.functional.cross_entropy(chosen, labels, reduction="sum")
                loss = loss / len(self._train_ids)
                torch.autograd.backward(loss)
                if chosen.grad is not None:
                    gradient[slot][positions] = chosen.grad
                total += float(loss.detach())
            ends.append(span.id)
        self._barrier = tuple(ends)
        return total, gradient

    def _loss(self) -> tuple[float, Rows]:
        """Mean cross entropy over the training vertices, and the gradient of h^L."""
        logits = self._representations[-1]
        if isinstance(logits, dict):
            return self._sharded_loss(logits)
        place = self._host if self._on_host else self._trainers[0]
        depth = len(self._layers)
        if self._on_host:
            self._barrier = self._cross_disk(
                "load", "read from disk", depth, logits, self._train_ids, self._barrier
            )
            gradient = self._gradients[depth]
        else:
            gradient = torch.empty(logits.shape, dtype=self._dtype)
        with self._recorder.span(
            "update",
            "loss",
            place.name,
            Work("copy", rows=len(self._train_ids), bytes=2 * logits.numel() * self._itemsize),
            after=self._barrier,
            layer=depth,
        ) as span:
            chosen = logits[self._train_ids].requires_grad_()
            loss = torch.nn.functional.cross_entropy(chosen, self._labels[self._train_ids])
            torch.autograd.backward(loss)
            gradient.zero_()
            if chosen.grad is not None:
                gradient[self._train_ids] = chosen.grad
        self._barrier = (span.id,)
        if self._on_host:
            self._barrier = self._cross_disk(
                "offload", "write to disk", depth, gradient, None, self._barrier
            )
            self._host_store.drop_pages()
        return float(loss.detach()), gradient

    def _backward_layer(self, number: int, gradient: Rows) -> Rows:
        layer = self._layers[number]
        first = number == 0
        policy = self._bundle.memory.intermediates(layer.shape)
        source = self._representations[number]
        below: Rows = torch.zeros((0, layer.in_features), dtype=self._dtype)
        if not first and not self._undivided:
            below = self._clear_gradients(number)
        forward, backward = Buffers(), Buffers()
        if policy == "recompute":
            forward = self._make_room(number, "rows")
        if not first:
            backward = self._make_room(number, "gradients")
        for round_, moves in zip(self._rounds, self._moves, strict=True):
            self._recorder.round = round_.index
            inputs: dict[int, Tensor] = {}
            arrived = self._barrier
            if policy == "recompute":
                inputs, arrived = self._bring(number, source, moves, forward)
            if not first and isinstance(below, Tensor) and not moves[0].direct:
                arrived = self._clear_buffers(number, below, moves, backward, arrived)
            ends: list[int] = []
            for unit, move in zip(round_.units, moves, strict=True):
                device = self._trainers[unit.slot]
                above, ids = self._place_of(gradient, round_.index, unit)
                with self.ledger.scope(device.name):
                    self._hold_unit(layer, unit, device, move, backward=True)
                    upper, ready = self._fetch(number, above, ids, device, arrived, "gradients")
                    aggregate: AggregateTape | None
                    key = (number, round_.index, unit.slot)
                    if policy in ("keep", "offload"):
                        aggregate, updated = self._tapes.pop(key)
                        if policy == "offload":
                            saved = self._saved.pop(key)
                            ready = self._restore_saved(number, saved, device, ready)
                    elif policy == "cache":
                        cached, ready = self._fetch(
                            number, self._cached[number], ids, device, ready, "aggregates"
                        )
                        aggregate = None
                        bound = self._bounds[round_.index, unit.slot]
                        updated, span = self._update_unit(
                            number, bound, device, cached, ready, "recompute", keep_tape=True
                        )
                        ready = (span,)
                    else:
                        (aggregate, updated), ready = self._forward_unit(
                            number, round_.index, unit, device, inputs.pop(unit.slot), ready,
                            stages=("recompute", "recompute"), keep_tape=True,
                        )  # fmt: skip
                    rows, last = self._backward_unit(
                        number, round_.index, unit, device, upper, aggregate, updated, ready
                    )
                    if not first:
                        if rows is None:
                            raise RuntimeError("a layer above the first returned no gradient")
                        if self._undivided:
                            below = rows
                        else:
                            last = self._return_gradient(
                                number, below, move, rows, device, backward, last
                            )
                ends.extend(last)
            if not first and isinstance(below, Tensor) and not moves[0].direct:
                ends = self._leave_buffers(number, below, moves, backward, ends)
            self._end_round(round_, ends)
        if policy == "recompute":
            self._free_room("rows")
        if not first:
            self._free_room("gradients")
        if policy == "offload":
            self._host_store.clear(f"saved intermediates of layer {number + 1}")
        return below

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
    ) -> tuple[Tensor | None, Ids]:
        layer = self.replicas.on(device).stack[number]
        bound = self._bounds[round_index, unit.slot]
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
            rows = run_aggregate_backward(layer, bound, aggregate, below, first=first)
        return rows, ((span.id, update.id) if device.pipelined else (span.id,))

    def _clear_gradients(self, number: int) -> Rows:
        """The layer's input gradients, zero, where vertex data lives."""
        if not self._on_host:
            return self._clear_shards(number)
        below = self._gradients[number]
        with self._recorder.span(
            "offload",
            "clear gradients",
            self._host.name,
            Work("copy", rows=len(below), bytes=below.numel() * self._itemsize),
            after=self._barrier,
            layer=number,
        ) as span:
            below.zero_()
            self._host_store.drop_pages()
        self._barrier = self._cross_disk(
            "offload", "write to disk", number, below, None, (span.id,)
        )
        return below

    def _clear_shards(self, number: int) -> Sharded:
        width = self._layers[number].in_features
        ends: list[int] = []
        for slot, device in enumerate(self._trainers):
            count = len(self._shards.owned[slot])
            with self._recorder.span(
                "aggregate",
                "clear gradients",
                device.name,
                Work("copy", rows=count, bytes=count * width * self._itemsize),
                after=self._barrier,
                layer=number,
            ) as span:
                pass
            ends.append(span.id)
        self._barrier = tuple(ends)
        return self._open_shards(width)

    def _clear_buffers(
        self,
        number: int,
        below: Tensor,
        moves: Sequence[SlotMovement],
        buffers: Buffers,
        after: Ids,
    ) -> Ids:
        """Start a round's gradients: zero, but for rows that stay from the round before."""
        spans: list[int] = []
        row_bytes = below.shape[1] * self._itemsize
        for move in moves:
            with self._recorder.span(
                "transfer",
                "clear gradients on device",
                self._trainers[move.slot].name,
                Work("copy", rows=move.rows_cleared, bytes=move.rows_cleared * row_bytes),
                after=after,
                layer=number,
            ) as span:
                buffers.clear(move)
            self._recorder.count_bytes("reused", move.rows_reused * row_bytes)
            spans.append(span.id)
        return tuple(spans)

    def _return_gradient(
        self,
        number: int,
        below: Rows,
        move: SlotMovement,
        rows: Tensor,
        device: Device,
        buffers: Buffers,
        after: Ids,
    ) -> Ids:
        """A unit's input gradients: into the buffers, or straight to where they live."""
        if isinstance(below, dict):
            return self._return_to_shards(number, below, move, rows, after)
        row_bytes = below.shape[1] * self._itemsize
        if move.direct:
            return self._accumulate_on_host(number, below, move.input_ids, rows, device, after)
        # The kernel writes to the buffer, so that adding to what is there is its own work.
        with self._recorder.span(
            "aggregate",
            "accumulate in buffer",
            device.name,
            Work("copy"),
            after=after,
            layer=number,
        ) as span:
            buffers.add(move, rows)
        ready: Ids = (span.id,)
        for push in move.pushes:
            with self._exchange_rows(move.slot, push, row_bytes, ready, number, push=True) as span:
                buffers.push(move, push)
            ready = (span.id,)
        return ready

    def _return_to_shards(
        self, number: int, below: Sharded, move: SlotMovement, rows: Tensor, after: Ids
    ) -> Ids:
        """A unit's input gradients to the owners of the rows; of those that do not cross, what was
        sent last counts once more."""
        round_index, row_bytes = self._recorder.round, rows.shape[1] * self._itemsize
        for read in self._shards.reads[round_index, move.slot]:
            shard = below[read.slot]
            chosen = self._choose(number, "gradients", move.slot, read)
            crossing = read.pick(chosen)
            if crossing.rows:
                with self._exchange_rows(
                    move.slot, crossing, row_bytes, after, number, push=True
                ) as span:
                    sent = crossing.send_back(rows, shard)
                    shard.index_add_(0, crossing.there.to(shard.device), sent)
                after = (span.id,)
            if read.slot == move.slot or not self._history.keeps("gradients"):
                continue
            kept = self._history.gradients(number, round_index, move.slot, read, shard)
            marked = torch.from_numpy(read.mark(chosen))
            stays = torch.nonzero(~marked).flatten().to(shard.device)
            if len(stays):
                # Each element is read twice and written once by the addition.
                with self._recorder.span(
                    "aggregate",
                    "add stale gradients",
                    self._trainers[read.slot].name,
                    Work("copy", rows=len(stays), bytes=3 * len(stays) * row_bytes),
                    after=after,
                    layer=number,
                ) as span:
                    shard.index_add_(0, read.there.to(shard.device)[stays], kept[stays])
                after = (span.id,)
            if crossing.rows:
                kept[marked.to(shard.device)] = sent
        return after

    def _accumulate_on_host(
        self, number: int, below: Tensor, ids: Tensor, rows: Tensor, device: Device, after: Ids
    ) -> Ids:
        """Algorithm 3, lines 6 and 7: gradients cross the link and are added by the CPU."""
        size = rows.numel() * self._itemsize
        remote_bytes = self._remote_bytes(ids, device, rows.shape[1] * self._itemsize)
        with self._recorder.transfer(
            "offload",
            "gradients to host",
            self._platform.route(device, self._host),
            Work("copy", rows=len(ids), bytes=size, remote_bytes=remote_bytes),
            after=after,
            layer=number,
        ) as crossed:
            arrived = rows.to(below.device)
        self._recorder.count_bytes("device_to_host", size)
        ready = self._cross_disk("load", "read from disk", number, below, ids, (crossed.id,))
        # Each element is read twice and written once by the addition.
        with self._recorder.span(
            "offload",
            "accumulate on host",
            self._host.name,
            Work("copy", rows=len(ids), bytes=3 * size),
            after=ready,
            layer=number,
        ) as added:
            below.index_add_(0, ids, arrived)
        return self._cross_disk("offload", "write to disk", number, below, ids, (added.id,))

    def _leave_buffers(
        self,
        number: int,
        below: Tensor,
        moves: Sequence[SlotMovement],
        buffers: Buffers,
        after: Sequence[int],
    ) -> list[int]:
        """After all units have pushed: rows that the next round does not keep go to the host."""
        ends: list[int] = []
        for move in moves:
            device = self._trainers[move.slot]
            count = len(move.leaving_ids)
            # HongTu Figure 7 (b): gathered in the device's memory, so that one copy crosses.
            with self._recorder.span(
                "offload",
                "compact gradients",
                device.name,
                Work("copy", rows=count, bytes=count * below.shape[1] * self._itemsize),
                after=after,
                layer=number,
            ) as span:
                rows = buffers.leave(move)
            ends.extend(
                self._accumulate_on_host(number, below, move.leaving_ids, rows, device, (span.id,))
            )
        return ends

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
            self.replicas.step(
                [
                    torch.stack([part.to("cpu") for part in parts]).sum(dim=0)
                    for parts in zip(*gradients, strict=True)
                ]
            )
