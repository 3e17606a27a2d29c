"""The two plain memories: everything on the device, or vertex data on the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gnnbench.parts import DeviceMemory, LoadingMemory


@dataclass(frozen=True)
class ResidentMemory(DeviceMemory):
    """A memory that keeps everything on the devices, for mini-batches and for full graphs."""

    name: ClassVar[str] = "resident"
    summary: ClassVar[str] = "everything stays on the device"


@dataclass(frozen=True)
class HostMemory(LoadingMemory):
    """A memory with features on the host; a mini-batch's rows are on the device while it trains."""

    name: ClassVar[str] = "host"
    summary: ClassVar[str] = "features on the host, one mini-batch at a time on the device"
