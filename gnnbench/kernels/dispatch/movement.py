"""Where rows stand in buffers from round to round: HongTu §6's position indices."""

from __future__ import annotations

from typing import Protocol

from gnnbench.kernels.native import load, resolve_threads
from gnnbench.kernels.reference import movement as reference
from gnnbench.kernels.reference.movement import SlotPositions
from gnnbench.records import BufferRows, Fetch, Unit


class RoundPositions(Protocol):
    """Gives each round's rows their places, in the order in which the rounds run."""

    def follow(
        self,
        units: tuple[Unit, ...],
        fetches: tuple[Fetch, ...],
        following: tuple[Fetch, ...],
        rows: dict[int, BufferRows],
        merged: bool,
    ) -> list[SlotPositions]:
        """The positions of all slots of a round, in the order of its ``units``.

        ``fetches`` are theirs, one each; ``following`` are those of the next round, for which rows
        stay, and empty where nothing does. ``rows`` is the room that each slot's buffers need in
        this round, by slot, and ``merged`` says whether that is one buffer, in all rounds alike.
        Who comes gets the lowest free place, in order; who stays keeps its own. A slot that is not
        in a round has lost what it held.

        Raises ``ValueError`` for fetches that leave a needed row out, bring one twice, keep one
        that was not there, or take one from a transition set that does not hold it, and for ids
        outside the graph or arrays of other types than the records say.
        """
        ...


def open_rounds(num_vertices: int, *, threads: int = 0) -> RoundPositions:
    """Positions of rows of a graph, before the first round; nobody stands anywhere.

    A round's slots are worked on by ``threads``, 0 for every core. Raises ``ValueError`` for more
    vertices than int32 can name.
    """
    if not 0 <= num_vertices < 2**31:
        raise ValueError(f"num_vertices is {num_vertices}; it must be from 0 to 2^31 - 1.")
    compiled = load("movement")
    if compiled is None:
        return reference.RoundPositions(num_vertices)
    made: RoundPositions = compiled.RoundPositions(num_vertices, resolve_threads(threads))
    return made
