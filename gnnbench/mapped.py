"""Arrays that are mapped from files: what is read of them comes from disk, and can leave memory.

The mapping is private: what is written to such an array is seen by this process alone, and never
reaches the file. Its pages are promised to nobody (``MAP_NORESERVE``), so that a file may be larger
than memory.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import mmap
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

AnyArray = npt.NDArray[np.generic]

#: Linux's, which Python has a name for since 3.11.
_MAP_NORESERVE = 0x4000
#: Linux's system call, on every architecture: one piece of advice on many ranges of addresses.
_PROCESS_MADVISE = 440
_MADV_WILLNEED = 3
#: How many ranges one call takes (``UIO_MAXIOV``).
_RANGES = 1024
#: Pages between two wanted ones that are read with them: a disk takes less time for 32 kB more than
#: for another request.
_GAP_PAGES = 8
#: Bytes of pages that are asked for at once.
WINDOW_BYTES = 1 << 28
_REGION = re.compile(r"([0-9a-f]+)-([0-9a-f]+) ")


class FileMapping(mmap.mmap):
    """A private mapping of a file. An array is mapped where its memory belongs to one."""


def find_mapping(array: AnyArray) -> FileMapping | None:
    """Return the mapping that the memory of an array, or of the array it is a view of, belongs to;
    None where :func:`map_array` did not map it."""
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
    """The array in an open file from byte ``offset`` on. Raises ``OSError`` and ``ValueError``."""
    count = math.prod(shape)
    if not count:
        return np.empty(shape, dtype=dtype)
    mapped = FileMapping(
        stream.fileno(),
        offset + count * dtype.itemsize,
        flags=mmap.MAP_PRIVATE | _MAP_NORESERVE,
        prot=mmap.PROT_READ | mmap.PROT_WRITE,
    )
    flat: AnyArray = np.frombuffer(mapped, dtype, count, offset)
    return flat.reshape(shape)


def shelve(array: AnyArray) -> AnyArray:
    """Return the same array on disk, in a temporary file without a name that ends with the array.

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
    """Take the pages of a mapped array out of this process, with all that was written to it.

    Another array keeps its pages: they have no other copy.
    """
    _advise(array, mmap.MADV_DONTNEED)


def _advise(array: AnyArray, advice: int) -> None:
    """Tell the system how the pages of a mapped array will be read; of another array nothing."""
    if not is_mapped(array):
        return
    begin, end = _find_pages(array)
    libc = ctypes.CDLL(None, use_errno=True)
    if begin < end:
        libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), advice)


def find_ranges(array: AnyArray, rows: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.uintp]:
    """The pages that rows of an array ``(n, f)`` lie on, as ranges of addresses ``(k, 2)``, each
    where it begins and its bytes; pages that are near each other are one range."""
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
    """Have the system read the pages of these rows of a mapped array ``(n, f)`` from disk, without
    waiting until they are there. It is advice: where the system takes none, they are read when
    they are looked at."""
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
    """Asks for rows of a mapped array in a thread of its own, while others compute; of one in
    memory, and of none, for nothing.

    Pages that are asked for wait in memory until they are looked at, and what the system has no
    room for it reads twice: of rows that are walked through no more than ``WINDOW_BYTES`` beyond
    those that are looked at.
    """

    def __init__(self, array: AnyArray | None) -> None:
        self._array = array
        self._thread = None if array is None else ThreadPoolExecutor(1, "gnnbench-read-ahead")
        #: By their array, rows whose first window has been asked for, and their windows, until
        #: ``walk`` comes to them.
        self._begun: dict[int, tuple[npt.NDArray[np.integer[Any]], list[slice]]] = {}

    def begin(self, rows: npt.NDArray[np.integer[Any]]) -> None:
        """Ask for the first window of rows that will be walked through later."""
        if self._array is not None and len(rows):
            windows = list(self._cut(rows))
            self._begun[id(rows)] = rows, windows
            self._ask(rows[windows[0]])

    @contextmanager
    def scattered(self) -> Iterator[None]:
        """For the body, rows are looked at all over the array: a page that is not there is read
        alone. Else the system reads what lies around it as well, megabytes of it, for which pages
        that have been asked for have to go."""
        if self._array is None:
            yield
            return
        _advise(self._array, mmap.MADV_RANDOM)
        try:
            yield
        finally:
            _advise(self._array, mmap.MADV_NORMAL)

    def walk(self, rows: npt.NDArray[np.integer[Any]]) -> Iterator[slice]:
        """Windows of the rows ``(n,)``, one after the other, each asked for before the one before
        it is looked at; of what is not mapped, all rows at once."""
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
        """Slices of rows that lie on so many pages."""
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
    """How many bytes of a mapped array's pages were written to, and are no longer the file's.

    0 where the system does not tell (``/proc/self/smaps`` is Linux's).
    """
    begin, end = _find_pages(array)
    written, inside = 0, False
    try:
        lines = Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    for line in lines:
        region = _REGION.match(line)
        if region is not None:
            first, last = (int(number, 16) for number in region.groups())
            inside = first < end and begin < last
        elif inside and line.startswith("Anonymous:"):
            written += 1024 * int(line.split()[1])
    return written


def _find_pages(array: AnyArray) -> tuple[int, int]:
    """Addresses of the pages that an array's mapping begins and ends with."""
    begin = array.ctypes.data // mmap.PAGESIZE * mmap.PAGESIZE
    return begin, array.ctypes.data + array.nbytes
