"""One device does everything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gnnbench.parts import Placement, option
from gnnbench.platforms.machine import Device, Platform
from gnnbench.records import Share


@dataclass
class SinglePlacement(Placement):
    """The first accelerator computes every unit; the host does where there is none."""

    name: ClassVar[str] = "single"
    summary: ClassVar[str] = "one device computes everything"

    on_host: bool = option(False, "compute on the host even where there are accelerators")

    def trainers(self, platform: Platform) -> tuple[Device, ...]:
        if platform.accelerators and not self.on_host:
            return platform.accelerators[:1]
        return (platform.host,)

    def split(self, num_seeds: int) -> tuple[Share, ...]:
        return (Share(slot=0, seeds=num_seeds),)
