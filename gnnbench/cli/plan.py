"""``gnnbench plan``: the cost of training, from counts, for graphs too large to train here."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gnnbench.cli.options import (
    Asked,
    CommandLine,
    check_job_files,
    load_registry,
    open_console,
    takes,
    voice_options,
    write_document,
)
from gnnbench.cli.outputs import Outputs
from gnnbench.host.progress import Task, begin, doing
from gnnbench.jobs.job import PlanJob

if TYPE_CHECKING:
    from rich.console import Console

    from gnnbench.comparison.planning import PlannedJob
    from gnnbench.records import RunResult, Table


@click.command(short_help="Predict memory, traffic and time without training.")
@takes(PlanJob, "plan")
@takes(Outputs, "plan", into="outputs")
@voice_options
@click.pass_obj
def plan(line: CommandLine, asked: Asked[PlanJob], outputs: Asked[Outputs]) -> int:
    """Predict memory, traffic and epoch time of training with STRATEGY.

    Over a dataset, the plan goes through every step of training without computing it. The numbers
    equal the modelled ones of 'gnnbench compare'. A graph given by its size is drawn edge by edge,
    in several passes, and counted. Times come from a model of the platform.
    """
    # Refuse wrong usage before the first slow import.
    job, written = asked.make(), outputs.make()
    check_job_files(job, written)
    registry = load_registry(job.plugins, job.list_names())

    from gnnbench.comparison.planning import make_plan, prepare_plan

    found = prepare_plan(job, registry)
    with Stopwatch() as watch, doing("planning"):
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
    """A timer of a planner and its passes over the edges, each of which is a task."""

    def __init__(self) -> None:
        self._passes: list[tuple[str, int, float]] = []
        self._began_s = self._pass_began_s = self._took_s = 0.0
        self._pass: Task | None = None

    def __enter__(self) -> Stopwatch:
        self._began_s = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self._took_s = time.perf_counter() - self._began_s

    def begin(self, label: str, edges: int) -> None:
        """Start the task and the clock of a pass."""
        self._pass = begin(label, edges)
        self._pass_began_s = time.perf_counter()

    def advance(self, edges: int) -> None:
        """Count the edges of the pass."""
        if self._pass is not None:
            self._pass.advance(edges)

    def end(self) -> None:
        """Keep the seconds of the pass and end its task."""
        took_s = time.perf_counter() - self._pass_began_s
        if self._pass is not None:
            self._passes.append((self._pass.label, int(self._pass.total), took_s))
            self._pass.end()

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
