"""The bodies of ``lowering/device_resident.py``'s steps: rows and gradients on the devices."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from gnnbench.lowering.device_resident import ClearGradients, DeviceResidentLowering, TakeLoss
from gnnbench.lowering.stages.averaging import UpdateModel
from gnnbench.lowering.stages.changes import KeepSentRows, MeasureChange, TellChange
from gnnbench.lowering.stages.peers import (
    AddStaleGradients,
    Crossing,
    DrawHalo,
    ReadRows,
    ReturnGradients,
    SendGradients,
    SendRows,
    TakeRows,
)
from gnnbench.lowering.stages.swapping import SwapIn, SwapOut
from gnnbench.lowering.stages.unit_passes import (
    AggregateBackward,
    AggregateForward,
    UpdateBackward,
    UpdateForward,
)
from gnnbench.lowering.units import needs_aggregate_gradient
from gnnbench.models import BoundBlock
from gnnbench.program.reader import Bodies
from gnnbench.records import Block, BoolArray, EpochTrace, IntArray
from gnnbench.run.base import Engine
from gnnbench.run.features import feature_rows
from gnnbench.run.movement import read_rows
from gnnbench.run.passes import (
    run_aggregate,
    run_aggregate_backward,
    run_update,
    run_update_backward,
)
from gnnbench.run.ranks import Transfer
from gnnbench.run.sent_rows import RowsKey, SentRows
from gnnbench.run.tapes import Tapes, UnitKey

#: Rows by layer and device index.
LayerRows = dict[RowsKey, Tensor]


class DeviceResidentEngine(Engine):
    """The engine for programs of :class:`DeviceResidentLowering`; its methods are the bodies."""

    _lowering: DeviceResidentLowering

    def prepare(self) -> None:
        """Lower, bind the blocks, and put the features on the devices."""
        stack = self.replicas.master.stack
        self._lowering = DeviceResidentLowering(self._bundle, self._setting, stack)
        self._lowering.frame.deciding = self._recorder.inside_part
        self._lowering.read_change = self._read_change
        self._lowering.prepare(self.ledger)
        self._bounds: dict[UnitKey, tuple[BoundBlock, ...]] = {}
        rounds = self._lowering.cut.partitioned if self._lowering.halo is None else ()
        for round_ in rounds:
            for unit in filter(lambda unit: self._has(unit.slot), round_.units):
                bound = {each: self._bind(each, unit.slot) for each in dict.fromkeys(unit.blocks)}
                self._bounds[round_.index, unit.slot] = tuple(bound[each] for each in unit.blocks)
        self._place()
        #: Data from earlier epochs that is still valid: input rows, by layer and unit, and the
        #: gradients that a unit sent to a device; then data in flight, by its way and epoch.
        self._stale_rows: dict[tuple[int, int, int], Tensor] = {}
        self._stale_gradients: dict[tuple[object, ...], Tensor] = {}
        self._under_way: dict[tuple[object, ...], tuple[IntArray, Tensor]] = {}
        self._sent = SentRows()
        bodies: Bodies = {
            MeasureChange: lambda key: self._sent.measure(key, self._own_rows(*key)),
            TellChange: Transfer(self._sent.give, self._sent.take),
            KeepSentRows: lambda key: self._sent.keep(key, self._own_rows(*key)),
            DrawHalo: self._bind_drawn,
            ReadRows: Transfer(self._give_rows, self._read_rows),
            TakeRows: self._take_rows,
            SendRows: Transfer(self._give_rows, self._keep_rows),
            AggregateForward: self._aggregate_forward,
            UpdateForward: self._update_forward,
            TakeLoss: self._take_loss,
            ClearGradients: self._clear_gradients,
            UpdateBackward: self._update_backward,
            AggregateBackward: self._aggregate_backward,
            SwapOut: lambda key: self._tapes.swap_out(*key),
            SwapIn: lambda to: self._tapes.swap_in(to.layer, to.slot, self._device(to.slot)),
            ReturnGradients: Transfer(self._give_gradients, self._return_gradients),
            SendGradients: Transfer(self._give_gradients, self._keep_gradients),
            AddStaleGradients: self._add_stale_gradients,
            UpdateModel: self._update_model,
        }
        self._use(bodies)

    def _bind(self, block: Block, slot: int, *, thinned: bool = False) -> BoundBlock:
        kernel, device = self._bundle.kernel, self._device(slot)
        return BoundBlock(block, kernel, self._degrees, self._dtype, device, thinned=thinned)

    def _bind_drawn(self, operation: DrawHalo) -> None:
        """Use the blocks that a device has drawn for this epoch."""
        if self._lowering.halo is not None:
            for key, block in self._lowering.halo.blocks_of(operation.slot).items():
                self._bounds[key] = (self._bind(block, operation.slot, thinned=True),)

    def _place(self) -> None:
        """Place the features; find each device's training vertices, by position in its shard."""
        train_ids = self._setting.dataset.train_ids
        self._num_train = len(train_ids)
        self._features: dict[int, Tensor] = {}
        self._seeds: dict[int, tuple[Tensor, Tensor]] = {}
        for slot in self._here:
            device = self._trainers[slot]
            ids, held = self._lowering.cut.owned[slot], self._lowering.cut.hold(0, slot)
            rows = feature_rows(self._setting, held, sparse=self._lowering.sparse)
            self._features[slot] = rows.to(device.torch_device)
            places = torch.from_numpy(np.flatnonzero(np.isin(ids, train_ids, assume_unique=True)))
            labels = self._labels[torch.from_numpy(ids)[places]]
            self._seeds[slot] = places.to(device.torch_device), labels.to(device.torch_device)

    def run_epoch(self, epoch: int) -> EpochTrace:
        """Run one full-graph iteration: forward, loss, backward, update."""
        self._start_epoch(epoch)
        self._loss = 0.0
        self._begin_update()
        #: Rows and gradients of a layer by device index, from h^0; input rows of units and
        #: their gradients, which go to shards.
        self._rows: LayerRows = {(0, slot): rows for slot, rows in self._features.items()}
        self._gradients: LayerRows = {}
        self._inputs: dict[UnitKey, Tensor] = {}
        self._input_gradients: dict[UnitKey, Tensor] = {}
        self._tapes = Tapes()
        #: The gradient of a unit's aggregate, between the two passes back of a layer.
        self._below: dict[UnitKey, Tensor] = {}
        self._take(self._list_epoch(epoch))
        return self._end_epoch(self._loss, [self._loss], self._num_train)

    # ------------------------------------------------------------------ rows that cross

    def _read_change(self, number: int, slot: int) -> float:
        """Return the relative change of a layer's rows, as their device has told all others."""
        if self._rank is not None:
            self._rank.settle()
        return self._sent.changes[number, slot].item()

    def _own_rows(self, number: int, slot: int) -> Tensor:
        """Return the rows of a layer that belong to a device's shard, which come first."""
        return self._rows[number, slot][: self._lowering.shards.num_owned[slot]]

    def _input_of(self, crossing: Crossing) -> Tensor:
        """Return a unit's input rows, ``(S, f)``; stale ones are kept, and are zero at first."""
        key = (crossing.round_index, crossing.slot)
        if key not in self._inputs:
            self._inputs[key] = self._make_input(crossing.number, *key)
        return self._inputs[key]

    def _make_input(self, number: int, round_index: int, slot: int) -> Tensor:
        like = self._rows[number, slot]
        bound = self._bound(number, (round_index, slot))
        shape = (bound.block.num_src, like.shape[1])
        if not self._lowering.staleness.keeps("rows"):
            return like.new_empty(shape)
        key = (number, round_index, slot)
        if key not in self._stale_rows:
            self._stale_rows[key] = like.new_zeros(shape)
        return self._stale_rows[key]

    def _give_rows(self, operation: ReadRows | SendRows) -> Tensor:
        """Return a copy of a shard's rows that cross for a unit, on the shard's device."""
        crossing = operation.crossing
        shard, read = self._rows[crossing.number, crossing.read.slot], crossing.picked
        if read.broadcast:
            return shard[: read.rows].clone()
        return read_rows(shard, torch.from_numpy(read.there), shard.device)

    def _arrived(self, part: Tensor, crossing: Crossing) -> Tensor:
        """Return the rows that a unit reads among those that have crossed, on its device."""
        read, device = crossing.picked, self._device(crossing.slot)
        rows = self._scaled(part.view(read.rows, -1).to(device), crossing)
        return rows.index_select(0, _on(rows, read.there)) if read.broadcast else rows

    def _scaled(self, rows: Tensor, crossing: Crossing) -> Tensor:
        """Return rows or gradients, scaled to stand also for those that were not drawn."""
        scale = self._lowering.scale_of(crossing)
        return rows if scale == 1.0 else rows * scale

    def _read_rows(self, part: Tensor, operation: ReadRows) -> None:
        crossing = operation.crossing
        rows = self._input_of(crossing)
        rows.index_copy_(0, _on(rows, crossing.picked.here), self._arrived(part, crossing))

    def _take_rows(self, operation: TakeRows) -> None:
        crossing = operation.crossing
        rows = self._input_of(crossing)
        places, arrived = self._under_way.pop((*crossing.way("rows"), crossing.sent_in))
        _put(rows, places, arrived, self._lowering.staleness.decay("rows"))

    def _keep_rows(self, part: Tensor, operation: SendRows) -> None:
        crossing = operation.crossing
        sent = self._arrived(part, crossing)
        self._under_way[(*crossing.way("rows"), self._epoch)] = (crossing.picked.here, sent)

    # ------------------------------------------------------------------ forward

    def _bound(self, number: int, key: UnitKey) -> BoundBlock:
        """Return a unit's block of a layer; a chunk has one for all layers."""
        bounds = self._bounds[key]
        return bounds[number] if len(bounds) > 1 else bounds[0]

    def _aggregate_forward(self, operation: AggregateForward) -> None:
        (number, _, slot), key = operation.key, operation.key[1:]
        if self._lowering.shards.crosses(number):
            there = key in self._inputs
            h = self._inputs.pop(key) if there else self._make_input(number, *key)
        else:
            h = self._rows.pop((number, slot))
        layer = self._layer(number, slot)
        if number in self._lowering.swaps.get(slot, ()):
            self._tapes.watch(number, key, list(layer.parameters()))
        with self._tapes.recording(number, key):
            self._tapes.aggregates[number, key] = run_aggregate(
                layer, self._bound(number, key), h, first=number == 0
            )

    def _update_forward(self, operation: UpdateForward) -> None:
        (number, _, slot), key = operation.key, operation.key[1:]
        layer = self._layer(number, slot)
        bound, aggregate = self._bound(number, key), self._tapes.aggregates[number, key].output
        needs = needs_aggregate_gradient(layer, first=number == 0)
        with self._tapes.recording(number, key):
            tape = run_update(layer, bound, aggregate, needs_input_gradient=needs)
        self._tapes.updates[number, key] = tape
        rows = tape.output.detach()
        if self._lowering.whole:
            self._hand_on(self._rows, number + 1, slot, rows)
        else:
            shard = self._open_shard(self._rows, number + 1, slot, rows.shape[1])
            shard[_on(shard, self._lowering.cut.outputs[key])] = rows

    def _hand_on(self, shards: LayerRows, layer: int, slot: int, rows: Tensor) -> None:
        """Store rows or gradients of a layer, and release the last but one layer's."""
        passed = layer - 2 if shards is self._rows else layer + 2
        shards.pop((passed, slot), None)
        shards[layer, slot] = rows

    def _open_shard(self, shards: LayerRows, layer: int, slot: int, width: int) -> Tensor:
        """Return rows or gradients of a layer on a device, zero at first."""
        if (layer, slot) not in shards:
            count = self._lowering.shards.count_rows(slot, layer)
            device = self._trainers[slot].torch_device
            rows = torch.zeros((count, width), dtype=self._dtype, device=device)
            self._hand_on(shards, layer, slot, rows)
        return shards[layer, slot]

    # ------------------------------------------------------------------ loss and backward

    def _take_loss(self, operation: TakeLoss) -> None:
        depth, slot = len(self.replicas.master.stack), operation.slot
        if (depth, slot) in self._rows:
            rows = self._rows[depth, slot]
        else:  # a device without vertices
            width = self.replicas.master.shapes[-1].out_features
            rows = self._open_shard(self._rows, depth, slot, width)
        self._keep_logits(self._lowering.cut.owned[slot], rows)
        gradient = self._gradients[depth, slot] = torch.zeros_like(rows)
        self._loss += _take_loss(rows, *self._seeds[slot], self._num_train, gradient)

    def _clear_gradients(self, operation: ClearGradients) -> None:
        number, slot = operation
        width = self.replicas.master.stack[number].in_features
        self._open_shard(self._gradients, number, slot, width)

    def _update_backward(self, operation: UpdateBackward) -> None:
        (number, _, slot), key = operation.key, operation.key[1:]
        if self._lowering.whole:
            upper = self._gradients.pop((number + 1, slot))
        else:
            upper = self._gradients[number + 1, slot]
            upper = upper[_on(upper, self._lowering.cut.outputs[key])]
        below = run_update_backward(self._tapes.updates.pop((number, key)), upper)
        if below is None:
            del self._tapes.aggregates[number, key]
        else:
            self._below[key] = below

    def _aggregate_backward(self, operation: AggregateBackward) -> None:
        (number, _, slot), key = operation.key, operation.key[1:]
        layer = self._layer(number, slot)
        tape, below = self._tapes.aggregates.pop((number, key)), self._below.pop(key)
        rows = run_aggregate_backward(
            layer, self._bound(number, key), tape, below, first=number == 0
        )
        if rows is not None and self._lowering.shards.crosses(number):
            self._input_gradients[key] = rows
        elif rows is not None:
            self._hand_on(self._gradients, number, slot, rows)

    # ------------------------------------------------------------------ gradients that cross

    def _give_gradients(self, operation: ReturnGradients | SendGradients) -> Tensor:
        """Return the gradients of rows that cross for a unit; the whole shard's in a broadcast."""
        crossing = operation.crossing
        gradients = self._input_gradients[crossing.round_index, crossing.slot]
        read = crossing.picked
        rows = read_rows(gradients, torch.from_numpy(read.here), gradients.device)
        if not read.broadcast:
            return rows
        dense = rows.new_zeros(read.rows, rows.shape[1])
        return dense.index_copy_(0, _on(dense, read.there), rows)

    def _returned(self, part: Tensor, crossing: Crossing) -> tuple[Tensor, Tensor]:
        """Return a shard's gradients, and those that arrived for the rows of a unit."""
        shard, read = self._gradients[crossing.number, crossing.read.slot], crossing.picked
        rows = self._scaled(part.view(read.rows, -1).to(shard.device), crossing)
        return shard, rows.index_select(0, _on(rows, read.there)) if read.broadcast else rows

    def _return_gradients(self, part: Tensor, operation: ReturnGradients) -> None:
        crossing = operation.crossing
        shard, crossed = self._returned(part, crossing)
        shard.index_add_(0, _on(shard, crossing.picked.there), crossed)
        if crossing.read.slot != crossing.slot and self._lowering.staleness.keeps("gradients"):
            kept = self._kept_gradients(crossing, shard)
            kept[_on(kept, crossing.read.mark(crossing.chosen))] = crossed

    def _kept_gradients(self, crossing: Crossing, shard: Tensor) -> Tensor:
        """Return the gradients that last arrived from a unit for a shard's rows, ``(n, f)``."""
        key = crossing.way("gradients")
        if key not in self._stale_gradients:
            self._stale_gradients[key] = shard.new_zeros((len(crossing.read.there), shard.shape[1]))
        return self._stale_gradients[key]

    def _keep_gradients(self, part: Tensor, operation: SendGradients) -> None:
        crossing = operation.crossing
        _, sent = self._returned(part, crossing)
        places = np.flatnonzero(crossing.read.mark(crossing.chosen))
        self._under_way[(*crossing.way("gradients"), self._epoch)] = (places, sent)

    def _add_stale_gradients(self, operation: AddStaleGradients) -> None:
        crossing, stays = operation
        shard = self._gradients[crossing.number, crossing.read.slot]
        kept = self._kept_gradients(crossing, shard)
        if crossing.sent_in >= 0:  # it stays where it arrived; only averaging takes time
            way = (*crossing.way("gradients"), crossing.sent_in)
            places, arrived = self._under_way.pop(way)
            _put(kept, places, arrived, self._lowering.staleness.decay("gradients"))
        there = crossing.read.there[stays]
        shard.index_add_(0, _on(shard, there), kept[_on(kept, stays)])


def _take_loss(
    logits: Tensor, places: Tensor, labels: Tensor, count: int, gradient: Tensor
) -> float:
    """Return the loss of the rows at ``places``, divided by ``count``, and store its gradient."""
    chosen = logits[places].requires_grad_()
    loss = torch.nn.functional.cross_entropy(chosen, labels, reduction="sum") / count
    torch.autograd.backward(loss)
    if chosen.grad is not None:
        gradient[places] = chosen.grad
    return float(loss.detach())


def _put(tensor: Tensor, places: IntArray, arrived: Tensor, decay: float) -> None:
    """Write arrived rows at ``places``, or average them with the rows there.

    The share ``decay`` of the old rows stays.
    """
    at = _on(tensor, places)
    if decay:
        arrived = tensor.index_select(0, at).mul_(decay).add_(arrived, alpha=1 - decay)
    tensor.index_copy_(0, at, arrived)


def _on(tensor: Tensor, places: IntArray | BoolArray) -> Tensor:
    """Return positions, or a mask, on the device of a tensor."""
    return torch.from_numpy(places).to(tensor.device)
