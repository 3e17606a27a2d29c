"""A static cache of feature rows on every accelerator, by degree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gnnbench.parts import Bundle, Setting, option
from gnnbench.records import IntArray
from gnnbench_plugins.reference.memory import HostMemory


@dataclass(frozen=True)
class PaGraphMemory(HostMemory):
    """Features on the host, and on each accelerator a copy of those of the vertices that most
    others have as a neighbour, which are drawn most often.

    The cache is filled once and never changes, so that only rows that it misses are loaded and
    cross. It takes ``cache_bytes``, or all that mini-batches leave free. PaGraph also partitions
    the graph, for a cache of each device's own; here seeds may be anywhere, and so all devices keep
    the same vertices, as many as each has room for.
    """

    name: ClassVar[str] = "pagraph"
    summary: ClassVar[str] = "features on the host, rows of high degree cached on the devices"

    cache_bytes: int = option(
        0, "size of each device's cache; 0 = what mini-batches leave free", unit="bytes"
    )

    def refuses(self, bundle: Bundle, setting: Setting) -> str | None:
        if bundle.shares_rows:
            return (
                f"memory 'pagraph' caches the same rows for the whole run, and communication "
                f"{bundle.communication.name!r} keeps others from round to round; choose "
                f"communication 'vanilla' or 'hyscale', or memory 'host'."
            )
        return None

    def cached_vertices(self, setting: Setting, free_bytes: int, mini_batch_bytes: int) -> IntArray:
        """The first ones by descending degree; among equals the lowest ids."""
        size_bytes = self.cache_bytes or max(0, free_bytes - mini_batch_bytes)
        row_bytes = setting.dataset.num_features * setting.workload.itemsize
        hottest = np.argsort(-setting.dataset.graph.degrees, kind="stable")
        return hottest[: size_bytes // row_bytes]
