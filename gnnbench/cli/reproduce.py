"""``gnnbench reproduce``: a paper's tables beside this project's numbers."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gnnbench.cli.options import (
    CommandLine,
    Json,
    check_files,
    load_registry,
    open_console,
    plugin_option,
    print_rows,
    shared_options,
    write_document,
)
from gnnbench.cli.resuming import resumable, resume_option
from gnnbench.cli.values import FilePath
from gnnbench.host.progress import doing
from gnnbench.host.resume import once

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from gnnbench.constants import MarkedNumber
    from gnnbench.plugins import Registry
    from gnnbench.records import LedgerEntry, Table
    from gnnbench.reproduce.studies import LeftOut, Reproduction

#: The table of whole programs, which no plugin offers, its state and its summary.
PROGRAMS, HERE = "programs", "measured here"
SUMMARY = "strategies named after a library beside that library's own program, measured here"


@click.command(short_help="Print tables of the papers beside ours, with the errors.")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--html",
    "html_path",
    type=FilePath(),
    metavar="FILE",
    help="Write the tables, and charts of figures, as one web page.",
)
@click.option(
    "--graph",
    "graphs",
    multiple=True,
    metavar="NAME or FILE",
    help="Graph to train on for the table 'programs'. May be repeated.  [default: the six with the "
    "fewest edges in the data folders]",
)
@click.option(
    "--row",
    "chosen_rows",
    multiple=True,
    metavar="MODEL or MODE",
    help="Model or mode of the rows of the table 'programs'. May be repeated.  [default: all]",
)
@click.option(
    "--details",
    is_flag=True,
    help="For each number that contradicts a paper, print every assumption that would explain it. "
    "For 'validation', print the command of each prediction.",
)
@plugin_option
@resume_option
@shared_options
@click.pass_obj
def reproduce(
    line: CommandLine,
    names: tuple[str, ...],
    html_path: Path | None,
    graphs: tuple[str, ...],
    chosen_rows: tuple[str, ...],
    details: bool,
    extra_plugins: tuple[str, ...],
    resumed: bool,
    json_path: Path | None,
) -> int:
    """Print the tables NAME: the paper's numbers, ours, and the error of each cell.

    Without a name, list the tables. The table 'programs' is not from a paper. It trains
    strategies that use a library's kernels beside the library's own program, which takes long.
    """
    check_files(json_path, html_path, plugins=extra_plugins)
    for flag, given in (("--graph", graphs), ("--row", chosen_rows)):
        if given and PROGRAMS not in names:
            raise click.UsageError(f"{flag} is for the table 'programs'; name it, or leave it out.")
    registry = load_registry(extra_plugins)
    if not names:
        if html_path is not None:
            raise click.UsageError("--html is for tables; name one.")
        return print_list(registry, json_path)
    refuse_left_out(registry, names)
    chosen = [registry.reproduction(name) for name in dict.fromkeys(names) if name != PROGRAMS]

    from gnnbench.report.results.tables import describe_entries, describe_numbers, make_document
    from gnnbench.report.tables import print_table
    from gnnbench.reproduce.studies import Inventory

    prepared = [offered() for offered in chosen]
    beside = (graphs, chosen_rows) if PROGRAMS in names else None
    with resumable(line, resumed=resumed):
        tables, entries = compute(prepared, registry, beside)
    inventories = [each for each in prepared if isinstance(each, Inventory)]
    numbers = [number for inventory in inventories for number in inventory.numbers()]
    if json_path is not None:
        document = make_document(tables)
        if entries:
            document["cells"] = describe_entries(entries)
        if numbers:
            document["constants"] = describe_numbers(numbers)
        write_document(document, json_path)
    if html_path is not None:
        from gnnbench.report.tables_html import write_tables

        write_tables(tables, html_path)
    console = open_console(json_path)
    for number, table in enumerate(tables):
        if number:
            console.print()
        print_table(table, console, details=details)
    if details:
        print_commands(entries, console)
    if numbers:
        print_numbers(numbers, console)
    return 0


def print_commands(entries: Sequence[LedgerEntry], console: Console) -> None:
    """Print the command that has each prediction of a ledger, or why there is none."""
    for entry in entries:
        console.print()
        console.print(f"{entry.id}: {entry.plan.what or entry.plan.reason}")
        if entry.plan.command:
            console.print(entry.plan.command, soft_wrap=True)


def compute(
    prepared: Sequence[Reproduction],
    registry: Registry,
    beside: tuple[Sequence[str], Sequence[str]] | None,
) -> tuple[list[Table], list[LedgerEntry]]:
    """Return all tables, and the entries of ledgers.

    ``beside`` has the graphs and the rows of the table of programs, if it is wanted.
    """
    from gnnbench.reproduce.studies import Ledger

    tables: list[Table] = []
    entries: list[LedgerEntry] = []
    with doing("reproducing", len(prepared) + (beside is not None)) as whole:
        for each in prepared:
            with doing(each.name):
                tables += once(each.run, each.name)
                if isinstance(each, Ledger):
                    entries += once(each.entries, each.name, "entries")
            whole.advance()
        if beside is not None:
            from gnnbench.programs.beside import measure

            tables.append(measure(registry, *beside))
    return tables, entries


def print_numbers(numbers: Sequence[MarkedNumber], console: Console) -> None:
    """Print constants by file or module; a fitted one also names the data it was fitted on."""
    for place, its in itertools.groupby(numbers, lambda number: number.place):
        console.print()
        rows = [
            (each.name, each.value, each.mark, ": ".join([*each.fitted_on, each.source]))
            for each in its
        ]
        print_rows(console, (place, "value", "mark", "source, after what it was fitted on"), rows)


def list_left_out(registry: Registry) -> list[LeftOut]:
    """Return the tables and figures that have no reproduction, by name."""
    return sorted(each for cls in registry.reproductions.values() for each in cls.left_out)


def refuse_left_out(registry: Registry, names: Sequence[str]) -> None:
    """Raise ``UsageError`` for the name of a table or figure that has no reproduction."""
    from gnnbench.errors import UsageError

    for each in list_left_out(registry):
        if each.name in names:
            raise UsageError(
                f"{each.name} has nothing to compare: {each.reason}. `gnnbench reproduce` lists "
                f"the tables that have."
            )


def print_list(registry: Registry, json_path: Path | None) -> int:
    """Print each reproduction with how far it is from its paper, then what has none, and why."""
    from gnnbench.reproduce.agreement import describe_outcome, read_outcomes

    offered = sorted(registry.reproductions.items())
    origins, outcomes = registry.reproduction_origins, read_outcomes()
    states = {name: describe_outcome(found) for name, found in outcomes.items()}
    states[PROGRAMS] = HERE
    left_out = list_left_out(registry)
    entries: list[Json] = [
        {
            "name": name,
            "summary": cls.summary,
            "plugin": origins[name].plugin,
            "state": states.get(name),
        }
        for name, cls in offered
    ]
    entries.append({"name": PROGRAMS, "summary": SUMMARY, "plugin": None, "state": HERE})
    absent: list[Json] = [each._asdict() for each in left_out]
    write_document({"reproductions": entries, "left_out": absent}, json_path)
    summaries = {name: cls.summary for name, cls in offered} | {PROGRAMS: SUMMARY}
    rows = [(name, states.get(name, ""), summaries[name]) for name in sorted(summaries)]
    console = open_console(json_path)
    print_rows(console, ("table", "of the paper's numbers", "what it is"), rows)
    if left_out:
        console.print()
        headings = ("not here", "what it shows", "why there is nothing to compare")
        print_rows(console, headings, left_out)
    return 0
