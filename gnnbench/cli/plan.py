"""``gnnbench plan``: what training would take, from counts, for graphs too large to train here."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gnnbench.cli.compare import (
    ProgressBar,
    count_cores,
    load_dataset,
    load_machine,
    parse_fanouts,
    parse_settings,
    parse_swaps,
)
from gnnbench.cli.options import (
    MODEL_NAMES,
    POSITIVE,
    SEED,
    THREADS,
    CommandLine,
    Json,
    check_files,
    load_registry,
    open_console,
    plugin_option,
    shared_options,
    write_document,
)
from gnnbench.cli.values import LARGEST, check_dims, check_threads, check_widths, read_list

if TYPE_CHECKING:
    from rich.console import Console

    from gnnbench.comparison import PlannedRow
    from gnnbench.comparison.request import Options
    from gnnbench.kernels.dispatch import RmatStream
    from gnnbench.parts import Bundle
    from gnnbench.platforms.machine import Platform
    from gnnbench.plugins import Registry
    from gnnbench.records import (
        Dataset,
        Metric,
        Mode,
        PartKind,
        RunResult,
        Strategy,
        Table,
        Workload,
    )
    from gnnbench.studies import Planner, PlanRequest


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """What ``plan`` was told, as it was typed."""

    dataset: str | None
    vertices_text: str | None
    edges_text: str | None
    dims_text: str | None
    layers: int | None
    hidden: int | None
    model: str
    mode: Mode | None
    epochs: int
    batch_size: int
    fanouts: str | None
    platform: str | None
    swaps: tuple[str, ...]
    settings: tuple[str, ...]
    seed: int
    threads: int | None
    extra_plugins: tuple[str, ...]
    json_path: Path | None


@dataclass(frozen=True, slots=True)
class Asked:
    """What the texts among the options say.

    ``sizes`` are the vertices and edges of a graph to draw, None where a dataset is named;
    ``widths`` are f^0 .. f^L, none where those of the dataset will do.
    """

    sizes: tuple[str, str] | None
    widths: tuple[int, ...]
    fanouts: tuple[int, ...]
    settings: dict[PartKind, dict[str, str]]
    swaps: tuple[tuple[PartKind, str], ...]


@click.command(short_help="Predict memory, traffic and time without training.")
@click.argument("strategy")
@click.option(
    "--dataset", metavar="NAME or FILE.npz", help="A graph to plan for; see 'gnnbench datasets'."
)
@click.option(
    "--vertices",
    "vertices_text",
    metavar="N",
    help="Plan for an R-MAT graph of so many vertices that is drawn, never stored; 64M is 64 "
    "million.",
)
@click.option(
    "--edges",
    "edges_text",
    metavar="M",
    help="Its undirected edges, each of which counts in both directions; 1G is a billion.",
)
@click.option(
    "--dims",
    "dims_text",
    metavar="F,F[,F...]",
    help="Widths of the features, of each hidden layer, and of the output.  [default: the "
    "dataset's features, --hidden, its classes]",
)
@click.option("--layers", type=POSITIVE, help="Layers of the GNN.  [default: 2]")
@click.option("--hidden", type=POSITIVE, help="Width of hidden layers.  [default: 256]")
@click.option(
    "--model",
    metavar="NAME",
    default="gcn",
    show_default=True,
    help=f"The GNN: {', '.join(MODEL_NAMES)}, or one that a plugin offers.",
)
@click.option(
    "--mode",
    type=click.Choice(("full-graph", "mini-batch")),
    help="How to train, of a strategy that can do both.  [default: its usual mode]",
)
@click.option(
    "--epochs", type=POSITIVE, default=10, show_default=True, help="Epochs to go through."
)
@click.option(
    "--batch-size",
    type=POSITIVE,
    default=1024,
    show_default=True,
    help="Seeds of one mini-batch iteration, over all trainers together.",
)
@click.option(
    "--fanouts",
    metavar="N,N...",
    help="Neighbours to sample a vertex, as in 'gnnbench compare'.  [default: 25,10, then 10 for "
    "each further layer]",
)
@click.option(
    "--platform",
    metavar="NAME or FILE.toml",
    help="The machine to plan for; see 'gnnbench platforms'.  [default: as in 'gnnbench compare']",
)
@click.option(
    "--swap",
    "swaps",
    multiple=True,
    metavar="PART=NAME",
    help="Put another part into the strategy, such as memory=pagraph. May be repeated.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="PART.option=value",
    help="Set an option of a part, such as sampler.chunks_per_partition=32. May be repeated.",
)
@click.option("--seed", type=SEED, default=0, show_default=True, help="Random seed.")
@click.option(
    "--threads",
    type=THREADS,
    callback=check_threads,
    help="Threads to count with.  [default: all cores]",
)
@plugin_option
@shared_options
@click.pass_obj
def plan(line: CommandLine, /, strategy: str, **typed: object) -> int:
    """Predict what training with STRATEGY would take: memory, rows moved, seconds of an epoch.

    Over a dataset every step of training is gone through, and none computed: the numbers are those
    of 'gnnbench compare' where times are modelled. A graph that is drawn edge by edge, as often as
    it is needed, is counted for real, and the rest follows from a model of the platform.
    """
    options = PlanOptions(**typed)  # type: ignore[arg-type]
    # Everything that can be refused is, before the first slow import.
    asked = read_texts(options)
    drawn = asked.sizes is not None

    registry = load_registry(options.extra_plugins)
    offered = registry.strategy(strategy)
    planner = registry.planner(strategy) if drawn else registry.planners.get(strategy)
    layer_class = registry.model(options.model)

    from gnnbench.records import Dataset
    from gnnbench.studies import PlanRequest

    row, bundle, machine = assemble_for(registry, offered, options, asked)
    if planner is not None and drawn:
        reason = planner().refuses(bundle)
        if reason is not None:
            raise click.UsageError(reason)
    graph = find_graph(options, asked)
    workload = make_workload(options, asked, graph)
    runs: list[RunResult] = []
    tables: tuple[Table, ...] = ()
    with Stopwatch() as watch:
        if isinstance(graph, Dataset):
            runs.append(plan_over(graph, workload, machine, row, asked.settings, registry))
            tables = tabulate_run(runs[0], machine)
        if planner is not None:
            request = PlanRequest(graph, workload, machine, layer_class, watch)
            tables += count_besides(planner(), bundle, request, over=not drawn)
    tables = (*tables, watch.tabulate(drawn=drawn, threads=workload.threads))
    name = name_graph(graph)
    if options.json_path is not None:
        write_plan(line, strategy, name, workload, machine, tables, runs, options.json_path)
    heading = (
        f"gnnbench plan {strategy} · {name} · {layer_class.title} {workload.num_layers} layers, "
        f"{'-'.join(map(str, workload.dims))} · {machine.name}"
    )
    print_plan(heading, tables, open_console(options.json_path))
    return 0


def read_texts(options: PlanOptions) -> Asked:
    """What was asked for, or a refusal of what cannot be; without a slow import."""
    sizes = choose_sizes(options.dataset, options.vertices_text, options.edges_text)
    widths = choose_widths(
        options.dims_text, options.layers, options.hidden, drawn=sizes is not None
    )
    dense = options.model in MODEL_NAMES
    layers = options.layers or 2
    if widths:
        check_dims(widths, dense=dense)
    else:  # a feature and a class are the fewest
        check_widths(1, options.hidden or 256, layers, 1, dense=dense)
    asked = Asked(
        sizes,
        widths,
        parse_fanouts(options.fanouts, len(widths) - 1 if widths else layers),
        parse_settings(options.settings),
        parse_swaps(options.swaps),
    )
    check_files(
        options.json_path,
        dataset=options.dataset,
        platform=options.platform,
        plugins=options.extra_plugins,
        settings=options.settings,
    )
    return asked


def find_graph(options: PlanOptions, asked: Asked) -> Dataset | RmatStream:
    """The dataset that was named, or the stream of edges that was asked for."""
    if asked.sizes is None:
        return load_dataset(options.dataset, options.seed)
    return make_stream(*asked.sizes, options.seed)


def name_graph(graph: Dataset | RmatStream) -> str:
    """What the plan calls a graph."""
    from gnnbench.records import Dataset

    if isinstance(graph, Dataset):
        return graph.name
    return f"R-MAT, {graph.vertices:,} vertices, {graph.edges:,} undirected edges"


def make_workload(options: PlanOptions, asked: Asked, graph: Dataset | RmatStream) -> Workload:
    """What would be trained."""
    from gnnbench.records import Dataset, Workload

    dims = asked.widths
    if not dims and isinstance(graph, Dataset):
        dims = derive_widths(graph, options.layers, options.hidden)
    return Workload(
        model=options.model,
        dims=dims,
        epochs=options.epochs,
        batch_size=options.batch_size,
        fanouts=asked.fanouts,
        seed=options.seed,
        threads=options.threads or count_cores(),
    )


def count_besides(
    planner: Planner, bundle: Bundle, request: PlanRequest, *, over: bool
) -> tuple[Table, ...]:
    """The planner's own tables; ``over`` a dataset none but a note where it cannot count what was
    asked for."""
    from gnnbench.errors import UsageError
    from gnnbench.records import Table

    if not over:
        return planner.plan(bundle, request)
    try:
        return planner.plan(bundle, request)
    except UsageError as error:
        return (Table("counts", "counted besides", (), (), (f"nothing: {error}",)),)


def plan_over(
    dataset: Dataset,
    workload: Workload,
    machine: Platform,
    row: PlannedRow,
    options: Options,
    registry: Registry,
) -> RunResult:
    """What ``compare`` would report of a row over a dataset, without training."""
    from gnnbench.comparison import Request, make_setting
    from gnnbench.comparison.planned import plan_run

    given = with_widths(dataset, workload.dims[0], workload.dims[-1])
    request = Request((row.strategy,), given, workload, machine, options=options)
    return plan_run(request, row, make_setting(request, registry.model(workload.model)), registry)


def with_widths(dataset: Dataset, features: int, classes: int) -> Dataset:
    """A dataset as if it had other widths than its own; its features are then of no value."""
    if (features, classes) == (dataset.num_features, dataset.num_classes):
        return dataset

    import numpy as np

    nothing = np.broadcast_to(np.float32(0), (dataset.graph.num_vertices, features))
    return replace(dataset, features=nothing, num_classes=classes)


def tabulate_run(run: RunResult, machine: Platform) -> tuple[Table, ...]:
    """Time, traffic and memory of a run that was gone through; what is full, where it does not
    fit."""
    from gnnbench.records import BYTE_KINDS, Cell, Table, TableRow

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
    tables = [Table("run time", f"one epoch on {machine.name}", ("seconds",), tuple(times))]
    if traffic:
        tables.append(Table("run traffic", "moved in an epoch", ("bytes",), tuple(traffic)))
    tables.append(Table("run memory", "most held", ("bytes",), tuple(memory), run.notes))
    return tuple(tables)


def write_plan(
    line: CommandLine,
    strategy: str,
    name: str,
    workload: Workload,
    machine: Platform,
    tables: Sequence[Table],
    runs: Sequence[RunResult],
    path: Path,
) -> None:
    """The plan as JSON: its tables, and the ``runs`` as ``compare`` writes them."""
    from gnnbench.results.schema import describe_runs
    from gnnbench.results.tables import make_document

    content: dict[str, Json] = {
        "command": line.words,
        "strategy": strategy,
        "graph": name,
        "workload": {"model": workload.model, "dims": workload.dims, "seed": workload.seed},
        "platform": machine.name,
        "runs": describe_runs(runs),
        **make_document(tables),
    }
    write_document(content, path)


def choose_sizes(
    dataset: str | None, vertices_text: str | None, edges_text: str | None
) -> tuple[str, str] | None:
    """The vertices and edges of a graph to draw; None where a dataset is named instead."""
    if dataset is None and vertices_text is not None and edges_text is not None:
        return vertices_text, edges_text
    if dataset is None or vertices_text is not None or edges_text is not None:
        raise click.UsageError("give either --dataset, or both --vertices and --edges.")
    return None


def choose_widths(
    dims_text: str | None, layers: int | None, hidden: int | None, *, drawn: bool
) -> tuple[int, ...]:
    """The widths f^0 .. f^L that were asked for; none where those of a dataset will do."""
    if dims_text is None:
        if drawn:
            raise click.UsageError("say how wide the layers are, such as --dims 256,128,64.")
        return ()
    if layers is not None or hidden is not None:
        raise click.UsageError("give either --dims, or --layers and --hidden.")
    return parse_dims(dims_text)


def derive_widths(dataset: Dataset, layers: int | None, hidden: int | None) -> tuple[int, ...]:
    """The widths f^0 .. f^L from a dataset's features to its classes."""
    between = [hidden or 256] * ((layers or 2) - 1)
    return (dataset.num_features, *between, dataset.num_classes)


