"""The two plain memories: everything on the device, or vertex data on the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gnnbench.parts import DeviceMemory, LoadingMemory


@dataclass(frozen=True)
class ResidentMemory(DeviceMemory):
    """Everything stays on the devices, for mini-batches and for full graphs."""

    name: ClassVar[str] = "resident"
    summary: ClassVar[str] = "everything stays on the device"


@dataclass(frozen=True)
class HostMemory(LoadingMemory):
    """Features stay in host memory; a mini-batch's rows visit the device while it trains."""

    name: ClassVar[str] = "host"
    summary: ClassVar[str] = "features on the host, one mini-batch at a time on the device"
