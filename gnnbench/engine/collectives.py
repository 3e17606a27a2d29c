"""What workers say to each other, behind one interface with two backends.

A *worker* is a trainer's slot. ``VirtualWorkers`` are all in this process; ``Processes`` are one a
rank of a ``torch.distributed`` group: gloo, or NCCL where every worker has a GPU. An engine that is
written against ``Collectives`` takes the same steps in the same order on every rank, and does the
work of a step where its worker is held.
"""

from __future__ import annotations

import datetime
import os
import resource
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, cast

import psutil
import torch
from torch import Tensor
from torch import distributed as group
from torch.distributed.rendezvous import rendezvous

from gnnbench.errors import GnnbenchError
from gnnbench.parts import divide_evenly
from gnnbench.rank import DONE, JOINED, open_store_socket, report

#: How long a rank waits for the others in one collective before it gives them up, seconds, unless
#: it is told otherwise. Ranks have equal shares of every step, and reach the next one together.
PATIENCE_S = 60.0
#: For rank 0, which does alone what needs no others.
ALONE = datetime.timedelta(days=30)


class PeerLost(GnnbenchError):
    """A rank could not reach the others: one of them has ended."""

    #: Told apart from a rank's own failure by whoever started the ranks.
    exit_status = 5


class PeerSilent(PeerLost):
    """A rank waited for the others as long as it may: one of them hangs."""

    exit_status = 6


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """A tensor on its way from one worker to another.

    ``pick`` puts it together where ``source`` is held; ``shape`` is known everywhere.
    """

    source: int
    target: int
    shape: tuple[int, int]
    pick: Callable[[], Tensor]

    @property
    def elements(self) -> int:
        return self.shape[0] * self.shape[1]


class Exchange(ABC):
    """An all-to-all of some messages. Receive those for held workers, in order, then finish.

    ``sent_bytes`` are, after that, those of the tensors that left a worker in this process for
    another worker.
    """

    def __init__(self) -> None:
        self.sent_bytes = 0

    def send(self, message: Message) -> Tensor:
        """The message's tensor, counted if it goes to another worker."""
        tensor = message.pick()
        if message.source != message.target:
            self.sent_bytes += tensor.numel() * tensor.element_size()
        return tensor

    @abstractmethod
    def receive(self, message: Message, device: torch.device) -> Tensor:
        """The message's tensor on ``device``; its target must be held here."""

    @abstractmethod
    def finish(self) -> None:
        """Take part in what this process has not received anything of."""


class Collectives(ABC):
    """The workers of a run: which of them are here, and how they speak to each other."""

    @abstractmethod
    def holds(self, worker: int) -> bool:
        """Whether the worker is in this process."""

    @abstractmethod
    def refuses(self, workers: int) -> str | None:
        """Why a run of so many workers cannot be had here, as a sentence; None when it can."""

    @abstractmethod
    def exchange(self, messages: Sequence[Message], dtype: torch.dtype) -> Exchange:
        """Begin an all-to-all; every process gives the same messages in the same order."""

    @abstractmethod
    def sum(self, values: Tensor) -> Tensor:
        """The sum over processes of float64 ``(n,)``, the same bits in each of them.

        For bookkeeping (losses, counters, times): not traffic of the strategy.
        """

    @abstractmethod
    def notes(self) -> tuple[str, ...]:
        """Sentences for the reader of the result. Every process must ask at the same point."""


class _CopiedHere(Exchange):
    """Both ends of every message are in this process."""

    def receive(self, message: Message, device: torch.device) -> Tensor:
        return self.send(message).to(device)

    def finish(self) -> None:
        pass


class VirtualWorkers(Collectives):
    """All workers in this process, one after the other."""

    def holds(self, worker: int) -> bool:
        return True

    def refuses(self, workers: int) -> str | None:
        return None

    def exchange(self, messages: Sequence[Message], dtype: torch.dtype) -> Exchange:
        return _CopiedHere()

    def sum(self, values: Tensor) -> Tensor:
        return values

    def notes(self) -> tuple[str, ...]:
        return ()


class Store(Protocol):
    """What ranks meet at."""

    def set(self, key: str, value: str) -> None: ...
    def wait(self, keys: list[str], timeout: datetime.timedelta) -> None: ...


