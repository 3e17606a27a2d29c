"""Graphs, partitions and mini-batches of which the sizes are known and nothing else.

A dry run takes no more of a block than how many sources, destinations and edges it has, so arrays
of the right length stand for it. Those of edges have one element, however long they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np
from torch import Tensor

from gnnbench.machines.costs import Library
from gnnbench.machines.machine import Device, Platform
from gnnbench.parts import (
    MINI_BATCHES,
    UNIFORM,
    Chunks,
    DeviceCapacity,
    FullGraphSampler,
    Handed,
    HostLoading,
    MiniBatchSampler,
    Placement,
    SeedSession,
    Setting,
    TrafficSession,
    divide_evenly,
    hand_out,
)
from gnnbench.records import (
    BatchProfile,
    Block,
    Dataset,
    Fetch,
    Graph,
    HostThreads,
    IntArray,
    Loading,
    Mode,
    Round,
    RoundTraffic,
    Share,
    Unit,
)
from gnnbench_plugins.dgl.sampler import DGLSampler
from gnnbench_plugins.pyg.sampler import PyGSampler
from gnnbench_plugins.reference.communication import StagedPrefetching
from gnnbench_plugins.salient.communication import SalientCommunication


def make_block(source_ids: IntArray, destinations: int, edges: int) -> Block:
    """Make a block of ``edges`` edges, evenly spread over its destinations, which come first."""
    indptr = np.linspace(0, edges, destinations + 1).astype(np.int64)
    return Block(source_ids, destinations, indptr, np.broadcast_to(np.int32(0), (edges,)))


def make_dataset(name: str, vertices: int, edges: int, dims: Sequence[int], train: int) -> Dataset:
    """Make a data set of these sizes; its first ``train`` vertices train."""
    whole = make_block(np.arange(vertices, dtype=np.int64), vertices, edges)
    training = np.arange(vertices) < train
    nothing = np.broadcast_to(np.False_, (vertices,))
    return Dataset(
        name=name,
        graph=Graph(whole.indptr, whole.indices),
        features=np.broadcast_to(np.float32(0), (vertices, dims[0])),
        labels=np.broadcast_to(np.int64(0), (vertices,)),
        num_classes=dims[-1],
        train_mask=training,
        val_mask=nothing,
        test_mask=nothing,
        origin="sizes alone",
    )


@dataclass(frozen=True)
class SizedPartitions(FullGraphSampler):
    """Partitions of equal sizes, one a device; each reads ``halo`` rows of others.

    It reads an equal number of rows of each other device.
    """

    name: ClassVar[str] = "sized-partitions"
    summary: ClassVar[str] = "partitions of which the sizes are known"

    halo: int = 0

    def chunks(
        self, setting: Setting, num_slots: int, capacity: DeviceCapacity | None = None
    ) -> Chunks:
        graph = setting.dataset.graph
        ranges = divide_evenly(graph.num_vertices, num_slots)
        edges = divide_evenly(graph.num_edges, num_slots)
        owner = np.repeat(np.arange(num_slots), [end - begin for begin, end in ranges])
        units = []
        for slot, (begin, end) in enumerate(ranges):
            peers = [bounds for peer, bounds in enumerate(ranges) if peer != slot]
            shares = divide_evenly(self.halo, len(peers)) if peers else ()
            read = [np.arange(begin, end, dtype=np.int64)]
            for (first, last), (start, stop) in zip(peers, shares, strict=True):
                read.append(np.arange(first, min(last, first + stop - start), dtype=np.int64))
            size = edges[slot][1] - edges[slot][0]
            units.append(Unit(slot, (make_block(np.concatenate(read), end - begin, size),)))
        return Chunks((Round(0, tuple(units)),), owner)


@dataclass
class SizedRounds:
    """``count`` rounds of equal mini-batches, without training.

    A mini-batch is the one of ``profile`` for as many seeds, in proportion for fewer, and no larger
    for more.
    """

    summary: ClassVar[str] = "mini-batches of which the sizes are known"
    law: ClassVar[str] = UNIFORM

    profile: BatchProfile
    count: int = 1

    _round_seeds: int = field(init=False, repr=False, compare=False)
    _drawn: dict[int, tuple[Block, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def begin(self, setting: Setting) -> None:
        self._round_seeds = setting.workload.batch_size

    def rounds(self, epoch: int) -> Sequence[IntArray]:
        return [np.arange(self._round_seeds, dtype=np.int64)] * self.count

    def sample(self, seeds: IntArray, epoch: int, threads: int) -> tuple[Block, ...]:
        if len(seeds) not in self._drawn:
            self._drawn[len(seeds)] = self._make_blocks(len(seeds))
        return self._drawn[len(seeds)]

    def _make_blocks(self, seeds: int) -> tuple[Block, ...]:
        share = min(1.0, seeds / self.profile.seeds)
        vertices = [max(seeds, round(share * count)) for count in self.profile.vertices]
        vertices[-1] = seeds
        return tuple(
            make_block(np.arange(sources, dtype=np.int64), destinations, round(share * edges))
            for sources, destinations, edges in zip(
                vertices[:-1], vertices[1:], self.profile.edges, strict=True
            )
        )


@dataclass
class SizedMiniBatches(SizedRounds, MiniBatchSampler):
    """``count`` rounds of equal mini-batches, with the sizes of ``profile``.

    Sizes are in proportion for fewer seeds, and no larger for more. No mini-batch is trained on.
    """

    name: ClassVar[str] = "sized-mini-batches"


@dataclass
class DGLMiniBatches(SizedRounds, MiniBatchSampler):
    """Mini-batches that DGL draws and loads."""

    name: ClassVar[str] = "sized-mini-batches-of-dgl"
    library: ClassVar[Library] = DGLSampler.library
    loading: ClassVar[Loading] = "staged"


@dataclass
class DGLMiniBatchesInPlace(SizedRounds, MiniBatchSampler):
    """Mini-batches that DGL draws, whose rows accelerators read in place."""

    name: ClassVar[str] = "sized-mini-batches-in-place"
    library: ClassVar[Library] = DGLSampler.library
    loading: ClassVar[Loading] = "in-place"


@dataclass
class DGLMiniBatchesPinned(SizedRounds, MiniBatchSampler):
    """Mini-batches that DGL draws, whose rows a loader picks into pinned memory."""

    name: ClassVar[str] = "sized-mini-batches-pinned"
    library: ClassVar[Library] = DGLSampler.library
    loading: ClassVar[Loading] = "blocks"


@dataclass
class PyGMiniBatches(SizedRounds, MiniBatchSampler):
    """Mini-batches that PyG draws and loads."""

    name: ClassVar[str] = "sized-mini-batches-of-pyg"
    library: ClassVar[Library] = PyGSampler.library
    loading: ClassVar[Loading] = "staged"


@dataclass
class SalientMiniBatches(SizedRounds, MiniBatchSampler):
    """Mini-batches that SALIENT's threads draw and load, a whole one each."""

    name: ClassVar[str] = "sized-mini-batches-of-salient"

    workers: int = 1

    def preparers(self, cores: int) -> int:
        return self.workers


