"""Benefit and cost of HongTu's planning: rows and bytes of a modelled epoch, seconds to plan.

Volumes and bytes depend on the seed alone, so they change only with a plan. They apply to HongTu's
four A100, which have room for everything. Device memory is the memory of the chunks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from gnnbench import datasets, plugins
from gnnbench.comparison import make_setting
from gnnbench.lowering.capacity import plan_rounds
from gnnbench.lowering.movement import plan_movement
from gnnbench.machines import load_platform
from gnnbench.parts import Setting
from gnnbench.price.folds import digest
from gnnbench.price.model_clock import ModelClock
from gnnbench.records import RoundTraffic
from gnnbench.run import train
from gnnbench_plugins.hongtu.communication import HongTuCommunication
from gnnbench_plugins.hongtu.sampler import HongTuSampler, read_sets, throughputs
from gnnbench_plugins.hongtu.search import bound_sweeps, improve
from gnnbench_plugins.hongtu.volumes import (
    NeighbourSets,
    count_volumes,
    mark_chunks,
    reorganise,
)
from suites.epochs import make_request
from suites.graphs import find_real

PLATFORM = "epyc7543x4-4xa100"
PARTITIONS = len(load_platform(PLATFORM).accelerators)
CHUNKS = [8, 32]

#: Values by graph, chunks of a partition, and name.
Figures = Mapping[tuple[str, int, str], float]

#: Real graphs, or a block model if the shared graphs are missing.
GRAPHS = find_real(
    "cora", "ego_twitter", otherwise="sbm:vertices=20000,edges=200000,features=64,classes=7"
)


def make(graph: str) -> Setting:
    """Return one epoch of GCN with 256 hidden units on the modelled server."""
    return make_setting(make_request(datasets.load(graph), PLATFORM, "full-graph", "hongtu"))


def sets_of(sampler: HongTuSampler, setting: Setting) -> NeighbourSets:
    """Return N_ij of the chunks that a sampler makes, in their order."""
    rounds = sampler.chunks(setting, PARTITIONS).rounds
    blocks = [[round_.units[i].blocks[0] for round_ in rounds] for i in range(PARTITIONS)]
    return read_sets(blocks)


class Planning:
    """Seconds of the planning stages on this machine.

    The first stages are partitions, chunks and their order. Ordering is also timed as Algorithm 4
    alone, and as the bounded and the full local search from the order of ranges. Then follow
    transition sets, and position indices with the blocks that use them.

    They are paid once. HongTu's Table 9 reports up to 1.5 % of 100 epochs on 128 cores for the
    stages after partitioning. ``Plan`` has the modelled epoch.
    """

    params: ClassVar = [GRAPHS, CHUNKS]
    param_names: ClassVar[list[str]] = ["graph", "chunks"]
    timeout = 600

    def setup(self, graph: str, chunks: int) -> None:
        self.setting = make(graph)
        self.sampler = HongTuSampler(chunks_per_partition=chunks)
        self.sets = sets_of(HongTuSampler(chunks_per_partition=chunks, search="none"), self.setting)
        self.as_cut = [list(range(chunks))] * PARTITIONS
        self.num_vertices = self.setting.dataset.graph.num_vertices
        self.rates = throughputs(self.setting)
        self.sweeps = bound_sweeps(mark_chunks(self.sets, self.num_vertices))
        self.cut = self.sampler.chunks(self.setting, PARTITIONS)
        self.rounds = self.cut.rounds
        self.traffic = self.plan_traffic()

    def plan_traffic(self) -> list[RoundTraffic]:
        return plan_rounds(HongTuCommunication().open(self.cut.owner), self.rounds)

    def time_chunks(self, graph: str, chunks: int) -> None:
        self.sampler.chunks(self.setting, PARTITIONS)

    def time_algorithm_4(self, graph: str, chunks: int) -> None:
        reorganise(self.sets, self.num_vertices)

    def time_local_search(self, graph: str, chunks: int) -> None:
        improve(self.sets, self.as_cut, self.num_vertices, self.rates, self.sweeps)

    def time_full_search(self, graph: str, chunks: int) -> None:
        improve(self.sets, self.as_cut, self.num_vertices, self.rates)

    def time_transition_sets(self, graph: str, chunks: int) -> None:
        self.plan_traffic()

    def time_positions(self, graph: str, chunks: int) -> None:
        plan_movement(self.rounds, self.traffic, self.num_vertices, shares_rows=True)


class Plan:
    """Figures of a plan: volumes in rows of a layer, bytes, and the largest device's memory."""

    params: ClassVar = [GRAPHS, CHUNKS]
    param_names: ClassVar[list[str]] = ["graph", "chunks"]
    timeout = 600

    def setup_cache(self) -> Figures:
        registry, figures = plugins.load(), dict[tuple[str, int, str], float]()
        parts = registry.strategy("hongtu").bundles["full-graph"]
        for graph in GRAPHS:
            setting = make(graph)
            for chunks in CHUNKS:
                sampler = HongTuSampler(chunks_per_partition=chunks)
                volumes = count_volumes(
                    sets_of(sampler, setting), setting.dataset.graph.num_vertices
                )
                options = {"chunks_per_partition": str(chunks)}
                bundle = plugins.assemble(registry, parts, {"sampler": options})
                trace = train(bundle, setting, ModelClock(setting.platform, bundle.kernel))
                moved = trace.epochs[0].bytes
                for name, value in (
                    ("original", volumes.original),
                    ("with_p2p", volumes.with_p2p),
                    ("with_reuse", volumes.with_reuse),
                    ("host", moved["host_to_device"] + moved["device_to_host"]),
                    ("epoch", digest(trace.epochs[0], "modelled").epoch_s),
                    ("peak", max(trace.peak_bytes[d.name] for d in setting.platform.accelerators)),
                ):
                    figures[graph, chunks, name] = value
        return figures

    def track_original_rows(self, figures: Figures, graph: str, chunks: int) -> float:
        return figures[graph, chunks, "original"]

    def track_rows_with_p2p(self, figures: Figures, graph: str, chunks: int) -> float:
        return figures[graph, chunks, "with_p2p"]

    def track_rows_with_reuse(self, figures: Figures, graph: str, chunks: int) -> float:
        return figures[graph, chunks, "with_reuse"]

    def track_host_bytes(self, figures: Figures, graph: str, chunks: int) -> float:
        return figures[graph, chunks, "host"]

    def track_peak_device_bytes(self, figures: Figures, graph: str, chunks: int) -> float:
        return figures[graph, chunks, "peak"]

    def track_modelled_epoch(self, figures: Figures, graph: str, chunks: int) -> float:
        return figures[graph, chunks, "epoch"]

    track_modelled_epoch.unit = "seconds"  # type: ignore[attr-defined]
    track_original_rows.unit = "rows"  # type: ignore[attr-defined]
    track_rows_with_p2p.unit = "rows"  # type: ignore[attr-defined]
    track_rows_with_reuse.unit = "rows"  # type: ignore[attr-defined]
    track_host_bytes.unit = "bytes"  # type: ignore[attr-defined]
    track_peak_device_bytes.unit = "bytes"  # type: ignore[attr-defined]
