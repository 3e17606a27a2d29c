"""``gnnbench compare``: train each strategy on one dataset and print who wins, and why."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Literal

import click

from gnnbench.cli.earlier import compare_earlier
from gnnbench.cli.options import (
    STDOUT,
    CommandLine,
    ComparisonOptions,
    FilePath,
    comparison_options,
    is_given,
    load_registry,
    mode_option,
    open_console,
    patience_option,
)
from gnnbench.cli.processes import begin_as_rank, joined, run_ranks
from gnnbench.cli.screen import make_console
from gnnbench.cli.values import (
    MOST_PROCESSES,
    Number,
    read_list,
)
from gnnbench.errors import UsageError
from gnnbench.host import signals
from gnnbench.host.rank import PATIENCE_S, Place, read_place
from gnnbench.jobs import preparation
from gnnbench.jobs.limits import MOST_NEIGHBOURS, Whole

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console
    from rich.progress import Progress, TaskID

    from gnnbench.comparison import PlannedRow, Request
    from gnnbench.jobs.preparation import ChosenStrategy
    from gnnbench.plugins import Registry
    from gnnbench.records import Comparison, Mode, PartKind
    from gnnbench.run.collectives import Processes


@click.command(short_help="Train strategies on one dataset and compare them.")
@click.argument("earlier", nargs=-1, type=FilePath(), metavar="[A.json B.json]")
@click.option(
    "--plugins",
    "strategies",
    metavar="A,B[,C...]",
    help="The strategies to compare, by name; see 'gnnbench plugins'. A:PART=NAME is A with that "
    "part instead of its own, such as hongtu:kernel=dgl.",
)
@click.option(
    "--processes",
    type=Number(Whole(2, MOST_PROCESSES)),
    metavar="N",
    help="Train strategies of several devices in N processes, one a device, as under torchrun; "
    "others run in one of them. Without --platform on N workers made of this machine.",
)
@patience_option
@click.option(
    "--plain/--no-plain",
    default=True,
    help="Also run, beside each strategy, the one with plain parts that it is to be better than.  "
    "[default: plain]",
)
@mode_option(
    "Train in this mode alone.  [default: the mode of the strategies that have one; else their "
    "usual one]"
)
@comparison_options
@click.pass_obj
def compare(
    line: CommandLine,
    earlier: tuple[Path, ...],
    strategies: str | None,
    processes: int | None,
    patience_s: int,
    plain: bool,
    mode: Mode | None,
    options: ComparisonOptions,
) -> int:
    """Train each strategy on one dataset, and compare losses, times and traffic.

    Every strategy really trains. Times are measured if the platform's devices exist here, and
    modelled if they do not.

    Given two files that --json has written, A.json and B.json, nothing is trained: the output says
    what is faster or slower in B than in A. The status is 1 if something is slower.
    """
    if earlier:
        return compare_earlier(earlier, options.json_path)
    if strategies is None:
        raise click.UsageError(
            "no strategies are named; name them by --plugins A,B, or two result files to compare."
        )
    chosen = parse_strategies(strategies)
    return run_rows(line, chosen, options, Ranks(processes, patience_s), plain=plain, mode=mode)


@dataclass(frozen=True, slots=True)
class Ranks:
    """The number of processes, and the seconds after which they give up a silent rank.

    ``processes`` is None for one process for each device of the platform.
    """

    processes: int | None = None
    patience_s: int = PATIENCE_S


def run_rows(
    line: CommandLine,
    chosen: Sequence[ChosenStrategy],
    options: ComparisonOptions,
    wanted: Ranks,
    *,
    plain: bool = False,
    mode: Mode | None = None,
    find_rows: Callable[[Request, Registry], tuple[PlannedRow, ...]] | None = None,
    print_more: Callable[[Comparison, Registry, Console], None] | None = None,
) -> int:
    """Run the rows of the strategies, or the rows of ``find_rows``, and write the results.

    The rows run in this process, as one of several ranks, or in ranks that this process starts and
    watches.
    """
    # Refuse wrong usage before the first slow import.
    job = read_job(chosen, options, plain=plain, mode=mode)
    place, processes = read_place(), wanted.processes
    if place is None and (processes or made_of_cores(options.platform)):
        from gnnbench.cli.workers import check_processes

        count = check_processes(processes, chosen, options)
        if count:
            return run_ranks(line.words[1:], count, wanted.patience_s)
    if processes and place is not None and processes != place.size:
        raise click.BadParameter(
            f"this is one of {place.size} ranks, and {processes} are asked for; leave --processes "
            f"out under torchrun.",
            param_hint="'--processes'",
        )
    if place is not None and place.size == 1:
        place = None
    if place is not None:
        begin_as_rank(debug=line.debug)
    names = preparation.list_names(chosen, job.model, job.swaps)
    registry = load_registry(options.extra_plugins, names)
    if line.debug:
        os.environ["GNNBENCH_DEBUG"] = "1"  # a run that fails then raises
    request = preparation.make_request(job, registry, place.local_size if place else None)
    if find_rows is not None:
        request = replace(request, rows=find_rows(request, registry))

    def write(comparison: Comparison) -> int:
        more = None if print_more is None else partial(print_more, comparison, registry)
        write_results(comparison, options, more)
        return exit_status(comparison)

    if place is not None:
        return run_as_rank(line, request, registry, place, wanted.patience_s, write)
    return write(run_comparison(line, request, registry))


def made_of_cores(platform: str | None) -> bool:
    """Return whether a platform's devices are this machine's cores, each a process."""
    from gnnbench.machines.describe import is_made_of_cores

    return platform is not None and is_made_of_cores(platform)


def run_as_rank(
    line: CommandLine,
    request: Request,
    registry: Registry,
    place: Place,
    patience_s: float,
    write: Callable[[Comparison], int],
) -> int:
    """Run the comparison as one of several ranks; rank 0 writes and prints."""
    from gnnbench.comparison import check_agreement, gather_nodes, serve
    from gnnbench.run.shared_memory import make_processes

    with joined(place, patience_s, make_processes(request.platform)) as processes:
        check_agreement(request, processes)
        request = gather_nodes(request, processes)
        if processes.rank:
            serve(request, registry, processes)
            return 0
        return write(run_comparison(line, request, registry, processes))


def read_job(
    chosen: Sequence[ChosenStrategy],
    options: ComparisonOptions,
    *,
    plain: bool = False,
    mode: Mode | None = None,
) -> preparation.Job:
    """Return the job that the options describe.

    Raises ``UsageError`` if it cannot run, or if an output cannot be written.
    """
    job = preparation.Job(
        strategies=chosen,
        dataset=options.dataset,
        platform=options.platform,
        model=options.model,
        layers=options.layers,
        hidden=options.hidden,
        epochs=options.epochs,
        batch_size=options.batch_size,
        fanouts=parse_fanouts(options.fanouts),
        swaps=parse_swaps(options.swaps),
        options=parse_settings(options.settings),
        learning_rate=options.learning_rate,
        scaling=options.scaling,
        repeats=options.repeats,
        same_seed=options.same_seed,
        seed=options.seed,
        threads=options.threads,
        target_accuracy=options.target_accuracy,
        check=not options.no_check,
        checked_updates=options.checked_updates,
        plain=plain,
        mode=mode,
        demanded=find_demanded(),
    )
    options.check_files(options.trace_path, options.html_path)
    return job


def find_demanded() -> tuple[str, ...]:
    """Return the mini-batch options that are on the command line, as typed."""
    return tuple(
        f"--{name.replace('_', '-')}" for name in ("batch_size", "fanouts") if is_given(name)
    )


def run_comparison(
    line: CommandLine,
    request: Request,
    registry: Registry,
    processes: Processes | None = None,
) -> Comparison:
    """Run every row with a progress bar, together with the other ``processes``, if any."""
    from gnnbench.comparison import compare as run

    with ProgressBar() as progress:
        return run(request, registry, progress, line.words, processes)


def exit_status(comparison: Comparison) -> int:
    """Return the exit status of a comparison.

    The status is 129, 130 or 143 after a signal, 3 if a run failed unexpectedly, 4 if none is done,
    1 if one is not equal to the reference, else 0. Running out of device memory is an answer, not a
    failure.
    """
    runs = comparison.runs
    if comparison.interrupted:
        where = comparison.interrupted.removeprefix("interrupted").removesuffix(".")
        return signals.say(where)
    if any(run.status == "error" for run in runs):
        return 3
    if not any(run.status == "done" for run in runs):
        return 4
    unequal = any(run.equivalence is not None and not run.equivalence.holds for run in runs)
    return 1 if unequal else 0


def write_results(
    comparison: Comparison,
    options: ComparisonOptions,
    print_more: Callable[[Console], None] | None = None,
) -> None:
    """Print the table and ``print_more``, then write the files that the options name.

    Raises as :func:`gnnbench.report.results.output.write_all` does, after all others have been
    written.
    """
    from gnnbench.report.comparison import print_comparison
    from gnnbench.report.results.output import write_all

    json_path, trace_path, html_path = options.json_path, options.trace_path, options.html_path
    console = open_console(json_path)

    def print_all() -> None:
        print_comparison(comparison, console, details=options.details)
        if print_more is not None:
            print_more(console)

    outputs: list[tuple[str, Callable[[], None]]] = [("the table", print_all)]
    if json_path is not None:
        from gnnbench.report.results.schema import to_document, write_json

        target: Path | Literal["-"] = "-" if json_path == STDOUT else json_path
        name = "standard output" if json_path == STDOUT else str(json_path)
        outputs.append((name, lambda: write_json(to_document(comparison), target)))
    if trace_path is not None:
        from gnnbench.report.chrome import write_chrome_trace

        outputs.append((str(trace_path), lambda: write_chrome_trace(comparison, trace_path)))
    if html_path is not None:
        from gnnbench.report.html import write_html

        outputs.append((str(html_path), lambda: write_html(comparison, html_path)))
    write_all(outputs)


# --------------------------------------------------------------------------- reading the options


def parse_strategies(text: str) -> tuple[ChosenStrategy, ...]:
    """Parse ``"hyscale,hongtu:kernel=dgl"`` into names with their swaps, each once."""
    with said_of("'--plugins'"):
        return preparation.parse_strategies(text)


def parse_fanouts(text: str | None) -> tuple[int, ...] | None:
    """Parse ``"25,10"`` into numbers, from the seeds outwards."""
    if text is None:
        return None
    example = "25,10 (0 stands for every neighbour)"
    return tuple(read_list(text, 0, MOST_NEIGHBOURS, "'--fanouts'", example))


def parse_swaps(texts: Sequence[str], hint: str = "'--swap'") -> tuple[tuple[PartKind, str], ...]:
    """Parse ``communication=hongtu`` into a kind of part and a part's name."""
    with said_of(hint):
        return preparation.parse_swaps(texts)


