"""Synchronisation: the trainers' gradients are averaged, and the model is updated."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from gnnbench.lowering.frame import Frame, RoundFrame
from gnnbench.lowering.memory import ADAM_ARRAYS, compute_resource
from gnnbench.lowering.rounds import SYNCHRONISE, RoundUnderWay
from gnnbench.machines.machine import Device
from gnnbench.program import Access, Buffer, Counts, Item, Place, Section, Step
from gnnbench.records import CopyWork


class UpdateModel(NamedTuple):
    """The sum of the gradients of all replicas, and the optimiser's step of every replica."""


class GatherGradients(NamedTuple):
    """The transfer of a trainer's gradients to the host."""

    slot: int


class AverageGradients(NamedTuple):
    """The average of the gathered gradients of a round's trainers, and the optimiser's step."""

    round: int
    slots: tuple[int, ...]


class Reduction:
    """All-reduces of gradients between a run's trainers, in a ring or by way of their hosts."""

    def __init__(self, frame: Frame, *, ring: bool) -> None:
        self._frame = frame
        self.ring = ring

    def size(self, size_bytes: int) -> int:
        """Return the bytes that an all-reduce of ``size_bytes`` moves for a device.

        In a ring of m devices each sends 2 (m-1)/m of them. Elsewhere a device sends them to its
        host and receives them back.
        """
        m = len(self._frame.trainers)
        return 2 * (m - 1) * size_bytes // m if self.ring else 2 * size_bytes

    def count(self, size_bytes: int, slots: Collection[int]) -> int:
        """Return the bytes that an all-reduce of ``size_bytes`` moves for the devices ``slots``.

        Transfers between hosts count for the first device of each host but the first.
        """
        if len(self._frame.trainers) == 1:
            return 0
        moved = self.size(size_bytes) * len(slots)
        if not self.ring:
            moved += 2 * size_bytes * self.count_abroad(slots)
        return moved

    def count_abroad(self, slots: Collection[int]) -> int:
        """Return how many of ``slots`` are the first device of a host other than the first."""
        return len({self._frame.hosts.index(host) for host in self.other_hosts} & {*slots})

    @property
    def other_hosts(self) -> list[Device]:
        """The hosts other than the first to which trainers belong."""
        return [host for host in self._frame.platform.other_hosts if host in self._frame.hosts]

    def make_step(
        self, one: Device, other: Device, moved: int, index: int, after: Buffer, into: Buffer
    ) -> Step:
        """Return an all-reduce's transfer of ``moved`` bytes between two devices."""
        return Step(
            None,
            "synchronize",
            "all-reduce gradients",
            self._frame.find_route(one, other),
            CopyWork(moved),
            round=index,
            counts=Counts((("all_reduce", moved),)),
            access=Access((after,), adds=(into,)),
        )

    def synchronise(self, after: Buffer, index: int) -> Iterator[Step]:
        """Yield the all-reduce of all gradients among the devices, and every replica's update."""
        frame, ring = self._frame, self.ring
        devices, platform, size = frame.trainers, frame.platform, frame.setting.parameter_bytes
        reduced = Buffer("averaged gradients")
        if len(devices) > 1:
            others = [] if ring else self.other_hosts
            # If hosts add up gradients, each other host sends its sum to the first host.
            gathered = Buffer("gradients of a node") if others else reduced
            for slot, device in enumerate(devices):
                peer = devices[(slot + 1) % len(devices)] if ring else frame.hosts[slot]
                yield self.make_step(device, peer, self.size(size), index, after, gathered)
            for host in others:
                yield self.make_step(host, platform.host, 2 * size, index, gathered, reduced)
        yield Step(
            UpdateModel(),
            "synchronize",
            "average and step",
            Place(devices[0].name, (devices[0].name,)),
            CopyWork(bytes=ADAM_ARRAYS * size),
            round=index,
            access=Access((reduced,) if len(devices) > 1 else (after,)),
        )


