"""Ranks of one machine that send each other tensors through shared memory.

A message is copied into memory of the sender. An entry in the sender's mailbox for the receiver
says where it is, and the receiver copies it out. So a transfer costs one copy at each end, and
needs no other process or thread. Nothing of it is left when a rank has ended in any way. Sums over
all ranks go the same way. Through the process group each sum takes some milliseconds, because the
group's threads run on the core of the rank that waits for them.

Messages from one rank to another are sent and awaited in the order of the program, so the next
entry is always the awaited one. Messages of sums have separate mailboxes.

A limited link really takes as long as its bandwidth says. The sender computes the moment at which a
message has crossed, and a receiver that needs it sleeps until then.
"""

from __future__ import annotations

import mmap
import os
import platform
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import TypeVar

import torch
from torch import Tensor
from torch import distributed as group

from gnnbench.constants import Bound
from gnnbench.host.rank import PATIENCE_S
from gnnbench.machines.machine import Platform
from gnnbench.run.arrivals import Lanes, Until
from gnnbench.run.collectives import Pending, Processes, Store

Found = TypeVar("Found")

#: Bytes of a piece before the message; the first byte says whether the message is still wanted.
HEADER: Bound[int] = 64
#: The least memory for a message: small ones share pieces of one size.
SMALLEST: Bound[int] = 1 << 16
#: The most messages that may be in flight between two ranks.
ENTRIES: Bound[int] = 1 << 14
#: How long a receiver looks for an entry before it yields its core, and then between two
#: looks; a sleep takes some 0.1 ms.
SPIN_S: Bound[float] = 2e-4
LOOK_S: Bound[float] = 5e-5
#: Between two checks whether a rank that is waited for is still there.
ALIVE_S: Bound[float] = 0.2
#: Tags of steps are below this number, and tags of collectives from it on.
FIRST_COLLECTIVE: Bound[int] = 1 << 30
#: Processors that show writes to memory to others in their order, as entries require.
ORDERED = ("x86_64", "AMD64")


def can_share_memory() -> bool:
    """Return whether this system has what this module needs."""
    return platform.machine() in ORDERED and hasattr(os, "memfd_create")


def make_processes(described: Platform) -> Callable[[Store, float], Processes]:
    """Return the class of a platform's ranks: devices made of cores share memory if they can."""
    if any(device.pinned for device in described.accelerators) and can_share_memory():
        return partial(MemoryProcesses, described)
    return Processes


class Piece:
    """Memory that this process and another one share; ``file`` is its number in the owner's."""

    def __init__(self, file: int, memory: mmap.mmap) -> None:
        self.file = file
        self._memory = memory

    @classmethod
    def make(cls, payload_bytes: int) -> Piece:
        """Make a new piece for at least ``payload_bytes`` bytes."""
        size = SMALLEST
        while size < HEADER + payload_bytes:
            size *= 2
        file = os.memfd_create("gnnbench")
        os.ftruncate(file, size)
        return cls(file, mmap.mmap(file, size))

    @classmethod
    def open(cls, process: int, file: int) -> Piece:
        """Open a piece of another process."""
        opened = os.open(f"/proc/{process}/fd/{file}", os.O_RDWR)
        try:
            return cls(file, mmap.mmap(opened, os.fstat(opened).st_size))
        finally:
            os.close(opened)

    @property
    def payload_bytes(self) -> int:
        """The bytes without the header."""
        return len(self._memory) - HEADER

    @property
    def wanted(self) -> bool:
        """Whether a receiver has yet to read its contents."""
        return self._memory[0] != 0

    @wanted.setter
    def wanted(self, wanted: bool) -> None:
        self._memory[0] = int(wanted)

    def view(self, elements: int, dtype: torch.dtype) -> Tensor:
        """Return ``elements`` elements in place, ``(n,)``."""
        return torch.frombuffer(self._memory, dtype=dtype, count=elements, offset=HEADER)


