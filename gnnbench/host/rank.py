"""The place of a rank among others, and its messages to the command that started it.

``torchrun`` and ``gnnbench compare --processes`` state the place in the same variables. The latter
also names rank 0's open socket for the store at which all ranks meet, and the pipe for the rank's
reports. Under ``torchrun`` these two are not set.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn

from gnnbench.errors import UsageError

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

#: Runs the ``gnnbench`` whose package is the first argument, with the other arguments. The current
#: folder, which ``-c`` puts first on the path, is removed before any import. The user's PYTHONPATH
#: stays.
BOOTSTRAP = """
import sys
if not getattr(sys.flags, "safe_path", False):
    del sys.path[0]
from importlib.util import module_from_spec, spec_from_file_location
package = sys.argv.pop(1)
spec = spec_from_file_location(
    "gnnbench", f"{package}/__init__.py", submodule_search_locations=[package]
)
module = sys.modules["gnnbench"] = module_from_spec(spec)
spec.loader.exec_module(module)
from gnnbench.__main__ import start
start()
"""

#: Follows the name of a rank in the reason that it gives the others for its own failure.
HAS_FAILED = "has failed:"

#: A rank has met the others, and a rank has finished its work.
Report = Literal["J", "D"]
JOINED: Report = "J"
DONE: Report = "D"


@dataclass(frozen=True, slots=True)
class Place:
    """The place of this process among the ranks of a job.

    It is number ``rank`` of ``size``, and number ``local_rank`` of the ``local_size`` ranks of its
    ``node``. All ranks meet at ``address`` and ``port``.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    node: int
    address: str
    port: int

    @property
    def local(self) -> bool:
        """Whether all ranks are on this node."""
        return self.local_size == self.size


def is_loopback(address: str) -> bool:
    """Return whether an address is reachable on its own machine alone."""
    return address in ("localhost", "::1") or address.startswith("127.")


def spell_command(arguments: Sequence[str]) -> list[str]:
    """Return the command that runs this ``gnnbench`` with ``arguments``, in any folder."""
    return [sys.executable, "-c", BOOTSTRAP, str(Path(__file__).parents[1]), *arguments]


def read_place() -> Place | None:
    """Return this process's place from ``torchrun``'s environment; None if there is none.

    There is none without ``RANK`` and ``WORLD_SIZE``. Without ``LOCAL_WORLD_SIZE``, all ranks are
    on this node if they meet at its loopback. Otherwise each rank is alone on its node. Raises
    ``UsageError`` for a variable that is missing or wrong.
    """
    if not {"RANK", "WORLD_SIZE"} <= os.environ.keys():
        return None
    address = os.environ.get("MASTER_ADDR", LOOPBACK)
    size = _read_number("WORLD_SIZE", least=1)
    rank = _read_number("RANK", below=size)
    here = is_loopback(address)
    local_size = _read_number("LOCAL_WORLD_SIZE", size if here else 1, least=1, below=size + 1)
    local_rank = _read_number("LOCAL_RANK", rank if here else 0, below=local_size)
    node = _read_number("GROUP_RANK", rank // local_size)
    port = _read_number("MASTER_PORT", 29500, below=2**16)
    return Place(rank, size, local_rank, local_size, node, address, port)


def _read_number(name: str, default: int | None = None, least: int = 0, below: int = 2**31) -> int:
    text = os.environ.get(name, "" if default is None else str(default))
    if text.isdecimal() and least <= int(text) < below:
        return int(text)
    raise UsageError(
        f"{name} is {text!r}, not a whole number from {least} to {below - 1:,}; start the ranks by "
        f"torchrun or by --processes, which set it."
    )


def is_watched() -> bool:
    """Return whether this process is a rank that the command line started."""
    return WATCHED in os.environ


class _Connection:
    """Whether this rank is connected to others, or connecting."""

    under_way = False


def report(what: Report) -> None:
    """Report to the command that started this rank, if it listens."""
    _Connection.under_way = what == JOINED
    if REPORT_FD in os.environ:
        os.write(int(os.environ[REPORT_FD]), what.encode())


def end(status: int, *, interrupted: bool = False) -> NoReturn:
    """End this process with ``status``.

    A rank that is still connected to others ends at once, and so does one that is connecting.
    Threads of its process group wait for missing ranks, and abort an interpreter that is shut down
    around them. So does one that was ``interrupted``, after the clean-up at exit: Python's own exit
    has another status if the interrupt came in code that a library runs.
    """
    if interrupted and not _Connection.under_way:
        atexit._run_exitfuncs()
    if interrupted or _Connection.under_way:
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
