"""``gnnbench plan``: what training would take, from counts, for graphs too large to train here."""

from __future__ import annotations

import time
from collections.abc import Sequence
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

    from gnnbench.kernels.dispatch import RmatStream
    from gnnbench.parts import Bundle
    from gnnbench.platforms.machine import Platform
    from gnnbench.plugins import Registry
    from gnnbench.records import Dataset, PartKind, Table


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
def plan(
    line: CommandLine,
    strategy: str,
    dataset: str | None,
    vertices_text: str | None,
    edges_text: str | None,
    dims_text: str | None,
    layers: int | None,
    hidden: int | None,
    model: str,
    platform: str | None,
    swaps: tuple[str, ...],
    settings: tuple[str, ...],
    seed: int,
    threads: int | None,
    extra_plugins: tuple[str, ...],
    json_path: Path | None,
) -> int:
    """Predict what training with STRATEGY would take: memory, rows moved, seconds of an epoch.

    The graph is a dataset, or drawn edge by edge as often as it is needed. It is counted for real;
    the rest follows from a model of the platform. Nothing is trained.
    """
    # Everything that can be refused is, before the first slow import.
    sizes = choose_sizes(dataset, vertices_text, edges_text)
    widths = choose_widths(dims_text, layers, hidden, drawn=sizes is not None)
    dense = model in MODEL_NAMES
    if widths:
        check_dims(widths, dense=dense)
    else:  # a feature and a class are the fewest
        check_widths(1, hidden or 256, layers or 2, 1, dense=dense)
    options, swapped = parse_settings(settings), parse_swaps(swaps)
    check_files(
        json_path, dataset=dataset, platform=platform, plugins=extra_plugins, settings=settings
    )

    registry = load_registry(extra_plugins)
    planner = registry.planner(strategy)
    layer_class = registry.model(model)

    from gnnbench.records import Workload
    from gnnbench.results.tables import make_document
    from gnnbench.studies import PlanRequest

    bundle, machine = assemble_for(registry, strategy, swapped, options, platform)
    reason = planner().refuses(bundle)
    if reason is not None:
        raise click.UsageError(reason)
    graph: Dataset | RmatStream
    if sizes is None:
        graph = load_dataset(dataset, seed)
        dims, name = widths or derive_widths(graph, layers, hidden), graph.name
    else:
        graph, dims = make_stream(*sizes, seed), widths
        name = f"R-MAT, {graph.vertices:,} vertices, {graph.edges:,} undirected edges"
    workload = Workload(
        model=model,
        dims=dims,
        epochs=1,
        batch_size=1024,
        fanouts=parse_fanouts(None, len(dims) - 1),
        seed=seed,
        threads=threads or count_cores(),
    )
    with Stopwatch() as watch:
        request = PlanRequest(graph, workload, machine, layer_class, watch)
        tables = planner().plan(bundle, request)
    tables = (*tables, watch.tabulate(drawn=sizes is not None, threads=workload.threads))
    if json_path is not None:
        content: dict[str, Json] = {
            "command": line.words,
            "strategy": strategy,
            "graph": name,
            "workload": {"model": model, "dims": dims, "seed": seed},
            "platform": machine.name,
            **make_document(tables),
        }
        write_document(content, json_path)
    heading = (
        f"gnnbench plan {strategy} · {name} · {layer_class.title} {workload.num_layers} layers, "
        f"{'-'.join(map(str, dims))} · {machine.name}"
    )
    print_plan(heading, tables, open_console(json_path))
    return 0


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
    registry: Registry,
    strategy: str,
    swaps: Sequence[tuple[PartKind, str]],
    options: dict[PartKind, dict[str, str]],
    platform: str | None,
) -> tuple[Bundle, Platform]:
    """The strategy's parts in its usual mode, some of them swapped, and a machine that has the
    devices they count on."""
    from gnnbench.errors import IncompatibleParts
    from gnnbench.plugins import assemble, with_swap

    offered = registry.strategy(strategy)
    parts = with_swap(registry, offered.bundles[offered.default_mode], swaps)
    bundle = assemble(registry, parts, options)
    machine = load_machine(platform, placements=(bundle.placement,), own=offered.platform)
    reason = bundle.placement.refuse_counts(machine)
    if reason is not None:
        raise IncompatibleParts(f"{strategy}: {reason}")
    return bundle, machine


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
