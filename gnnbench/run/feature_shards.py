"""The bodies of ``lowering/feature_shards.py``'s steps, for all devices or one rank's."""

from __future__ import annotations

from itertools import product
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from gnnbench.kernels.autograd import mask_positive
from gnnbench.kernels.dispatch.checks import MaskArray
from gnnbench.lowering.exchanges import (
    MoveAggregates,
    MoveRows,
    ReturnAggregateGradients,
    ReturnRowGradients,
)
from gnnbench.lowering.feature_shards import FeatureShardsLowering, ReduceSums, TakeLoss
from gnnbench.lowering.shardings import Overlap, Range
from gnnbench.lowering.stages.averaging import UpdateModel
from gnnbench.lowering.stages.unit_passes import (
    AggregateBackward,
    AggregateForward,
    UpdateBackward,
    UpdateForward,
)
from gnnbench.lowering.units import needs_aggregate_gradient
from gnnbench.models import BoundBlock
from gnnbench.program.reader import Bodies
from gnnbench.records import Block, EpochTrace, IntArray
from gnnbench.run.base import Engine
from gnnbench.run.features import FILLED_BYTES, feature_rows
from gnnbench.run.passes import UpdateTape, run_update, run_update_backward
from gnnbench.run.ranks import Transfer

#: Tensors by round and device.
ByRound: TypeAlias = dict[tuple[int, int], Tensor]


