"""Messages between a rank and the command that started it, besides exit statuses.

The environment tells a rank that it was started here. It names rank 0's open socket for the store
at which all ranks meet, and the pipe for the rank's reports. Under ``torchrun`` none of it is set.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Literal, NoReturn

if TYPE_CHECKING:
    import socket

#: Set for ranks that were started here: their standard input ends when the command has ended.
WATCHED = "GNNBENCH_WATCHED"
#: The address at which ranks of one machine meet.
LOOPBACK = "127.0.0.1"
#: File descriptors: of the pipe to report through, and of rank 0's listening socket.
REPORT_FD, STORE_FD = "GNNBENCH_REPORT_FD", "GNNBENCH_STORE_FD"

#: Seconds that a rank waits for the others in one step before it gives up, by default. Ranks have
#: equal shares of every step, and reach the next one together.
PATIENCE_S = 60

#: A rank has met the others, and a rank has finished its work.
Report = Literal["J", "D"]
JOINED: Report = "J"
DONE: Report = "D"


def is_watched() -> bool:
    """Return whether this process is a rank that the command line started."""
    return WATCHED in os.environ


def report(what: Report) -> None:
    """Report to the command that started this rank, if it listens."""
    if REPORT_FD in os.environ:
        os.write(int(os.environ[REPORT_FD]), what.encode())


def end(status: int) -> NoReturn:
    """End this process with ``status``.

    A rank that is still connected to others ends at once. Threads of its process group wait for
    missing ranks, and abort an interpreter that is shut down around them.
    """
    group = sys.modules.get("torch.distributed")
    if group is not None and group.is_available() and group.is_initialized():
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status)
    sys.exit(status)


def find_loopback() -> str | None:
    """Return the interface of :data:`LOOPBACK`; None where it is down or missing."""
    import psutil

    states = psutil.net_if_stats()
    for name, addresses in psutil.net_if_addrs().items():
        up = name not in states or states[name].isup
        if up and any(each.address == LOOPBACK for each in addresses):
            return str(name)
    return None


def open_store_socket(address: str, port: int) -> socket.socket:
    """Return the listening socket of rank 0: an inherited one, or a new one on ``address``.

    Raises ``OSError`` if the port is taken.
    """
    import socket

    given = os.environ.pop(STORE_FD, None)
    if given is not None:
        return socket.socket(fileno=int(given))
    return socket.create_server((address, port))
