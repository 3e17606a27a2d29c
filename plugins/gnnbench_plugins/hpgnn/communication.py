"""Features stay on the board; the host draws the next mini-batch while the board trains."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from gnnbench.parts import MINI_BATCHES, NoTransfer, option
from gnnbench.records import Mode


@dataclass(frozen=True)
class HpgnnCommunication(NoTransfer):
    """HP-GNN section 3: X lies in the FPGA's local memory, and sampling overlaps (Equation 4)."""

    name: ClassVar[str] = "hpgnn"
    summary: ClassVar[str] = "vertex data stays on the board, sampling runs ahead of it"
    modes: ClassVar[frozenset[Mode]] = MINI_BATCHES

    overlap: bool = option(True, "draw mini-batches while the board trains on those before")

    @property
    def prefetch(self) -> Literal[0, 1, 2]:
        return 1 if self.overlap else 0
