"""Data parallelism over the accelerators, as torch's distributed data parallel has it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from gnnbench.parts import MINI_BATCH, Placement, Setting, divide_evenly, option
from gnnbench.platforms.machine import Device, Platform
from gnnbench.records import Mode, Share


@dataclass
class DataParallelPlacement(Placement):
    """Every accelerator trains as many seeds of a round; the host trains where there is none.

    HyScale-GNN's multi-GPU baseline (§VI-E1): the processors sample and load, but do not train.
    """

    name: ClassVar[str] = "data-parallel"
    summary: ClassVar[str] = "accelerators train even shares of the seeds, the CPU none"
    modes: ClassVar[frozenset[Mode]] = MINI_BATCH

    accelerators: int = option(0, "how many accelerators to use; 0 = all")

    _num_trainers: int = field(default=1, init=False, repr=False, compare=False)

    def begin(self, setting: Setting) -> None:
        self._num_trainers = len(self.trainers(setting.platform))

    def trainers(self, platform: Platform) -> tuple[Device, ...]:
        return platform.accelerators[: self.accelerators or None] or (platform.host,)

    def split(self, num_seeds: int) -> tuple[Share, ...]:
        ranges = divide_evenly(num_seeds, self._num_trainers)
        return tuple(Share(slot, end - begin) for slot, (begin, end) in enumerate(ranges))
