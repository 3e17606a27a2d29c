"""Communication between the ranks of a run, each a process of a ``torch.distributed`` group.

The backend is gloo, or NCCL if every rank has a GPU. ``ranks`` reads programs with it.
"""

from __future__ import annotations

import datetime
import os
import resource
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar, cast

import psutil
import torch
from torch import Tensor
from torch import distributed as group
from torch.distributed.rendezvous import rendezvous

from gnnbench.errors import GnnbenchError, UsageError
from gnnbench.host.rank import DONE, JOINED, PATIENCE_S, find_loopback, open_store_socket, report

#: The time limit for rank 0's work that needs no other rank.
ALONE = datetime.timedelta(days=30)


Told = TypeVar("Told")


class PeerLostError(GnnbenchError):
    """A rank could not reach the others: one of them has ended."""

    #: The process that started the ranks tells it apart from a rank's own failure.
    exit_status = 5


class PeerSilentError(PeerLostError):
    """A rank waited for the others until its limit: one of them hangs."""

    exit_status = 6


class Store(Protocol):
    """The key-value store at which ranks meet."""

    def set(self, key: str, value: str) -> None:
        """Set the value of a key."""

    def wait(self, keys: list[str], timeout: datetime.timedelta) -> None:
        """Wait until all keys are set, at most ``timeout``."""


class Work(Protocol):
    """A running operation of the process group."""

    def is_completed(self) -> bool:
        """Return whether the operation is over."""

    def wait(self, timeout: datetime.timedelta) -> bool:
        """Wait for the end of the operation, at most ``timeout``."""


class Pending:
    """A tensor that arrives here, or ``part`` of it."""

    def __init__(self, processes: Processes, what: str, work: Work, tensor: Tensor) -> None:
        self._processes = processes
        self._what = what
        self._work = work
        self._tensor = tensor

    def part(self, begin: int, end: int) -> Pending:
        """Return the arrival of some of its elements."""
        return Pending(self._processes, self._what, self._work, self._tensor[begin:end])

    def wait(self) -> Tensor:
        """Return the tensor, once it is here."""
        self._processes.wait(self._what, self._work)
        return self._tensor