@dataclass
class PyGMiniBatchesPinned(SizedRounds, MiniBatchSampler):
    """Mini-batches that PyG draws, whose rows the training process picks into pinned memory."""

    name: ClassVar[str] = "sized-mini-batches-of-pyg-pinned"
    library: ClassVar[Library] = PyGSampler.library
    loading: ClassVar[Loading] = "blocks"


@dataclass
class PyGMiniBatchesPersistent(SizedRounds, MiniBatchSampler):
    """And whose workers stay from one epoch to the next."""

    name: ClassVar[str] = "sized-mini-batches-of-pyg-persistent"
    library: ClassVar[Library] = replace(PyGSampler.library, worker_start_s=0.0)
    loading: ClassVar[Loading] = "blocks"


class _AscendingRows(TrafficSession):
    """Every unit's input rows cross, whose ids ascend and need no sorting."""

    def plan(self, round_: Round, previous: RoundTraffic | None) -> RoundTraffic:
        nothing = np.empty(0, dtype=np.int64)
        needed = [(unit.slot, unit.input_ids) for unit in round_.units]
        return RoundTraffic(tuple(Fetch(slot, ids, ids, nothing) for slot, ids in needed))


@dataclass(frozen=True)
class AllRowsCross(StagedPrefetching, HostLoading):
    """Every unit's input rows cross, as many stages ahead as there are."""

    name: ClassVar[str] = "all-rows-cross"
    summary: ClassVar[str] = "every unit's whole input set crosses the host link, rounds ahead"

    def open(self, owner: IntArray) -> TrafficSession:
        return _AscendingRows(owner)


@dataclass(frozen=True)
class SalientRowsCross(HostLoading):
    """Every unit's input rows cross as ``salient`` has it."""

    name: ClassVar[str] = "all-rows-cross-as-salient"
    modes: ClassVar[frozenset[Mode]] = MINI_BATCHES
    batch_all_reduce: ClassVar[Literal["host", "ring"]] = SalientCommunication.batch_all_reduce
    keeps_packed: ClassVar[bool] = SalientCommunication.keeps_packed

    salient: SalientCommunication

    @property
    def prefetch(self) -> Literal[0, 1, 2]:
        return self.salient.prefetch

    @property
    def rounds_to(self) -> str:
        return self.salient.rounds_to

    def pack(self, rows: Tensor) -> tuple[Tensor, ...]:
        return self.salient.pack(rows)

    def open(self, owner: IntArray) -> TrafficSession:
        return _AscendingRows(owner)


class _LibraryShares(SeedSession):
    """Even shares, and the threads that sample for them."""

    def __init__(self, num_trainers: int, workers: int, samples: bool) -> None:
        self._num_trainers, self._workers, self._samples = num_trainers, workers, samples

    def share_out(self, seeds: IntArray) -> Handed:
        ranges = divide_evenly(len(seeds), self._num_trainers)
        return hand_out(
            seeds,
            tuple(
                Share(slot, end - begin, samples=self._samples)
                for slot, (begin, end) in enumerate(ranges)
            ),
        )

    def host_threads(self) -> HostThreads:
        return HostThreads(sample=self._workers)


@dataclass(frozen=True)
class LibraryPlacement(Placement):
    """Data parallelism of libraries: even shares of the seeds on ``devices`` accelerators.

    If ``devices`` is 0, all seeds are on the host. ``workers`` threads of the host sample, 0
    meaning all, unless the accelerators do.
    """

    name: ClassVar[str] = "library"
    summary: ClassVar[str] = "even shares of the seeds, sampled by workers or on the accelerators"
    modes: ClassVar[frozenset[Mode]] = MINI_BATCHES

    devices: int = 1
    workers: int = 0
    samples: bool = False

    def trainers(self, platform: Platform) -> tuple[Device, ...]:
        return platform.accelerators[: self.devices] or (platform.host,)

    def open(
        self, setting: Setting, profiles: Sequence[BatchProfile], prefetch: Literal[0, 1, 2]
    ) -> SeedSession:
        return _LibraryShares(len(self.trainers(setting.platform)), self.workers, self.samples)

    def samplers(self, platform: Platform) -> tuple[Device, ...]:
        return self.trainers(platform) if self.samples else ()
