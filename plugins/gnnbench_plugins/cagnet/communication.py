"""Broadcasts at every layer."""

from dataclasses import dataclass
from typing import ClassVar

from gnnbench.parts import HaloExchange


@dataclass(frozen=True)
class BroadcastCommunication(HaloExchange):
    """A broadcast of all rows of each partition to all devices at every layer, needed or not.

    This is CAGNET's 1D algorithm: every device has a block of rows of the adjacency matrix and of
    the features. A broadcast to m - 1 peers takes m - 1 copies of the shard. A layer therefore
    costs (m - 1) |V| f values forward and, above the first, as many backward. If partitions are cut
    into chunks, each round of chunks costs that. "Redundant communication due to not considering
    the sparse pattern of the adjacency matrix" (MixGCN, section 5.1).
    """

    name: ClassVar[str] = "cagnet"
    summary: ClassVar[str] = "every partition's rows broadcast to all devices at every layer"
    broadcasts: ClassVar[bool] = True
