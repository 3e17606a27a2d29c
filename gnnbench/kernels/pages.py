"""Memory pages of freed arrays, kept in this process while runs are measured.

The C library gives the pages of large freed arrays back to the system, which zeroes them again at
their next first touch: a training loop that makes the same arrays in every round pays for that in
every round, each strategy as much as its allocations happen to lie above a limit. It says something
of the allocator, nothing of a strategy.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache

import psutil

#: What ``mallopt`` calls its options, in glibc's malloc.h.
M_TRIM_THRESHOLD = -1
M_MMAP_MAX = -4
M_ARENA_MAX = -8
#: By these a user has decided already.
MALLOC_VARIABLES = ("MALLOC_ARENA_MAX", "MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_",
                    "MALLOC_TRIM_THRESHOLD_")  # fmt: skip


@cache
def keep_pages() -> bool:
    """Have glibc keep freed memory for what is allocated next, from now on, in the whole process.

    No array is a mapping of its own any more, threads started from now on share one heap, and its
    end is given back only beyond an eighth of this machine's memory, or 2 GiB; ``malloc_trim``
    gives back all that is free. Returns whether it is so: not with another C library, and not where
    the environment has options of glibc's malloc, which are left as they are.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None or _is_decided():
        return False
    limit_bytes = min(psutil.virtual_memory().total // 8, 2**31 - 1)
    options = ((M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, limit_bytes), (M_ARENA_MAX, 1))
    return all([mallopt(option, value) == 1 for option, value in options])


def _is_decided() -> bool:
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    return "glibc.malloc." in tunables or any(name in os.environ for name in MALLOC_VARIABLES)
