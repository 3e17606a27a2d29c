"""A lock between the processes of a machine, free again as soon as its holder has ended."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gnnbench.errors import GnnbenchError

#: Seconds between two looks at the lock.
LOOK_S = 0.05


def own_path(key: str) -> Path:
    """Return the path of this user's file ``key`` in the folder for temporary files."""
    return Path(tempfile.gettempdir()) / f"gnnbench-{os.getuid()}-{key}"


@contextmanager
def locked(key: str, patience_s: float) -> Iterator[None]:
    """Hold the lock ``key`` of this user on this machine in the body.

    Another holder may work for any time, but may not be stopped by a signal for ``patience_s``.

    Raises ``GnnbenchError`` then, and ``OSError`` if there can be no lock.
    """
    path = own_path(f"{key}.lock")
    lock = _open(path)
    try:
        stopped_s = 0.0
        while not _take(lock) or not _is_at(lock, path):
            if not _is_at(lock, path):  # another holder has removed it
                os.close(lock)
                lock = _open(path)
                continue
            time.sleep(LOOK_S)
            stopped_s = stopped_s + LOOK_S if _is_stopped(holder := _read(lock)) else 0.0
            if stopped_s >= patience_s:
                raise GnnbenchError(
                    f"process {holder} prepares data for this one, and was stopped by a signal "
                    f"for {patience_s:g} s; continue or end it, and run again."
                )
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
    finally:
        os.close(lock)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _is_at(lock: int, path: Path) -> bool:
    """Return whether an open file is the one at ``path``."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(lock), os.lstat(path))
    return False


def _take(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(lock: int) -> int:
    text = os.pread(lock, 32, 0)
    return int(text) if text.isdigit() else 0


def _is_stopped(process: int) -> bool:
    import psutil

    try:
        return bool(process) and psutil.Process(process).status() == psutil.STATUS_STOPPED
    except psutil.Error:
        return False
