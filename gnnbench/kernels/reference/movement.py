"""Places of rows in buffers from round to round, in NumPy: HongTu's positions (section 6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gnnbench.records import BufferRows, Fetch, IndexArray, IntArray, Unit

_NOTHING: IntArray = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class SlotPositions:
    """The rows that a slot moves in a round, int32, and the block that reads its buffer.

    ``positions`` concatenates several lists of the given ``lengths``. The first two are rows that
    cross from the host and their places. Then come the unit's input rows and their places, and the
    places of rows that leave for the host with these rows. Two lists follow for each slot of
    ``copied_from``: places here and in that slot's transition buffer. Two more follow for each slot
    of ``pushed_to``. ``vertices`` int64 has the vertex at each place of the buffer that is read, 0
    at a free place. ``indices`` int32 are the block's edges as places. ``in_front`` says whether
    the block's first ``num_dst`` sources stand at the first places, in their order.
    """

    positions: IndexArray
    lengths: list[int]
    copied_from: list[int]
    pushed_to: list[int]
    vertices: IntArray
    indices: IndexArray
    in_front: bool


# --------------------------------------------------------------------------- what is refused


def incomplete(unit: Unit) -> ValueError:
    """Make the error for a plan that does not bring a unit each of its rows exactly once."""
    return ValueError(
        f"the plan does not bring slot {unit.slot} each of its {len(unit.input_ids):,} rows "
        f"exactly once. The communication part must have each in the own transition set or in "
        f"one peer fetch, copied or kept"
    )


def absent() -> ValueError:
    """Make the error for a plan that reads a row where none is."""
    return ValueError(
        "the plan takes or keeps a row that its transition set does not hold. The communication "
        "part must reuse, keep and fetch only rows that are there"
    )


def outside(num_vertices: int) -> ValueError:
    """Make the error for a plan with a row outside the graph."""
    return ValueError(
        f"the plan names a row outside the {num_vertices:,} of the graph; the communication part "
        f"must move vertices of the graph"
    )


def nameless(unit: Unit) -> ValueError:
    """Make the error for an edge without a source among the unit's input rows."""
    return ValueError(
        f"an edge of slot {unit.slot}'s block comes from none of its {len(unit.input_ids):,} "
        f"sources; the sampler must number them from 0"
    )


# --------------------------------------------------------------------------- places


class Places:
    """The place of each vertex in a buffer.

    A new vertex gets the lowest free place, in order. So no place lies beyond the size of the
    largest set so far. A free place below the last taken one was taken before, so every row of a
    buffer up to there has been written.
    """

    def __init__(self, num_vertices: int) -> None:
        self._place = np.full(num_vertices, -1, dtype=np.int32)
        self._at = np.empty(0, dtype=np.int64)

    @property
    def vertices(self) -> IntArray:
        """The vertex at each place up to the last one taken; vertex 0 at a free place."""
        extent = int(np.flatnonzero(self._at >= 0).max(initial=-1)) + 1
        return np.maximum(self._at[:extent], 0)

    def follow(self, present: IntArray, room: int) -> None:
        """Place the next round's vertices in a buffer of at least ``room`` places.

        Vertices that stay keep their places.
        """
        more = np.full(max(0, room - len(self._at)), -1, dtype=np.int64)
        self._at = np.concatenate((self._at, more))
        leaves = (self._at >= 0) & ~np.isin(self._at, present)
        self._place[self._at[leaves]] = -1
        self._at[leaves] = -1
        comes = np.setdiff1d(present, self._at)
        free = np.flatnonzero(self._at < 0)[: len(comes)]
        self._at[free] = comes
        self._place[comes] = free

    def find(self, ids: IntArray) -> IndexArray:
        """Return the place of each of ``ids``, in any order; -1 for an absent one."""
        return self._place[ids]


# --------------------------------------------------------------------------- sets


@dataclass(frozen=True, slots=True, eq=False)
class _Source:
    """Rows that a unit reads and that lie in the transition buffer of ``slot``.

    ``comes`` are copied from there now; ``stays`` stay in the neighbour buffer from the last round.
    """

    slot: int
    comes: IntArray
    stays: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class _Sets:
    """A fetch's sets.

    ``own`` are the needed rows in the own transition set. ``read`` are the needed rows in the
    peers' sets; ``kept`` are the part of ``read`` that stays.
    """

    fetch: Fetch
    transition: IntArray
    own: IntArray
    read: IntArray
    kept: IntArray
    peers: tuple[_Source, ...]

    def own_source(self, before: _Sets | None) -> _Source:
        """Return the own transition buffer as a source, if it is a separate buffer.

        A row stays if it stays there and was needed in the last round.
        """
        stays = _NOTHING
        if before is not None:
            stays = _in_all(self.own, self.fetch.reused, before.fetch.needed)
        return _Source(self.fetch.slot, np.setdiff1d(self.own, stays), stays)


def _in_all(first: IntArray, *others: IntArray) -> IntArray:
    for other in others:
        first = np.intersect1d(first, other)
    return first


def _unite(arrays: Sequence[IntArray]) -> IntArray:
    return np.unique(np.concatenate((_NOTHING, *arrays)))


def _make_sets(fetch: Fetch, num_vertices: int) -> _Sets:
    peers = tuple(_Source(peer.slot, peer.ids, peer.kept) for peer in fetch.from_peers)
    kept = _unite([peer.stays for peer in peers])
    transition = _unite((fetch.from_host, fetch.reused))
    read = _unite((kept, *(peer.comes for peer in peers)))
    every = _unite((fetch.needed, transition, read))
    if len(every) and (every[0] < 0 or every[-1] >= num_vertices):
        raise outside(num_vertices)
    return _Sets(fetch, transition, _in_all(fetch.needed, transition), read, kept, peers)


