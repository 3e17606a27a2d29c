"""Places of rows in buffers from round to round: the position indices of HongTu, section 6."""

from __future__ import annotations

from typing import Protocol

from gnnbench.kernels.native import load, resolve_threads
from gnnbench.kernels.reference import movement as reference
from gnnbench.kernels.reference.movement import SlotPositions
from gnnbench.records import BufferRows, Fetch, Unit


class RoundPositions(Protocol):
    """Assignment of places to each round's rows, in the order in which the rounds run."""

    def follow(
        self,
        units: tuple[Unit, ...],
        fetches: tuple[Fetch, ...],
        following: tuple[Fetch, ...],
        rows: dict[int, BufferRows],
        merged: bool,
    ) -> list[SlotPositions]:
        """Return the positions of all slots of a round, in the order of its ``units``.

        ``fetches`` has one fetch for each unit. ``following`` has those of the next round, for
        which rows stay, and is empty if none do. ``rows`` is the room that each slot's buffers need
        in this round, by slot. ``merged`` says whether that is one buffer, in all rounds alike. A
        new row gets the lowest free place, in order; a row that stays keeps its place. A slot that
        is not in a round loses its rows.

        Raises ``ValueError`` for fetches that omit a needed row or load one twice. It rejects
        keeping a row that was not there and copying one from a transition set without it. It also
        rejects ids outside the graph and arrays of other types than the records state.
        """
        ...


def open_rounds(num_vertices: int, *, threads: int = 0) -> RoundPositions:
    """Return empty positions for the rows of a graph, before the first round.

    ``threads`` work on a round's slots, 0 for every core. Raises ``ValueError`` for more vertices
    than int32 can name.
    """
    if not 0 <= num_vertices < 2**31:
        raise ValueError(f"num_vertices is {num_vertices}; it must be from 0 to 2^31 - 1.")
    compiled = load("movement")
    if compiled is None:
        return reference.RoundPositions(num_vertices)
    made: RoundPositions = compiled.RoundPositions(num_vertices, resolve_threads(threads))
    return made
