"""The feature rows that accelerators cache."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import torch
from torch import Tensor

from gnnbench.lowering.feature_cache import Admission, FeatureCache
from gnnbench.machines.machine import Device
from gnnbench.parts import Setting
from gnnbench.records import IndexArray, IntArray
from gnnbench.run.features import feature_rows


class CachedRows:
    """The rows that a ``FeatureCache`` has for each trainer, on the trainer's device."""

    def __init__(self, cache: FeatureCache) -> None:
        self._cache = cache
        self._copies: dict[int, Tensor] = {}

    def fill(self, setting: Setting, trainers: tuple[Device, ...], here: Collection[int]) -> None:
        """Copy the rows to every trainer that is ``here``.

        Described devices share the memory of this machine. Devices that keep equal rows there for
        the whole run share one copy.
        """
        for slot in self._cache.vertices.keys() & here:
            vertices = self._cache.vertices[slot]
            where = torch.device(trainers[slot].torch_device)
            copy = None if self._cache.changes else self._find_copy(vertices, where)
            if copy is None:
                rows = feature_rows(setting, vertices, sparse=False)
                copy = rows.new_zeros(self._cache.num_rows[slot], rows.shape[1], device=where)
                copy[: len(vertices)] = rows.to(where)
            self.keep(slot, copy)

    def keep(self, slot: int, copy: Tensor) -> None:
        """Use ``copy`` ``(n, f)`` as the rows that are cached for ``slot``, in their order."""
        self._copies[slot] = copy

    def _find_copy(self, vertices: IntArray, device: torch.device) -> Tensor | None:
        for slot, copy in self._copies.items():
            if copy.device == device and np.array_equal(self._cache.vertices[slot], vertices):
                return copy
        return None

    def assemble(self, slot: int, count: int, places: IndexArray | None, crossed: Tensor) -> Tensor:
        """Return ``count`` rows ``(n, f)``: cached rows by their ``places``, and ``crossed`` rows.

        Raises ``ValueError`` if the two together are not the rows that are needed.
        """
        found = np.zeros(count, dtype=np.bool_) if places is None else places >= 0
        missing = np.flatnonzero(~found)
        if len(missing) != len(crossed):
            raise ValueError(
                f"of {count:,} rows that slot {slot} reads its device has "
                f"{count - len(missing):,}, and the plan brings {len(crossed):,} from the host; "
                f"a communication part must bring every row that is not there"
            )
        if places is None or not found.any():
            return crossed
        device = crossed.device
        rows = crossed.new_empty((count, crossed.shape[1]))
        rows[torch.from_numpy(missing).to(device)] = crossed
        copied = self._copies[slot].index_select(0, torch.from_numpy(places[found]).to(device))
        rows[torch.from_numpy(np.flatnonzero(found)).to(device)] = copied
        return rows

    def admit(self, slot: int, admitted: Admission, rows: Tensor) -> None:
        """Copy some of a unit's input rows into the cache."""
        copy = self._copies[slot]
        chosen = rows.index_select(0, torch.from_numpy(admitted.rows).to(rows.device))
        copy.index_copy_(0, torch.from_numpy(admitted.places).long().to(copy.device), chosen)
