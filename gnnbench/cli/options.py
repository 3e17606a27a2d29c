"""Options that commands share, and where their output goes.

Shared are ``--debug``, ``--json``, ``--plugin`` and the options of a comparison.
"""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click

from gnnbench.cli.screen import complain, escape, make_console
from gnnbench.cli.values import Number
from gnnbench.jobs.limits import MODEL_NAMES, MODES, RULES, SCALINGS, Real, Whole

if TYPE_CHECKING:
    from rich.console import Console

    from gnnbench.datasets import ScalingChoice
    from gnnbench.plugins import Registry
    from gnnbench.plugins.listing import Listing

Command = TypeVar("Command", bound=Callable[..., object])

STDOUT = Path("-")
#: Least width of a column that wraps.
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


class FilePath(click.Path):
    """A path of a file or folder, kept as typed.

    It may be one that no file can have: the code that uses the path reports the error.
    """

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Path:
        """Return the value as a path."""
        return Path(value)


def _check_json(ctx: click.Context, _: click.Parameter, value: Path | None) -> Path | None:
    if value == STDOUT and not ctx.resilient_parsing:
        from gnnbench.report.results.output import set_aside_standard_output

        ctx.with_resource(set_aside_standard_output())
    elif value is not None:
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
    type=FilePath(),
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
    """Add ``--json`` and ``--debug`` to a command."""
    return json_option(debug_option(command))


def number_of(name: str) -> Number:
    """Return the type of an option that sets the field ``name`` of a job."""
    rule = RULES[name]
    assert isinstance(rule, (Whole, Real))
    return Number(rule)


Decorator: TypeAlias = "Callable[[Callable[..., int]], Callable[..., int]]"

model_option = click.option(
    "--model",
    metavar="NAME",
    default="gcn",
    show_default=True,
    help=f"The GNN: {', '.join(MODEL_NAMES)}, or one that a plugin offers.",
)
layers_option = click.option(
    "--layers", type=number_of("layers"), default=2, show_default=True, help="Layers of the GNN."
)
hidden_option = click.option(
    "--hidden",
    type=number_of("hidden"),
    default=256,
    show_default=True,
    help="Width of hidden layers.",
)
batch_size_option = click.option(
    "--batch-size",
    type=number_of("batch_size"),
    default=1024,
    show_default=True,
    help="Seeds of one mini-batch iteration, over all trainers together.",
)
seed_option = click.option(
    "--seed", type=number_of("seed"), default=0, show_default=True, help="Random seed."
)


def epochs_option(default: int, meaning: str) -> Decorator:
    """Return ``--epochs``."""
    return click.option(
        "--epochs", type=number_of("epochs"), default=default, show_default=True, help=meaning
    )


def mode_option(meaning: str) -> Decorator:
    """Return ``--mode``, which defaults to None."""
    return click.option("--mode", type=click.Choice(MODES), help=meaning)


def fanouts_option(meaning: str) -> Decorator:
    """Return ``--fanouts``; its value is a text."""
    default = "[default: 25,10, then 10 for each further layer]"
    return click.option("--fanouts", metavar="N,N...", help=f"{meaning}  {default}")


def platform_option(meaning: str) -> Decorator:
    """Return ``--platform``; its value is a text."""
    return click.option("--platform", metavar="NAME, FILE.toml or cores:A,B", help=meaning)


def swap_option(meaning: str) -> Decorator:
    """Return ``--swap``; its values are texts."""
    return click.option(
        "--swap",
        "swaps",
        multiple=True,
        metavar="PART=NAME",
        help=f"{meaning} May be repeated.",
    )


def set_option(meaning: str) -> Decorator:
    """Return ``--set``; its values are texts."""
    return click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="PART.option=value",
        help=f"{meaning} May be repeated.",
    )


