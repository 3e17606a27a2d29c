"""Broadcasts that are skipped while the peers' copies are recent enough."""

from dataclasses import dataclass
from typing import ClassVar, Literal

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
class SancusCommunication(HaloExchange):
    """A broadcast of all rows of each partition to all devices, unless copies are recent enough.

    A broadcast to m - 1 peers takes m - 1 copies of the shard. A layer therefore costs (m - 1) |V|
    f values in an epoch in which it is broadcast, and nothing in others. If partitions are cut into
    chunks, each round of chunks costs that.

    SANCUS bounds the staleness of embeddings by several metrics; two are implemented here. The
    first is the number of epochs for which a copy is reused, fixed for all devices and layers, as
    in its public program. The second is the change of a partition's rows of a layer since their
    last broadcast, by the Frobenius norm. Each device then skips its broadcast of a layer while the
    change is small enough. It keeps the rows that it last broadcast. It sends the size of the
    change to all others in every epoch and layer, so all devices know who broadcasts. Features
    never change and are transferred once.

    The sources are the paper's abstract, its description in HongTu (section 2.4, Table 2), and its
    public program; the paper's full text was not available. Three details are interpretations:
    changes are relative to the last broadcast, the default bound, and gradients of full width are
    transferred in every epoch.
    """

    name: ClassVar[str] = "sancus"
    summary: ClassVar[str] = "every partition's rows broadcast to all devices, or a copy used again"
    broadcasts: ClassVar[bool] = True

    metric: Literal["epochs", "embeddings"] = option(
        "epochs", "what a copy's staleness is bounded in: epochs, or the change of its embeddings"
    )
    staleness: int = option(1, "epochs by which a copy may be out of date; 0 = always broadcast")
    change: float = option(
        0.1,
        "with metric embeddings, the relative change up to which a copy is used again; "
        "0 = always broadcast",
    )
    stale_gradients: bool = option(False, "gradients wait as long as rows do")

    @property
    def change_bound(self) -> float | None:
        return self.change if self.metric == "embeddings" else None

    @property
    def stale(self) -> frozenset[PeerData]:
        if not (self.staleness if self.change_bound is None else self.change):
            return frozenset()
        return frozenset({"rows", "gradients"} if self.stale_gradients else {"rows"})

    def refuses(self, bundle: Bundle, setting: Setting) -> str | None:
        if self.staleness < 0:
            return (
                f"communication.staleness is {self.staleness}; "
                f"let a copy be 0 epochs or more out of date."
            )
        if self.change < 0:
            return (
                f"communication.change is {self.change:g}; let a copy be used again up to a "
                f"relative change of 0 or more."
            )
        if self.stale_gradients and self.change_bound is not None:
            return (
                "communication.stale_gradients has gradients wait for as many epochs as rows, and "
                "with communication.metric=embeddings that is no fixed number; leave one of them "
                "out."
            )
        return None

    def choose_crossing(self, epoch: int, layer: int, what: PeerData, ids: IntArray) -> BoolArray:
        """Return all rows every ``staleness + 1`` epochs; features only once."""
        due = layer > 0 and epoch % (self.staleness + 1) == 0
        return np.full(len(ids), due)

    def open(self, owner: IntArray) -> TrafficSession:
        if not (self.stale and owner.any()):
            return HaloTraffic(owner)
        what = "rows and gradients" if self.stale_gradients else "rows"
        if self.change_bound is not None:
            return HaloTraffic(
                owner,
                (f"{what} of peers stand until they have changed by more than {self.change:g}",),
            )
        epochs = "1 epoch" if self.staleness == 1 else f"{self.staleness} epochs"
        return HaloTraffic(owner, (f"{what} of peers are up to {epochs} old",))
