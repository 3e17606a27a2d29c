"""Rows that units read of shards on other devices, and their gradients on the way back.

A device asks one peer after the other (HongTu's Algorithm 2, line 6). Some of the rows that may be
stale cross in an epoch, or they arrive in a later epoch. Then the step reads a buffer that an
earlier epoch has written, and nothing in this epoch waits for it. With a sampled halo, devices
draw in every epoch which rows they read of their peers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np

from gnnbench.lowering.frame import Frame
from gnnbench.lowering.shards import Progress, Read, ShardUnit
from gnnbench.lowering.stages.changes import Changes
from gnnbench.lowering.stages.halo import SampledHalo
from gnnbench.parts import PeerData
from gnnbench.program import (
    NOTHING,
    Access,
    Buffer,
    Counts,
    Hold,
    Item,
    Place,
    Sizes,
    Step,
)
from gnnbench.records import AggregateWork, BoolArray, CopyWork, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Crossing:
    """Rows that cross for a unit in this epoch: the ``chosen`` rows of its ``read``, or all.

    All cross if ``chosen`` is None. ``sent_in`` is the epoch in which arriving data was sent, or -1
    if none arrives.
    """

    number: int
    round_index: int
    slot: int
    read: Read
    chosen: BoolArray | None
    sent_in: int = -1

    @property
    def picked(self) -> Read:
        """The unit's read of the rows that cross."""
        return self.read.pick(self.chosen)

    def way(self, what: PeerData) -> tuple[object, ...]:
        """Return the key of the messages that take this way in every epoch."""
        return (what, self.number, self.round_index, self.slot, self.read.slot)


class DrawHalo(NamedTuple):
    """The choice of the rows that a device reads of its peers in an epoch."""

    slot: int


class ReadRows(NamedTuple):
    """The transfer of rows of a shard to a unit that reads them."""

    crossing: Crossing


class SendRows(NamedTuple):
    """The transfer of rows of a shard to a unit that reads them in a later epoch."""

    crossing: Crossing


class TakeRows(NamedTuple):
    """The placement of rows that were sent in an earlier epoch among a unit's input rows."""

    crossing: Crossing


class ReturnGradients(NamedTuple):
    """The transfer of gradients of a unit's input rows to their shard, and their addition."""

    crossing: Crossing


class SendGradients(NamedTuple):
    """The transfer of gradients to a shard that adds them in a later epoch."""

    crossing: Crossing


class AddStaleGradients(NamedTuple):
    """The addition to a shard of gradients at the positions ``kept`` that arrived earlier."""

    crossing: Crossing
    kept: IntArray


PeerOperation: TypeAlias = ReadRows | SendRows | ReturnGradients | SendGradients


