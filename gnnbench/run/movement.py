"""The execution of ``lowering.movement``'s plans: rows really move between host and buffers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from gnnbench.kernels.buffers import pool
from gnnbench.kernels.dispatch import gather_rows, move_rows
from gnnbench.lowering.footprint import staged_rows
from gnnbench.lowering.movement import Exchange, SlotMovement
from gnnbench.records import BufferRows, IndexArray
from gnnbench.run.zero_copy import see_from


class Buffers:
    """The buffers of all devices, for rows of one width or for the gradients of such rows.

    They are made once for a pass over the rounds of a layer, and written in place.
    """

    def __init__(self) -> None:
        self._transition: dict[int, Tensor] = {}
        self._neighbour: dict[int, Tensor] = {}
        #: By device index, the number of rows that cross at a time.
        self._staged: dict[int, int] = {}

    def make_room(
        self, slot: int, rows: BufferRows, width: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        """Give ``slot`` buffers of at least ``rows`` rows; their contents stay."""

        def grow(buffers: dict[int, Tensor], count: int) -> Tensor:
            old = buffers.get(slot)
            if old is not None and len(old) >= count:
                return old
            buffer = empty((count, width), dtype, device)
            if old is not None:
                buffer[: len(old)] = old
            return buffer

        self._neighbour[slot] = grow(self._neighbour, rows.neighbour)
        self._transition[slot] = (
            self._neighbour[slot]
            if rows.transition is None
            else grow(self._transition, rows.transition)
        )
        largest = max(rows.neighbour, rows.transition or 0)
        self._staged[slot] = staged_rows(largest, width * dtype.itemsize)

    def size_bytes(self, slot: int) -> int:
        """Return the bytes of the device's buffers, one or two."""
        buffers = {id(b): b for b in (self._neighbour[slot], self._transition[slot])}
        return sum(buffer.numel() * buffer.element_size() for buffer in buffers.values())

    def bring(self, move: SlotMovement, source: Tensor) -> None:
        """Copy the rows ``host_ids`` of ``source``, on the host, to their positions."""
        buffer = self._transition[move.slot]
        _move(source, move.host_ids, buffer, move.host_into, self._staged[move.slot], add=False)

    def load(self, move: SlotMovement, rows: Tensor) -> None:
        """Write rows that crossed from the host, ``(n, f)``, to the positions ``host_into``."""
        buffer = self._transition[move.slot]
        places = _index(torch.from_numpy(move.host_into), buffer)
        buffer.index_copy_(0, places, rows.to(buffer.device))

    def pull(self, move: SlotMovement, exchange: Exchange) -> None:
        """Copy rows from the transition buffer that has them."""
        source, buffer = self._transition[exchange.slot], self._neighbour[move.slot]
        staged = min(self._staged[exchange.slot], self._staged[move.slot])
        _move(source, exchange.there, buffer, exchange.here, staged, add=False)

    def lend(self, exchange: Exchange) -> Tensor:
        """Return a copy of rows of a transition buffer, for another process."""
        source = self._transition[exchange.slot]
        return read_rows(source, torch.from_numpy(exchange.there), source.device)

    def borrow(self, move: SlotMovement, exchange: Exchange, part: Tensor) -> None:
        """Write rows of another process to their positions, ``(n f,)``."""
        buffer = self._neighbour[move.slot]
        rows = part.view(exchange.rows, -1).to(buffer.device)
        buffer.index_copy_(0, _index(torch.from_numpy(exchange.here), buffer), rows)

    def rows(self, move: SlotMovement) -> Tensor:
        """Return the buffer of the rows ``(S, f)`` that ``move.block`` reads, or their gradients.

        It is not a copy: gradients are added to the buffer itself.
        """
        return self._neighbour[move.slot][: move.block.num_src]

    def assemble(self, move: SlotMovement) -> Tensor:
        """Return a copy of the unit's input rows, in the order of ``move.input_ids``."""
        buffer = self._neighbour[move.slot]
        return read_rows(buffer, torch.from_numpy(move.input_places), buffer.device)

    def clear(self, move: SlotMovement) -> None:
        """Set to zero the gradients of all rows that did not stay from the last round."""
        for buffer, places in (
            (self._transition[move.slot], move.host_into),
            *((self._neighbour[move.slot], pull.here) for pull in move.pulls),
        ):
            buffer.index_fill_(0, _index(torch.from_numpy(places), buffer), 0.0)

    def push(self, move: SlotMovement, exchange: Exchange) -> None:
        """Add gradients of rows that leave to the transition buffer from which the rows came."""
        source, target = self._neighbour[move.slot], self._transition[exchange.slot]
        staged = min(self._staged[exchange.slot], self._staged[move.slot])
        _move(source, exchange.here, target, exchange.there, staged, add=True)

    def lend_gradients(self, move: SlotMovement, exchange: Exchange) -> Tensor:
        """Return a copy of the gradients of rows that leave, for another process."""
        source = self._neighbour[move.slot]
        return read_rows(source, torch.from_numpy(exchange.here), source.device)

    def borrow_gradients(self, exchange: Exchange, part: Tensor) -> None:
        """Add gradients of another process to the transition buffer's, ``(n f,)``."""
        target = self._transition[exchange.slot]
        rows = part.view(exchange.rows, -1).to(target.device)
        target.index_add_(0, _index(torch.from_numpy(exchange.there), target), rows)

    def leave(self, move: SlotMovement, into: Tensor) -> None:
        """Add the gradients of rows that leave to rows ``leaving_ids`` of ``into``, on the host."""
        source = self._transition[move.slot]
        _move(source, move.leaving, into, move.leaving_ids, self._staged[move.slot], add=True)

    def take_out(self, move: SlotMovement) -> Tensor:
        """Return a copy of the gradients of rows that leave, in the host's memory."""
        source = self._transition[move.slot]
        return read_rows(source, torch.from_numpy(move.leaving), torch.device("cpu"))


