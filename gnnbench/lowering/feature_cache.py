"""Feature rows that accelerators keep copies of, which need not be transferred again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from gnnbench.constants import Bound
from gnnbench.parts import (
    CacheMemory,
    CacheSession,
    MiniBatchSampler,
    Setting,
    divide_evenly,
)
from gnnbench.program import Ledger
from gnnbench.records import Fetch, IndexArray, IntArray, RoundTraffic

#: The first of the epochs that are drawn before a run. No run trains on these epochs, so their
#: draws reveal nothing about the mini-batches of a run.
FIRST_PRE_SAMPLED: Bound[int] = 1 << 30


@dataclass(frozen=True, slots=True, eq=False)
class Admission:
    """Rows of a round's input that a cache admits.

    ``rows`` are their positions among the input rows, and ``places`` their positions in the cache.
    """

    rows: IntArray
    places: IndexArray


class FeatureCache:
    """The rows that each trainer caches, by device index; ``session`` decides the changes.

    ``vertices`` are the vertices cached at the start, and ``num_rows`` is the number of rows that a
    cache has room for.
    """

    def __init__(self, num_vertices: int, session: CacheSession | None = None) -> None:
        self._num_vertices = num_vertices
        self.session = session
        self.vertices: dict[int, IntArray] = {}
        self.num_rows: dict[int, int] = {}
        #: The position of each vertex's row in the cache, int32 ``(V,)``; -1 if it is not cached.
        self._places: dict[int, IndexArray] = {}
        self._free: dict[int, list[int]] = {}
        self._rows_needed = self._rows_found = 0

    @property
    def changes(self) -> bool:
        """Whether rows may be admitted and evicted in a run."""
        session = self.session
        return session is not None and type(session).turn_over is not CacheSession.turn_over

    def keep(self, slot: int, vertices: IntArray, num_rows: int | None = None) -> None:
        """Fill a trainer's cache with the rows of ``vertices``, which are distinct, in their order.

        The cache has room for ``num_rows`` rows, by default for these rows alone.
        """
        places = np.full(self._num_vertices, -1, dtype=np.int32)
        places[vertices] = np.arange(len(vertices), dtype=np.int32)
        self.vertices[slot], self._places[slot] = vertices, places
        self.num_rows[slot] = len(vertices) if num_rows is None else num_rows
        self._free[slot] = list(range(len(vertices), self.num_rows[slot]))[::-1]

    def find(self, slot: int, ids: IntArray) -> IndexArray | None:
        """Return the positions of the rows of ``ids`` in a trainer's cache, int32.

        The position of a row that is not cached is -1. The result is None for a trainer without a
        cache.
        """
        return self._places[slot][ids] if slot in self._places else None

    def turn_over(self, slot: int, ids: IntArray) -> Admission | None:
        """Let the session change a trainer's cache after a round that reads the rows of ``ids``.

        Raises ``ValueError`` for rows that cannot be admitted or evicted.
        """
        if self.session is None or slot not in self._places or not self.changes:
            return None
        places, asked = self._places[slot], np.sort(ids)
        turned = self.session.turn_over(slot, asked, places[asked] >= 0)
        if turned is None:
            return None
        admitted, evicted = turned.admitted, turned.evicted
        self._check(slot, asked, admitted, evicted)
        free = self._free[slot]
        free += places[evicted].tolist()
        places[evicted] = -1
        taken = np.array([free.pop() for _ in admitted], dtype=np.int32)
        places[admitted] = taken
        order = np.argsort(ids, kind="stable")
        return Admission(order[np.searchsorted(asked, admitted)], taken)

    def _check(self, slot: int, asked: IntArray, admitted: IntArray, evicted: IntArray) -> None:
        places = self._places[slot]
        if (places[evicted] < 0).any() or not _are_distinct(evicted, places):
            raise ValueError(f"a row is evicted that the cache of slot {slot} does not have")
        if (places[admitted] >= 0).any() or not _are_distinct(admitted, places):
            raise ValueError(f"a row is admitted that the cache of slot {slot} has already")
        first, behind = (np.searchsorted(asked, admitted, side) for side in ("left", "right"))
        if (first == behind).any():
            raise ValueError(f"a row is admitted that slot {slot} did not ask for in the round")
        room = len(self._free[slot]) + len(evicted)
        if len(admitted) > room:
            raise ValueError(
                f"the cache of slot {slot} has room for {room} rows, and {len(admitted)} are to "
                f"come in"
            )

    def serve(self, traffic: RoundTraffic) -> RoundTraffic:
        """Return the plan in which cached rows are reused instead of transferred from the host."""
        if not self.vertices:
            return traffic
        return replace(traffic, fetches=tuple(self._serve(fetch) for fetch in traffic.fetches))

    def _serve(self, fetch: Fetch) -> Fetch:
        self._rows_needed += len(fetch.needed)
        if fetch.slot not in self._places:
            return fetch
        found = self._places[fetch.slot][fetch.from_host] >= 0
        self._rows_found += int(found.sum())
        reused = fetch.from_host[found]
        if len(fetch.reused):
            reused = np.union1d(fetch.reused, reused)
        return replace(fetch, from_host=fetch.from_host[~found], reused=reused)

    def count_missing(self, slot: int, ids: IntArray) -> int:
        """Return how many of the distinct ``ids`` a trainer has not cached."""
        places = self.find(slot, ids)
        return len(ids) if places is None else int((places < 0).sum())

    def notes(self, names: Mapping[int, str]) -> tuple[str, ...]:
        """Return the caches' sizes and the hit rate as sentences; ``names`` are by device index."""
        if not self._rows_needed:
            return ()
        sizes = ", ".join(f"{names[slot]} {count:,}" for slot, count in self.num_rows.items())
        return (
            f"rows cached of {self._num_vertices:,}: {sizes}; hit rate "
            f"{self._rows_found / self._rows_needed:.1%} of {self._rows_needed:,} rows needed",
        )


