"""``gnnbench sweep``: a resumable grid of runs; ``gnnbench report``: the runs that sweeps kept."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gnnbench.cli.compare import Ranks, run_rows
from gnnbench.cli.options import (
    CommandLine,
    Json,
    check_files,
    load_registry,
    open_console,
    shared_options,
    voice_options,
    write_document,
)
from gnnbench.cli.outputs import Outputs
from gnnbench.cli.values import FilePath, Number
from gnnbench.errors import UsageError
from gnnbench.jobs.limits import Whole

if TYPE_CHECKING:
    from rich.console import Console

    from gnnbench.sweep import Configuration, Grid, Task
    from gnnbench.sweep.executors import ExecutorName
    from gnnbench.sweep.running import Found

# Spelt out, not imported: `gnnbench --help` needs no NumPy or torch. Tests hold both lists equal.
EXECUTOR_NAMES = ("local", "ray", "slurm")
_STORE = Path("results")
_MOST_JOBS = 4096
#: A file name that is tried to see whether a store can be written; it is never written.
_PROBE = ".writable"


@click.command(short_help="Run a grid of configurations, each once.")
@click.argument("file", type=FilePath(), metavar="FILE.toml")
@click.option(
    "--store",
    type=FilePath(),
    default=_STORE,
    show_default=True,
    metavar="FOLDER",
    help="Folder of the finished runs, one file per run.",
)
@click.option(
    "--executor",
    "executor_name",
    type=click.Choice(EXECUTOR_NAMES),
    default="local",
    show_default=True,
    help="Processes of this machine, tasks of Ray, or jobs of Slurm.",
)
@click.option(
    "--jobs",
    type=Number(Whole(1, _MOST_JOBS)),
    default=1,
    show_default=True,
    metavar="N",
    help="Runs at a time.",
)
@click.option("--retry", is_flag=True, help="Run again what failed.")
@shared_options
def sweep(
    file: Path,
    store: Path,
    executor_name: ExecutorName,
    jobs: int,
    retry: bool,
    json_path: Path | None,
) -> int:
    """Run every combination of the lists in FILE.toml.

    The lists are datasets, models, strategies, platforms, seeds, and any other list in the file.

    A finished run is kept under FOLDER. Its key is a digest of its configuration and input files,
    of the sources of gnnbench and of its plugins, and of the libraries' versions.
    A sweep that was stopped resumes with the missing runs. Failed runs are kept as failed.
    The status is 3 if runs failed or were lost, and 4 if all were refused.
    """
    check_files(json_path, files=[file])

    from gnnbench.machines import load_platform
    from gnnbench.report.results.output import check_output, make_folder
    from gnnbench.sweep import find_tasks, open_executor, read_grid

    grid = read_grid(file)
    check_inputs(grid, store, json_path)
    make_folder(store)
    check_output(store / _PROBE)
    registry = load_registry(grid.plugins, list_grid_names(grid))
    for platform in dict.fromkeys(str(each.job.platform) for each in grid.configurations):
        load_platform(platform)
    if executor_name == "local" and jobs > 1:
        refuse_measured(grid.configurations)
    executor = open_executor(executor_name, jobs, store)
    if executor.runs_here:
        refuse_spread(grid.configurations)
    here = name_this_machine() if executor.runs_here else ""
    found = find_tasks(grid.configurations, store, registry, retry=retry, here=here)
    console = open_console(json_path)
    describe_start(found, len(grid.configurations), store, console)
    kept: list[tuple[str, str]] = [(each.header.status, each.header.reason) for each in found.kept]
    for number, (task, status, reason) in enumerate(executor.run(found.tasks), 1):
        kept.append((status, reason))
        print_ended(number, len(found.tasks), task, status, reason, console)
    counts = Counter(status for status, _ in kept)
    ends = ("done", "refused", "failed", *(("lost",) if counts["lost"] else ()))
    summary: dict[str, Json] = {
        "store": str(store),
        "configurations": len(grid.configurations),
        "run": len(found.tasks),
        **{status: counts[status] for status in ends},
    }
    told = ", ".join(f"{counts[status]} {status}" for status in ends)
    console.print(f"{told}; gnnbench report {store} shows them.", soft_wrap=True)
    write_document(summary, json_path)
    if counts["failed"] or counts["lost"]:
        return 3
    return 0 if counts["done"] else 4


def check_inputs(grid: Grid, store: Path, json_path: Path | None) -> None:
    """Refuse an output that would replace a file that the sweep reads.

    It reads its kept runs, and every dataset, platform, plugin and option value that its
    configurations name.
    """
    from gnnbench.report.results.kept import list_kept

    kept = list_kept(store) if store.is_dir() else ()
    check_files(json_path, files=kept, plugins=grid.plugins)
    jobs = [each.job for each in grid.configurations]
    for dataset in dict.fromkeys(str(each.dataset) for each in jobs):
        check_files(json_path, dataset=dataset)
    for platform in dict.fromkeys(str(each.platform) for each in jobs):
        check_files(json_path, platform=platform)
    for job in {each.options: each for each in jobs}.values():
        check_files(json_path, settings=job.settings)


def list_grid_names(grid: Grid) -> list[tuple[str, str]]:
    """Return the names of strategies, parts and models in a grid, each once."""
    jobs = {(each.job.strategies, each.job.model): each.job for each in grid.configurations}
    return list(dict.fromkeys(name for job in jobs.values() for name in job.list_names()))


def refuse_measured(configurations: tuple[Configuration, ...]) -> None:
    """Refuse measured platforms: runs side by side would disturb each other's times."""
    from gnnbench.machines import load_platform

    for name in dict.fromkeys(str(each.job.platform) for each in configurations):
        if not load_platform(name).virtual:
            raise UsageError(
                f"times on platform {name!r} are measured, and runs side by side would disturb "
                f"each other; use --jobs 1."
            )


