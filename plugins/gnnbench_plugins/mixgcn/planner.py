"""What training with MixGCN would take: ``gnnbench plan mixgcn``.

A graph that is stored is ordered and cut as for training, and the pipeline is scheduled from its
real reads. Of a stream of edges only the size is known: its batches are equally large, and each
waits for the last of the layer before, as where vertices are numbered at random.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gnnbench.errors import IncompatibleParts
from gnnbench.kernels.dispatch import RmatStream, induce_block
from gnnbench.models import build
from gnnbench.parts import Bundle, LayerShape, Setting
from gnnbench.records import Cell, Dataset, IntArray, Table, TableRow
from gnnbench.studies import Planner, PlanRequest
from gnnbench_plugins.mixgcn.groups import (
    Choice,
    Groups,
    choose_groups,
    price_epoch,
    price_passes,
    share_out,
    take_some,
)
from gnnbench_plugins.mixgcn.kernel import SpuKernel
from gnnbench_plugins.mixgcn.ordering import (
    Batches,
    Ordering,
    count_stages,
    cut_batches,
    keep_order,
    make_batches,
    reorder,
)
from gnnbench_plugins.mixgcn.pipeline import STEPS, Pass, Timeline, find_lag, schedule_passes
from gnnbench_plugins.mixgcn.placement import MixGCNPlacement
from gnnbench_plugins.mixgcn.sampler import MixGCNSampler, choose_stages
from gnnbench_plugins.mixgcn.volumes import count_crossing


class MixGCNPlanner(Planner):
    """Orders the graph, cuts it into stages, and prices the pipeline, the all-to-all and memory."""

    name: ClassVar[str] = "mixgcn"
    summary: ClassVar[str] = "bandwidth, stages and schedules of the pipeline, all-to-all, memory"

    def plan(self, bundle: Bundle, request: PlanRequest) -> tuple[Table, ...]:
        prospect = Prospect(bundle, request)
        graph = request.graph
        if isinstance(graph, RmatStream):
            cuts = spread_stream(graph, prospect)
        else:
            cuts = cut_dataset(graph, prospect)
        chosen = prospect.choose(cuts)
        return (
            prospect.tabulate_schedules(cuts),
            prospect.tabulate_steps(chosen),
            *prospect.tabulate_groups(chosen),
            prospect.tabulate_exchange(chosen),
            prospect.tabulate_memory(chosen),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """A schedule of Figure 5: its batches, in an order of the vertices where that is known.

    ``sources`` int64 ``(s,)`` are how many distinct rows each batch reads.
    """

    schedule: str
    batches: Batches
    sources: IntArray
    ordering: Ordering | None = None

    @property
    def stages(self) -> int:
        return len(self.batches.rows)


class Prospect:
    """A request for this strategy: its parts by their own types, and what follows from counts."""

    def __init__(self, bundle: Bundle, request: PlanRequest) -> None:
        sampler, placement = bundle.sampler, bundle.placement
        if not (isinstance(sampler, MixGCNSampler) and isinstance(placement, MixGCNPlacement)):
            raise IncompatibleParts("a plan for mixgcn needs mixgcn's sampler and placement.")
        self.bundle, self.request, self.sampler = bundle, request, sampler
        self.itemsize = request.workload.itemsize
        self.layers: Sequence[LayerShape] = build(request.workload, model=request.model).shapes
        self._refuse()
        if isinstance(bundle.kernel, SpuKernel):
            graph = request.graph
            known = graph.vertices if isinstance(graph, RmatStream) else graph.graph.num_vertices
            bundle.kernel.limit_sources(known)
        platform = request.platform
        self.groups: Groups = placement.groups(platform)

    def _refuse(self) -> None:
        """Raise what training would be refused with, as far as a stream can tell."""
        request = self.request
        if isinstance(request.graph, Dataset):
            setting = Setting(
                request.graph, request.platform, request.workload, tuple(self.layers), request.model
            )
            reason = self.bundle.refusal(setting)
            if reason is not None:
                raise IncompatibleParts(reason)
            self.bundle.settle(setting)
        if not all(layer.featurewise for layer in self.layers):
            raise IncompatibleParts(
                f"model {request.workload.model!r} needs all features of both ends of an edge at "
                f"once, and mixgcn shards by features; choose gcn, sage, gin or commnet."
            )

    def choose(self, cuts: Sequence[Cut]) -> Cut:
        """The schedule of training; of a stream, where that is left open, naive or reordered,
        whichever takes less."""
        if self.sampler.schedule == "auto" and not isinstance(self.request.graph, Dataset):
            naive, _, reordered = cuts
            return (
                naive
                if self.schedule(naive).epoch_s <= self.schedule(reordered).epoch_s
                else reordered
            )
        return next(cut for cut in cuts if cut.schedule == self.sampler.chosen_schedule)

    def choose_stages(self, vertices: int, wanted: int | None) -> int:
        """As the sampler does."""
        return choose_stages(self.sampler.stages, vertices, wanted)

    def price(self, cut: Cut) -> tuple[Pass, ...]:
        return price_passes(
            self.layers, cut.batches, self.groups, self.bundle.kernel, itemsize=self.itemsize
        )

    def schedule(self, cut: Cut) -> Timeline:
        """The pipeline's timeline."""
        shared = self.groups.shared
        return schedule_passes(self.price(cut), cut.batches.last_read, shared=shared)

    # ------------------------------------------------------------------ time

    def tabulate_schedules(self, cuts: Sequence[Cut]) -> Table:
        """Bandwidths, stages, and an epoch of each schedule."""
        return Table(
            name="schedules",
            title=f"schedules of an epoch on {self.request.platform.name}",
            columns=(
                "b",
                "(n - b) / 2n",
                "s by Proposition 3.5",
                "s for the way back",
                "s",
                "steps until back",
                "epoch",
                "sparse idle",
            ),
            rows=tuple(TableRow(cut.schedule, self._schedule_cells(cut)) for cut in cuts),
            notes=(
                f"aggregation on {self.groups.sparse_count}x {self.groups.sparse.model}, update on "
                f"{self.groups.dense_count}x {self.groups.dense.model}",
                "an epoch without the loss and the all-reduce of the weights' gradients",
                "a batch that is back from the dense devices after k sparse steps, in the worst "
                "case, leaves nothing idle with s >= (1 + k) n / (n - b); the proposition takes k "
                "to be 1; where a step between takes longer than a sparse one, batches queue",
            ),
        )

    def _schedule_cells(self, cut: Cut) -> tuple[Cell, ...]:
        passes = self.price(cut)
        lag = find_lag(passes)
        unknown = Cell(text="not known")
        order: tuple[Cell, ...] = (unknown,) * 4
        if cut.ordering is not None:
            n, b = len(cut.ordering.order), cut.ordering.bandwidth
            asked = (count_stages(n, b), None if lag is None else count_stages(n, b, lag=lag))
            order = (
                Cell(b),
                Cell(cut.ordering.granularity),
                *(Cell(count, text="" if count else "none") for count in asked),
            )
        if cut.stages == 1:
            order = (*order[:3], Cell())
        timeline = self.schedule(cut)
        if self.groups.shared:  # devices that update are not idle, and queue for themselves
            return (
                *order[:3],
                Cell(),
                Cell(cut.stages),
                Cell(),
                Cell(timeline.epoch_s, "s"),
                Cell(),
            )
        return (
            *order,
            Cell(cut.stages),
            Cell(lag if cut.stages > 1 else None, text="" if lag or cut.stages == 1 else "queues"),
            Cell(timeline.epoch_s, "s"),
            Cell(100 * timeline.idle_s / timeline.epoch_s, "%"),
        )

    def tabulate_steps(self, cut: Cut) -> Table:
        """Seconds of every pass in each of the four steps, all batches together."""
        rows = [
            TableRow(each.label, tuple(Cell(float(step.sum()), "s") for step in each.seconds))
            for each in self.price(cut)
        ]
        return Table(
            name="steps",
            title=f"steps of each layer, {cut.schedule}, "
            + ("one batch" if cut.stages == 1 else f"the {cut.stages} batches added up"),
            columns=STEPS,
            rows=tuple(rows),
            notes=("the last layer's update is forward, then backward",),
        )

    def tabulate_groups(self, cut: Cut) -> tuple[Table, ...]:
        """Other numbers of devices; no table where one group does both."""
        groups, kernel = self.groups, self.bundle.kernel
        if groups.shared:
            return ()
        arguments = (self.layers, cut.batches)
        timeline = price_epoch(*arguments, groups, kernel, itemsize=self.itemsize)
        choices = {"as asked for": Choice(groups, timeline.epoch_s)}
        candidates = {"the best of these or fewer": take_some(groups)}
        total = groups.sparse_count + groups.dense_count
        if groups.sparse.kind != "cpu":
            candidates[f"the best {total} of either kind"] = share_out(groups, total)
        for label, allowed in candidates.items():
            choices[label] = choose_groups(allowed, *arguments, kernel, itemsize=self.itemsize)
        rows = [
            TableRow(
                label,
                (
                    Cell(choice.groups.sparse_count),
                    Cell(choice.groups.dense_count),
                    Cell(choice.epoch_s, "s"),
                ),
            )
            for label, choice in choices.items()
        ]
        return (
            Table(
                name="groups",
                title=f"numbers of devices, {cut.schedule}",
                columns=("aggregate", "update", "epoch"),
                rows=tuple(rows),
            ),
        )

    # ------------------------------------------------------------------ all-to-all

    def tabulate_exchange(self, cut: Cut) -> Table:
        """Bytes of the all-to-all, by layer and direction."""
        rows = []
        for number, layer in enumerate(self.layers, start=1):
            copies = layer.aggregate_features // layer.in_features
            aggregates = copies * self.exchanged_bytes(cut, layer.in_features)
            forward, backward = aggregates, 0
            if number < len(self.layers):
                forward += self.exchanged_bytes(cut, layer.out_features)
            if number > 1:
                backward = aggregates + self.exchanged_bytes(cut, layer.in_features)
            rows.append((f"layer {number}", (forward, backward)))
        totals = sum(sizes[0] for _, sizes in rows), sum(sizes[1] for _, sizes in rows)
        rows.append(("epoch", totals))
        return Table(
            name="exchange",
            title="all-to-all between ranges of features and ranges of vertices (Proposition 3.4)",
            columns=("forward", "backward", "both"),
            rows=tuple(
                TableRow(label, (*(Cell(size, "B") for size in sizes), Cell(sum(sizes), "B")))
                for label, sizes in rows
            ),
        )

    def exchanged_bytes(self, cut: Cut, width: int) -> int:
        """A matrix of ``width`` features that goes from one sharding to the other, without what
        stays where it is."""
        sparse, dense = self.groups.sparse_count, self.groups.dense_count
        shared = dense if self.groups.shared else 0
        crossing = (
            count_crossing(rows, width, sparse, dense, shared) for rows in cut.batches.rows.tolist()
        )
        return sum(crossing) * self.itemsize

    # ------------------------------------------------------------------ memory

    def tabulate_memory(self, cut: Cut) -> Table:
        """The fullest device of each group, what it holds all the time and at its fullest."""
        adjacency, columns = self._adjacency_bytes(cut), self._columns(cut)
        kept, phases = self._kept_elements(cut), self._phases(cut)
        parameters = 2 * sum(layer.parameters for layer in self.layers)
        item, groups = self.itemsize, self.groups
        sparse = adjacency + item * columns
        dense = item * (parameters + kept)
        if groups.shared:
            most = item * max(of_sparse + of_dense for of_sparse, of_dense in phases)
            held = [("both", groups.dense, sparse + dense, most)]
        else:
            held = [
                ("aggregates", groups.sparse, sparse, item * max(each for each, _ in phases)),
                ("updates", groups.dense, dense, item * max(each for _, each in phases)),
            ]
        rows = []
        for role, device, always, besides in held:
            limit = self.bundle.memory.capacity_bytes(device)
            fits = "fits" if always + besides <= limit else "does not fit"
            sizes = (always, besides, always + besides, limit)
            cells = (*(Cell(size, "B") for size in sizes), Cell(text=fits))
            rows.append(TableRow(f"{device.model}, {role}", cells))
        return Table(
            name="memory",
            title="memory of the fullest device of each group",
            columns=("all the time", "at most besides", "needed", "there is", ""),
            rows=tuple(rows),
            notes=(
                "all the time: adjacency and columns of the features to aggregate, parameters, "
                "their gradients and every layer's aggregates and outputs to update; besides: "
                "columns, rows and gradients of the layers at work",
            ),
        )

    def _width(self, width: int) -> int:
        """The widest range of columns."""
        return -(-width // self.groups.sparse_count)

    def _rows(self, cut: Cut) -> int:
        """The most vertices that a device updates."""
        return sum(-(-rows // self.groups.dense_count) for rows in cut.batches.rows.tolist())

    def _adjacency_bytes(self, cut: Cut) -> int:
        """The local CSR of every batch, with 32-bit indices."""
        vertices, edges = int(cut.batches.rows.sum()), int(cut.batches.edges.sum())
        return 4 * (vertices + cut.stages + edges)

    def _columns(self, cut: Cut) -> int:
        """The features."""
        return int(cut.batches.rows.sum()) * self._width(self.layers[0].in_features)

    def _kept_elements(self, cut: Cut) -> int:
        kept = sum(layer.aggregate_features + layer.out_features for layer in self.layers)
        return self._rows(cut) * kept

    def _phases(self, cut: Cut) -> list[tuple[int, int]]:
        """What a sparse and a dense device hold besides, in elements, in each layer of each way."""
        vertices, rows = int(cut.batches.rows.sum()), self._rows(cut)
        # Rows that a batch reads are picked out of all, unless it is the only one.
        picked = cut.sources if cut.stages > 1 else 0
        phases = []
        for number, layer in enumerate(self.layers):
            width = self._width(layer.in_features)
            copies = layer.aggregate_features // layer.in_features
            at_work = int((cut.batches.rows * copies + picked).max()) * width
            inputs = vertices * width if number else 0
            last = number == len(self.layers) - 1
            outputs = 0 if last else vertices * self._width(layer.out_features)
            phases.append((inputs + outputs + at_work, rows * layer.out_features if last else 0))
            if number:
                gradients = rows * (layer.in_features + layer.out_features)
                phases.append((inputs + at_work, gradients))
            else:
                phases.append((0, rows * layer.out_features))
        return phases


# --------------------------------------------------------------------------- counting


def cut_dataset(dataset: Dataset, prospect: Prospect) -> list[Cut]:
    """The three schedules of a stored graph, the last two of as many stages: those of training, or,
    where that is naive, of the better order."""
    graph, progress = dataset.graph, prospect.request.progress
    progress.begin("reverse Cuthill-McKee", graph.num_edges)
    reordered = reorder(graph, threads=prospect.request.workload.threads)
    progress.end()
    numbered = keep_order(graph)
    chosen = numbered if prospect.sampler.schedule == "pipelined" else reordered
    stages = prospect.choose_stages(
        graph.num_vertices, count_stages(graph.num_vertices, chosen.bandwidth)
    )

    def cut(schedule: str, ordering: Ordering, count: int) -> Cut:
        bounds = cut_batches(graph.num_vertices, count)[1:-1]
        parts = np.split(ordering.order.astype(np.int64), bounds)
        sources = [induce_block(graph.indptr, graph.indices, ids).num_src for ids in parts]
        batches = make_batches(graph, ordering.order, count)
        return Cut(schedule, batches, np.array(sources), ordering)

    return [
        cut("naive", numbered, 1),
        cut("pipelined", numbered, stages),
        cut("reordered", reordered, stages),
    ]


def spread_stream(stream: RmatStream, prospect: Prospect) -> list[Cut]:
    """The same of a graph that is not stored, in an order that nobody knows."""
    stages = prospect.choose_stages(stream.vertices, None)

    def cut(schedule: str, count: int) -> Cut:
        rows = np.diff(cut_batches(stream.vertices, count))
        edges = np.diff(np.arange(count + 1, dtype=np.int64) * (2 * stream.edges) // count)
        batches = Batches(rows, edges, np.full(count, count - 1, dtype=np.int64))
        return Cut(schedule, batches, np.minimum(rows + edges, stream.vertices))

    return [cut("naive", 1), cut("pipelined", stages), cut("reordered", stages)]