class Mailbox:
    """One rank's entries about its messages to another, ``(ENTRIES, 3)``.

    An entry is the tag plus one, the file of the message, and the nanosecond at which it has
    crossed. A first value of 0 means that there is no entry.
    """

    def __init__(self, piece: Piece) -> None:
        self.file = piece.file
        self._entries = piece.view(3 * ENTRIES, torch.int64).view(ENTRIES, 3).numpy()
        self._next = 0

    @classmethod
    def make(cls) -> Mailbox:
        """Make an empty mailbox."""
        return cls(Piece.make(24 * ENTRIES))

    def post(self, tag: int, file: int, until_ns: int) -> bool:
        """Add an entry; return False while there is no room for one."""
        entry = self._entries[self._next % ENTRIES]
        if entry[0]:
            return False
        entry[1], entry[2] = file, until_ns
        entry[0] = tag + 1  # last: from now on the others may read it
        self._next += 1
        return True

    def take(self, tag: int) -> tuple[int, int] | None:
        """Return the next entry's file and moment, or None while there is none.

        Raises ``ValueError`` if the entry does not have the ``tag``.
        """
        entry = self._entries[self._next % ENTRIES]
        if not entry[0]:
            return None
        if entry[0] != tag + 1:
            raise ValueError(f"message {entry[0] - 1} has come where {tag} is waited for")
        found = int(entry[1]), int(entry[2])
        entry[0] = 0
        self._next += 1
        return found


class InMemory(Pending):
    """A tensor that another rank puts into its memory, and that is copied ``into`` this rank's."""

    def __init__(
        self, ranks: MemoryProcesses, boxes: Sequence[Mailbox], source: int, tag: int, into: Tensor
    ) -> None:
        self._ranks = ranks
        self._boxes = boxes
        self._source = source
        self._tag = tag
        self._into = into

    def part(self, begin: int, end: int) -> Pending:
        raise TypeError("a message is taken whole")

    def wait(self) -> Tensor:
        into = self._into
        file, until_ns = self._ranks.take(self._boxes, self._source, self._tag)
        Until(until_ns * 1e-9).wait()
        piece = self._ranks.open(self._source, file)
        into.copy_(piece.view(into.numel(), into.dtype))
        piece.wanted = False
        return into


class Gathered(Pending):
    """The messages of several ranks in one tensor, one after the other.

    A ``part`` of it is there when all of it is.
    """

    def __init__(self, parts: Sequence[InMemory], tensor: Tensor) -> None:
        self._parts = list(parts)
        self._all = tensor

    def part(self, begin: int, end: int) -> Pending:
        return _Part(self, begin, end)

    def wait(self) -> Tensor:
        while self._parts:
            self._parts.pop(0).wait()
        return self._all


class _Part(Pending):
    def __init__(self, whole: Gathered, begin: int, end: int) -> None:
        self._whole = whole
        self._range = slice(begin, end)

    def wait(self) -> Tensor:
        return self._whole.wait()[self._range]