# --------------------------------------------------------------------------- the rounds


class RoundPositions:
    """See :class:`gnnbench.kernels.dispatch.movement.RoundPositions`."""

    def __init__(self, num_vertices: int) -> None:
        self._num_vertices = num_vertices
        self._before: dict[int, _Sets] = {}
        #: By slot, the places in the transition and in the neighbour buffer; one object if merged.
        self._places: dict[int, tuple[Places, Places]] = {}

    def follow(
        self,
        units: tuple[Unit, ...],
        fetches: tuple[Fetch, ...],
        following: tuple[Fetch, ...],
        rows: dict[int, BufferRows],
        merged: bool,
    ) -> list[SlotPositions]:
        """Return the positions of one round for each unit, and keep its places for the next round.

        ``following`` are the fetches of the next round. Raises ``ValueError`` for a faulty plan.
        """
        now = {fetch.slot: _make_sets(fetch, self._num_vertices) for fetch in fetches}
        after = {fetch.slot: _make_sets(fetch, self._num_vertices) for fetch in following}
        _check_coverage(units, now)
        _check_rows_are_there(now, self._before)
        self._places = {slot: self._settle(mine, rows[slot]) for slot, mine in now.items()}
        found = [self._find(unit, now, after.get(unit.slot), merged) for unit in units]
        self._before = now
        return found

    def _settle(self, mine: _Sets, room: BufferRows) -> tuple[Places, Places]:
        """Return a slot's places in this round; a slot that paused has lost its rows."""
        places = self._places.get(mine.fetch.slot)
        if places is None:
            first = Places(self._num_vertices)
            other = first if room.transition is None else Places(self._num_vertices)
            places = (first, other)
        transition, neighbour = places
        if room.transition is None:
            neighbour.follow(_unite((mine.transition, mine.fetch.needed)), room.neighbour)
        else:
            transition.follow(mine.transition, room.transition)
            neighbour.follow(mine.fetch.needed, room.neighbour)
        return places

    def _find(
        self, unit: Unit, now: dict[int, _Sets], after: _Sets | None, merged: bool
    ) -> SlotPositions:
        mine, block = now[unit.slot], unit.blocks[0]
        transition, neighbour = self._places[unit.slot]
        sources = mine.peers
        stays_after = reused_after = _NOTHING
        if after is not None:
            stays_after, reused_after = after.kept, after.fetch.reused
        if not merged:
            sources = (mine.own_source(self._before.get(unit.slot)), *sources)
            if after is not None:
                stays_after = _unite((stays_after, after.own_source(mine).stays))
        leaving = np.setdiff1d(mine.transition, reused_after)
        inputs = neighbour.find(block.src_ids)
        if inputs.min(initial=0) < 0:
            raise incomplete(unit)
        if len(block.indices) and (
            block.indices.min() < 0 or block.indices.max() >= len(block.src_ids)
        ):
            raise nameless(unit)
        lists: list[IntArray | IndexArray] = [
            mine.fetch.from_host,
            transition.find(mine.fetch.from_host),
            block.src_ids,
            inputs,
            transition.find(leaving),
            leaving,
        ]
        slots: tuple[list[int], list[int]] = ([], [])
        for names, backward in zip(slots, (False, True), strict=True):
            for source in sources:
                ids = source.comes
                if backward:
                    ids = np.setdiff1d(np.union1d(source.comes, source.stays), stays_after)
                if len(ids):
                    names.append(source.slot)
                    lists += [neighbour.find(ids), self._places[source.slot][0].find(ids)]
        return SlotPositions(
            positions=np.concatenate(lists).astype(np.int32),
            lengths=[len(each) for each in lists],
            copied_from=slots[0],
            pushed_to=slots[1],
            vertices=neighbour.vertices,
            indices=inputs[block.indices],
            in_front=bool((inputs[: block.num_dst] == np.arange(block.num_dst)).all()),
        )


def _check_coverage(units: Sequence[Unit], now: dict[int, _Sets]) -> None:
    """Check that each fetch needs and brings each row of its unit exactly once."""
    for unit in units:
        mine = now[unit.slot]
        fetch = mine.fetch
        brought = len(mine.own) + sum(len(p.ids) + len(p.kept) for p in fetch.from_peers)
        if (
            not len(unit.input_ids) == len(np.unique(fetch.needed)) == brought
            or not np.isin(fetch.needed, _unite((mine.own, mine.read))).all()
            or len(fetch.from_host) + len(fetch.reused) != len(mine.transition)
        ):
            raise incomplete(unit)


def _check_rows_are_there(now: dict[int, _Sets], before: dict[int, _Sets]) -> None:
    """Check that kept rows were there in the last round, and that peers hold the rows they send."""
    for slot, mine in now.items():
        last = before.get(slot)
        pairs = [
            (mine.fetch.reused, last.transition if last else _NOTHING),
            (mine.kept, last.read if last else _NOTHING),
        ]
        for peer in mine.peers:
            there = now[peer.slot].transition if peer.slot in now else _NOTHING
            pairs += ((peer.comes, there), (peer.stays, there))
        if not all(np.isin(rows, there).all() for rows, there in pairs):
            raise absent()
