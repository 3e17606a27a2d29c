"""Ranks of one machine that send each other tensors through memory that both have.

What is sent is copied into memory of the sender, and a few numbers say where: the receiver copies
it out. So a transfer takes its two ends two copies, and nothing of it is left when a rank has
ended, however that was. Everything else goes through the process group.

A limited link really takes as long as its bandwidth says: what crosses it is there from a moment on
that the sender has computed, until when a receiver that needs it sleeps.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import cast

import torch
from torch import Tensor
from torch import distributed as group

from gnnbench.constants import Bound
from gnnbench.platforms.machine import Platform
from gnnbench.run.arrivals import Lanes, Until
from gnnbench.run.collectives import PATIENCE_S, Pending, Processes, Store, Work

#: Bytes of a piece of memory before what is sent; the first says whether that is still wanted.
HEADER: Bound[int] = 64
#: The least memory for a message: small ones share pieces of one size.
SMALLEST: Bound[int] = 1 << 16
#: Tags of steps are below, those of collectives from here on.
FIRST_COLLECTIVE: Bound[int] = 1 << 30


def can_share_memory() -> bool:
    """Whether this system has what this module needs."""
    return hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd")


def make_processes(platform: Platform) -> Callable[[Store, float], Processes]:
    """What ranks of a platform are to be: devices made of cores share memory, where they can."""
    made_of_cores = any(device.pinned for device in platform.accelerators)
    return partial(MemoryProcesses, platform) if made_of_cores and can_share_memory() else Processes


class Piece:
    """Memory that this process and another one have; ``file`` is its number in the owner's."""

    def __init__(self, file: int, memory: mmap.mmap) -> None:
        self.file = file
        self._memory = memory

    @classmethod
    def make(cls, payload_bytes: int) -> Piece:
        """A new one, for so many bytes or somewhat more."""
        size = SMALLEST
        while size < HEADER + payload_bytes:
            size *= 2
        file = os.memfd_create("gnnbench")
        os.ftruncate(file, size)
        return cls(file, mmap.mmap(file, size))

    @classmethod
    def open(cls, process: int, file: int) -> Piece:
        """That of another process."""
        opened = os.open(f"/proc/{process}/fd/{file}", os.O_RDWR)
        try:
            return cls(file, mmap.mmap(opened, os.fstat(opened).st_size))
        finally:
            os.close(opened)

    @property
    def payload_bytes(self) -> int:
        return len(self._memory) - HEADER

    @property
    def wanted(self) -> bool:
        """Whether somebody has yet to read what is in it."""
        return self._memory[0] != 0

    @wanted.setter
    def wanted(self, wanted: bool) -> None:
        self._memory[0] = int(wanted)

    def view(self, elements: int, dtype: torch.dtype) -> Tensor:
        """So many elements, ``(n,)``, where they are."""
        return torch.frombuffer(self._memory, dtype=dtype, count=elements, offset=HEADER)


class InMemory(Pending):
    """A tensor that another rank has put into its memory, or will, and that is copied from there
    ``into`` this one's."""

    def __init__(
        self, ranks: MemoryProcesses, source: int, work: Work, where: Tensor, into: Tensor
    ) -> None:
        super().__init__(ranks, f"receiving from rank {source}", work, into)
        self._ranks = ranks
        self._source = source
        self._where = where

    def wait(self) -> Tensor:
        into = super().wait()
        file, until_ns = self._where.tolist()
        Until(until_ns * 1e-9).wait()
        piece = self._ranks.open(self._source, file)
        into.copy_(piece.view(into.numel(), into.dtype))
        piece.wanted = False
        return into


class Gathered(Pending):
    """What several ranks send, one after the other in one tensor; ``part`` of it is there when all
    is."""

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
    """Ranks of one machine, each a device of a ``platform`` that is made of its cores."""

    def __init__(self, platform: Platform, store: Store, patience_s: float = PATIENCE_S) -> None:
        super().__init__(store, patience_s)
        link = platform.links[0]
        self._bytes_per_s = link.bandwidth_bytes_per_s if link.limited else float("inf")
        self.blocking = link.blocking
        self._lanes = Lanes()
        self._own: list[Piece] = []
        self._others: dict[tuple[int, int], Piece] = {}
        self._collectives = FIRST_COLLECTIVE
        ids: list[int] = [0] * self.size
        group.all_gather_object(ids, os.getpid())
        self._ids = ids

    def send(self, tensor: Tensor, rank: int, tag: int) -> None:
        source = tensor.reshape(-1)
        piece = self._take(source.numel() * source.element_size())
        piece.view(source.numel(), source.dtype).copy_(source)
        piece.wanted = True
        size_bytes = source.numel() * source.element_size()
        until_s = self._lanes.send(rank, size_bytes, self._bytes_per_s)
        # Exact to the nanosecond, and the same clock in every process.
        where = torch.tensor([piece.file, round(until_s * 1e9)], dtype=torch.int64)
        super().send(where, rank, tag)
        if self.blocking:
            Until(until_s).wait()

    def receive(self, elements: int, dtype: torch.dtype, rank: int, tag: int) -> Pending:
        return self._expect(torch.empty(elements, dtype=dtype), rank, tag)

    def all_to_all(
        self, sent: Tensor, send_counts: Sequence[int], receive_counts: Sequence[int]
    ) -> Pending:
        self._collectives += 1
        received = sent.new_empty(sum(receive_counts))
        begins = accumulate(receive_counts, initial=0)
        expected = [
            self._expect(received[begin : begin + count], rank, self._collectives)
            for rank, (begin, count) in enumerate(zip(begins, receive_counts, strict=False))
            if count
        ]
        for rank, part in enumerate(torch.split(sent, list(send_counts))):
            if len(part):
                self.send(part, rank, self._collectives)
        return Gathered(expected, received)

    def sum(self, values: Tensor) -> Tensor:
        """As by a ring, each rank sends and receives 2 (n - 1) / n of the values."""
        began_s = time.monotonic()
        found = super().sum(values)
        crossed = 2 * (self.size - 1) / self.size * values.numel() * values.element_size()
        Until(began_s + crossed / self._bytes_per_s).wait()
        return found

    def open(self, rank: int, file: int) -> Piece:
        """Memory of another rank, by the number of its file there."""
        if (rank, file) not in self._others:
            self._others[rank, file] = Piece.open(self._ids[rank], file)
        return self._others[rank, file]

    def _expect(self, into: Tensor, rank: int, tag: int) -> InMemory:
        where = torch.empty(2, dtype=torch.int64)
        with self._together(f"receiving from rank {rank}", self._patience_s):
            work = group.irecv(where, rank, tag=tag)
        return InMemory(self, rank, cast(Work, work), where, into)

    def _take(self, size_bytes: int) -> Piece:
        """Memory of this rank that nobody has to read any more; the smallest that is enough."""
        for piece in self._own:
            if piece.payload_bytes >= size_bytes and not piece.wanted:
                return piece
        made = Piece.make(size_bytes)
        self._own.append(made)
        self._own.sort(key=lambda piece: piece.payload_bytes)
        return made
