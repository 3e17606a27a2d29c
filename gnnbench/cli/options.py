"""Options that commands share, and where their output goes.

The options of a job are made of its record (``jobs/job.py``), here as options of click.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, wraps
from itertools import takewhile
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import click
from click.core import ParameterSource

from gnnbench.cli.outputs import File, Outputs
from gnnbench.cli.progress import QUIET, silence
from gnnbench.cli.screen import complain, escape, make_console
from gnnbench.cli.values import FilePath, Number, Numbers
from gnnbench.errors import UsageError
from gnnbench.host.progress import doing
from gnnbench.host.rank import PATIENCE_S
from gnnbench.jobs.groups import Training
from gnnbench.jobs.limits import FLAG, OneOf, Real, Rule, Whole, Wholes
from gnnbench.jobs.options import Declared, OptionConflictError, list_options

if TYPE_CHECKING:
    from rich.console import Console

    from gnnbench.plugins import Registry
    from gnnbench.plugins.listing import Listing
    from gnnbench.records import PartKind

Command: TypeAlias = "Callable[..., object]"
Decorator: TypeAlias = "Callable[[Command], Command]"
T = TypeVar("T")

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

    @property
    def name(self) -> str:
        """The program with its command and subcommand, such as ``"gnnbench plugins check"``."""
        groups = ("plugins", "programs", "datasets", "platforms")
        most = 3 if self.words[1:2] and self.words[1] in groups else 2
        return " ".join(takewhile(lambda word: not word.startswith("-"), self.words[:most]))


def _set_debug(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        line: CommandLine = ctx.obj
        line.debug = True


def _check_json(ctx: click.Context, _: click.Parameter, value: Path | None) -> Path | None:
    if value == STDOUT and not ctx.resilient_parsing:
        from gnnbench.report.results.output import set_aside_standard_output

        ctx.with_resource(set_aside_standard_output())
    elif value is not None:
        check_file(value)
    return value


def _set_quiet(_: click.Context, __: click.Parameter, value: bool) -> None:
    if value:
        silence()


def voice_options(command: Command) -> Command:
    """Add ``--quiet`` and ``--debug`` to a command."""
    flag = partial(click.option, is_flag=True, expose_value=False, is_eager=True)
    quiet = flag("--quiet", callback=_set_quiet, help=f"Show no progress, as {QUIET}=1 does.")
    debug = flag("--debug", callback=_set_debug, help="Show the traceback of an error.")
    decorated: Command = quiet(debug(command))
    return decorated


class Asked(Generic[T]):
    """The values of a record's options as typed; ``typed`` names those on the command line."""

    def __init__(self, record: type[T], values: Mapping[str, Any], typed: frozenset[str]) -> None:
        self._record = record
        self._values = values
        self.typed = typed

    def make(self, **others: object) -> T:
        """Return the record, with ``others`` in place of what was typed."""
        try:
            made = self._record(**{**self._values, **others})
            if isinstance(made, Training):
                made.refuse_ignored(self.typed)
        except OptionConflictError as error:
            raise click.UsageError(error.spell(self._record)) from error
        return made


def takes(
    record: type, command: str, *, into: str = "asked", optional: Sequence[str] = ()
) -> Decorator:
    """Add the options of a record to a command, which receives them as ``Asked``.

    Options that the record requires are required, unless they are ``optional``.
    """
    options = [
        each
        for each in list_options(record).values()
        if each.flag is not None and command in (each.option.commands or (command,))
    ]

    def decorate(function: Command) -> Command:
        @wraps(function)
        def call(*given: object, **values: object) -> object:
            own = {each.name: values.pop(each.name) for each in options}
            source = click.get_current_context().get_parameter_source
            typed = frozenset(name for name in own if source(name) is ParameterSource.COMMANDLINE)
            return function(*given, **{into: Asked(record, own, typed)}, **values)

        decorated: Command = call
        for each in reversed(options):
            required = each.name in getattr(record, "required", ()) and each.name not in optional
            decorated = make_option(each, command, required=required)(decorated)
        return decorated

    return decorate


