"""``gnnbench matrix``: every combination of the five parts, planned or refused in a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gnnbench.cli.options import (
    Asked,
    open_console,
    print_rows,
    takes,
    voice_options,
    write_document,
)
from gnnbench.cli.outputs import Outputs
from gnnbench.cli.questions import make_question, print_title
from gnnbench.jobs.job import AdviceJob

if TYPE_CHECKING:
    from rich.console import Console

    from gnnbench.advice import Matrix
    from gnnbench.advice.matrix import Cell

#: Refusals printed without ``--details``.
_SENTENCES = 6
_HEADING = ("combination", "epoch [modelled]", "peak device", "links", "sampler placement ...")


@click.command(short_help="Plan every combination of the five parts.")
@takes(AdviceJob, "matrix")
@takes(Outputs, "matrix", into="outputs")
@voice_options
def matrix(asked: Asked[AdviceJob], outputs: Asked[Outputs]) -> int:
    """Plan every combination of the five parts of all strategies, or say why it cannot work.

    The output lists the Pareto front: no other combination of the same work is better in time,
    device memory and traffic. Refused combinations are counted by reason; --details prints all.
    """
    written = outputs.make()
    question = make_question(asked.make(), written)

    from gnnbench.advice import make_matrix
    from gnnbench.advice.documents import describe_matrix

    found = make_matrix(question)
    if written.json_path is not None:
        write_document(describe_matrix(found), written.json_path)
    print_matrix(found, open_console(written.json_path), details=written.details)
    return 0 if found.planned else 4


def print_matrix(found: Matrix, console: Console, *, details: bool) -> None:
    """Print the Pareto front of each kind of work, and the refusals."""
    print_title("matrix", found.question, console)
    full = [cell for cell in found.cells if cell.run.status == "out-of-memory"]
    cannot = sum(found.refusals.values())
    console.print(
        f"{found.combinations:,} combinations: {len(found.planned):,} planned, {len(full):,} do "
        f"not fit a memory, {cannot:,} cannot work together.",
    )
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in found.planned if details else found.front:
        sampling = cell.run.work.sampling if cell.run.work is not None else ""
        other = f"; {cell.run.other_maths}: other maths" if cell.run.other_maths else ""
        groups.setdefault((cell.row.mode, f"{sampling}{other}"), []).append(cell)
    for (mode, work), cells in groups.items():
        console.print()
        what = "all that were planned" if details else "the front of time, memory and traffic"
        console.print(f"{mode}, {work}: {what}", style="bold")
        cells.sort(key=lambda cell: cell.run.metrics["epoch_time"].value)
        print_rows(console, _HEADING, [describe_cells(cell) for cell in cells])
    print_refusals(found, console, details=details)


def describe_cells(cell: Cell) -> tuple[str, ...]:
    """Return a combination as a line of a table."""
    from gnnbench.advice.pricing import LINK_METRICS, read_metric
    from gnnbench.records import PART_KINDS
    from gnnbench.units import format_si

    run = cell.run
    return (
        cell.row.label,
        format_si(read_metric(run, "epoch_time"), "s"),
        format_si(read_metric(run, "peak_device_bytes"), "B"),
        format_si(read_metric(run, *LINK_METRICS), "B"),
        " ".join(cell.row.parts.named(kind) for kind in PART_KINDS),
    )


def print_refusals(found: Matrix, console: Console, *, details: bool) -> None:
    """Print how many combinations cannot work, by reason."""
    counted = found.refusals.most_common()
    if not counted:
        return
    shown = counted if details else counted[:_SENTENCES]
    console.print()
    console.print("cannot work together", style="bold")
    print_rows(console, ("count", "why"), [(f"{count:,}", why) for why, count in shown])
    if len(shown) < len(counted):
        console.print(f"{len(counted) - len(shown)} other sentences: --details")
