"""The plain communications.

Either nothing moves, or each unit's whole input comes from the host or from the devices that own
it. Other communications prefetch.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from gnnbench.parts import (
    MINI_BATCHES,
    Bundle,
    HaloExchange,
    HostLoading,
    NoTransfer,
    Setting,
    option,
)
from gnnbench.records import Mode


@dataclass(frozen=True)
class NoCommunication(NoTransfer):
    """No transfers: vertex data is where it is needed, and every row counts as reused."""

    name: ClassVar[str] = "none"
    summary: ClassVar[str] = "vertex data stays on the device, none of it crosses a link"


@dataclass(frozen=True)
class VanillaCommunication(HostLoading):
    """Every unit's whole input set crosses the host link: the baseline of HongTu §7.1."""

    name: ClassVar[str] = "vanilla"
    summary: ClassVar[str] = "every unit's whole input set crosses the host link"


@dataclass(frozen=True)
class HaloCommunication(HaloExchange):
    """A halo exchange: rows of other partitions are read from their devices, at every layer."""

    name: ClassVar[str] = "halo"
    summary: ClassVar[str] = "own rows are there, a unit's others come from their owners' devices"


@dataclass(frozen=True)
class StagedPrefetching:
    """The option of communications that prefetch rows, rounds ahead (HyScale-GNN §IV-B).

    Loading and transfer are two pipeline stages, since they use different channels (host memory,
    PCIe).
    """

    modes: ClassVar[frozenset[Mode]] = MINI_BATCHES

    stages: int = option(
        2, "prefetch stages: 0 (off), 1 (load and transfer as one) or 2", tried=(0, 1, 2)
    )

    def refuses(self, bundle: Bundle, setting: Setting) -> str | None:
        if self.stages not in (0, 1, 2):
            return (
                f"communication.stages is {self.stages}; feature prefetching has 0, 1 or 2 stages."
            )
        return None

    @property
    def prefetch(self) -> Literal[0, 1, 2]:
        if self.stages == 0:
            return 0
        return 1 if self.stages == 1 else 2
