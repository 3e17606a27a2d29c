"""What all commands share: ``--debug``, ``--json``, ``--plugin``, and where their output goes."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import click

if TYPE_CHECKING:
    from rich.console import Console

    from gnnbench.plugins import Registry

Command = TypeVar("Command", bound=Callable[..., object])

STDOUT = Path("-")
#: The width of a table that is not shown on a terminal, where COLUMNS says nothing else.
_FILE_WIDTH = 120
#: Least room for a column that wraps.
_NARROWEST = 30

#: A JSON value, as commands other than ``compare`` print them.
Json: TypeAlias = "str | int | float | bool | Sequence[Json] | Mapping[str, Json] | None"


class CommandLine:
    """The command as it was typed, and whether tracebacks are wanted."""

    def __init__(self, words: tuple[str, ...]) -> None:
        self.words = words
        self.debug = False


def _set_debug(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        line: CommandLine = ctx.obj
        line.debug = True


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


def has_subcommand(ctx: click.Context, *given: object) -> bool:
    """Whether a group was called for a subcommand; its own options are for listing only."""
    if ctx.invoked_subcommand is None:
        return False
    if any(given):
        raise click.UsageError(f"options go after {ctx.invoked_subcommand!r}, not before it.", ctx)
    return True


def check_file(path: Path) -> None:
    """Refuse an output file that could not be written, before any work is done."""
    if path != STDOUT:
        from gnnbench.results.output import check_output

        check_output(path)


def open_console(json_path: Path | None) -> Console:
    """Where people read: standard output, or standard error when that carries JSON."""
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


def print_rows(console: Console, heading: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table without boxes: only the last column wraps, numbers stand to the right.

    On a narrow terminal the last column moves to lines of its own.
    """
    from rich.text import Text

    table = [list(heading), *map(list, rows)] if heading else list(map(list, rows))
    leading = list(zip(*(line[:-1] for line in table), strict=True))
    widths = [max(map(len, column)) for column in leading]
    numeric = [all(map(_is_number, column[bool(heading) :])) for column in leading]
    indent = sum(widths) + 2 * len(widths)
    room = console.width - indent
    below = room < _NARROWEST
    if below:
        indent, room = 4, max(_NARROWEST, console.width - 4)
    for number, line in enumerate(table):
        style = "bold" if heading and number == 0 else ""
        cells = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line[:-1], widths, numeric, strict=True)
        )
        lead = "  ".join(cells) + "  "
        texts = textwrap.wrap(line[-1], room, break_long_words=False, break_on_hyphens=False)
        if below or not texts:
            texts = ["", *texts]
        for place, text in enumerate(texts):
            shown = (lead if place == 0 else " " * indent) + text
            console.print(Text(shown.rstrip(), style), soft_wrap=True)


def _is_number(text: str) -> bool:
    return text == "-" or text.replace(",", "").replace(".", "", 1).isdigit()
