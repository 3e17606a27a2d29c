"""Plans: the cost of training, by a dry run over a data set or by counts of a drawn graph."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gnnbench.comparison import PlannedRow, Request, Variant, make_setting, plan_row
from gnnbench.comparison.planned import plan_run
from gnnbench.comparison.request import Options
from gnnbench.datasets.synthetic import RMAT_QUADRANTS, parse_count
from gnnbench.errors import UsageError
from gnnbench.jobs.job import PlanJob
from gnnbench.jobs.preparation import (
    load_dataset,
    load_plan_machine,
    make_workload,
    note_unused_weights,
)
from gnnbench.jobs.sized import choose_sized_mode, describe_sizes, goes_by_sizes
from gnnbench.kernels.dispatch import RmatStream
from gnnbench.machines.machine import Platform
from gnnbench.parts import Bundle, LayerClass
from gnnbench.plugins import Registry, assemble
from gnnbench.price.model_error import cite_errors, find_kind, find_path, find_run_path
from gnnbench.records import (
    BYTE_KINDS,
    Cell,
    Dataset,
    Metric,
    PathKind,
    RunResult,
    Sizes,
    Table,
    TableRow,
    Workload,
)
from gnnbench.reproduce.studies import Pass, Planner, PlanRequest


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """A job with its strategy, graph and machine found: everything that a plan needs.

    ``planner`` adds its counts, or counts alone if the graph is drawn; None if there is no planner.
    If there are ``sizes``, the graph has no topology.
    """

    row: PlannedRow
    bundle: Bundle
    machine: Platform
    graph: Dataset | RmatStream
    workload: Workload
    model: LayerClass
    options: Options
    planner: Planner | None
    sizes: Sizes | None = None

    @property
    def graph_name(self) -> str:
        """The name of the graph in the plan."""
        if isinstance(self.graph, Dataset):
            return self.graph.name
        return f"R-MAT, {self.graph.vertices:,} vertices, {self.graph.edges:,} undirected edges"


def prepare_plan(job: PlanJob, registry: Registry) -> PlannedJob:
    """Look up a job's parts, its graph, and a machine that has the devices they need.

    Raises ``UsageError`` for unknown names and unplannable jobs, ``IncompatiblePartsError`` for
    parts or a machine that do not fit.
    """
    offered = registry.strategy(job.name)
    sized = goes_by_sizes(job, registry)
    drawn = job.sizes is not None and not sized
    found = registry.planner(offered.name) if drawn else registry.planners.get(offered.name)
    planner = None if found is None or sized else found()
    model = registry.model(job.model_name)
    if job.mode is not None and job.mode not in offered.bundles:
        raise UsageError(
            f"strategy {offered.name!r} does not train in mode {job.mode}; leave the mode out."
        )
    mode = choose_sized_mode(job, offered) if sized else job.mode or offered.default_mode
    row = plan_row(Variant(job.name, job.swaps), offered, mode, registry)
    bundle = assemble(registry, row.parts, job.settings)
    machine = load_plan_machine(job, offered, bundle)
    reason = planner.refuses(bundle) if planner is not None and drawn else None
    if reason is not None:
        raise UsageError(reason)
    if sized:
        data, workload, sizes = describe_sizes(job, bundle, machine, model)
        return PlannedJob(row, bundle, machine, data, workload, model, job.settings, None, sizes)
    graph = load_dataset(job.dataset, job.seed) if job.sizes is None else _draw(job.sizes, job.seed)
    if isinstance(graph, Dataset):
        graph = note_unused_weights(graph, model)
    workload = make_workload(job, graph if isinstance(graph, Dataset) else None, model)
    return PlannedJob(row, bundle, machine, graph, workload, model, job.settings, planner)


def make_plan(
    job: PlannedJob, registry: Registry, passes: list[Pass]
) -> tuple[tuple[RunResult, ...], tuple[Table, ...]]:
    """Return the plan of a job: the run of a dry run over a data set, and tables.

    A planner adds its passes over the edges to ``passes``.
    """
    runs: tuple[RunResult, ...] = ()
    tables: tuple[Table, ...] = ()
    drawn = not isinstance(job.graph, Dataset)
    if isinstance(job.graph, Dataset):
        runs = (_plan_over(job.graph, job, registry),)
        tables = tabulate_run(runs[0], job.machine)
    if job.planner is not None:
        request = PlanRequest(job.graph, job.workload, job.machine, job.model, passes)
        counted = _count_besides(job.planner, job.bundle, request, over=not drawn)
        if isinstance(job.graph, RmatStream):
            counted = _note_error(counted, job, 2 * job.graph.edges * (len(job.workload.dims) - 1))
        tables += counted
    return runs, tables


def _note_error(tables: tuple[Table, ...], job: PlannedJob, edges: int) -> tuple[Table, ...]:
    """Note on the first table with modelled seconds how far these may be off.

    The tables are of a drawn graph. An epoch aggregates over ``edges``, summed over layers. All
    trainers together decide the kind of machine.
    """
    trainers = [device.name for device in job.bundle.placement.trainers(job.machine)]
    for place, table in enumerate(tables):
        cells = [cell for row in table.rows for cell in row.cells]
        if any(cell.unit == "s" and cell.provenance == "modelled" for cell in cells):
            kind, kernel = find_kind(job.machine, trainers), job.bundle.kernel.name
            own = job.machine.calibrated(kernel, "full-graph").own_error
            path = find_path(kind, kernel, "full-graph", edges, own)
            noted = replace(table, notes=(*_describe_trust(path), *table.notes))
            return (*tables[:place], noted, *tables[place + 1 :])
    return tables


def _describe_trust(path: PathKind | None) -> tuple[str, ...]:
    """Describe how far a modelled time of a kind of path may be off, with the source."""
    return () if path is None else (cite_errors([path]),)


def _draw(sizes: tuple[str | int, str | int], seed: int) -> RmatStream:
    """Return the stream of R-MAT edges that was asked for.

    The dataset ``rmat`` is drawn from the same model with other random numbers. It drops repeated
    edges, so that it has exactly the number of distinct edges asked for.
    """
    vertices = parse_count("gnnbench plan", "--vertices", str(sizes[0]))
    edges = parse_count("gnnbench plan", "--edges", str(sizes[1]))
    try:
        return RmatStream(vertices, edges, RMAT_QUADRANTS, seed)
    except ValueError as error:
        raise UsageError(f"gnnbench plan: --{error}") from error


def _plan_over(dataset: Dataset, job: PlannedJob, registry: Registry) -> RunResult:
    """Return the run that ``compare`` would report of a row over a data set, without training."""
    dims = job.workload.dims
    given = dataset if job.sizes else _with_widths(dataset, dims[0], dims[-1])
    request = Request((job.row.strategy,), given, job.workload, job.machine, options=job.options)
    setting = replace(make_setting(request, job.model), sizes=job.sizes)
    return plan_run(request, job.row, setting, registry)


def _with_widths(dataset: Dataset, features: int, classes: int) -> Dataset:
    """Return a dataset with other widths than its own, and features without meaning."""
    if (features, classes) == (dataset.num_features, dataset.num_classes):
        return dataset
    nothing = np.broadcast_to(np.float32(0), (dataset.graph.num_vertices, features))
    return replace(dataset, features=nothing, num_classes=classes)


def _count_besides(
    planner: Planner, bundle: Bundle, request: PlanRequest, *, over: bool
) -> tuple[Table, ...]:
    """Return the planner's own tables.

    For a plan ``over`` a dataset, a planner that cannot count gives a note instead.
    """
    if not over:
        return planner.plan(bundle, request)
    try:
        return planner.plan(bundle, request)
    except UsageError as error:
        return (Table("counts", "counted besides", (), (), (f"nothing: {error}",)),)


def tabulate_run(run: RunResult, machine: Platform) -> tuple[Table, ...]:
    """Tabulate time, traffic and memory of a dry run, or the reason why it does not fit."""

    def row_of(label: str, metric: Metric) -> TableRow:
        return TableRow(label, (Cell(metric.value, metric.unit, metric.provenance),))

    if run.status != "done":
        row = TableRow("training", (Cell(text="does not fit"),))
        return (Table("run", "every step gone through", ("",), (row,), (run.reason,)),)
    metrics = run.metrics
    times = [row_of("epoch", metrics["epoch_time"])]
    times += [row_of(f"{stage}, busiest", metric) for stage, metric in run.stages.items()]
    moved = {kind: metrics.get(f"{kind}_bytes") for kind in BYTE_KINDS}
    traffic = [
        row_of(kind.replace("_", " "), metric)
        for kind, metric in moved.items()
        if metric is not None and metric.value
    ]
    memory = [
        row_of("fullest device", metrics["peak_device_bytes"]),
        row_of("host", metrics["peak_host_bytes"]),
    ]
    believed = _describe_trust(find_run_path(run))
    title = f"one epoch on {machine.name}"
    tables = [Table("run time", title, ("seconds",), tuple(times), believed)]
    if traffic:
        tables.append(Table("run traffic", "moved in an epoch", ("bytes",), tuple(traffic)))
    tables.append(Table("run memory", "most held", ("bytes",), tuple(memory), run.notes))
    return tuple(tables)