def assemble_for(
    registry: Registry, offered: Strategy, options: PlanOptions, asked: Asked
) -> tuple[PlannedRow, Bundle, Platform]:
    """A strategy in a mode, some of its parts swapped; the parts; and a machine that has the
    devices they count on."""
    from gnnbench.comparison import Variant, plan_row
    from gnnbench.errors import IncompatibleParts
    from gnnbench.plugins import assemble

    mode = options.mode
    if mode is not None and mode not in offered.bundles:
        raise click.UsageError(
            f"strategy {offered.name!r} does not train in mode {mode}; leave out --mode."
        )
    variant = Variant(offered.name, asked.swaps)
    row = plan_row(variant, offered, mode or offered.default_mode, registry)
    bundle = assemble(registry, row.parts, asked.settings)
    machine = load_machine(options.platform, placements=(bundle.placement,), own=offered.platform)
    reason = bundle.placement.refuse_counts(machine)
    if reason is not None:
        raise IncompatibleParts(f"{offered.name}: {reason}")
    return row, bundle, machine


def print_plan(heading: str, tables: Sequence[Table], console: Console) -> None:
    """The tables one after the other, under a heading."""
    from gnnbench.report.tables import print_table

    console.print(heading, style="bold", markup=False, soft_wrap=True)
    for table in tables:
        console.print()
        print_table(table, console)


