"""MixGCN's preprocessing and pipeline: seconds of the orders, and what they are worth.

Bandwidths, stages, bytes and modelled epochs follow from the seed alone: a change is a change of an
order, of the model of the pipeline or of a platform.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from gnnbench import datasets, plugins
from gnnbench.kernels.dispatch import bandwidth, reverse_cuthill_mckee
from gnnbench.models import MODELS, build
from gnnbench.platforms import load_platform
from gnnbench.records import Dataset, Workload
from gnnbench.studies import PlanRequest
from gnnbench_plugins.mixgcn.groups import (
    choose_groups,
    find_groups,
    price_epoch,
    price_passes,
    share_out,
)
from gnnbench_plugins.mixgcn.ordering import count_stages, keep_order, make_batches, reorder
from gnnbench_plugins.mixgcn.pipeline import schedule_passes
from gnnbench_plugins.mixgcn.planner import Prospect, cut_dataset
from gnnbench_plugins.reference.kernel import TorchKernel
from suites.graphs import find_real

PLATFORM = "xeon8462-8xh100-8xspu"
#: MixGCN section 4.1: three layers with 128 hidden units.
HIDDEN = (128, 128)

#: Real graphs, or a block model where the shared ones are not at hand.
GRAPHS = find_real(
    "coauthor_physics",
    "ego_twitter",
    otherwise="sbm:vertices=20000,edges=200000,features=64,classes=7",
)

#: By graph and name.
Figures = Mapping[tuple[str, str], float]


def make_workload(data: Dataset) -> Workload:
    dims = (data.num_features, *HIDDEN, data.num_classes)
    return Workload("gcn", dims, 1, 1024, (0,) * 3, 0, threads=1)


class Silent:
    """Hears how far a plan has got, and takes no times."""

    def begin(self, label: str, edges: int) -> None: ...

    def advance(self, edges: int) -> None: ...

    def end(self) -> None: ...


class Ordering:
    """Seconds on this machine, one thread: reverse Cuthill-McKee with one search of a component and
    with two, the bandwidth, and what each batch of an order reads."""

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

    def time_batches(self, graph: str) -> None:
        make_batches(self.graph, self.ordering.order, self.stages)


class Planning:
    """Seconds on this machine of pricing and scheduling 64 stages, and of choosing among the ways
    to share sixteen devices out."""

    params: ClassVar = [GRAPHS]
    param_names: ClassVar[list[str]] = ["graph"]
    timeout = 600

    def setup(self, graph: str) -> None:
        data = datasets.load(graph)
        self.layers = build(make_workload(data)).shapes
        self.batches = make_batches(data.graph, reorder(data.graph).order, 64)
        self.groups, self.kernel = find_groups(load_platform(PLATFORM)), TorchKernel()
        self.passes = price_passes(self.layers, self.batches, self.groups, self.kernel)

    def time_prices(self, graph: str) -> None:
        price_passes(self.layers, self.batches, self.groups, self.kernel)

    def time_schedule(self, graph: str) -> None:
        schedule_passes(self.passes, self.batches.last_read)

    def time_choice(self, graph: str) -> None:
        choose_groups(share_out(self.groups, 16), self.layers, self.batches, self.kernel)


class Plan:
    """What an order and a plan are worth: bandwidth, stages, bytes of the all-to-all in an epoch,
    its modelled seconds pipelined and reordered, and with the devices shared out anew."""

    params: ClassVar = [GRAPHS]
    param_names: ClassVar[list[str]] = ["graph"]
    timeout = 600

    def setup_cache(self) -> Figures:
        registry, machine = plugins.load(), load_platform(PLATFORM)
        parts = registry.strategy("mixgcn").bundles["full-graph"]
        groups, kernel = find_groups(machine), TorchKernel()
        figures: dict[tuple[str, str], float] = {}
        for name in GRAPHS:
            data = datasets.load(name)
            workload = make_workload(data)
            request = PlanRequest(data, workload, machine, MODELS["gcn"], Silent())
            prospect = Prospect(plugins.assemble(registry, parts, {}), request)
            cut = cut_dataset(data, prospect)[-1]
            ordering = reorder(data.graph)
            numbered = make_batches(data.graph, keep_order(data.graph).order, cut.stages)
            chosen = choose_groups(share_out(groups, 16), prospect.layers, cut.batches, kernel)
            total = prospect.tabulate_exchange(cut).rows[-1].cells[-1].value
            for key, value in (
                ("bandwidth", ordering.bandwidth),
                ("stages", cut.stages),
                ("exchanged", total or 0),
                ("pipelined", price_epoch(prospect.layers, numbered, groups, kernel).epoch_s),
                ("reordered", price_epoch(prospect.layers, cut.batches, groups, kernel).epoch_s),
                ("chosen", chosen.epoch_s),
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

    def track_chosen_groups_s(self, figures: Figures, graph: str) -> float:
        return figures[graph, "chosen"]

    track_bandwidth.unit = "places"  # type: ignore[attr-defined]
    track_stages.unit = "stages"  # type: ignore[attr-defined]
    track_all_to_all_bytes.unit = "bytes"  # type: ignore[attr-defined]
    track_pipelined_s.unit = "seconds"  # type: ignore[attr-defined]
    track_reordered_s.unit = "seconds"  # type: ignore[attr-defined]
    track_chosen_groups_s.unit = "seconds"  # type: ignore[attr-defined]
