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
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from gnnbench.kernels.buffers import pool
from gnnbench.kernels.dispatch import (
    contains,
    count_marks,
    gather_rows,
    list_marks,
    mark_sets,
    rename,
    settle,
)
from gnnbench.kernels.reference.sets import Bitmaps
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


# --------------------------------------------------------------------------- places


class Places:
    """Which vertex stands where in a buffer.

    Whoever comes gets the lowest free place, in order. So no place is behind the size of the
    largest set so far, and whenever a place below ``extent`` is free, someone stood there before:
    every row of a buffer up to there has been written.
    """

    def __init__(self, num_vertices: int) -> None:
        self._place = np.full(num_vertices, -1, dtype=np.int32)
        self._at = np.empty(0, dtype=np.int64)
        self._present: Bitmaps = mark_sets([_NOTHING], num_vertices)[0]
        self._extent = 0

    @property
    def extent(self) -> int:
        """One more than the last place where someone stands."""
        return self._extent

    @property
    def vertices(self) -> IntArray:
        """Who stands at each place up to ``extent``; vertex 0 at a free one."""
        return np.maximum(self._at[: self._extent], 0)

    def follow(self, present: Bitmaps, count: int) -> None:
        """The next round's ``count`` vertices, a bitmap: who stays keeps its place."""
        if count > len(self._at):
            more = np.full(count - len(self._at), -1, dtype=np.int64)
            self._at = np.concatenate((self._at, more))
        self._extent = settle(self._place, self._at, self._present, present)
        self._present = present

    def find(self, ids: IntArray) -> IndexArray:
        """Where each of ``ids`` stands, in any order; -1 where one does not."""
        return self._place.take(ids)


def _place_block(block: Block, positions: IndexArray, places: Places) -> Block:
    """The block with the rows of a buffer as its sources, each where it stands.

    ``positions`` are those of the block's own sources. Rows that it does not read are sources too.
    """
    own = positions[: block.num_dst] if block.own is None else positions[block.own]
    first = not len(own) or (own[-1] == len(own) - 1 and (np.diff(own) == 1).all())
    return replace(
        block,
        src_ids=places.vertices,
        indices=rename(block.indices, positions),
        own=None if first else own,
    )


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

    ``direct`` marks the plain case where the input set itself crosses and there is no buffer; the
    positions are then empty and ``block`` is the unit's own. Otherwise ``block`` reads the
    neighbour buffer, where the unit's input rows stand at ``input_places``.

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


@dataclass(frozen=True, slots=True, eq=False)
class _Source:
    """Rows that a unit reads and that stand in the transition buffer of ``slot``: those that are
    copied from there now, and those that stay in the neighbour buffer from the round before."""

    slot: int
    comes: Bitmaps
    stays: Bitmaps


@dataclass(frozen=True, slots=True, eq=False)
class _Marked:
    """A fetch, with its sets as bitmaps ``(words,)``.

    ``own`` are the needed rows of the own transition set, ``read`` those of the ``peers``', of
    which ``kept`` stay.
    """

    fetch: Fetch
    needed: Bitmaps
    reused: Bitmaps
    transition: Bitmaps
    own: Bitmaps
    read: Bitmaps
    kept: Bitmaps
    peers: tuple[_Source, ...]

    def own_source(self, before: _Marked | None) -> _Source:
        """The own transition buffer, where that is a separate one: a row stays if it stays there
        and was read in the round before."""
        stays = self.own & self.reused & before.needed if before else np.zeros_like(self.own)
        return _Source(self.fetch.slot, self.own & ~stays, stays)


def _mark(traffic: RoundTraffic, num_vertices: int) -> dict[int, _Marked]:
    """The fetches of a round by slot."""
    arrays: list[IntArray] = []
    for fetch in traffic.fetches:
        arrays += (fetch.needed, fetch.from_host, fetch.reused)
        arrays += (ids for peer in fetch.from_peers for ids in (peer.ids, peer.kept))
    rows = iter(mark_sets(arrays, num_vertices))
    marked = {}
    for fetch in traffic.fetches:
        needed, transition, reused = next(rows), next(rows), next(rows)
        transition |= reused
        peers = tuple(_Source(peer.slot, next(rows), next(rows)) for peer in fetch.from_peers)
        kept, read = np.zeros_like(needed), np.zeros_like(needed)
        for peer in peers:
            kept |= peer.stays
            read |= peer.comes
        read |= kept
        marked[fetch.slot] = _Marked(
            fetch, needed, reused, transition, needed & transition, read, kept, peers
        )
    return marked


