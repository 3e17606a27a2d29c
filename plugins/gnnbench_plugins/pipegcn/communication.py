"""Exchange of the halo of an earlier epoch."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from gnnbench.parts import (
    Bundle,
    HaloExchange,
    HaloTraffic,
    PeerData,
    Setting,
    TrafficSession,
    option,
)
from gnnbench.records import IntArray


@dataclass(frozen=True)
class PipeGCNCommunication(HaloExchange):
    """Halos and gradients of the last epoch, at every layer.

    A unit reads the rows and gradients that its peers sent in the last epoch. The rows sent now
    overlap the computation.

    In the first epoch nothing can be read, as in PipeGCN's own program: rows of peers, including
    features, and their gradients are zero. Every row is transferred in every epoch, including
    features.

    With smoothing, a unit reads a moving average over the epochs (PipeGCN-F of rows, -G of
    gradients, -GF of both). The share ``decay`` of the average stays at each arrival. The average
    starts at zero without correction, as in PipeGCN's own program. After t arrivals of an unchanged
    row it is 1 - decay^t times that row.
    """

    name: ClassVar[str] = "pipegcn"
    summary: ClassVar[str] = "the halo of the epoch before, while the next one is on its way"

    staleness: int = option(1, "epochs from sending a row or a gradient to using it; 0 = none")

    smoothing: Literal["none", "rows", "gradients", "both"] = option(
        "none", "what is averaged over epochs: rows (PipeGCN-F), gradients (-G) or both (-GF)"
    )
    decay_rate: float = option(0.95, "with smoothing, the share of an average that an epoch keeps")

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
        if not 0 <= self.decay_rate < 1:
            return (
                f"communication.decay_rate is {self.decay_rate}; it is a share of what is "
                f"kept, 0 or more and below 1."
            )
        return None

    def decay(self, what: PeerData) -> float:
        return self.decay_rate if self.smoothing in (what, "both") else 0.0

    def open(self, owner: IntArray) -> TrafficSession:
        if not (self.staleness and owner.any()):
            return HaloTraffic(owner)
        epochs = "1 epoch" if self.staleness == 1 else f"{self.staleness} epochs"
        note = f"rows of peers and their gradients are {epochs} old, zero before the first arrive"
        return HaloTraffic(owner, (f"{note}; {self._describe_smoothing()}",))

    def _describe_smoothing(self) -> str:
        if self.smoothing == "none":
            return "they are not smoothed"
        what = "rows and gradients" if self.smoothing == "both" else self.smoothing
        return f"{what} are averages over epochs, which decay by {self.decay_rate:g}"
