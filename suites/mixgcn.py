"""MixGCN's preprocessing and pipeline: seconds of the orders, and their benefit.

Bandwidths, stages, bytes and modelled epochs depend on the seed alone. They change only with an
order, the program or a platform.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from gnnbench import datasets, plugins
from gnnbench.kernels.dispatch import bandwidth, reverse_cuthill_mckee
from gnnbench.machines import load_platform
from gnnbench.models import build
from gnnbench.parts import Setting
from gnnbench.records import Dataset, Workload
from gnnbench_plugins.mixgcn.ordering import count_rounds, count_stages, keep_order, reorder
from gnnbench_plugins.mixgcn.outlook import foresee
from gnnbench_plugins.mixgcn.sampler import choose_stages
from suites.graphs import find_real

PLATFORM = "xeon8462-8xh100-8xspu"
#: MixGCN section 4.1: three layers with 128 hidden units.
HIDDEN = (128, 128)

#: Real graphs, or a block model if the shared graphs are missing.
GRAPHS = find_real(
    "coauthor_physics",
    "ego_twitter",
    otherwise="sbm:vertices=20000,edges=200000,features=64,classes=7",
)

#: Values by graph and name.
Figures = Mapping[tuple[str, str], float]


def make_workload(data: Dataset) -> Workload:
    dims = (data.num_features, *HIDDEN, data.num_classes)
    return Workload("gcn", dims, 1, 1024, (0,) * 3, 0, threads=1)


def make_setting(data: Dataset) -> Setting:
    workload = make_workload(data)
    return Setting(data, load_platform(PLATFORM), workload, build(workload).shapes)


class Ordering:
    """Seconds on one thread of this machine: orders, bandwidth, and reads of an order.

    Reverse Cuthill-McKee is timed with one search of a component and with two.
    """

    params: ClassVar = [GRAPHS]
    param_names: ClassVar[list[str]] = ["graph"]
    timeout = 600

    def setup(self, graph: str) -> None:
        self.graph = datasets.load(graph).graph
        self.ordering = reorder(self.graph, threads=1)
        stages = count_stages(self.graph.num_vertices, self.ordering.bandwidth)
        if stages is None:
            raise NotImplementedError(f"no number of stages is enough for {graph}")
        self.stages = stages

    def time_one_search(self, graph: str) -> None:
        reverse_cuthill_mckee(self.graph.indptr, self.graph.indices, threads=1)

    def time_two_searches(self, graph: str) -> None:
        reverse_cuthill_mckee(self.graph.indptr, self.graph.indices, from_hubs=True, threads=1)

    def time_bandwidth(self, graph: str) -> None:
        order = self.ordering.order
        bandwidth(self.graph.indptr, self.graph.indices, order, threads=1)

    def time_rounds(self, graph: str) -> None:
        count_rounds(self.graph, self.ordering.order, self.stages)


class Planning:
    """Seconds on this machine of planning an epoch's program from sizes, in one stage and in 64."""

    params: ClassVar = [GRAPHS]
    param_names: ClassVar[list[str]] = ["graph"]
    timeout = 600

    def setup(self, graph: str) -> None:
        data, registry = datasets.load(graph), plugins.load()
        self.setting = make_setting(data)
        self.bundle = plugins.assemble(
            registry, registry.strategy("mixgcn").bundles["full-graph"], {}
        )
        order = reorder(data.graph).order
        self.rounds = {count: count_rounds(data.graph, order, count) for count in (1, 64)}

    def time_one_stage(self, graph: str) -> None:
        foresee(self.bundle, self.setting, self.rounds[1])

    def time_stages(self, graph: str) -> None:
        foresee(self.bundle, self.setting, self.rounds[64])


class Plan:
    """Figures of an order and a plan: bandwidth, stages, all-to-all bytes and modelled seconds.

    The epoch is modelled pipelined and reordered.
    """

    params: ClassVar = [GRAPHS]
    param_names: ClassVar[list[str]] = ["graph"]
    timeout = 600

    def setup_cache(self) -> Figures:
        registry = plugins.load()
        parts = registry.strategy("mixgcn").bundles["full-graph"]
        bundle = plugins.assemble(registry, parts, {})
        figures: dict[tuple[str, str], float] = {}
        for name in GRAPHS:
            data = datasets.load(name)
            graph, setting = data.graph, make_setting(data)
            ordering = reorder(graph)
            asked = count_stages(graph.num_vertices, ordering.bandwidth)
            stages = choose_stages(0, graph.num_vertices, asked)
            pipelined, reordered = (
                foresee(bundle, setting, count_rounds(graph, each.order, stages))
                for each in (keep_order(graph), ordering)
            )
            for key, value in (
                ("bandwidth", ordering.bandwidth),
                ("stages", stages),
                ("exchanged", reordered.epoch.bytes["all_to_all"]),
                ("pipelined", pipelined.epoch_s),
                ("reordered", reordered.epoch_s),
            ):
                figures[name, key] = value
        return figures

    def track_bandwidth(self, figures: Figures, graph: str) -> float:
        return figures[graph, "bandwidth"]

    def track_stages(self, figures: Figures, graph: str) -> float:
        return figures[graph, "stages"]

    def track_all_to_all_bytes(self, figures: Figures, graph: str) -> float:
        return figures[graph, "exchanged"]

    def track_pipelined_s(self, figures: Figures, graph: str) -> float:
        return figures[graph, "pipelined"]

    def track_reordered_s(self, figures: Figures, graph: str) -> float:
        return figures[graph, "reordered"]

    track_bandwidth.unit = "places"  # type: ignore[attr-defined]
    track_stages.unit = "stages"  # type: ignore[attr-defined]
    track_all_to_all_bytes.unit = "bytes"  # type: ignore[attr-defined]
    track_pipelined_s.unit = "seconds"  # type: ignore[attr-defined]
    track_reordered_s.unit = "seconds"  # type: ignore[attr-defined]