def make_option(
    declared: Declared, command: str = "", *, name: str = "", required: bool = False
) -> Decorator:
    """Return the click option of a declaration; its value is passed on as ``name``."""
    option, flag = declared.option, str(declared.flag)
    rule = option.typed or option.rule
    name, default = name or declared.name, declared.default
    if flag.isupper():
        return click.argument(name, metavar=flag)
    meaning, usual = option.explain(command)
    text = option.negated or meaning
    text += " May be repeated." * option.repeated + f"  [default: {usual}]" * bool(usual)
    if rule is FLAG:
        switch = default if "/" in flag else False
        turn = _negate if option.negated else None
        return click.option(flag, name, is_flag=True, default=switch, callback=turn, help=text)
    return click.option(
        flag,
        name,
        type=_choose_type(rule),
        callback=_check_json if flag == "--json" else _check_by(rule, default),
        metavar=option.metavar,
        multiple=option.repeated,
        required=required,
        default=None if option.repeated else default,
        show_default=default is not None and not option.repeated and not usual,
        help=text,
    )


def _choose_type(rule: Rule) -> click.ParamType | None:  # type: ignore[type-arg]
    if isinstance(rule, (Whole, Real)):
        return Number(rule)
    if isinstance(rule, Wholes):
        return Numbers(rule)
    if isinstance(rule, OneOf):
        return click.Choice([str(value) for value in rule.values])
    return FilePath() if isinstance(rule, File) else None


def _check_by(rule: Rule, default: object) -> Callable[..., object]:
    """Return a callback that refuses a value by its rule, and gives the default for none."""

    def check(ctx: click.Context, param: click.Parameter, value: object) -> object:
        if value is None or value == ():
            return default
        try:
            rule.read(value)
        except UsageError as error:
            raise click.BadParameter(str(error), ctx, param) from error
        return value

    return check


def _negate(_: click.Context, __: click.Parameter, value: bool) -> bool:
    return not value


json_option = make_option(list_options(Outputs)["json_path"])
plugin_option = make_option(list_options(Training)["plugins"], name="extra_plugins")


patience_option = click.option(
    "--patience",
    "patience_s",
    type=Number(Whole(1, 86_400)),
    default=PATIENCE_S,
    show_default=True,
    metavar="S",
    help="With several processes: timeout in seconds for a rank that does not answer. A rank that "
    "ends is noticed at once.",
)


def folder_option(what: str) -> Decorator:
    """Return the option of the folder that a scaffold is written into."""
    return click.option(
        "--out",
        "folder",
        type=FilePath(),
        default=Path(),
        metavar="FOLDER",
        help=f"The folder to write the {what} into.  [default: here]",
    )


def is_given(name: str) -> bool:
    """Return whether an option of the running command is on the command line."""
    source = click.get_current_context().get_parameter_source(name)
    return source is ParameterSource.COMMANDLINE


def shared_options(command: Command) -> Command:
    """Add ``--json``, ``--quiet`` and ``--debug`` to a command."""
    return json_option(voice_options(command))


