"""The plain communications: nothing moves, or everything a unit needs does, from the host or from
the devices that own it. Others prefetch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from gnnbench.parts import (
    Bundle,
    Communication,
    OfFullGraphs,
    OfMiniBatches,
    Setting,
    fetch_everything,
    option,
)
from gnnbench.records import Fetch, IntArray, PeerFetch, Round, RoundTraffic


@dataclass
class NoCommunication(Communication):
    """Vertex data is where it is needed; every row counts as reused."""

    name: ClassVar[str] = "none"
    summary: ClassVar[str] = "vertex data stays on the device, none of it crosses a link"
    moves_rows: ClassVar[bool] = False
    serves: ClassVar[frozenset[Literal["host", "device"]]] = frozenset({"device"})

    def plan(self, round_: Round, previous: RoundTraffic | None, owner: IntArray) -> RoundTraffic:
        nothing = np.empty(0, dtype=np.int64)
        fetches = []
        for unit in round_.units:
            needed = np.sort(unit.input_ids)
            fetches.append(Fetch(slot=unit.slot, needed=needed, from_host=nothing, reused=needed))
        return RoundTraffic(tuple(fetches))


@dataclass
class VanillaCommunication(Communication):
    """Every unit's whole input set crosses the host link: the baseline of HongTu §7.1."""

    name: ClassVar[str] = "vanilla"
    summary: ClassVar[str] = "every unit's whole input set crosses the host link"

    def plan(self, round_: Round, previous: RoundTraffic | None, owner: IntArray) -> RoundTraffic:
        return RoundTraffic(tuple(fetch_everything(unit) for unit in round_.units))


@dataclass
class HaloCommunication(OfFullGraphs, Communication):
    """Every device has the rows of its partition, and reads those that its unit needs besides, the
    halo, from the devices that have them: at every layer, and their gradients go back."""

    name: ClassVar[str] = "halo"
    summary: ClassVar[str] = "own rows are there, a unit's others come from their owners' devices"
    shares_rows: ClassVar[bool] = True
    serves: ClassVar[frozenset[Literal["host", "device"]]] = frozenset({"device"})
    all_reduce: ClassVar[Literal["host", "ring"]] = "ring"

    #: Whether what was planned has several partitions, whose devices read from each other.
    _has_peers: bool = field(default=False, init=False, repr=False)

    def plan(self, round_: Round, previous: RoundTraffic | None, owner: IntArray) -> RoundTraffic:
        self._has_peers = bool(owner.any())
        nothing = np.empty(0, dtype=np.int64)
        fetches = []
        for unit in round_.units:
            needed = np.sort(unit.input_ids)
            owners = owner[needed]
            peers = tuple(
                PeerFetch(int(slot), needed[owners == slot])
                for slot in np.unique(owners)
                if slot != unit.slot
            )
            own = np.flatnonzero(owner == unit.slot).astype(np.int64)
            fetches.append(
                Fetch(
                    slot=unit.slot, needed=needed, from_host=nothing, reused=own, from_peers=peers
                )
            )
        return RoundTraffic(tuple(fetches), merged=False)


@dataclass
class PrefetchingCommunication(OfMiniBatches, Communication):
    """Rows cross rounds ahead (HyScale-GNN §IV-B): loading and transfer are two pipeline stages,
    since they use different channels (host memory, PCIe)."""

    stages: int = option(2, "prefetch stages: 0 (off), 1 (load and transfer as one) or 2")

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
