"""Executes a traffic plan: rows really travel the way the plan says, so a wrong plan trains wrong.

A slot's transition rows (T_ij) and the rows that its kernel reads (N_ij) stand in buffers whose
places are fixed before training (HongTu §6): what stays for the next round stays where it is, and
what comes goes to the places of what was discarded. Both sets share one merged buffer, or have one
each. The unit's block is rewritten so that the kernel reads the buffer itself.

Forward (HongTu Algorithm 2): rows come from the host, then from the peers' buffers. Backward
(Algorithm 3): a unit adds the gradients of its rows to its gradient buffer, which has the same
places; those of a peer's rows are pushed there once the row leaves the neighbour buffer, and those
of a transition row are added to the host's gradient once that row leaves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gnnbench.footprint import staged_rows
from gnnbench.kernels.buffers import pool
from gnnbench.kernels.dispatch import gather_rows, move_rows, open_rounds
from gnnbench.kernels.reference.movement import SlotPositions
from gnnbench.records import (
    Block,
    BufferRows,
    Fetch,
    IndexArray,
    IntArray,
    Round,
    RoundTraffic,
    Unit,
)

_NOTHING: IntArray = np.empty(0, dtype=np.int64)


# --------------------------------------------------------------------------- the plan


@dataclass(slots=True, eq=False)
class Exchange:
    """Rows between a neighbour buffer (``here``) and the transition buffer of ``slot`` (``there``),
    a peer or, where the buffers are not merged, the same: their positions in either, int32."""

    slot: int
    here: Tensor
    there: Tensor

    @property
    def rows(self) -> int:
        return len(self.here)


@dataclass(slots=True, eq=False)
class SlotMovement:
    """One unit's movement in one round, in precomputed positions; all tensors are int32.

    ``direct`` marks the plain case where the input set itself crosses, but for reused rows of which
    the device has a copy, and there is no buffer; the positions are then empty and ``block`` is the
    unit's own. Otherwise ``block`` reads the neighbour buffer, where the unit's input rows stand at
    ``input_places``.

    Forward: the rows ``host_ids`` cross to ``host_into``, then ``pulls`` are copied, and
    ``rows_reused`` rows stay where they are, of either kind. Backward: rows that came start from
    zero, ``pushes`` are added to the owners' buffers, and ``leaving`` go to the host's rows
    ``leaving_ids``.
    """

    slot: int
    direct: bool
    block: Block
    input_ids: Tensor
    input_places: Tensor
    buffer_rows: BufferRows
    rows_from_host: int
    rows_reused: int
    host_ids: Tensor
    host_into: Tensor
    pulls: tuple[Exchange, ...]
    pushes: tuple[Exchange, ...]
    leaving: Tensor
    leaving_ids: Tensor

    @property
    def rows_cleared(self) -> int:
        """How many gradients start from zero: those of rows that did not stay."""
        return len(self.host_into) + sum(pull.rows for pull in self.pulls)


class MovementPlanner:
    """Gives each round its positions, in the order in which the rounds run.

    Without ``shares_rows`` every input set crosses directly and no positions are needed.
    """

    def __init__(self, num_vertices: int, *, shares_rows: bool) -> None:
        self._positions = (
            open_rounds(num_vertices, threads=torch.get_num_threads()) if shares_rows else None
        )

    def plan(
        self, round_: Round, traffic: RoundTraffic, following: RoundTraffic | None = None
    ) -> tuple[SlotMovement, ...]:
        """The movement of every unit of a round; ``following`` is the traffic of the next one.

        Rows leave the gradient buffers after the round unless they stay for the ``following`` one.
        Raises ``ValueError`` for a plan that leaves a needed row out, brings one twice, keeps one
        that was not there, or takes one from a transition set that does not hold it.
        """
        pairs = list(zip(round_.units, traffic.fetches, strict=True))
        if self._positions is None:
            return tuple(_direct_movement(unit, fetch) for unit, fetch in pairs)
        rows = traffic.buffer_rows()
        found = self._positions.follow(
            round_.units,
            traffic.fetches,
            () if following is None else following.fetches,
            rows,
            traffic.merged,
        )
        return tuple(
            _buffered_movement(unit, fetch, rows[unit.slot], positions)
            for (unit, fetch), positions in zip(pairs, found, strict=True)
        )


def plan_movement(
    rounds: Sequence[Round],
    traffic: Sequence[RoundTraffic],
    num_vertices: int,
    *,
    shares_rows: bool,
) -> list[tuple[SlotMovement, ...]]:
    """The movement of all rounds of a pass; see :class:`MovementPlanner`.

    Summed over the rounds, as many rows leave for the host as came from it, and as many are pushed
    to peers as were copied from them.
    """
    planner = MovementPlanner(num_vertices, shares_rows=shares_rows)
    following = [*traffic[1:], None]
    return [planner.plan(*each) for each in zip(rounds, traffic, following, strict=True)]


def largest_buffers(traffic: Iterable[RoundTraffic]) -> dict[int, BufferRows]:
    """By slot, buffers for all rounds: as large as the largest round needs."""
    largest: dict[int, BufferRows] = {}
    for plan in traffic:
        for slot, rows in plan.buffer_rows().items():
            largest[slot] = rows.at_least(largest.get(slot, rows))
    return largest


def _buffered_movement(
    unit: Unit, fetch: Fetch, rows: BufferRows, found: SlotPositions
) -> SlotMovement:
    pieces = torch.from_numpy(found.positions).split_with_sizes(found.lengths)
    host_ids, host_into, input_ids, input_places, leaving, leaving_ids, *pairs = pieces
    copied = 2 * len(found.copied_from)
    pulls = tuple(map(Exchange, found.copied_from, pairs[:copied:2], pairs[1:copied:2]))
    pushes = tuple(map(Exchange, found.pushed_to, pairs[copied::2], pairs[copied + 1 :: 2]))
    return SlotMovement(
        slot=unit.slot,
        direct=False,
        block=_place_block(unit.blocks[0], input_places.numpy(), found),
        input_ids=input_ids,
        input_places=input_places,
        buffer_rows=rows,
        rows_from_host=len(fetch.from_host),
        rows_reused=len(fetch.reused) + sum(len(peer.kept) for peer in fetch.from_peers),
        host_ids=host_ids,
        host_into=host_into,
        pulls=pulls,
        pushes=pushes,
        leaving=leaving,
        leaving_ids=leaving_ids,
    )


def _place_block(block: Block, places: IndexArray, found: SlotPositions) -> Block:
    """The block with the rows of a buffer as its sources, each where it stands.

    ``places`` are those of the block's own sources. Rows that it does not read are sources too.
    """
    own: IndexArray | None = places[: block.num_dst]
    if block.own is not None:
        own = places[block.own]
    elif found.in_front:
        own = None
    return Block(found.vertices, block.num_dst, block.indptr, found.indices, own)


def _direct_movement(unit: Unit, fetch: Fetch) -> SlotMovement:
    moved = len(fetch.from_host) + len(fetch.reused)
    if moved != unit.blocks[0].num_src:
        raise ValueError(
            f"slot {fetch.slot} needs {unit.blocks[0].num_src:,} rows and its plan accounts for "
            f"{moved:,}; a communication part that keeps or shares rows must set shares_rows"
        )
    nothing = _tensor(_NOTHING)
    inputs = crossing = _tensor(unit.input_ids)
    if len(fetch.reused):
        crossing = _tensor(unit.input_ids[~np.isin(unit.input_ids, fetch.reused)])
    return SlotMovement(
        slot=fetch.slot,
        direct=True,
        block=unit.blocks[0],
        input_ids=inputs,
        input_places=nothing,
        buffer_rows=BufferRows(0),
        rows_from_host=len(fetch.from_host),
        rows_reused=len(fetch.reused),
        host_ids=crossing,
        host_into=nothing,
        pulls=(),
        pushes=(),
        leaving=nothing,
        leaving_ids=inputs,
    )


def _tensor(ids: IntArray | IndexArray) -> Tensor:
    """A copy of half the size: movements are there for the whole run."""
    return torch.from_numpy(ids.astype(np.int32, copy=False))


# --------------------------------------------------------------------------- the buffers


class Buffers:
    """The buffers of all slots, for rows of one width or for the gradients of such rows.

    They are made once for a pass over the rounds of a layer, and written in place.
    """

    def __init__(self) -> None:
        self._transition: dict[int, Tensor] = {}
        self._neighbour: dict[int, Tensor] = {}
        #: By slot, how many rows cross at a time.
        self._staged: dict[int, int] = {}

    def make_room(
        self, slot: int, rows: BufferRows, width: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        """Give ``slot`` buffers of at least ``rows``; what stands in one already stays there."""

        def grow(buffers: dict[int, Tensor], count: int) -> Tensor:
            old = buffers.get(slot)
            if old is not None and len(old) >= count:
                return old
            buffer = _empty((count, width), dtype, device)
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
        """Bytes of the slot's buffers, one or two."""
        buffers = {id(b): b for b in (self._neighbour[slot], self._transition[slot])}
        return sum(buffer.numel() * buffer.element_size() for buffer in buffers.values())

    def bring(self, move: SlotMovement, source: Tensor) -> None:
        """Copy the rows ``host_ids`` of ``source``, on the host, to their places."""
        buffer = self._transition[move.slot]
        _move(source, move.host_ids, buffer, move.host_into, self._staged[move.slot])

    def load(self, move: SlotMovement, rows: Tensor) -> None:
        """Put the rows that crossed from the host, ``(rows_from_host, f)``, in their places."""
        buffer = self._transition[move.slot]
        buffer.index_copy_(0, _index(move.host_into, buffer), rows)

    def pull(self, move: SlotMovement, exchange: Exchange) -> None:
        """Copy rows from the transition buffer that has them."""
        source, buffer = self._transition[exchange.slot], self._neighbour[move.slot]
        staged = min(self._staged[exchange.slot], self._staged[move.slot])
        _move(source, exchange.there, buffer, exchange.here, staged)

    def rows(self, move: SlotMovement) -> Tensor:
        """The rows that ``move.block`` reads, or their gradients, to be added to, ``(S, f)``: the
        buffer itself."""
        return self._neighbour[move.slot][: move.block.num_src]

    def assemble(self, move: SlotMovement) -> Tensor:
        """A copy of the unit's input rows, in the order of ``move.input_ids``."""
        buffer = self._neighbour[move.slot]
        return read_rows(buffer, move.input_places, buffer.device)

    def clear(self, move: SlotMovement) -> None:
        """Zero for the gradients of all rows that did not stay from the round before."""
        for buffer, places in (
            (self._transition[move.slot], move.host_into),
            *((self._neighbour[move.slot], pull.here) for pull in move.pulls),
        ):
            buffer.index_fill_(0, _index(places, buffer), 0.0)

    def push(self, move: SlotMovement, exchange: Exchange) -> None:
        """Add gradients of rows that leave to those of the transition buffer they came from."""
        source, target = self._neighbour[move.slot], self._transition[exchange.slot]
        staged = min(self._staged[exchange.slot], self._staged[move.slot])
        _move(source, exchange.here, target, exchange.there, staged, add=True)

    def leave(self, move: SlotMovement, into: Tensor) -> None:
        """Add the gradients of rows that leave to rows ``leaving_ids`` of ``into``, on the host."""
        source = self._transition[move.slot]
        _move(source, move.leaving, into, move.leaving_ids, self._staged[move.slot], add=True)


