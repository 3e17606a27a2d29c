"""Transfers of rows and gradients between the host and devices, and between devices' buffers.

A process may have only a part of the host's rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from gnnbench.host.mapped import ReadAhead
from gnnbench.kernels.dispatch import scatter_add_rows
from gnnbench.lowering.host_plan import shares_features
from gnnbench.lowering.host_resident import HostResidentLowering
from gnnbench.lowering.host_steps import (
    AccumulateGradients,
    BringRows,
    ClearBuffer,
    PullRows,
    PushGradients,
)
from gnnbench.lowering.movement import SlotMovement
from gnnbench.lowering.stages.unit_passes import UnitKey
from gnnbench.lowering.working_sets import Held
from gnnbench.program.reader import Bodies
from gnnbench.records import IndexArray, IntArray
from gnnbench.run.base import Here
from gnnbench.run.host_share import HostShare
from gnnbench.run.movement import Buffers, read_rows, to_host
from gnnbench.run.ranks import HostTransfer, Transfer


class HostMovement:
    """The movement of the rows and gradients of full-graph units.

    ``share`` says which of the host's rows are here. ``moves`` are the movements of units' rows, by
    round and device index. ``rows`` and ``gradients`` are the host's tensors ``(n, f)`` of each
    layer; layer 0 has h^0. ``inputs`` and ``returned`` are the input rows of current units and
    their gradients, if no buffer has them. ``buffers`` belong to the current pass over a layer.
    """

    def __init__(
        self, here: Here, lowering: HostResidentLowering, share: HostShare, ahead: ReadAhead
    ) -> None:
        self._here, self._lowering, self.share, self._ahead = here, lowering, share, ahead
        self._widths = [layer.in_features for layer in lowering.layers]
        self.moves: dict[tuple[int, int], SlotMovement] = {
            (index, plan.move.slot): plan.move
            for index, plans in enumerate(lowering.plans)
            for plan in plans
            if plan.move is not None
        }
        self.rows: dict[int, Tensor] = {}
        self.gradients: dict[int, Tensor] = {}

    def start_epoch(self) -> None:
        """Forget the units of the last epoch."""
        self.inputs: dict[UnitKey, Tensor] = {}
        self.returned: dict[UnitKey, Tensor] = {}
        self.buffers: dict[Held, Buffers] = {}

    def list_bodies(self) -> Bodies:
        """Return the bodies of the steps that move rows, by operation."""
        return {
            BringRows: HostTransfer(
                self._bring_rows, self._count_brought, self._give_rows, self._place_rows
            ),
            PullRows: Transfer(self._lend_rows, self._borrow_rows, self._pull_rows),
            ClearBuffer: self._clear_buffer,
            PushGradients: Transfer(
                self._lend_gradients, self._borrow_gradients, self._push_gradients
            ),
            AccumulateGradients: HostTransfer(
                self._accumulate,
                self._count_leaving,
                self._give_gradients,
                self._add_gradients,
                to_host=True,
            ),
        }

    def outputs_of(self, round_index: int, slot: int) -> Tensor:
        """Return the positions of a unit's outputs among the host's rows."""
        return torch.from_numpy(self.share.place(self.moves[round_index, slot].block.dst_ids))

    def take_inputs(self, key: UnitKey) -> Tensor:
        """Return the input rows ``(S, f)`` of a unit at the start of its forward pass."""
        move = self.moves[key[1:]]
        return self.inputs.pop(key) if move.direct else self.buffers["rows"].rows(move)

    def open_buffers(self, what: Held, number: int) -> Buffers:
        """Return the buffers of the pass over a layer, made at the first call."""
        if what not in self.buffers:
            buffers, width = Buffers(), self._widths[number]
            for slot, rows in self._lowering.buffer_rows.items():
                if self._here.has(slot):
                    buffers.make_room(slot, rows, width, self._here.dtype, self._here.device(slot))
            self.buffers[what] = buffers
        return self.buffers[what]

    # ------------------------------------------------------------------ forward

    def _bring_rows(self, operation: BringRows) -> None:
        number, round_index, slot = key = operation.key
        move, source = self.moves[round_index, slot], self.rows[number]
        which, ids = self.share.split(move.host_ids)
        if not move.direct:
            own = replace(move, host_ids=ids, host_into=move.host_into[which])
            buffers = self.open_buffers("rows", number)
            for window in self._walk(number, round_index, slot, ids):
                part = replace(own, host_ids=ids[window], host_into=own.host_into[window])
                buffers.bring(part, source)
            return
        rows = read_rows(source, torch.from_numpy(ids), self._here.device(slot))
        if len(ids) < len(move.host_ids):  # the others arrive from other processes
            some, rows = rows, rows.new_empty(len(move.host_ids), rows.shape[1])
            rows[_on(which, rows)] = some
        self.inputs[key] = rows

    def _walk(self, number: int, round_index: int, slot: int, ids: IndexArray) -> Iterator[slice]:
        """Yield slices of a unit's host rows: all at once, or in windows for features on disk.

        After windows, the reading of the device's next round begins.
        """
        if number or not (self.share.whole and shares_features(self._here.setting)):
            yield slice(0, len(ids))
            return
        yield from self._ahead.walk(ids)
        following = self.moves.get((round_index + 1, slot))
        if following is not None:
            self._ahead.begin(following.host_ids)

    def _count_brought(self, operation: BringRows) -> Mapping[int, int]:
        number, round_index, slot = operation.key
        width = self._widths[number]
        return self.share.count(self.moves[round_index, slot].host_ids, width)

    def _give_rows(self, rank: int, operation: BringRows) -> Tensor:
        """Return the rows that a unit reads of the host and that are here."""
        number, round_index, slot = operation.key
        source = self.rows[number]
        _, ids = self.share.split(self.moves[round_index, slot].host_ids)
        return read_rows(source, torch.from_numpy(ids), source.device)

    def _place_rows(self, part: Tensor, rank: int, operation: BringRows) -> None:
        """Put rows of another process in their places for a unit."""
        move = self.moves[operation.key[1:]]
        which = self.share.pick(move.host_ids, rank)
        rows = part.view(len(which), -1)
        if move.direct:
            into = self.inputs[operation.key]
            into[_on(which, into)] = rows.to(into.device)
        else:
            self.buffers["rows"].load(replace(move, host_into=move.host_into[which]), rows)

    def _pull_rows(self, operation: PullRows) -> None:
        move = self.moves[operation.round, operation.slot]
        self.buffers["rows"].pull(move, move.pulls[operation.place])

    def _lend_rows(self, operation: PullRows) -> Tensor:
        move = self.moves[operation.round, operation.slot]
        return self.buffers["rows"].lend(move.pulls[operation.place])

    def _borrow_rows(self, part: Tensor, operation: PullRows) -> None:
        move = self.moves[operation.round, operation.slot]
        self.buffers["rows"].borrow(move, move.pulls[operation.place], part)

    # ------------------------------------------------------------------ backward

    def _clear_buffer(self, operation: ClearBuffer) -> None:
        self.open_buffers("gradients", operation.key[0]).clear(self.moves[operation.key[1:]])

    def _push_gradients(self, operation: PushGradients) -> None:
        move = self.moves[operation.round, operation.slot]
        self.buffers["gradients"].push(move, move.pushes[operation.place])

    def _lend_gradients(self, operation: PushGradients) -> Tensor:
        move = self.moves[operation.round, operation.slot]
        return self.buffers["gradients"].lend_gradients(move, move.pushes[operation.place])

    def _borrow_gradients(self, part: Tensor, operation: PushGradients) -> None:
        push = self.moves[operation.round, operation.slot].pushes[operation.place]
        self.buffers["gradients"].borrow_gradients(push, part)

    def _accumulate(self, operation: AccumulateGradients) -> None:
        number, round_index, slot = key = operation.key
        move, into = self.moves[round_index, slot], self.gradients[number]
        which, ids = self.share.split(move.leaving_ids)
        if not move.direct:
            own = replace(move, leaving=move.leaving[which], leaving_ids=ids)
            self.buffers["gradients"].leave(own, into)
            return
        rows = to_host(self.returned.pop(key))
        if len(ids) < len(rows):
            rows = rows[_on(which, rows)]
        threads = torch.get_num_threads()
        scatter_add_rows(into.numpy(), ids, rows.numpy(), threads=threads)

    def _count_leaving(self, operation: AccumulateGradients) -> Mapping[int, int]:
        number, round_index, slot = operation.key
        width = self._widths[number]
        return self.share.count(self.moves[round_index, slot].leaving_ids, width)

    def _give_gradients(self, rank: int, operation: AccumulateGradients) -> Tensor:
        """Return the gradients that leave a device for another process's rows."""
        move = self.moves[operation.key[1:]]
        which = self.share.pick(move.leaving_ids, rank)
        if move.direct:
            rows = self.returned[operation.key]
            return to_host(rows[_on(which, rows)])
        return self.buffers["gradients"].take_out(replace(move, leaving=move.leaving[which]))

    def _add_gradients(self, part: Tensor, rank: int, operation: AccumulateGradients) -> None:
        """Add gradients of a unit to the rows that are here."""
        number, round_index, slot = operation.key
        _, ids = self.share.split(self.moves[round_index, slot].leaving_ids)
        rows, threads = part.cpu().view(len(ids), -1), torch.get_num_threads()
        scatter_add_rows(self.gradients[number].numpy(), ids, rows.numpy(), threads=threads)


def _on(places: IntArray | slice, tensor: Tensor) -> Tensor | slice:
    """Return positions on the device of a tensor."""
    return places if isinstance(places, slice) else torch.from_numpy(places).to(tensor.device)
