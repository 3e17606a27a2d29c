"""A static cache of feature rows on every accelerator, by degree or by what was drawn before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from gnnbench.parts import Bundle, CacheSession, PreSampledCache, Setting, option
from gnnbench.records import IntArray


@dataclass(frozen=True)
class PaGraphMemory(PreSampledCache):
    """Features on the host, and on each accelerator a copy of those of the vertices that are drawn
    most often: by ``policy``, those that most others have as a neighbour, or those that most of the
    mini-batches read that were drawn before the run.

    The cache is filled once and never changes, so that only rows that it misses are loaded and
    cross. It takes ``cache_bytes``, or all that mini-batches leave free. PaGraph, whose policy is
    the degree, also partitions the graph, for a cache of each device's own; here seeds may be
    anywhere, and so all devices keep the same vertices, as many as each has room for.

    The other policy is GNNLab's PreSC#K (Yang et al., EuroSys 2022): K epochs are sampled that
    nobody trains on, and the vertices are ordered by how many of their mini-batches read them,
    which a sampler that is not uniform, or training vertices that are few, makes another order than
    that of degrees. Of vertices that were drawn as often the lowest ids come first.
    """

    name: ClassVar[str] = "pagraph"
    summary: ClassVar[str] = "features on the host, rows drawn most often cached on the devices"

    policy: Literal["degree", "presampling"] = option(
        "degree", "which rows are cached: those of highest degree, or those read in epochs before"
    )
    presampled: int = option(1, "with policy presampling, how many epochs are drawn before the run")

    @property
    def sampled_epochs(self) -> int:
        return self.presampled if self.policy == "presampling" else 0

    def refuses(self, bundle: Bundle, setting: Setting) -> str | None:
        if self.presampled < 1:
            return (
                f"memory.presampled is {self.presampled}; draw 1 epoch or more before the run, or "
                f"cache by degree."
            )
        return super().refuses(bundle, setting)

    def open(self, setting: Setting, num_rows: Mapping[int, int]) -> CacheSession:
        return CacheSession.of_hottest(setting.dataset.graph.out_degrees, num_rows)

    def open_sampled(
        self, setting: Setting, num_rows: Mapping[int, int], drawn: IntArray
    ) -> CacheSession:
        return CacheSession.of_hottest(drawn, num_rows)