def _move(
    source: Tensor, ids: Tensor, target: Tensor, places: Tensor, staged: int, *, add: bool = False
) -> None:
    """Copy, or add, rows ``ids`` of ``source`` to rows ``places`` of ``target``, no place twice.

    In the host's memory every row goes straight to its place.
    """
    if source.device.type == target.device.type == "cpu":
        move_rows(
            source.numpy(),
            ids.numpy(),
            target.numpy(),
            places.numpy(),
            add=add,
            threads=torch.get_num_threads(),
        )
    else:
        move_staged(source, ids, target, places, staged, add=add)


def move_staged(
    source: Tensor, ids: Tensor, target: Tensor, places: Tensor, staged: int, *, add: bool
) -> None:
    """The same between two devices: ``staged`` rows at most have left and not arrived."""
    pieces = zip(torch.split(ids, staged), torch.split(places, staged), strict=True)
    for some, into in pieces:
        rows = read_rows(source, some, target.device)
        if add:
            target.index_add_(0, _index(into, target), rows)
        else:
            target.index_copy_(0, _index(into, target), rows)


def _index(places: Tensor, buffer: Tensor) -> Tensor:
    """``places`` on the device of ``buffer``, int64, as torch wants them where it writes."""
    return places.to(buffer.device, torch.int64)


