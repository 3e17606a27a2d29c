"""Broadcasts at every layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gnnbench.parts import Broadcast


@dataclass(frozen=True)
class BroadcastCommunication(Broadcast):
    """A device broadcasts all rows of its partition to all others at every layer, needed or not.

    CAGNET's 1D algorithm: a block of rows of the adjacency matrix, and of features, on every
    device. A broadcast to m - 1 peers takes as many copies of the shard, so that a layer costs
    (m - 1) |V| f values forward and, above the first, as many backward; where partitions are cut
    into chunks, for each round of them. "Redundant communication due to not considering the sparse
    pattern of the adjacency matrix" (MixGCN, section 5.1).
    """

    name: ClassVar[str] = "cagnet"
    summary: ClassVar[str] = "every partition's rows broadcast to all devices at every layer"
