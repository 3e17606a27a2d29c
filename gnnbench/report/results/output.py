"""Output of commands: files and standard output.

Files are checked before the work starts, and replaced only as a whole. A document on standard
output is not mixed with other output.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from gnnbench.errors import GnnbenchError, UsageError
from gnnbench.host.files import explain, identify, publish


def check_output(path: Path) -> None:
    """Raise ``UsageError`` if ``path`` could not be written; nothing is touched.

    It is called before a long run, so that its result is not lost to a misspelled folder.
    """
    exists = True
    try:
        found = os.stat(path)
        if stat.S_ISDIR(found.st_mode):
            raise UsageError(f"{path} is a folder; name a file in it to write to.")
        if stat.S_ISREG(found.st_mode) and _takes_standard_output(found):
            raise UsageError(
                f"{path} is where standard output or standard error goes; name "
                f"another file, or send JSON there with --json -."
            )
    except (FileNotFoundError, NotADirectoryError):
        exists = False
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be written: {explain(error)}; choose another.") from error
    folder = Path(os.path.realpath(path)).parent
    if not folder.is_dir():
        raise UsageError(f"{path} cannot be written: there is no folder {folder}; make it.")
    if exists and not os.access(path, os.W_OK):
        raise UsageError(f"{path} exists and may not be written; choose another file.")
    if not exists and not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"the folder {folder} may not be written to; choose another.")


def _takes_standard_output(found: os.stat_result) -> bool:
    """Return whether standard output or error goes to this file, so that it must stay."""
    for descriptor in (1, 2):
        try:
            if os.path.samestat(found, os.fstat(descriptor)):
                return True
        except OSError:  # closed
            continue
    return False


def check_outputs(outputs: Iterable[Path], inputs: Iterable[Path] = ()) -> None:
    """Raise ``UsageError`` unless each of ``outputs`` is a separate file that can be written.

    An output must not be one of ``inputs``, under any name or link. Commands call this before the
    work starts, with every file that they read and write.
    """
    read = {identify(path): path for path in inputs}
    written: dict[tuple[int, int] | Path, Path] = {}
    for path in outputs:
        check_output(path)
        same = identify(path)
        if same in read:
            raise UsageError(
                f"{path} would be overwritten, and the command reads it"
                f"{'' if read[same] == path else f' as {read[same]}'}; name another output."
            )
        if same in written:
            known = written[same]
            raise UsageError(
                f"{path} is named for two outputs{'' if known == path else f', once as {known}'}; "
                f"give each its own file."
            )
        written[same] = path


def make_folder(folder: Path) -> None:
    """Make a folder of the user's, such as the cache, and its parents."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        taken = "it is a link to nothing" if os.path.islink(folder) else "it is a file"
        reason = taken if isinstance(error, FileExistsError) else explain(error)
        raise UsageError(
            f"the folder {folder} cannot be made: {reason}; name another place to write to."
        ) from error


def write_text(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8 by :func:`write_bytes`.

    A character without UTF-8 bytes (half of a surrogate pair, from a file name) is written as its
    escape.
    """
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write ``content``, whole or not at all.

    A link is followed, and a pipe or a device is written to directly. Raises ``UsageError`` as
    ``check_output`` does, and ``GnnbenchError`` when the disk refuses.
    """
    check_output(path)
    try:
        with publish(path) as stream:
            stream.write(content)
    except OSError as error:
        raise GnnbenchError(f"{path} could not be written: {explain(error)}.") from error


def write_all(writes: Iterable[tuple[str, Callable[[], object]]]) -> None:
    """Write each of several outputs, going on after one fails.

    Each has the name that a sentence calls it by. Afterwards raises one ``GnnbenchError`` with the
    sentences of all failures. A reader who has left is not a failure of one output:
    ``BrokenPipeError`` is raised at once.
    """
    failures: list[GnnbenchError] = []
    for name, write in writes:
        try:
            write()
        except GnnbenchError as error:
            failures.append(error)
        except BrokenPipeError:
            raise
        except Exception as error:
            failure = GnnbenchError(f"{name} could not be written: {_say_why(error)}.")
            failure.__cause__ = error
            failures.append(failure)
    if failures:
        sentences = "; ".join(str(error).rstrip(".") for error in failures)
        raise GnnbenchError(f"{sentences}.") from failures[0]


def _say_why(error: Exception) -> str:
    return explain(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"


class _StandardOutput:
    """Standard output while it is set aside for a document."""

    kept: TextIO | int | None = None


@contextmanager
def set_aside_standard_output() -> Iterator[None]:
    """Reserve standard output for :func:`write_standard_output` in the body.

    All other output goes to standard error: from Python, from a library in C, and from processes
    that are started meanwhile.
    """
    before, sys.stdout = sys.stdout, sys.stderr
    before.flush()
    copy = None
    try:
        if _descriptor_of(before) == 1:
            copy = os.dup(1)
            os.dup2(2, 1)
            _StandardOutput.kept = copy
            yield
        else:  # somebody reads it in this process
            _StandardOutput.kept = before
            yield
    finally:
        _StandardOutput.kept = None
        sys.stdout = before
        if copy is not None:
            _flush_c()
            os.dup2(copy, 1)
            os.close(copy)


def _descriptor_of(stream: TextIO) -> int | None:
    """Return the file descriptor that a stream writes to; None for one in memory."""
    try:
        return stream.fileno()
    except (AttributeError, OSError):
        return None


def _flush_c() -> None:
    """Flush the buffers of C's own streams, before their descriptors change."""
    import ctypes

    ctypes.CDLL(None).fflush(None)


def find_standard_output() -> TextIO | int | None:
    """Return where a process that speaks for this one is to write: None for inherited output."""
    return _StandardOutput.kept


def write_standard_output(text: str) -> None:
    """Write a document to standard output, also while it is set aside.

    A reader who has left is no error. Raises ``GnnbenchError`` when the disk refuses.
    """
    kept = _StandardOutput.kept
    if not isinstance(kept, int):
        stream = kept or sys.stdout
        stream.write(text)
        stream.flush()
        return
    rest = memoryview(text.encode("utf-8", "backslashreplace"))
    try:
        while rest:
            rest = rest[os.write(kept, rest) :]
    except BrokenPipeError:
        return
    except OSError as error:
        reason = f"standard output could not be written: {explain(error)}."
        raise GnnbenchError(reason) from error