def open_cache(
    memory: CacheMemory,
    setting: Setting,
    ledger: Ledger,
    names: Mapping[int, str],
    mini_batch_bytes: int,
    count_reads: Callable[[int], IntArray],
) -> FeatureCache:
    """Open the caches of accelerators, place them in ``ledger``, and fill them.

    ``names`` are the accelerators' names by device index. A mini-batch takes at most
    ``mini_batch_bytes``. ``count_reads`` draws the given number of epochs and counts the reads of
    every vertex.

    Raises ``ValueError`` for caches that are larger than they may be.
    """
    room = {
        slot: memory.count_rows(setting, ledger.free_bytes(name), mini_batch_bytes)
        for slot, name in names.items()
    }
    if memory.sampled_epochs and names:
        session = memory.open_sampled(setting, room, count_reads(memory.sampled_epochs))
    else:
        session = memory.open(setting, room)
    cache = FeatureCache(setting.dataset.graph.num_vertices, session)
    row_bytes = setting.dataset.num_features * setting.workload.itemsize
    for slot, name in names.items():
        kept, count = session.kept[slot], session.num_rows[slot]
        if not len(kept) <= count <= room[slot]:
            raise ValueError(
                f"memory {memory.name!r} keeps {len(kept)} rows in a cache of {count} on {name}, "
                f"which has room for {room[slot]}"
            )
        if count:
            ledger.allocate(name, "cached feature rows", count * row_bytes)
            cache.keep(slot, kept, count)
    return cache


def count_drawn(sampler: MiniBatchSampler, setting: Setting, devices: int, epochs: int) -> IntArray:
    """Count the mini-batches of ``epochs`` epochs that read each vertex's row, int64 ``(V,)``.

    The seeds of a round are divided evenly between ``devices`` devices.
    """
    counts = np.zeros(setting.dataset.graph.num_vertices, dtype=np.int64)
    for epoch in range(FIRST_PRE_SAMPLED, FIRST_PRE_SAMPLED + epochs):
        for seeds in sampler.rounds(epoch):
            for begin, end in divide_evenly(len(seeds), devices):
                if begin < end:
                    blocks = sampler.sample(seeds[begin:end], epoch, setting.workload.threads)
                    counts[blocks[0].src_ids] += 1
    return counts


def _are_distinct(ids: IntArray, table: IndexArray) -> bool:
    """Return whether no id occurs twice.

    Each id then finds the number that it wrote to ``table``. The entries of ``table`` are restored.
    """
    before, numbers = table[ids], np.arange(len(ids), dtype=table.dtype)
    table[ids] = numbers
    distinct = np.array_equal(table[ids], numbers)
    table[ids] = before
    return distinct
