"""The two plain communications: nothing moves, or everything a unit needs does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gnnbench.parts import Communication, fetch_everything
from gnnbench.records import Fetch, IntArray, Round, RoundTraffic


@dataclass
class NoCommunication(Communication):
    """Vertex data is where it is needed; every row counts as reused."""

    name: ClassVar[str] = "none"
    summary: ClassVar[str] = "vertex data stays on the device, nothing crosses a link"
    moves_rows: ClassVar[bool] = False

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
