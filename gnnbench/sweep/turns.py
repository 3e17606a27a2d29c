"""One measured run at a time on each machine."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from gnnbench.sweep.running import Task

#: The file that a measured run locks, in the folder for temporary files.
LOCK = "gnnbench-measured.lock"


def is_measured(task: Task) -> bool:
    """Whether a task's times are measured on the machine that carries it out."""
    from gnnbench.errors import GnnbenchError
    from gnnbench.machines import load_platform

    try:
        return not load_platform(str(task.configuration.job.platform)).virtual
    except GnnbenchError:
        return False  # the run reports its own error


@contextlib.contextmanager
def hold_machine(folder: Path | None = None) -> Iterator[None]:
    """Wait until no other measured run is on this machine, and keep others waiting meanwhile.

    The lock belongs to the operating system, and ends with the process. Nothing is held if there
    can be no lock.
    """
    held = _open_lock((folder or Path(tempfile.gettempdir())) / LOCK)
    if held is None:
        yield
        return
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        fcntl.flock(held, fcntl.LOCK_UN)  # for forks that have the file open too
        os.close(held)


def _open_lock(path: Path) -> int | None:
    """Open a lock's file, which may be another user's; None if that is impossible."""
    for flags in (0, os.O_CREAT | os.O_EXCL, 0):
        with contextlib.suppress(OSError):
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | flags, 0o644)
    return None
