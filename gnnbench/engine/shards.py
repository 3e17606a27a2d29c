"""Vertex data in the devices' memories: each has the rows of its partition, and peers read them.

A unit's input is its own partition's rows plus rows of others, which come over the links between
devices at every layer, and whose gradients go back the same way. The host is not involved. Where
the communication part allows stale rows, only some of them come in an epoch, or they arrive in a
later one: a unit's input stays on its device, and rows are in it as they last arrived.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gnnbench.engine.movement import Exchange, read_rows
from gnnbench.parts import Communication, PeerData
from gnnbench.records import BoolArray, Fetch, IntArray, Round, RoundTraffic, Unit

#: Rows by slot, those of a partition ascending by vertex.
Sharded = dict[int, Tensor]


@dataclass(slots=True, eq=False)
class Read(Exchange):
    """What a unit reads of a shard: its rows ``there`` are the unit's input rows ``here``.

    The rows of the vertices ``ids`` cross for that: those, or, in a broadcast, the whole shard.
    """

    ids: IntArray

    @property
    def rows(self) -> int:
        return len(self.ids)

    @property
    def broadcast(self) -> bool:
        return len(self.ids) > len(self.there)

    def mark(self, chosen: BoolArray) -> BoolArray:
        """Which of the rows ``there`` cross where ``chosen`` of ``ids`` do, bool.

        Raises ``ValueError`` for a part of a broadcast.
        """
        if not self.broadcast:
            return chosen
        if chosen.any() != chosen.all():
            raise ValueError(
                f"{int(chosen.sum()):,} of {len(chosen):,} rows of slot {self.slot} would cross; "
                f"a communication part that broadcasts must choose all of them or none"
            )
        return np.full(len(self.there), bool(chosen.any()))

    def pick(self, chosen: BoolArray) -> Read:
        """The same of those rows alone that are ``chosen``, bool like ``ids``."""
        if chosen.all():
            return self
        marked = torch.from_numpy(self.mark(chosen))
        return Read(self.slot, self.here[marked], self.there[marked], self.ids[chosen])

    def take(self, shard: Tensor, device: torch.device) -> Tensor:
        """A copy on ``device`` of the rows ``there`` of the shard ``(n, f)``."""
        if self.broadcast:
            arrived = shard.to(device, copy=True)
            return arrived.index_select(0, self.there.to(device))
        return read_rows(shard, self.there, device)

    def receive(self, rows: Tensor, shard: Tensor) -> None:
        """Copy rows of the shard ``(n, f)`` to their places in a unit's input rows."""
        rows.index_copy_(0, self.here.to(rows.device), self.take(shard, rows.device))

    def send_back(self, gradients: Tensor, shard: Tensor) -> Tensor:
        """The gradients of the rows ``there``, on the device of the shard, out of those of a unit's
        input rows."""
        if not self.broadcast:
            return read_rows(gradients, self.here, shard.device)
        dense = torch.zeros(shard.shape, dtype=shard.dtype, device=gradients.device)
        there = self.there.to(gradients.device)
        dense.index_copy_(0, there, read_rows(gradients, self.here, gradients.device))
        return dense.to(shard.device).index_select(0, self.there.to(shard.device))


class ShardPlan:
    """Where each vertex's row is, and which rows every unit reads from where.

    Raises ``ValueError`` for a plan that leaves a needed row out, brings one twice, or takes one
    from a slot that does not own it, and for a unit that computes a vertex of another slot.
    """

    def __init__(
        self,
        rounds: Sequence[Round],
        traffic: Sequence[RoundTraffic],
        owner: IntArray,
        slots: int,
        *,
        broadcasts: bool,
    ) -> None:
        self._owner = owner
        self._broadcasts = broadcasts
        self.owned = [np.flatnonzero(owner == slot).astype(np.int64) for slot in range(slots)]
        self._position = np.empty(len(owner), dtype=np.int64)
        for ids in self.owned:
            self._position[ids] = np.arange(len(ids))
        self.reads: dict[tuple[int, int], tuple[Read, ...]] = {}
        self.outputs: dict[tuple[int, int], Tensor] = {}
        for round_, plan in zip(rounds, traffic, strict=True):
            for unit, fetch in zip(round_.units, plan.fetches, strict=True):
                key = (round_.index, unit.slot)
                self.reads[key] = self._plan_reads(unit, fetch)
                self.outputs[key] = self.find(unit.output_ids, unit.slot)

    def find(self, ids: IntArray, slot: int) -> Tensor:
        """Positions of vertices in the shard of ``slot``, which must own them."""
        if (self._owner[ids] != slot).any():
            raise ValueError(
                f"slot {slot} is asked for a vertex of another partition; the communication part "
                f"must fetch every row from the owner of its vertex"
            )
        return torch.from_numpy(self._position[ids])

    def _plan_reads(self, unit: Unit, fetch: Fetch) -> tuple[Read, ...]:
        order = np.argsort(unit.input_ids, kind="stable")
        ascending = unit.input_ids[order]
        own = np.intersect1d(fetch.reused, fetch.needed, assume_unique=True)
        parts = [(fetch.slot, own), *((peer.slot, peer.ids) for peer in fetch.from_peers)]
        brought = np.sort(np.concatenate([ids for _, ids in parts]))
        if not np.array_equal(brought, ascending):
            raise ValueError(
                f"the plan does not bring slot {fetch.slot} each of its {len(ascending):,} rows "
                f"exactly once from the devices; the communication part must place every needed "
                f"row in the own partition or in one peer fetch"
            )
        if self._broadcasts:
            asked = {slot for slot, _ in parts}
            parts += [(slot, own[:0]) for slot in range(len(self.owned)) if slot not in asked]
        reads = []
        for slot, ids in parts:
            here = torch.from_numpy(order[np.searchsorted(ascending, ids)])
            whole = self._broadcasts and slot != fetch.slot
            reads.append(Read(slot, here, self.find(ids, slot), self.owned[slot] if whole else ids))
        return tuple(read for read in reads if read.rows)

    @property
    def broadcast_rows(self) -> int:
        """The most rows that a device sends or receives besides those it keeps."""
        reads = [read for each in self.reads.values() for read in each if read.broadcast]
        return max((read.rows for read in reads), default=0)

    def count_read_by_peers(self, slot: int) -> int:
        """How many rows of ``slot`` the units of others read in a layer, over all rounds."""
        return sum(
            len(read.there)
            for (_, reader), reads in self.reads.items()
            for read in reads
            if reader != slot == read.slot
        )


