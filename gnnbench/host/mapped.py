"""Memory-mapped arrays: their pages come from disk when read, and can leave memory.

The mapping is private: only this process sees writes to such an array, and they never reach the
file. Memory is not reserved for its pages (``MAP_NORESERVE``), so a file may be larger than memory.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import mmap
import os
import re
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

AnyArray = npt.NDArray[np.generic]

#: Linux's constant; Python names it since 3.11.
_MAP_NORESERVE = 0x4000
#: The number of Linux's system call on every architecture: one advice on many ranges of addresses.
_PROCESS_MADVISE = 440
_MADV_WILLNEED = 3
#: The most ranges in one call (``UIO_MAXIOV``).
_RANGES = 1024
#: Pages between two wanted ones that are read with them: a disk reads 32 kB more faster than it
#: handles another request.
_GAP_PAGES = 8
#: Bytes of pages requested at once.
WINDOW_BYTES = 1 << 28
_REGION = re.compile(r"([0-9a-f]+)-([0-9a-f]+) ")


class FileMapping(mmap.mmap):
    """A private mapping of a file. An array is mapped if its memory belongs to such a mapping."""


#: All mappings of this process.
_MAPPINGS: weakref.WeakSet[FileMapping] = weakref.WeakSet()


def find_mapping(array: AnyArray) -> FileMapping | None:
    """Return the mapping that holds the memory of an array, or of the array it is a view of.

    Return None if :func:`map_array` did not map it.
    """
    owner: object = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    found = owner.obj if isinstance(owner, memoryview) else owner
    return found if isinstance(found, FileMapping) else None


def is_mapped(array: AnyArray) -> bool:
    """Return whether the memory of an array is mapped from a file, as :func:`find_mapping` says."""
    return find_mapping(array) is not None


def map_array(
    stream: IO[bytes], offset: int, dtype: np.dtype[Any], shape: Sequence[int]
) -> AnyArray:
    """Map the array in an open file from byte ``offset`` on.

    Raises ``OSError`` and ``ValueError``.
    """
    count = math.prod(shape)
    if not count:
        return np.empty(shape, dtype=dtype)
    mapped = FileMapping(
        stream.fileno(),
        offset + count * dtype.itemsize,
        flags=mmap.MAP_PRIVATE | _MAP_NORESERVE,
        prot=mmap.PROT_READ | mmap.PROT_WRITE,
    )
    _MAPPINGS.add(mapped)
    flat: AnyArray = np.frombuffer(mapped, dtype, count, offset)
    return flat.reshape(shape)


def shelve(array: AnyArray) -> AnyArray:
    """Return a copy of the array on disk, in a nameless temporary file, freed with the array.

    Raises ``OSError``.
    """
    shelved: AnyArray = shelve_pieces([array], array.dtype, array.shape)
    return shelved


def shelve_pieces(pieces: Iterable[AnyArray], dtype: np.dtype[Any], shape: Sequence[int]) -> Any:
    """Return an array on disk, as :func:`shelve` does, from its rows in pieces.

    Raises ``OSError``.
    """
    with tempfile.TemporaryFile(prefix="gnnbench-") as file:
        for piece in pieces:
            np.ascontiguousarray(piece, dtype=dtype).tofile(file)
        file.flush()
        return map_array(file, 0, dtype, shape)


def let_go(array: AnyArray) -> None:
    """Drop the pages of a mapped array from this process, with all writes to them.

    Any other array keeps its pages, since they have no other copy.
    """
    _advise(array, mmap.MADV_DONTNEED)


def let_all_go() -> None:
    """Drop the pages of all mapped arrays from this process, except of arrays it has written to.

    A page that is read again comes from the system's cache, or from disk.
    """
    regions = list(_list_regions())
    for mapped in list(_MAPPINGS):
        if not _sum_written(regions, np.frombuffer(mapped, np.uint8)):
            mapped.madvise(mmap.MADV_DONTNEED)


def _advise(array: AnyArray, advice: int) -> None:
    """Tell the system how the pages of a mapped array will be read; ignore any other array."""
    if not is_mapped(array):
        return
    begin, end = _find_pages(array)
    libc = ctypes.CDLL(None, use_errno=True)
    if begin < end:
        libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), advice)


def find_ranges(array: AnyArray, rows: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.uintp]:
    """Return the pages of rows of an array ``(n, f)`` as ranges ``(k, 2)``: address and bytes.

    Pages near each other are one range.
    """
    row_bytes = array.nbytes // max(1, len(array))
    if not len(rows) or not row_bytes:
        return np.empty((0, 2), dtype=np.uintp)
    begin = array.ctypes.data + np.unique(rows).astype(np.int64) * row_bytes
    first, last = begin // mmap.PAGESIZE, (begin + row_bytes - 1) // mmap.PAGESIZE
    starts = np.flatnonzero(np.append(True, first[1:] > last[:-1] + 1 + _GAP_PAGES))
    ends = np.append(starts[1:], len(first)) - 1
    pages = np.stack([first[starts], last[ends] + 1 - first[starts]], axis=1)
    return (pages * mmap.PAGESIZE).astype(np.uintp)


def ask_for(array: AnyArray, rows: npt.NDArray[np.integer[Any]]) -> None:
    """Request the pages of these rows of a mapped array ``(n, f)`` from disk, without waiting.

    This is advice: a system that ignores it reads the pages on access.
    """
    ranges = find_ranges(array, rows)
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        this = os.pidfd_open(os.getpid())
    except (AttributeError, OSError):  # not Linux, or one before 5.3
        return
    try:
        for place in range(0, len(ranges), _RANGES):
            part = ranges[place : place + _RANGES]
            libc.syscall(
                ctypes.c_long(_PROCESS_MADVISE),
                ctypes.c_int(this),
                ctypes.c_void_p(part.ctypes.data),
                ctypes.c_size_t(len(part)),
                ctypes.c_int(_MADV_WILLNEED),
                ctypes.c_uint(0),
            )
    finally:
        os.close(this)


class ReadAhead:
    """A thread that requests rows of a mapped array while others compute.

    For an array in memory, and for None, it does nothing.

    Requested pages wait in memory until they are read, and the system reads pages without room
    twice. A walk therefore requests at most ``WINDOW_BYTES`` beyond the rows in use.
    """

    def __init__(self, array: AnyArray | None) -> None:
        self._array = array
        self._thread = None if array is None else ThreadPoolExecutor(1, "gnnbench-read-ahead")
        #: Rows whose first window was requested, and their windows, by the id of their array, until
        #: ``walk`` comes to them.
        self._begun: dict[int, tuple[npt.NDArray[np.integer[Any]], list[slice]]] = {}

    def begin(self, rows: npt.NDArray[np.integer[Any]]) -> None:
        """Request the first window of rows that will be walked through later."""
        if self._array is not None and len(rows):
            windows = list(self._cut(rows))
            self._begun[id(rows)] = rows, windows
            self._ask(rows[windows[0]])

    @contextmanager
    def scattered(self) -> Iterator[None]:
        """Announce that the block reads rows all over the array.

        A missing page is then read alone. Otherwise the system reads megabytes around it, which
        evicts requested pages.
        """
        if self._array is None:
            yield
            return
        _advise(self._array, mmap.MADV_RANDOM)
        try:
            yield
        finally:
            _advise(self._array, mmap.MADV_NORMAL)

    def walk(self, rows: npt.NDArray[np.integer[Any]]) -> Iterator[slice]:
        """Yield windows of the rows ``(n,)`` in order; each is requested one window ahead.

        If the array is not mapped, yield all rows at once.
        """
        if self._array is None or not len(rows):
            yield slice(0, len(rows))
            return
        if id(rows) not in self._begun:
            self.begin(rows)
        _, windows = self._begun.pop(id(rows))
        for window, following in zip(windows, [*windows[1:], None], strict=True):
            if following is not None:
                self._ask(rows[following])
            yield window

    def _cut(self, rows: npt.NDArray[np.integer[Any]]) -> Iterator[slice]:
        """Yield slices of rows on at most ``WINDOW_BYTES`` of pages."""
        assert self._array is not None
        row_bytes = self._array.nbytes // len(self._array)
        if row_bytes >= mmap.PAGESIZE:
            step = max(1, WINDOW_BYTES // row_bytes)
            yield from (slice(at, at + step) for at in range(0, len(rows), step))
            return
        pages = rows.astype(np.int64) * row_bytes // mmap.PAGESIZE
        turned = np.flatnonzero(np.append(True, pages[1:] != pages[:-1]))
        begins = turned[:: max(1, WINDOW_BYTES // mmap.PAGESIZE)]
        yield from itertools.starmap(slice, itertools.pairwise([*begins.tolist(), len(rows)]))

    def _ask(self, rows: npt.NDArray[np.integer[Any]]) -> None:
        if self._thread is not None and self._array is not None:
            self._thread.submit(ask_for, self._array, rows)


def count_written(array: AnyArray) -> int:
    """Return the bytes of a mapped array's pages that were written and differ from the file.

    0 if the system does not tell (``/proc/self/smaps`` is Linux's).
    """
    return _sum_written(_list_regions(), array)


def _sum_written(regions: Iterable[tuple[int, int, int]], array: AnyArray) -> int:
    begin, end = _find_pages(array)
    return sum(written for first, last, written in regions if first < end and begin < last)


def _list_regions() -> Iterator[tuple[int, int, int]]:
    """Yield begin, end and written bytes of each region of this process's memory."""
    try:
        lines = Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    first = last = 0
    for line in lines:
        region = _REGION.match(line)
        if region is not None:
            first, last = (int(number, 16) for number in region.groups())
        elif line.startswith("Anonymous:"):
            yield first, last, 1024 * int(line.split()[1])


def _find_pages(array: AnyArray) -> tuple[int, int]:
    """Return the addresses of the first page and of the end of an array's memory."""
    begin = array.ctypes.data // mmap.PAGESIZE * mmap.PAGESIZE
    return begin, array.ctypes.data + array.nbytes
