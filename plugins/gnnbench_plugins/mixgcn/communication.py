"""The all-to-all between the shards of AGGREGATE and of UPDATE: MixGCN §3.1.2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from gnnbench.parts import OfFullGraphs, ShardExchange


@dataclass(frozen=True)
class MixGCNCommunication(OfFullGraphs, ShardExchange):
    """An all-to-all between ranges of features and ranges of vertices.

    Aggregates go from devices with a range of features to devices with a range of vertices, and
    representations go back. Gradients go in the opposite directions. The placement's two shardings
    give the traffic: entries with their column on one device and their row on another. The updating
    devices all-reduce weight gradients in a ring.
    """

    name: ClassVar[str] = "mixgcn"
    summary: ClassVar[str] = "all-to-all between ranges of features and ranges of vertices"
    all_reduce: ClassVar[Literal["host", "ring"]] = "ring"