class ListingGroup(click.Group):
    """A group of commands that runs its command ``list`` where no other is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put ``list`` before the options. Raises ``UsageError`` if a command follows them."""
        named = next((word for word in args if word in self.commands), None)
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            if named is not None:
                raise click.UsageError(f"options go after {named!r}, not before it.", ctx)
            args = ["list", *args]
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of ``list``, then the commands."""
        params = (*self.commands["list"].params, *self.get_params(ctx))
        records = [record for each in params if (record := each.get_help_record(ctx)) is not None]
        with formatter.section("Options"):
            formatter.write_dl(records)
        self.format_commands(ctx, formatter)


def check_file(path: Path) -> None:
    """Refuse an output file that could not be written, before any work is done."""
    if path != STDOUT:
        from gnnbench.report.results.output import check_output

        check_output(path)


def check_job_files(job: Training, outputs: Outputs) -> None:
    """Run :func:`check_files` on the outputs of a command, and on everything that its job reads.

    Refuse names of datasets and platforms that are unknown, before the first slow import.
    """
    if isinstance(job.dataset, str):
        from gnnbench.datasets.catalogue import find_loader

        find_loader(job.dataset)
    if isinstance(job.platform, str):
        from gnnbench.machines.describe import require_known

        require_known(job.platform)
    check_files(
        outputs.json_path,
        outputs.trace_path,
        outputs.html_path,
        dataset=None if job.dataset is None else str(job.dataset),
        platform=None if job.platform is None else str(job.platform),
        plugins=list(map(str, job.plugins)),
        settings=job.settings,
    )


def check_files(
    json_path: Path | None,
    *others: Path | None,
    dataset: str | None = None,
    platform: str | None = None,
    plugins: Sequence[str] = (),
    settings: Mapping[PartKind, Mapping[str, str]] = MappingProxyType({}),
    files: Iterable[Path] = (),
) -> None:
    """Refuse output files that cannot be written, or that would overwrite another file in use.

    Files in use are the other outputs and everything that the command reads: a dataset, a platform
    and plugins by name, the ``settings`` of parts that are files, and other ``files``. Every
    command that writes calls this before any work is done.
    """
    if STDOUT in others:
        raise click.UsageError("only --json may go to standard output ('-'); name a file.")
    outputs = [path for path in (json_path, *others) if path is not None and path != STDOUT]
    if not outputs:
        return

    from gnnbench.report.results.output import check_outputs

    inputs = [*files, *(Path(text) for of_part in settings.values() for text in of_part.values())]
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
    if json_path == STDOUT:
        silence()
    return make_console(sys.stderr if json_path == STDOUT else sys.stdout)


def write_document(content: Mapping[str, Json], path: Path | None) -> None:
    """Write a small document as strict JSON to a file or standard output, or nowhere."""
    if path is None:
        return
    text = json.dumps({"schema": 1, **content}, indent=2, allow_nan=False) + "\n"
    from gnnbench.report.results.output import write_standard_output, write_text

    if path == STDOUT:
        write_standard_output(text)
    else:
        write_text(path, text)


def print_made(
    kind: str,
    name: str,
    files: Sequence[Path],
    following: Sequence[str],
    json_path: Path | None,
) -> None:
    """Print the files of a scaffold, and the commands that may follow."""
    paths: list[Json] = list(map(str, files))
    write_document({kind: name, "files": paths}, json_path)
    console = open_console(json_path)
    for path in files:
        console.print(f"wrote {path}", soft_wrap=True)
    console.print("\nNext: " + "\n      ".join(following), soft_wrap=True)


def list_plugins(extra: Sequence[str]) -> Listing:
    """Return what plugins offer; broken ones are reported on standard error and skipped."""
    return _open_listing(extra)[0]


def load_registry(extra: Sequence[object], names: Iterable[tuple[str, str]] = ()) -> Registry:
    """Load all plugins; broken ones are reported on standard error and skipped.

    ``names`` are checked as :meth:`Listing.check` does, before torch is imported if the index of
    plugins is fresh. Raises ``PluginError`` for the first name that is not on offer.
    """
    listing, registry = _open_listing(extra)
    listing.check(names)
    if registry is None:
        with doing("loading plugins"):
            from gnnbench.plugins import load

            registry = load(list(map(str, extra)))
    return registry


def _open_listing(extra: Sequence[object]) -> tuple[Listing, Registry | None]:
    from gnnbench.plugins.index import open_listing

    with doing("loading plugins"):
        listing, registry = open_listing(list(map(str, extra)))
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
