"""Memory pages of freed arrays, kept in this process while runs are measured.

The C library returns the pages of large freed arrays to the system, which zeroes them again at
their next first touch. A training loop that makes the same arrays in every round pays for this in
every round. How much it pays depends on which allocations exceed a limit of the allocator, not on
the strategy.

Arrays of more than 32 MiB would be separate mappings, however much memory is kept. The heap is
therefore extended at the start by all the memory that may be kept, without touching a page. Large
arrays are cut from this end of the heap. An array is mapped only if the heap has no room for it.
"""

from __future__ import annotations

import ctypes
import os
import resource
from pathlib import Path

import psutil

#: The numbers of ``mallopt``'s options, from glibc's malloc.h.
M_TRIM_THRESHOLD = -1
M_TOP_PAD = -2
M_MMAP_THRESHOLD = -3
M_ARENA_MAX = -8
#: Smallest array that is mapped separately [bytes]: the largest threshold that glibc accepts.
MAPPED_FROM = 32 << 20
#: The share of the machine's memory that is kept, and the part of that share that the heap's end
#: has at least. The end may grow further before it is trimmed.
KEPT_SHARE, END_SHARE = 1 / 8, 7 / 8
#: The size of the heap's end by default.
PLAIN_END = 128 << 10
#: The most blocks that are allocated to make the heap grow.
MOST_BLOCKS = 64
#: Environment variables by which a user has configured malloc already.
MALLOC_VARIABLES = ("MALLOC_ARENA_MAX", "MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_",
                    "MALLOC_TOP_PAD_", "MALLOC_TRIM_THRESHOLD_")  # fmt: skip

#: Whether pages are kept; None before the first call of :func:`keep_pages`.
_kept: bool | None = None
#: Whether large arrays come from the heap's end.
_ends_large = False


def keep_pages() -> bool:
    """Make glibc keep freed memory for later allocations, from now on, in the whole process.

    At most an eighth of this machine's memory, or 2 GiB, is kept. Only arrays for which the heap
    has no room are mapped separately. Threads started from now on share one heap. :func:`trim_heap`
    returns all free memory.

    Returns whether memory is kept. It is not with another C library, nor if the environment sets
    options of glibc's malloc, which then stay in force. If address space is limited, arrays of more
    than 32 MiB are still mapped separately.
    """
    global _kept
    if _kept is None:
        _kept = _set_options()
    return _kept


def are_kept() -> bool:
    """Return whether :func:`keep_pages` was called and succeeded."""
    return _kept is True


def count_kept_bytes() -> int:
    """Return the size [bytes] of the largest array that :func:`keep_pages` keeps in memory."""
    if _is_decided() or getattr(ctypes.CDLL(None), "mallopt", None) is None:
        return MAPPED_FROM
    return int(END_SHARE * _limit_bytes()) if _has_address_space() else MAPPED_FROM


def return_large_arrays() -> None:
    """Return the pages of freed arrays above 32 MiB to the system from now on."""
    global _ends_large
    if _ends_large:
        _ends_large = ctypes.CDLL(None).mallopt(M_TOP_PAD, PLAIN_END) != 1
    trim_heap()


def trim_heap() -> None:
    """Return the C library's free memory to the system, if the library supports it.

    Otherwise memory that planning freed would stay in this process.
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
    """Return whether the heap may reserve more memory than is touched."""
    limits = [resource.getrlimit(each)[0] for each in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
    strict = Path("/proc/sys/vm/overcommit_memory")
    counted = strict.exists() and strict.read_text().strip() == "2"
    return not counted and set(limits) == {resource.RLIM_INFINITY}


def _grow_heap() -> None:
    """Make the heap grow once, which sets the size of its end.

    Blocks are allocated until no hole has room for one.
    """
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
