"""Delayed remote rows: DistGNN's cd-r."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gnnbench.parts import Bundle, PeerData, Setting, option
from gnnbench.records import BoolArray, IntArray
from gnnbench_plugins.reference.communication import HaloCommunication


@dataclass
class DistGNNCommunication(HaloCommunication):
    """What a node reads of each peer is dealt into r bins, of which one crosses in an epoch.

    DistGNN cuts vertices and sends partial aggregates between the copies of one; here edges are
    cut, and the rows at their far ends are sent, which every model can read. The bins are its own,
    at every layer and both ways: a row, and its gradient, is up to r - 1 epochs old. What crosses
    arrives in the same epoch, not r epochs later behind the computation.
    """

    name: ClassVar[str] = "distgnn"
    summary: ClassVar[str] = "the halo in bins, one bin refreshed in an epoch"

    delay: int = option(5, "r: bins of the halo, and epochs until all were refreshed; 1 = halo")

    @property
    def stale(self) -> frozenset[PeerData]:
        return frozenset({"rows", "gradients"} if self.delay > 1 else ())

    def refuses(self, bundle: Bundle, setting: Setting) -> str | None:
        if self.delay < 1:
            return f"communication.delay is {self.delay}; make it 1 bin or more."
        return None

    def choose_crossing(self, epoch: int, layer: int, what: PeerData, ids: IntArray) -> BoolArray:
        """Bin e mod r in epoch e."""
        bins = np.arange(len(ids), dtype=np.int64) % self.delay
        return np.equal(bins, epoch % self.delay, dtype=np.bool_)

    def notes(self) -> tuple[str, ...]:
        if self.delay == 1:
            return ()
        epochs = "1 epoch" if self.delay == 2 else f"{self.delay - 1} epochs"
        return (
            f"rows of peers and their gradients are up to {epochs} old; edges are cut, where "
            f"DistGNN cuts vertices",
        )
