"""Rows and gradients between the host, of whose rows a process may have a part, and its devices,
and between the buffers of devices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from gnnbench.kernels.dispatch import scatter_add_rows
from gnnbench.lowering.full_graph import UnitKey
from gnnbench.lowering.host_plan import shares_features
from gnnbench.lowering.host_resident import HostResidentLowering
from gnnbench.lowering.movement import SlotMovement
from gnnbench.lowering.working_sets import Held
from gnnbench.records import IndexArray, IntArray
from gnnbench.run.base import Engine
from gnnbench.run.execute import Bodies
from gnnbench.run.host_share import HostShare
from gnnbench.run.movement import Buffers, read_rows, to_host
from gnnbench.run.ranks import HostTransfer, Transfer


class HostMovement(Engine):
    """Moves what :class:`HostResidentLowering` says; see the module's docstring."""

    _lowering: HostResidentLowering
    #: Which of the host's rows are here; by round and slot how a unit's rows move; and rows and
    #: gradients of a layer, h^0 being layer 0.
    _share: HostShare
    _moves: dict[tuple[int, int], SlotMovement]
    _rows: dict[int, Tensor]
    _gradients: dict[int, Tensor]
    #: Of a unit that is worked on, where no buffer has them: its input rows, and their gradients.
    _inputs: dict[UnitKey, Tensor]
    _returned: dict[UnitKey, Tensor]
    #: The buffers of the pass over a layer that is under way.
    _buffers: dict[Held, Buffers]

    def _list_transfers(self) -> Bodies:
        """What the steps compute that move rows."""
        return {
            "bring rows": HostTransfer(
                self._bring_rows, self._count_brought, self._give_rows, self._place_rows
            ),
            "pull rows": Transfer(self._lend_rows, self._borrow_rows, self._pull_rows),
            "clear buffer": self._clear_buffer,
            "push gradients": Transfer(
                self._lend_gradients, self._borrow_gradients, self._push_gradients
            ),
            "accumulate": HostTransfer(
                self._accumulate,
                self._count_leaving,
                self._give_gradients,
                self._add_gradients,
                to_host=True,
            ),
        }

    def _outputs_of(self, round_index: int, slot: int) -> Tensor:
        """Where a unit's outputs are."""
        return torch.from_numpy(self._share.place(self._moves[round_index, slot].block.dst_ids))

    def _open_buffers(self, what: Held, number: int) -> Buffers:
        """The buffers of the pass over a layer, made when it begins."""
        if what not in self._buffers:
            buffers, width = Buffers(), self.replicas.master.stack[number].in_features
            for slot, rows in self._lowering.buffer_rows.items():
                if self._has(slot):
                    buffers.make_room(slot, rows, width, self._dtype, self._device(slot))
            self._buffers[what] = buffers
        return self._buffers[what]

    # ------------------------------------------------------------------ forward

    def _bring_rows(self, number: int, round_index: int, slot: int) -> None:
        move, source = self._moves[round_index, slot], self._rows[number]
        which, ids = self._share.split(move.host_ids)
        if not move.direct:
            own = replace(move, host_ids=ids, host_into=move.host_into[which])
            buffers = self._open_buffers("rows", number)
            for window in self._walk(number, round_index, slot, ids):
                part = replace(own, host_ids=ids[window], host_into=own.host_into[window])
                buffers.bring(part, source)
            return
        rows = read_rows(source, torch.from_numpy(ids), self._device(slot))
        if len(ids) < len(move.host_ids):  # the others arrive from where they are
            some, rows = rows, rows.new_empty(len(move.host_ids), rows.shape[1])
            rows[_on(which, rows)] = some
        self._inputs[number, round_index, slot] = rows

    def _walk(self, number: int, round_index: int, slot: int, ids: IndexArray) -> Iterator[slice]:
        """The rows of a unit that come from the host, all at once; of features on disk some at a
        time, as they are read, and after them the first of the device's next round."""
        if number or not (self._share.whole and shares_features(self._setting)):
            yield slice(0, len(ids))
            return
        yield from self._ahead.walk(ids)
        following = self._moves.get((round_index + 1, slot))
        if following is not None:
            self._ahead.begin(following.host_ids)

    def _count_brought(self, number: int, round_index: int, slot: int) -> Mapping[int, int]:
        width = self.replicas.master.stack[number].in_features
        return self._share.count(self._moves[round_index, slot].host_ids, width)

    def _give_rows(self, rank: int, number: int, round_index: int, slot: int) -> Tensor:
        """Of the rows that a unit reads of the host those that are here."""
        source = self._rows[number]
        _, ids = self._share.split(self._moves[round_index, slot].host_ids)
        return read_rows(source, torch.from_numpy(ids), source.device)

    def _place_rows(
        self, part: Tensor, rank: int, number: int, round_index: int, slot: int
    ) -> None:
        """Those that are with another process."""
        move = self._moves[round_index, slot]
        which = self._share.pick(move.host_ids, rank)
        rows = part.view(len(which), -1)
        if move.direct:
            into = self._inputs[number, round_index, slot]
            into[_on(which, into)] = rows.to(into.device)
        else:
            self._buffers["rows"].load(replace(move, host_into=move.host_into[which]), rows)

    def _pull_rows(self, round_index: int, slot: int, place: int) -> None:
        move = self._moves[round_index, slot]
        self._buffers["rows"].pull(move, move.pulls[place])

    def _lend_rows(self, round_index: int, slot: int, place: int) -> Tensor:
        return self._buffers["rows"].lend(self._moves[round_index, slot].pulls[place])

    def _borrow_rows(self, part: Tensor, round_index: int, slot: int, place: int) -> None:
        move = self._moves[round_index, slot]
        self._buffers["rows"].borrow(move, move.pulls[place], part)

    # ------------------------------------------------------------------ backward

    def _clear_buffer(self, number: int, round_index: int, slot: int) -> None:
        self._open_buffers("gradients", number).clear(self._moves[round_index, slot])

    def _push_gradients(self, round_index: int, slot: int, place: int) -> None:
        move = self._moves[round_index, slot]
        self._buffers["gradients"].push(move, move.pushes[place])

    def _lend_gradients(self, round_index: int, slot: int, place: int) -> Tensor:
        move = self._moves[round_index, slot]
        return self._buffers["gradients"].lend_gradients(move, move.pushes[place])

    def _borrow_gradients(self, part: Tensor, round_index: int, slot: int, place: int) -> None:
        push = self._moves[round_index, slot].pushes[place]
        self._buffers["gradients"].borrow_gradients(push, part)

    def _accumulate(self, number: int, round_index: int, slot: int) -> None:
        move, into = self._moves[round_index, slot], self._gradients[number]
        which, ids = self._share.split(move.leaving_ids)
        if not move.direct:
            own = replace(move, leaving=move.leaving[which], leaving_ids=ids)
            self._buffers["gradients"].leave(own, into)
            return
        rows = to_host(self._returned.pop((number, round_index, slot)))
        if len(ids) < len(rows):
            rows = rows[_on(which, rows)]
        threads = torch.get_num_threads()
        scatter_add_rows(into.numpy(), ids, rows.numpy(), threads=threads)

    def _count_leaving(self, number: int, round_index: int, slot: int) -> Mapping[int, int]:
        width = self.replicas.master.stack[number].in_features
        return self._share.count(self._moves[round_index, slot].leaving_ids, width)

    def _give_gradients(self, rank: int, number: int, round_index: int, slot: int) -> Tensor:
        """Of the gradients that leave a device those of another process's rows."""
        move = self._moves[round_index, slot]
        which = self._share.pick(move.leaving_ids, rank)
        if move.direct:
            rows = self._returned[number, round_index, slot]
            return to_host(rows[_on(which, rows)])
        return self._buffers["gradients"].take_out(replace(move, leaving=move.leaving[which]))

    def _add_gradients(
        self, part: Tensor, rank: int, number: int, round_index: int, slot: int
    ) -> None:
        """Those of the rows that are here."""
        _, ids = self._share.split(self._moves[round_index, slot].leaving_ids)
        rows, threads = part.cpu().view(len(ids), -1), torch.get_num_threads()
        scatter_add_rows(self._gradients[number].numpy(), ids, rows.numpy(), threads=threads)


def _on(places: IntArray | slice, tensor: Tensor) -> Tensor | slice:
    """Positions where a tensor is."""
    return places if isinstance(places, slice) else torch.from_numpy(places).to(tensor.device)