@dataclass(frozen=True, slots=True, eq=False)
class Arrived:
    """Rows ``(n, f)`` that crossed in an earlier epoch, and their places: among a unit's input
    rows, or, gradients, among those that it reads of the shard."""

    places: Tensor
    rows: Tensor


class History:
    """What crossed between devices in earlier epochs and still stands, or is still under way.

    A unit's input rows stay on its device, by (layer, round, slot), so that rows which do not cross
    are in it as they last did; gradients that a unit sent stay with the owner of the rows. What
    arrives some epochs after it was sent waits meanwhile where it is going, one message an epoch
    for each read of a unit. Before anything has arrived, rows and gradients are zero.
    """

    def __init__(self, communication: Communication) -> None:
        self._communication = communication
        self._inputs: dict[tuple[int, int, int], Tensor] = {}
        self._gradients: dict[tuple[int, int, int, int], Tensor] = {}
        self._under_way: dict[tuple[PeerData, int, int, int, int], deque[Arrived]] = {}
        self._under_way_bytes: dict[int, int] = {}

    @property
    def delay(self) -> int:
        """How many epochs later what may be stale arrives."""
        return self._communication.arrival_epochs if self._communication.stale else 0

    def keeps(self, what: PeerData) -> bool:
        return what in self._communication.stale

    def delays(self, what: PeerData) -> bool:
        return self.keeps(what) and self.delay > 0

    def choose(self, epoch: int, layer: int, what: PeerData, read: Read) -> BoolArray:
        """Which of the rows that a unit reads of a peer cross in an epoch, bool."""
        if not self.keeps(what) or (epoch == 0 and not self.delay):
            return np.ones(read.rows, dtype=np.bool_)
        return self._communication.choose_crossing(epoch, layer, what, read.ids)

    def inputs(
        self, layer: int, round_index: int, slot: int, shape: tuple[int, int], like: Tensor
    ) -> Tensor:
        """Memory for a unit's input rows, with those of the last epoch in it if they stay."""
        if not self.keeps("rows"):
            return like.new_empty(shape)
        key = (layer, round_index, slot)
        if key not in self._inputs:
            self._inputs[key] = like.new_zeros(shape)
        return self._inputs[key]

    def gradients(
        self, layer: int, round_index: int, slot: int, read: Read, like: Tensor
    ) -> Tensor:
        """What has last arrived from the unit of ``slot`` for the rows ``there`` of a read,
        ``(n, f)``."""
        key = (layer, round_index, slot, read.slot)
        if key not in self._gradients:
            self._gradients[key] = like.new_zeros((len(read.there), like.shape[1]))
        return self._gradients[key]

    def send(
        self,
        what: PeerData,
        layer: int,
        round_index: int,
        slot: int,
        read: Read,
        places: Tensor,
        rows: Tensor,
    ) -> None:
        """What the unit of ``slot`` reads of a peer, or returns to it, goes on its way; nothing
        may, but every epoch sends once."""
        queue = self._under_way.setdefault((what, layer, round_index, slot, read.slot), deque())
        queue.append(Arrived(places, rows))
        self._count(slot if what == "rows" else read.slot, rows, 1)

    def receive(
        self, what: PeerData, layer: int, round_index: int, slot: int, read: Read
    ) -> Arrived | None:
        """What was sent ``delay`` epochs ago; to be asked before this epoch sends."""
        queue = self._under_way.get((what, layer, round_index, slot, read.slot), deque())
        if len(queue) < self.delay:
            return None
        arrived = queue.popleft()
        self._count(slot if what == "rows" else read.slot, arrived.rows, -1)
        return arrived

    def under_way_bytes(self, slot: int) -> int:
        """Bytes of what is under way to a device."""
        return self._under_way_bytes.get(slot, 0)

    def _count(self, slot: int, rows: Tensor, sign: int) -> None:
        size = rows.numel() * rows.element_size()
        self._under_way_bytes[slot] = self.under_way_bytes(slot) + sign * size
