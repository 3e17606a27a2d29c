"""What a rank and the command that started it say to each other, besides exit statuses.

The environment tells a rank that it was started here, on which open socket rank 0 is to have the
store that all meet at, and through which pipe it may report. Under ``torchrun`` none of it is set.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Literal, NoReturn

if TYPE_CHECKING:
    import socket

#: Set for ranks that were started here: their standard input ends when they are left alone.
WATCHED = "GNNBENCH_WATCHED"
#: The address at which ranks of one machine meet.
LOOPBACK = "127.0.0.1"
#: File descriptors: of the pipe to report through, and of rank 0's listening socket.
REPORT_FD, STORE_FD = "GNNBENCH_REPORT_FD", "GNNBENCH_STORE_FD"

#: How long a rank waits for the others in one step before it gives them up, seconds, unless it is
#: told otherwise. Ranks have equal shares of every step, and reach the next one together.
PATIENCE_S = 60

#: That a rank got as far as meeting the others, and that it has done all there was to do.
Report = Literal["J", "D"]
JOINED: Report = "J"
DONE: Report = "D"


def is_watched() -> bool:
    """Whether this process is a rank that the command line started."""
    return WATCHED in os.environ


def report(what: Report) -> None:
    """Tell whoever started this rank, if that is a command which listens."""
    if REPORT_FD in os.environ:
        os.write(int(os.environ[REPORT_FD]), what.encode())


def end(status: int) -> NoReturn:
    """End this process with ``status``.

    One that is still among other ranks ends at once: threads of its process group wait for those
    that did not come, and abort an interpreter that is taken down around them.
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
    """The socket that rank 0 is to listen on: the one that it was given, or a new one, on
    ``address`` alone. Raises ``OSError`` where the port is taken."""
    import socket

    given = os.environ.pop(STORE_FD, None)
    if given is not None:
        return socket.socket(fileno=int(given))
    return socket.create_server((address, port))