class Processes(Collectives):
    """One worker a rank of the default process group."""

    def __init__(self, store: Store, patience_s: float = PATIENCE_S) -> None:
        self._store = store
        self._patience_s = patience_s
        self.rank = group.get_rank()
        self.size = group.get_world_size()
        nccl = group.get_backend() == "nccl"
        self.device = torch.device("cuda" if nccl else "cpu")

    def meet(self, what: str) -> None:
        """Wait until rank 0 is at ``what``, however long it works alone before; once for each."""
        if self.rank == 0:
            self._store.set(what, "here")
            return
        with self._together("waiting for rank 0", ALONE.total_seconds()):
            self._store.wait([what], ALONE)

    def holds(self, worker: int) -> bool:
        return worker == self.rank

    def refuses(self, workers: int) -> str | None:
        if workers == self.size:
            return None
        return (
            f"{workers} devices are at work and there are {self.size} processes, one for each "
            f"device; ask for --processes {workers}, or set placement.accelerators."
        )

    def exchange(self, messages: Sequence[Message], dtype: torch.dtype) -> Exchange:
        return _AllToAll(self, messages, dtype)

    def all_to_all(
        self, sent: Tensor, send_counts: Sequence[int], receive_counts: Sequence[int]
    ) -> Tensor:
        """``sent`` ``(sum of send_counts,)`` by rank; what the others sent here, by rank."""
        received = sent.new_empty(sum(receive_counts))
        with self._together("an all-to-all", self._patience_s):
            group.all_to_all_single(received, sent, list(receive_counts), list(send_counts))
        return received

    def sum(self, values: Tensor) -> Tensor:
        there = values.to(self.device, copy=True)
        with self._together("a sum", self._patience_s):
            group.all_reduce(there)
        return there.to(values.device)

    def notes(self) -> tuple[str, ...]:
        peaks = torch.zeros(self.size, dtype=torch.float64)
        peaks[self.rank] = peak_resident_bytes()
        each = ", ".join(f"{peak / 1e6:,.0f}" for peak in self.sum(peaks).tolist())
        return (
            f"{self.size} processes ({group.get_backend()}); peak memory of each, measured, with "
            f"the interpreter and the data set: {each} MB",
        )

    @contextmanager
    def _together(self, what: str, waits_s: float) -> Iterator[None]:
        """A step that all ranks take, and that fails here after ``waits_s`` or when one is gone."""
        began_s = time.monotonic()
        try:
            yield
        except RuntimeError as error:
            if time.monotonic() - began_s < waits_s:
                raise PeerLost(
                    f"rank {self.rank} could not finish {what} with the other ranks, one of which "
                    f"has ended; see what that one says, and run again."
                ) from error
            raise PeerSilent(
                f"rank {self.rank} waited {waits_s:g} s for the other ranks in {what}, and one of "
                f"them did not come: it hangs, or needs longer than that for a step; give a longer "
                f"--patience if it does."
            ) from error


class _AllToAll(Exchange):
    """The messages packed by rank, sent with the first that is received."""

    def __init__(
        self, processes: Processes, messages: Sequence[Message], dtype: torch.dtype
    ) -> None:
        super().__init__()
        self._processes = processes
        self._dtype = dtype
        self._messages = tuple(messages)
        self._arrived: dict[tuple[int, int], Tensor] | None = None

    def receive(self, message: Message, device: torch.device) -> Tensor:
        if self._processes.holds(message.source):
            return self.send(message).to(device)
        self.finish()
        if self._arrived is None:
            raise RuntimeError("an all-to-all that was finished brought nothing")
        return self._arrived[message.source, message.target].view(message.shape).to(device)

    def finish(self) -> None:
        if self._arrived is not None:
            return
        here, size = self._processes.rank, self._processes.size
        leaving = [m for m in self._messages if m.source == here != m.target]
        coming = [m for m in self._messages if m.target == here != m.source]
        send_counts, receive_counts = [0] * size, [0] * size
        for message in leaving:
            send_counts[message.target] += message.elements
        for message in coming:
            receive_counts[message.source] += message.elements
        leaving.sort(key=lambda message: message.target)
        parts = [self.send(message).reshape(-1) for message in leaving]
        empty = torch.empty(0, dtype=self._dtype)
        sent = torch.cat(parts) if parts else empty
        received = self._processes.all_to_all(
            sent.to(self._processes.device), send_counts, receive_counts
        )
        coming.sort(key=lambda message: message.source)
        flats = torch.split(received, [message.elements for message in coming])
        self._arrived = {
            (message.source, message.target): flat
            for message, flat in zip(coming, flats, strict=True)
        }


