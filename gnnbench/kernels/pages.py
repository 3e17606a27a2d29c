"""Memory pages of freed arrays, kept in this process while runs are measured.

The C library gives the pages of large freed arrays back to the system, which zeroes them again at
their next first touch: a training loop that makes the same arrays in every round pays for that in
every round, each strategy as much as its allocations happen to lie above a limit. It says something
of the allocator, nothing of a strategy.

Arrays beyond :data:`LARGEST_KEPT` are left alone: among a few of these a heap finds no hole for the
next one, and grows without end.
"""

from __future__ import annotations

import ctypes
import os

import psutil

#: What ``mallopt`` calls its options, in glibc's malloc.h.
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
M_ARENA_MAX = -8
#: Bytes of the largest array whose pages are kept, which is the most that glibc takes.
LARGEST_KEPT = 32 << 20
#: By these a user has decided already.
MALLOC_VARIABLES = ("MALLOC_ARENA_MAX", "MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_",
                    "MALLOC_TRIM_THRESHOLD_")  # fmt: skip

#: Whether pages are kept; None before anybody has asked for it.
_kept: bool | None = None


def keep_pages() -> bool:
    """Have glibc keep freed memory for what is allocated next, from now on, in the whole process.

    Only arrays beyond 32 MiB are mappings of their own, threads started from now on share one heap,
    and its end is given back only beyond an eighth of this machine's memory, or 2 GiB;
    :func:`trim_heap` gives back all that is free. Returns whether it is so: not with another C
    library, and not where the environment has options of glibc's malloc, which are left as they
    are.
    """
    global _kept
    if _kept is None:
        _kept = _set_options()
    return _kept


def are_kept() -> bool:
    """Whether :func:`keep_pages` was called, and could do it."""
    return _kept is True


def trim_heap() -> None:
    """Give what the C library holds free back to the system, where it is one that can.

    Arrays of up to 32 MiB come from its heap, which shrinks from its end alone: what planning has
    let go of would stay in this process beside what it has made.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _set_options() -> bool:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None or _is_decided():
        return False
    limit_bytes = min(psutil.virtual_memory().total // 8, 2**31 - 1)
    options = (
        (M_MMAP_THRESHOLD, LARGEST_KEPT),
        (M_TRIM_THRESHOLD, limit_bytes),
        (M_ARENA_MAX, 1),
    )
    return all([mallopt(option, value) == 1 for option, value in options])


def _is_decided() -> bool:
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    return "glibc.malloc." in tunables or any(name in os.environ for name in MALLOC_VARIABLES)
