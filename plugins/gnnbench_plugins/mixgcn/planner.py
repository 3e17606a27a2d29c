"""Plans of training with MixGCN: ``gnnbench plan mixgcn``.

For a stored graph the harness plans with the program that training executes. This planner adds the
stages that its orders allow. For a stream of edges only the size is known. Its batches are equally
large, and each reads all of the layer before, as for random vertex ids. The program is then planned
for these batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from gnnbench.errors import IncompatiblePartsError
from gnnbench.kernels.dispatch import RmatStream
from gnnbench.lowering.exchanges import AGGREGATE_GRADIENTS, AGGREGATES, ROW_GRADIENTS, ROWS
from gnnbench.lowering.shardings import Piece
from gnnbench.models import build
from gnnbench.parts import Bundle, Setting
from gnnbench.records import BlockSize, Cell, Dataset, PartKind, Table, TableRow, count_moved
from gnnbench.reproduce.studies import Planner, PlanRequest
from gnnbench_plugins.mixgcn.ordering import (
    Ordering,
    count_stages,
    cut_batches,
    keep_order,
    reorder,
)
from gnnbench_plugins.mixgcn.outlook import Outlook, describe_counted, foresee
from gnnbench_plugins.mixgcn.placement import MixGCNPlacement
from gnnbench_plugins.mixgcn.sampler import MixGCNSampler, choose_stages


class MixGCNPlanner(Planner):
    """A planner that orders a stored graph, and predicts a stream of edges from its sizes."""

    name: ClassVar[str] = "mixgcn"
    summary: ClassVar[str] = "bandwidth and stages of a dataset; epoch, all-to-all, memory of sizes"
    # A stream does not tell how few rows a part of the adjacency reads.
    unplanned: ClassVar[Mapping[PartKind, tuple[str, ...]]] = {"placement": ("row_groups",)}

    def plan(self, bundle: Bundle, request: PlanRequest) -> tuple[Table, ...]:
        if isinstance(request.graph, Dataset):
            sampler, _ = take_parts(bundle)
            return (tabulate_orders(request.graph, sampler, request),)
        outlooks, chosen, settled = foresee_stream(request.graph, bundle, request)
        return (
            tabulate_schedules(outlooks, settled, request),
            tabulate_exchange(chosen, request),
            tabulate_memory(chosen, settled, request),
        )


def take_parts(bundle: Bundle) -> tuple[MixGCNSampler, MixGCNPlacement]:
    """Return the parts that the plan is based on."""
    sampler, placement = bundle.sampler, bundle.placement
    if not (isinstance(sampler, MixGCNSampler) and isinstance(placement, MixGCNPlacement)):
        raise IncompatiblePartsError("a plan for mixgcn needs mixgcn's sampler and placement.")
    return sampler, placement


# --------------------------------------------------------------------------- a stored graph


def tabulate_orders(dataset: Dataset, sampler: MixGCNSampler, request: PlanRequest) -> Table:
    """Return bandwidths, and the number of stages for each order."""
    graph = dataset.graph
    with request.counting("reverse Cuthill-McKee", graph.num_edges):
        orders = {"pipelined": keep_order(graph)}
        orders["reordered"] = reorder(graph, threads=request.workload.threads)
    rows = [
        TableRow(schedule, _order_cells(ordering, sampler)) for schedule, ordering in orders.items()
    ]
    return Table(
        name="orders",
        title="orders of the vertices, and stages of the pipeline",
        columns=("b", "(n - b) / 2n", "s by Proposition 3.5", "s"),
        rows=tuple(rows),
        notes=(
            "the proposition assumes that a batch returns while the next one is aggregated; if "
            "another step takes longer than a sparse one, batches queue at any s",
        ),
    )


def _order_cells(ordering: Ordering, sampler: MixGCNSampler) -> tuple[Cell, ...]:
    n, b = len(ordering.order), ordering.bandwidth
    asked = count_stages(n, b)
    return (
        Cell(b),
        Cell(ordering.granularity),
        Cell(asked, text="" if asked else "none"),
        Cell(choose_stages(sampler.stages, n, asked)),
    )


# --------------------------------------------------------------------------- a stream of edges


def foresee_stream(
    stream: RmatStream, bundle: Bundle, request: PlanRequest
) -> tuple[dict[str, Outlook], Outlook, Bundle]:
    """Return predictions of the schedules, the chosen prediction, and the parts.

    The schedules are the requested one, or else one stage and several; the choice is training's.
    The parts have the chosen number of devices set apart. Raises ``IncompatiblePartsError`` if
    training would be refused.
    """
    workload, sampler, placement = request.workload, *take_parts(bundle)
    layers = build(workload, model=request.model).shapes
    counted = describe_counted(workload.dims, stream.vertices)
    setting = Setting(counted, request.platform, workload, layers, request.model)
    reason = bundle.refusal(setting)
    if reason is not None:
        raise IncompatiblePartsError(reason)
    bundle.kernel.begin(setting)
    counts = {"naive": 1, "staged": choose_stages(sampler.stages, stream.vertices, None)}
    if sampler.schedule == "naive":
        del counts["staged"]
    elif sampler.schedule != "auto" or sampler.stages:
        del counts["naive"]
    rounds = {schedule: spread(stream, count) for schedule, count in counts.items()}
    outlooks = {schedule: foresee(bundle, setting, each) for schedule, each in rounds.items()}
    chosen = min(outlooks, key=lambda schedule: outlooks[schedule].epoch_s)
    if placement.leaves_open(request.platform):
        divided, note = placement.divide(bundle, setting, rounds[chosen])
        bundle = replace(bundle, placement=divided, chosen={"placement": (note,)})
        outlooks[chosen] = foresee(bundle, setting, rounds[chosen])
    return outlooks, outlooks[chosen], bundle


def spread(stream: RmatStream, stages: int) -> tuple[Piece, ...]:
    """Return rounds of equal numbers of vertices and edges, for an unknown order."""
    rows = np.diff(cut_batches(stream.vertices, stages))
    edges = np.diff(np.arange(stages + 1, dtype=np.int64) * (2 * stream.edges) // stages)
    sources = np.minimum(rows + edges, stream.vertices)
    sizes = zip(sources.tolist(), rows.tolist(), edges.tolist(), strict=True)
    return tuple(Piece(BlockSize(*size), tuple(range(stages)), picks=stages > 1) for size in sizes)


def tabulate_schedules(
    outlooks: Mapping[str, Outlook], bundle: Bundle, request: PlanRequest
) -> Table:
    """Return stages, epoch and idle time of each schedule."""
    return Table(
        name="schedules",
        title=f"schedules of an epoch on {request.platform.name}",
        columns=("s", "epoch", "idle"),
        rows=tuple(
            TableRow(
                schedule,
                (
                    Cell(outlook.rounds),
                    Cell(outlook.epoch_s, "s"),
                    Cell(100 * outlook.idle_s / outlook.epoch_s, "%"),
                ),
            )
            for schedule, outlook in outlooks.items()
        ),
        notes=(
            "the order of the vertices is unknown, so every batch reads all others; idle is how "
            "long an aggregating device waits between its first and its last batch",
            *bundle.chosen.get("placement", ()),
        ),
    )


def tabulate_exchange(outlook: Outlook, request: PlanRequest) -> Table:
    """Return bytes of the all-to-all: a layer's aggregates and input rows, by direction."""
    sizes = [[0, 0] for _ in range(request.workload.num_layers)]
    ways = {AGGREGATES: 0, ROWS: 0, AGGREGATE_GRADIENTS: 1, ROW_GRADIENTS: 1}
    columns = {matrix.name: column for matrix, column in ways.items()}
    for span in outlook.epoch.spans:
        if span.label in columns:
            sizes[span.layer][columns[span.label]] += count_moved(span.work)
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