def read_rows(source: Tensor, ids: Tensor, device: torch.device) -> Tensor:
    """``source[ids]`` on ``device``, in memory used before where it is the host's.

    From the host to a CUDA device the rows go through pinned memory, and nothing waits for them:
    torch leaves that memory alone until the copy is done.
    """
    if source.device.type != "cpu":
        rows = source.index_select(0, ids.to(source.device))
        return to_host(rows) if device.type == "cpu" else rows.to(device)
    rows = _empty((len(ids), source.shape[1]), source.dtype, torch.device("cpu"), device)
    gather_rows(source.numpy(), ids.numpy(), out=rows.numpy(), threads=torch.get_num_threads())
    return rows.to(device, non_blocking=True)


def to_host(rows: Tensor) -> Tensor:
    """The same rows in the host's memory, ``(n, f)``; pinned where they come from a CUDA device,
    which crosses a link twice as fast."""
    if rows.device.type == "cpu":
        return rows
    out = _empty((len(rows), rows.shape[1]), rows.dtype, torch.device("cpu"), rows.device)
    return out.copy_(rows)


def _empty(
    shape: tuple[int, int],
    dtype: torch.dtype,
    device: torch.device,
    target: torch.device | None = None,
) -> Tensor:
    """Memory that holds anything, on ``device``; pinned if the ``target`` of copies, or where they
    come from, is a CUDA one."""
    if target is not None and target.type == "cuda":
        return torch.empty(shape, dtype=dtype, pin_memory=True)
    if device.type != "cpu":
        return torch.empty(shape, dtype=dtype, device=device)
    return torch.from_numpy(pool.take(shape, np.float64 if dtype == torch.float64 else np.float32))
