"""An error message in place of a crash for mapped files that are truncated while they are read.

The system sends SIGBUS if a page of a mapping no longer has bytes of the file. Python's own
handlers never run for it, so a compiled handler ends the process. Without compiled kernels the
signal kills the process.
"""

from __future__ import annotations

import weakref
from pathlib import Path

from gnnbench.errors import GnnbenchError
from gnnbench.host.mapped import AnyArray, find_mapping
from gnnbench.kernels.native import load


def watch(array: AnyArray, path: Path) -> None:
    """Report ``path`` as damaged and end the process if reading the mapped array fails."""
    native, mapping = load("faults"), find_mapping(array)
    if native is None or mapping is None:
        return
    said = f"{path} became shorter while it was read, or its disk failed; run again with a copy."
    text = f"gnnbench: error: {said}\n".encode("utf-8", "backslashreplace")
    begin = array.__array_interface__["data"][0]
    slot = native.watch(begin, array.nbytes, text, GnnbenchError.exit_status)
    weakref.finalize(mapping, native.unwatch, slot).atexit = False
