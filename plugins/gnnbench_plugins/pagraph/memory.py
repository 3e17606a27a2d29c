"""A static cache of feature rows on every accelerator, by degree or by earlier samples."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from gnnbench.parts import Bundle, CacheMemory, CacheSession, Setting, option


@dataclass(frozen=True)
class PaGraphMemory(CacheMemory):
    """Features on the host, and on each accelerator a copy of the most frequently drawn rows.

    By ``policy``, these are the vertices that are most often a neighbour, or the vertices that most
    mini-batches of a presampling read.

    The cache is filled once and never changes, so only missing rows are loaded and transferred. It
    takes ``cache_bytes``, or all memory that mini-batches leave free. PaGraph uses the degree, and
    also partitions the graph, so each device has a different cache. Here seeds may be on any
    device, so all devices keep the same vertices, up to the room of each.

    The other policy is GNNLab's PreSC#K (Yang et al., EuroSys 2022). K epochs are sampled without
    training, and vertices are ordered by the number of mini-batches that read them. This order
    differs from the degrees if the sampler is not uniform, or if there are few training vertices.
    Ties go to the lowest ids.
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
        return None

    def open(self, setting: Setting, num_rows: Mapping[int, int]) -> CacheSession:
        return CacheSession.of_hottest(setting.dataset.graph.out_degrees, num_rows)
