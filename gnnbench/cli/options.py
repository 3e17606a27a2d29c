"""What all commands share: ``--debug``, ``--json``, ``--plugin``, and where their output goes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from rich.console import Console

    from gnnbench.plugins import Registry

Command = TypeVar("Command", bound=Callable[..., object])

STDOUT = Path("-")
#: The width of a table that is not shown on a terminal, where COLUMNS says nothing else.
_FILE_WIDTH = 120

#: A JSON value, as commands other than ``compare`` print them.
Json = (
    str | int | float | bool | None | Sequence["Json"] | Mapping[str, "Json"]
    if TYPE_CHECKING
    else object
)


class CommandLine:
    """The command as it was typed, and whether tracebacks are wanted."""

    def __init__(self, words: tuple[str, ...]) -> None:
        self.words = words
        self.debug = False


def _set_debug(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(CommandLine).debug = True  # type: ignore[call-arg]


def _check_json(_: click.Context, __: click.Parameter, value: Path | None) -> Path | None:
    if value is not None:
        check_file(value)
    return value


debug_option = click.option(
    "--debug",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_set_debug,
    help="Show the traceback of an error.",
)
json_option = click.option(
    "--json",
    "json_path",
    type=click.Path(path_type=Path),
    callback=_check_json,
    metavar="FILE",
    help="Write the result as JSON; '-' is standard output, with nothing else on it.",
)
plugin_option = click.option(
    "--plugin",
    "extra_plugins",
    multiple=True,
    metavar="MODULE or FILE.py",
    help="Load a plugin that is not installed. May be repeated.",
)


def shared_options(command: Command) -> Command:
    """``--json`` and ``--debug``."""
    return json_option(debug_option(command))


def check_file(path: Path) -> None:
    """Refuse an output file that could not be written, before any work is done."""
    if path != STDOUT:
        from gnnbench.results.output import check_output

        check_output(path)


def open_console(json_path: Path | None) -> Console:
    """Where people read: standard output, or standard error when that carries JSON."""
    import os

    from rich.console import Console

    stream = sys.stderr if json_path == STDOUT else sys.stdout
    console = Console(file=stream, highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = Console(file=stream, highlight=False, width=_FILE_WIDTH)
    return console


def write_document(content: Mapping[str, Json], path: Path) -> None:
    """Write a small document as strict JSON to a file or standard output."""
    text = json.dumps({"schema": 1, **content}, indent=2, allow_nan=False) + "\n"
    if path == STDOUT:
        click.echo(text, nl=False)
    else:
        from gnnbench.results.output import write_text

        write_text(path, text)


def load_registry(extra: Sequence[str]) -> Registry:
    """All plugins; the broken ones are reported on standard error and skipped."""
    from gnnbench.plugins import load

    registry = load(extra)
    for problem in registry.problems:
        click.echo(f"gnnbench: warning: {problem}", err=True)
    return registry


def print_rows(
    console: Console, heading: Sequence[str], rows: Sequence[Sequence[str]], last_wraps: bool = True
) -> None:
    """A table without boxes; only the last column wraps."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for number, title in enumerate(heading):
        table.add_column(title, no_wrap=not (last_wraps and number == len(heading) - 1))
    for row in rows:
        table.add_row(*row)
    console.print(table)
