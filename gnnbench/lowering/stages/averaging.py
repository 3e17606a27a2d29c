"""Synchronisation: the trainers' gradients are averaged, and the model is updated."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from gnnbench.lowering.frame import Frame, RoundFrame
from gnnbench.lowering.memory import ADAM_ARRAYS, compute_resource
from gnnbench.lowering.rounds import SYNCHRONISE, RoundUnderWay
from gnnbench.machines.machine import Device
from gnnbench.program import Buffer, Item, Section, Step
from gnnbench.records import CopyWork


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
        route, work = self._frame.platform.route(one, other), CopyWork(bytes=moved)
        step = Step("", (), "synchronize", "all-reduce gradients", route.place, route.lanes, work)
        step.round, step.reads, step.adds = index, (after,), (into,)
        step.moves = (("all_reduce", moved),)
        return step

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
            "step",
            (),
            "synchronize",
            "average and step",
            devices[0].name,
            (devices[0].name,),
            CopyWork(bytes=ADAM_ARRAYS * size),
            round=index,
            reads=(reduced,) if len(devices) > 1 else (after,),
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
                device, neighbour, moved, index, round_.gradients, reduced
            )
            if slot in round_.train_s:  # a trainer without seeds sends zeros
                step.op, step.operands, step.device = "gather", (slot,), slot
            yield step
        step = self._make_average(round_, frame.trainers[0], reduced, round_.over)
        step.work = step.work._replace(bytes=ADAM_ARRAYS * self._stepped_bytes)
        held = (compute_resource(each, frame.platform.host, "update") for each in frame.trainers)
        step.resources = tuple(name for names in held for name in names)
        yield step

    def _make_average(
        self, round_: RoundUnderWay, place: Device, ready: Buffer, averaged: Buffer
    ) -> Step:
        """Return the average of the gathered gradients, with the optimiser's step."""
        size, count = self._averaged_bytes, len(round_.units)
        moved = self._added_bytes(count) + ADAM_ARRAYS * self._stepped_bytes
        return Step(
            "average",
            (round_.index, tuple([unit.slot for unit in round_.units])),
            "synchronize",
            "average and step",
            place.name,
            (f"{self._frame.platform.host.name}.synchronise",),
            CopyWork(bytes=moved, rows=size // self._frame.itemsize),
            round=round_.index,
            reads=(ready,),
            adds=(averaged,),
        )

    def _average_on_host(self, round_: RoundUnderWay) -> Iterator[Step]:
        """Yield the averaging by the synchroniser, or the update of the only trainer's model."""
        frame, index, host = self._frame, round_.index, self._frame.platform.host
        if not self._gathers:
            yield self._make_average(round_, frame.trainers[0], round_.gradients, round_.over)
            return
        ready, averaged = Buffer("gathered gradients"), Buffer("average")
        others = self._reduction.other_hosts
        nodes = {other: Buffer("gradients of a node") for other in others}
        for slot in frame.accelerator_slots:
            device, there = frame.trainers[slot], frame.hosts[slot]
            into = nodes.get(there, ready)
            step = self._send_model(device, there, "gather gradients", index, into)
            step.reads = (round_.gradients,)
            if slot in round_.train_s:  # a trainer without seeds sends zeros
                step.op, step.operands, step.device = "gather", (slot,), slot
            yield step
        for other, gathered in nodes.items():
            yield from self._send_sum(other, gathered, index, ready)
        yield self._make_average(round_, host, ready, averaged)
        # The step has brought the average to the accelerators that exist here.
        arrived = {host: averaged}
        for other in others:
            arrived[other] = Buffer("average on a node")
            step = self._send_model(host, other, "scatter gradients", index, arrived[other])
            step.reads = (averaged,)
            yield step
        for slot in frame.accelerator_slots:
            device, there = frame.trainers[slot], frame.hosts[slot]
            step = self._send_model(there, device, "scatter gradients", index, round_.over)
            step.reads = (arrived[there],)
            yield step

    def _send_sum(
        self, host: Device, gathered: Buffer, index: int, ready: Buffer
    ) -> Iterator[Step]:
        """Yield the sum of a node's gradients on its host, and its transfer to the first host."""
        size, added = self._averaged_bytes, Buffer("sum of a node")
        yield Step(
            "",
            (),
            "synchronize",
            "add up gradients",
            host.name,
            (f"{host.name}.synchronise",),
            CopyWork(
                bytes=self._added_bytes(self._frame.hosts.count(host)),
                rows=size // self._frame.itemsize,
            ),
            round=index,
            reads=(gathered,),
            writes=(added,),
        )
        there = self._frame.platform.host
        step = self._send_model(host, there, "gather gradients", index, ready)
        step.reads = (added,)
        yield step

    def _added_bytes(self, count: int) -> int:
        """Return the bytes that are read and written to add up ``count`` trainers' gradients."""
        return (count + 1) * self._averaged_bytes if count > 1 else 0

    def _send_model(
        self, source: Device, target: Device, label: str, index: int, there: Buffer
    ) -> Step:
        """Return a transfer of all gradients between an accelerator and a host, or two hosts."""
        work = CopyWork(bytes=self._averaged_bytes)
        step = self._frame.cross(source, target, index, label, work, "all_reduce")
        step.stage, step.adds = "synchronize", (there,)
        return step
