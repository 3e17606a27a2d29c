"""Where every row stands and travels under a traffic plan, so that a wrong plan trains wrong.

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
#: Up to so many places for each id a table of a set's range is faster than a search.
_TABLE: Bound[int] = 128


@dataclass(slots=True, eq=False)
class Exchange:
    """Rows between a neighbour buffer (``here``) and the transition buffer of ``slot`` (``there``),
    a peer or, where the buffers are not merged, the same: their positions in either, int32."""

    slot: int
    here: IndexArray
    there: IndexArray

    @property
    def rows(self) -> int:
        return len(self.here)


@dataclass(slots=True, eq=False)
class SlotMovement:
    """One unit's movement in one round, in precomputed positions; all arrays are int32.

    ``direct`` marks the plain case where the input set itself crosses, but for reused rows of which
    the device has a copy, and there is no buffer; the positions are then empty and ``block`` is the
    unit's own. Otherwise ``block`` reads the neighbour buffer, where the unit's input rows stand at
    ``input_places``.

    Forward: the rows ``host_ids`` cross to ``host_into``, then ``pulls`` are copied, and
    ``rows_reused`` rows stay where they are, of either kind. Backward: rows that came start from
    zero, ``pushes`` are added to the owners' buffers, and ``leaving`` go to the host's rows
    ``leaving_ids``; where there is no buffer, those of the rows that crossed.
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
    """Gives each round its positions, in the order in which the rounds run.

    Without ``shares_rows`` every input set crosses directly and no positions are needed. A round
    is worked on by ``threads`` of the host, 0 for every core.
    """

    def __init__(self, num_vertices: int, *, shares_rows: bool, threads: int = 0) -> None:
        self._positions = open_rounds(num_vertices, threads=threads) if shares_rows else None

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
    threads: int = 0,
    keep: Callable[[tuple[SlotMovement, ...]], tuple[SlotMovement, ...]] = tuple,
) -> list[tuple[SlotMovement, ...]]:
    """The movement of all rounds of a pass, each as ``keep`` keeps it; see
    :class:`MovementPlanner`.

    Summed over the rounds, as many rows leave for the host as came from it, and as many are pushed
    to peers as were copied from them.
    """
    planner = MovementPlanner(num_vertices, shares_rows=shares_rows, threads=threads)
    following = [*traffic[1:], None]
    return [keep(planner.plan(*each)) for each in zip(rounds, traffic, following, strict=True)]


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
    """The block with the rows of a buffer as its sources, each where it stands.

    ``places`` are those of the block's own sources. Rows that it does not read are sources too.
    """
    own: IndexArray | None = places[: block.num_dst]
    if block.own is not None:
        own = places[block.own]
    elif found.in_front:
        own = None
    return Block(found.vertices, block.num_dst, block.indptr, found.indices, own)


def _are_among(ids: IndexArray, ascending: IntArray) -> BoolArray:
    """Which of ``ids`` are in a set that ascends: by a table of its range, which is faster than
    NumPy takes it for, and 30 times as fast as sorting both."""
    narrow = ascending[-1] - ascending[0] <= _TABLE * (len(ids) + len(ascending))
    return np.isin(ids, ascending, kind="table" if narrow else None)


def _direct_movement(unit: Unit, fetch: Fetch) -> SlotMovement:
    moved = len(fetch.from_host) + len(fetch.reused)
    if moved != unit.blocks[0].num_src:
        raise ValueError(
            f"slot {fetch.slot} needs {unit.blocks[0].num_src:,} rows and its plan accounts for "
            f"{moved:,}; a communication part that keeps or shares rows must be a RowSharing"
        )
    # Copies of half the size: movements are there for the whole run.
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
