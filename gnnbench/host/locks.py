"""A lock between the processes of a machine, free again as soon as its holder has ended."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def own_path(key: str) -> Path:
    """Return the path of this user's file ``key`` in the folder for temporary files."""
    return Path(tempfile.gettempdir()) / f"gnnbench-{os.getuid()}-{key}"


@contextmanager
def locked(key: str) -> Iterator[None]:
    """Hold the lock ``key`` of this user on this machine in the body.

    Raises ``OSError`` if there can be no lock.
    """
    path = own_path(f"{key}.lock")
    lock = _take(path)
    while not _is_at(lock, path):  # its holder has removed it
        os.close(lock)
        lock = _take(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        fcntl.flock(lock, fcntl.LOCK_UN)  # for forks that have the file open too
        os.close(lock)


def _take(path: Path) -> int:
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def _is_at(lock: int, path: Path) -> bool:
    """Return whether an open file is the one at ``path``."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(lock), os.lstat(path))
    return False
