"""Exchange of a sample of the halo."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gnnbench.parts import (
    Bundle,
    HaloExchange,
    HaloTraffic,
    Setting,
    TrafficSession,
    option,
)
from gnnbench.records import BoolArray, IntArray


@dataclass(frozen=True)
class BNSGCNCommunication(HaloExchange):
    """A sample of the halo: BNS-GCN's Algorithm 1.

    In each epoch every device keeps each row of its halo, its boundary set B_i, with probability p,
    and omits the others.

    The sample U_i holds for all layers of the epoch, forward and backward. Only rows of U_i and
    their gradients are transferred. They are multiplied by 1/p, so the expected sum over neighbours
    equals the sum over the whole halo. Devices draw independently. Both ends of a transfer know the
    sample, because they draw from the same seed.
    """

    name: ClassVar[str] = "bnsgcn"
    summary: ClassVar[str] = "a random part of the halo, drawn anew in every epoch"

    rate: float = option(
        0.1, "p: with which probability an epoch has a row of the halo; 1 = all, 0 = none"
    )

    def refuses(self, bundle: Bundle, setting: Setting) -> str | None:
        if not 0 <= self.rate <= 1:
            return f"communication.rate is {self.rate:g}; it is a probability, from 0 to 1."
        return None

    @property
    def samples(self) -> bool:
        return self.rate < 1

    @property
    def scale(self) -> float:
        return 1 / self.rate if self.rate else 1.0

    def draw(self, seed: int, epoch: int, slot: int, ids: IntArray) -> BoolArray:
        """Return which of ``ids`` are kept, each independently with probability p."""
        return np.random.default_rng((seed, epoch, slot)).random(len(ids)) < self.rate

    def open(self, owner: IntArray) -> TrafficSession:
        if not (self.samples and owner.any()):
            return HaloTraffic(owner)
        if not self.rate:
            return HaloTraffic(owner, ("no row of a peer is read: every device has its own alone",))
        note = (
            f"in every epoch a device reads each row of its halo with probability {self.rate:g}, "
            f"for all layers, times {self.scale:g}"
        )
        return HaloTraffic(owner, (note,))
