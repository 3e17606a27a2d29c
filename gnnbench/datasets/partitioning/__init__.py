"""Partitions of a graph's vertices, for samplers and placements."""

from gnnbench.datasets.partitioning.edge_cut import Partitioner as Partitioner
from gnnbench.datasets.partitioning.edge_cut import choose_partitioner as choose_partitioner
from gnnbench.datasets.partitioning.edge_cut import cut_ranges as cut_ranges
from gnnbench.datasets.partitioning.edge_cut import partition as partition
from gnnbench.datasets.partitioning.edge_cut import remember_partitions as remember_partitions
from gnnbench.datasets.partitioning.kept import keep_partitions as keep_partitions
from gnnbench.datasets.partitioning.metis import partition_metis as partition_metis
from gnnbench.datasets.partitioning.random import deal_out as deal_out