class Peers:
    """The transfers between the shards of devices; ``halo`` draws them if halos are sampled."""

    def __init__(
        self, frame: Frame, now: Progress, changes: Changes, halo: SampledHalo | None
    ) -> None:
        self._frame, self._now, self._changes, self._halo = frame, now, changes, halo

    # ------------------------------------------------------------------ halos that are drawn

    def scale_of(self, crossing: Crossing) -> float:
        """Return the factor of rows that cross and of their gradients.

        It is 1 except for rows that were drawn from a halo.
        """
        own = crossing.read.slot == crossing.slot
        return 1.0 if self._halo is None or own else self._halo.scale

    def draw_halos(self, halo: SampledHalo) -> Iterator[Step]:
        """Yield the steps in which every device draws its halo and writes its graph of this epoch.

        All devices continue when each knows what the others have drawn.
        """
        after = Buffer("halos are drawn")
        for slot, device in enumerate(self._frame.trainers):
            yield Step(
                DrawHalo(slot),
                "sample",
                "draw the halo",
                Place(device.name, (device.name,), slot),
                CopyWork(),
                round=self._now.round,
                index_work=partial(self._draw_halo, halo, slot),
                access=Access((self._now.meeting,), adds=(after,)),
            )
        self._now.meeting, self._now.shards = after, halo.take()

    def _draw_halo(self, halo: SampledHalo, slot: int) -> Sizes:
        halo.draw(self._now.epoch, slot)
        blocks = [*halo.whole_blocks_of(slot), *halo.blocks_of(slot).values()]
        size = self._frame.count_topology(blocks)
        return Sizes(CopyWork(size, len(halo.halos[slot])))

    def see_blocks(self, steps: Iterator[Step], *, first: bool) -> Iterator[Step]:
        """Yield steps over a unit, and mark a drawn block as new to the kernel.

        A block is new the ``first`` time that it is aggregated over in a direction and an epoch.
        """
        for step in steps:
            if first and self._halo is not None and isinstance(step.work, AggregateWork):
                yield step._replace(work=step.work._replace(fresh=True))
            else:
                yield step

    # ------------------------------------------------------------------ rows

    def read_shards(
        self, number: int, unit: ShardUnit, rows: list[Buffer], inputs: Buffer, arrived: Buffer
    ) -> Iterator[Item]:
        """Yield the transfers of a unit's input rows, from its own shard and from its peers'."""
        width, sends, slot = self._frame.layers[number].in_features, Buffer("sends"), unit.slot
        for read in unit.reads_at(number):
            chosen = self._choose(number, "rows", slot, read)
            crossing = Crossing(number, self._now.round, slot, read, chosen)
            if read.slot != slot and self._now.staleness.delays("rows"):
                under_way = Buffer("rows under way")
                yield from self._take_rows(crossing, inputs, under_way, arrived)
                yield from self._send_rows(crossing, rows[read.slot], under_way, sends)
            elif crossing.picked.rows:
                step = self._exchange(ReadRows(crossing), crossing, width, push=False)
                yield step.over((self._now.meeting, rows[read.slot]), (inputs,), (arrived,))

    def _choose(self, number: int, what: PeerData, slot: int, read: Read) -> BoolArray | None:
        """Return which rows of a read cross in this epoch; None means all, as in the own shard."""
        if read.slot == slot or not self._now.staleness.keeps(what):
            return None
        if what == "rows" and number in self._changes.measured:
            return np.full(read.rows, self._changes.due[read.slot])
        with self._frame.deciding():
            return self._now.staleness.choose(self._now.epoch, number, what, read)

    def _exchange(
        self, operation: PeerOperation, crossing: Crossing, width: int, *, push: bool
    ) -> Step:
        """Return a transfer of rows between two devices' shards, or within one.

        One peer at a time reads a device's shard or adds to it.
        """
        slots = crossing.slot, crossing.read.slot
        source, target = slots if push else slots[::-1]
        trainers, rows = self._frame.trainers, crossing.picked.rows
        route = self._frame.find_route(trainers[source], trainers[target])
        peer = trainers[crossing.read.slot].name
        between = trainers[crossing.slot].name != peer
        lanes = (*route.resources, f"{peer}.buffer") if between else route.resources
        size = rows * width * self._frame.itemsize
        return Step(
            operation,
            "transfer",
            "device to device" if between else "copy between buffers",
            Place(route.name, lanes, target, source),
            CopyWork(size, rows),
            crossing.number,
            self._now.round,
            Counts((("device_to_device", size),)) if between else NOTHING,
        )

    # ------------------------------------------------------------------ rows that arrive later

    def _receive(self, what: PeerData, crossing: Crossing, slot: int) -> tuple[Crossing, int, Hold]:
        """Return a crossing of rows sent in an earlier epoch, its bytes, and the memory then."""
        staleness = self._now.staleness
        size, under_way = staleness.receive(crossing.way(what), slot)
        if size:
            crossing = replace(crossing, sent_in=self._now.epoch - staleness.delay)
        return crossing, size or 0, self._hold_under_way(slot, under_way)

    def _send(self, what: PeerData, crossing: Crossing, slot: int, size: int) -> Hold:
        """Return the memory once ``size`` bytes are in flight to ``slot``."""
        return self._hold_under_way(slot, self._now.staleness.send(crossing.way(what), slot, size))

    def _hold_under_way(self, slot: int, size: int) -> Hold:
        return Hold(self._frame.trainers[slot].name, "rows under way", size)

    def _take_rows(
        self, crossing: Crossing, inputs: Buffer, under_way: Buffer, arrived: Buffer
    ) -> Iterator[Item]:
        """Put rows that were sent in an earlier epoch, and have arrived, among a unit's inputs."""
        taken, size, held = self._receive("rows", crossing, crossing.slot)
        yield held
        if size:
            device = self._frame.trainers[crossing.slot].name
            row_bytes = self._frame.layers[crossing.number].in_features * self._frame.itemsize
            # An average takes two reads and a write of each element.
            passes = 3 if self._now.staleness.decay("rows") else 1
            yield Step(
                TakeRows(taken),
                "transfer",
                "take rows that arrived",
                Place(device, (device,), crossing.slot),
                CopyWork(passes * size, size // row_bytes),
                crossing.number,
                self._now.round,
                access=Access((self._now.meeting, under_way), (inputs,), (arrived,)),
            )

    def _send_rows(
        self, crossing: Crossing, shard: Buffer, under_way: Buffer, sends: Buffer
    ) -> Iterator[Item]:
        """Send a unit rows of a peer that it reads in a later epoch; nothing waits for them."""
        size = 0
        if crossing.picked.rows:
            width = self._frame.layers[crossing.number].in_features
            step = self._exchange(SendRows(crossing), crossing, width, push=False)
            yield step.over((self._now.meeting, shard), (under_way, sends))
            size = len(crossing.picked.here) * width * self._frame.itemsize
        yield self._send("rows", crossing, crossing.slot, size)

    # ------------------------------------------------------------------ gradients

    def return_to_shards(
        self, number: int, unit: ShardUnit, rows: Buffer, below: list[Buffer], after: Buffer
    ) -> Iterator[Item]:
        """Yield the transfers of a unit's input gradients to the owners of the rows.

        For rows that do not cross, the gradient that was sent last counts again. For delayed
        gradients, the one that has arrived counts.
        """
        width, slot = self._frame.layers[number].in_features, unit.slot
        turn, sends = Buffer("requests"), Buffer("sends")
        for read in unit.reads_at(number):
            shard = below[read.slot]
            chosen = self._choose(number, "gradients", slot, read)
            crossing = Crossing(number, self._now.round, slot, read, chosen)
            if read.slot != slot and self._now.staleness.delays("gradients"):
                taken, arrived, held = self._receive("gradients", crossing, read.slot)
                yield held
                if len(read.there):
                    kept = np.arange(len(read.there))
                    averaged = arrived if self._now.staleness.decay("gradients") else 0
                    step = self._add_kept(taken, kept, width, averaged)
                    yield step.over((self._now.meeting,), adds=(shard, after))
                size = 0
                if crossing.picked.rows:
                    operation = SendGradients(crossing)
                    step = self._exchange(operation, crossing, width, push=True)
                    yield step.over((rows,), (sends,))
                    size = len(crossing.picked.there) * width * self._frame.itemsize
                yield self._send("gradients", crossing, read.slot, size)
                continue
            if crossing.picked.rows:
                step = self._exchange(ReturnGradients(crossing), crossing, width, push=True)
                yield step.over((rows,), (turn,), (shard, after))
            if read.slot != slot and self._now.staleness.keeps("gradients"):
                kept = np.flatnonzero(~read.mark(chosen))
                if len(kept):
                    step = self._add_kept(crossing, kept, width)
                    yield step.over((rows,), (turn,), (shard, after))

    def _add_kept(self, crossing: Crossing, kept: IntArray, width: int, averaged: int = 0) -> Step:
        """Return the addition to a shard of gradients that its device has ``kept`` of a unit.

        Before the addition, ``averaged`` bytes that have arrived are averaged with them.
        """
        device = self._frame.trainers[crossing.read.slot].name
        # Both the addition and the average read each element twice and write it once.
        size = 3 * (len(kept) * width * self._frame.itemsize + averaged)
        return Step(
            AddStaleGradients(crossing, kept),
            "aggregate",
            "add stale gradients",
            Place(device, (device,), crossing.read.slot),
            CopyWork(size, len(kept)),
            crossing.number,
            self._now.round,
        )
