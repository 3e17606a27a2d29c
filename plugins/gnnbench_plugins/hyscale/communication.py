"""Two-stage feature prefetching: HyScale-GNN §IV-B."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from gnnbench.parts import MINI_BATCH, Bundle, Communication, Setting, fetch_everything, option
from gnnbench.records import IntArray, Mode, Round, RoundTraffic


@dataclass
class HyScaleCommunication(Communication):
    """Every unit's input set crosses, but rounds ahead: loading and transfer are two pipeline
    stages, since they use different channels (host memory, PCIe)."""

    name: ClassVar[str] = "hyscale"
    summary: ClassVar[str] = "features prefetched in two pipeline stages: load, transfer"
    modes: ClassVar[frozenset[Mode]] = MINI_BATCH

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

    def plan(self, round_: Round, previous: RoundTraffic | None, owner: IntArray) -> RoundTraffic:
        return RoundTraffic(tuple(fetch_everything(unit) for unit in round_.units))
