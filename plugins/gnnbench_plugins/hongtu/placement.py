"""One partition per device: HongTu §4.1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gnnbench.parts import FULL_GRAPH, Placement, option
from gnnbench.platforms.machine import Device, Platform
from gnnbench.records import Mode, Share


@dataclass
class HongTuPlacement(Placement):
    """Every accelerator works through the chunks of one partition; the host where there is none."""

    name: ClassVar[str] = "hongtu"
    summary: ClassVar[str] = "one partition per device, its chunks one after the other"
    modes: ClassVar[frozenset[Mode]] = FULL_GRAPH

    accelerators: int = option(0, "m: how many accelerators to use; 0 = all")

    def trainers(self, platform: Platform) -> tuple[Device, ...]:
        return platform.accelerators[: self.accelerators or None] or (platform.host,)

    def split(self, num_seeds: int) -> tuple[Share, ...]:
        raise TypeError("one partition per device is a full-graph placement; it splits no seeds")
