"""Executes a traffic plan: rows really travel the way the plan says, so a wrong plan trains wrong.

Forward (HongTu Algorithm 2): each slot's transition buffer is filled with rows kept from the round
before and rows from the host; each unit's input is then assembled from its own and its peers'
buffers. Backward (Algorithm 3): gradients of the input rows are added to the owners' transition
buffers; rows that the next round keeps stay there, the others are added to the host's gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gnnbench.records import Fetch, IntArray, Round, RoundTraffic, Unit


def _positions(ids: IntArray, within: IntArray) -> Tensor:
    """Where each of ``ids`` stands in the ascending ``within``; ``ValueError`` if one does not."""
    positions = np.searchsorted(within, ids).astype(np.int64)
    if len(ids) and (not len(within) or (np.take(within, positions, mode="clip") != ids).any()):
        raise ValueError(
            "the plan takes a row from a transition set that does not hold it; the communication "
            "part must reuse and fetch only rows that are there"
        )
    return torch.from_numpy(positions)


@dataclass(slots=True, eq=False)
class _Pull:
    """Rows of one unit's input that come from the transition buffer of ``slot``."""

    slot: int
    into: Tensor
    source: Tensor


@dataclass(slots=True, eq=False)
class SlotMovement:
    """The precomputed positions of one unit's movement in one round.

    ``rows_*`` are counts, for bytes and prices. ``direct`` marks the plain case where the input
    set itself crosses and there is no transition buffer; the positions are then empty.
    """

    slot: int
    input_ids: Tensor
    direct: bool
    rows_from_host: int
    rows_reused: int
    rows_in_transition: int
    rows_from_peers: tuple[tuple[int, int], ...]
    host_ids: Tensor
    host_into: Tensor
    reused_into: Tensor
    reused_source: Tensor
    pulls: tuple[_Pull, ...]
    leaving: Tensor
    leaving_ids: Tensor


def plan_movement(
    rounds: Sequence[Round],
    traffic: Sequence[RoundTraffic],
    *,
    shares_rows: bool,
    previous: RoundTraffic | None = None,
) -> list[tuple[SlotMovement, ...]]:
    """Positions for every unit of every round, computed once.

    ``previous`` is the traffic of the round before the first of ``rounds``. Without
    ``shares_rows`` every input set crosses directly and no positions are needed. Raises
    ``ValueError`` for a plan that leaves a needed row out, brings one twice, or takes one from a
    transition set that does not hold it.

    The rows that leave a transition buffer after a backward round are those that the next round
    does not keep; summed over the rounds they are as many as the rows that came from the host.
    """
    planned: list[tuple[SlotMovement, ...]] = []
    nothing = np.empty(0, dtype=np.int64)
    for index, (round_, plan) in enumerate(zip(rounds, traffic, strict=True)):
        last = traffic[index - 1] if index else previous
        before = {f.slot: f.transition for f in last.fetches} if last else {}
        after = (
            {f.slot: f.reused for f in traffic[index + 1].fetches}
            if index + 1 < len(traffic)
            else {}
        )
        transitions = {fetch.slot: fetch.transition for fetch in plan.fetches}
        movements = []
        for unit, fetch in zip(round_.units, plan.fetches, strict=True):
            own = transitions[fetch.slot]
            inputs = unit.input_ids
            if not shares_rows:
                movements.append(_direct_movement(unit, fetch))
                continue
            kept = after.get(fetch.slot, nothing)
            pulls = []
            held = np.isin(inputs, own, assume_unique=True)
            sources = [(fetch.slot, own, np.flatnonzero(held))]
            for peer in fetch.from_peers:
                sources.append(
                    (
                        peer.slot,
                        transitions[peer.slot],
                        np.flatnonzero(np.isin(inputs, peer.ids, assume_unique=True) & ~held),
                    )
                )
            for slot, rows, into in sources:
                pulls.append(_Pull(slot, torch.from_numpy(into), _positions(inputs[into], rows)))
            brought = np.concatenate([into for _, _, into in sources])
            if not np.array_equal(np.sort(brought), np.arange(len(inputs))):
                raise ValueError(
                    f"the plan for round {round_.index} does not bring slot {fetch.slot} each of "
                    f"its {len(inputs):,} rows exactly once; the communication part must place "
                    f"every needed row in the own transition set or in one peer fetch"
                )
            leaving = np.flatnonzero(~np.isin(own, kept, assume_unique=True))
            movements.append(
                SlotMovement(
                    slot=fetch.slot,
                    input_ids=torch.from_numpy(inputs),
                    direct=False,
                    rows_from_host=len(fetch.from_host),
                    rows_reused=len(fetch.reused),
                    rows_in_transition=len(own),
                    rows_from_peers=tuple((p.slot, len(p.ids)) for p in fetch.from_peers),
                    host_ids=torch.from_numpy(fetch.from_host),
                    host_into=_positions(fetch.from_host, own),
                    reused_into=_positions(fetch.reused, own),
                    reused_source=_positions(fetch.reused, before.get(fetch.slot, nothing)),
                    pulls=tuple(pulls),
                    leaving=torch.from_numpy(leaving),
                    leaving_ids=torch.from_numpy(own[leaving]),
                )
            )
        planned.append(tuple(movements))
    return planned


