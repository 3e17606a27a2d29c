"""Start a program, and leave no process behind when it ends or is to end.

gnnbench runs this file as a process between itself and the program. The keeper is the subreaper of
all the program's processes, so none escapes by leaving its group or its parent. The keeper ends
them all when the program ends, on SIGTERM, and when gnnbench dies. It imports no other module of
this project, and uses Linux's ``/proc``.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType

#: Options of Linux's ``prctl``.
SET_DEATH_SIGNAL, SET_SUBREAPER = 1, 36
#: Seconds in which processes of an ended program may end by themselves.
GRACE_S = 3.0


def list_descendants(process: int) -> Iterator[int]:
    """Yield all descendants of a process."""
    for children in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, children.read_text().split()):
                yield child
                yield from list_descendants(child)


def reap() -> dict[int, int]:
    """Collect ended children, and return their exit statuses by process."""
    ended: dict[int, int] = {}
    with suppress(ChildProcessError):
        while True:
            process, status = os.waitpid(-1, os.WNOHANG)
            if not process:
                break
            ended[process] = os.waitstatus_to_exitcode(status)
    return ended


def end_all() -> int:
    """Kill all descendants until none is left, and return the number of different ones."""
    killed: set[int] = set()
    while processes := set(list_descendants(os.getpid())):
        # Stopped first, none can start another while the rest is killed.
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for process in processes:
                with suppress(ProcessLookupError):
                    os.kill(process, number)
        killed |= processes
        time.sleep(0.005)
        reap()
    return len(killed)


def start(command: list[str], cores: set[int], memory_bytes: int) -> subprocess.Popen[bytes]:
    """Start the program in a process group of its own, with its limits."""

    def limit() -> None:
        ctypes.CDLL(None).prctl(SET_DEATH_SIGNAL, signal.SIGKILL)
        os.sched_setaffinity(0, cores)
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        most = memory_bytes if hard == resource.RLIM_INFINITY else min(hard, memory_bytes)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))

    return subprocess.Popen(command, start_new_session=True, preexec_fn=limit)


def wait_for(program: int) -> int:
    """Wait for the program's first process, reap all others meanwhile, and return its status."""
    while True:
        process, status = os.waitpid(-1, 0)
        if process == program:
            return os.waitstatus_to_exitcode(status)


def keep(command: list[str], cores: set[int], memory_bytes: int) -> dict[str, object]:
    """Run the program to its end, and describe it: its status, and the processes it left."""
    try:
        program = start(command, cores, memory_bytes)
    except OSError as error:
        return {"failed": error.strerror or str(error)}
    # Only the program holds its ends of the pipes, so that gnnbench sees when it closes them.
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):
        os.dup2(nowhere, descriptor)
    status = wait_for(program.pid)
    until_s = time.monotonic() + GRACE_S
    while any(list_descendants(os.getpid())) and time.monotonic() < until_s:
        time.sleep(0.01)
        reap()
    return {"status": status, "left": end_all()}


def main(words: list[str]) -> None:
    """Keep one program: its report's descriptor, its cores, its memory, then its command."""
    report, cores, memory_bytes, *command = words
    libc = ctypes.CDLL(None)
    libc.prctl(SET_SUBREAPER, 1)
    libc.prctl(SET_DEATH_SIGNAL, signal.SIGTERM)

    def end(number: int, frame: FrameType | None) -> None:
        end_all()
        os._exit(1)

    signal.signal(signal.SIGTERM, end)
    # An interrupt from a terminal reaches gnnbench too, which decides when the program ends. A
    # handler, unlike SIG_IGN, is not inherited by the program.
    signal.signal(signal.SIGINT, lambda number, frame: None)
    os.set_inheritable(int(report), False)
    found = keep(command, {int(core) for core in cores.split(",")}, int(memory_bytes))
    with os.fdopen(int(report), "w") as stream:
        json.dump(found, stream)


if __name__ == "__main__":
    main(sys.argv[1:])
