"""Edges sorted in files, for graphs whose edges do not fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gnnbench.datasets.npy import ArrayWriter
from gnnbench.datasets.topology import Repairs
from gnnbench.records import IntArray

Keys = npt.NDArray[np.uint64]

#: About how many keys are sorted at a time, and so how large a file of them is.
KEYS_PER_FILE = 1 << 22
#: No more files are written to at a time.
_MAX_FILES = 512


class KeyFiles:
    """Keys, uint64, that wait in files until they are sorted; each file has a range of them.

    ``bounds``, ascending, are the least keys of all files but the first. The files lie in the empty
    folder ``scratch``. Raises ``OSError``.
    """

    def __init__(self, scratch: Path, bounds: Keys) -> None:
        self._bounds = bounds
        self._paths = [scratch / str(number) for number in range(len(bounds) + 1)]
        for path in self._paths:
            path.touch(exist_ok=False)

    def add(self, keys: Keys) -> None:
        """More keys, in any order."""
        places = np.searchsorted(self._bounds, keys, side="right").astype(np.uint16)
        order = np.argsort(places, kind="stable")
        ends = np.searchsorted(places[order], np.arange(len(self._paths) + 1))
        ordered = keys[order]
        for number, path in enumerate(self._paths):
            part = ordered[ends[number] : ends[number + 1]]
            if len(part):
                with open(path, "ab") as stream:
                    part.tofile(stream)

    def keep_distinct(self) -> int:
        """Drop keys that are there already, and say how many are left."""
        count = 0
        for path in self._paths:
            keys = np.unique(np.fromfile(path, dtype=np.uint64))
            keys.tofile(path)
            count += len(keys)
        return count

    def read(self, *, last: bool = False) -> Iterator[Keys]:
        """All keys, ascending, a file at a time, of which nothing is left the ``last`` time."""
        for path in self._paths:
            keys = np.fromfile(path, dtype=np.uint64)
            if last:
                path.unlink()
            keys.sort()
            yield keys


def place_bounds(keys: Keys, counts: IntArray) -> Keys:
    """Bounds for ``counts[i]`` keys from ``keys[i]``, ascending, on, so that files are even."""
    total = np.cumsum(counts)
    files = min(_MAX_FILES, -(-int(total[-1]) // KEYS_PER_FILE))
    wanted = np.arange(1, files) * (int(total[-1]) // max(1, files))
    return np.unique(keys[np.searchsorted(total, wanted)])


def sort_edges(
    scratch: Path,
    num_vertices: int,
    edges: Callable[[], Iterable[tuple[IntArray, IntArray]]],
    into: Path,
    *,
    directed: bool = False,
) -> tuple[IntArray, Repairs]:
    """The canonical graph of edges, as ``construct.symmetrise`` makes it in memory: its
    ``indices`` are written to the file ``into``; its offsets, and the repairs, are returned.

    ``edges`` gives sources and destinations, int64 and in range, some at a time, and does so twice.
    Files in the empty folder ``scratch`` take 16 bytes an edge; memory takes some 24 bytes a vertex
    and :data:`KEYS_PER_FILE` keys. Raises ``OSError``.
    """
    counts = np.zeros(num_vertices, dtype=np.int64)
    loops = given = 0
    for src, dst in edges():
        loop = src == dst
        loops, given = loops + int(np.count_nonzero(loop)), given + len(src)
        for ends in (dst[~loop],) if directed else (src[~loop], dst[~loop]):
            counts += np.bincount(ends, minlength=num_vertices)
    # An edge is row x V + column; the lowest bit says that it was given the other way round.
    step = np.uint64(2 * num_vertices)
    files = KeyFiles(scratch, place_bounds(np.arange(num_vertices, dtype=np.uint64) * step, counts))
    del counts
    for src, dst in edges():
        chosen = src != dst
        src, dst = src[chosen].astype(np.uint64), dst[chosen].astype(np.uint64)
        files.add(dst * step + (src << np.uint64(1)))
        if not directed:
            files.add((src * step + (dst << np.uint64(1))) | np.uint64(1))
    degrees = np.zeros(num_vertices, dtype=np.int64)
    distinct = forward = 0
    with ArrayWriter(into, np.int32) as writer:
        for keys in files.read(last=True):
            found = keys >> np.uint64(1)
            first = np.ones(len(found), dtype=bool)
            np.not_equal(found[1:], found[:-1], out=first[1:])
            # Of an edge that was given both ways, the one as it was comes first.
            forward += int(np.count_nonzero(keys[first] & np.uint64(1) == 0))
            rows, columns = np.divmod(found[first].astype(np.int64), num_vertices)
            distinct += len(rows)
            if len(rows):
                low, high = int(rows[0]), int(rows[-1])
                degrees[low : high + 1] += np.bincount(rows - low, minlength=high - low + 1)
            writer.append(columns.astype(np.int32))
    indptr = np.zeros(num_vertices + 1, dtype=np.int64)
    np.cumsum(degrees, out=indptr[1:])
    return indptr, Repairs(loops, given - loops - forward, distinct - forward)
