"""``gnnbench plan``: the cost of training, from counts, for graphs too large to train here."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gnnbench.cli.compare import ProgressBar
from gnnbench.cli.options import (
    Asked,
    CommandLine,
    check_job_files,
    debug_option,
    load_registry,
    open_console,
    takes,
    write_document,
)
from gnnbench.cli.outputs import Outputs
from gnnbench.jobs.job import PlanJob

if TYPE_CHECKING:
    from rich.console import Console

    from gnnbench.comparison.planning import PlannedJob
    from gnnbench.records import RunResult, Table


@click.command(short_help="Predict memory, traffic and time without training.")
@takes(PlanJob, "plan")
@takes(Outputs, "plan", into="outputs")
@debug_option
@click.pass_obj
def plan(line: CommandLine, asked: Asked[PlanJob], outputs: Asked[Outputs]) -> int:
    """Predict what training with STRATEGY would take: memory, rows moved, seconds of an epoch.

    Over a dataset the plan walks through every step of training and computes none: the numbers are
    those of 'gnnbench compare' if times are modelled. A graph given by its size is drawn edge by
    edge, in as many passes as needed, and really counted. The rest follows from a model of the
    platform.
    """
    # Refuse wrong usage before the first slow import.
    job, written = asked.make(), outputs.make()
    check_job_files(job, written)
    registry = load_registry(job.plugins, job.list_names())

    from gnnbench.comparison.planning import make_plan, prepare_plan

    found = prepare_plan(job, registry)
    with Stopwatch() as watch:
        runs, tables = make_plan(found, registry, watch)
    workload = found.workload
    drawn = job.sizes is not None
    tables = (*tables, watch.tabulate(drawn=drawn, threads=workload.threads))
    if written.json_path is not None:
        write_plan(line, found, tables, runs, written.json_path)
    heading = (
        f"gnnbench plan {job.strategy} · {found.graph_name} · {found.model.title} "
        f"{workload.num_layers} layers, {'-'.join(map(str, workload.dims))} · {found.machine.name}"
    )
    print_plan(heading, tables, open_console(written.json_path))
    return 0


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


def print_plan(heading: str, tables: Sequence[Table], console: Console) -> None:
    """Print the tables one after the other, under a heading."""
    from gnnbench.report.tables import print_table

    console.print(heading, style="bold", markup=False, soft_wrap=True)
    for table in tables:
        console.print()
        print_table(table, console)


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