def _move(
    source: Tensor, ids: IndexArray, target: Tensor, places: IndexArray, staged: int, add: bool
) -> None:
    """Copy, or add, rows ``ids`` of ``source`` to rows ``places`` of ``target``, no place twice.

    In the host's memory every row goes straight to its place.
    """
    if source.device.type == target.device.type == "cpu":
        threads = torch.get_num_threads()
        move_rows(source.numpy(), ids, target.numpy(), places, add=add, threads=threads)
    else:
        pair = torch.from_numpy(ids), torch.from_numpy(places)
        move_staged(source, pair[0], target, pair[1], staged, add=add)


def move_staged(
    source: Tensor, ids: Tensor, target: Tensor, places: Tensor, staged: int, *, add: bool
) -> None:
    """Copy, or add, rows between two devices; at most ``staged`` rows are in flight."""
    seen = see_from(target.device, source)
    source = source if seen is None else seen
    if source.device.type != "cpu":
        ids = ids.to(source.device)
    pieces = zip(torch.split(ids, staged), torch.split(_index(places, target), staged), strict=True)
    for some, into in pieces:
        rows = read_rows(source, some, target.device)
        if add:
            target.index_add_(0, into, rows)
        else:
            target.index_copy_(0, into, rows)
    if seen is not None:
        torch.cuda.current_stream(seen.device).synchronize()


def _index(places: Tensor, buffer: Tensor) -> Tensor:
    """Return ``places`` on the device of ``buffer``, int64, as torch requires for writing."""
    return places.to(buffer.device, torch.int64)


def read_rows(source: Tensor, ids: Tensor, device: torch.device) -> Tensor:
    """Return ``source[ids]`` on ``device``, in reused memory on the host.

    A CUDA device picks the rows of pinned memory itself. Other rows go through pinned memory, and
    nothing waits for them: torch does not reuse that memory until the copy is done.
    """
    if source.device.type != "cpu":
        rows = source.index_select(0, ids.to(source.device))
        return to_host(rows) if device.type == "cpu" else rows.to(device)
    if (seen := see_from(device, source)) is not None:
        rows = seen.index_select(0, ids.to(device))
        torch.cuda.current_stream(device).synchronize()
        return rows
    rows = empty((len(ids), source.shape[1]), source.dtype, torch.device("cpu"), device)
    gather_rows(source.numpy(), ids.numpy(), out=rows.numpy(), threads=torch.get_num_threads())
    return rows.to(device, non_blocking=True)


def put_rows(target: Tensor, ids: Tensor, rows: Tensor) -> None:
    """Set ``target[ids] = rows`` in the host's memory, no row twice.

    A CUDA device writes rows of pinned memory itself.
    """
    if (seen := see_from(rows.device, target)) is not None:
        seen.index_copy_(0, _index(ids, seen), rows)
        torch.cuda.current_stream(rows.device).synchronize()
    else:
        target[ids] = to_host(rows)


def to_host(rows: Tensor) -> Tensor:
    """Return the rows in the host's memory, ``(n, f)``.

    The memory is pinned if they come from a CUDA device, which doubles the speed of the copy.
    """
    if rows.device.type == "cpu":
        return rows
    out = empty((len(rows), rows.shape[1]), rows.dtype, torch.device("cpu"), rows.device)
    return out.copy_(rows)


def empty(
    shape: Sequence[int],
    dtype: torch.dtype,
    device: torch.device,
    target: torch.device | None = None,
) -> Tensor:
    """Return uninitialised memory on ``device``.

    It is pinned if the ``target`` (or source) of copies is a CUDA device.
    """
    if target is not None and target.type == "cuda":
        return torch.empty(shape, dtype=dtype, pin_memory=True)
    if device.type != "cpu":
        return torch.empty(shape, dtype=dtype, device=device)
    return torch.from_numpy(pool.take(shape, np.float64 if dtype == torch.float64 else np.float32))
