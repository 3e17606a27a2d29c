"""``gnnbench compare``: train each strategy on one dataset and print who wins, and why."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

import click

from gnnbench.cli.earlier import compare_earlier
from gnnbench.cli.options import (
    STDOUT,
    Asked,
    CommandLine,
    check_job_files,
    list_plugins,
    load_registry,
    open_console,
    patience_option,
    takes,
    voice_options,
)
from gnnbench.cli.outputs import Outputs
from gnnbench.cli.processes import begin_as_rank, joined, run_ranks
from gnnbench.cli.resuming import resumable, resume_option
from gnnbench.cli.values import FilePath
from gnnbench.host import signals
from gnnbench.host.rank import PATIENCE_S, Place, read_place
from gnnbench.jobs.groups import Spread
from gnnbench.jobs.job import Job
from gnnbench.jobs.options import list_bound

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from gnnbench.comparison import PlannedRow, Request
    from gnnbench.plugins import Registry
    from gnnbench.records import Comparison
    from gnnbench.run.collectives import Processes


@click.command(short_help="Train strategies on one dataset and compare them.")
@click.argument("earlier", nargs=-1, type=FilePath(), metavar="[A.json B.json]")
@takes(Job, "compare", optional=("strategies",))
@takes(Spread, "compare", into="spread")
@patience_option
@takes(Outputs, "compare", into="outputs")
@resume_option
@voice_options
@click.pass_obj
def compare(
    line: CommandLine,
    earlier: tuple[Path, ...],
    asked: Asked[Job],
    spread: Asked[Spread],
    patience_s: int,
    outputs: Asked[Outputs],
    resumed: bool,
) -> int:
    """Train each strategy on one dataset, and compare losses, times and traffic.

    Every strategy really trains. Times are measured if the platform's devices exist here, and
    modelled if they do not.

    With two result files of --json, A.json and B.json, nothing is trained. The output says what
    became faster or slower from A to B. The status is 1 if something became slower.
    """
    if earlier:
        refuse_names(earlier)
        return compare_earlier(earlier, outputs.make().json_path)
    if not asked.typed.intersection(("strategies", "programs")):
        known = ", ".join(each.name for each in list_plugins(()).strategies)
        raise click.UsageError(
            f"no strategies are named: give --plugins A,B with names from {known}. "
            f"To compare two results, name their files: gnnbench compare A.json B.json."
        )
    # Refuse wrong usage before the first slow import.
    job, processes = asked.make(), spread.make().processes
    if job.programs and processes:
        raise click.UsageError(
            "--processes is for strategies alone, and programs are named; leave one of them out."
        )
    demanded = tuple(str(each.flag) for each in list_bound(Job, asked.typed))
    ranks = Ranks(processes, patience_s)
    return run_rows(line, job, demanded, outputs.make(), ranks, resumed=resumed)


def refuse_names(given: Sequence[Path]) -> None:
    """Refuse names of strategies that are given without ``--plugins``, in place of files."""
    if not any(path.suffix == ".json" or os.path.lexists(path) for path in given):
        names = ",".join(map(str, given))
        raise click.UsageError(
            f"there is no result file {given[0]}. To compare strategies, write --plugins {names}."
        )


@dataclass(frozen=True, slots=True)
class Ranks:
    """The number of ranks, and the seconds after which they give up a silent one.

    ``count`` is None for one rank for each device of the platform.
    """

    count: int | None = None
    patience_s: int = PATIENCE_S


def run_rows(
    line: CommandLine,
    job: Job,
    demanded: tuple[str, ...],
    outputs: Outputs,
    wanted: Ranks,
    *,
    resumed: bool,
    find_rows: Callable[[Request, Registry], tuple[PlannedRow, ...]] | None = None,
    print_more: Callable[[Comparison, Registry, Console], None] | None = None,
) -> int:
    """Run the rows of the strategies, or the rows of ``find_rows``, and write the results.

    The rows run in this process, as one of several ranks, or in ranks that this process starts and
    watches. Some row has to train by each of the ``demanded`` options of mini-batches.
    """
    check_job_files(job, outputs)
    place, processes = read_place(), wanted.count
    if place is None and (processes or made_of_cores(job.platform)):
        from gnnbench.cli.workers import check_processes

        count = check_processes(processes, job)
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
    registry = load_registry(job.plugins, job.list_names())
    if line.debug:
        os.environ["GNNBENCH_DEBUG"] = "1"  # a run that fails then raises

    from gnnbench.programs.rows import make_request

    request = make_request(job, registry, demanded, place)
    if find_rows is not None:
        request = replace(request, rows=find_rows(request, registry))

    def write(comparison: Comparison) -> int:
        more = None if print_more is None else partial(print_more, comparison, registry)
        write_results(comparison, outputs, more)
        return exit_status(comparison)

    # Rank 0 has all results, and tells the others what to train.
    leads = place is None or place.rank == 0
    with resumable(line, resumed=resumed) if leads else nullcontext():
        if place is not None:
            return run_as_rank(line, request, registry, place, wanted.patience_s, write)
        return write(run_comparison(line, request, registry))


def made_of_cores(platform: object) -> bool:
    """Return whether a platform's devices are this machine's cores, each a process."""
    from gnnbench.machines.describe import is_made_of_cores

    return isinstance(platform, str) and is_made_of_cores(platform)


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
    from gnnbench.datasets.partitioning import keep_partitions
    from gnnbench.run.shared_memory import make_processes

    make = make_processes(request.platform)
    with keep_partitions(request.dataset), joined(place, patience_s, make) as processes:
        check_agreement(request, processes)
        request = gather_nodes(request, processes)
        if processes.rank:
            serve(request, registry, processes)
            return 0
        return write(run_comparison(line, request, registry, processes))


def run_comparison(
    line: CommandLine,
    request: Request,
    registry: Registry,
    processes: Processes | None = None,
) -> Comparison:
    """Run every row, together with the other ``processes``, if any."""
    from gnnbench.comparison import compare as run

    return run(request, registry, line.words, processes)


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
    outputs: Outputs,
    print_more: Callable[[Console], None] | None = None,
) -> None:
    """Print the table and ``print_more``, then write the files of ``outputs``.

    Raises as :func:`gnnbench.report.results.output.write_all` does, after all others have been
    written.
    """
    from gnnbench.report.comparison import print_comparison
    from gnnbench.report.results.output import write_all

    json_path, trace_path, html_path = outputs.json_path, outputs.trace_path, outputs.html_path
    console = open_console(json_path)

    def print_all() -> None:
        print_comparison(comparison, console, details=outputs.details)
        if print_more is not None:
            print_more(console)

    writes: list[tuple[str, Callable[[], None]]] = [("the table", print_all)]
    if json_path is not None:
        from gnnbench.report.results.schema import to_document, write_json

        target: Path | Literal["-"] = "-" if json_path == STDOUT else json_path
        name = "standard output" if json_path == STDOUT else str(json_path)
        writes.append((name, lambda: write_json(to_document(comparison), target)))
    if trace_path is not None:
        from gnnbench.report.chrome import write_chrome_trace

        writes.append((str(trace_path), lambda: write_chrome_trace(comparison, trace_path)))
    if html_path is not None:
        from gnnbench.report.html import write_html

        writes.append((str(html_path), lambda: write_html(comparison, html_path)))
    write_all(writes)
