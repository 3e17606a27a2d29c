"""Data parallelism over the accelerators, as torch's distributed data parallel has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gnnbench.parts import SeedPlacement, option
from gnnbench.platforms.machine import Device, Platform


@dataclass(frozen=True)
class DataParallelPlacement(SeedPlacement):
    """Every accelerator trains as many seeds of a round; the host trains where there is none.

    HyScale-GNN's multi-GPU baseline (§VI-E1): the processors sample and load, but do not train.
    """

    name: ClassVar[str] = "data-parallel"
    summary: ClassVar[str] = "accelerators train even shares of the seeds, the CPU none"

    accelerators: int = option(0, "how many accelerators to use; 0 = all", tried=(0, 1, 2))

    def trainers(self, platform: Platform) -> tuple[Device, ...]:
        return platform.accelerators[: self.accelerators or None] or (platform.host,)
