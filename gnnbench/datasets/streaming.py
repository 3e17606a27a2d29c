"""Arrays hashed, checked and written in one pass, in memory that does not grow with them."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gnnbench.datasets.construct import MASK_NAMES
from gnnbench.datasets.npy import ArrayFile, ArrayWriter
from gnnbench.errors import DatasetError
from gnnbench.host.mapped import AnyArray
from gnnbench.host.progress import doing
from gnnbench.records import Graph, IntArray, begin_digest

#: In which order a data set's digest goes over its arrays (``gnnbench.records.Dataset.digest``).
ORDER = ("indptr", "indices", "weights", "x", "x_data", "x_indices", "x_indptr", "y", *MASK_NAMES)

#: How many pieces of an array wait to be hashed.
_PIECES_AHEAD = 4

Words = npt.NDArray[np.uint64]
Taker = Callable[[Any], object]


class Digests:
    """The SHA-256 of each array's bytes, and the data set's digest, of arrays that pass by."""

    def __init__(self, *, directed: bool) -> None:
        self._whole = begin_digest(directed=directed)
        self.sha256: dict[str, str] = {}

    def follow(self, name: str, pieces: Iterable[AnyArray], take: Taker) -> None:
        """Hash all pieces of an array, and call ``take`` with each, in order.

        Threads do so while the next pieces are made. Raises what ``take`` raises.
        """
        own = hashlib.sha256()
        takers: tuple[Taker, ...] = own.update, self._whole.update, take
        waiting: deque[Future[object]] = deque()
        with ExitStack() as opened:
            threads = [opened.enter_context(ThreadPoolExecutor(1)) for _ in takers]
            for piece in pieces:
                rows = np.ascontiguousarray(piece)
                for thread, each in zip(threads, takers, strict=True):
                    waiting.append(thread.submit(each, rows))
                while len(waiting) > _PIECES_AHEAD * len(takers):
                    waiting.popleft().result()
            for done in waiting:
                done.result()
        self.sha256[name] = own.hexdigest()

    def store(self, folder: Path, name: str, pieces: Iterable[AnyArray]) -> None:
        """Follow an array, of at least one piece, and write it to a file of its name.

        Raises ``OSError`` too.
        """
        begun = iter(pieces)
        first = next(begun)
        writing = ArrayWriter(folder / f"{name}.npy", first.dtype, first.shape[1:])
        with doing(f"writing {name}"), writing as writer:
            self.follow(name, chain((first,), begun), writer.append)

    @property
    def digest(self) -> str:
        """The ``Dataset.digest`` of arrays that passed by in the order of :data:`ORDER`."""
        return self._whole.hexdigest()[:16]


def check_stored(
    where: str, files: Mapping[str, ArrayFile], graph: Graph, num_features: int
) -> Digests:
    """Read all arrays once: the ``graph`` is canonical, features are finite.

    Raises :class:`DatasetError` for what is not.
    """
    topology = _Topology(where, graph.indptr)
    checks: dict[str, Taker] = {
        "x": _Finite(where, "x").take,
        "x_data": _Finite(where, "x_data").take,
        "weights": _Finite(where, "weights", negative=False).take,
        "indices": topology.take,
    }
    if "x_indptr" in files:
        offsets = files["x_indptr"].read().astype(np.int64)
        checks["x_indices"] = _Rows(where, "x_indices", offsets, num_features).take
    found = Digests(directed=graph.directed)
    with doing(f"checking {where}", len(files)) as checking:
        for name in (name for name in ORDER if name in files):
            found.follow(name, files[name].pieces(), checks.get(name, len))
            checking.advance()
    if not graph.directed:
        topology.require_reverses()
    return found


@dataclass(frozen=True, slots=True)
class _Finite:
    """Every number of an array is one, and not negative where that is said."""

    where: str
    name: str
    negative: bool = True

    def take(self, piece: AnyArray) -> None:
        if not np.isfinite(piece).all():
            raise DatasetError(
                f"{self.where}: {self.name} contains NaN or infinite values; replace them by "
                f"finite float32 numbers."
            )
        if not self.negative and (lowest := float(np.min(piece, initial=0.0))) < 0:
            raise DatasetError(
                f"{self.where}: {self.name} contains {lowest:g}; give numbers that are not "
                f"negative."
            )


class _Rows:
    """Columns ascend in every row, and are all below ``bound``."""

    def __init__(self, where: str, name: str, offsets: IntArray, bound: int) -> None:
        self.where, self.name = where, name
        self._offsets, self._bound = offsets, bound
        self._begin = 0
        self._last = (-1, -1)

    def take(self, piece: AnyArray) -> None:
        columns = piece.astype(np.int64)
        rows = find_rows(self._offsets, self._begin, len(columns))
        self._begin += len(columns)
        if len(columns) and not 0 <= int(columns.min()) <= int(columns.max()) < self._bound:
            wrong = columns[(columns < 0) | (columns >= self._bound)][0]
            self._refuse(f"contains {wrong:,}, outside 0 to {self._bound - 1:,}")
        before = np.concatenate(([self._last[1]], columns[:-1]))
        same = rows == np.concatenate(([self._last[0]], rows[:-1]))
        for wrong, what in (
            (same & (columns < before), "is not sorted in row"),
            (same & (columns == before), "has an entry twice in row"),
        ):
            if wrong.any():
                self._refuse(f"{what} {rows[int(np.argmax(wrong))]:,}")
        self.see(rows, columns)
        if len(columns):
            self._last = int(rows[-1]), int(columns[-1])

    def see(self, rows: IntArray, columns: IntArray) -> None:
        """Take more of the entries, in range and in order."""

    def _refuse(self, what: str) -> None:
        raise DatasetError(
            f"{self.where}: {self.name} {what}; write the folder anew with `gnnbench datasets "
            f"import`."
        )


def find_rows(offsets: IntArray, begin: int, count: int) -> IntArray:
    """Return the row of each of ``count`` entries from ``begin`` on, by the rows' ``offsets``."""
    end = begin + count
    first = int(np.searchsorted(offsets, begin, side="right")) - 1
    last = max(first, int(np.searchsorted(offsets, end, side="left")))
    ends: IntArray = np.clip(offsets[first : last + 1], begin, end)
    counts = ends[1:] - ends[:-1]
    return np.repeat(np.arange(first, first + len(counts), dtype=np.int64), counts)


