"""Files a command writes: checked before the work starts, and replaced only as a whole."""

from __future__ import annotations

import os
from pathlib import Path

from gnnbench.errors import GnnbenchError, UsageError


def check_output(path: Path) -> None:
    """Raise ``UsageError`` when ``path`` could not be written; nothing is touched.

    Called before a long run, so that its result is not lost to a misspelled folder.
    """
    if path.is_dir():
        raise UsageError(f"{path} is a folder; name a file in it to write to.")
    if not path.parent.is_dir():
        raise UsageError(f"{path} cannot be written: there is no folder {path.parent}; make it.")
    if path.exists() and not os.access(path, os.W_OK):
        raise UsageError(f"{path} exists and may not be written; choose another file.")
    if not path.exists() and not os.access(path.parent, os.W_OK | os.X_OK):
        raise UsageError(f"the folder {path.parent} may not be written to; choose another.")


def write_text(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8, whole or not at all: to a temporary file beside it, then renamed.

    A link is followed, and a pipe or a device is written to directly. Raises ``UsageError`` as
    ``check_output`` does, and ``GnnbenchError`` when the disk refuses.
    """
    check_output(path)
    target = path.resolve()
    try:
        if target.exists() and not target.is_file():
            target.write_text(text, encoding="utf-8")
            return
        temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        try:
            temporary.write_text(text, encoding="utf-8")
            if target.exists():
                temporary.chmod(target.stat().st_mode & 0o777)
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise GnnbenchError(f"{path} could not be written: {error.strerror}.") from error
