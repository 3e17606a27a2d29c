"""What commands share: ``--debug``, ``--json``, ``--plugin``, the options of a comparison, and
where their output goes."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import wraps
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


# Spelt out, not imported: `gnnbench --help` does without NumPy and torch. A test holds them equal.
MODEL_NAMES = ("gcn", "sage", "gin", "gat", "commnet", "ggcn")
PART_NAMES = ("sampler", "placement", "communication", "memory", "kernel")

POSITIVE = click.IntRange(min=1)

_COMPARISON_OPTIONS: tuple[Callable[[Callable[..., int]], Callable[..., int]], ...] = (
    click.option(
        "--dataset",
        metavar="NAME or FILE.npz",
        help="A dataset; see 'gnnbench datasets'.  [default: a labelled block model made in "
        "memory]",
    ),
    click.option(
        "--model",
        metavar="NAME",
        default="gcn",
        show_default=True,
        help=f"The GNN: {', '.join(MODEL_NAMES)}, or one that a plugin offers.",
    ),
    click.option(
        "--layers", type=POSITIVE, default=2, show_default=True, help="Layers of the GNN."
    ),
    click.option(
        "--hidden", type=POSITIVE, default=256, show_default=True, help="Width of hidden layers."
    ),
    click.option(
        "--epochs", type=POSITIVE, default=3, show_default=True, help="Epochs to train each."
    ),
    click.option(
        "--batch-size",
        type=POSITIVE,
        default=1024,
        show_default=True,
        help="Seeds of one mini-batch iteration, over all trainers together.",
    ),
    click.option(
        "--fanouts",
        metavar="N,N...",
        help="Neighbours to sample a vertex, a number for each layer, from the seeds outwards; 0 "
        "is every neighbour.  [default: 25,10, then 10 for each further layer]",
    ),
    click.option(
        "--platform",
        metavar="NAME or FILE.toml",
        help="The machine to run on or to model; see 'gnnbench platforms'.  [default: this machine "
        "where it has a CUDA device, else epyc7763x2-4xa5000, or another that has what the "
        "strategies train on]",
    ),
    click.option(
        "--swap",
        "swaps",
        multiple=True,
        metavar="PART=NAME",
        help="Put another part into the strategies. May be repeated.",
    ),
    click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="PART.option=value",
        help="Set an option of a part; 'gnnbench plugins show' lists them. May be repeated.",
    ),
    click.option(
        "--learning-rate",
        type=click.FloatRange(min=0.0, min_open=True),
        default=0.01,
        show_default=True,
        help="Adam's learning rate.",
    ),
    click.option(
        "--repeats", type=POSITIVE, default=1, show_default=True, help="Times to run each strategy."
    ),
    click.option(
        "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Random seed."
    ),
    click.option("--threads", type=POSITIVE, help="Threads to use.  [default: all cores]"),
    click.option(
        "--target-accuracy",
        type=click.FloatRange(0.0, 1.0, min_open=True),
        metavar="A",
        help="Also time how long it takes to reach this validation accuracy.",
    ),
    click.option(
        "--trace",
        "trace_path",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Write the last epoch's timelines as Chrome trace JSON, which Perfetto opens.",
    ),
    click.option(
        "--html",
        "html_path",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Write the comparison as one self-contained web page.",
    ),
    click.option(
        "--no-check", is_flag=True, help="Do not hold losses against the plain reference."
    ),
    plugin_option,
    shared_options,
)


@dataclass(frozen=True, slots=True)
class ComparisonOptions:
    """What ``compare`` and ``ablate`` were told, as it was typed."""

    dataset: str | None
    model: str
    layers: int
    hidden: int
    epochs: int
    batch_size: int
    fanouts: str | None
    platform: str | None
    swaps: tuple[str, ...]
    settings: tuple[str, ...]
    learning_rate: float
    repeats: int
    seed: int
    threads: int | None
    target_accuracy: float | None
    trace_path: Path | None
    html_path: Path | None
    no_check: bool
    extra_plugins: tuple[str, ...]
    json_path: Path | None


def comparison_options(command: Callable[..., int]) -> Callable[..., int]:
    """The options of a comparison; ``command`` is handed them together, as ``options``."""

    @wraps(command)
    def call(*given: object, **values: object) -> int:
        own = {field.name: values.pop(field.name) for field in fields(ComparisonOptions)}
        return command(*given, options=ComparisonOptions(**own), **values)  # type: ignore[arg-type]

    for option in reversed(_COMPARISON_OPTIONS):
        call = option(call)
    return call


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
