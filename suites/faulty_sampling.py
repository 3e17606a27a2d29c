"""Samplers and communications that are wrong in one way each, of ``suites.faults``."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from gnnbench.kernels import dispatch
from gnnbench.parts import Bundle, Chunks, DeviceCapacity, Part, PeerData, RoundedLoading, Setting
from gnnbench.records import Block, IntArray, Unit
from gnnbench_plugins.pipegcn.communication import PipeGCNCommunication
from gnnbench_plugins.reference.sampler import NeighbourSampler, WholeGraphSampler


@dataclass
class SkippedSeeds(NeighbourSampler):
    name: ClassVar[str] = "seeds-skipped"
    summary: ClassVar[str] = "the last seed of each round is skipped"

    def rounds(self, epoch: int) -> Sequence[IntArray]:
        return [seeds[:-1] if len(seeds) > 1 else seeds for seeds in super().rounds(epoch)]


@dataclass
class RepeatedSeeds(NeighbourSampler):
    name: ClassVar[str] = "seeds-repeated"
    summary: ClassVar[str] = "the first seed stands for the last one too"

    def rounds(self, epoch: int) -> Sequence[IntArray]:
        rounds = [seeds.copy() for seeds in super().rounds(epoch)]
        rounds[-1][-1] = rounds[0][0]
        return rounds


@dataclass
class TestSeeds(NeighbourSampler):
    name: ClassVar[str] = "seeds-of-test"
    summary: ClassVar[str] = "a test vertex is trained on"

    def rounds(self, epoch: int) -> Sequence[IntArray]:
        dataset = self._setting.dataset
        strange = np.flatnonzero(dataset.test_mask & (dataset.labels >= 0))[:1].astype(np.int64)
        rounds = list(super().rounds(epoch))
        return [*rounds[:-1], np.concatenate((rounds[-1], strange))]


class _OtherFanouts(NeighbourSampler):
    """Blocks that are drawn with other fan-outs than the workload's."""

    @abstractmethod
    def change(self, fanout: int) -> int:
        """The fan-out that is drawn in place of the workload's."""

    def sample(self, seeds: IntArray, epoch: int, threads: int) -> tuple[Block, ...]:
        graph, workload = self._setting.dataset.graph, self._setting.workload
        return dispatch.sample_neighbours(
            graph.indptr,
            graph.indices,
            seeds,
            tuple(self.change(fanout) for fanout in workload.fanouts),
            seed=workload.seed,
            epoch=epoch,
            threads=threads,
        )


@dataclass
class AllNeighbours(_OtherFanouts):
    name: ClassVar[str] = "fanouts-ignored"
    summary: ClassVar[str] = "every neighbour is taken"

    def change(self, fanout: int) -> int:
        return 0


@dataclass
class FewerNeighbours(_OtherFanouts):
    name: ClassVar[str] = "fanouts-less-one"
    summary: ClassVar[str] = "one neighbour less than asked for"

    def change(self, fanout: int) -> int:
        return max(fanout - 1, 1)


@dataclass
class UnevenRounds(NeighbourSampler):
    name: ClassVar[str] = "rounds-uneven"
    summary: ClassVar[str] = "all rounds but the last have one seed"

    def rounds(self, epoch: int) -> Sequence[IntArray]:
        rounds = super().rounds(epoch)
        seeds, last = np.concatenate(rounds), len(rounds) - 1
        return np.split(seeds, range(1, last + 1))


@dataclass
class FirstNeighbours(NeighbourSampler):
    name: ClassVar[str] = "neighbours-first"
    summary: ClassVar[str] = "of each row as many neighbours as asked for are taken, the first ones"

    def sample(self, seeds: IntArray, epoch: int, threads: int) -> tuple[Block, ...]:
        graph, ids = self._setting.dataset.graph, seeds
        blocks: list[Block] = []
        for fanout in self._setting.workload.fanouts:
            counts = np.minimum(graph.degrees[ids], fanout or graph.num_vertices)
            indptr = np.concatenate(([0], np.cumsum(counts)))
            edges = np.arange(indptr[-1]) + np.repeat(graph.indptr[ids] - indptr[:-1], counts)
            sources = graph.indices[edges].astype(np.int64)
            src_ids = np.concatenate((ids, np.setdiff1d(sources, ids)))
            order = np.argsort(src_ids)
            indices = order[np.searchsorted(src_ids, sources, sorter=order)].astype(np.int32)
            blocks.append(Block(src_ids, len(ids), indptr, indices))
            ids = src_ids
        return tuple(reversed(blocks))


