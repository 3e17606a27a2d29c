"""Memory pages of freed arrays, kept in this process while runs are measured.

The C library gives the pages of large freed arrays back to the system, which zeroes them again at
their next first touch: a training loop that makes the same arrays in every round pays for that in
every round, each strategy as much as its allocations happen to lie above a limit. It says something
of the allocator, nothing of a strategy.

Arrays of more than 32 MiB would be mappings of their own, however much memory is kept. The end of
the heap is therefore as large as all that may be kept, from the beginning, without a page being
touched: large arrays are cut from it, and only where it has no room for one is that one mapped.
"""

from __future__ import annotations

import ctypes
import os
import resource
from pathlib import Path

import psutil

#: What ``mallopt`` calls its options, in glibc's malloc.h.
M_TRIM_THRESHOLD = -1
M_TOP_PAD = -2
M_MMAP_THRESHOLD = -3
M_ARENA_MAX = -8
#: Bytes of an array that may be a mapping of its own, which is the most that glibc takes.
MAPPED_FROM = 32 << 20
#: The share of the machine's memory that is kept, and how much of it the heap's end has at least,
#: beyond which it may grow before it is cut.
KEPT_SHARE, END_SHARE = 1 / 8, 7 / 8
#: What the heap's end has by default.
PLAIN_END = 128 << 10
#: The most blocks that are asked for until the heap grows.
MOST_BLOCKS = 64
#: By these a user has decided already.
MALLOC_VARIABLES = ("MALLOC_ARENA_MAX", "MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_",
                    "MALLOC_TOP_PAD_", "MALLOC_TRIM_THRESHOLD_")  # fmt: skip

#: Whether pages are kept; None before anybody has asked for it.
_kept: bool | None = None
#: Whether large arrays come from the heap's end.
_ends_large = False


def keep_pages() -> bool:
    """Have glibc keep freed memory for what is allocated next, from now on, in the whole process.

    All that is kept is an eighth of this machine's memory, or 2 GiB; only arrays for which the heap
    has no room are mappings of their own. Threads started from now on share one heap.
    :func:`trim_heap` gives back all that is free. Returns whether it is so: not with another C
    library, and not where the environment has options of glibc's malloc, which are left as they
    are. Where address space is limited arrays of more than 32 MiB are mappings as ever.
    """
    global _kept
    if _kept is None:
        _kept = _set_options()
    return _kept


def are_kept() -> bool:
    """Whether :func:`keep_pages` was called, and could do it."""
    return _kept is True


def count_kept_bytes() -> int:
    """The most bytes of an array whose pages :func:`keep_pages` keeps."""
    if _is_decided() or getattr(ctypes.CDLL(None), "mallopt", None) is None:
        return MAPPED_FROM
    return int(END_SHARE * _limit_bytes()) if _has_address_space() else MAPPED_FROM


def return_large_arrays() -> None:
    """Have the pages of freed arrays beyond 32 MiB go back to the system from now on: where memory
    is short, it is not to be kept."""
    global _ends_large
    if _ends_large:
        _ends_large = ctypes.CDLL(None).mallopt(M_TOP_PAD, PLAIN_END) != 1
    trim_heap()


def trim_heap() -> None:
    """Give what the C library holds free back to the system, where it is one that can.

    What planning has let go of would stay in this process beside what it has made.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    if _ends_large:
        _grow_heap()


def _set_options() -> bool:
    global _ends_large
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None or _is_decided():
        return False
    limit_bytes = _limit_bytes()
    options = (
        (M_MMAP_THRESHOLD, MAPPED_FROM),
        (M_TRIM_THRESHOLD, limit_bytes),
        (M_ARENA_MAX, 1),
    )
    kept = all([mallopt(option, value) == 1 for option, value in options])
    if kept and _has_address_space():
        _ends_large = mallopt(M_TOP_PAD, int(END_SHARE * limit_bytes)) == 1
        _grow_heap()
    return kept


def _limit_bytes() -> int:
    return min(int(KEPT_SHARE * psutil.virtual_memory().total), 2**31 - 1)


def _has_address_space() -> bool:
    """Whether the heap may grow by more than is touched."""
    limits = [resource.getrlimit(each)[0] for each in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
    strict = Path("/proc/sys/vm/overcommit_memory")
    counted = strict.exists() and strict.read_text().strip() == "2"
    return not counted and set(limits) == {resource.RLIM_INFINITY}


def _grow_heap() -> None:
    """Have the heap grow once, by which its end gets its size: blocks are asked for until no hole
    has room for one."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype = libc.sbrk.restype = ctypes.c_void_p
    libc.malloc.argtypes, libc.free.argtypes = [ctypes.c_size_t], [ctypes.c_void_p]
    libc.sbrk.argtypes = [ctypes.c_ssize_t]
    before = libc.sbrk(0)
    blocks: list[int | None] = []
    while libc.sbrk(0) == before and len(blocks) < MOST_BLOCKS:
        blocks.append(libc.malloc(MAPPED_FROM - (1 << 20)))
    for block in blocks:
        libc.free(block)


def _is_decided() -> bool:
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    return "glibc.malloc." in tunables or any(name in os.environ for name in MALLOC_VARIABLES)