class MovementPlanner:
    """Gives each round its positions, in the order in which the rounds run.

    Without ``shares_rows`` every input set crosses directly and no positions are needed.
    """

    def __init__(self, num_vertices: int, *, shares_rows: bool) -> None:
        self._num_vertices = num_vertices
        self._shares_rows = shares_rows
        self._before: dict[int, _Marked] = {}
        self._following: tuple[RoundTraffic, dict[int, _Marked]] | None = None
        #: By slot, the places in the transition and in the neighbour buffer; one where merged.
        self._places: dict[int, tuple[Places, Places]] = {}

    def plan(
        self, round_: Round, traffic: RoundTraffic, following: RoundTraffic | None = None
    ) -> tuple[SlotMovement, ...]:
        """The movement of every unit of a round; ``following`` is the traffic of the next one.

        Rows leave the gradient buffers after the round unless they stay for the ``following`` one.
        Raises ``ValueError`` for a plan that leaves a needed row out, brings one twice, keeps one
        that was not there, or takes one from a transition set that does not hold it.
        """
        pairs = list(zip(round_.units, traffic.fetches, strict=True))
        if not self._shares_rows:
            return tuple(_direct_movement(unit, fetch) for unit, fetch in pairs)
        if self._following is not None and self._following[0] is traffic:
            now = self._following[1]
        else:
            now = _mark(traffic, self._num_vertices)
        after = _mark(following, self._num_vertices) if following is not None else {}
        self._following = None if following is None else (following, after)
        _check_coverage(round_, now)
        _check_rows_are_there(now, self._before)
        rows = traffic.buffer_rows()
        self._places = {slot: self._follow(mine, rows[slot]) for slot, mine in now.items()}
        moves = tuple(
            self._move(unit, now, after.get(unit.slot), rows[unit.slot]) for unit in round_.units
        )
        self._before = now
        return moves

    def _follow(self, mine: _Marked, rows: BufferRows) -> tuple[Places, Places]:
        """A slot's places in this round; a slot that paused has lost what it held."""
        merged = rows.transition is None
        places = self._places.get(mine.fetch.slot)
        if places is None:
            first = Places(self._num_vertices)
            places = (first, first if merged else Places(self._num_vertices))
        transition, neighbour = places
        if rows.transition is None:
            neighbour.follow(mine.transition | mine.needed, rows.neighbour)
        else:
            transition.follow(mine.transition, rows.transition)
            neighbour.follow(mine.needed, rows.neighbour)
        return places

    def _move(
        self, unit: Unit, now: dict[int, _Marked], after: _Marked | None, rows: BufferRows
    ) -> SlotMovement:
        mine = now[unit.slot]
        transition, neighbour = self._places[unit.slot]
        sources, comes = mine.peers, [peer.ids for peer in mine.fetch.from_peers]
        stays_after = reused_after = np.zeros_like(mine.needed)
        if after is not None:
            stays_after, reused_after = after.kept, after.reused
        if transition is not neighbour:
            own = mine.own_source(self._before.get(unit.slot))
            sources, comes = (own, *sources), [*list_marks(own.comes[None]), *comes]
            if after is not None:
                stays_after = stays_after | after.own_source(mine).stays
        goes = ~stays_after
        leaving, *pushed = list_marks(
            np.stack(
                [
                    mine.transition & ~reused_after,
                    *((source.comes | source.stays) & goes for source in sources),
                ]
            )
        )

        def exchanges(listed: list[IntArray]) -> tuple[Exchange, ...]:
            return tuple(
                Exchange(
                    source.slot,
                    _tensor(neighbour.find(ids)),
                    _tensor(self._places[source.slot][0].find(ids)),
                )
                for source, ids in zip(sources, listed, strict=True)
                if len(ids)
            )

        input_places = neighbour.find(unit.input_ids)
        if input_places.min(initial=0) < 0:
            raise _incomplete(unit)
        return SlotMovement(
            slot=unit.slot,
            direct=False,
            block=_place_block(unit.blocks[0], input_places, neighbour),
            input_ids=_tensor(unit.input_ids),
            input_places=_tensor(input_places),
            buffer_rows=rows,
            rows_from_host=len(mine.fetch.from_host),
            rows_reused=len(mine.fetch.reused) + sum(len(p.kept) for p in mine.fetch.from_peers),
            host_ids=_tensor(mine.fetch.from_host),
            host_into=_tensor(transition.find(mine.fetch.from_host)),
            pulls=exchanges(comes),
            pushes=exchanges(pushed),
            leaving=_tensor(transition.find(leaving)),
            leaving_ids=_tensor(leaving),
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


def _check_coverage(round_: Round, now: dict[int, _Marked]) -> None:
    """As many rows as a unit reads are needed and brought, and all that are needed are brought."""
    marked = [now[unit.slot] for unit in round_.units]
    if not marked:
        return
    needed, own, transition = (
        count_marks(np.stack(rows)).tolist()
        for rows in (
            [each.needed for each in marked],
            [each.own for each in marked],
            [each.transition for each in marked],
        )
    )
    for i, (unit, mine) in enumerate(zip(round_.units, marked, strict=True)):
        fetch = mine.fetch
        brought = own[i] + sum(len(peer.ids) + len(peer.kept) for peer in fetch.from_peers)
        if (
            not len(unit.input_ids) == needed[i] == brought
            or not contains(mine.own | mine.read, mine.needed)
            or len(fetch.from_host) + len(fetch.reused) != transition[i]
        ):
            raise _incomplete(unit)


def _incomplete(unit: Unit) -> ValueError:
    return ValueError(
        f"the plan does not bring slot {unit.slot} each of its {len(unit.input_ids):,} rows "
        f"exactly once; the communication part must have every needed row in the own transition "
        f"set or in one peer fetch, copied or kept"
    )


def _check_rows_are_there(now: dict[int, _Marked], before: dict[int, _Marked]) -> None:
    """What is kept was there in the round before, and what is read of a peer is there now."""
    for slot, mine in now.items():
        nothing = np.zeros_like(mine.needed)
        last = before.get(slot)
        pairs = [
            (mine.reused, last.transition if last else nothing),
            (mine.kept, last.read if last else nothing),
        ]
        for peer in mine.peers:
            there = now[peer.slot].transition if peer.slot in now else nothing
            pairs += ((peer.comes, there), (peer.stays, there))
        if not all(contains(there, rows) for rows, there in pairs):
            raise ValueError(
                "the plan takes a row from a transition set that does not hold it, or keeps "
                "one that was not there; the communication part must reuse, keep and fetch "
                "only rows that are"
            )


def _direct_movement(unit: Unit, fetch: Fetch) -> SlotMovement:
    moved = len(fetch.from_host) + len(fetch.reused)
    if moved != unit.blocks[0].num_src:
        raise ValueError(
            f"slot {fetch.slot} needs {unit.blocks[0].num_src:,} rows and its plan accounts for "
            f"{moved:,}; a communication part that keeps or shares rows must set shares_rows"
        )
    nothing = _tensor(_NOTHING)
    inputs = _tensor(unit.input_ids)
    return SlotMovement(
        slot=fetch.slot,
        direct=True,
        block=unit.blocks[0],
        input_ids=inputs,
        input_places=nothing,
        buffer_rows=BufferRows(0),
        rows_from_host=len(fetch.from_host),
        rows_reused=len(fetch.reused),
        host_ids=inputs,
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

    def size_bytes(self, slot: int) -> int:
        """Bytes of the slot's buffers, one or two."""
        buffers = {id(b): b for b in (self._neighbour[slot], self._transition[slot])}
        return sum(buffer.numel() * buffer.element_size() for buffer in buffers.values())

    def load(self, move: SlotMovement, rows: Tensor) -> None:
        """Put the rows that crossed from the host, ``(rows_from_host, f)``, in their places."""
        buffer = self._transition[move.slot]
        buffer.index_copy_(0, _index(move.host_into, buffer), rows)

    def pull(self, move: SlotMovement, exchange: Exchange) -> None:
        """Copy rows from the transition buffer that has them."""
        buffer = self._neighbour[move.slot]
        rows = read_rows(self._transition[exchange.slot], exchange.there, buffer.device)
        buffer.index_copy_(0, _index(exchange.here, buffer), rows)

    def rows(self, move: SlotMovement) -> Tensor:
        """The rows that ``move.block`` reads, ``(S, f)``: the buffer itself."""
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

    def add(self, move: SlotMovement, gradient: Tensor) -> None:
        """Add the gradients of the rows that ``move.block`` reads, ``(S, f)``."""
        self.rows(move).add_(gradient)

    def push(self, move: SlotMovement, exchange: Exchange) -> None:
        """Add gradients of rows that leave to those of the transition buffer they came from."""
        target = self._transition[exchange.slot]
        rows = read_rows(self._neighbour[move.slot], exchange.here, target.device)
        target.index_add_(0, exchange.there.to(target.device), rows)

    def leave(self, move: SlotMovement) -> Tensor:
        """The gradients that go to the host now, in the order of ``leaving_ids``."""
        buffer = self._transition[move.slot]
        return read_rows(buffer, move.leaving, buffer.device)


def _index(places: Tensor, buffer: Tensor) -> Tensor:
    """``places`` on the device of ``buffer``, int64, as torch wants them where it writes."""
    return places.to(buffer.device, torch.int64)


def read_rows(source: Tensor, ids: Tensor, device: torch.device) -> Tensor:
    """``source[ids]`` on ``device``, in memory used before where it is the host's.

    From the host to a CUDA device the rows go through pinned memory, and nothing waits for them:
    torch leaves that memory alone until the copy is done.
    """
    if source.device.type != "cpu":
        return source.index_select(0, ids.to(source.device)).to(device)
    rows = _empty((len(ids), source.shape[1]), source.dtype, torch.device("cpu"), device)
    gather_rows(source.numpy(), ids.numpy(), out=rows.numpy(), threads=torch.get_num_threads())
    return rows.to(device, non_blocking=True)


def _empty(
    shape: tuple[int, int],
    dtype: torch.dtype,
    device: torch.device,
    target: torch.device | None = None,
) -> Tensor:
    """Memory that holds anything, on ``device``; pinned if it is to be copied to a CUDA one."""
    if target is not None and target.type == "cuda":
        return torch.empty(shape, dtype=dtype, pin_memory=True)
    if device.type != "cpu":
        return torch.empty(shape, dtype=dtype, device=device)
    return torch.from_numpy(pool.take(shape, np.float64 if dtype == torch.float64 else np.float32))
