"""One partition per device: HongTu §4.1."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gnnbench.machines.machine import Device, Platform
from gnnbench.parts import FULL_GRAPHS, Placement, Setting, option
from gnnbench.records import IntArray, Mode


@dataclass(frozen=True)
class HongTuPlacement(Placement):
    """A placement of one partition's chunks on every accelerator, or on the host without one.

    A partition's rows lie at the socket of its accelerator. A row that crosses the host link to the
    device of its own partition is therefore local (§7.3). The paper spreads rows over all sockets
    if a few sockets have too little memory for the whole graph (§7.6). ``numa_aware`` switched off
    does so too.
    """

    name: ClassVar[str] = "hongtu"
    summary: ClassVar[str] = "one partition per device, its chunks one after the other"
    modes: ClassVar[frozenset[Mode]] = FULL_GRAPHS

    accelerators: int = option(0, "m: how many accelerators to use; 0 = all", tried=(0, 1, 2))
    numa_aware: bool = option(True, "a partition's rows at its accelerator's socket, or anywhere")

    def trainers(self, platform: Platform) -> tuple[Device, ...]:
        return platform.accelerators[: self.accelerators or None] or (platform.host,)

    def sockets(self, setting: Setting, owner: IntArray) -> IntArray:
        platform = setting.platform
        devices = self.trainers(platform)
        if not self.numa_aware or devices == (platform.host,):
            return super().sockets(setting, owner)
        homes = np.array([platform.socket(device) for device in devices], dtype=np.int64)
        return homes[owner]
