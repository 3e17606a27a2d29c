"""A partition on every CPU node."""

from dataclasses import dataclass
from typing import ClassVar

from gnnbench.machines.machine import Device, Platform
from gnnbench.parts import FULL_GRAPHS, Placement, option
from gnnbench.records import Mode


@dataclass(frozen=True)
class DistGNNPlacement(Placement):
    """Training on the platform's CPU nodes, or on its host, with all sockets as one.

    Other accelerators are unused.
    """

    name: ClassVar[str] = "distgnn"
    summary: ClassVar[str] = "one partition per CPU node, or everything on the host"
    modes: ClassVar[frozenset[Mode]] = FULL_GRAPHS

    nodes: int = option(0, "m: how many CPU nodes to use; 0 = all")

    def available(self, platform: Platform) -> dict[str, int]:
        return {"nodes": len(self._cpu_nodes(platform))}

    def trainers(self, platform: Platform) -> tuple[Device, ...]:
        return self._cpu_nodes(platform)[: self.nodes or None] or (platform.host,)

    @staticmethod
    def _cpu_nodes(platform: Platform) -> tuple[Device, ...]:
        return tuple(device for device in platform.accelerators if device.kind == "cpu")
