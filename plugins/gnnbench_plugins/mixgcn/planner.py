"""What training with MixGCN would take: ``gnnbench plan mixgcn``.

A graph that is stored is ordered and cut as for training, and its real reads are counted. Of a
stream of edges only the size is known: its batches are equally large, and each reads all of the
layer before, as where vertices are numbered at random. The schedule and numbers of devices are
weighed by the model of the pipeline (``groups``), as in training. Of the schedule that is chosen
epoch, bytes and memory are those of the program that training executes, read by its sizes alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gnnbench.errors import IncompatibleParts
from gnnbench.kernels.dispatch import RmatStream, induce_block
from gnnbench.lowering.feature_shards import (
    AGGREGATE_GRADIENTS,
    AGGREGATES,
    ROW_GRADIENTS,
    ROWS,
    FeatureShardsLowering,
)
from gnnbench.lowering.memory import masks_gradients
from gnnbench.lowering.shardings import Piece
from gnnbench.models import build
from gnnbench.parts import Bundle, Setting
from gnnbench.records import BlockSize, Cell, Dataset, Graph, Table, TableRow
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
from gnnbench_plugins.mixgcn.outlook import Outlook, describe_counted, foresee
from gnnbench_plugins.mixgcn.pipeline import STEPS, Pass, Timeline, find_lag, schedule_passes
from gnnbench_plugins.mixgcn.placement import MixGCNPlacement
from gnnbench_plugins.mixgcn.sampler import MixGCNSampler, choose_stages


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
            prospect.tabulate_schedules(cuts, chosen),
            prospect.tabulate_steps(chosen),
            *prospect.tabulate_groups(chosen),
            prospect.tabulate_exchange(chosen),
            prospect.tabulate_memory(chosen),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """A schedule of Figure 5: its batches, in an order of the vertices where that is known, and the
    same as the rounds of a program."""

    schedule: str
    batches: Batches
    rounds: tuple[Piece, ...]
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
        graph, workload = request.graph, request.workload
        model = build(workload, model=request.model, masked=masks_gradients(bundle))
        self.layers = model.shapes
        dataset = graph if isinstance(graph, Dataset) else describe_counted(workload.dims)
        setting = Setting(dataset, request.platform, workload, self.layers, request.model)
        self._refuse(setting)
        self._lowering = FeatureShardsLowering(bundle, setting, model.stack)
        self._foreseen: tuple[Cut, Outlook] | None = None
        if isinstance(bundle.kernel, SpuKernel):
            known = graph.vertices if isinstance(graph, RmatStream) else graph.graph.num_vertices
            bundle.kernel.limit_sources(known)
        platform = request.platform
        self.groups: Groups = placement.groups(platform)

    def _refuse(self, setting: Setting) -> None:
        """Raise what training would be refused with, as far as a stream can tell."""
        request = self.request
        if isinstance(request.graph, Dataset):
            reason = self.bundle.refusal(setting)
            if reason is not None:
                raise IncompatibleParts(reason)
            self.bundle = self.bundle.settle(setting)
            if isinstance(self.bundle.sampler, MixGCNSampler):
                self.sampler = self.bundle.sampler
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
        """The pipeline's timeline, by the model."""
        shared = self.groups.shared
        return schedule_passes(self.price(cut), cut.batches.last_read, shared=shared)

    def foresee(self, cut: Cut) -> Outlook:
        """The epoch that training would take, whether or not it fits; the last one is kept."""
        if self._foreseen is None or self._foreseen[0] is not cut:
            self._foreseen = cut, foresee(self._lowering, cut.rounds)
        return self._foreseen[1]

    # ------------------------------------------------------------------ time

    def tabulate_schedules(self, cuts: Sequence[Cut], chosen: Cut) -> Table:
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
                "by the pipeline",
                "sparse idle",
            ),
            rows=tuple(
                TableRow(cut.schedule, self._schedule_cells(cut, chosen=cut is chosen))
                for cut in cuts
            ),
            notes=(
                f"aggregation on {self.groups.sparse_count}x {self.groups.sparse.model}, update on "
                f"{self.groups.dense_count}x {self.groups.dense.model}",
                "the epoch is that of training, of the schedule that would be chosen; by the "
                "pipeline is the model by which it is chosen: all links are alike, all pairs of "
                "devices take equal turns, and there is neither loss nor all-reduce",
                "a batch that is back from the dense devices after k sparse steps, in the worst "
                "case, leaves nothing idle with s >= (1 + k) n / (n - b); the proposition takes k "
                "to be 1; where a step between takes longer than a sparse one, batches queue",
            ),
        )

    def _schedule_cells(self, cut: Cut, *, chosen: bool) -> tuple[Cell, ...]:
        passes, timeline = self.price(cut), self.schedule(cut)
        lag = find_lag(passes)
        order: tuple[Cell, ...] = (Cell(text="not known"),) * 4
        if cut.ordering is not None:
            n, b = len(cut.ordering.order), cut.ordering.bandwidth
            asked = (count_stages(n, b), None if lag is None else count_stages(n, b, lag=lag))
            order = (
                Cell(b),
                Cell(cut.ordering.granularity),
                *(Cell(count, text="" if count else "none") for count in asked),
            )
        back = Cell(lag, text="" if lag else "queues")
        idle = Cell(100 * timeline.idle_s / timeline.epoch_s, "%")
        if self.groups.shared:  # devices that update are not idle, and queue for themselves
            order, back, idle = (*order[:3], Cell()), Cell(), Cell()
        elif cut.stages == 1:
            order, back = (*order[:3], Cell()), Cell()
        epoch_s = self.foresee(cut).epoch_s if chosen else None
        times = Cell(epoch_s, "s"), Cell(timeline.epoch_s, "s")
        return (*order, Cell(cut.stages), back, *times, idle)

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
                notes=("epochs by the pipeline",),
            ),
        )

    # ------------------------------------------------------------------ all-to-all

    def tabulate_exchange(self, cut: Cut) -> Table:
        """Bytes of the all-to-all: of a layer's aggregates and input rows, by direction."""
        sizes = [[0, 0] for _ in self.layers]
        ways = {AGGREGATES: 0, ROWS: 0, AGGREGATE_GRADIENTS: 1, ROW_GRADIENTS: 1}
        columns = {matrix.name: column for matrix, column in ways.items()}
        for span in self.foresee(cut).epoch.spans:
            if span.label in columns:
                sizes[span.layer][columns[span.label]] += span.work.bytes
        rows = [(f"layer {number}", each) for number, each in enumerate(sizes, start=1)]
        rows.append(("epoch", [sum(each) for each in zip(*sizes, strict=True)]))
        return Table(
            name="exchange",
            title="all-to-all between ranges of features and ranges of vertices (Proposition 3.4)",
            columns=("forward", "backward", "both"),
            rows=tuple(
                TableRow(label, (*(Cell(size, "B") for size in each), Cell(sum(each), "B")))
                for label, each in rows
            ),
            notes=("a layer's aggregates, and the rows that it aggregates",),
        )

    # ------------------------------------------------------------------ memory

    def tabulate_memory(self, cut: Cut) -> Table:
        """The fullest device of each group, what it holds all the time and at its fullest."""
        outlook, groups = self.foresee(cut), self.groups
        shards, trainers = self._lowering.shards, self._lowering.trainers
        roles = [("aggregates", shards.aggregators), ("updates", shards.updaters)]
        if groups.shared:
            roles = [("both", shards.updaters)]
        held = []
        for role, slots in roles:
            device = max(
                (trainers[slot] for slot in slots), key=lambda each: outlook.peak_bytes[each.name]
            )
            always = outlook.always_bytes[device.name]
            held.append((role, device, always, outlook.peak_bytes[device.name] - always))
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
        batches = make_batches(graph, ordering.order, count)
        return Cut(schedule, batches, count_rounds(graph, ordering, count), ordering)

    return [
        cut("naive", numbered, 1),
        cut("pipelined", numbered, stages),
        cut("reordered", reordered, stages),
    ]


