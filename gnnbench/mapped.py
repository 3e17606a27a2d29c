"""Arrays that are mapped from files: what is read of them comes from disk, and can leave memory.

The mapping is private: what is written to such an array is seen by this process alone, and never
reaches the file. Its pages are promised to nobody (``MAP_NORESERVE``), so that a file may be larger
than memory.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

AnyArray = npt.NDArray[np.generic]

#: Linux's, which Python has a name for since 3.11.
_MAP_NORESERVE = 0x4000
_REGION = re.compile(r"([0-9a-f]+)-([0-9a-f]+) ")


def map_array(
    stream: IO[bytes], offset: int, dtype: np.dtype[Any], shape: Sequence[int]
) -> AnyArray:
    """The array in an open file from byte ``offset`` on. Raises ``OSError`` and ``ValueError``."""
    count = math.prod(shape)
    if not count:
        return np.empty(shape, dtype=dtype)
    mapped = mmap.mmap(
        stream.fileno(),
        offset + count * dtype.itemsize,
        flags=mmap.MAP_PRIVATE | _MAP_NORESERVE,
        prot=mmap.PROT_READ | mmap.PROT_WRITE,
    )
    flat: AnyArray = np.frombuffer(mapped, dtype, count, offset)
    return flat.reshape(shape)


def shelve(array: AnyArray) -> AnyArray:
    """The same array on disk, in a temporary file that has no name and is gone with the array.
    Raises ``OSError``."""
    with tempfile.TemporaryFile(prefix="gnnbench-") as file:
        np.ascontiguousarray(array).tofile(file)
        file.flush()
        return map_array(file, 0, array.dtype, array.shape)


def let_go(array: AnyArray) -> None:
    """Take the pages of a mapped array out of this process, with all that was written to it."""
    begin, end = _find_pages(array)
    libc = ctypes.CDLL(None, use_errno=True)
    if begin < end:
        libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), mmap.MADV_DONTNEED)


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
