"""Feature rows that accelerators keep for a whole run, so that they need not cross again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from gnnbench.records import Fetch, IndexArray, IntArray, RoundTraffic


class FeatureCache:
    """Which rows each trainer has a copy of, by slot."""

    def __init__(self, num_vertices: int) -> None:
        self._num_vertices = num_vertices
        self.vertices: dict[int, IntArray] = {}
        #: Where each vertex's row stands in the copy, int32 ``(V,)``; -1 where it has none.
        self.places: dict[int, IndexArray] = {}
        self._rows_needed = self._rows_found = 0

    def keep(self, slot: int, vertices: IntArray) -> None:
        """The trainer has a copy of the rows of ``vertices``, distinct, in their order."""
        places = np.full(self._num_vertices, -1, dtype=np.int32)
        places[vertices] = np.arange(len(vertices), dtype=np.int32)
        self.vertices[slot], self.places[slot] = vertices, places

    def serve(self, traffic: RoundTraffic) -> RoundTraffic:
        """The plan, with the rows that are cached reused instead of brought from the host."""
        if not self.vertices:
            return traffic
        return replace(traffic, fetches=tuple(self._serve(fetch) for fetch in traffic.fetches))

    def _serve(self, fetch: Fetch) -> Fetch:
        self._rows_needed += len(fetch.needed)
        if fetch.slot not in self.places:
            return fetch
        found = self.places[fetch.slot][fetch.from_host] >= 0
        self._rows_found += int(found.sum())
        return replace(
            fetch,
            from_host=fetch.from_host[~found],
            reused=np.union1d(fetch.reused, fetch.from_host[found]),
        )

    def count_missing(self, slot: int, ids: IntArray) -> int:
        """How many of the distinct ``ids`` the slot's device has no copy of."""
        if slot not in self.places:
            return len(ids)
        return int((self.places[slot][ids] < 0).sum())

    def notes(self, names: Mapping[int, str]) -> tuple[str, ...]:
        """How much of the graph is cached, and how often a row was found; ``names`` by slot."""
        if not self._rows_needed:
            return ()
        sizes = ", ".join(
            f"{names[slot]} {len(vertices):,}" for slot, vertices in self.vertices.items()
        )
        return (
            f"rows cached of {self._num_vertices:,}: {sizes}; hit rate "
            f"{self._rows_found / self._rows_needed:.1%} of {self._rows_needed:,} rows needed",
        )