def refuse_spread(configurations: tuple[Configuration, ...]) -> None:
    """Refuse runs on several nodes, or on more GPUs than this machine has."""
    from gnnbench.machines.local import count_gpus

    nodes = max(each.spread.nodes for each in configurations)
    if nodes > 1:
        raise UsageError(
            f"nodes is {nodes:,}, and the runs are on this machine alone; use --executor slurm, or "
            f"ray with a cluster's RAY_ADDRESS."
        )
    gpus = max(each.spread.gpus for each in configurations)
    if gpus > count_gpus():
        raise UsageError(
            f"gpus is {gpus:,}, and this machine has {count_gpus():,}; ask for fewer, or use "
            f"--executor slurm or ray."
        )


def name_this_machine() -> str:
    """Return the name under which results of this machine are kept."""
    from gnnbench.comparison import describe_machine
    from gnnbench.report.results.kept import identify_machine

    return identify_machine(describe_machine())


def describe_start(found: Found, total: int, store: Path, console: Console) -> None:
    """Print how many runs are kept and how many are left."""
    have = len(found.kept)
    console.print(
        f"gnnbench sweep · {total} configurations · {have} kept in {store} · "
        f"{len(found.tasks)} to run",
        style="bold",
        soft_wrap=True,
    )
    for sentence in found.damaged:
        console.print(f" {sentence}", style="yellow", soft_wrap=True)


def print_ended(
    number: int, total: int, task: Task, status: str, reason: str, console: Console
) -> None:
    """Print a line about a run that has ended."""
    line = f" {number}/{total} {status}: {task.configuration.label}"
    style = {"failed": "red", "lost": "red", "refused": "yellow"}.get(status, "")
    console.print(line, style=style, soft_wrap=True)
    if reason:
        console.print(f"   {reason}", style=style, soft_wrap=True)


@click.command(hidden=True)
@click.argument("configuration")
@click.argument("target", type=FilePath())
@voice_options
@click.pass_obj
def run_configuration(line: CommandLine, configuration: str, target: Path) -> int:
    """Train one configuration of a sweep, given as JSON, and write the result to TARGET."""
    from gnnbench.sweep import Configuration

    asked = Configuration.from_json(json.loads(configuration))
    ranks = Ranks(asked.spread.ranks if asked.spread.ranks > 1 else None)
    return run_rows(line, asked.job, (), Outputs(json_path=target), ranks, resumed=False)


@click.command(short_help="Show what sweeps have kept.")
@click.argument("store", type=FilePath(), metavar="FOLDER", default=_STORE)
@click.option(
    "--html",
    "html_path",
    type=FilePath(),
    metavar="FILE",
    help="Write a web page with filters, and with charts of time, memory and accuracy.",
)
@click.option(
    "--csv", "csv_path", type=FilePath(), metavar="FILE", help="Write every run as a line of CSV."
)
@click.option(
    "--parquet",
    "parquet_path",
    type=FilePath(),
    metavar="FILE",
    help="Write every run as a row of a Parquet table.",
)
@shared_options
def report(
    store: Path,
    html_path: Path | None,
    csv_path: Path | None,
    parquet_path: Path | None,
    json_path: Path | None,
) -> int:
    """Show the results kept in FOLDER (results).

    Each data set, model and platform has a table with pooled seeds, and says who is fastest. Runs
    that failed are listed with their reason.

    The files of two stores may be copied into one. Runs that two machines share are then compared,
    together with the differences between the machines.
    """
    from gnnbench.report.results.kept import list_kept, read_kept

    check_files(json_path, html_path, csv_path, parquet_path, files=list_kept(store))

    from gnnbench.report.kept import tabulate_kept
    from gnnbench.report.results.tables import make_document
    from gnnbench.report.tables import print_table

    kept, damaged = [], []
    for path in list_kept(store):
        try:
            kept.append(read_kept(path))
        except UsageError as error:
            damaged.append(str(error))
    if not kept and not damaged:
        raise UsageError(f"{store} holds no kept run; gnnbench sweep FILE.toml makes some.")
    tables = tabulate_kept(kept, damaged)
    console = open_console(json_path)
    for table in tables:
        print_table(table, console)
        console.print()
    if html_path is not None:
        from gnnbench.report.kept_html import write_kept

        write_kept(store, kept, damaged, html_path)
    if csv_path is not None or parquet_path is not None:
        from gnnbench.report.results.frames import frame_kept, to_csv, to_parquet
        from gnnbench.report.results.output import write_bytes, write_text

        frame = frame_kept(kept)
        if csv_path is not None:
            write_text(csv_path, to_csv(frame))
        if parquet_path is not None:
            write_bytes(parquet_path, to_parquet(frame))
    write_document({"store": str(store), **make_document(tables)}, json_path)
    return 0 if any(each.document is not None for each in kept) else 4
