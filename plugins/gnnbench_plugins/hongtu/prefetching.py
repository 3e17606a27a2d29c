"""Deduplicated communication of mini-batches, prefetched as in HyScale-GNN."""

from dataclasses import dataclass
from typing import ClassVar

from gnnbench.parts import HostLoading
from gnnbench_plugins.hongtu.communication import Deduplication
from gnnbench_plugins.reference.communication import StagedPrefetching


@dataclass(frozen=True)
class DeduplicatedCommunication(StagedPrefetching, Deduplication, HostLoading):
    """HongTu's deduplication between concurrent and successive mini-batches, prefetched.

    A row crosses once a round, and not at all if a device has it from the round before. These rows
    are planned in the order of rounds when they are loaded. Each mini-batch has a copy of its rows
    while the next ones arrive.
    """

    name: ClassVar[str] = "hyscale-hongtu"
    summary: ClassVar[str] = "features prefetched in two stages, each row once a round, and reused"
