"""The full-graph engine for AGGREGATE by ranges of features and UPDATE by ranges of vertices.

MixGCN's Algorithm 2. Forward, per layer and round: every aggregator aggregates its columns, an
all-to-all brings each updater all columns of its vertices, which it updates, and another takes the
result to those who aggregate it in the next layer. The loss is that of every updater's own
vertices. Backward the same way round, and the gradients of the weights go round a ring.

A round is a stage of the pipeline between sparse and dense devices (§3.2.2): aggregating it waits
for the rows that it reads and for no others, which is all that ``after`` says; the schedules of
Figure 5 follow from the rounds that the sampler cuts. Backward, a piece of the adjacency hands its
gradients on as soon as it has those of its own rows, and a round's rows go back to their updaters
when all pieces that read them have.

The engine runs on every rank alike, and works where a worker is held (``collectives``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np
import torch
from torch import Tensor

from gnnbench.engine.base import Engine
from gnnbench.engine.collectives import Collectives, Message, VirtualWorkers, ring_steps
from gnnbench.engine.evidence import Evidence
from gnnbench.engine.feature_shards import Crossing, FeatureShards, Range
from gnnbench.engine.machinery import FILLED_BYTES, feature_rows
from gnnbench.engine.passes import UpdateTape, run_update, run_update_backward
from gnnbench.engine.recorder import Opened, Recorder
from gnnbench.errors import IncompatibleParts
from gnnbench.footprint import mask_bytes
from gnnbench.kernels.autograd import mask_positive
from gnnbench.kernels.dispatch.checks import MaskArray
from gnnbench.lowering.memory import allocate_host_graph, allocate_model, compute_resource
from gnnbench.lowering.units import needs_aggregate_gradient, update_gemms
from gnnbench.models import BoundBlock, Layer
from gnnbench.parts import Bundle, FullGraphSampler, Setting
from gnnbench.platforms.machine import Device
from gnnbench.records import BYTE_KINDS, Block, EpochTrace, Stage, Work

Ids = tuple[int, ...]
#: By round and slot.
Spans = dict[tuple[int, int], Ids]


class MixedEngine(Engine):
    """Trains on the whole graph; see the module's docstring."""

    def __init__(
        self,
        bundle: Bundle,
        setting: Setting,
        recorder: Recorder,
        evidence: Evidence | None = None,
        collectives: Collectives | None = None,
    ) -> None:
        self._collectives = collectives or VirtualWorkers()
        super().__init__(bundle, setting, recorder, evidence)
        if not isinstance(bundle.sampler, FullGraphSampler):
            raise TypeError("the engine of feature shards takes full-graph samplers")
        self._sampler = bundle.sampler
        self._layers = self.replicas.master.stack
        self._worker_of_span: list[int] = []

    def _trainers_here(self) -> tuple[Device, ...]:
        """The devices whose workers this process holds."""
        return tuple(
            device for slot, device in enumerate(self._trainers) if self._collectives.holds(slot)
        )

    # ------------------------------------------------------------------ preparation

    def prepare(self) -> None:
        """Cut the rounds into shards, bind the adjacency, place the features' columns."""
        setting, placement = self._setting, self._bundle.placement
        allocate_host_graph(self.ledger, setting)
        graph = setting.dataset.graph
        rounds = self._sampler.chunks(setting, len(self._trainers))
        if any(len(round_.units) != 1 for round_ in rounds):
            raise IncompatibleParts(
                f"sampler {self._sampler.name!r} gives devices units of their own, and placement "
                f"{placement.name!r} shares every round's out by features; choose sampler 'mixgcn'."
            )
        self._shards = FeatureShards(rounds, graph, placement, self._platform)
        self._rounds = range(len(rounds))
        self._columns = [self._shards.columns(layer.in_features) for layer in self._layers]
        self._aggregate_crossings = [self._shards.cross_aggregates(k) for k in self._rounds]
        self._row_crossings = [self._shards.cross_rows(k) for k in self._rounds]
        self._bounds: dict[int, dict[int, BoundBlock]] = {}
        shared: dict[tuple[str, int], dict[int, BoundBlock]] = {}
        for slot in self._shards.aggregators:
            if not self._collectives.holds(slot):
                continue
            where = self._trainers[slot].torch_device
            # Virtual workers on one device that aggregate the same rows share them here.
            key = (where, id(self._shards.pieces[0, slot]))
            if key not in shared:
                shared[key] = self._shards.bind(
                    self._bundle.kernel, self._degrees, self._dtype, slot, torch.device(where)
                )
            self._bounds[slot] = shared[key]
        self._outputs = {
            (number, slot): self._bind_output(number, slot)
            for number in self._rounds
            for slot in self._shards.updaters
            if self._collectives.holds(slot)
        }
        self._find_training_vertices()
        self._allocate()
        self._features = self._place_features()

    def _bind_output(self, number: int, slot: int) -> BoundBlock:
        """What UPDATE of an updater's rows is handed: their ids and degrees, and no edges."""
        ids = self._shards.updated_ids(number, slot)
        rows = np.zeros(len(ids) + 1, dtype=np.int64)
        block = Block(ids, len(ids), rows, np.empty(0, dtype=np.int32))
        device = torch.device(self._trainers[slot].torch_device)
        return BoundBlock(block, self._bundle.kernel, self._degrees, self._dtype, device)

    def _find_training_vertices(self) -> None:
        """For each updater's rows of a round, which of them have a loss, and their labels."""
        dataset, order = self._setting.dataset, self._shards.order
        trains = (dataset.train_mask & (dataset.labels >= 0))[order]
        self._num_train = int(trains.sum())
        self._labelled: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
        for number in self._rounds:
            for slot in self._shards.updaters:
                begin, end = self._shards.updated(number, slot)
                places = np.flatnonzero(trains[begin:end])
                labels = dataset.labels[order[begin:end][places]]
                self._labelled[number, slot] = torch.from_numpy(places), torch.from_numpy(labels)

    def _place_features(self) -> dict[int, Tensor]:
        """Each held aggregator's columns of the features of the rows that it has."""
        order, width = self._shards.order, self._layers[0].in_features
        held = [slot for slot in self._bounds if self._width(0, slot)]
        features = {slot: self._open_rows(0, slot) for slot in held}
        step = max(1, FILLED_BYTES // (max(1, width) * self._itemsize))
        for begin in range(0, len(order), step):
            end = min(begin + step, len(order))
            rows = feature_rows(self._setting, order[begin:end], sparse=False)
            for slot, into in features.items():
                columns = slice(*self._columns[0][slot])
                positions = self._shards.held[slot]
                if positions is None:
                    into[begin:end] = rows[:, columns]
                    continue
                low, high = np.searchsorted(positions, (begin, end))
                there = torch.from_numpy(positions[low:high] - begin)
                into[low:high] = rows[there, columns]
        return features

    def notes(self) -> tuple[str, ...]:
        """What the processes say of themselves."""
        return self._collectives.notes()

    # ------------------------------------------------------------------ memory

    def _allocate(self) -> None:
        """What each device holds all the time, and the most that it holds besides in any layer."""
        for slot in self._shards.updaters:
            allocate_model(self.ledger, self._setting, self._trainers[slot])
            rows = [self._shards.rows_of(number, slot) for number in self._rounds]
            for number, layer in enumerate(self._layers):
                kept = sum(rows) * (layer.aggregate_features + layer.out_features)
                self._hold(slot, f"kept intermediates of layer {number + 1}", kept)
        for slot in self._shards.aggregators:
            name = self._trainers[slot].name
            pieces = [self._shards.pieces[number, slot].block for number in self._rounds]
            topology = sum(piece.topology_bytes for piece in pieces)
            self.ledger.allocate(name, "adjacency on the device", topology)
            self._hold(
                slot, "feature columns on the device",
                self._shards.num_held(slot) * self._width(0, slot),
            )  # fmt: skip
            for number, layer in enumerate(self._layers):
                if layer.masks_below:
                    width = self._width(number, slot)
                    size = sum(mask_bytes(piece.num_src, width) for piece in pieces)
                    self.ledger.allocate(name, f"masks of h{number}", size)

    def _hold(self, slot: int, tensor: str, elements: int) -> None:
        self.ledger.allocate(self._trainers[slot].name, tensor, elements * self._itemsize)

    def _hold_columns(self, layer: int, tensor: str) -> None:
        """Rows of a layer's input, or their gradients, at all aggregators that have columns."""
        for slot in self._aggregators(layer):
            self._hold(slot, tensor, self._shards.num_held(slot) * self._width(layer, slot))

    def _free_columns(self, layer: int, tensor: str) -> None:
        for slot in self._aggregators(layer):
            self.ledger.free(self._trainers[slot].name, tensor)

    def _hold_updated(self, tensor: str, width: int) -> None:
        """Values of ``width`` for all vertices of every updater."""
        for slot in self._shards.updaters:
            rows = sum(self._shards.rows_of(number, slot) for number in self._rounds)
            self._hold(slot, tensor, rows * width)

    def _free_updated(self, tensor: str) -> None:
        for slot in self._shards.updaters:
            self.ledger.free(self._trainers[slot].name, tensor)

    @contextmanager
    def _aggregating(self, layer: int, number: int) -> Iterator[None]:
        """Account for a round's aggregates, or their gradients, and for the rows picked for it."""
        what = ("aggregates of a round", "rows read by a round")
        copies = self._copies(layer)
        for slot in self._aggregators(layer):
            piece = self._shards.pieces[number, slot]
            width = self._width(layer, slot)
            self._hold(slot, what[0], piece.block.num_dst * width * copies)
            self._hold(slot, what[1], 0 if piece.sources is None else piece.block.num_src * width)
        yield
        for slot in self._aggregators(layer):
            self.ledger.free(self._trainers[slot].name, *what)

    # ------------------------------------------------------------------ who does what

    def _width(self, layer: int, slot: int) -> int:
        begin, end = self._columns[layer][slot]
        return end - begin

    def _aggregators(self, layer: int) -> list[int]:
        """Those that have a column of a layer's input."""
        return [slot for slot in self._shards.aggregators if self._width(layer, slot)]

    def _updaters(self, number: int) -> list[int]:
        """Those that have a vertex of a round."""
        return [slot for slot in self._shards.updaters if self._shards.rows_of(number, slot)]

    def _copies(self, layer: int) -> int:
        """How many matrices of the input's width AGGREGATE gives side by side."""
        return self._layers[layer].aggregate_features // self._layers[layer].in_features

    def _layer_on(self, layer: int, slot: int) -> Layer:
        return self.replicas.on(self._trainers[slot]).stack[layer]

    def _open_rows(self, layer: int, slot: int) -> Tensor:
        """Room for an aggregator's columns of the rows that it has."""
        shape = (self._shards.num_held(slot), self._width(layer, slot))
        device = self._trainers[slot].torch_device
        return torch.empty(shape, dtype=self._dtype, device=device)

    def _open_update(self, number: int, slot: int, width: int) -> Tensor:
        """Room for an updater's rows of a round."""
        shape = (self._shards.rows_of(number, slot), width)
        device = self._trainers[slot].torch_device
        return torch.empty(shape, dtype=self._dtype, device=device)

    @contextmanager
    def _span(
        self, slot: int, stage: Stage, label: str, work: Work, after: Sequence[int], layer: int,
        resources: tuple[str, ...] | None = None, place: str = "",
    ) -> Iterator[Opened]:  # fmt: skip
        """A span whose body works where ``slot`` is held; elsewhere it takes no time."""
        device = self._trainers[slot]
        with self._recorder.span(
            stage,
            label,
            place or device.name,
            work,
            after=after,
            resources=resources or compute_resource(device, self._host, stage),
            layer=layer,
        ) as span:
            yield span
        self._worker_of_span.append(slot)

    # ------------------------------------------------------------------ one epoch

    def run_epoch(self, epoch: int) -> EpochTrace:
        """One full-graph iteration: forward, loss, backward, update."""
        self._recorder.start_epoch(epoch)
        with self._recorder.excluded():
            # Ranks start together, so that their times can be laid side by side.
            self._collectives.sum(torch.zeros(1, dtype=torch.float64))
        self._epoch = epoch
        self._begin_update()
        self._worker_of_span.clear()
        self._tapes: dict[tuple[int, int, int], UpdateTape] = {}
        #: Of the rows that a piece reads, by layer, round and slot, what the backward pass gives.
        self._wanted: dict[tuple[int, int, int], MaskArray] = {}
        self._loss = 0.0
        self._weight_gradients = {
            slot: [torch.zeros_like(p) for p in self.replicas.on(self._trainers[slot]).parameters()]
            for slot in self._shards.updaters
            if self._collectives.holds(slot)
        }
        inputs = self._features
        arrived: Spans = {}
        for layer in range(len(self._layers)):
            inputs, arrived = self._forward_layer(layer, inputs, arrived)
        gradients, ready = self._logit_gradients, arrived
        for layer in reversed(range(len(self._layers))):
            gradients, ready = self._backward_layer(layer, gradients, ready)
        self._synchronise(ready)
        trace = self._recorder.end_epoch(self._loss, [self._loss], self._num_train)
        return self._merge(trace)

    def _forward_layer(
        self, layer: int, inputs: dict[int, Tensor], arrived: Spans
    ) -> tuple[dict[int, Tensor], Spans]:
        """One layer of all rounds; its outputs' columns, and when each round's are there.

        After the last layer there are no columns; the spans are those of the losses, and the
        gradients of the logits are kept.
        """
        last = layer == len(self._layers) - 1
        outputs: dict[int, Tensor] = {}
        if not last:
            self._hold_columns(layer + 1, f"columns of h{layer + 1}")
            outputs = {
                slot: self._open_rows(layer + 1, slot)
                for slot in self._aggregators(layer + 1)
                if self._collectives.holds(slot)
            }
        self._logit_gradients: dict[tuple[int, int], Tensor] = {}
        done: Spans = {}
        for number in self._rounds:
            self._recorder.round = number
            with self._aggregating(layer, number):
                aggregates, ended = self._aggregate(layer, number, inputs, arrived)
                whole, received = self._gather_aggregates(layer, number, aggregates, ended)
            del aggregates
            rows, updated = self._update(layer, number, whole, received)
            done |= (
                self._compute_loss(number, rows, updated)
                if last
                else self._return_rows(layer + 1, number, rows, outputs, updated)
            )
        self._count_layer(layer)
        if layer:
            self._free_columns(layer, f"columns of h{layer}")
        if last:
            self._hold_updated(f"gradients of h{layer + 1}", self._layers[layer].out_features)
        return outputs, done

    def _aggregate(
        self, layer: int, number: int, inputs: dict[int, Tensor], arrived: Spans
    ) -> tuple[dict[int, Tensor], dict[int, Ids]]:
        """Line 8: every aggregator's columns of a round's aggregates."""
        aggregates: dict[int, Tensor] = {}
        ended: dict[int, Ids] = {}
        for slot in self._aggregators(layer):
            piece = self._shards.pieces[number, slot]
            if not piece.block.num_dst:
                ended[slot] = ()
                continue
            after = [span for k in piece.reads for span in arrived.get((k, slot), ())]
            with self._span(
                slot, "aggregate", "aggregate forward", self._aggregate_work(layer, number, slot),
                after, layer,
            ) as span, torch.no_grad():  # fmt: skip
                if self._collectives.holds(slot):
                    h = inputs[slot]
                    if piece.sources is not None:
                        h = h.index_select(0, piece.sources.to(h.device))
                    bound = self._bounds[slot][number]
                    aggregates[slot] = self._layer_on(layer, slot).aggregate(bound, h)
                    if self._layers[layer].masks_below:
                        self._wanted[layer, number, slot] = mask_positive(h)
            ended[slot] = (span.id,)
        return aggregates, ended

    def _aggregate_work(self, layer: int, number: int, slot: int) -> Work:
        work = self._layers[layer].aggregate_work(
            self._shards.pieces[number, slot].block, self._itemsize
        )
        return work._replace(features=self._width(layer, slot))

    def _gather_aggregates(
        self, layer: int, number: int, aggregates: dict[int, Tensor], ended: dict[int, Ids]
    ) -> tuple[dict[int, Tensor], dict[int, Ids]]:
        """All columns of the aggregates of every updater's vertices."""
        width, copies = self._layers[layer].in_features, self._copies(layer)
        whole = {
            slot: self._open_update(number, slot, width * copies)
            for slot in self._updaters(number)
            if self._collectives.holds(slot)
        }
        received = self._exchange(
            "aggregates", layer, copies, self._aggregate_crossings[number], ended,
            to_updaters=True,
            take=lambda crossing, _: aggregates[crossing.aggregator][crossing.there],
            put=lambda crossing, columns, part: _write_columns(
                whole[crossing.updater], crossing.here, columns, copies, part
            ),
        )  # fmt: skip
        return whole, received

    def _update(
        self, layer: int, number: int, whole: dict[int, Tensor], received: dict[int, Ids]
    ) -> tuple[dict[int, Tensor], dict[int, Ids]]:
        """Line 12: every updater's vertices of a round."""
        rows: dict[int, Tensor] = {}
        ended: dict[int, Ids] = {}
        for slot in self._updaters(number):
            module = self._layers[layer]
            count = self._shards.rows_of(number, slot)
            with self._span(
                slot, "update", "update forward", module.update_work(count, self._itemsize),
                received.get(slot, ()), layer,
            ) as span:  # fmt: skip
                if self._collectives.holds(slot):
                    needs = needs_aggregate_gradient(module, first=layer == 0)
                    bound = self._outputs[number, slot]
                    here = self._layer_on(layer, slot)
                    tape = run_update(here, bound, whole[slot], needs_input_gradient=needs)
                    self._tapes[layer, number, slot] = tape
                    rows[slot] = tape.output.detach()
            ended[slot] = (span.id,)
        return rows, ended

    def _return_rows(
        self,
        layer: int,
        number: int,
        rows: dict[int, Tensor],
        inputs: dict[int, Tensor],
        updated: dict[int, Ids],
    ) -> Spans:
        """A round's representations, to those that aggregate them in ``layer``."""
        arrived = self._exchange(
            "representations", layer, 1, self._row_crossings[number], updated, to_updaters=False,
            take=lambda crossing, columns: _read_columns(
                rows[crossing.updater], crossing.here, columns, 1
            ),
            put=lambda crossing, _, part: inputs[crossing.aggregator][crossing.there].copy_(part),
        )  # fmt: skip
        return {(number, slot): ids for slot, ids in arrived.items()}

    def _compute_loss(
        self, number: int, logits: dict[int, Tensor], updated: dict[int, Ids]
    ) -> Spans:
        """Line 15, of every updater's own training vertices."""
        done: Spans = {}
        for slot in self._updaters(number):
            places, labels = self._labelled[number, slot]
            count, width = self._shards.rows_of(number, slot), self._layers[-1].out_features
            with self._span(
                slot, "update", "loss",
                Work("copy", rows=len(places), bytes=2 * count * width * self._itemsize),
                updated[slot], len(self._layers),
            ) as span:  # fmt: skip
                if self._collectives.holds(slot):
                    rows = logits[slot]
                    self._keep_logits(self._shards.updated_ids(number, slot), rows)
                    gradient = torch.zeros_like(rows)
                    if len(places):
                        places, labels = places.to(rows.device), labels.to(rows.device)
                        chosen = rows[places].requires_grad_()
                        loss = torch.nn.functional.cross_entropy(chosen, labels, reduction="sum")
                        loss = loss / self._num_train
                        (part,) = torch.autograd.grad(loss, chosen)
                        gradient[places] = part
                        self._loss += float(loss.detach())
                    self._logit_gradients[number, slot] = gradient
            done[number, slot] = (span.id,)
        return done

    # ------------------------------------------------------------------ backward

    def _backward_layer(
        self, layer: int, gradients: dict[tuple[int, int], Tensor], ready: Spans
    ) -> tuple[dict[tuple[int, int], Tensor], Spans]:
        """From gradients of a layer's outputs, by round and updater, to those of its inputs.

        The spans are when they are ready; below the first layer, where the backward pass ends.
        """
        width = self._layers[layer].in_features
        below: dict[int, Tensor] = {}
        if layer:
            self._hold_columns(layer, f"columns of h{layer}'s gradients")
            below = {
                slot: self._open_rows(layer, slot).zero_()
                for slot in self._aggregators(layer)
                if self._collectives.holds(slot)
            }
            self._hold_updated(f"gradients of h{layer}", width)
        pushed: Spans = {}
        updated: Spans = {}
        for number in self._rounds:
            self._recorder.round = number
            parts, ended = self._update_backward(layer, number, gradients, ready)
            updated |= {(number, slot): ids for slot, ids in ended.items()}
            if layer:
                with self._aggregating(layer, number):
                    pushed |= self._aggregate_backward(layer, number, parts, ended, below)
        self._free_updated(f"gradients of h{layer + 1}")
        if not layer:
            return {}, updated
        returned: dict[tuple[int, int], Tensor] = {}
        arrived: Spans = {}
        for number in self._rounds:
            self._recorder.round = number
            returned |= {
                (number, slot): self._open_update(number, slot, width).zero_()
                for slot in self._updaters(number)
                if self._collectives.holds(slot)
            }
            arrived |= self._return_gradients(layer, number, below, pushed, returned)
        self._free_columns(layer, f"columns of h{layer}'s gradients")
        return returned, arrived

    def _update_backward(
        self,
        layer: int,
        number: int,
        gradients: dict[tuple[int, int], Tensor],
        ready: Spans,
    ) -> tuple[dict[int, Tensor], dict[int, Ids]]:
        """The gradients of a round's aggregates, by updater; those of the weights are kept."""
        parts: dict[int, Tensor] = {}
        ended: dict[int, Ids] = {}
        for slot in self._updaters(number):
            module = self._layers[layer]
            count = self._shards.rows_of(number, slot)
            gemms = update_gemms(module, first=layer == 0)
            with self._span(
                slot, "update", "update backward",
                module.update_work(count, self._itemsize, gemms), ready[number, slot], layer,
            ) as span:  # fmt: skip
                if self._collectives.holds(slot):
                    tape = self._tapes.pop((layer, number, slot))
                    gradient = run_update_backward(tape, gradients.pop((number, slot)))
                    if gradient is not None:
                        parts[slot] = gradient
                    self._take_weight_gradients(slot)
            ended[slot] = (span.id,)
        return parts, ended

    def _take_weight_gradients(self, slot: int) -> None:
        """Add what the model's parameters have gathered to the updater's own, and clear it."""
        own = self._weight_gradients[slot]
        parameters = list(self.replicas.on(self._trainers[slot]).parameters())
        for total, parameter in zip(own, parameters, strict=True):
            if parameter.grad is not None:
                total += parameter.grad
                parameter.grad = None

    def _aggregate_backward(
        self,
        layer: int,
        number: int,
        parts: dict[int, Tensor],
        ended: dict[int, Ids],
        below: dict[int, Tensor],
    ) -> Spans:
        """A round's gradients by columns, and from its rows to all that they read."""
        copies, width = self._copies(layer), self._layers[layer].in_features
        columns = {
            slot: torch.empty(
                (
                    self._shards.pieces[number, slot].block.num_dst,
                    copies * self._width(layer, slot),
                ),
                dtype=self._dtype,
                device=self._trainers[slot].torch_device,
            )
            for slot in below
        }
        received = self._exchange(
            "gradients of aggregates", layer, copies, self._aggregate_crossings[number], ended,
            to_updaters=False,
            take=lambda crossing, chosen: _read_columns(
                parts[crossing.updater], crossing.here, chosen, copies, width
            ),
            put=lambda crossing, _, part: columns[crossing.aggregator][crossing.there].copy_(part),
        )  # fmt: skip
        pushed: Spans = {}
        for slot in self._aggregators(layer):
            piece = self._shards.pieces[number, slot]
            if not piece.block.num_dst:
                continue
            with self._span(
                slot, "aggregate", "aggregate backward", self._aggregate_work(layer, number, slot),
                received[slot], layer,
            ) as span, torch.no_grad():  # fmt: skip
                if self._collectives.holds(slot):
                    bound = self._bounds[slot][number]
                    if self._layers[layer].masks_below:
                        bound = bound.masked(self._wanted.pop((layer, number, slot)))
                    rows = self._layer_on(layer, slot).aggregate_backward(bound, columns[slot])
                    if piece.sources is None:
                        below[slot] += rows
                    else:
                        below[slot].index_add_(0, piece.sources.to(rows.device), rows)
            pushed[number, slot] = (span.id,)
        return pushed

    def _return_gradients(
        self,
        layer: int,
        number: int,
        below: dict[int, Tensor],
        pushed: Spans,
        returned: dict[tuple[int, int], Tensor],
    ) -> Spans:
        """The gradients of a round's rows, complete, to those who update them in the layer below;
        of several groups of aggregators the sum."""
        ended = {
            slot: tuple(
                span
                for reading in self._shards.readers(number, slot)
                for span in pushed.get((reading, slot), ())
            )
            for slot in self._aggregators(layer)
        }
        arrived = self._exchange(
            "gradients of representations", layer, 1, self._row_crossings[number], ended,
            to_updaters=True,
            take=lambda crossing, _: below[crossing.aggregator][crossing.there],
            put=lambda crossing, columns, part: _add_columns(
                returned[number, crossing.updater], crossing.here, columns, part
            ),
        )  # fmt: skip
        return {(number, slot): ids for slot, ids in arrived.items()}

    # ------------------------------------------------------------------ what crosses

    def _exchange(
        self,
        what: str,
        layer: int,
        copies: int,
        crossings: Sequence[Crossing],
        after: dict[int, Ids],
        *,
        to_updaters: bool,
        take: Callable[[Crossing, Range], Tensor],
        put: Callable[[Crossing, Range, Tensor], object],
    ) -> dict[int, Ids]:
        """An all-to-all between aggregators and updaters, a span for each pair; by target, the
        spans that bring it its rows.

        ``take`` and ``put`` read a crossing's tensor at its source and write it at its target.
        """
        crossing_of: list[tuple[Crossing, Range]] = []
        messages = []
        for crossing in crossings:
            columns = self._columns[layer][crossing.aggregator]
            if columns[0] == columns[1]:
                continue
            ends = (crossing.aggregator, crossing.updater)
            source, target = ends if to_updaters else ends[::-1]
            shape = (crossing.rows, copies * (columns[1] - columns[0]))
            messages.append(Message(source, target, shape, partial(take, crossing, columns)))
            crossing_of.append((crossing, columns))
        exchange = self._collectives.exchange(messages, self._dtype)
        ready: dict[int, Ids] = {message.target: () for message in messages}
        for message, (crossing, columns) in zip(messages, crossing_of, strict=True):
            with self._cross(what, message, after.get(message.source, ()), layer) as span:
                if self._collectives.holds(message.target):
                    device = torch.device(self._trainers[message.target].torch_device)
                    put(crossing, columns, exchange.receive(message, device))
            ready[message.target] += (span.id,)
        exchange.finish()
        self._recorder.count_bytes("all_to_all", exchange.sent_bytes)
        return ready

    @contextmanager
    def _cross(
        self, what: str, message: Message, after: Sequence[int], layer: int
    ) -> Iterator[Opened]:
        """A span for a message: over a link, on which a device sends to one and receives from one
        other at a time; or within a device's memory."""
        source, target = self._trainers[message.source], self._trainers[message.target]
        route = self._platform.route(source, target)
        between = message.source != message.target
        lanes = (
            (*route.lanes, f"{source.name}.out", f"{target.name}.in") if between else route.lanes
        )
        work = Work("copy", rows=message.shape[0], bytes=message.elements * self._itemsize)
        with self._span(
            message.target, "transfer", what if between else f"{what}, own part", work, after,
            layer, lanes, route.place,
        ) as span:  # fmt: skip
            yield span

    def _count_layer(self, layer: int) -> None:
        """Edges and vertices of a layer, and the arithmetic of every device."""
        module, shards = self._layers[layer], self._shards
        for number in self._rounds:
            rows = int(shards.bounds[number + 1] - shards.bounds[number])
            begin, end = int(shards.bounds[number]), int(shards.bounds[number + 1])
            edges = int(self._degrees.counts[shards.order[begin:end]].sum())
            self._recorder.count_traversed(edges, rows * (2 if layer == 0 else 1))
            for slot in shards.aggregators:
                work = shards.pieces[number, slot].block.num_edges * self._width(layer, slot)
                self._recorder.count_work(self._trainers[slot].name, float(work))
            for slot in shards.updaters:
                work = shards.rows_of(number, slot) * module.macs_per_row
                self._recorder.count_work(self._trainers[slot].name, float(work))

    # ------------------------------------------------------------------ the weights

    def _synchronise(self, ended: Spans) -> None:
        """All-reduce the gradients around a ring of the updaters, and update every replica."""
        updaters = self._shards.updaters
        flats = {
            slot: torch.cat([part.reshape(-1) for part in parts])
            for slot, parts in self._weight_gradients.items()
        }
        length = sum(parameter.numel() for parameter in self.replicas.master.parameters())
        after = {
            slot: tuple(span for (_, of), ids in ended.items() if of == slot for span in ids)
            for slot in updaters
        }
        for adds, pieces in ring_steps(updaters, length):
            after = self._step_ring(flats, pieces, after, adds=adds)
        size = self._setting.parameter_bytes
        with self._span(
            updaters[0], "synchronize", "average and step", Work("copy", bytes=3 * size),
            [span for ids in after.values() for span in ids], -1,
            resources=(self._trainers[updaters[0]].name,),
        ):  # fmt: skip
            # Virtual workers share one model, and every one of them has the same sums now.
            for flat in list(flats.values())[:1]:
                parameters = list(self.replicas.master.parameters())
                parts = torch.split(flat.cpu(), [each.numel() for each in parameters])
                self._step(
                    [part.view(each.shape) for part, each in zip(parts, parameters, strict=True)]
                )

    def _step_ring(
        self,
        flats: dict[int, Tensor],
        pieces: Sequence[tuple[int, int, int, int]],
        after: dict[int, Ids],
        *,
        adds: bool,
    ) -> dict[int, Ids]:
        """One step of the ring: every updater passes a piece of its sums to the next."""
        messages = [
            Message(
                source, target, (1, end - begin), partial(_read_piece, flats, source, begin, end)
            )
            for source, target, begin, end in pieces
        ]
        exchange = self._collectives.exchange(messages, self._dtype)
        done: dict[int, Ids] = {}
        for message, (source, target, begin, end) in zip(messages, pieces, strict=True):
            route = self._platform.route(self._trainers[source], self._trainers[target])
            work = Work("copy", bytes=message.elements * self._itemsize)
            with self._span(
                target, "synchronize", "all-reduce gradients", work,
                (*after[source], *after[target]), -1, route.lanes, route.place,
            ) as span:  # fmt: skip
                if target in flats:
                    part = exchange.receive(message, flats[target].device).view(-1)
                    if adds:
                        flats[target][begin:end] += part
                    else:
                        flats[target][begin:end] = part
            done[target] = (span.id,)
        exchange.finish()
        self._recorder.count_bytes("all_reduce", exchange.sent_bytes)
        return done

    # ------------------------------------------------------------------ several processes

    def _merge(self, trace: EpochTrace) -> EpochTrace:
        """The epoch of all processes: losses and bytes added up, and every span's wall time from
        the process that did its work."""
        own = [self._collectives.holds(worker) for worker in self._worker_of_span]
        walls = [
            time if mine else 0.0
            for span, mine in zip(trace.spans, own, strict=True)
            for time in (span.wall_start_s, span.wall_s)
        ]
        counted = [float(trace.bytes[kind]) for kind in BYTE_KINDS]
        values = torch.tensor([trace.loss, *counted, *walls], dtype=torch.float64)
        loss, *rest = self._collectives.sum(values).tolist()
        counted, walls = rest[: len(BYTE_KINDS)], rest[len(BYTE_KINDS) :]
        measured = self._recorder.provenance == "measured"
        spans = tuple(
            span._replace(
                wall_start_s=start_s,
                wall_s=wall_s,
                seconds=wall_s if measured else span.seconds,
            )
            for span, start_s, wall_s in zip(trace.spans, walls[::2], walls[1::2], strict=True)
        )
        return dataclasses.replace(
            trace,
            spans=spans,
            bytes={kind: int(size) for kind, size in zip(BYTE_KINDS, counted, strict=True)},
            loss=loss,
            round_losses=(loss,),
        )


def _read_piece(flats: dict[int, Tensor], worker: int, begin: int, end: int) -> Tensor:
    return flats[worker][begin:end]


def _read_columns(
    rows: Tensor, here: slice | Tensor, columns: Range, copies: int, width: int = 0
) -> Tensor:
    """``(n, copies * c)``: a range of c columns of each of ``copies`` matrices side by side."""
    begin, end = columns
    chosen = rows[here]
    parts = [chosen[:, copy * width + begin : copy * width + end] for copy in range(copies)]
    return parts[0] if copies == 1 else torch.cat(parts, dim=1)


def _write_columns(
    into: Tensor, here: slice | Tensor, columns: Range, copies: int, part: Tensor
) -> None:
    """Put ``(n, copies * c)`` where ``_read_columns`` would find it."""
    begin, end = columns
    width = into.shape[1] // copies
    for copy, piece in enumerate(torch.split(part, end - begin, dim=1)):
        into[here, copy * width + begin : copy * width + end] = piece


def _add_columns(into: Tensor, here: slice | Tensor, columns: Range, part: Tensor) -> None:
    """Add to a range of columns of some rows, each of which is named once."""
    begin, end = columns
    into[here, begin:end] += part
