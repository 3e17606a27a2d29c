"""The meeting of the ranks of a job, on one node or on several.

Ranks find each other at torch's store. Each learns there which address the others have on the
network between the nodes, and takes that network for everything. A rank waits ``patience`` for the
others. It stays open to signals meanwhile, since calls that may block run in another thread.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, cast

import torch
from torch import distributed as group

from gnnbench.constants import Bound
from gnnbench.errors import GnnbenchError, UsageError
from gnnbench.host.rank import (
    JOINED,
    LOOPBACK,
    PATIENCE_S,
    Place,
    find_loopback,
    is_loopback,
    open_store_socket,
    report,
)
from gnnbench.run.collectives import PeerLostError, PeerSilentError, Processes
from gnnbench.run.network import (
    GLOO,
    NCCL,
    find_address,
    find_interface,
    find_own_address,
    read_chosen_interface,
    use_interface,
)
from gnnbench.run.peers import Peers

#: Seconds between two looks at the store, and beyond ``patience`` for a call to notice its end.
LOOK_S: Bound[float] = 0.1
SLACK_S: Bound[float] = 2.0

Make = Callable[[Peers, float], Processes]


class Store(Protocol):
    """The key-value store at which ranks meet."""

    def set(self, key: str, value: str) -> None:
        """Set the value of a key."""

    def get(self, key: str) -> bytes:
        """Return the value of a key that is set."""

    def check(self, keys: list[str]) -> bool:
        """Return whether all keys are set."""


@dataclass(frozen=True, slots=True)
class Hello:
    """The words of a rank to the others when they meet.

    It has the name of its host, its address, and whether it has a CUDA device. ``port`` is the one
    at which later ranks connect; 0 means that it is not open yet.
    """

    host: str
    address: str
    cuda: bool
    port: int = 0


def join(place: Place, patience_s: float = PATIENCE_S, make: Make | None = None) -> Processes:
    """Join the ranks that this process was started among.

    A rank with a CUDA device is bound to it. ``make`` replaces the class :class:`Processes`.

    Raises ``PeerSilentError`` when others do not come within ``patience_s``, and ``PeerLostError``
    when they cannot be reached for another reason. Raises ``UsageError`` if the environment names
    an interface that this machine does not have.
    """
    chosen = None if place.local else read_chosen_interface()
    report(JOINED)
    meeting = _Meeting(place, patience_s, chosen, bind_device(place))
    return (make or Processes)(meeting.hold(), patience_s)


def bind_device(place: Place) -> bool:
    """Bind this rank to the CUDA device of its local rank; return whether there is one."""
    if not group.is_nccl_available() or torch.cuda.device_count() < place.local_size:
        return False
    torch.cuda.set_device(place.local_rank)
    return True


def choose_backend(everywhere: list[bool]) -> str:
    """Return the backends: also NCCL, for tensors on CUDA devices, if every rank has one."""
    return "cpu:gloo,cuda:nccl" if all(everywhere) else "gloo"


class _Meeting:
    """A rank's way to the others; ``step`` and ``missing`` say how far it has come."""

    def __init__(self, place: Place, patience_s: float, chosen: str | None, cuda: bool) -> None:
        self._place = place
        self._patience_s = patience_s
        self._chosen = chosen
        self._cuda = cuda
        self._until_s = time.monotonic() + patience_s
        self._missing: tuple[int, ...] = ()
        self._step = "reach"

    def hold(self) -> Peers:
        """Meet the others; return the connections to them."""
        found: list[Peers] = []
        failed: list[BaseException] = []

        def meet() -> None:
            try:
                found.append(self._meet())
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=meet, name="joining", daemon=True)
        thread.start()
        while thread.is_alive() and time.monotonic() < self._until_s + SLACK_S:
            thread.join(LOOK_S)
        if found:
            return found[0]
        error = failed[0] if failed else TimeoutError("timed out")
        if isinstance(error, GnnbenchError):
            raise error
        if not isinstance(error, RuntimeError | ValueError | OSError):
            raise error
        late = time.monotonic() >= self._until_s
        raise (PeerSilentError if late else PeerLostError)(self._describe(error, late)) from error

    def _meet(self) -> Peers:
        place = self._place
        store = self._open_store()
        own = Hello(socket.gethostname(), self._find_route(), self._cuda)
        hellos = self._exchange(store, "rank", own)
        address = self._choose_address(own, hellos)
        with _listen(address) as listening:
            port = listening.getsockname()[1]
            self._step = "connect"
            met = self._exchange(store, "line", Hello(own.host, address, self._cuda, port))
            several = len({hello.host for hello in met}) > 1
            names = [
                f"rank {rank} on {hello.host}" if several else f"rank {rank}"
                for rank, hello in enumerate(met)
            ]
            lines = self._connect(listening, met)
        peers = Peers(place.rank, lines, names)
        self._step = "group"
        group.init_process_group(
            choose_backend([hello.cuda for hello in met]),
            store=store,  # type: ignore[arg-type]
            rank=place.rank,
            world_size=place.size,
            timeout=datetime.timedelta(seconds=self._patience_s),
        )
        return peers

    def _left_s(self) -> float:
        return max(0.01, self._until_s - time.monotonic())

    # ------------------------------------------------------------------ the store

    def _open_store(self) -> Store:
        """Return the store at which the ranks meet.

        Torch's own store listens on every interface. Ranks of one machine need only its loopback.
        """
        place = self._place
        others = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"  # torchrun has one
        hosts = place.rank == 0 and not others
        listening = None
        if hosts and place.local and find_loopback() is not None:
            listening = open_store_socket(place.address, place.port).detach()
        made = group.TCPStore(  # type: ignore[attr-defined]
            place.address,
            place.port,
            place.size,
            is_master=hosts,
            timeout=datetime.timedelta(seconds=self._patience_s),
            wait_for_workers=False,
            master_listen_fd=listening,
        )
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        prefixed = group.PrefixStore(f"attempt {attempt}", made)  # type: ignore[attr-defined]
        return cast(Store, prefixed)

    def _exchange(self, store: Store, key: str, own: Hello) -> list[Hello]:
        """Tell all ranks something, and return what each has told."""
        store.set(
            f"{key} {self._place.rank}", json.dumps([own.host, own.address, own.cuda, own.port])
        )
        found: dict[int, Hello] = {}
        while True:
            for rank in range(self._place.size):
                if rank not in found and store.check([f"{key} {rank}"]):
                    told: list[Any] = json.loads(store.get(f"{key} {rank}"))
                    found[rank] = Hello(*told)
            self._missing = tuple(rank for rank in range(self._place.size) if rank not in found)
            if not self._missing:
                return [found[rank] for rank in range(self._place.size)]
            self._step = "await"
            if time.monotonic() >= self._until_s:
                raise TimeoutError("timed out")
            time.sleep(LOOK_S / 2)

    # ------------------------------------------------------------------ addresses

    def _find_route(self) -> str:
        """Return this rank's address as seen from the rank that all meet at."""
        place = self._place
        if place.local:
            return LOOPBACK
        if self._chosen is not None and (address := find_address(self._chosen)) is not None:
            return address
        return find_own_address(place.address, place.port)

    def _choose_address(self, own: Hello, hellos: list[Hello]) -> str:
        """Return this rank's address on the network between the nodes, and take that network.

        The node at which all meet may know itself by its loopback alone. Then the route to another
        node tells.
        """
        address = own.address
        if self._place.local:
            loopback = find_loopback() or "lo"
            os.environ.update({GLOO: loopback, NCCL: f"={loopback}"})
            return address
        if is_loopback(address):
            abroad = [each for each in hellos if not is_loopback(each.address)]
            if abroad:
                address = find_own_address(abroad[0].address, self._place.port)
        if (interface := find_interface(address)) is None:
            raise UsageError(
                f"rank {self._place.rank} has the address {address} on the way to the other nodes, "
                f"and no network interface with it; set GLOO_SOCKET_IFNAME to an interface."
            )
        use_interface(self._chosen or interface)
        return address

    # ------------------------------------------------------------------ connections

    def _connect(self, listening: socket.socket, met: list[Hello]) -> dict[int, socket.socket]:
        """Connect with every other rank: this one calls those before it, and later ones call it."""
        rank, lines = self._place.rank, dict[int, socket.socket]()
        self._missing = tuple(each for each in range(len(met)) if each != rank)
        for other in range(rank):
            where = met[other].address, met[other].port
            line = socket.create_connection(where, timeout=self._left_s())
            line.sendall(f"{rank}\n".encode())
            self._add(lines, other, line)
        while self._missing:
            listening.settimeout(self._left_s())
            line, _ = listening.accept()
            line.settimeout(self._left_s())
            told = line.makefile("rb", buffering=0).readline(16).strip()
            if told.isdigit() and int(told) in self._missing:
                self._add(lines, int(told), line)
            else:
                line.close()
        return lines

    def _add(self, lines: dict[int, socket.socket], rank: int, line: socket.socket) -> None:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        lines[rank] = line
        self._missing = tuple(each for each in self._missing if each != rank)

    # ------------------------------------------------------------------ failures

    def _describe(self, error: BaseException, late: bool) -> str:
        """Return a sentence that names the ranks which this one could not meet."""
        place, missing = self._place, [each for each in self._missing if each != self._place.rank]
        where = f"{place.address}:{place.port}"
        patience = (
            f"start all of them, and where one takes longer than {self._patience_s:g} s to load, "
            f"give a longer --patience."
        )
        ranks = f"rank{'s' if len(missing) > 1 else ''} {', '.join(map(str, missing))}"
        if self._step == "reach":
            whom = "the store of the ranks" if place.rank == 0 else "rank 0"
            return (
                f"rank {place.rank} of {place.size} cannot reach {whom} at {where} "
                f"({first_line(error)}); check the address, and {patience}"
            )
        if self._step == "await" and missing:
            how = f"within {self._patience_s:g} s" if late else "before the others gave up"
            return f"{ranks} of {place.size} did not connect to {where} {how}; {patience}"
        unmet = f"{ranks} of {place.size}" if missing else "the other ranks"
        return (
            f"rank {place.rank} met the others at {where} and cannot connect to {unmet} "
            f"({first_line(error)}); check the network between the nodes, or set "
            f"GLOO_SOCKET_IFNAME to another interface."
        )


def _listen(address: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, 0), family=family, backlog=128)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message."""
    lines = str(error).strip().splitlines()
    with contextlib.suppress(IndexError):
        return lines[0].rstrip(".")
    return type(error).__name__
