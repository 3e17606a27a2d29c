"""Feature rows that accelerators keep for a whole run, so that they need not cross again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from gnnbench.records import Fetch, IndexArray, IntArray, RoundTraffic


class FeatureCache:
    """Which rows each trainer has a copy of, by slot, and the copies."""

    def __init__(self, num_vertices: int) -> None:
        self._num_vertices = num_vertices
        self._vertices: dict[int, IntArray] = {}
        #: Where each vertex's row stands in the copy, int32 ``(V,)``; -1 where it has none.
        self._places: dict[int, IndexArray] = {}
        self._copies: dict[int, Tensor] = {}
        self._rows_needed = self._rows_found = 0

    def keep(self, slot: int, vertices: IntArray, copy: Tensor) -> None:
        """``copy`` ``(n, f)``, on the trainer's device, has the rows of ``vertices``, distinct."""
        places = np.full(self._num_vertices, -1, dtype=np.int32)
        places[vertices] = np.arange(len(vertices), dtype=np.int32)
        self._vertices[slot], self._places[slot], self._copies[slot] = vertices, places, copy

    def find_copy(self, vertices: IntArray, device: torch.device) -> Tensor | None:
        """A copy of the same rows that another trainer has on ``device``: described devices share
        the memory of this machine."""
        for slot, others in self._vertices.items():
            copy = self._copies[slot]
            if copy.device == device and np.array_equal(others, vertices):
                return copy
        return None

    def serve(self, traffic: RoundTraffic) -> RoundTraffic:
        """The plan, with the rows that are cached reused instead of brought from the host."""
        if not self._copies:
            return traffic
        return replace(traffic, fetches=tuple(self._serve(fetch) for fetch in traffic.fetches))

    def _serve(self, fetch: Fetch) -> Fetch:
        self._rows_needed += len(fetch.needed)
        if fetch.slot not in self._places:
            return fetch
        found = self._places[fetch.slot][fetch.from_host] >= 0
        self._rows_found += int(found.sum())
        return replace(
            fetch,
            from_host=fetch.from_host[~found],
            reused=np.union1d(fetch.reused, fetch.from_host[found]),
        )

    def count_missing(self, slot: int, ids: IntArray) -> int:
        """How many of the distinct ``ids`` the slot's device has no copy of."""
        if slot not in self._places:
            return len(ids)
        return int((self._places[slot][ids] < 0).sum())

    def assemble(self, slot: int, ids: IntArray, crossed: Tensor) -> Tensor:
        """The rows of ``ids``, ``(n, f)``: those of the cache, and between them what ``crossed``.

        Raises ``ValueError`` where these are not together what is asked for.
        """
        found = np.zeros(len(ids), dtype=np.bool_)
        if slot in self._places:
            places = self._places[slot][ids]
            found = places >= 0
        missing = np.flatnonzero(~found)
        if len(missing) != len(crossed):
            raise ValueError(
                f"of {len(ids):,} rows that slot {slot} reads its device has "
                f"{len(ids) - len(missing):,}, and the plan brings {len(crossed):,} from the host; "
                f"a communication part must bring every row that is not there"
            )
        if not found.any():
            return crossed
        device = crossed.device
        rows = crossed.new_empty((len(ids), crossed.shape[1]))
        rows[torch.from_numpy(missing).to(device)] = crossed
        copied = self._copies[slot].index_select(0, torch.from_numpy(places[found]).to(device))
        rows[torch.from_numpy(np.flatnonzero(found)).to(device)] = copied
        return rows

    def notes(self, names: Mapping[int, str]) -> tuple[str, ...]:
        """How much of the graph is cached, and how often a row was found; ``names`` by slot."""
        if not self._rows_needed:
            return ()
        sizes = ", ".join(
            f"{names[slot]} {len(vertices):,}" for slot, vertices in self._vertices.items()
        )
        return (
            f"rows cached of {self._num_vertices:,}: {sizes}; hit rate "
            f"{self._rows_found / self._rows_needed:.1%} of {self._rows_needed:,} rows needed",
        )
