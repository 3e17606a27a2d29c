"""Feature rows that accelerators keep copies of, so that they need not cross again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from gnnbench.constants import Bound
from gnnbench.parts import (
    CacheMemory,
    CacheSession,
    MiniBatchSampler,
    PreSampledCache,
    Setting,
    divide_evenly,
)
from gnnbench.program import Ledger
from gnnbench.records import Fetch, IndexArray, IntArray, RoundTraffic

#: The first of the epochs that are drawn before a run: none that anybody trains on, whose draws
#: nobody knows beforehand.
FIRST_PRE_SAMPLED: Bound[int] = 1 << 30


@dataclass(frozen=True, slots=True, eq=False)
class Admission:
    """Rows of a round's input that a cache takes in: where they stand among the input rows, and
    their places in the copy."""

    rows: IntArray
    places: IndexArray


class FeatureCache:
    """Which rows each trainer has a copy of, by slot; ``session`` says what changes.

    ``vertices`` are those of the start, ``num_rows`` how many there are places for.
    """

    def __init__(self, num_vertices: int, session: CacheSession | None = None) -> None:
        self._num_vertices = num_vertices
        self.session = session
        self.vertices: dict[int, IntArray] = {}
        self.num_rows: dict[int, int] = {}
        #: Where each vertex's row stands in the copy, int32 ``(V,)``; -1 where it has none.
        self._places: dict[int, IndexArray] = {}
        self._free: dict[int, list[int]] = {}
        self._rows_needed = self._rows_found = 0

    @property
    def changes(self) -> bool:
        """Whether rows may be admitted and evicted in a run."""
        session = self.session
        return session is not None and type(session).turn_over is not CacheSession.turn_over

    def keep(self, slot: int, vertices: IntArray, num_rows: int | None = None) -> None:
        """The trainer has a copy of the rows of ``vertices``, distinct, in their order, and places
        for ``num_rows``, by default for no more."""
        places = np.full(self._num_vertices, -1, dtype=np.int32)
        places[vertices] = np.arange(len(vertices), dtype=np.int32)
        self.vertices[slot], self._places[slot] = vertices, places
        self.num_rows[slot] = len(vertices) if num_rows is None else num_rows
        self._free[slot] = list(range(len(vertices), self.num_rows[slot]))[::-1]

    def find(self, slot: int, ids: IntArray) -> IndexArray | None:
        """Where the rows of ``ids`` stand in a trainer's copy, int32, -1 for none; None where it
        has no cache."""
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
        """The plan, with the rows that are cached reused instead of brought from the host."""
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
        """How many of the distinct ``ids`` the slot's device has no copy of."""
        places = self.find(slot, ids)
        return len(ids) if places is None else int((places < 0).sum())

    def notes(self, names: Mapping[int, str]) -> tuple[str, ...]:
        """How much of the graph is cached, and how often a row was found; ``names`` by slot."""
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
    """The caches of the accelerators that ``names`` has by slot, placed in ``ledger``, where
    mini-batches take at most ``mini_batch_bytes``. ``count_reads`` draws so many epochs and counts
    who is read.

    Raises ``ValueError`` for caches that are larger than they may be.
    """
    room = {
        slot: memory.count_rows(setting, ledger.free_bytes(name), mini_batch_bytes)
        for slot, name in names.items()
    }
    if isinstance(memory, PreSampledCache) and memory.sampled_epochs and names:
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
    """By vertex, how many mini-batches of so many epochs read its row, int64 ``(V,)``; the seeds of
    a round are divided evenly between ``devices``."""
    counts = np.zeros(setting.dataset.graph.num_vertices, dtype=np.int64)
    for epoch in range(FIRST_PRE_SAMPLED, FIRST_PRE_SAMPLED + epochs):
        for seeds in sampler.rounds(epoch):
            for begin, end in divide_evenly(len(seeds), devices):
                if begin < end:
                    blocks = sampler.sample(seeds[begin:end], epoch, setting.workload.threads)
                    counts[blocks[0].src_ids] += 1
    return counts


def _are_distinct(ids: IntArray, table: IndexArray) -> bool:
    """Whether no id is there twice: each then finds the number that it left in ``table``, whose
    entries are put back."""
    before, numbers = table[ids], np.arange(len(ids), dtype=table.dtype)
    table[ids] = numbers
    distinct = np.array_equal(table[ids], numbers)
    table[ids] = before
    return distinct
