"""The halo of an earlier epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gnnbench.parts import (
    Bundle,
    HaloTraffic,
    PeerData,
    Setting,
    StaleExchange,
    TrafficSession,
    option,
)
from gnnbench.records import IntArray


@dataclass(frozen=True)
class PipeGCNCommunication(StaleExchange):
    """What a unit reads of its peers, at every layer, is what they sent in the epoch before, and
    so are the gradients that they return; what is sent now crosses behind the computation.

    As in PipeGCN's own program there is nothing to read in the first epoch: rows of peers, the
    features among them, and the gradients that they return are zero. Every row crosses in every
    epoch, features too. Its smoothing of stale rows and gradients (PipeGCN-F and -G) is left out.
    """

    name: ClassVar[str] = "pipegcn"
    summary: ClassVar[str] = "the halo of the epoch before, while the next one is on its way"

    staleness: int = option(1, "epochs from sending a row or a gradient to using it; 0 = none")

    @property
    def stale(self) -> frozenset[PeerData]:
        return frozenset({"rows", "gradients"} if self.staleness else ())

    @property
    def arrival_epochs(self) -> int:
        return self.staleness

    def refuses(self, bundle: Bundle, setting: Setting) -> str | None:
        if self.staleness < 0:
            return (
                f"communication.staleness is {self.staleness}; "
                f"let rows arrive 0 epochs or more after they were sent."
            )
        return None

    def open(self, owner: IntArray) -> TrafficSession:
        if not (self.staleness and owner.any()):
            return HaloTraffic(owner)
        epochs = "1 epoch" if self.staleness == 1 else f"{self.staleness} epochs"
        note = (
            f"rows of peers and their gradients are {epochs} old, zero before the first arrive; "
            f"PipeGCN's smoothing is not modelled"
        )
        return HaloTraffic(owner, (note,))