class MemoryProcesses(Processes):
    """Ranks of one machine, each a device of a platform that is made of its cores."""

    def __init__(self, described: Platform, store: Store, patience_s: float = PATIENCE_S) -> None:
        super().__init__(store, patience_s)
        link = described.links[0]
        self._bytes_per_s = link.bandwidth_bytes_per_s if link.limited else float("inf")
        self.blocking = link.blocking
        self._lanes = Lanes()
        self._own: list[Piece] = []
        self._others: dict[tuple[int, int], Piece] = {}
        self._collectives = FIRST_COLLECTIVE
        #: The mailboxes to and from each rank: for messages, then for sums.
        self._outgoing = [Mailbox.make() for _ in range(self.size)]
        self._outgoing_sums = [Mailbox.make() for _ in range(self.size)]
        files = [box.file for box in (*self._outgoing, *self._outgoing_sums)]
        told: list[tuple[int, list[int]]] = [(0, [])] * self.size
        group.all_gather_object(told, (os.getpid(), files))
        self._ids = [process for process, _ in told]
        self._incoming, self._incoming_sums = (
            [Mailbox(Piece.open(each, boxes[number])) for each, boxes in told]
            for number in (self.rank, self.size + self.rank)
        )

    def send(self, tensor: Tensor, rank: int, tag: int) -> None:
        size_bytes = tensor.numel() * tensor.element_size()
        until_s = self._lanes.send(rank, size_bytes, self._bytes_per_s)
        self._post(self._outgoing, tensor, rank, tag, until_s)
        if self.blocking:
            Until(until_s).wait()

    def _post(
        self, boxes: Sequence[Mailbox], tensor: Tensor, rank: int, tag: int, until_s: float
    ) -> None:
        """Put a tensor where ``rank`` finds it; ``rank`` has it from ``until_s`` on."""
        source = tensor.reshape(-1)
        piece = self._take(source.numel() * source.element_size())
        piece.view(source.numel(), source.dtype).copy_(source)
        piece.wanted = True
        box, until_ns = boxes[rank], round(until_s * 1e9)
        self._look(f"sending to rank {rank}", rank, lambda: box.post(tag, piece.file, until_ns))

    def receive(self, elements: int, dtype: torch.dtype, rank: int, tag: int) -> Pending:
        into = torch.empty(elements, dtype=dtype)
        return InMemory(self, self._incoming, rank, tag, into)

    def take(self, boxes: Sequence[Mailbox], rank: int, tag: int) -> tuple[int, int]:
        """Wait for a message of a rank; return its file and the nanosecond when it has crossed."""
        box = boxes[rank]
        return self._look(f"receiving from rank {rank}", rank, lambda: box.take(tag))

    def _look(self, what: str, rank: int, find: Callable[[], Found | None]) -> Found:
        """Return the result of ``find`` once it is true; another ``rank`` must act for that."""
        began_s = looked_s = time.monotonic()
        with self._together(what, self._patience_s):
            while not (found := find()):
                now_s = time.monotonic()
                if now_s - began_s > self._patience_s:
                    raise RuntimeError(what)
                if now_s - looked_s > ALIVE_S:
                    looked_s = now_s
                    if not os.path.exists(f"/proc/{self._ids[rank]}"):
                        raise RuntimeError(what)
                if now_s - began_s > SPIN_S:
                    time.sleep(LOOK_S)
        return found

    def all_to_all(
        self, sent: Tensor, send_counts: Sequence[int], receive_counts: Sequence[int]
    ) -> Pending:
        self._collectives += 1
        received = sent.new_empty(sum(receive_counts))
        begins = accumulate(receive_counts, initial=0)
        expected = [
            InMemory(self, self._incoming, rank, self._collectives, received[begin : begin + count])
            for rank, (begin, count) in enumerate(zip(begins, receive_counts, strict=False))
            if count
        ]
        for rank, part in enumerate(torch.split(sent, list(send_counts))):
            if len(part):
                self.send(part, rank, self._collectives)
        return Gathered(expected, received)

    def sum(self, values: Tensor) -> Tensor:
        """Return the sums over ranks, in the time of a ring.

        Each rank sends and receives 2 (n - 1) / n of the values.
        """
        began_s = time.monotonic()
        found = self._add_up(values.reshape(-1))
        crossed = 2 * (self.size - 1) / self.size * values.numel() * values.element_size()
        Until(began_s + crossed / self._bytes_per_s).wait()
        return found

    def _add_up(self, values: Tensor) -> Tensor:
        """Add up all ranks' values.

        Each rank adds up a part of them, in the order of the ranks, and sends the sum to the
        others.
        """
        parts = torch.tensor_split(values, self.size)
        mine = len(parts[self.rank])
        first, *others = self._swap(parts, [mine] * self.size)
        total = first.clone()
        for part in others:
            total += part
        return torch.cat(self._swap([total] * self.size, list(map(len, parts))))

    def _swap(self, sent: Sequence[Tensor], counts: Sequence[int]) -> list[Tensor]:
        """Send each rank its tensor, and return the ``counts`` elements that each sends here."""
        self._collectives += 1
        tag, now_s = self._collectives, time.monotonic()
        for rank, tensor in enumerate(sent):
            if rank != self.rank and len(tensor):
                self._post(self._outgoing_sums, tensor, rank, tag, now_s)
        found = []
        for rank, count in enumerate(counts):
            into = sent[rank].new_empty(count)
            if rank == self.rank:
                into = sent[rank]
            elif count:
                InMemory(self, self._incoming_sums, rank, tag, into).wait()
            found.append(into)
        return found

    def open(self, rank: int, file: int) -> Piece:
        """Return memory of another rank, by the number of its file there."""
        if (rank, file) not in self._others:
            self._others[rank, file] = Piece.open(self._ids[rank], file)
        return self._others[rank, file]

    def _take(self, size_bytes: int) -> Piece:
        """Return this rank's smallest sufficient memory that no receiver has yet to read."""
        for piece in self._own:
            if piece.payload_bytes >= size_bytes and not piece.wanted:
                return piece
        made = Piece.make(size_bytes)
        self._own.append(made)
        self._own.sort(key=lambda piece: piece.payload_bytes)
        return made
