"""Communication between the ranks of a run, each a process of a ``torch.distributed`` group.

Tensors on CUDA devices go through NCCL if every rank has such a device. All others go through gloo.
``joining`` makes the group, and ``ranks`` reads programs with it.
"""

from __future__ import annotations

import datetime
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar, cast

import torch
from torch import Tensor
from torch import distributed as group

from gnnbench.errors import GnnbenchError, reason_of
from gnnbench.host.rank import DONE, HAS_FAILED, PATIENCE_S, report
from gnnbench.machines.machine import Device
from gnnbench.run.peers import Peers

HOST = torch.device("cpu")
Told = TypeVar("Told")


class PeerLostError(GnnbenchError):
    """A rank could not reach the others: one of them has ended."""

    #: The process that started the ranks tells it apart from a rank's own failure.
    exit_status = 5


class PeerSilentError(PeerLostError):
    """A rank waited for the others until its limit: one of them hangs."""

    exit_status = 6


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

    def __init__(self, peers: Peers, patience_s: float = PATIENCE_S) -> None:
        self.peers = peers
        self._patience_s = patience_s
        self.rank = group.get_rank()
        self.size = group.get_world_size()
        self._told = 0
        self._nccl = "nccl" in str(group.get_backend_config())
        #: Where tensors are sent from and received, for the row that is trained.
        self.device = HOST
        #: The tensors in flight from here; their memory must not change meanwhile.
        self._leaving: deque[tuple[str, Work, Tensor]] = deque()

    @property
    def ways(self) -> dict[str, torch.device]:
        """The devices whose tensors can be sent, by the name of the backend."""
        return {"gloo": HOST} | ({"nccl": torch.device("cuda")} if self._nccl else {})

    def serve(self, trainers: Sequence[Device]) -> None:
        """Choose the backend of the following steps by the devices of a row.

        It is NCCL if every rank has a CUDA device and a trainer is one, else gloo.
        """
        on_cuda = any(each.torch_device.startswith("cuda") for each in trainers)
        self.device = self.ways.get("nccl", HOST) if on_cuda else HOST

    def tell(self, told: object) -> None:
        """Send an object from rank 0 to the others, which wait in :meth:`hear`."""
        self.peers.order()
        self.share(told)

    def hear(self, kind: type[Told]) -> Told | None:
        """Return the next object that rank 0 tells, of a ``kind`` or None.

        Rank 0 may work alone before, for any time.
        """
        self._told += 1
        with self._together("waiting for rank 0", self._patience_s):
            if not self.peers.await_order(self._told, self._patience_s):
                raise RuntimeError("no order has come")
        told = self.share(None)
        if told is not None and not isinstance(told, kind):
            raise TypeError(f"rank 0 told {type(told).__name__}, not {kind.__name__}")
        return told

    def share(self, told: Told) -> Told:
        """Return rank 0's object in every rank."""
        telling: list[Told] = [told]
        with self._together("hearing from rank 0", self._patience_s):
            group.broadcast_object_list(telling, src=0, device=HOST)
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
        """Return sentences for the reader of the result."""
        return (f"{self.size} processes ({'gloo' if self.device == HOST else 'nccl'})",)

    @contextmanager
    def _together(self, what: str, waits_s: float) -> Iterator[None]:
        """Run a step that all ranks take; fail after ``waits_s`` or when a rank has ended."""
        began_s = time.monotonic()
        with self.peers.waiting():
            try:
                yield
            except RuntimeError as error:
                kind = PeerSilentError if time.monotonic() - began_s >= waits_s else PeerLostError
                reason = self.peers.explain(what, waits_s, reason_of(error))
                self.peers.fail(reason)
                raise kind(reason) from error

    @contextmanager
    def accounting(self) -> Iterator[None]:
        """Run the work of this rank; if it fails here, tell the others why before it ends."""
        try:
            yield
        except PeerLostError:
            raise
        except KeyboardInterrupt:
            self.peers.fail(f"{self.peers.name} was ended by a signal.")
            raise
        except BaseException as error:
            self.peers.fail(f"{self.peers.name} {HAS_FAILED} {reason_of(error)}.")
            raise

    def leave(self) -> None:
        """Leave the others at the end of all work."""
        group.destroy_process_group()
        self.peers.close()
        report(DONE)