def threads_option(meaning: str) -> Decorator:
    """Return ``--threads``, which defaults to None."""
    return click.option(
        "--threads",
        type=number_of("threads"),
        help=f"{meaning}  [default: all cores]",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingOptions:
    """The options, as typed, of a command that trains or predicts training."""

    dataset: str | None
    model: str
    epochs: int
    batch_size: int
    fanouts: str | None
    platform: str | None
    swaps: tuple[str, ...]
    settings: tuple[str, ...]
    seed: int
    threads: int | None
    extra_plugins: tuple[str, ...]
    json_path: Path | None

    def check_files(self, *others: Path | None) -> None:
        """Run :func:`check_files` on the command's inputs and on ``--json`` and ``others``."""
        check_files(
            self.json_path,
            *others,
            dataset=self.dataset,
            platform=self.platform,
            plugins=self.extra_plugins,
            settings=self.settings,
        )


Options = TypeVar("Options", bound=TrainingOptions)


def gather_options(
    kind: type[Options],
    decorators: Sequence[Decorator],
    command: Callable[..., int],
) -> Callable[..., int]:
    """Return ``command`` with options, which it receives as one object, ``options``.

    Values without a field in ``kind`` are passed on unchanged.
    """

    @wraps(command)
    def call(*given: object, **values: object) -> int:
        own: dict[str, Any] = {field.name: values.pop(field.name) for field in fields(kind)}
        return command(*given, options=kind(**own), **values)

    decorated: Callable[..., int] = call
    for decorate in reversed(decorators):
        decorated = decorate(decorated)
    return decorated


_COMPARISON_OPTIONS: tuple[Decorator, ...] = (
    click.option(
        "--dataset",
        metavar="NAME or FILE.npz",
        help="A dataset; see 'gnnbench datasets'.  [default: a labelled block model made in "
        "memory]",
    ),
    model_option,
    layers_option,
    hidden_option,
    epochs_option(10, "Epochs to train each."),
    batch_size_option,
    fanouts_option(
        "Neighbours to sample a vertex, a number for each layer, from the seeds outwards; 0 is "
        "every neighbour."
    ),
    platform_option(
        "The machine to run on or to model; see 'gnnbench platforms'.  [default: this machine "
        "where it has a CUDA device, else that of the first strategy's paper, else "
        "epyc7763x2-4xa5000, or another that has what the strategies train on]"
    ),
    swap_option("Put another part into the strategies."),
    set_option("Set an option of a part; 'gnnbench plugins show' lists them."),
    click.option(
        "--learning-rate",
        type=number_of("learning_rate"),
        help="Adam's learning rate.  [default: the model's, 0.001 for gin and ggcn, else 0.01]",
    ),
    click.option(
        "--scale-features",
        "scaling",
        type=click.Choice(SCALINGS),
        default="auto",
        show_default=True,
        help="Bring features to one scale: rows to length 2, or columns to mean 0 and deviation 1. "
        "auto takes rows for sparse features, and columns for others unless they are so already.",
    ),
    click.option(
        "--repeats",
        type=number_of("repeats"),
        default=1,
        show_default=True,
        help="Times to run each strategy, each with a seed of its own.",
    ),
    click.option("--same-seed", is_flag=True, help="Give all repeats the same seed."),
    seed_option,
    threads_option("Threads to use."),
    click.option(
        "--target-accuracy",
        type=number_of("target_accuracy"),
        metavar="A",
        help="Also time how long it takes to reach this validation accuracy.",
    ),
    click.option(
        "--trace",
        "trace_path",
        type=FilePath(),
        metavar="FILE",
        help="Write the last epoch's timelines as Chrome trace JSON, which Perfetto opens.",
    ),
    click.option(
        "--html",
        "html_path",
        type=FilePath(),
        metavar="FILE",
        help="Write the comparison as one self-contained web page.",
    ),
    click.option(
        "--checked-updates",
        type=number_of("checked_updates"),
        metavar="N",
        help="Updates of each run to compute once more in float64, drawn over all epochs; all "
        "others are looked at.  [default: 3]",
    ),
    click.option("--no-check", is_flag=True, help="Do not hold runs against the plain reference."),
    click.option(
        "--details",
        is_flag=True,
        help="Print every figure: stages, bytes, energy, this machine's own times, and notes.",
    ),
    plugin_option,
    shared_options,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonOptions(TrainingOptions):
    """The options of ``compare`` and ``ablate``, as typed."""

    layers: int
    hidden: int
    learning_rate: float | None
    scaling: ScalingChoice
    repeats: int
    same_seed: bool
    target_accuracy: float | None
    trace_path: Path | None
    html_path: Path | None
    checked_updates: int | None
    no_check: bool
    details: bool


def comparison_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options of a comparison to ``command``, which receives them as ``options``."""
    return gather_options(ComparisonOptions, _COMPARISON_OPTIONS, command)


def has_subcommand(ctx: click.Context, *given: object) -> bool:
    """Return whether a group was called for a subcommand; its own options are for listing only."""
    if ctx.invoked_subcommand is None:
        return False
    if any(given):
        raise click.UsageError(f"options go after {ctx.invoked_subcommand!r}, not before it.", ctx)
    return True


def check_file(path: Path) -> None:
    """Refuse an output file that could not be written, before any work is done."""
    if path != STDOUT:
        from gnnbench.report.results.output import check_output

        check_output(path)


def check_files(
    json_path: Path | None,
    *others: Path | None,
    dataset: str | None = None,
    platform: str | None = None,
    plugins: Sequence[str] = (),
    settings: Sequence[str] = (),
    files: Iterable[Path] = (),
) -> None:
    """Refuse output files that cannot be written, or that would overwrite another file in use.

    Files in use are the other outputs and everything that the command reads: a dataset, a platform
    and plugins by name, the values of ``--set`` that are files, and other ``files``. Every command
    that writes calls this before any work is done.
    """
    if STDOUT in others:
        raise click.UsageError("only --json may go to standard output ('-'); name a file.")
    outputs = [path for path in (json_path, *others) if path is not None and path != STDOUT]
    if not outputs:
        return

    from gnnbench.report.results.output import check_outputs

    inputs = [*files, *(Path(text.partition("=")[2].strip()) for text in settings)]
    if dataset is not None:
        from gnnbench.datasets import find_file as find_dataset
        from gnnbench.datasets import list_files

        inputs += list_files(find_dataset(dataset) or Path(dataset))
    if platform is not None:
        from gnnbench.machines.describe import find_file as find_platform

        inputs.append(find_platform(platform) or Path(platform))
    if plugins:
        from gnnbench.plugins.sources import list_files as list_plugin_files

        inputs += [each for text in plugins for each in list_plugin_files(text)]
    check_outputs(outputs, inputs)


def open_console(json_path: Path | None) -> Console:
    """Return a console for people: standard output, or standard error if that carries JSON."""
    return make_console(sys.stderr if json_path == STDOUT else sys.stdout)


def write_document(content: Mapping[str, Json], path: Path) -> None:
    """Write a small document as strict JSON to a file or standard output."""
    text = json.dumps({"schema": 1, **content}, indent=2, allow_nan=False) + "\n"
    from gnnbench.report.results.output import write_standard_output, write_text

    if path == STDOUT:
        write_standard_output(text)
    else:
        write_text(path, text)


def list_plugins(extra: Sequence[str]) -> Listing:
    """Return what plugins offer; broken ones are reported on standard error and skipped."""
    return _open_listing(extra)[0]


def load_registry(extra: Sequence[str], names: Iterable[tuple[str, str]] = ()) -> Registry:
    """Load all plugins; broken ones are reported on standard error and skipped.

    ``names`` are checked as :meth:`Listing.check` does, before torch is imported if the index of
    plugins is fresh. Raises ``PluginError`` for the first name that is not on offer.
    """
    listing, registry = _open_listing(extra)
    listing.check(names)
    if registry is None:
        from gnnbench.plugins import load

        registry = load(extra)
    return registry


def _open_listing(extra: Sequence[str]) -> tuple[Listing, Registry | None]:
    from gnnbench.plugins.index import open_listing

    listing, registry = open_listing(extra)
    for problem in listing.problems:
        complain(f"warning: {problem}")
    return listing, registry


def print_rows(console: Console, heading: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table without boxes: only the last column wraps, numbers stand to the right.

    On a narrow terminal the last column moves to separate lines.
    """
    from rich.text import Text

    table = [
        [*map(escape, row[:-1]), escape(row[-1], keep="\n")]
        for row in ((heading, *rows) if heading else rows)
    ]
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
