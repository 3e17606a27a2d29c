"""The bodies of ``lowering/streamed.py``'s steps: sums over in-edges that come in pieces."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from gnnbench.lowering.host_steps import StoreAggregates, StoreOutputs
from gnnbench.lowering.movement import SlotMovement
from gnnbench.lowering.stages.unit_passes import (
    AggregateBackward,
    AggregateForward,
    UnitKey,
    UpdateForward,
)
from gnnbench.lowering.streamed import AddSums, StreamedLowering
from gnnbench.models import BoundBlock
from gnnbench.program.reader import Bodies
from gnnbench.records import EpochTrace
from gnnbench.run.host_resident import HostResidentEngine
from gnnbench.run.passes import AggregateTape, run_aggregate_backward


class StreamedEngine(HostResidentEngine):
    """The engine for programs of :class:`StreamedLowering`.

    The tapes and gradients of a whole chunk have the key of its first piece.
    """

    _lowering: StreamedLowering

    def _list_bodies(self) -> Bodies:
        if self._lowering.pieces == 1:
            return super()._list_bodies()
        return {**super()._list_bodies(), AddSums: self._add_sums}

    def _bind(self, index: int, move: SlotMovement) -> BoundBlock:
        """Bind a block with some of its in-edges; only the first piece has own rows."""
        kernel, device = self._bundle.kernel, self._device(move.slot)
        return BoundBlock(
            move.block,
            kernel,
            self._degrees,
            self._dtype,
            device,
            thinned=self._lowering.pieces > 1,
            own=self._lowering.is_first(index),
        )

    def run_epoch(self, epoch: int) -> EpochTrace:
        """Run one full-graph iteration: forward, loss, backward, update."""
        #: By device index, own rows of the current destinations, and the sums of one piece.
        self._own: dict[int, Tensor] = {}
        self._sums: dict[int, Tensor] = {}
        return super().run_epoch(epoch)

    def _whole(self, key: UnitKey) -> UnitKey:
        """Return the key of the first piece of the same chunk."""
        number, round_index, slot = key
        return number, round_index - round_index % self._lowering.pieces, slot

    # ------------------------------------------------------------------ rows

    def _places(self, move: SlotMovement) -> tuple[Tensor, Tensor]:
        """Return the positions of a unit's destinations among its input rows, and of other rows."""
        block, device = move.block, self._device(move.slot)
        crossed = np.ones(block.num_src, dtype=np.bool_)
        own = np.arange(block.num_dst) if block.own is None else block.own.astype(np.int64)
        crossed[own] = False
        return (
            torch.from_numpy(own).to(device),
            torch.from_numpy(np.flatnonzero(crossed)).to(device),
        )

    def _read(self, key: UnitKey) -> Tensor:
        """Return a unit's input rows: rows that crossed, and destinations' rows that stayed."""
        _, round_index, slot = key
        rows, move = super()._read(key), self._movement.moves[key[1:]]
        if self._lowering.pieces == 1 or not (
            move.rows_reused or self._lowering.is_first(round_index)
        ):
            return rows
        own, crossed = self._places(move)
        if self._lowering.is_first(round_index):
            self._own[slot] = rows.index_select(0, own)
            return rows
        whole = rows.new_empty(len(move.input_ids), rows.shape[1])
        whole.index_copy_(0, crossed, rows)
        return whole.index_copy_(0, own, self._own[slot])

    # ------------------------------------------------------------------ forward

    def _aggregate(self, operation: AggregateForward) -> None:
        if self._lowering.pieces == 1:
            super()._aggregate(operation)
            return
        number, round_index, slot = key = operation.key
        bound = self._bounds[round_index, slot]
        with torch.no_grad():
            sums = self._layer(number, slot).aggregate(bound, self._read(key))
        if self._lowering.is_first(round_index):
            self._aggregates[key] = AggregateTape(None, sums)
        else:
            self._sums[slot] = sums
            self._take_topology(bound)

    def _add_sums(self, operation: AddSums) -> None:
        tape = self._aggregates[self._whole(operation.key)]
        tape.output.add_(self._sums.pop(operation.key[2]))

    def _update(self, operation: UpdateForward) -> None:
        super()._update(operation._replace(key=self._whole(operation.key)))

    def _store_outputs(self, operation: StoreOutputs) -> None:
        super()._store_outputs(StoreOutputs(self._whole(operation.key)))

    def _store_aggregates(self, operation: StoreAggregates) -> None:
        super()._store_aggregates(StoreAggregates(self._whole(operation.key)))

    # ------------------------------------------------------------------ backward

    def _aggregate_backward(self, operation: AggregateBackward) -> None:
        if self._lowering.pieces == 1:
            super()._aggregate_backward(operation)
            return
        number, round_index, slot = key = operation.key
        whole = self._whole(key)
        move = self._movement.moves[round_index, slot]
        layer, bound, below = (
            self._layer(number, slot),
            self._bounds[round_index, slot],
            self._below,
        )
        rows = run_aggregate_backward(
            layer, bound, self._aggregates[whole], below[whole], first=number == 0
        )
        if rows is not None:
            _, crossed = self._places(move)
            kept = move.rows_reused > 0
            self._movement.returned[key] = rows[crossed] if kept else rows
        self._take_topology(bound)
        if self._lowering.is_last(round_index):
            del below[whole]
            self._end_unit(whole)
