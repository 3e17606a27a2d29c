"""A static cache of feature rows on every accelerator, by degree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gnnbench.parts import CacheMemory, CacheSession, Setting


@dataclass(frozen=True)
class PaGraphMemory(CacheMemory):
    """Features on the host, and on each accelerator a copy of those of the vertices that most
    others have as a neighbour, which are drawn most often.

    The cache is filled once and never changes, so that only rows that it misses are loaded and
    cross. It takes ``cache_bytes``, or all that mini-batches leave free. PaGraph also partitions
    the graph, for a cache of each device's own; here seeds may be anywhere, and so all devices keep
    the same vertices, as many as each has room for.
    """

    name: ClassVar[str] = "pagraph"
    summary: ClassVar[str] = "features on the host, rows of high degree cached on the devices"

    def open(self, setting: Setting, num_rows: Mapping[int, int]) -> CacheSession:
        """The first ones by descending degree; among equals the lowest ids."""
        hottest = np.argsort(-setting.dataset.graph.degrees, kind="stable")
        return CacheSession({slot: hottest[:count] for slot, count in num_rows.items()})
