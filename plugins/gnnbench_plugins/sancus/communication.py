"""Broadcasts that are skipped while the copies that peers have are new enough."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gnnbench.parts import (
    Broadcast,
    Bundle,
    HaloTraffic,
    PeerData,
    Setting,
    StaleExchange,
    TrafficSession,
    option,
)
from gnnbench.records import BoolArray, IntArray


@dataclass(frozen=True)
class SancusCommunication(Broadcast, StaleExchange):
    """A device broadcasts all rows of its partition to all others, unless their copies will do.

    Between devices a broadcast to m - 1 peers takes as many copies of the shard, so that a layer
    costs (m - 1) |V| f rows' bytes in an epoch in which it is broadcast, and nothing in others;
    where partitions are cut into chunks, it costs that for each round of them.

    Of SANCUS itself only what HongTu (section 2.4, Table 2) and the title say is at hand:
    staleness-aware, communication-avoiding, decentralised full-graph training, with everything in
    GPU memory. The rest is a reading: one bound for all devices and layers, in epochs; features,
    which never change, cross once; gradients cross in every epoch, as wide as the rows that they
    belong to. Bounds that adapt to how much a representation changed are left out.
    """

    name: ClassVar[str] = "sancus"
    summary: ClassVar[str] = "every partition's rows broadcast to all devices, or a copy used again"

    staleness: int = option(1, "epochs by which a copy may be out of date; 0 = always broadcast")
    stale_gradients: bool = option(False, "gradients wait as long as rows do")

    @property
    def stale(self) -> frozenset[PeerData]:
        if not self.staleness:
            return frozenset()
        return frozenset({"rows", "gradients"} if self.stale_gradients else {"rows"})

    def refuses(self, bundle: Bundle, setting: Setting) -> str | None:
        if self.staleness < 0:
            return (
                f"communication.staleness is {self.staleness}; "
                f"let a copy be 0 epochs or more out of date."
            )
        return None

    def choose_crossing(self, epoch: int, layer: int, what: PeerData, ids: IntArray) -> BoolArray:
        """All rows every ``staleness + 1`` epochs; the features not again."""
        due = layer > 0 and epoch % (self.staleness + 1) == 0
        return np.full(len(ids), due)

    def open(self, owner: IntArray) -> TrafficSession:
        if not (self.staleness and owner.any()):
            return HaloTraffic(owner)
        epochs = "1 epoch" if self.staleness == 1 else f"{self.staleness} epochs"
        what = "rows and gradients" if self.stale_gradients else "rows"
        note = f"{what} of peers are up to {epochs} old; SANCUS's adaptive bounds are not modelled"
        return HaloTraffic(owner, (note,))