def parse_settings(texts: Sequence[str]) -> dict[PartKind, dict[str, str]]:
    """Parse ``memory.device_bytes=2GB`` into texts by kind of part and option."""
    with said_of("'--set'"):
        return preparation.parse_settings(texts)


@contextmanager
def said_of(option: str) -> Iterator[None]:
    """Name ``option`` in the error about a text that is wrong."""
    try:
        yield
    except UsageError as error:
        raise click.BadParameter(str(error), param_hint=option) from error


# --------------------------------------------------------------------------- progress


class ProgressBar:
    """A progress bar on standard error for the runs under way; silent if that is not a terminal."""

    def __init__(self, unit: str = "epochs") -> None:
        self._unit = unit
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> ProgressBar:
        signals.begin_work()
        if sys.stderr.isatty():
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
            from rich.progress import TimeElapsedColumn as Elapsed

            self._bars = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=30),
                MofNCompleteColumn(),
                TextColumn(self._unit),
                Elapsed(),
                console=make_console(sys.stderr),
                transient=True,
            )
            self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def begin(self, label: str, total: int) -> None:
        """Add a bar for a run of ``total`` epochs; several runs may be under way."""
        if self._bars is not None:
            self._tasks[label] = self._bars.add_task(label, total=total)

    def advance(self, label: str, steps: int = 1) -> None:
        """Advance a run's bar by an epoch, or by several steps of another unit."""
        if self._bars is not None and label in self._tasks:
            self._bars.advance(self._tasks[label], steps)

    def end(self, label: str, status: str) -> None:
        """Remove the bar of a run that has ended."""
        if self._bars is not None and label in self._tasks:
            self._bars.remove_task(self._tasks.pop(label))
