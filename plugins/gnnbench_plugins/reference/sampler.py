"""The plain samplers: neighbour sampling for mini-batches, and the whole graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
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

    _setting: Setting = field(init=False, repr=False, compare=False)

    def begin(self, setting: Setting) -> None:
        self._setting = setting

    def rounds(self, epoch: int) -> Sequence[IntArray]:
        """Return the training vertices, shuffled by (seed, epoch), in pieces of the batch size."""
        workload = self._setting.workload
        key = np.array([workload.seed, epoch], dtype=np.uint64)
        shuffled = self._setting.dataset.train_ids
        np.random.Generator(np.random.Philox(key=key)).shuffle(shuffled)
        return [
            shuffled[begin : begin + workload.batch_size]
            for begin in range(0, len(shuffled), workload.batch_size)
        ]

    def sample(self, seeds: IntArray, epoch: int, threads: int) -> tuple[Block, ...]:
        graph, workload = self._setting.dataset.graph, self._setting.workload
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

    def cut(self, setting: Setting, num_slots: int) -> IntArray:
        """Return the bounds of the ranges, int64 ``(num_slots+1,)``."""
        return balance_ranges(setting.dataset.graph, num_slots)

    def chunks(
        self, setting: Setting, num_slots: int, capacity: DeviceCapacity | None = None
    ) -> Chunks:
        """Return one unit per slot; a slot without vertices has none."""
        graph, bounds = setting.dataset.graph, self.cut(setting, num_slots)
        owner = np.repeat(np.arange(num_slots, dtype=np.int64), np.diff(bounds))
        units = tuple(
            Unit(slot=slot, blocks=(_range_block(graph, int(bounds[slot]), int(bounds[slot + 1])),))
            for slot in range(num_slots)
            if bounds[slot] < bounds[slot + 1]
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
