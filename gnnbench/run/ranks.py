"""The execution of a program by one of several ranks: its own devices' steps and transfers.

It knows no strategy. All ranks read the same items in the same order. A step belongs to the rank
that has its device, and the others record it without its body. Every rank does a step without a
device for its own devices. A transfer between ranks is sent where its source is and received where
its target is, matched by the step's number in the epoch. A collective is one of the process group.

No rank blocks where it reads a transfer. Arriving data is put in place in the order of the program,
just before the first step here that waits for it. A rank thus waits only for steps that come
earlier in the program. So no two ranks wait for each other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from gnnbench.machines.machine import Device, Platform
from gnnbench.program import Collective, Item, Step
from gnnbench.records import BYTE_KINDS, ByteKind, EpochTrace
from gnnbench.run.arrivals import Arrivals
from gnnbench.run.collectives import Processes
from gnnbench.run.execute import Bodies
from gnnbench.run.recorder import Recorder

#: The operation of a step in which this rank sends or receives something.
MESSAGES = "messages"


@dataclass(frozen=True, slots=True)
class Transfer:
    """The body of a step between two devices, in halves.

    ``send`` returns the tensor at the source, and nothing may write to it any more. ``receive``
    takes it first at the target, flat or in its shape. If both devices are in this process, one
    half follows the other, or ``within`` does both.
    """

    send: Callable[..., Tensor]
    receive: Callable[..., None]
    within: Callable[..., None] | None = None

    def __call__(self, *operands: object) -> None:
        """Move the operands, within this rank or by a message."""
        if self.within is not None:
            self.within(*operands)
        else:
            self.receive(self.send(*operands), *operands)


@dataclass(frozen=True, slots=True)
class HostTransfer:
    """The body of a step between a device and the host, if every rank has some of the host's rows.

    ``within`` moves the rows of the device's own rank. ``count`` has the number of elements in each
    other rank. These elements go to the other ranks or come from them. ``send`` returns them, and
    ``receive`` puts them in place. The rank that has the rows is the first operand of both.
    """

    within: Callable[..., None]
    count: Callable[..., Mapping[int, int]]
    send: Callable[..., Tensor]
    receive: Callable[..., None]
    to_host: bool = False

    def __call__(self, *operands: object) -> None:
        """Move the operands within this rank."""
        self.within(*operands)


class Message(NamedTuple):
    """A message of ``elements`` elements from one rank to another, of bytes of these ``kinds``.

    ``send`` returns them at the source, and ``receive`` takes them at the target.
    """

    source: int
    target: int
    elements: int
    kinds: tuple[ByteKind, ...]
    send: Callable[[], Tensor]
    receive: Callable[[Tensor], None]


def assign_ranks(trainers: Sequence[Device], platform: Platform) -> tuple[int, ...]:
    """Return the rank that has each device, by device index.

    Each device has a rank, except a host that trains beside accelerators. That host shares the rank
    of the first accelerator that belongs to it, unless it is made of separate cores.
    """
    if platform.host.pinned and not platform.shares_cores:
        return tuple(range(len(trainers)))
    hosts = {host.name for host in platform.hosts}
    if all(device.name in hosts for device in trainers):
        return tuple(range(len(trainers)))
    ranks, first = [], dict[str, int]()
    others = [device for device in trainers if device.name not in hosts]
    for rank, device in enumerate(others):
        first.setdefault(platform.host_of(device).name, rank)
    for device in trainers:
        shared = first.get(device.name, 0)
        ranks.append(shared if device.name in hosts else others.index(device))
    return tuple(ranks)


class Rank:
    """One process among others; ``ranks`` names the rank of each device, by device index.

    ``bodies`` execute the items that ``take`` yields, once ``equip`` has made them. Before each
    step a reader calls ``arrive`` with the steps that it waits for. Messages are of ``dtype``.
    """

    def __init__(
        self,
        processes: Processes,
        recorder: Recorder,
        dtype: torch.dtype,
        ranks: Sequence[int],
    ) -> None:
        self.processes = processes
        self.ranks = tuple(ranks)
        self._dtype = dtype
        self._recorder = recorder
        self._bodies: Bodies = {}
        self.arrivals = Arrivals(recorder)
        self._start()

    def _start(self) -> None:
        #: By the number of a step, the rank that times it; None means the longest time.
        self._takers: list[int | None] = []
        self._number = -1
        #: Whether the next step needs here the data that it waits for.
        self._needs = False
        self.arrivals.start()

    def equip(self, bodies: Bodies) -> Bodies:
        """Return the bodies, with the body of messages added."""
        self._bodies = bodies
        return {**bodies, MESSAGES: self._pass_on}

    def has(self, slot: int) -> bool:
        """Return whether this process has a device."""
        return self.ranks[slot] == self.processes.rank

    def start_epoch(self) -> None:
        """Wait for the others, so that the times of all ranks are comparable."""
        self._start()
        with self._recorder.excluded():
            self.processes.sum(torch.zeros(1, dtype=torch.float64))

    # ------------------------------------------------------------------ items

    def take(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield the items, with the bodies of other ranks' steps removed."""
        for item in items:
            if isinstance(item, Collective):
                yield from self._take_together(item.steps)
            elif isinstance(item, Step):
                self._prepare(item)
                yield item
            else:
                yield item

    def _prepare(self, step: Step) -> None:
        """Reduce a step to what this rank does and counts."""
        body = self._bodies.get(step.op)
        here, there = self.processes.rank, None if step.device is None else self.ranks[step.device]
        self._takers.append(there)
        messages: list[Message] = []
        if isinstance(body, Transfer) and step.source is not None and there is not None:
            if self.ranks[step.source] != there:
                messages = [self._message_of(step, body)]
        elif isinstance(body, HostTransfer) and there is not None:
            messages = self._list_messages(step, body, there)
        within = there in (None, here) and not (messages and isinstance(body, Transfer))
        self._needs = bool(step.op) and (within or any(m.source == here for m in messages))
        mine = [each for each in messages if here in (each.source, each.target)]
        if mine:
            own = partial(self._bodies[step.op], *step.operands) if within else None
            step.op, step.operands = MESSAGES, (mine, own)
        elif not within:
            step.op = ""
        # Messages are counted when they are sent, and an all-reduce when it is done.
        counted = there == here or (there is None and not here)
        if not counted or (messages and isinstance(body, Transfer)) or self._is_reduced(step):
            step.moves = ()

    @staticmethod
    def _is_reduced(step: Step) -> bool:
        return step.source is None and any(kind == "all_reduce" for kind, _ in step.moves)

    def _message_of(self, step: Step, body: Transfer) -> Message:
        """Return the message of a step between two devices."""
        if step.source is None or step.device is None:
            raise TypeError(f"a step between ranks needs both of its devices: {step.op!r}")
        return Message(
            self.ranks[step.source],
            self.ranks[step.device],
            step.work.bytes // self._dtype.itemsize,
            tuple([kind for kind, _ in step.moves]),
            partial(body.send, *step.operands),
            partial(_receive, body.receive, step.operands),
        )

    @staticmethod
    def _list_messages(step: Step, body: HostTransfer, device: int) -> list[Message]:
        """Return the messages between the ranks of the host's rows and a ``device``'s rank."""
        return [
            Message(
                device if body.to_host else rank,
                rank if body.to_host else device,
                count,
                (),
                partial(body.send, rank, *step.operands),
                partial(_receive, body.receive, (rank, *step.operands)),
            )
            for rank, count in body.count(*step.operands).items()
            if count and rank != device
        ]

    def arrive(self, number: int, after: Sequence[int]) -> None:
        """Put in place the data that a step, which is about to be taken, waits for."""
        self._number = number
        self.arrivals.arrive(after, needed=self._needs)

    def settle(self) -> None:
        """Put in place all data that was sent here by the steps so far.

        A lowering needs this data before it lists the next steps.
        """
        self.arrivals.place(self._number)

    def _pass_on(self, messages: Sequence[Message], within: Callable[[], None] | None) -> None:
        """Send the messages that leave in the current step, and await those that come."""
        processes, number = self.processes, self._number
        for each in messages:
            if each.source == processes.rank:
                processes.send(self._take_out(each), each.target, number)
            else:
                pending = processes.receive(each.elements, self._dtype, each.source, number)
                self.arrivals.add(number, pending, each.receive)
        if within is not None:
            within()
        if processes.blocking:
            self.arrivals.place(number)

    def _take_out(self, message: Message) -> Tensor:
        """Return the elements of a message from here, ``(n,)``, and count them."""
        tensor = message.send().reshape(-1)
        if tensor.numel() != message.elements:
            raise ValueError(
                f"rank {message.source} would send {tensor.numel():,} elements to rank "
                f"{message.target} where the program says {message.elements:,}"
            )
        for kind in message.kinds:
            self._recorder.count_bytes(kind, tensor.numel() * tensor.element_size())
        return tensor

    # ------------------------------------------------------------------ collectives

    def _take_together(self, steps: Sequence[Step]) -> Iterator[Step]:
        """Yield steps between devices, and send their messages as one all-to-all between ranks."""
        here = self.processes.rank
        leaving: list[Message] = []
        coming: list[tuple[int, Message]] = []
        for step in steps:
            body = self._bodies[step.op]
            if not isinstance(body, Transfer):
                raise TypeError(f"a step between ranks needs a body in two halves: {step.op!r}")
            message = self._message_of(step, body)
            self._takers.append(message.target)
            self._needs = message.source == here
            if message.source != message.target or message.source != here:
                step.op, step.moves = "", ()
            yield step
            if message.source != message.target:
                if message.source == here:
                    leaving.append(message)
                elif message.target == here:
                    coming.append((self._number, message))
        self._send_all(leaving, coming)

    def _send_all(self, leaving: list[Message], coming: list[tuple[int, Message]]) -> None:
        size, device = self.processes.size, self.processes.device
        leaving.sort(key=lambda message: message.target)
        order = sorted(coming, key=lambda pair: pair[1].source)
        parts = [self._take_out(message) for message in leaving]
        sent = torch.cat(parts) if parts else torch.empty(0, dtype=self._dtype)
        counts = [0] * size, [0] * size
        for message in leaving:
            counts[0][message.target] += message.elements
        for _, message in order:
            counts[1][message.source] += message.elements
        pending = self.processes.all_to_all(sent.to(device), *counts)
        begins, begin = dict[int, int](), 0
        for number, message in order:
            begins[number], begin = begin, begin + message.elements
        for number, message in coming:
            begin = begins[number]
            part = pending.part(begin, begin + message.elements)
            self.arrivals.add(number, part, message.receive)
        if self.processes.blocking:
            self.arrivals.place(self._number)

    def reduce(self, values: Sequence[Tensor], count: Callable[[int], int]) -> list[Tensor]:
        """Return the sums of tensors over all ranks, equal to the bit in all ranks.

        ``count`` returns the bytes that an all-reduce of a size moves for the devices here.
        """
        flat = torch.cat([value.reshape(-1) for value in values])
        self._recorder.count_bytes("all_reduce", count(flat.numel() * flat.element_size()))
        found = self.processes.sum(flat)
        parts = torch.split(found, [value.numel() for value in values])
        return [part.view(value.shape) for part, value in zip(parts, values, strict=True)]

    def agree(self, times_s: Sequence[float]) -> list[float]:
        """Return the longest of each of these times over all ranks."""
        return self.processes.largest(torch.tensor(times_s, dtype=torch.float64)).tolist()

    def share(self, value: Tensor) -> Tensor:
        """Return the sum over all ranks of a tensor that the strategy itself does not move."""
        return self.processes.sum(value.reshape(-1)).view(value.shape)

    # ------------------------------------------------------------------ the end of an epoch

    def finish(self) -> None:
        """Put in place all data in flight: an epoch is over when everything has arrived."""
        self.arrivals.finish()
        self.processes.finish()

    def abandon(self) -> None:
        """Wait for all data in flight and drop it, when an epoch has ended early.

        It has ended in all ranks at the same step. The next epoch must not receive its messages.
        """
        self.arrivals.abandon()
        self.processes.finish()

    def merge(self, trace: EpochTrace) -> EpochTrace:
        """Return the epoch of all ranks, which lasts until the last rank has ended.

        Losses and bytes are added up. The rank that took a span gives its wall time; if each rank
        took its own part, the longest counts.
        """
        here, measured = self.processes.rank, self._recorder.measures
        numbers = self._recorder.list_numbers()
        starts, walls = [], []
        for number, span in zip(numbers, trace.spans, strict=True):
            taker = self._takers[number]
            starts.append(span.wall_start_s if here == (taker or 0) else 0.0)
            took_s = self.arrivals.lasted_s.get(number, span.wall_s)
            walls.append(took_s if taker in (None, here) else 0.0)
        losses = [trace.loss, *trace.round_losses]
        counted = [float(trace.bytes[kind]) for kind in BYTE_KINDS]
        values = torch.tensor([*losses, *counted, *starts], dtype=torch.float64)
        found = self.processes.sum(values).tolist()
        lasted = torch.tensor([trace.wall_s, trace.harness_s, *walls], dtype=torch.float64)
        whole_s, harness_s, *walls = self.processes.largest(lasted).tolist()
        losses, rest = found[: len(losses)], found[len(losses) :]
        counted, starts = rest[: len(BYTE_KINDS)], rest[len(BYTE_KINDS) :]
        spans = tuple(
            span._replace(
                wall_start_s=start_s, wall_s=wall_s, seconds=wall_s if measured else span.seconds
            )
            for span, start_s, wall_s in zip(trace.spans, starts, walls, strict=True)
        )
        return dataclasses.replace(
            trace,
            spans=spans,
            bytes={kind: int(size) for kind, size in zip(BYTE_KINDS, counted, strict=True)},
            loss=losses[0],
            round_losses=tuple(losses[1:]),
            wall_s=whole_s,
            harness_s=harness_s,
        )


def _receive(receive: Callable[..., None], operands: tuple[object, ...], part: Tensor) -> None:
    receive(part, *operands)
