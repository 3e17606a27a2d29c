"""Delayed remote rows: DistGNN's cd-r."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gnnbench.parts import (
    Bundle,
    HaloExchange,
    HaloTraffic,
    PeerData,
    Setting,
    TrafficSession,
    option,
)
from gnnbench.records import BoolArray, IntArray


@dataclass(frozen=True)
class DistGNNCommunication(HaloExchange):
    """Delayed halos: DistGNN's cd-r.

    The rows that a node reads from each peer are divided into r bins. One bin is sent in each epoch
    and read r epochs later. Its transfer overlaps the computation in between.

    DistGNN cuts vertices and sends partial aggregates between the copies of a vertex. Here edges
    are cut, and the rows at their far ends are sent, which every model can read. The bins are
    DistGNN's, at every layer and in both directions. A row or a gradient is r to 2 r - 1 epochs
    old, and zero until it first arrives.
    """

    name: ClassVar[str] = "distgnn"
    summary: ClassVar[str] = "the halo in r bins, one sent in an epoch and read r epochs later"

    delay: int = option(
        5, "r: bins of the halo, and epochs from sending one to reading it; 0 = halo"
    )

    @property
    def stale(self) -> frozenset[PeerData]:
        return frozenset({"rows", "gradients"} if self.delay else ())

    @property
    def arrival_epochs(self) -> int:
        return self.delay

    def refuses(self, bundle: Bundle, setting: Setting) -> str | None:
        if self.delay < 0:
            return f"communication.delay is {self.delay}; make it 0 epochs (cd-0) or more."
        return None

    def choose_crossing(self, epoch: int, layer: int, what: PeerData, ids: IntArray) -> BoolArray:
        """Return the rows of bin e mod r in epoch e."""
        bins = np.arange(len(ids), dtype=np.int64) % self.delay
        return np.equal(bins, epoch % self.delay, dtype=np.bool_)

    def open(self, owner: IntArray) -> TrafficSession:
        return HaloTraffic(owner, self._note(has_peers=bool(owner.any())))

    def _note(self, *, has_peers: bool) -> tuple[str, ...]:
        if not self.delay:
            return ()
        if not has_peers:
            return ("one node trains alone, so that nothing is late; platform ecs-r5x16 has 16",)
        epochs = "1 epoch" if self.delay == 1 else f"{self.delay} to {2 * self.delay - 1} epochs"
        return (
            f"rows of peers and their gradients are {epochs} old, zero before the first arrive; "
            f"edges are cut, where DistGNN cuts vertices",
        )
