"""How a round's gradients are averaged over its trainers, and the model is updated."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from gnnbench.lowering.input_rows import InputRows
from gnnbench.lowering.memory import ADAM_ARRAYS, compute_resource
from gnnbench.lowering.rounds import SYNCHRONISE, RoundUnderWay
from gnnbench.parts import RingReduction
from gnnbench.platforms.machine import Device
from gnnbench.program import Buffer, Item, Section, Step
from gnnbench.records import Work


class AveragedGradients(InputRows):
    """Synchronisation of a round; see the module's docstring.

    ``_averaged_bytes`` is the size of the gradients that are averaged, and ``_stepped_bytes`` that
    of the parameters that are updated in one place.
    """

    _averaged_bytes: int
    _stepped_bytes: int

    def synchronise(self, round_: RoundUnderWay) -> Iterator[Item]:
        """Average the gradients weighted by seeds and update every trainer's model: each trainer's
        are of its seeds' share of the round's mean loss, so their sum is the average.

        The synchroniser on the host gathers every accelerator's gradients over its link, averages,
        and sends the average back (HyScale-GNN Equation 13); the round ends when all have it. That
        of another node is in between. Or the gradients go round a ring of the trainers.
        """
        yield Section(round_.index, (SYNCHRONISE, 0))
        if self._reduces_in_ring and len(self.trainers) > 1:
            yield from self._average_in_ring(round_)
        else:
            yield from self._average_on_host(round_)

    @property
    def _reduces_in_ring(self) -> bool:
        """Of mini-batches where the communication says so of them."""
        return isinstance(self.bundle.communication, RingReduction)

    def _average_in_ring(self, round_: RoundUnderWay) -> Iterator[Step]:
        """Every trainer sends 2 (m-1)/m of the gradients to its neighbour, has then the average,
        and updates its own model."""
        index, size, reduced = round_.index, self._averaged_bytes, Buffer("averaged gradients")
        for slot, device in enumerate(self.trainers):
            neighbour = self.trainers[(slot + 1) % len(self.trainers)]
            moved = self._reduced_bytes(size)
            step = self._reduce(device, neighbour, moved, index, round_.gradients, reduced)
            if slot in round_.train_s:  # one that got no seeds sends zeros
                step.op, step.operands, step.device = "gather", (slot,), slot
            yield step
        step = self._make_average(round_, self.trainers[0], reduced, round_.over)
        step.work = step.work._replace(bytes=ADAM_ARRAYS * self._stepped_bytes)
        held = (compute_resource(each, self.platform.host, "update") for each in self.trainers)
        step.resources = tuple(name for names in held for name in names)
        yield step

    def _make_average(
        self, round_: RoundUnderWay, place: Device, ready: Buffer, averaged: Buffer
    ) -> Step:
        """The average of what trainers have gathered, and the optimiser's step."""
        size, count = self._averaged_bytes, len(round_.units)
        moved = self._added_bytes(count) + ADAM_ARRAYS * self._stepped_bytes
        return Step(
            "average",
            (round_.index, tuple([unit.slot for unit in round_.units])),
            "synchronize",
            "average and step",
            place.name,
            (f"{self.platform.host.name}.synchronise",),
            Work("copy", bytes=moved, rows=size // self._itemsize),
            round=round_.index,
            reads=(ready,),
            adds=(averaged,),
        )

    def _average_on_host(self, round_: RoundUnderWay) -> Iterator[Step]:
        """By the synchroniser, or at once where there is one trainer that updates its model."""
        index, host = round_.index, self.platform.host
        alone = not self._gathers
        ready, averaged = round_.gradients, round_.over
        if not alone:
            ready, averaged = Buffer("gathered gradients"), Buffer("average")
            nodes = {other: Buffer("gradients of a node") for other in self._other_hosts}
            for slot in self.accelerator_slots:
                device, there = self.trainers[slot], self.hosts[slot]
                into = nodes.get(there, ready)
                step = self._send_model(device, there, "gather gradients", index, into)
                step.reads = (round_.gradients,)
                if slot in round_.train_s:  # one that got no seeds sends zeros
                    step.op, step.operands, step.device = "gather", (slot,), slot
                yield step
            for other, gathered in nodes.items():
                yield from self._send_sum(other, gathered, index, ready)
        yield self._make_average(round_, self.trainers[0] if alone else host, ready, averaged)
        # The step has brought the average to the accelerators that exist here.
        arrived = {host: averaged}
        for other in () if alone else self._other_hosts:
            arrived[other] = Buffer("average on a node")
            step = self._send_model(host, other, "scatter gradients", index, arrived[other])
            step.reads = (averaged,)
            yield step
        for slot in () if alone else self.accelerator_slots:
            device, there = self.trainers[slot], self.hosts[slot]
            step = self._send_model(there, device, "scatter gradients", index, round_.over)
            step.reads = (arrived[there],)
            yield step

    def count_reduced(self, size_bytes: int, slots: Collection[int]) -> int:
        """What the averaging of a tensor of so many bytes moves for the devices ``slots``: to their
        hosts and back, and between the first host and those that others belong to, or in a ring."""
        if self._reduces_in_ring:
            return super().count_reduced(size_bytes, slots)
        crossing = len(self._first_abroad.intersection(slots))
        if self._gathers:
            crossing += len(set(self.accelerator_slots).intersection(slots))
        return 2 * size_bytes * crossing

    @property
    def _gathers(self) -> bool:
        """Whether gradients are brought to the host, which updates the model."""
        return len(self.trainers) > 1 or self._host_takes_loss

    @property
    def _other_hosts(self) -> list[Device]:
        """Those beside the first that trainers belong to."""
        return [host for host in self.platform.other_hosts if host in self.hosts]

    def _send_sum(
        self, host: Device, gathered: Buffer, index: int, ready: Buffer
    ) -> Iterator[Step]:
        """What a node's trainers have sent its host, added up, to the first host."""
        size, added = self._averaged_bytes, Buffer("sum of a node")
        yield Step(
            "",
            (),
            "synchronize",
            "add up gradients",
            host.name,
            (f"{host.name}.synchronise",),
            Work(
                "copy",
                bytes=self._added_bytes(self.hosts.count(host)),
                rows=size // self._itemsize,
            ),
            round=index,
            reads=(gathered,),
            writes=(added,),
        )
        step = self._send_model(host, self.platform.host, "gather gradients", index, ready)
        step.reads = (added,)
        yield step

    def _added_bytes(self, count: int) -> int:
        """What is read and written to add up so many trainers' gradients."""
        return (count + 1) * self._averaged_bytes if count > 1 else 0

    def _send_model(
        self, source: Device, target: Device, label: str, index: int, there: Buffer
    ) -> Step:
        """One model's worth of gradients between an accelerator and its host, or two hosts."""
        work = Work("copy", bytes=self._averaged_bytes)
        step = self._cross(source, target, index, label, work, "all_reduce")
        step.stage, step.adds = "synchronize", (there,)
        return step