@dataclass
class SameDraws(NeighbourSampler):
    name: ClassVar[str] = "draws-repeated"
    summary: ClassVar[str] = "every epoch has the neighbours of the first"

    def sample(self, seeds: IntArray, epoch: int, threads: int) -> tuple[Block, ...]:
        return super().sample(seeds, 0, threads)


@dataclass
class RepeatedEdges(NeighbourSampler):
    name: ClassVar[str] = "edges-repeated"
    summary: ClassVar[str] = "a neighbour may be drawn twice"

    def sample(self, seeds: IntArray, epoch: int, threads: int) -> tuple[Block, ...]:
        *below, last = super().sample(seeds, epoch, threads)
        indices = last.indices.copy()
        several = np.flatnonzero(np.diff(last.indptr) > 1)
        indices[last.indptr[several]] = indices[last.indptr[several] + 1]
        return *below, replace(last, indices=indices)


@dataclass
class StrangeEdges(NeighbourSampler):
    name: ClassVar[str] = "edges-strange"
    summary: ClassVar[str] = "one edge is not one of the graph's"

    def sample(self, seeds: IntArray, epoch: int, threads: int) -> tuple[Block, ...]:
        *below, last = super().sample(seeds, epoch, threads)
        indices = last.indices.copy()
        row = int(np.argmax(np.diff(last.indptr)))
        if last.num_edges:
            indices[last.indptr[row]] = row
        return *below, replace(last, indices=indices)


class _OtherBounds(WholeGraphSampler):
    """Chunks one of whose bounds is off."""

    shift: ClassVar[int]

    def chunks(
        self, setting: Setting, num_slots: int, capacity: DeviceCapacity | None = None
    ) -> Chunks:
        cut = super().chunks(setting, num_slots, capacity)
        (round_,) = cut.rounds
        graph, last = setting.dataset.graph, round_.units[-1]
        ids = last.output_ids
        begin = int(ids[0]) + self.shift
        ids = np.arange(begin, int(ids[-1]) + 1, dtype=np.int64)
        block = dispatch.induce_block(graph.indptr, graph.indices, ids)
        units = (*round_.units[:-1], Unit(last.slot, (block,)))
        return replace(cut, rounds=(replace(round_, units=units),))


@dataclass(frozen=True)
class LostVertex(_OtherBounds):
    name: ClassVar[str] = "vertex-lost"
    summary: ClassVar[str] = "the last chunk begins one vertex late"
    shift: ClassVar[int] = 1


@dataclass(frozen=True)
class VertexTwice(_OtherBounds):
    name: ClassVar[str] = "vertex-twice"
    summary: ClassVar[str] = "the last chunk begins one vertex early"
    shift: ClassVar[int] = -1


@dataclass(frozen=True)
class SilentRounding(RoundedLoading):
    """Features that cross rounded, of which nothing is said before the run begins."""

    name: ClassVar[str] = "features-rounded"
    summary: ClassVar[str] = "features cross in float16, which it does not say"
    begun: bool = field(default=False, repr=False)

    def settle(self, bundle: Bundle, setting: Setting) -> tuple[Part, tuple[str, ...]]:
        return replace(self, begun=True), ()

    @property
    def rounds_to(self) -> str:
        return "float16" if self.begun else ""

    def pack(self, rows: Tensor) -> tuple[Tensor, ...]:
        return (rows.half(),)

    def unpack(self, crossed: tuple[Tensor, ...], dtype: torch.dtype) -> Tensor:
        return crossed[0].to(dtype)


@dataclass(frozen=True)
class SilentStaleness(PipeGCNCommunication):
    """Rows of the epoch before, of which nothing is said before the run begins."""

    name: ClassVar[str] = "halo-stale"
    summary: ClassVar[str] = "peers' rows are those of the epoch before, which it does not say"
    begun: bool = field(default=False, repr=False)

    def settle(self, bundle: Bundle, setting: Setting) -> tuple[Part, tuple[str, ...]]:
        return replace(self, begun=True), ()

    @property
    def stale(self) -> frozenset[PeerData]:
        return super().stale if self.begun else frozenset()


SAMPLERS: tuple[type[Part], ...] = (
    SkippedSeeds,
    RepeatedSeeds,
    TestSeeds,
    UnevenRounds,
    FirstNeighbours,
    SameDraws,
    AllNeighbours,
    FewerNeighbours,
    RepeatedEdges,
    StrangeEdges,
)
CHUNKS: tuple[type[Part], ...] = (LostVertex, VertexTwice)
COMMUNICATIONS: tuple[type[Part], ...] = (SilentRounding, SilentStaleness)
