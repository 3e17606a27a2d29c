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

from gnnbench.program import Collective, Item, Step
from gnnbench.program.reader import Bodies
from gnnbench.program.recorder import Recorder
from gnnbench.records import BYTE_KINDS, ByteKind, EpochTrace, count_moved
from gnnbench.run.arrivals import Arrivals
from gnnbench.run.collectives import Processes


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

    def __call__(self, operation: object) -> None:
        """Do the operation, within this rank or by a message."""
        if self.within is not None:
            self.within(operation)
        else:
            self.receive(self.send(operation), operation)


@dataclass(frozen=True, slots=True)
class HostTransfer:
    """The body of a step between a device and the host, if every rank has some of the host's rows.

    ``within`` moves the rows of the device's own rank. ``count`` has the number of elements in each
    other rank. These elements go to the other ranks or come from them. ``send`` returns them, and
    ``receive`` puts them in place. Both receive the rank that has the rows before the operation.
    """

    within: Callable[..., None]
    count: Callable[..., Mapping[int, int]]
    send: Callable[..., Tensor]
    receive: Callable[..., None]
    to_host: bool = False

    def __call__(self, operation: object) -> None:
        """Do the operation within this rank."""
        self.within(operation)


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


class Messages(NamedTuple):
    """The messages that this rank sends or receives in a step, and its own part ``within``."""

    messages: Sequence[Message]
    within: Callable[[], None] | None


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
        return {**bodies, Messages: self._pass_on}

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
                yield self._prepare(item)
            else:
                yield item

    def _prepare(self, step: Step) -> Step:
        """Return a step reduced to the part that this rank does and counts."""
        operation, device, source = step.operation, step.place.device, step.place.source
        body = self._bodies.get(type(operation))
        here, there = self.processes.rank, None if device is None else self.ranks[device]
        self._takers.append(there)
        messages: list[Message] = []
        if isinstance(body, Transfer) and source is not None and there is not None:
            if self.ranks[source] != there:
                messages = [self._message_of(step, body)]
        elif isinstance(body, HostTransfer) and there is not None:
            messages = self._list_messages(operation, body, there)
        within = there in (None, here) and not (messages and isinstance(body, Transfer))
        sends = any(m.source == here for m in messages)
        self._needs = operation is not None and (within or sends)
        mine = [each for each in messages if here in (each.source, each.target)]
        done: object = operation if within else None
        if mine:
            own = partial(self._bodies[type(operation)], operation) if within else None
            done = Messages(mine, own)
        # Messages are counted when they are sent, and an all-reduce when it is done.
        counted = there == here or (there is None and not here)
        counts = step.counts
        if not counted or (messages and isinstance(body, Transfer)) or self._is_reduced(step):
            counts = counts._replace(moves=())
        return step._replace(operation=done, counts=counts)

    @staticmethod
    def _is_reduced(step: Step) -> bool:
        moves = step.counts.moves
        return step.place.source is None and any(kind == "all_reduce" for kind, _ in moves)

    def _message_of(self, step: Step, body: Transfer) -> Message:
        """Return the message of a step between two devices."""
        _, _, device, source = step.place
        if source is None or device is None:
            raise TypeError(f"a step between ranks needs both of its devices: {step.label!r}")
        return Message(
            self.ranks[source],
            self.ranks[device],
            count_moved(step.work) // self._dtype.itemsize,
            tuple([kind for kind, _ in step.counts.moves]),
            partial(body.send, step.operation),
            partial(_receive, body.receive, step.operation),
        )

    @staticmethod
    def _list_messages(operation: object, body: HostTransfer, device: int) -> list[Message]:
        """Return the messages between the ranks of the host's rows and a ``device``'s rank."""
        return [
            Message(
                device if body.to_host else rank,
                rank if body.to_host else device,
                count,
                (),
                partial(body.send, rank, operation),
                partial(_receive, body.receive, rank, operation),
            )
            for rank, count in body.count(operation).items()
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

    def _pass_on(self, operation: Messages) -> None:
        """Send the messages that leave in the current step, and await those that come."""
        processes, number = self.processes, self._number
        for each in operation.messages:
            if each.source == processes.rank:
                processes.send(self._take_out(each), each.target, number)
            else:
                pending = processes.receive(each.elements, self._dtype, each.source, number)
                self.arrivals.add(number, pending, each.receive)
        if operation.within is not None:
            operation.within()
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
            body = self._bodies[type(step.operation)]
            if not isinstance(body, Transfer):
                raise TypeError(f"a step between ranks needs a body in two halves: {step.label!r}")
            message = self._message_of(step, body)
            self._takers.append(message.target)
            self._needs = message.source == here
            own = message.source == message.target == here
            yield (
                step
                if own
                else step._replace(operation=None, counts=step.counts._replace(moves=()))
            )
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


def _receive(receive: Callable[..., None], *arguments: object) -> None:
    """Call ``receive`` with the tensor, the last argument, before the others."""
    *others, part = arguments
    receive(part, *others)
