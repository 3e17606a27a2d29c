"""Partitions of a graph's vertices, for samplers and placements."""

from gnnbench.datasets.partitioning.edge_cut import (
    Partitioner,
    choose_partitioner,
    cut_ranges,
    partition,
    remember_partitions,
)
from gnnbench.datasets.partitioning.kept import keep_partitions
from gnnbench.datasets.partitioning.metis import partition_metis
from gnnbench.datasets.partitioning.random import deal_out

__all__ = [
    "Partitioner",
    "choose_partitioner",
    "cut_ranges",
    "deal_out",
    "keep_partitions",
    "partition",
    "partition_metis",
    "remember_partitions",
]
