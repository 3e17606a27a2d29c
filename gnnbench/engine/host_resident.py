"""Full-graph training whose vertex data lives on the host: HongTu's Algorithm 1.

Per layer and round: the rows that the units read arrive as the communication part planned
(Algorithm 2), every device aggregates and updates its unit, and the outputs go back. Backward, per
layer and round: what the memory part cached or dropped is loaded or recomputed, and the gradients
of the input rows go back the same ways (Algorithm 3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from gnnbench.engine.host_store import HostStore, IdleMemory, page_bytes
from gnnbench.engine.layer_major import Ids, LayerMajorEngine
from gnnbench.engine.machinery import fill_features, shares_features
from gnnbench.engine.movement import Buffers, read_rows, to_host
from gnnbench.engine.passes import AggregateTape, without_outputs
from gnnbench.engine.saved import SavedTensors
from gnnbench.footprint import (
    ChunkSize,
    adds_apart,
    adjacency_bytes,
    crossing_topology_bytes,
    gradient_bytes,
    host_tensors,
    intermediate_bytes,
    reads_topology,
    size_of,
    staging_bytes,
    working_bytes,
)
from gnnbench.kernels.buffers import pool
from gnnbench.kernels.dispatch import scatter_add_rows
from gnnbench.kernels.pages import trim_heap
from gnnbench.lowering.movement import SlotMovement, largest_buffers, plan_movement
from gnnbench.models import Layer
from gnnbench.platforms.machine import DISK, Device, Route
from gnnbench.program import Held
from gnnbench.records import (
    BufferRows,
    IndexArray,
    IntArray,
    Round,
    RoundTraffic,
    Stage,
    Unit,
    Work,
)

#: One in so many of the host's bytes for vertex data stays free for whoever borrows idle memory.
LENT_SHARE = 8


class HostResidentEngine(LayerMajorEngine):
    """Representations and gradients of all layers on the host; see the module's docstring."""

    # ------------------------------------------------------------------ preparation

    @property
    def _topologies(self) -> str:
        """Who has no room for them is told what else there is."""
        return "chunk topologies, unless memory.topology=host,"

    def _adopt(self, traffic: Sequence[RoundTraffic], owner: IntArray) -> None:
        self._remote = self._mark_remote(owner)
        self._streams = self._bundle.memory.streams_topology()
        shares_rows = self._bundle.communication.shares_rows
        vertices = self._setting.dataset.graph.num_vertices
        self._moves = plan_movement(
            self._rounds,
            traffic,
            vertices,
            shares_rows=shares_rows,
            threads=torch.get_num_threads(),
        )
        self._buffer_rows = largest_buffers(traffic) if shares_rows else {}
        # The chunks as they were cut are not needed beside those that read buffers.
        self._rounds = tuple(
            Round(round_.index, tuple(Unit(move.slot, (move.block,)) for move in moves))
            for round_, moves in zip(self._rounds, self._moves, strict=True)
        )

    def _place(self) -> None:
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
            budget_bytes -= working_bytes(
                shapes, memory, chunks, self._itemsize, self._bundle.kernel
            )
        if self.lends:
            budget_bytes -= budget_bytes // LENT_SHARE
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
        self._representations = [torch.empty(0)] * len(dims)
        self._gradients: dict[int, Tensor] = {}
        self._cached: dict[int, Tensor] = {}
        idle: dict[int, Tensor] = {}
        if shared:
            self._representations[0] = torch.from_numpy(setting.dataset.features)
        for tensor in tensors:
            if tensor.what == "saved intermediates":
                continue
            flat = self._host_store.empty(tensor.name)
            if tensor.kind == "gradients":
                idle[tensor.layers[0]] = flat
            for number in tensor.layers:
                if tensor.kind == "intermediates":
                    self._cached[number - 1] = flat.view(vertices, -1)
                elif tensor.kind == "gradients":
                    self._gradients[number] = flat[: vertices * dims[number]].view(vertices, -1)
                else:
                    self._representations[number] = flat.view(vertices, -1)
        self._idle = tuple(idle[first] for first in sorted(idle))
        if any(torch.device(device.torch_device).type == "cuda" for device in self._trainers):
            self._host_store.pin([*self._representations, *self._idle])
        if not shared:
            fill_features(setting, self._representations[0])
            self._host_store.drop_pages()
        if self._host_store.spilled:
            trim_heap()

    def _mark_remote(self, owner: IntArray) -> dict[str, Tensor]:
        """By accelerator, whether each vertex's rows lie at another socket of the host, bool
        ``(V,)``; empty for a host of one socket."""
        if self._host.sockets == 1:
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

    def _sizes_of(self, unit: Unit) -> tuple[ChunkSize, ...]:
        return (self._size_of(unit),)

    def idle_memory(self) -> IdleMemory:
        """The buffers of gradients, that of layer 1's outputs first: each epoch clears them before
        it writes to them."""
        return IdleMemory(self._idle, self._host_store.drop_pages, self.ledger, self._host.name)

    def notes(self) -> tuple[str, ...]:
        """What was spilled."""
        return self._host_store.notes()

    # ------------------------------------------------------------------ forward

    def _propagate(self) -> float:
        self._saved: dict[tuple[int, int, int], SavedTensors] = {}
        for number in range(len(self._layers)):
            self._forward_layer(number)
        loss, gradient = self._loss()
        for number in reversed(range(len(self._layers))):
            gradient = self._backward_layer(number, gradient)
        return loss

    def _forward_layer(self, number: int) -> None:
        source = self._representations[number]
        buffers = self._make_room(number, "rows")
        for round_, moves in zip(self._rounds, self._moves, strict=True):
            self._recorder.round = round_.index
            inputs, arrived = self._bring(number, source, moves, buffers)
            ends: list[int] = []
            for unit, move in zip(round_.units, moves, strict=True):
                ends.extend(
                    self._run_forward(
                        number, round_.index, unit, move, inputs.pop(unit.slot), arrived
                    )
                )
                self._count_unit(number, round_.index, unit.slot, len(move.input_ids))
            self._end_round(round_, ends)
        self._free_room("rows")

    def _run_forward(
        self, number: int, round_index: int, unit: Unit, move: SlotMovement, h: Tensor, after: Ids
    ) -> Ids:
        """One unit of one layer; nothing that it made is on the device when this returns."""
        layer, device = self._layers[number], self._trainers[unit.slot]
        policy = self._bundle.memory.intermediates(layer.shape)
        saved = self._record_saved(number, device) if policy == "offload" else None
        with self.ledger.scope(device.name):
            self._hold_unit(layer, unit, device, move, backward=False)
            after = self._send_topology(number, unit, after, backward=False)
            with nullcontext() if saved is None else saved.recording():
                tape, last = self._forward_unit(
                    number, round_index, unit, device, h, after,
                    stages=("aggregate", "update"), keep_tape=policy == "offload",
                )  # fmt: skip
            ids = torch.from_numpy(unit.output_ids)
            last = self._store(
                number, self._representations[number + 1], ids, tape[1].output.detach(), device,
                last, "outputs",
            )  # fmt: skip
            if policy == "cache":
                last = self._store(
                    number, self._cached[number], ids, tape[0].output, device, last, "aggregates"
                )
            if saved is not None:
                tape = without_outputs(*tape)
                last = self._offload_saved(number, saved, device, last)
                self._saved[number, round_index, unit.slot] = saved
                self._tapes[number, round_index, unit.slot] = tape
            self._take_topology(number, round_index, unit)
        return last

    def _end_round(self, round_: Round, ends: Sequence[int]) -> None:
        self._barrier = tuple(ends) or self._barrier
        self._host_store.drop_pages()
        if self._host_store.spilled:
            # Memory is short: what a round made of its blocks is made again for the next layer.
            for unit in round_.units:
                for bound in self._bounds[round_.index, unit.slot]:
                    bound.release()
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
        source: Tensor,
        moves: Sequence[SlotMovement],
        buffers: Buffers,
    ) -> tuple[dict[int, Tensor], Ids]:
        """The input rows of a round's units, by slot, and the spans they arrive with."""
        row_bytes = source.shape[1] * self._itemsize
        inputs: dict[int, Tensor] = {}
        arrived: list[int] = []
        for move in moves:
            device = self._trainers[move.slot]
            size = move.rows_from_host * row_bytes
            with (
                self._hold_crossing(move, row_bytes),
                self._recorder.transfer(
                    "transfer",
                    "host to device",
                    self._platform.route(self._host, device),
                    Work(
                        "copy",
                        rows=move.rows_from_host,
                        bytes=size,
                        remote_bytes=self._remote_bytes(_ids(move.host_ids), device, row_bytes),
                    ),
                    after=self._cross_disk(
                        "load", "read from disk", number, source, _ids(move.host_ids), self._barrier
                    ),
                    layer=number,
                ) as span,
            ):
                if move.direct:
                    on = torch.device(device.torch_device)
                    inputs[move.slot] = read_rows(source, _ids(move.host_ids), on)
                else:
                    buffers.bring(move, source)
            self._recorder.count_bytes("host_to_device", size)
            self._recorder.count_bytes("reused", move.rows_reused * row_bytes)
            arrived.append(span.id)
        if inputs:
            return inputs, tuple(arrived)
        loaded = tuple(arrived)
        for move in moves:
            ready = loaded
            for pull in move.pulls:
                with self._exchange_rows(
                    move.slot, pull, row_bytes, ready, number, push=False
                ) as span:
                    buffers.pull(move, pull)
                ready = (*loaded, span.id)
                arrived.append(span.id)
            inputs[move.slot] = buffers.rows(move)
        return inputs, tuple(arrived)

    def _hold_crossing(self, move: SlotMovement, row_bytes: int) -> Held:
        """Room on a device for the rows between the host and its buffers."""
        rows = self._buffer_rows.get(move.slot, BufferRows(0))
        largest = max(rows.neighbour, rows.transition or 0)
        device = self._trainers[move.slot].name
        return self.ledger.hold(device, {"crossing rows": staging_bytes(largest, row_bytes)})

    def _hold_unit(
        self, layer: Layer, unit: Unit, device: Device, move: SlotMovement, *, backward: bool
    ) -> None:
        """Account for one unit of one layer on its device; the caller's scope releases it."""
        name, item, shape = device.name, self._itemsize, layer.shape
        policy = self._bundle.memory.intermediates(shape)
        chunk = self._size_of(unit)
        rows_in = chunk.rows * layer.in_features * item
        made = intermediate_bytes(shape, chunk, item)
        if move.direct and (not backward or policy == "recompute"):
            self.ledger.allocate(name, "neighbour rows", rows_in)
        elif backward and policy == "offload":
            self.ledger.allocate(name, "restored rows", rows_in)
        if self._streams and (
            not backward or reads_topology(policy, first=layer is self._layers[0])
        ):
            shapes = self.replicas.master.shapes
            size = adjacency_bytes(shapes, chunk, item, self._bundle.kernel)
            self.ledger.allocate(name, "chunk topology", size)
        self.ledger.allocate(name, "chunk intermediates", made)
        if backward:
            first = layer is self._layers[0]
            size = gradient_bytes(shape, chunk, item, first=first)
            self.ledger.allocate(name, "chunk gradients", size)
            apart = adds_apart(shape, chunk, self._bundle.kernel)
            if layer is not self._layers[0] and (move.direct or apart):
                what = "neighbour gradients" if move.direct else "gradients to be added"
                self.ledger.allocate(name, what, rows_in)

    def _send_topology(self, number: int, unit: Unit, after: Ids, *, backward: bool) -> Ids:
        """A chunk's topology to its device, where it does not stay there. It is copied when a
        kernel first needs it, which is in that kernel's span; here it is priced."""
        if not self._streams:
            return after
        shape, device = self._layers[number].shape, self._trainers[unit.slot]
        chunk = self._size_of(unit)
        size = crossing_topology_bytes(shape, chunk, self._itemsize, backward=backward)
        with self._recorder.transfer(
            "transfer",
            "topology to device",
            self._platform.route(self._host, device),
            Work("copy", bytes=size),
            after=after,
            layer=number,
        ) as span:
            pass
        self._recorder.count_bytes("host_to_device", size)
        return (span.id,)

    def _take_topology(self, number: int, round_index: int, unit: Unit) -> None:
        if self._streams:
            self._bound(number, round_index, unit.slot).offload()

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
        """Copy a unit's rows to the host."""
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
            into[ids] = to_host(rows)
        self._recorder.count_bytes("device_to_host", size)
        return self._cross_disk("offload", "write to disk", number, into, ids, (span.id,))

    def _fetch(
        self, number: int, source: Tensor, ids: Tensor, device: Device, after: Ids, what: str
    ) -> tuple[Tensor, Ids]:
        """Copy rows of vertex data to a unit's device."""
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

    # ------------------------------------------------------------------ loss and backward

    def _loss(self) -> tuple[float, Tensor]:
        """Mean cross entropy over the training vertices, and the gradient of h^L."""
        depth = len(self._layers)
        logits, gradient = self._representations[-1], self._gradients[depth]
        ready = self._cross_disk(
            "load", "read from disk", depth, logits, self._train_ids, self._barrier
        )
        with self._recorder.span(
            "update",
            "loss",
            self._host.name,
            Work("copy", rows=len(self._train_ids), bytes=2 * logits.numel() * self._itemsize),
            after=ready,
            layer=depth,
        ) as span:
            self._keep_logits(np.arange(len(logits)), logits)
            chosen = logits[self._train_ids].requires_grad_()
            loss = torch.nn.functional.cross_entropy(chosen, self._labels[self._train_ids])
            torch.autograd.backward(loss)
            gradient.zero_()
            if chosen.grad is not None:
                gradient[self._train_ids] = chosen.grad
        self._barrier = self._cross_disk(
            "offload", "write to disk", depth, gradient, None, (span.id,)
        )
        self._host_store.drop_pages()
        return float(loss.detach()), gradient

    def _backward_layer(self, number: int, gradient: Tensor) -> Tensor:
        layer = self._layers[number]
        first = number == 0
        policy = self._bundle.memory.intermediates(layer.shape)
        source = self._representations[number]
        below = torch.zeros((0, layer.in_features), dtype=self._dtype)
        if not first:
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
            if not first and not moves[0].direct:
                arrived = self._clear_buffers(number, below, moves, backward, arrived)
            ends: list[int] = []
            for unit, move in zip(round_.units, moves, strict=True):
                h = inputs.pop(unit.slot, None)
                ends.extend(
                    self._run_backward(
                        number, round_.index, unit, move, h, gradient, below, backward, arrived
                    )
                )
            if not first and not moves[0].direct:
                ends = self._leave_buffers(number, below, moves, backward, ends)
            self._end_round(round_, ends)
        if policy == "recompute":
            self._free_room("rows")
        if not first:
            self._free_room("gradients")
        if policy == "offload":
            self._host_store.clear(f"saved intermediates of layer {number + 1}")
        return below

    def _run_backward(
        self,
        number: int,
        round_index: int,
        unit: Unit,
        move: SlotMovement,
        h: Tensor | None,
        gradient: Tensor,
        below: Tensor,
        buffers: Buffers,
        after: Ids,
    ) -> Ids:
        """One unit of one layer, from the rows ``h`` where it is recomputed; as forward, nothing
        that it made is on the device when this returns."""
        layer, device, first = self._layers[number], self._trainers[unit.slot], number == 0
        policy = self._bundle.memory.intermediates(layer.shape)
        ids, key = torch.from_numpy(unit.output_ids), (number, round_index, unit.slot)
        aggregate: AggregateTape | None = None
        with self.ledger.scope(device.name):
            self._hold_unit(layer, unit, device, move, backward=True)
            if reads_topology(policy, first=first):
                after = self._send_topology(number, unit, after, backward=True)
            upper, ready = self._fetch(number, gradient, ids, device, after, "gradients")
            if h is not None:
                (aggregate, updated), ready = self._forward_unit(
                    number, round_index, unit, device, h, ready,
                    stages=("recompute", "recompute"), keep_tape=True,
                )  # fmt: skip
            elif policy == "offload":
                aggregate, updated = self._tapes.pop(key)
                saved = self._saved.pop(key)
                ready = self._restore_saved(number, saved, device, ready)
            else:
                cached, ready = self._fetch(
                    number, self._cached[number], ids, device, ready, "aggregates"
                )
                updated, span = self._update_unit(
                    number, self._bound(*key), device, cached, ready, "recompute", keep_tape=True
                )
                ready = (span,)
            rows, last = self._backward_unit(
                number, round_index, unit, device, upper, aggregate, updated, ready,
                into=None if first or move.direct else buffers.rows(move),
            )  # fmt: skip
            self._take_topology(number, round_index, unit)
            if first:
                return last
            if rows is None:
                raise RuntimeError("a layer above the first returned no gradient")
            return self._return_gradient(number, below, move, rows, device, buffers, last)

    def _clear_gradients(self, number: int) -> Tensor:
        """The layer's input gradients, zero."""
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
        below: Tensor,
        move: SlotMovement,
        rows: Tensor,
        device: Device,
        buffers: Buffers,
        after: Ids,
    ) -> Ids:
        """A unit's input gradients go on to its peers' buffers, or straight to where they live."""
        row_bytes = below.shape[1] * self._itemsize
        if move.direct:

            def add() -> None:
                scatter_add_rows(
                    below.numpy(),
                    move.input_ids,
                    to_host(rows).numpy(),
                    threads=torch.get_num_threads(),
                )

            return self._accumulate_on_host(number, below, _ids(move.input_ids), device, after, add)
        ready = after
        for push in move.pushes:
            with self._exchange_rows(move.slot, push, row_bytes, ready, number, push=True) as span:
                buffers.push(move, push)
            ready = (span.id,)
        return ready

    def _accumulate_on_host(
        self,
        number: int,
        below: Tensor,
        ids: Tensor,
        device: Device,
        after: Ids,
        add: Callable[[], None],
    ) -> Ids:
        """Algorithm 3, lines 6 and 7: gradients of rows ``ids`` cross the link and are added by the
        CPU.

        ``add`` does both, some rows after the other, in the span of the addition; the crossing is
        priced before it.
        """
        row_bytes = below.shape[1] * self._itemsize
        size = len(ids) * row_bytes
        remote_bytes = self._remote_bytes(ids, device, row_bytes)
        with self._recorder.transfer(
            "offload",
            "gradients to host",
            self._platform.route(device, self._host),
            Work("copy", rows=len(ids), bytes=size, remote_bytes=remote_bytes),
            after=after,
            layer=number,
        ) as crossed:
            pass
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
            add()
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
            # HongTu Figure 7 (b): gathered in the device's memory, so that whole copies cross.
            with self._recorder.span(
                "offload",
                "compact gradients",
                device.name,
                Work("copy", rows=count, bytes=count * below.shape[1] * self._itemsize),
                after=after,
                layer=number,
            ) as span:
                pass
            add = partial(buffers.leave, move, below)
            with self._hold_crossing(move, below.shape[1] * self._itemsize):
                ids = _ids(move.leaving_ids)
                ends.extend(self._accumulate_on_host(number, below, ids, device, (span.id,), add))
        return ends


def _ids(positions: IndexArray) -> Tensor:
    return torch.from_numpy(positions)
