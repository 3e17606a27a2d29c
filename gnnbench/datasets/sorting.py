"""Edges sorted in files, for graphs whose edges do not fit into memory."""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from gnnbench.datasets.npy import ArrayWriter
from gnnbench.datasets.topology import Repairs
from gnnbench.host.cores import count_cores
from gnnbench.host.progress import doing, note_steps
from gnnbench.records import BoolArray, IndexArray, IntArray

Keys = npt.NDArray[np.uint64]
Given = TypeVar("Given")
Made = TypeVar("Made")

#: About how many keys are sorted at a time, and so how large a file of them is.
KEYS_PER_FILE = 1 << 20
#: A file of more times as many keys is divided once more.
_UNEVEN = 8
#: Keys are divided by at most so many bits at a time.
_MOST_BITS = 9
#: More threads would hold too much in memory.
_MOST_THREADS = 4


def work_ahead(work: Callable[[Given], Made], given: Iterable[Given]) -> Iterator[Made]:
    """Yield ``work(each)`` in order, while threads work on those that follow.

    At most one more than there are threads are in memory. Raises what ``work`` raises first.
    """
    threads = min(_MOST_THREADS, count_cores())
    waiting: deque[Future[Made]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        for each in given:
            waiting.append(pool.submit(work, each))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


class KeyFiles:
    """Keys, uint64 below 2^``bits``, that wait in files until they are sorted.

    Keys in a file begin with the same bits; keys that differ in the last bit alone share a file.
    About ``count`` keys will be added. The files lie in the empty folder ``scratch``. Raises
    ``OSError``.
    """

    def __init__(self, scratch: Path, bits: int, count: int) -> None:
        digits = min(_MOST_BITS, bits - 1, (max(0, count - 1) // KEYS_PER_FILE).bit_length())
        self._bits, self._low = bits, bits - digits
        self._paths = [scratch / str(number) for number in range(1 << digits)]
        for path in self._paths:
            path.touch(exist_ok=False)

    def add(self, pack: Callable[[Given], Keys], given: Iterable[Given]) -> int:
        """Add the keys that ``pack`` makes of each that is given, in any order; return how many.

        Threads pack them.
        """
        from gnnbench.kernels.dispatch import sort_keys

        def divide(each: Given) -> list[Keys]:
            keys = sort_keys(pack(each), self._low, self._bits)
            # Bits above are the same in all keys, and 0 unless the files divide one of others.
            above = int(keys[0]) >> self._bits << self._bits if len(keys) else 0
            least = [above + (number << self._low) for number in range(1, len(self._paths))]
            return np.split(keys, np.searchsorted(keys, np.array(least, dtype=np.uint64)))

        count = 0
        for parts in work_ahead(divide, given):
            note_steps(sum(map(len, parts)))
            for path, part in zip(self._paths, parts, strict=True):
                if len(part):
                    with open(path, "ab") as stream:
                        part.tofile(stream)
                    count += len(part)
        return count

    def read(self, work: Callable[[Keys], Made], *, last: bool = False) -> Iterator[Made]:
        """Yield ``work(keys)`` of some keys at a time, which ascend, from the least to the largest.

        Threads do the work. The ``last`` time the files are deleted.
        """
        from gnnbench.kernels.dispatch import sort_keys

        def load(part: tuple[Path, int, bool]) -> Made:
            path, low, gone = part
            keys = np.fromfile(path, dtype=np.uint64)
            if gone:
                path.unlink()
            return work(sort_keys(keys, 0, low))

        return work_ahead(load, self._list_parts(last=last))

    def _list_parts(self, *, last: bool) -> Iterator[tuple[Path, int, bool]]:
        """Yield small files, the bits in which their keys differ, and whether to delete each."""
        for path in self._paths:
            count = path.stat().st_size // 8
            if count <= _UNEVEN * KEYS_PER_FILE or self._low == 1:
                yield path, self._low, last
                continue
            parts = KeyFiles(Path(tempfile.mkdtemp(dir=path.parent)), self._low, count)
            stored = np.memmap(path, np.uint64, "r")
            parts.add(np.array, np.array_split(stored, 1 + count // KEYS_PER_FILE))
            if last:
                path.unlink()
            yield from parts._list_parts(last=True)


def _mark_first(keys: Keys) -> BoolArray:
    """Return whether each of ascending keys is the first of its value."""
    first = np.ones(len(keys), dtype=np.bool_)
    np.not_equal(keys[1:], keys[:-1], out=first[1:])
    return first


def sort_edges(
    scratch: Path,
    num_vertices: int,
    num_edges: int,
    edges: Iterable[tuple[IntArray, IntArray]],
    into: Path,
    *,
    directed: bool = False,
) -> tuple[IntArray, Repairs]:
    """Make the canonical graph of edges in bounded memory; return its offsets and the repairs.

    It equals the graph of ``construct.symmetrise``. Its ``indices`` are written to the file
    ``into``. ``edges`` gives ``num_edges`` sources and destinations, int64 and in range, some at a
    time. Files in the empty folder ``scratch`` take 16 bytes an edge. Memory takes some 16 bytes a
    vertex and 8 times :data:`KEYS_PER_FILE` keys a thread. Raises ``OSError``.
    """
    width = (num_vertices - 1).bit_length()
    # An edge is its row, its column, and a bit that says that it was given the other way round.
    row, column, back = np.uint64(width + 1), np.uint64(1), np.uint64(1)

    def pack(ends: tuple[IntArray, IntArray]) -> Keys:
        chosen = ends[0] != ends[1]
        src, dst = ends if chosen.all() else (ends[0][chosen], ends[1][chosen])
        low, high = src.astype(np.uint64), dst.astype(np.uint64)
        keys = high << row | low << column
        return keys if directed else np.append(keys, low << row | high << column | back)

    ways = 1 if directed else 2
    files = KeyFiles(scratch, 2 * width + 1, ways * num_edges)
    with doing("sorting edges into files", ways * num_edges):
        added = files.add(pack, edges) // ways

    def unpack(keys: Keys) -> tuple[int, IntArray, IndexArray, int]:
        """Return the first row, the degrees from there on, the columns, and the given edges."""
        pairs = keys >> column
        first = _mark_first(pairs)
        # Of an edge that was given both ways, the one as it was comes first.
        forward = int(np.count_nonzero(first & (keys & back == 0)))
        pairs = pairs[first]
        rows = (pairs >> np.uint64(width)).view(np.int64)
        lowest = int(rows[0]) if len(rows) else 0
        rows -= lowest
        pairs &= np.uint64((1 << width) - 1)
        return lowest, np.bincount(rows), pairs.astype(np.int32), forward

    indptr = np.zeros(num_vertices + 1, dtype=np.int64)
    distinct = forward = 0
    merging = doing("writing sorted edges", ways * num_edges)
    with ArrayWriter(into, np.int32) as writer, merging as merged:
        for lowest, degrees, columns, straight in files.read(unpack, last=True):
            merged.advance(len(columns))
            indptr[lowest + 1 : lowest + 1 + len(degrees)] += degrees
            distinct, forward = distinct + len(columns), forward + straight
            writer.append(columns)
    np.cumsum(indptr, out=indptr)
    return indptr, Repairs(num_edges - added, added - forward, distinct - forward)