class FeatureShardsEngine(Engine):
    """The engine for programs of :class:`FeatureShardsLowering`; its methods are the bodies."""

    _lowering: FeatureShardsLowering

    # ------------------------------------------------------------------ preparation

    def prepare(self) -> None:
        """Lower, bind the adjacency, place the features' columns."""
        stack = self.replicas.master.stack
        self._lowering = FeatureShardsLowering(self._bundle, self._setting, stack)
        self._lowering.prepare(self.ledger)
        self._shards = self._lowering.cut
        self._bind()
        self._find_training_vertices()
        self._features = self._place_features()
        bodies: Bodies = {
            AggregateForward: self._aggregate_forward,
            MoveAggregates: Transfer(self._send_aggregates, self._receive_aggregates),
            UpdateForward: self._update_forward,
            MoveRows: Transfer(self._send_rows, self._receive_rows),
            TakeLoss: self._take_loss,
            UpdateBackward: self._update_backward,
            ReturnAggregateGradients: Transfer(self._send_columns, self._receive_columns),
            AggregateBackward: self._aggregate_backward,
            ReturnRowGradients: Transfer(self._send_back, self._receive_back),
            ReduceSums: Transfer(self._send_sums, self._receive_sums),
            UpdateModel: self._update_model,
        }
        self._use(bodies)

    def _bind(self) -> None:
        """Bind the adjacency of each aggregator here, and the outputs of each updater.

        UPDATE receives the ids and degrees of an updater's rows, and no edges.
        """
        self._bounds: dict[tuple[int, int], BoundBlock] = {}
        self._outputs: dict[tuple[int, int], BoundBlock] = {}
        # Devices described on one device of this machine that aggregate the same rows share them.
        shared: dict[tuple[str, int], BoundBlock] = {}
        for (number, slot), block in self._shards.blocks.items():
            if self._has(slot):
                key = (self._trainers[slot].torch_device, id(block))
                if key not in shared:
                    shared[key] = self._bind_block(block, slot)
                self._bounds[number, slot] = shared[key]
        for number, slot in product(self._lowering.rounds, self._shards.updaters):
            if self._has(slot):
                ids = self._shards.updated_ids(number, slot)
                rows = np.zeros(len(ids) + 1, dtype=np.int64)
                block = Block(ids, len(ids), rows, np.empty(0, dtype=np.int32))
                self._outputs[number, slot] = self._bind_block(block, slot)

    def _bind_block(self, block: Block, slot: int) -> BoundBlock:
        device = self._device(slot)
        return BoundBlock(block, self._bundle.kernel, self._degrees, self._dtype, device)

    def _find_training_vertices(self) -> None:
        """Find the rows with a loss, and their labels, for each updater's rows of a round."""
        trains = self._setting.dataset.train_mask & (self._setting.dataset.labels >= 0)
        self._num_train = int(trains.sum())
        self._labelled: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
        for (number, slot), bound in self._outputs.items():
            ids, where = bound.block.src_ids, self._trainers[slot].torch_device
            places = torch.from_numpy(np.flatnonzero(trains[ids]))
            labels = self._labels[torch.from_numpy(ids)[places]]
            self._labelled[number, slot] = places.to(where), labels.to(where)

    def _place_features(self) -> dict[tuple[int, int], Tensor]:
        """Return each aggregator's columns of the features of its rows, as layer 0."""
        order, width = self._shards.order, self.replicas.master.stack[0].in_features
        features = {
            (0, slot): self._open_rows(0, slot)
            for slot in self._shards.aggregators
            if self._has(slot) and self._lowering.width(0, slot)
        }
        step = max(1, FILLED_BYTES // (max(1, width) * self._itemsize))
        for begin in range(0, len(order), step):
            end = min(begin + step, len(order))
            rows = feature_rows(self._setting, order[begin:end], sparse=False)
            for (_, slot), into in features.items():
                columns = rows[:, slice(*self._lowering.columns[0][slot])]
                _fill_held(into, columns, begin, self._shards.held[slot])
        return features

    # ------------------------------------------------------------------ one epoch

    def run_epoch(self, epoch: int) -> EpochTrace:
        """Run one full-graph iteration: forward, loss, backward, update."""
        self._start_epoch(epoch)
        for device in self._trainers:  # a device without columns or vertices counts as idle
            self._recorder.count_work(device.name, 0.0)
        self._loss = 0.0
        self._begin_update()
        #: Columns of a layer's input, and of their gradients, by layer and aggregator.
        self._columns = dict(self._features)
        self._column_gradients: dict[tuple[int, int], Tensor] = {}
        #: Aggregates and their gradients, by round (at most two) and aggregator.
        self._aggregates: ByRound = {}
        self._aggregate_gradients: ByRound = {}
        #: By round and updater: all columns of the aggregates, outputs, gradients of aggregates.
        self._whole: ByRound = {}
        self._rows: ByRound = {}
        self._parts: ByRound = {}
        #: By round and updater, gradients of a layer's outputs.
        self._gradients: dict[tuple[int, int], Tensor] = {}
        self._tapes: dict[tuple[int, int, int], UpdateTape] = {}
        #: The mask of the rows that a piece reads, by layer, round and device index.
        self._wanted: dict[tuple[int, int, int], MaskArray] = {}
        count = sum(parameter.numel() for parameter in self.replicas.master.parameters())
        updaters = sorted({slot for _, slot in self._outputs})
        self._sums = {slot: self._open(slot, count).zero_() for slot in updaters}
        self._take(self._list_epoch(epoch))
        return self._end_epoch(self._loss, [self._loss], self._num_train)

    def _open(self, slot: int, *shape: int) -> Tensor:
        """Return an uninitialised tensor on a device."""
        return torch.empty(shape, dtype=self._dtype, device=self._trainers[slot].torch_device)

    def _open_rows(self, number: int, slot: int) -> Tensor:
        """Return an uninitialised tensor for an aggregator's columns of its rows."""
        return self._open(slot, self._shards.num_held(slot), self._lowering.width(number, slot))

    # ------------------------------------------------------------------ forward

    def _aggregate_forward(self, operation: AggregateForward) -> None:
        number, index, slot = operation.key
        h, sources = self._columns[number, slot], self._shards.sources[index, slot]
        if index == self._lowering.rounds[-1]:
            del self._columns[number, slot]
        layer = self._layer(number, slot)
        with torch.no_grad():
            if sources is not None:
                h = h.index_select(0, torch.from_numpy(sources).to(h.device))
            _forget_earlier(self._aggregates, index)
            self._aggregates[index, slot] = layer.aggregate(self._bounds[index, slot], h)
            if layer.masks_below:
                self._wanted[number, index, slot] = mask_positive(h)

    def _send_aggregates(self, operation: MoveAggregates) -> Tensor:
        _, index, overlap = operation
        return self._aggregates[index, overlap.aggregator][overlap.there]

    def _receive_aggregates(self, part: Tensor, operation: MoveAggregates) -> None:
        number, index, overlap = operation
        slot, copies = overlap.updater, self._lowering.copies(number)
        width = self.replicas.master.stack[number].in_features
        if (index, slot) not in self._whole:
            rows = self._shards.rows_of(index, slot)
            self._whole[index, slot] = self._open(slot, rows, copies * width)
        whole, (begin, end) = self._whole[index, slot], self._range(number, overlap)
        pieces = torch.split(part.view(overlap.rows, -1), end - begin, dim=1)
        for copy, piece in enumerate(pieces):
            whole[overlap.here, copy * width + begin : copy * width + end] = piece

    def _range(self, number: int, overlap: Overlap) -> Range:
        """Return the columns of a layer's input that are transferred."""
        return self._lowering.columns[number][overlap.aggregator]

    def _update_forward(self, operation: UpdateForward) -> None:
        number, index, slot = operation.key
        layer = self._layer(number, slot)
        needs = needs_aggregate_gradient(layer, first=number == 0)
        bound, whole = self._outputs[index, slot], self._whole.pop((index, slot))
        tape = run_update(layer, bound, whole, needs_input_gradient=needs)
        self._tapes[number, index, slot] = tape
        _forget_earlier(self._rows, index)
        self._rows[index, slot] = tape.output.detach()

    def _send_rows(self, operation: MoveRows) -> Tensor:
        number, index, overlap = operation
        begin, end = self._range(number, overlap)
        return self._rows[index, overlap.updater][overlap.here][:, begin:end]

    def _receive_rows(self, part: Tensor, operation: MoveRows) -> None:
        number, _, overlap = operation
        key = (number, overlap.aggregator)
        if key not in self._columns:
            self._columns[key] = self._open_rows(*key)
        self._columns[key][overlap.there] = part.view(overlap.rows, -1)

    def _take_loss(self, operation: TakeLoss) -> None:
        index, slot = operation
        rows, (places, labels) = self._rows[index, slot], self._labelled[index, slot]
        self._keep_logits(self._shards.updated_ids(index, slot), rows)
        gradient = self._gradients[index, slot] = torch.zeros_like(rows)
        if len(places):
            chosen = rows[places].requires_grad_()
            loss = cross_entropy(chosen, labels, reduction="sum") / self._num_train
            (gradient[places],) = torch.autograd.grad(loss, chosen)
            self._loss += loss.item()

    # ------------------------------------------------------------------ backward

    def _update_backward(self, operation: UpdateBackward) -> None:
        """Compute the gradients of a round's aggregates, and add up the weights' gradients."""
        number, index, slot = operation.key
        tape = self._tapes.pop((number, index, slot))
        gradient = run_update_backward(tape, self._gradients.pop((index, slot)))
        if gradient is not None:
            _forget_earlier(self._parts, index)
            self._parts[index, slot] = gradient
        parameters = list(self.replicas.on(self._trainers[slot]).parameters())
        sums = torch.split(self._sums[slot], [each.numel() for each in parameters])
        for total, parameter in zip(sums, parameters, strict=True):
            if parameter.grad is not None:
                total += parameter.grad.view(-1)
                parameter.grad = None

    def _send_columns(self, operation: ReturnAggregateGradients) -> Tensor:
        number, index, overlap = operation
        begin, end = self._range(number, overlap)
        width = self.replicas.master.stack[number].in_features
        rows = self._parts[index, overlap.updater][overlap.here]
        parts = [part[:, begin:end] for part in torch.split(rows, width, dim=1)]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def _receive_columns(self, part: Tensor, operation: ReturnAggregateGradients) -> None:
        _, index, overlap = operation
        slot, part = overlap.aggregator, part.view(overlap.rows, -1)
        if (index, slot) not in self._aggregate_gradients:
            rows = self._shards.pieces[index, slot].size.num_dst
            self._aggregate_gradients[index, slot] = self._open(slot, rows, part.shape[1])
        self._aggregate_gradients[index, slot][overlap.there] = part

    def _aggregate_backward(self, operation: AggregateBackward) -> None:
        number, index, slot = operation.key
        bound, layer = self._bounds[index, slot], self._layer(number, slot)
        if layer.masks_below:
            bound = bound.masked(self._wanted.pop((number, index, slot)))
        with torch.no_grad():
            gradients = self._aggregate_gradients.pop((index, slot))
            rows = layer.aggregate_backward(bound, gradients)
        key, sources = (number, slot), self._shards.sources[index, slot]
        if key not in self._column_gradients:
            self._column_gradients.pop((number + 1, slot), None)
            self._column_gradients[key] = self._open_rows(*key).zero_()
        into = self._column_gradients[key]
        if sources is None:
            into += rows
        else:
            into.index_add_(0, torch.from_numpy(sources).to(rows.device), rows)

    def _send_back(self, operation: ReturnRowGradients) -> Tensor:
        number, _, overlap = operation
        return self._column_gradients[number, overlap.aggregator][overlap.there]

    def _receive_back(self, part: Tensor, operation: ReturnRowGradients) -> None:
        number, index, overlap = operation
        key = (index, overlap.updater)
        if key not in self._gradients:
            shape = self._shards.rows_of(*key), self.replicas.master.stack[number].in_features
            self._gradients[key] = self._open(overlap.updater, *shape).zero_()
        into, (begin, end) = self._gradients[key], self._range(number, overlap)
        into[overlap.here, begin:end] += part.view(overlap.rows, -1).to(into.device)

    # ------------------------------------------------------------------ the weights

    def _send_sums(self, operation: ReduceSums) -> Tensor:
        return self._sums[operation.source][operation.begin : operation.end]

    def _receive_sums(self, part: Tensor, operation: ReduceSums) -> None:
        into = self._sums[operation.target][operation.begin : operation.end]
        if operation.adds:
            into += part.to(into.device)
        else:
            into.copy_(part)

    def _update_model(self, operation: UpdateModel) -> None:
        # Devices of one process share a model, and every one of them has the same sums now.
        for sums in list(self._sums.values())[:1]:
            parameters = list(self.replicas.master.parameters())
            parts = torch.split(sums.cpu(), [each.numel() for each in parameters])
            self._step(
                [part.view(each.shape) for part, each in zip(parts, parameters, strict=True)]
            )


def _forget_earlier(of_rounds: ByRound, index: int) -> None:
    """Release tensors of rounds before the one that is in flight now."""
    for key in [key for key in of_rounds if key[0] not in (index - 1, index)]:
        del of_rounds[key]


def _fill_held(into: Tensor, rows: Tensor, begin: int, held: IntArray | None) -> None:
    """Copy the rows at the positions ``held``, ascending; None means all.

    ``rows`` begin at position ``begin``.
    """
    end = begin + len(rows)
    if held is None:
        into[begin:end] = rows
    else:
        low, high = np.searchsorted(held, (begin, end))
        into[low:high] = rows[torch.from_numpy(held[low:high] - begin)]
