"""The all-to-all between the shards of AGGREGATE and those of UPDATE: MixGCN §3.1.2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from gnnbench.parts import OfFullGraphs, ShardExchange


@dataclass(frozen=True)
class MixGCNCommunication(OfFullGraphs, ShardExchange):
    """Aggregates go from the devices that have a range of features to those that have a range of
    vertices, and representations back; gradients the other way round.

    What crosses follows from the placement's two shardings: the part of an entry's column and row
    on one device each. The gradients of the weights go round a ring of the devices that update.
    """

    name: ClassVar[str] = "mixgcn"
    summary: ClassVar[str] = "all-to-all between ranges of features and ranges of vertices"
    all_reduce: ClassVar[Literal["host", "ring"]] = "ring"