def ring_steps(
    workers: Sequence[int], length: int
) -> Iterator[tuple[bool, list[tuple[int, int, int, int]]]]:
    """The 2 (m - 1) steps of a ring all-reduce of ``length`` elements over m workers.

    A step is whether what arrives is added to what is there, or replaces it, and the pieces that
    cross: (source, target, begin, end). Each worker passes one of m pieces to the next in the ring;
    first sums grow around it, then they are handed round.
    """
    m = len(workers)
    ranges = divide_evenly(length, m)
    for adds in (True, False):
        for turn in range(m - 1):
            pieces = [(i - turn + (0 if adds else 1)) % m for i in range(m)]
            yield (
                adds,
                [
                    (workers[i], workers[(i + 1) % m], *ranges[piece])
                    for i, piece in enumerate(pieces)
                ],
            )


def join(patience_s: float = PATIENCE_S) -> Processes:
    """Join the ranks that this process was started among; NCCL where each has a GPU, else gloo.

    In one collective, and here, a rank waits ``patience_s`` for the others. The environment is
    ``torchrun``'s: ``RANK``, ``WORLD_SIZE``, ``MASTER_ADDR``, ``MASTER_PORT``. Where the address is
    this machine's loopback, no rank listens on any other one.
    Raises ``PeerLost`` when the others are not there, ``PeerSilent`` when some are.
    """
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    local = int(os.environ.get("LOCAL_RANK", rank))
    backend = "gloo"
    if group.is_nccl_available() and torch.cuda.device_count() >= size:
        torch.cuda.set_device(local)
        backend = "nccl"
    patience = datetime.timedelta(seconds=patience_s)
    report(JOINED)
    began_s = time.monotonic()
    try:
        store = _open_store(rank, size, patience)
        store.set(f"rank {rank}", "here")
        store.wait([f"rank {each}" for each in range(size)], patience)
        group.init_process_group(
            backend,
            store=store,  # type: ignore[arg-type]
            rank=rank,
            world_size=size,
            timeout=patience,
        )
    except (RuntimeError, ValueError, OSError) as error:
        kind = PeerSilent if time.monotonic() - began_s >= patience_s else PeerLost
        raise kind(
            f"rank {rank} of {size} cannot reach the other ranks at "
            f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}; start all of them, "
            f"and where one takes longer than {patience_s:g} s to load, give a longer --patience."
        ) from error
    return Processes(store, patience_s)


def _open_store(rank: int, size: int, patience: datetime.timedelta) -> Store:
    """What the ranks meet at.

    torch's own store listens on every interface; so do gloo's and NCCL's sockets on that of the
    machine's name. Ranks of one machine need the loopback interface alone.
    """
    address, port = os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", "")
    interface = _find_interface(address)
    if interface is None or not port.isdecimal():
        store, _, _ = next(rendezvous("env://", rank, size, timeout=patience))
        return cast(Store, store)
    for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        os.environ.setdefault(variable, interface)
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":  # torchrun has one already
        store, _, _ = next(rendezvous("env://", rank, size, timeout=patience))
        return cast(Store, store)
    listening = None if rank else open_store_socket(address, int(port)).detach()
    made = group.TCPStore(  # type: ignore[attr-defined]
        address,
        int(port),
        size,
        is_master=rank == 0,
        timeout=patience,
        master_listen_fd=listening,
    )
    return cast(Store, made)


def _find_interface(address: str) -> str | None:
    """The interface that an address of this machine's loopback stands for; None for others."""
    if address == "localhost":
        address = "127.0.0.1"
    found = psutil.net_if_addrs().items()
    if not address.startswith("127."):
        return None
    return next((name for name, at in found if any(a.address == "127.0.0.1" for a in at)), None)


def leave() -> None:
    """Leave the group, when all is done."""
    group.destroy_process_group()
    report(DONE)


def peak_resident_bytes() -> int:
    """The most memory that this process has had, bytes."""
    if os.path.exists("/proc/self/status"):
        with open("/proc/self/status", encoding="ascii") as lines:
            for line in lines:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