def _direct_movement(unit: Unit, fetch: Fetch) -> SlotMovement:
    moved = len(fetch.from_host) + len(fetch.reused)
    if moved != unit.blocks[0].num_src:
        raise ValueError(
            f"slot {fetch.slot} needs {unit.blocks[0].num_src:,} rows and its plan accounts for "
            f"{moved:,}; a communication part that keeps or shares rows must set shares_rows"
        )
    nothing = torch.empty(0, dtype=torch.int64)
    inputs = torch.from_numpy(unit.input_ids)
    return SlotMovement(
        slot=fetch.slot,
        input_ids=inputs,
        direct=True,
        rows_from_host=len(fetch.from_host),
        rows_reused=len(fetch.reused),
        rows_in_transition=len(fetch.needed),
        rows_from_peers=(),
        host_ids=inputs,
        host_into=nothing,
        reused_into=nothing,
        reused_source=nothing,
        pulls=(),
        leaving=nothing,
        leaving_ids=inputs,
    )


class ForwardBuffers:
    """The transition buffers of all slots while a layer goes through its rounds."""

    def __init__(self) -> None:
        self._buffers: dict[int, Tensor] = {}
        self._next: dict[int, Tensor] = {}

    def reuse(self, move: SlotMovement, like: Tensor, device: torch.device) -> None:
        """Open this round's buffer with the rows kept from the round before."""
        buffer = torch.empty(
            (move.rows_in_transition, like.shape[1]), dtype=like.dtype, device=device
        )
        if move.rows_reused:
            buffer[move.reused_into] = self._buffers[move.slot][move.reused_source]
        self._next[move.slot] = buffer

    def load(self, move: SlotMovement, rows: Tensor) -> None:
        """Put the rows that crossed from the host, ``(rows_from_host, f)``, in their places."""
        self._next[move.slot][move.host_into] = rows

    def commit(self) -> None:
        """All slots have loaded: this round's buffers are now the current ones."""
        self._buffers, self._next = self._next, {}

    def assemble(self, move: SlotMovement) -> Tensor:
        """The unit's input rows ``(S, f)``, from its own and its peers' buffers."""
        first = self._buffers[move.slot]
        out = torch.empty(
            (len(move.input_ids), first.shape[1]), dtype=first.dtype, device=first.device
        )
        for pull in move.pulls:
            out[pull.into] = self._buffers[pull.slot][pull.source].to(out.device)
        return out


class GradientBuffers:
    """The transition gradient buffers of all slots while a layer goes back through its rounds."""

    def __init__(self) -> None:
        self._buffers: dict[int, Tensor] = {}

    def opened(self, move: SlotMovement, like: Tensor) -> Tensor:
        """A slot's buffer for the next round: zero, but for rows kept from the round before."""
        buffer = torch.zeros(
            (move.rows_in_transition, like.shape[1]), dtype=like.dtype, device=like.device
        )
        if move.rows_reused:
            buffer[move.reused_into] = self._buffers[move.slot][move.reused_source]
        return buffer

    def commit(self, buffers: dict[int, Tensor]) -> None:
        """All slots have opened theirs: these are now the current ones."""
        self._buffers = buffers

    def accumulate(self, move: SlotMovement, gradient: Tensor) -> None:
        """Add a unit's input gradients ``(S, f)`` to the owners' buffers."""
        for pull in move.pulls:
            buffer = self._buffers[pull.slot]
            buffer.index_add_(0, pull.source, gradient[pull.into].to(buffer.device))

    def leave(self, move: SlotMovement) -> Tensor:
        """The rows that go to the host now, in the order of ``leaving_ids``."""
        return self._buffers[move.slot][move.leaving]