class _Topology(_Rows):
    """A graph without self loops, which may have to have every edge in both directions.

    Of the latter, sums tell: those of a hash of every edge and of its reverse are the same where
    the edges are, and hardly ever else, as long as none comes twice.
    """

    def __init__(self, where: str, indptr: IntArray) -> None:
        super().__init__(where, "indices", indptr, len(indptr) - 1)
        self._balance = np.zeros(1, dtype=np.uint64)

    def see(self, rows: IntArray, columns: IntArray) -> None:
        loops = rows == columns
        if loops.any():
            self._refuse(f"has a self loop at vertex {rows[int(np.argmax(loops))]:,}")
        self._balance += _hash(rows, columns).sum(keepdims=True)
        self._balance -= _hash(columns, rows).sum(keepdims=True)

    def require_reverses(self) -> None:
        """Refuse a graph that lacks the reverse of an edge. Raises :class:`DatasetError`."""
        if self._balance[0]:
            self._refuse("is directed: some edges are stored in one direction alone")


def _hash(high: IntArray, low: IntArray) -> Words:
    """Hash both as one word by SplitMix64's finaliser (Steele, Lea and Flood, OOPSLA 2014)."""
    word = (high.astype(np.uint64) << np.uint64(32)) | low.astype(np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        word ^= word >> np.uint64(shift)
        word *= np.uint64(factor)
    word ^= word >> np.uint64(31)
    return word
