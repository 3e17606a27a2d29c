"""Transfers of rows for a chunk's pieces, one after the other."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from gnnbench.parts import FULL_GRAPHS, HostLoading, option
from gnnbench.records import Mode


@dataclass(frozen=True)
class NeuGraphCommunication(HostLoading):
    """Transfers of only the rows that a piece's edges read, selected by the host.

    The rows of a chunk's own vertices stay while its pieces are computed.
    """

    name: ClassVar[str] = "neugraph"
    summary: ClassVar[str] = "the rows that a piece reads, while the device works on the last one"
    modes: ClassVar[frozenset[Mode]] = FULL_GRAPHS
    all_reduce: ClassVar[Literal["host", "ring"]] = "ring"

    overlap: bool = option(
        True, "rows cross while the device works on those before", tried=(True, False)
    )

    @property
    def ahead(self) -> int:
        return int(self.overlap)