def tabulate_memory(outlook: Outlook, bundle: Bundle, request: PlanRequest) -> Table:
    """Return the permanent and peak bytes of the fullest device of each group."""
    _, placement = take_parts(bundle)
    groups = {
        "aggregates": placement.aggregators(request.platform),
        "updates": placement.updaters(request.platform),
    }
    if set(groups["aggregates"]) == set(groups["updates"]):
        groups = {"both": groups["updates"]}
    rows = []
    for role, devices in groups.items():
        device = max(devices, key=lambda each: outlook.peak_bytes[each.name])
        always, needed = outlook.always_bytes[device.name], outlook.peak_bytes[device.name]
        limit = bundle.memory.capacity_bytes(device)
        sizes: Sequence[int] = (always, needed - always, needed, limit)
        fits = "fits" if needed <= limit else "does not fit"
        cells = (*(Cell(size, "B") for size in sizes), Cell(text=fits))
        rows.append(TableRow(f"{device.model}, {role}", cells))
    return Table(
        name="memory",
        title="memory of the fullest device of each group",
        columns=("all the time", "at most besides", "needed", "there is", ""),
        rows=tuple(rows),
        notes=(
            "all the time, to aggregate: adjacency and feature columns; to update: parameters, "
            "gradients, and aggregates and outputs of all layers; besides: the layers at work",
        ),
    )
