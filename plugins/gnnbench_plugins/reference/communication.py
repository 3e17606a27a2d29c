"""The plain communications: nothing moves, or everything a unit needs does, from the host or from
the devices that own it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gnnbench.parts import HaloExchange, HostLoading, NoTransfer


@dataclass(frozen=True)
class NoCommunication(NoTransfer):
    """Vertex data is where it is needed; every row counts as reused."""

    name: ClassVar[str] = "none"
    summary: ClassVar[str] = "vertex data stays on the device, none of it crosses a link"


@dataclass(frozen=True)
class VanillaCommunication(HostLoading):
    """Every unit's whole input set crosses the host link: the baseline of HongTu §7.1."""

    name: ClassVar[str] = "vanilla"
    summary: ClassVar[str] = "every unit's whole input set crosses the host link"


@dataclass(frozen=True)
class HaloCommunication(HaloExchange):
    """Rows of other partitions are read from their devices, at every layer."""

    name: ClassVar[str] = "halo"
    summary: ClassVar[str] = "own rows are there, a unit's others come from their owners' devices"
