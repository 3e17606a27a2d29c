"""Whether what a file asks for fits this machine's memory, before it is allocated."""

from __future__ import annotations

import contextlib
import resource
from pathlib import Path

import psutil

from gnnbench.errors import DatasetError
from gnnbench.units import format_si

_CONTROL_GROUPS = Path("/sys/fs/cgroup")


def find_available_bytes() -> int:
    """Return the bytes of memory that this process can still allocate.

    The machine, its Linux control group (less its file cache) and the address space limit them.
    """
    sizes = [int(psutil.virtual_memory().available)]
    for limit, used, cached in (
        ("memory.max", "memory.current", "file "),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "total_cache "),
    ):
        with contextlib.suppress(OSError, ValueError):  # no such file, or "max"
            free = _read_number(limit) - _read_number(used)
            lines = (_CONTROL_GROUPS / limit).with_name("memory.stat").read_text().splitlines()
            sizes.append(free + sum(int(s.split()[1]) for s in lines if s.startswith(cached)))
    limit_bytes, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit_bytes != resource.RLIM_INFINITY:
        sizes.append(limit_bytes - int(psutil.Process().memory_info().vms))
    return max(0, min(sizes))


def _read_number(name: str) -> int:
    return int((_CONTROL_GROUPS / name).read_text())


def check_memory(where: str, what: str, needed_bytes: int) -> None:
    """Raise :class:`DatasetError` where ``what`` needs more memory than there is."""
    available_bytes = find_available_bytes()
    if needed_bytes > available_bytes:
        raise DatasetError(
            f"{where}: {what} would take {format_si(float(needed_bytes), 'B')} of memory and "
            f"{format_si(float(available_bytes), 'B')} are free here; use a smaller graph, or a "
            f"machine with more memory."
        )
