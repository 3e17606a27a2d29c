"""Files that a user names: opened without waiting, identified, and replaced atomically.

A name may be any text. It may be too long, hold a null byte, be a loop of links, or name a pipe or
a device. Each of these is a reason in plain words (:func:`explain`), never a crash.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from gnnbench.errors import UsageError

_REASONS = {
    errno.ENOENT: "there is no such file",
    errno.ENOTDIR: "there is no such folder",
    errno.ENAMETOOLONG: "its name is longer than the file system takes",
    errno.ELOOP: "it is a link that leads back to itself",
    errno.EACCES: "this user may not open it",
    errno.EISDIR: "it is a folder",
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "its file system is read-only",
    errno.EFBIG: "the file would be larger than is allowed here",
    errno.EPIPE: "the reader of the pipe has gone",
}
#: The text around the random part of a temporary name.
_PREFIX, _SUFFIX = ".gnnbench-", ".tmp"
#: A younger folder may not have been locked yet by the process that made it.
_NEW_S = 60.0


class FileRefusedError(UsageError):
    """A file that cannot be read; ``reason`` says why, as a clause about it."""

    def __init__(self, path: Path, reason: str) -> None:
        self.reason = reason
        super().__init__(f"{path} cannot be read: {reason}.")


def explain(error: OSError | ValueError) -> str:
    """Return why a file could not be opened or written, as a clause without a full stop.

    Python raises ``ValueError`` for a name that no file system can hold.
    """
    if isinstance(error, OSError):
        if is_full(error) and error.errno is None:
            return f"the disk took a part of it only ({error})"
        return _REASONS.get(error.errno or 0) or error.strerror or str(error)
    if isinstance(error, UnicodeError):
        return "its name has characters that no file's has"
    return "its name has a null byte"


def is_full(error: OSError) -> bool:
    """Return whether a disk, a quota or a limit had no room for a write.

    NumPy raises an error without a number if a disk took only a part of an array.
    """
    if error.errno is None:
        return "requested and" in str(error)
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _describe_kind(mode: int) -> str:
    """Describe a file that is not regular, by its ``st_mode``."""
    if stat.S_ISDIR(mode):
        return "a folder"
    if stat.S_ISFIFO(mode):
        return "a pipe, which can be read only once"
    if stat.S_ISSOCK(mode):
        return "a socket"
    return "a device"


# --------------------------------------------------------------------------- reading


def open_input(path: Path) -> BinaryIO:
    """Open a regular file for reading bytes.

    Raises :class:`FileRefusedError` at once for any other kind, including a pipe without a writer.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise FileRefusedError(path, explain(error)) from error
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise FileRefusedError(path, f"it is {_describe_kind(mode)}, not a file")
    return open(descriptor, "rb")


def read_text(path: Path, limit_bytes: int) -> str:
    """Return a file's text.

    Raises :class:`FileRefusedError` if it is not UTF-8 or has over ``limit_bytes``.
    """
    try:
        with open_input(path) as stream:
            content = stream.read(limit_bytes + 1)
    except OSError as error:
        raise FileRefusedError(path, explain(error)) from error
    if len(content) > limit_bytes:
        raise FileRefusedError(path, f"it has more than {limit_bytes:,} bytes")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FileRefusedError(path, "it is not text in UTF-8") from error


# --------------------------------------------------------------------------- telling apart


def resolve(path: str | Path) -> Path:
    """Return the path without links, ``~`` and dots; unchanged if no file can have it."""
    try:
        return Path(os.path.realpath(os.path.expanduser(path)))
    except (OSError, ValueError):
        return Path(path)


def identify(path: Path) -> tuple[int, int] | Path:
    """Return a key that two names of one file share.

    It is the device and inode of a file that exists, through any links, else the path without
    links.
    """
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return resolve(path)
    return found.st_dev, found.st_ino


def user_cache() -> Path:
    """Return ``~/.cache/gnnbench``, or the folder below ``$XDG_CACHE_HOME``; it may not exist yet.

    Raises ``RuntimeError`` if the home folder is not known.
    """
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "gnnbench"


def user_state() -> Path:
    """Return ``~/.local/state/gnnbench``, or the folder below ``$XDG_STATE_HOME``.

    Raises ``RuntimeError`` if the home folder is not known.
    """
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "gnnbench"


# --------------------------------------------------------------------------- writing


@contextlib.contextmanager
def publish(path: Path, *, overwrite: bool = True) -> Iterator[BinaryIO]:
    """Yield a stream of bytes, and publish its content at ``path`` atomically when the block ends.

    If the block raises, ``path`` is unchanged and nothing is left beside it. A killed process
    leaves a hidden ``.tmp`` file. Links are followed. A pipe or a device is written to directly.
    Without ``overwrite`` nothing is replaced, not even a file that appears while the block runs.

    Raises ``OSError``, including ``FileExistsError``; :func:`explain` puts it in words.
    """
    target = Path(os.path.realpath(path)) if overwrite else path
    mode: int | None = None
    with contextlib.suppress(FileNotFoundError):
        mode = os.stat(path).st_mode
    if mode is not None and not overwrite:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
    if mode is not None and not stat.S_ISREG(mode):
        with _open_special(path) as stream:
            yield stream
        return
    scratch = target.parent / _draw_name()
    try:
        with open(scratch, "x+b") as stream:
            yield stream
            stream.flush()
            if mode is not None:
                os.fchmod(stream.fileno(), stat.S_IMODE(mode) & 0o777)
            os.fsync(stream.fileno())
        if not overwrite and os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        os.replace(scratch, target)
    finally:
        scratch.unlink(missing_ok=True)


def _open_special(path: Path) -> BinaryIO:
    """Open a pipe or a device for writing; a pipe without a reader is an error at once."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ENXIO:
            reason = "it is a pipe without a reader, so start its reader first"
            raise OSError(errno.ENXIO, reason) from error
        raise
    os.set_blocking(descriptor, True)
    return open(descriptor, "wb")


@contextlib.contextmanager
def publish_folder(path: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Yield a new folder to fill, and publish it at ``path`` atomically when the block ends.

    If the block raises, nothing is left of it. The remains of a killed process are removed by the
    next one that makes a folder beside it. ``overwrite`` replaces an existing folder at ``path``,
    which else stays.

    Raises ``OSError``, including ``FileExistsError`` if an existing folder stays.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _clear_abandoned(path.parent)
    scratch = path.parent / _draw_name()
    scratch.mkdir()
    lock = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield scratch
        if overwrite and os.path.lexists(path):
            old = path.parent / _draw_name()
            os.rename(path, old)
            os.rename(scratch, path)
            shutil.rmtree(old, ignore_errors=True)
        else:
            _rename_unless_taken(scratch, path)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        os.close(lock)


def _rename_unless_taken(folder: Path, path: Path) -> None:
    """Rename a folder, also onto an empty one; raise ``FileExistsError`` if the name is taken."""
    try:
        os.rename(folder, path)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from error


def _clear_abandoned(parent: Path) -> None:
    """Remove the folders that :func:`publish_folder` left in ``parent`` when its process ended.

    The locks of such folders are free.
    """
    for folder in parent.glob(f"{_PREFIX}*{_SUFFIX}"):
        with contextlib.suppress(OSError):
            if time.time() - folder.lstat().st_mtime < _NEW_S:
                continue  # about to be locked
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
            finally:
                os.close(lock)


def _draw_name() -> str:
    """Return a hidden name of 64 random bits, which is unique and cannot be guessed."""
    return f"{_PREFIX}{secrets.token_hex(8)}{_SUFFIX}"
