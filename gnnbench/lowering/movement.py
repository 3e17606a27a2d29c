"""The position of every row under a traffic plan, computed so that a wrong plan trains wrong.

A device's transition rows (T_ij) and the rows that its kernel reads (N_ij) are in buffers with
positions fixed before training (HongTu §6). Rows that stay for the next round keep their positions,
and new rows take the positions of discarded ones. Both sets share one merged buffer, or have one
each. The unit's block is rewritten so that the kernel reads the buffer itself.

Forward (HongTu Algorithm 2), rows come from the host, then from the peers' buffers. Backward
(Algorithm 3), a unit adds the gradients of its rows to its gradient buffer, which has the positions
of the row buffer. Gradients of a peer's row are pushed to the peer once the row leaves the
neighbour buffer. Gradients of a transition row are added to the host's once the row leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from gnnbench.constants import Bound
from gnnbench.kernels.dispatch import open_rounds
from gnnbench.kernels.reference.movement import SlotPositions
from gnnbench.records import (
    Block,
    BoolArray,
    BufferRows,
    Fetch,
    IndexArray,
    IntArray,
    Round,
    RoundTraffic,
    Unit,
)

_NOTHING: IndexArray = np.empty(0, dtype=np.int32)
#: The most places for each id up to which a table of a set's range is faster than a search.
_TABLE: Bound[int] = 128


@dataclass(slots=True, eq=False)
class Exchange:
    """Rows between a neighbour buffer (``here``) and the transition buffer of ``slot`` (``there``).

    The slot is a peer's, or the device's own if its buffers are not merged. ``here`` and ``there``
    are positions in the two buffers, int32.
    """

    slot: int
    here: IndexArray
    there: IndexArray

    @property
    def rows(self) -> int:
        """The number of exchanged rows."""
        return len(self.here)


@dataclass(slots=True, eq=False)
class SlotMovement:
    """One unit's movement in one round, in precomputed positions; all arrays are int32.

    ``direct`` marks the plain case without a buffer: the input set itself crosses, except for
    reused rows that the device has cached. The positions are then empty and ``block`` is the unit's
    own. Otherwise ``block`` reads the neighbour buffer, with the unit's input rows at
    ``input_places``.

    Forward, the rows ``host_ids`` cross to ``host_into``, then ``pulls`` are copied.
    ``rows_reused`` rows of either kind stay where they are. Backward, gradients of new rows start
    from zero, and ``pushes`` are added to the owners' buffers. The rows ``leaving`` of the buffer
    go to the host's rows ``leaving_ids``. Without a buffer, the rows that crossed go there.
    """

    slot: int
    direct: bool
    block: Block
    input_ids: IndexArray
    input_places: IndexArray
    buffer_rows: BufferRows
    rows_from_host: int
    rows_reused: int
    host_ids: IndexArray
    host_into: IndexArray
    pulls: tuple[Exchange, ...]
    pushes: tuple[Exchange, ...]
    leaving: IndexArray
    leaving_ids: IndexArray


class MovementPlanner:
    """The planner of each round's positions, called in the order of the rounds.

    Without ``shares_rows`` every input set crosses directly, and no positions are needed.
    ``threads`` of the host's threads work on a round; 0 means every core.
    """

    def __init__(self, num_vertices: int, *, shares_rows: bool, threads: int = 0) -> None:
        self._positions = open_rounds(num_vertices, threads=threads) if shares_rows else None

    def plan(
        self, round_: Round, traffic: RoundTraffic, following: RoundTraffic | None = None
    ) -> tuple[SlotMovement, ...]:
        """Return the movement of every unit of a round; ``following`` is the next round's traffic.

        Rows leave the gradient buffers after the round unless they stay for the ``following`` one.

        Raises ``ValueError`` for a plan that leaves a needed row out, or brings one twice. A plan
        must not keep a row that was not there, or take one from a transition set that does not hold
        it.
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
    threads: int = 0,
    keep: Callable[[tuple[SlotMovement, ...]], tuple[SlotMovement, ...]] = tuple,
) -> list[tuple[SlotMovement, ...]]:
    """Return the movement of all rounds of a pass, after ``keep`` has processed each.

    Over all rounds, equal numbers of rows come from the host and leave for it. The numbers of rows
    copied from peers and pushed to peers are equal too. See :class:`MovementPlanner`.
    """
    planner = MovementPlanner(num_vertices, shares_rows=shares_rows, threads=threads)
    following = [*traffic[1:], None]
    return [keep(planner.plan(*each)) for each in zip(rounds, traffic, following, strict=True)]


def largest_buffers(traffic: Iterable[RoundTraffic]) -> dict[int, BufferRows]:
    """Return buffers for all rounds by device index, as large as the largest round needs."""
    largest: dict[int, BufferRows] = {}
    for plan in traffic:
        for slot, rows in plan.buffer_rows().items():
            largest[slot] = rows.at_least(largest.get(slot, rows))
    return largest


def _buffered_movement(
    unit: Unit, fetch: Fetch, rows: BufferRows, found: SlotPositions
) -> SlotMovement:
    pieces = np.split(found.positions, np.cumsum(found.lengths)[:-1])
    host_ids, host_into, input_ids, input_places, leaving, leaving_ids, *pairs = pieces
    copied = 2 * len(found.copied_from)
    pulls = tuple(map(Exchange, found.copied_from, pairs[:copied:2], pairs[1:copied:2]))
    pushes = tuple(map(Exchange, found.pushed_to, pairs[copied::2], pairs[copied + 1 :: 2]))
    return SlotMovement(
        slot=unit.slot,
        direct=False,
        block=_place_block(unit.blocks[0], input_places, found),
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
    """Return the block with the rows of a buffer as its sources, at their positions there.

    ``places`` are the positions of the block's own sources. Rows that it does not read are sources
    too.
    """
    own: IndexArray | None = places[: block.num_dst]
    if block.own is not None:
        own = places[block.own]
    elif found.in_front:
        own = None
    return Block(found.vertices, block.num_dst, block.indptr, found.indices, own)


def _are_among(ids: IndexArray, ascending: IntArray) -> BoolArray:
    """Return which of ``ids`` are in an ascending set.

    A table of the set's range serves where it is faster. There it is 30 times as fast as sorting
    both arrays, and faster than NumPy's own choice of method assumes.
    """
    narrow = ascending[-1] - ascending[0] <= _TABLE * (len(ids) + len(ascending))
    return np.isin(ids, ascending, kind="table" if narrow else None)


def _direct_movement(unit: Unit, fetch: Fetch) -> SlotMovement:
    moved = len(fetch.from_host) + len(fetch.reused)
    if moved != unit.blocks[0].num_src:
        raise ValueError(
            f"slot {fetch.slot} needs {unit.blocks[0].num_src:,} rows and its plan accounts for "
            f"{moved:,}; a communication part that keeps or shares rows must set shares_rows"
        )
    # int32 halves the size of arrays that stay for the whole run.
    inputs = crossing = unit.input_ids.astype(np.int32, copy=False)
    if len(fetch.reused):
        crossing = inputs[~_are_among(inputs, fetch.reused)]
    return SlotMovement(
        slot=fetch.slot,
        direct=True,
        block=unit.blocks[0],
        input_ids=inputs,
        input_places=_NOTHING,
        buffer_rows=BufferRows(0),
        rows_from_host=len(fetch.from_host),
        rows_reused=len(fetch.reused),
        host_ids=crossing,
        host_into=_NOTHING,
        pulls=(),
        pushes=(),
        leaving=_NOTHING,
        leaving_ids=crossing,
    )
