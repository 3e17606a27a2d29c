"""Full-graph training whose vertex data lives on the devices, a partition's rows on each.

A device keeps all that its own units make. What they read of others' rows crosses the links between
devices at every layer, and gradients go back (``shards``); or, where a unit has a block for every
layer, features alone cross, once, and it computes what it needs of others itself. One device that
has the whole graph is the case in which nothing moves or is copied.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from gnnbench.engine.layer_major import Ids, LayerMajorEngine
from gnnbench.engine.machinery import feature_rows, stored_bytes
from gnnbench.engine.shards import History, Read, Sharded, ShardPlan
from gnnbench.footprint import ChunkSize, in_flight_bytes, kept_bytes, mask_bytes
from gnnbench.parts import PeerData
from gnnbench.platforms.machine import Device
from gnnbench.records import BoolArray, IntArray, Round, RoundTraffic, Unit, Work


class DeviceResidentEngine(LayerMajorEngine):
    """Everything of a partition on its device; see the module's docstring."""

    # ------------------------------------------------------------------ preparation

    def _adopt(self, traffic: Sequence[RoundTraffic], owner: IntArray) -> None:
        communication = self._bundle.communication
        units = [unit for round_ in self._rounds for unit in round_.units]
        everything = np.arange(len(owner))
        # One unit that is the whole graph in the device's memory: tensors need no copies at all.
        self._undivided = (
            len(self._trainers) == len(units) == 1
            and len(units[0].blocks) == 1
            and np.array_equal(units[0].input_ids, everything)
        )
        #: Whether a unit's outputs of one layer are its inputs of the next, as they are.
        self._goes_on = self._undivided or any(len(unit.blocks) > 1 for unit in units)
        self._shards = ShardPlan(
            self._rounds,
            traffic,
            owner,
            len(self._trainers),
            broadcasts=communication.broadcasts,
        )
        self._history = History(communication)

    def _place(self) -> None:
        """Each device holds the features of its partition and all that its own units make."""
        setting, train_ids = self._setting, self._train_ids.numpy()
        self._features: Sharded = {}
        #: By slot, where its own training vertices are in its shard, and their labels.
        self._seeds: list[tuple[Tensor, Tensor]] = []
        for slot, device in enumerate(self._trainers):
            ids = self._shards.owned[slot]
            rows = feature_rows(setting, ids, sparse=self._sparse and self._undivided)
            self._features[slot] = rows.to(device.torch_device)
            self.ledger.allocate(device.name, "vertex features on the device", stored_bytes(rows))
            places = torch.from_numpy(np.flatnonzero(np.isin(ids, train_ids, assume_unique=True)))
            labels = self._labels[torch.from_numpy(ids)[places]]
            self._seeds.append((places.to(device.torch_device), labels.to(device.torch_device)))
            self._allocate_kept(slot, device)
            if not self._undivided:
                self._allocate_for_peers(slot, device)

    def _crosses(self, number: int) -> bool:
        """Whether a layer's input rows are put together for it, out of several shards."""
        return not self._undivided and (number == 0 or not self._goes_on)

    def _chunks_of(self, slot: int, number: int) -> list[ChunkSize]:
        """The sizes of a device's blocks in one layer."""
        units = [unit for round_ in self._rounds for unit in round_.units if unit.slot == slot]
        return [self._size_at(number, unit) for unit in units]

    def _size_at(self, number: int, unit: Unit) -> ChunkSize:
        sizes = self._sizes_of(unit)
        return sizes[number] if len(sizes) > 1 else sizes[0]

    def _allocate_kept(self, slot: int, device: Device) -> None:
        """What a device keeps of every layer from forward to backward."""
        for number, shape in enumerate(self.replicas.master.shapes):
            chunks = self._chunks_of(slot, number)
            self.ledger.allocate(
                device.name,
                f"kept intermediates of layer {number + 1}",
                kept_bytes(shape, chunks, self._itemsize, copied=self._crosses(number)),
            )
            if self._layers[number].masks_below:
                size = sum(mask_bytes(chunk.rows, shape.in_features) for chunk in chunks)
                self.ledger.allocate(device.name, f"mask of layer {number + 1}'s input", size)

    def _allocate_for_peers(self, slot: int, device: Device) -> None:
        """What a device holds, besides its shard, for rows that cross and for those that did."""
        shapes, item = self.replicas.master.shapes, self._itemsize
        crossing = [number for number in range(len(shapes)) if self._crosses(number)]
        widest = max(shapes[number].in_features for number in crossing)
        if count := self._shards.broadcast_rows:
            self.ledger.allocate(device.name, "broadcast rows", count * widest * item)
        if self._history.keeps("rows"):
            # The input rows of other layers are kept for the backward pass anyway.
            size = sum(
                chunk.num_src * shapes[number].in_features * item
                for number in crossing
                if shapes[number].cacheable
                for chunk in self._chunks_of(slot, number)
            )
            self.ledger.allocate(device.name, "stale rows", size)
        if self._history.keeps("gradients"):
            width = sum(shapes[number].in_features for number in crossing if number)
            count = self._shards.count_read_by_peers(slot)
            self.ledger.allocate(device.name, "stale gradients", count * width * item)
        if self._history.delay:
            self.ledger.allocate(device.name, "rows under way", 0)

    # ------------------------------------------------------------------ forward

    def _propagate(self) -> float:
        #: By round and slot, what a unit hands on to its next layer.
        self._handed: dict[tuple[int, int], Tensor] = {}
        rows = self._features
        for number in range(len(self._layers)):
            rows = self._forward_layer(number, rows)
        loss, gradient = self._loss(rows)
        for number in reversed(range(len(self._layers))):
            gradient = self._backward_layer(number, gradient)
        return loss

    def _forward_layer(self, number: int, source: Sharded) -> Sharded:
        """A layer's outputs by slot; none where units hand theirs on themselves."""
        layer, last = self._layers[number], number == len(self._layers) - 1
        hands_on = self._goes_on and not last
        output = {} if hands_on or self._undivided else self._open_shards(layer.out_features)
        for round_ in self._rounds:
            self._recorder.round = round_.index
            inputs, arrived = self._bring(number, source, round_)
            ends: list[int] = []
            for unit in round_.units:
                device, key = self._trainers[unit.slot], (round_.index, unit.slot)
                with self.ledger.scope(device.name):
                    self._hold_unit(number, unit, device, backward=False)
                    tape, done = self._forward_unit(
                        number, round_.index, unit, device, inputs.pop(unit.slot), arrived,
                        stages=("aggregate", "update"), keep_tape=True,
                    )  # fmt: skip
                    rows = tape[1].output.detach()
                    if hands_on:
                        self._handed[key] = rows
                    elif self._undivided:
                        output[unit.slot] = rows
                    else:
                        output[unit.slot][self._shards.outputs[key].to(rows.device)] = rows
                self._tapes[number, round_.index, unit.slot] = tape
                self._count_unit(number, round_.index, unit.slot, len(unit.input_ids))
                ends.extend(done)
            self._barrier = tuple(ends) or self._barrier
        return output

    def _open_shards(self, width: int) -> Sharded:
        return {
            slot: torch.zeros(
                (len(ids), width), dtype=self._dtype, device=self._trainers[slot].torch_device
            )
            for slot, ids in enumerate(self._shards.owned)
        }

    def _bring(self, number: int, source: Sharded, round_: Round) -> tuple[dict[int, Tensor], Ids]:
        """The input rows of a round's units, by slot, and the spans they arrive with."""
        if self._crosses(number):
            return self._read_shards(number, source, round_)
        if number == 0:
            return dict(source), self._barrier
        handed = {unit.slot: self._handed.pop((round_.index, unit.slot)) for unit in round_.units}
        return handed, self._barrier

    def _read_shards(
        self, number: int, source: Sharded, round_: Round
    ) -> tuple[dict[int, Tensor], Ids]:
        """A round's input rows, from the units' own shards and from their peers'."""
        inputs: dict[int, Tensor] = {}
        arrived: list[int] = []
        for unit in round_.units:
            own = source[unit.slot]
            shape = (len(unit.input_ids), own.shape[1])
            rows = self._history.inputs(number, round_.index, unit.slot, shape, own)
            ready = sent = self._barrier
            for read in self._shards.reads[round_.index, unit.slot]:
                chosen = self._choose(number, "rows", unit.slot, read)
                if read.slot != unit.slot and self._history.delays("rows"):
                    ready = self._take_rows(number, unit.slot, read, rows, ready)
                    sent = self._send_rows(
                        number, unit.slot, read, chosen, source[read.slot], (*sent, *ready)
                    )
                    continue
                crossing = read.pick(chosen)
                if not crossing.rows:
                    continue
                with self._exchange_rows(
                    unit.slot, crossing, own.shape[1] * self._itemsize, ready, number, push=False
                ) as span:
                    crossing.receive(rows, source[read.slot])
                ready = (span.id,)
            inputs[unit.slot] = rows
            arrived.extend(ready)
        return inputs, tuple(arrived)

    def _choose(self, number: int, what: PeerData, slot: int, read: Read) -> BoolArray:
        """Which rows of a read cross in this epoch; those of the own shard always do."""
        if read.slot == slot:
            return np.ones(read.rows, dtype=np.bool_)
        with self._recorder.inside_part():
            return self._history.choose(self._recorder.epoch, number, what, read)

    # ------------------------------------------------------------------ rows that arrive later

    def _take_rows(self, number: int, slot: int, read: Read, rows: Tensor, after: Ids) -> Ids:
        """Put rows that were sent in an earlier epoch, and have arrived, among a unit's inputs."""
        arrived = self._history.receive("rows", number, self._recorder.round, slot, read)
        self._hold_under_way(slot)
        if arrived is None or not len(arrived.rows):
            return after
        size = arrived.rows.numel() * self._itemsize
        with self._recorder.span(
            "transfer",
            "take rows that arrived",
            self._trainers[slot].name,
            Work("copy", rows=len(arrived.rows), bytes=size),
            after=after,
            layer=number,
        ) as span:
            rows.index_copy_(0, arrived.places.to(rows.device), arrived.rows)
        return (span.id,)

    def _send_rows(
        self, number: int, slot: int, read: Read, chosen: BoolArray, shard: Tensor, after: Ids
    ) -> Ids:
        """Send a unit rows of a peer that it reads in a later epoch; nothing waits for them."""
        crossing = read.pick(chosen)
        device, row_bytes = self._trainers[slot], shard.shape[1] * self._itemsize
        sent = shard.new_empty((0, shard.shape[1]), device=device.torch_device)
        if crossing.rows:
            with self._exchange_rows(slot, crossing, row_bytes, after, number, push=False) as span:
                sent = crossing.take(shard, sent.device)
            after = (span.id,)
        round_index = self._recorder.round
        self._history.send("rows", number, round_index, slot, read, crossing.here, sent)
        self._hold_under_way(slot)
        return after

    def _hold_under_way(self, slot: int) -> None:
        """Account for the second buffer, of rows that arrive while the last ones are read."""
        size = self._history.under_way_bytes(slot)
        self.ledger.allocate(self._trainers[slot].name, "rows under way", size)

    # ------------------------------------------------------------------ memory of one unit

    def _hold_unit(self, number: int, unit: Unit, device: Device, *, backward: bool) -> None:
        """Account for one unit of one layer on its device; the caller's scope releases it."""
        copied = self._crosses(number)
        if not backward and copied and self._history.keeps("rows"):
            return
        layer, chunk, first = self._layers[number], self._size_at(number, unit), number == 0
        owned = chunk.num_dst if self._goes_on else len(self._shards.owned[unit.slot])
        size = in_flight_bytes(
            layer.shape, chunk, owned, self._itemsize, backward=backward, first=first, copied=copied
        )
        if backward and self._goes_on and not first:
            # The gradient that is handed on is of all source rows, which may be others' too.
            size += (chunk.num_src - chunk.num_dst) * layer.in_features * self._itemsize
        self.ledger.allocate(device.name, "rows and gradients in flight", size)

    # ------------------------------------------------------------------ loss and backward

    def _loss(self, logits: Sharded) -> tuple[float, Sharded]:
        """Mean cross entropy over the training vertices, each device's own, and the gradient of
        h^L."""
        gradient = {slot: torch.zeros_like(rows) for slot, rows in logits.items()}
        total, ends = 0.0, []
        for slot, device in enumerate(self._trainers):
            rows, (places, labels) = logits[slot], self._seeds[slot]
            with self._recorder.span(
                "update",
                "loss",
                device.name,
                Work("copy", rows=len(places), bytes=2 * rows.numel() * self._itemsize),
                after=self._barrier,
                layer=len(self._layers),
            ) as span:
                self._keep_logits(self._shards.owned[slot], rows)
                chosen = rows[places].requires_grad_()
                loss = torch.nn.functional.cross_entropy(chosen, labels, reduction="sum")
                loss = loss / len(self._train_ids)
                torch.autograd.backward(loss)
                if chosen.grad is not None:
                    gradient[slot][places] = chosen.grad
                total += float(loss.detach())
            ends.append(span.id)
        self._barrier = tuple(ends)
        return total, gradient

    def _backward_layer(self, number: int, gradient: Sharded) -> Sharded:
        """The gradient of a layer's input rows by slot; none where units hand it on themselves."""
        first, last = number == 0, number == len(self._layers) - 1
        below: Sharded = {} if first or self._goes_on else self._clear_shards(number)
        for round_ in self._rounds:
            self._recorder.round = round_.index
            ends: list[int] = []
            for unit in round_.units:
                device, key = self._trainers[unit.slot], (round_.index, unit.slot)
                with self.ledger.scope(device.name):
                    self._hold_unit(number, unit, device, backward=True)
                    if self._goes_on and not last:
                        upper = self._handed.pop(key)
                    elif self._undivided:
                        upper = gradient[unit.slot]
                    else:
                        upper = gradient[unit.slot]
                        upper = upper[self._shards.outputs[key].to(upper.device)]
                    aggregate, updated = self._tapes.pop((number, *key))
                    rows, done = self._backward_unit(
                        number, round_.index, unit, device, upper, aggregate, updated, self._barrier
                    )
                    if not first:
                        if rows is None:
                            raise RuntimeError("a layer above the first returned no gradient")
                        if self._goes_on:
                            self._handed[key] = rows
                        else:
                            done = self._return_to_shards(number, below, unit.slot, rows, done)
                ends.extend(done)
            self._barrier = tuple(ends) or self._barrier
        return below

    def _clear_shards(self, number: int) -> Sharded:
        """The layer's input gradients, zero."""
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

    def _return_to_shards(
        self, number: int, below: Sharded, slot: int, rows: Tensor, after: Ids
    ) -> Ids:
        """A unit's input gradients to the owners of the rows; of those that do not cross, what was
        sent last counts once more, and of those that are late what has arrived."""
        round_index, row_bytes = self._recorder.round, rows.shape[1] * self._itemsize
        sent = after
        added: Ids = ()
        for read in self._shards.reads[round_index, slot]:
            shard = below[read.slot]
            chosen = self._choose(number, "gradients", slot, read)
            if read.slot != slot and self._history.delays("gradients"):
                self._take_gradients(number, slot, read, shard)
                added += self._add_kept(number, slot, read, None, shard, self._barrier)
                sent = self._send_gradients(number, slot, read, chosen, rows, shard, sent)
                continue
            crossing = read.pick(chosen)
            if crossing.rows:
                with self._exchange_rows(
                    slot, crossing, row_bytes, after, number, push=True
                ) as span:
                    crossed = crossing.send_back(rows, shard)
                    shard.index_add_(0, crossing.there.to(shard.device), crossed)
                after = (span.id,)
            if read.slot == slot or not self._history.keeps("gradients"):
                continue
            marked = read.mark(chosen)
            after = self._add_kept(number, slot, read, ~marked, shard, after)
            if crossing.rows:
                kept = self._history.gradients(number, round_index, slot, read, shard)
                kept[torch.from_numpy(marked).to(shard.device)] = crossed
        return (*after, *added)

    def _add_kept(
        self,
        number: int,
        slot: int,
        read: Read,
        which: BoolArray | None,
        shard: Tensor,
        after: Ids,
    ) -> Ids:
        """Add to a shard the gradients that its device has kept of a unit, ``which`` of them."""
        kept = self._history.gradients(number, self._recorder.round, slot, read, shard)
        there = read.there.to(shard.device)
        if which is not None:
            stays = torch.from_numpy(np.flatnonzero(which)).to(shard.device)
            kept, there = kept[stays], there[stays]
        if not len(there):
            return after
        # Each element is read twice and written once by the addition.
        with self._recorder.span(
            "aggregate",
            "add stale gradients",
            self._trainers[read.slot].name,
            Work("copy", rows=len(there), bytes=3 * kept.numel() * self._itemsize),
            after=after,
            layer=number,
        ) as span:
            shard.index_add_(0, there, kept)
        return (span.id,)

    def _take_gradients(self, number: int, slot: int, read: Read, shard: Tensor) -> None:
        """Keep the gradients of a unit that were sent in an earlier epoch, and have arrived.

        They stay where they arrived, which takes no time.
        """
        round_index = self._recorder.round
        arrived = self._history.receive("gradients", number, round_index, slot, read)
        self._hold_under_way(read.slot)
        if arrived is not None:
            kept = self._history.gradients(number, round_index, slot, read, shard)
            kept.index_copy_(0, arrived.places.to(kept.device), arrived.rows)

    def _send_gradients(
        self,
        number: int,
        slot: int,
        read: Read,
        chosen: BoolArray,
        rows: Tensor,
        shard: Tensor,
        after: Ids,
    ) -> Ids:
        """Send the owner of rows gradients that count in a later epoch; nothing waits for them."""
        crossing, row_bytes = read.pick(chosen), rows.shape[1] * self._itemsize
        sent = shard.new_empty((0, shard.shape[1]))
        if crossing.rows:
            with self._exchange_rows(slot, crossing, row_bytes, after, number, push=True) as span:
                sent = crossing.send_back(rows, shard)
            after = (span.id,)
        places = torch.from_numpy(np.flatnonzero(read.mark(chosen)))
        self._history.send("gradients", number, self._recorder.round, slot, read, places, sent)
        self._hold_under_way(read.slot)
        return after
