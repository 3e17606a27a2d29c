"""``gnnbench plan``: the cost of training, from counts, for graphs too large to train here."""

from __future__ import annotations

import time
from collections.abc import Sequence
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
from gnnbench.host.progress import doing
from gnnbench.jobs.job import PlanJob

if TYPE_CHECKING:
    from rich.console import Console

    from gnnbench.records import Table
    from gnnbench.reproduce.studies import Pass


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
    passes: list[Pass] = []
    began_s = time.perf_counter()
    with doing("planning"):
        runs, tables = make_plan(found, registry, passes)
    whole_s, workload = time.perf_counter() - began_s, found.workload
    drawn = job.sizes is not None
    counting = tabulate_passes(passes, whole_s, drawn=drawn, threads=workload.threads)
    tables = (*tables, counting)
    from gnnbench.report.results.plans import make_plan_document

    write_document(make_plan_document(line.words, found, runs, tables), written.json_path)
    heading = (
        f"gnnbench plan {job.strategy} · {found.graph_name} · {found.model.title} "
        f"{workload.num_layers} layers, {'-'.join(map(str, workload.dims))} · {found.machine.name}"
    )
    print_plan(heading, tables, open_console(written.json_path))
    return 0


def print_plan(heading: str, tables: Sequence[Table], console: Console) -> None:
    """Print the tables one after the other, under a heading."""
    from gnnbench.report.tables import print_table

    console.print(heading, style="bold", soft_wrap=True)
    for table in tables:
        console.print()
        print_table(table, console)


def tabulate_passes(passes: Sequence[Pass], whole_s: float, *, drawn: bool, threads: int) -> Table:
    """Return the seconds that counting took on this machine, as a table."""
    from gnnbench.records import Cell, Table, TableRow

    rows = [
        TableRow(
            each.label,
            (
                Cell(each.seconds, "s", "measured"),
                Cell(each.edges, "", "measured"),
                Cell(each.edges / max(each.seconds, 1e-9), "edges/s", "measured"),
            ),
        )
        for each in passes
    ]
    rows.append(TableRow("the whole plan", (Cell(whole_s, "s", "measured"), Cell(), Cell())))
    convention = "undirected, drawn anew in each pass" if drawn else "in both directions"
    return Table(
        name="counting",
        title=f"counting on this machine, {threads} thread{'s' * (threads > 1)}",
        columns=("seconds", "edges", "rate"),
        rows=tuple(rows),
        notes=(f"edges: {convention}",),
    )