class Averaging:
    """The synchronisation stage of a round.

    ``averaged_bytes`` is the size of the gradients that are averaged, and ``stepped_bytes`` the
    size of the parameters that are updated in one place.
    """

    def __init__(
        self, frame: RoundFrame, reduction: Reduction, averaged_bytes: int, stepped_bytes: int
    ) -> None:
        self._frame = frame
        self._reduction = reduction
        self._averaged_bytes = averaged_bytes
        self._stepped_bytes = stepped_bytes

    def synchronise(self, round_: RoundUnderWay) -> Iterator[Item]:
        """Yield the averaging of gradients and the update of every trainer's model.

        A trainer's gradients are weighted by its share of the round's seeds, so the sum over
        trainers is the average. The synchroniser on the host gathers every accelerator's gradients
        over its link, averages, and sends the average back (HyScale-GNN Equation 13). Gradients of
        other nodes go by way of their hosts. Elsewhere a ring reduces the gradients.
        """
        yield Section(round_.index, (SYNCHRONISE, 0))
        if self._reduction.ring and len(self._frame.trainers) > 1:
            yield from self._average_in_ring(round_)
        else:
            yield from self._average_on_host(round_)

    def count_reduced(self, size_bytes: int, slots: Collection[int]) -> int:
        """Return the bytes that averaging a tensor of ``size_bytes`` moves for devices ``slots``.

        Gradients cross to the devices' hosts and back, and between hosts, or go round a ring.
        """
        if self._reduction.ring:
            return self._reduction.count(size_bytes, slots)
        crossing = self._reduction.count_abroad(slots)
        if self._gathers:
            crossing += len(set(self._frame.accelerator_slots).intersection(slots))
        return 2 * size_bytes * crossing

    @property
    def _gathers(self) -> bool:
        """Whether gradients are brought to the host, which updates the model."""
        return len(self._frame.trainers) > 1 or self._frame.host_takes_loss

    def _average_in_ring(self, round_: RoundUnderWay) -> Iterator[Step]:
        """Yield a ring all-reduce, after which every trainer updates its own model."""
        frame, index, reduced = self._frame, round_.index, Buffer("averaged gradients")
        moved = self._reduction.size(self._averaged_bytes)
        for slot, device in enumerate(frame.trainers):
            neighbour = frame.trainers[(slot + 1) % len(frame.trainers)]
            step = self._reduction.make_step(
                device, neighbour, moved, index, round_.buffers.gradients, reduced
            )
            yield self._take_part(step, round_, slot)
        held = (compute_resource(each, frame.platform.host, "update") for each in frame.trainers)
        place = Place(frame.trainers[0].name, tuple(name for names in held for name in names))
        moved = ADAM_ARRAYS * self._stepped_bytes
        yield self._make_average(round_, place, moved, reduced, round_.buffers.over)

    @staticmethod
    def _take_part(step: Step, round_: RoundUnderWay, slot: int) -> Step:
        """Return a step with a trainer's gradients; a trainer without seeds sends zeros."""
        if slot not in round_.seconds.train:
            return step
        return step._replace(
            operation=GatherGradients(slot), place=step.place._replace(device=slot)
        )

    def _make_average(
        self, round_: RoundUnderWay, place: Place, moved: int, ready: Buffer, averaged: Buffer
    ) -> Step:
        """Return the average of the gathered gradients, with the optimiser's step."""
        return Step(
            AverageGradients(round_.index, tuple([unit.slot for unit in round_.units])),
            "synchronize",
            "average and step",
            place,
            CopyWork(moved, self._averaged_bytes // self._frame.itemsize),
            round=round_.index,
            access=Access((ready,), adds=(averaged,)),
        )

    def _average_on_host(self, round_: RoundUnderWay) -> Iterator[Step]:
        """Yield the averaging by the synchroniser, or the update of the only trainer's model."""
        frame, index, host = self._frame, round_.index, self._frame.platform.host
        moved = self._added_bytes(len(round_.units)) + ADAM_ARRAYS * self._stepped_bytes
        held = (f"{host.name}.synchronise",)
        if not self._gathers:
            place = Place(frame.trainers[0].name, held)
            yield self._make_average(
                round_, place, moved, round_.buffers.gradients, round_.buffers.over
            )
            return
        ready, averaged = Buffer("gathered gradients"), Buffer("average")
        others = self._reduction.other_hosts
        nodes = {other: Buffer("gradients of a node") for other in others}
        for slot in frame.accelerator_slots:
            device, there = frame.trainers[slot], frame.hosts[slot]
            into = nodes.get(there, ready)
            label = "gather gradients"
            step = self._send_model(device, there, label, index, round_.buffers.gradients, into)
            yield self._take_part(step, round_, slot)
        for other, gathered in nodes.items():
            yield from self._send_sum(other, gathered, index, ready)
        yield self._make_average(round_, Place(host.name, held), moved, ready, averaged)
        # The step has brought the average to the accelerators that exist here.
        arrived = {host: averaged}
        for other in others:
            arrived[other] = Buffer("average on a node")
            into, label = arrived[other], "scatter gradients"
            yield self._send_model(host, other, label, index, averaged, into)
        for slot in frame.accelerator_slots:
            device, near = frame.trainers[slot], frame.hosts[slot]
            ready, over = arrived[near], round_.buffers.over
            yield self._send_model(near, device, "scatter gradients", index, ready, over)

    def _send_sum(
        self, host: Device, gathered: Buffer, index: int, ready: Buffer
    ) -> Iterator[Step]:
        """Yield the sum of a node's gradients on its host, and its transfer to the first host."""
        size, added = self._averaged_bytes, Buffer("sum of a node")
        yield Step(
            None,
            "synchronize",
            "add up gradients",
            Place(host.name, (f"{host.name}.synchronise",)),
            CopyWork(
                bytes=self._added_bytes(self._frame.hosts.count(host)),
                rows=size // self._frame.itemsize,
            ),
            round=index,
            access=Access((gathered,), (added,)),
        )
        there = self._frame.platform.host
        yield self._send_model(host, there, "gather gradients", index, added, ready)

    def _added_bytes(self, count: int) -> int:
        """Return the bytes that are read and written to add up ``count`` trainers' gradients."""
        return (count + 1) * self._averaged_bytes if count > 1 else 0

    def _send_model(
        self,
        source: Device,
        target: Device,
        label: str,
        index: int,
        ready: Buffer,
        there: Buffer,
    ) -> Step:
        """Return a transfer of all gradients between an accelerator and a host, or two hosts."""
        work = CopyWork(self._averaged_bytes)
        step = self._frame.cross(source, target, index, label, work, "all_reduce")
        return step._replace(stage="synchronize", access=Access((ready,), adds=(there,)))