def spread_stream(stream: RmatStream, prospect: Prospect) -> list[Cut]:
    """The same of a graph that is not stored, in an order that nobody knows."""
    stages = prospect.choose_stages(stream.vertices, None)

    def cut(count: int) -> tuple[Batches, tuple[Piece, ...]]:
        rows = np.diff(cut_batches(stream.vertices, count))
        edges = np.diff(np.arange(count + 1, dtype=np.int64) * (2 * stream.edges) // count)
        reads, sources = tuple(range(count)), np.minimum(rows + edges, stream.vertices)
        sizes = zip(sources.tolist(), rows.tolist(), edges.tolist(), strict=True)
        rounds = tuple(Piece(BlockSize(*size), reads, picks=count > 1) for size in sizes)
        return Batches(rows, edges, np.full(count, count - 1, dtype=np.int64)), rounds

    staged = cut(stages)
    return [Cut("naive", *cut(1)), Cut("pipelined", *staged), Cut("reordered", *staged)]


def count_rounds(graph: Graph, ordering: Ordering, count: int) -> tuple[Piece, ...]:
    """The batches of an order as rounds of a program: what each reads, and of which others."""
    bounds, order = cut_batches(graph.num_vertices, count), ordering.order.astype(np.int64)
    position = np.empty(len(order), dtype=np.int64)
    position[order] = np.arange(len(order))
    rounds = []
    for ids in np.split(order, bounds[1:-1]):
        block = induce_block(graph.indptr, graph.indices, ids)
        reads = np.unique(np.searchsorted(bounds, position[block.src_ids], side="right") - 1)
        size = BlockSize(block.num_src, block.num_dst, block.num_edges)
        rounds.append(Piece(size, tuple(reads.tolist()), picks=count > 1))
    return tuple(rounds)