class Processes:
    """The ranks of the default process group, of which this process is one.

    Transfers are in flight from the moment that they are asked for. ``finish`` waits for those on
    which no step waits.
    """

    #: Whether both ends of a transfer wait until it is over.
    blocking = False

    def __init__(self, store: Store, patience_s: float = PATIENCE_S) -> None:
        self._store = store
        self._patience_s = patience_s
        self.rank = group.get_rank()
        self.size = group.get_world_size()
        self._told = 0
        nccl = group.get_backend() == "nccl"
        self.device = torch.device("cuda" if nccl else "cpu")
        #: The tensors in flight from here; their memory must not change meanwhile.
        self._leaving: deque[tuple[str, Work, Tensor]] = deque()

    def tell(self, told: object) -> None:
        """Send an object from rank 0 to the others, which wait in :meth:`hear`."""
        self._told += 1
        self._store.set(f"order {self._told}", "here")
        self.share(told)

    def hear(self, kind: type[Told]) -> Told | None:
        """Return the next object that rank 0 tells, of a ``kind`` or None.

        Rank 0 may work alone before, for any time.
        """
        self._told += 1
        with self._together("waiting for rank 0", ALONE.total_seconds()):
            self._store.wait([f"order {self._told}"], ALONE)
        told = self.share(None)
        if told is not None and not isinstance(told, kind):
            raise TypeError(f"rank 0 told {type(told).__name__}, not {kind.__name__}")
        return told

    def share(self, told: Told) -> Told:
        """Return rank 0's object in every rank."""
        telling: list[Told] = [told]
        with self._together("hearing from rank 0", self._patience_s):
            group.broadcast_object_list(telling, src=0, device=self.device)
        return telling[0]

    def gather(self, told: Told) -> list[Told]:
        """Return the objects of all ranks, by rank, in every rank."""
        heard: list[Told] = [told] * self.size
        with self._together("hearing from all ranks", self._patience_s):
            group.all_gather_object(heard, told)
        return heard

    def refuses(self, ranks: int) -> str | None:
        """Return why a run of ``ranks`` ranks is impossible here, as a sentence, or None."""
        if ranks == self.size:
            return None
        return (
            f"{ranks} devices are at work and there are {self.size} processes, one for each "
            f"device; ask for --processes {ranks}, or set placement.accelerators."
        )

    def send(self, tensor: Tensor, rank: int, tag: int) -> None:
        """Send ``tensor`` ``(n,)`` to another rank; nothing may write to it any more."""
        there = tensor.contiguous().to(self.device)
        what = f"sending to rank {rank}"
        with self._together(what, self._patience_s):
            work = cast(Work, group.isend(there, rank, tag=tag))
        while self._leaving and self._leaving[0][1].is_completed():
            self._leaving.popleft()
        self._leaving.append((what, work, there))

    def receive(self, elements: int, dtype: torch.dtype, rank: int, tag: int) -> Pending:
        """Receive ``elements`` elements that another rank sends with the same ``tag``."""
        into = torch.empty(elements, dtype=dtype, device=self.device)
        what = f"receiving from rank {rank}"
        with self._together(what, self._patience_s):
            work = group.irecv(into, rank, tag=tag)
        return Pending(self, what, cast(Work, work), into)

    def all_to_all(
        self, sent: Tensor, send_counts: Sequence[int], receive_counts: Sequence[int]
    ) -> Pending:
        """Send the parts of ``sent`` ``(sum of send_counts,)`` to the ranks, in the order of ranks.

        Returns the parts that the others send here, in the same order.
        """
        received, what = sent.new_empty(sum(receive_counts)), "an all-to-all"
        with self._together(what, self._patience_s):
            work = group.all_to_all_single(
                received, sent, list(receive_counts), list(send_counts), async_op=True
            )
        self._leaving.append((what, cast(Work, work), sent))
        return Pending(self, what, cast(Work, work), received)

    def wait(self, what: str, work: Work) -> None:
        """Wait until an operation in flight is done."""
        with self._together(what, self._patience_s):
            work.wait(datetime.timedelta(seconds=self._patience_s))

    def finish(self) -> None:
        """Wait until everything has left."""
        while self._leaving:
            what, work, _ = self._leaving.popleft()
            self.wait(what, work)

    def sum(self, values: Tensor) -> Tensor:
        """Return the sums over ranks of ``(n,)``, equal to the bit in all ranks."""
        return self._reduce(values, group.ReduceOp.SUM)

    def largest(self, values: Tensor) -> Tensor:
        """Return the maximum over ranks of ``(n,)``."""
        return self._reduce(values, group.ReduceOp.MAX)

    def _reduce(self, values: Tensor, op: group.ReduceOp.RedOpType) -> Tensor:
        there = values.to(self.device, copy=True)
        with self._together("an all-reduce", self._patience_s):
            group.all_reduce(there, op)
        return there.to(values.device)

    def notes(self) -> tuple[str, ...]:
        """Return sentences for the reader of the result. Every rank must ask at the same point."""
        peaks = torch.zeros(self.size, dtype=torch.float64)
        peaks[self.rank] = peak_resident_bytes()
        each = ", ".join(f"{peak / 1e6:,.0f}" for peak in self.sum(peaks).tolist())
        return (
            f"{self.size} processes ({group.get_backend()}); peak memory of each, measured, with "
            f"the interpreter and the data set: {each} MB",
        )

    @contextmanager
    def _together(self, what: str, waits_s: float) -> Iterator[None]:
        """Run a step that all ranks take; fail after ``waits_s`` or when a rank has ended."""
        began_s = time.monotonic()
        try:
            yield
        except RuntimeError as error:
            if time.monotonic() - began_s < waits_s:
                raise PeerLostError(
                    f"rank {self.rank} could not finish {what} with the other ranks, one of which "
                    f"has ended; see what that one says, and run again."
                ) from error
            raise PeerSilentError(
                f"rank {self.rank} waited {waits_s:g} s for the other ranks in {what}, and one of "
                f"them did not come: it hangs, or needs longer than that for a step; give a longer "
                f"--patience if it does."
            ) from error


