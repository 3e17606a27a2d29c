"""Deduplicated communication of mini-batches, prefetched as HyScale-GNN does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gnnbench_plugins.hongtu.communication import Deduplication
from gnnbench_plugins.reference.communication import StagedPrefetching


@dataclass(frozen=True)
class DeduplicatedCommunication(StagedPrefetching, Deduplication):
    """HongTu's traffic between concurrent and successive mini-batches, prefetched: a row crosses
    once a round, and not at all where a device has it from the round before. Which rows those are
    is planned in the order of rounds when they are loaded, and each mini-batch has a copy of its
    rows while the next ones arrive."""

    name: ClassVar[str] = "hyscale-hongtu"
    summary: ClassVar[str] = "features prefetched in two stages, each row once a round, and reused"
