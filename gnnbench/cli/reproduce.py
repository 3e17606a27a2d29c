"""``gnnbench reproduce``: a paper's tables beside what this project has for them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gnnbench.cli.options import (
    Json,
    load_registry,
    open_console,
    plugin_option,
    print_rows,
    shared_options,
    write_document,
)

if TYPE_CHECKING:
    from gnnbench.plugins import Registry


@click.command(short_help="Print tables of the papers beside ours, with the errors.")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@plugin_option
@shared_options
def reproduce(
    names: tuple[str, ...], extra_plugins: tuple[str, ...], json_path: Path | None
) -> int:
    """Print the tables NAME: the paper's numbers, ours, and the error of each cell.

    Without a name, list what can be reproduced.
    """
    registry = load_registry(extra_plugins)
    if not names:
        return print_list(registry, json_path)
    chosen = [registry.reproduction(name) for name in dict.fromkeys(names)]

    from gnnbench.report.tables import print_table
    from gnnbench.results.tables import make_document

    tables = [table for reproduction in chosen for table in reproduction().run()]
    if json_path is not None:
        write_document(make_document(tables), json_path)
    console = open_console(json_path)
    for number, table in enumerate(tables):
        if number:
            console.print()
        print_table(table, console)
    return 0


def print_list(registry: Registry, json_path: Path | None) -> int:
    """The names, what each is and which plugin has it."""
    offered = sorted(registry.reproductions.items())
    origins = registry.reproduction_origins
    if json_path is not None:
        entries: list[Json] = [
            {"name": name, "summary": cls.summary, "plugin": origins[name].plugin}
            for name, cls in offered
        ]
        write_document({"reproductions": entries}, json_path)
    rows = [(name, origins[name].plugin, cls.summary) for name, cls in offered]
    print_rows(open_console(json_path), ("table", "plugin", "what it is"), rows)
    return 0
