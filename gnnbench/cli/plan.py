"""``gnnbench plan``: the cost of training, from counts, for graphs too large to train here."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gnnbench.cli.compare import (
    ProgressBar,
    parse_fanouts,
    parse_settings,
    parse_swaps,
)
from gnnbench.cli.options import (
    CommandLine,
    TrainingOptions,
    batch_size_option,
    epochs_option,
    fanouts_option,
    load_registry,
    mode_option,
    model_option,
    number_of,
    open_console,
    platform_option,
    plugin_option,
    seed_option,
    set_option,
    shared_options,
    swap_option,
    threads_option,
    write_document,
)
from gnnbench.cli.values import read_list
from gnnbench.jobs.limits import LARGEST
from gnnbench.jobs.preparation import PlanJob, list_names

if TYPE_CHECKING:
    from rich.console import Console

    from gnnbench.jobs.planning import PlannedJob
    from gnnbench.records import Mode, RunResult, Table


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions(TrainingOptions):
    """The options of ``plan``, as typed."""

    vertices_text: str | None
    edges_text: str | None
    dims_text: str | None
    layers: int | None
    hidden: int | None
    mode: Mode | None


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
@click.option("--layers", type=number_of("layers"), help="Layers of the GNN.  [default: 2]")
@click.option("--hidden", type=number_of("hidden"), help="Width of hidden layers.  [default: 256]")
@model_option
@mode_option("How to train, of a strategy that can do both.  [default: its usual mode]")
@epochs_option(10, "Epochs to go through.")
@batch_size_option
@fanouts_option("Neighbours to sample a vertex, as in 'gnnbench compare'.")
@platform_option(
    "The machine to plan for; see 'gnnbench platforms'.  [default: as in 'gnnbench compare']"
)
@swap_option("Put another part into the strategy, such as memory=pagraph.")
@set_option("Set an option of a part, such as sampler.chunks_per_partition=32.")
@seed_option
@threads_option("Threads to count with.")
@plugin_option
@shared_options
@click.pass_obj
def plan(line: CommandLine, /, strategy: str, **typed: object) -> int:
    """Predict what training with STRATEGY would take: memory, rows moved, seconds of an epoch.

    Over a dataset the plan walks through every step of training and computes none: the numbers are
    those of 'gnnbench compare' if times are modelled. A graph given by its size is drawn edge by
    edge, in as many passes as needed, and really counted. The rest follows from a model of the
    platform.
    """
    options = PlanOptions(**typed)  # type: ignore[arg-type]
    # Refuse wrong usage before the first slow import.
    job = read_job(strategy, options)
    registry = load_registry(
        options.extra_plugins, list_names([(strategy, ())], job.model, job.swaps)
    )

    from gnnbench.jobs.planning import make_plan, prepare_plan

    found = prepare_plan(job, registry)
    with Stopwatch() as watch:
        runs, tables = make_plan(found, registry, watch)
    workload = found.workload
    drawn = job.sizes is not None
    tables = (*tables, watch.tabulate(drawn=drawn, threads=workload.threads))
    if options.json_path is not None:
        write_plan(line, found, tables, runs, options.json_path)
    heading = (
        f"gnnbench plan {strategy} · {found.graph_name} · {found.model.title} "
        f"{workload.num_layers} layers, {'-'.join(map(str, workload.dims))} · {found.machine.name}"
    )
    print_plan(heading, tables, open_console(options.json_path))
    return 0


def read_job(strategy: str, options: PlanOptions) -> PlanJob:
    """Return the job that the options describe.

    Raises ``UsageError`` if it cannot be planned, or if the output cannot be written.
    """
    sizes = choose_sizes(options.dataset, options.vertices_text, options.edges_text)
    widths = choose_widths(
        options.dims_text, options.layers, options.hidden, drawn=sizes is not None
    )
    job = PlanJob(
        strategy=strategy,
        dataset=options.dataset,
        sizes=sizes,
        widths=widths or None,
        model=options.model,
        layers=options.layers or 2,
        hidden=options.hidden or 256,
        mode=options.mode,
        epochs=options.epochs,
        batch_size=options.batch_size,
        fanouts=parse_fanouts(options.fanouts),
        platform=options.platform,
        swaps=parse_swaps(options.swaps),
        options=parse_settings(options.settings),
        seed=options.seed,
        threads=options.threads,
    )
    options.check_files()
    return job


def write_plan(
    line: CommandLine,
    found: PlannedJob,
    tables: Sequence[Table],
    runs: Sequence[RunResult],
    path: Path,
) -> None:
    """Write the plan as JSON: its tables, and the ``runs`` as ``compare`` writes them."""
    from gnnbench.report.results.plans import make_plan_document

    content = make_plan_document(
        line.words,
        found.row.strategy,
        found.graph_name,
        found.workload,
        found.machine.name,
        runs,
        tables,
    )
    write_document(content, path)


def choose_sizes(
    dataset: str | None, vertices_text: str | None, edges_text: str | None
) -> tuple[str, str] | None:
    """Return the vertices and edges of a graph to draw; None if a dataset is named instead."""
    if dataset is None and vertices_text is not None and edges_text is not None:
        return vertices_text, edges_text
    if dataset is None or vertices_text is not None or edges_text is not None:
        raise click.UsageError("give either --dataset, or both --vertices and --edges.")
    return None


def choose_widths(
    dims_text: str | None, layers: int | None, hidden: int | None, *, drawn: bool
) -> tuple[int, ...]:
    """Return the widths f^0 .. f^L that were asked for; none if the dataset gives them."""
    if dims_text is None:
        if drawn:
            raise click.UsageError("say how wide the layers are, such as --dims 256,128,64.")
        return ()
    if layers is not None or hidden is not None:
        raise click.UsageError("give either --dims, or --layers and --hidden.")
    return parse_dims(dims_text)


def print_plan(heading: str, tables: Sequence[Table], console: Console) -> None:
    """Print the tables one after the other, under a heading."""
    from gnnbench.report.tables import print_table

    console.print(heading, style="bold", markup=False, soft_wrap=True)
    for table in tables:
        console.print()
        print_table(table, console)


def parse_dims(text: str) -> tuple[int, ...]:
    """Parse ``"256,128,64"`` into the widths f^0 .. f^L."""
    return tuple(read_list(text, 1, LARGEST, "'--dims'", "256,128,64", least_count=2))


class Stopwatch:
    """A timer of a planner and its passes over the edges, with progress on a terminal."""

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
        """Start the bar and the clock of a pass."""
        self._label, self._edges = label, edges
        self._bar.begin(label, edges)
        self._pass_began_s = time.perf_counter()

    def advance(self, edges: int) -> None:
        """Move the bar of the pass."""
        self._bar.advance(self._label, edges)

    def end(self) -> None:
        """Keep the seconds of the pass and end its bar."""
        took_s = time.perf_counter() - self._pass_began_s
        self._passes.append((self._label, self._edges, took_s))
        self._bar.end(self._label, "done")

    def tabulate(self, *, drawn: bool, threads: int) -> Table:
        """Return the seconds that counting took on this machine, as a table."""
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
