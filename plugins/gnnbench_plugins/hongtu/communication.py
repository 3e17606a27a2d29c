"""Deduplicated communication: HongTu §5.1 and §5.2."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from gnnbench.parts import Communication, Setting, option
from gnnbench.records import Fetch, IntArray, PeerFetch, Round, RoundTraffic


@dataclass
class HongTuCommunication(Communication):
    """Each vertex that a round needs crosses the host link once, to the device of its partition.

    The union of a round's neighbour sets is divided by owner into transition sets T_ij; a device
    keeps the rows it already has from the round before (T_ij ∩ T_i,j-1) and fetches its other
    needed rows from its peers. A transition row may be there for peers only.
    """

    name: ClassVar[str] = "hongtu"
    summary: ClassVar[str] = "each row crosses the host link once a round, and is reused after"
    shares_rows: ClassVar[bool] = True
    all_reduce: ClassVar[Literal["host", "ring"]] = "ring"

    p2p: bool = option(True, "share rows between devices (+P2P)")
    reuse: bool = option(True, "keep rows between neighbouring rounds (+RU)")

    _num_vertices: int = field(default=1, init=False, repr=False)
    _original: int = field(default=0, init=False, repr=False)
    _transition: int = field(default=0, init=False, repr=False)
    _host: int = field(default=0, init=False, repr=False)
    _relayed: int = field(default=0, init=False, repr=False)

    def begin(self, setting: Setting) -> None:
        self._num_vertices = setting.dataset.graph.num_vertices
        self._original = self._transition = self._host = self._relayed = 0

    def plan(self, round_: Round, previous: RoundTraffic | None, owner: IntArray) -> RoundTraffic:
        needed = {unit.slot: np.sort(unit.input_ids) for unit in round_.units}
        transition = self._transitions(needed, owner)
        kept_from = {f.slot: f.transition for f in previous.fetches} if previous else {}
        nothing = np.empty(0, dtype=np.int64)
        fetches = []
        for position, unit in enumerate(round_.units):
            slot = unit.slot
            own = transition[slot]
            before = kept_from.get(slot, nothing) if self.reuse else nothing
            reused = np.intersect1d(own, before, assume_unique=True)
            # Without P2P a device's own transition set is all it needs, and nothing is missing.
            missing = np.setdiff1d(needed[slot], own, assume_unique=True)
            peers = []
            # Algorithm 2, line 6: every device starts with another peer.
            for other in (*round_.units[position + 1 :], *round_.units[:position]):
                rows = np.intersect1d(missing, transition[other.slot], assume_unique=True)
                if len(rows):
                    peers.append(PeerFetch(other.slot, rows))
            fetches.append(
                Fetch(
                    slot=slot,
                    needed=needed[slot],
                    from_host=np.setdiff1d(own, reused, assume_unique=True),
                    reused=reused,
                    from_peers=tuple(peers),
                )
            )
            self._relayed += len(np.setdiff1d(own, needed[slot], assume_unique=True))
        self._original += sum(len(ids) for ids in needed.values())
        self._transition += sum(len(ids) for ids in transition.values())
        self._host += sum(len(fetch.from_host) for fetch in fetches)
        return RoundTraffic(tuple(fetches))

    def _transitions(self, needed: dict[int, IntArray], owner: IntArray) -> dict[int, IntArray]:
        """T_ij: the union of the round's neighbour sets by owner; each set itself without P2P."""
        if not self.p2p or not needed:
            return needed
        union = np.unique(np.concatenate(list(needed.values())))
        owners = owner[union]
        slots = np.array(sorted(needed), dtype=np.int64)
        # A partition without a unit in this round (the last, short one) passes its rows on.
        stray = ~np.isin(owners, slots)
        owners[stray] = slots[union[stray] % len(slots)]
        return {int(slot): union[owners == slot] for slot in slots}

    def notes(self) -> tuple[str, ...]:
        if not self._original:
            return ()
        count = self._num_vertices
        return (
            f"rows that cross the host link in a pass over the rounds: "
            f"V_ori {self._original:,} ({self._original / count:.2f} |V|), "
            f"V_+p2p {self._transition:,} ({self._transition / count:.2f} |V|), "
            f"V_+ru {self._host:,} ({self._host / count:.2f} |V|); "
            f"{self._relayed:,} rows were brought in for peers only",
        )
