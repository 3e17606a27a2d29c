"""The plain samplers: neighbour sampling for mini-batches, and the whole graph."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gnnbench.kernels import dispatch
from gnnbench.parts import (
    UNIFORM,
    Chunks,
    DeviceCapacity,
    FullGraphSampler,
    MiniBatchSampler,
    Setting,
)
from gnnbench.records import Block, Graph, IntArray, Round, Unit


@dataclass
class NeighbourSampler(MiniBatchSampler):
    """GraphSAGE's sampling: for each vertex of a layer, ``fanout`` of its in-neighbours."""

    name: ClassVar[str] = "neighbour"
    summary: ClassVar[str] = "uniform neighbour sampling without replacement, a fan-out per layer"
    law: ClassVar[str] = UNIFORM

    def sample(self, seeds: IntArray, epoch: int, threads: int) -> tuple[Block, ...]:
        return draw_neighbours(self._setting, seeds, epoch, threads)


def draw_neighbours(
    setting: Setting, seeds: IntArray, epoch: int, threads: int
) -> tuple[Block, ...]:
    """Return the blocks that GraphSAGE's sampling draws around seeds, input layer first."""
    graph, workload = setting.dataset.graph, setting.workload
    return dispatch.sample_neighbours(
        graph.indptr,
        graph.indices,
        seeds,
        workload.fanouts,
        seed=workload.seed,
        epoch=epoch,
        threads=threads,
    )


@dataclass(frozen=True)
class WholeGraphSampler(FullGraphSampler):
    """One round that covers the graph: a contiguous range of vertices for each trainer."""

    name: ClassVar[str] = "full-graph"
    summary: ClassVar[str] = "the whole graph at once, in one range of balanced edges per device"

    def chunks(
        self, setting: Setting, num_slots: int, capacity: DeviceCapacity | None = None
    ) -> Chunks:
        """Return one unit per slot; a slot without vertices has none."""
        graph = setting.dataset.graph
        return cut_ranges(graph, balance_ranges(graph, num_slots))


def cut_ranges(graph: Graph, bounds: IntArray) -> Chunks:
    """Return one round with a unit for each range of vertices that is not empty.

    ``bounds``, int64, are those of each device's range, by device index.
    """
    sizes = np.diff(bounds)
    owner = np.repeat(np.arange(len(sizes), dtype=np.int64), sizes)
    units = tuple(
        Unit(slot=slot, blocks=(_range_block(graph, int(bounds[slot]), int(bounds[slot + 1])),))
        for slot in range(len(sizes))
        if sizes[slot]
    )
    return Chunks((Round(index=0, units=units),), owner)


def balance_ranges(graph: Graph, num_ranges: int) -> IntArray:
    """Return bounds, int64 ``(num_ranges+1,)``, of contiguous vertex ranges of about equal work.

    A vertex counts its in-edges and one more for its own update, so that ranges of isolated
    vertices are shared out too.
    """
    work = graph.indptr + np.arange(graph.num_vertices + 1, dtype=np.int64)
    shares = work[-1] * np.arange(1, num_ranges, dtype=np.int64) // num_ranges
    inner = np.searchsorted(work, shares)
    return np.concatenate(([0], inner, [graph.num_vertices])).astype(np.int64)


def _range_block(graph: Graph, begin: int, end: int) -> Block:
    ids = np.arange(begin, end, dtype=np.int64)
    if len(ids) == graph.num_vertices:
        return Block(ids, len(ids), graph.indptr, graph.indices)
    return dispatch.induce_block(graph.indptr, graph.indices, ids)
