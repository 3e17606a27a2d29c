"""Data parallelism over the accelerators, as in torch's distributed data parallel."""

from dataclasses import dataclass
from typing import ClassVar

from gnnbench.machines.machine import Device, Platform
from gnnbench.parts import MINI_BATCHES, Placement, option
from gnnbench.records import Mode


@dataclass(frozen=True)
class DataParallelPlacement(Placement):
    """Even shares of a round's seeds on all accelerators, or on the host if there are none.

    HyScale-GNN's multi-GPU baseline (§VI-E1): the processors sample and load, but do not train.
    """

    name: ClassVar[str] = "data-parallel"
    summary: ClassVar[str] = "accelerators train even shares of the seeds, the CPU none"
    modes: ClassVar[frozenset[Mode]] = MINI_BATCHES

    accelerators: int = option(0, "how many accelerators to use; 0 = all", tried=(0, 1, 2))

    def trainers(self, platform: Platform) -> tuple[Device, ...]:
        return platform.accelerators[: self.accelerators or None] or (platform.host,)
