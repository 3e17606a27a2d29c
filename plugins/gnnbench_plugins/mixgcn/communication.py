"""The all-to-all between the shards of AGGREGATE and of UPDATE: MixGCN §3.1.2."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from gnnbench.parts import FULL_GRAPHS, ShardExchange
from gnnbench.records import Mode


@dataclass(frozen=True)
class MixGCNCommunication(ShardExchange):
    """The all-to-all between devices with a range of features and devices with a range of vertices.

    Aggregates go to the latter and representations back; gradients the other way round. An entry
    crosses unless one device has both its column and its row (Proposition 3.4). The gradients of
    the weights go round a ring of the devices that update.
    """

    name: ClassVar[str] = "mixgcn"
    summary: ClassVar[str] = "all-to-all between ranges of features and ranges of vertices"
    modes: ClassVar[frozenset[Mode]] = FULL_GRAPHS
    all_reduce: ClassVar[Literal["host", "ring"]] = "ring"