def join(
    patience_s: float = PATIENCE_S,
    make: Callable[[Store, float], Processes] | None = None,
) -> Processes:
    """Join the ranks that this process was started among.

    The backend is NCCL if each rank has a GPU, else gloo. ``make`` replaces the class
    :class:`Processes`. In one collective, and here, a rank waits ``patience_s`` for the others. The
    environment is ``torchrun``'s: ``RANK``, ``WORLD_SIZE``, ``MASTER_ADDR``, ``MASTER_PORT``. If
    the address is this machine's loopback, ranks listen on loopback alone, whatever interface the
    environment names.

    Raises ``PeerSilentError`` when others do not come within ``patience_s``, and ``PeerLostError``
    when they cannot be reached for another reason. Raises ``UsageError`` if the environment names
    an interface that this machine does not have.
    """
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    local = int(os.environ.get("LOCAL_RANK", rank))
    backend = "gloo"
    if group.is_nccl_available() and torch.cuda.device_count() >= size:
        torch.cuda.set_device(local)
        backend = "nccl"
    patience = datetime.timedelta(seconds=patience_s)
    if backend == "gloo" and not _is_local():
        _check_interfaces()
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
        kind = PeerSilentError if time.monotonic() - began_s >= patience_s else PeerLostError
        raise kind(
            f"rank {rank} of {size} cannot reach the other ranks at "
            f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')} "
            f"({_first_line(error)}); start all of them, and where one takes longer than "
            f"{patience_s:g} s to load, give a longer --patience."
        ) from error
    return (make or Processes)(store, patience_s)


def _open_store(rank: int, size: int, patience: datetime.timedelta) -> Store:
    """Return the store at which the ranks meet.

    Torch's own store listens on every interface, and gloo's and NCCL's sockets listen on the
    interface of the machine's name. Ranks of one machine need only the loopback interface.
    """
    address, port = os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", "")
    interface = find_loopback() if _is_local() else None
    if interface is None or not port.isdecimal():
        store, _, _ = next(rendezvous("env://", rank, size, timeout=patience))
        return cast(Store, store)
    for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        os.environ[variable] = interface
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


def _is_local() -> bool:
    """Return whether all ranks are here: they meet at the loopback, or torchrun says so."""
    address, ranks = os.environ.get("MASTER_ADDR", ""), os.environ.get("WORLD_SIZE")
    alone = ranks is not None and os.environ.get("LOCAL_WORLD_SIZE") == ranks
    return alone or address == "localhost" or address.startswith("127.")


def _check_interfaces() -> None:
    """Raise ``UsageError`` if gloo is to use an interface that this machine does not have."""
    wanted = os.environ.get("GLOO_SOCKET_IFNAME", "")
    known = sorted(psutil.net_if_addrs())
    missing = [name for name in wanted.split(",") if wanted and name not in known]
    if missing:
        raise UsageError(
            f"GLOO_SOCKET_IFNAME is {wanted!r}, and this machine has no network interface "
            f"{missing[0]!r}; set it to one of {', '.join(known)}, or leave it unset."
        )


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


def leave() -> None:
    """Leave the group at the end of all work."""
    group.destroy_process_group()
    report(DONE)


def peak_resident_bytes() -> int:
    """Return the peak resident memory of this process, bytes."""
    if os.path.exists("/proc/self/status"):
        with open("/proc/self/status", encoding="ascii") as lines:
            for line in lines:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