def parse_dims(text: str) -> tuple[int, ...]:
    """``"256,128,64"`` as the widths f^0 .. f^L."""
    return tuple(read_list(text, 1, LARGEST, "'--dims'", "256,128,64", least_count=2))


def make_stream(vertices_text: str, edges_text: str, seed: int) -> RmatStream:
    """The stream of R-MAT edges that was asked for.

    The dataset ``rmat`` is the same model with other random numbers: it has every edge once, since
    it can look for those that come twice, and so as many distinct ones as asked for.
    """
    from gnnbench.datasets.synthetic import RMAT_QUADRANTS, parse_count
    from gnnbench.errors import UsageError
    from gnnbench.kernels.dispatch import RmatStream

    vertices = parse_count("gnnbench plan", "--vertices", vertices_text)
    edges = parse_count("gnnbench plan", "--edges", edges_text)
    try:
        return RmatStream(vertices, edges, RMAT_QUADRANTS, seed)
    except ValueError as error:
        raise UsageError(f"gnnbench plan: --{error}") from error


class Stopwatch:
    """Times a planner and its passes over the edges, and shows how far they are on a terminal."""

    def __init__(self) -> None:
        self._bar = ProgressBar("edges")
        self._passes: list[tuple[str, int, float]] = []
        self._began_s = self._pass_began_s = self._took_s = 0.0
        self._label, self._edges = "", 0

    def __enter__(self) -> Stopwatch:
        self._bar.__enter__()
        self._began_s = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self._took_s = time.perf_counter() - self._began_s
        self._bar.__exit__(None, None, None)

    def begin(self, label: str, edges: int) -> None:
        self._label, self._edges = label, edges
        self._bar.begin(label, edges)
        self._pass_began_s = time.perf_counter()

    def advance(self, edges: int) -> None:
        self._bar.advance(self._label, edges)

    def end(self) -> None:
        took_s = time.perf_counter() - self._pass_began_s
        self._passes.append((self._label, self._edges, took_s))
        self._bar.end(self._label, "done")

    def tabulate(self, *, drawn: bool, threads: int) -> Table:
        """What counting took on this machine."""
        from gnnbench.records import Cell, Table, TableRow

        rows = [
            TableRow(
                label,
                (
                    Cell(took_s, "s", "measured"),
                    Cell(edges, "", "measured"),
                    Cell(edges / max(took_s, 1e-9), "edges/s", "measured"),
                ),
            )
            for label, edges, took_s in self._passes
        ]
        rows.append(
            TableRow("the whole plan", (Cell(self._took_s, "s", "measured"), *[Cell()] * 2))
        )
        convention = "undirected, drawn anew in each pass" if drawn else "in both directions"
        return Table(
            name="counting",
            title=f"counting on this machine, {threads} thread{'s' * (threads > 1)}",
            columns=("seconds", "edges", "rate"),
            rows=tuple(rows),
            notes=(f"edges: {convention}",),
        )
