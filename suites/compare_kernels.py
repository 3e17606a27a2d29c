"""``python -m suites.compare_kernels``: our kernels and all installed peers, in turns.

Exit status: 0 all results right; 1 a result is wrong or, with ``--enforce``, a target missed; 2
wrong usage. README.md's figures of kernels come from this command.
"""

import importlib.metadata
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import click

from gnnbench import __version__
from gnnbench.comparison import describe_machine
from gnnbench.kernels import dispatch
from gnnbench.units import format_si
from suites.contestants import Cases, Scope, all_kernels
from suites.graphs import GRAPHS, SMALL_GRAPHS, Graphs
from suites.race import OURS, Case, Limits, Outcome, measure_stream, race

LIBRARIES = ("dgl", "numpy", "scipy", "torch", "torch-geometric", "torch_sparse")
#: The value of ``--json`` for standard output.
STDOUT = Path("-")
THP_FILE = Path("/sys/kernel/mm/transparent_hugepage/enabled")
#: Kernel, graph, case, threads; our time, and its two rates; the peer and its time; rounds, ratio,
#: interval, target.
LINE = "{:<12} {:<17} {:<27} {:>3}  {:>8} {:>6} {:>6}  {:<19} {:>8} {:>6}  {:>6} {:<15} {:>6} {}"
LEGEND = """\
stream, rows: bytes that must move at least, and bytes of rows read one by one (many from caches), a
second of ours, as shares of what copying moves. rounds: the peer's; an interval of fewer than 6 is
Student's, and one round has none."""
HEADER = LINE.format(
    "kernel",
    "graph",
    "case",
    "thr",
    "ours",
    "stream",
    "rows",
    "peer",
    "",
    "rounds",
    "ratio",
    "95 % interval",
    "target",
    "",
)


class Names(click.ParamType):  # type: ignore[type-arg]
    """Some of the names given, separated by commas."""

    name = "names"

    def __init__(self, known: Sequence[str]) -> None:
        self.known = known

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, ...]:
        chosen = tuple(value.split(",")) if isinstance(value, str) else value
        for name in chosen:
            if name not in self.known:
                self.fail(f"there is no {name!r}; choose from {', '.join(self.known)}.", param, ctx)
        return chosen


class Threads(click.ParamType):  # type: ignore[type-arg]
    """Whole numbers from 1, separated by commas."""

    name = "numbers"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, ...]:
        try:
            counts = tuple(int(count) for count in value.split(","))
        except ValueError:
            counts = (0,)
        if min(counts) < 1:
            self.fail(f"{value!r} is not whole numbers from 1, such as 1,2.", param, ctx)
        return counts


#: An outcome as a JSON object; tests name its keys.
Row = dict[str, Any]

KERNELS = all_kernels()


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--kernels", type=Names(list(KERNELS)), help="Kernels, of " + ", ".join(KERNELS))
@click.option("--graphs", type=Names(list(GRAPHS)), help="Graphs, of " + ", ".join(GRAPHS))
@click.option("--cases", default="", metavar="TEXT", help="Only cases with TEXT in their names.")
@click.option(
    "--threads",
    type=Threads(),
    default="1,2",
    show_default=True,
    help="Lengthy cases race with the most of them alone.",
)
@click.option("--rounds", type=click.IntRange(min=1), default=9, show_default=True)
@click.option(
    "--budget",
    type=click.FloatRange(min=0, min_open=True),
    default=20.0,
    show_default=True,
    metavar="SECONDS",
    help="Time for a case's turns, shared by its contestants: slow ones run fewer rounds, at least "
    "3, or 1 where another peer takes less than half as long.",
)
@click.option(
    "--minutes",
    type=click.FloatRange(min=0, min_open=True),
    default=20.0,
    show_default=True,
    help="Time for all cases: each has an equal share of what is left, and no more than --budget. "
    "Those that come when it is spent have the fewest rounds.",
)
@click.option("--all-peers", is_flag=True, help="Also peers that others are known to beat.")
@click.option("--quick", is_flag=True, help="Small graphs and 3 rounds: a test, not a measurement.")
@click.option("--enforce", is_flag=True, help="Exit with 1 where a target is missed.")
@click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    help="Write everything measured to this file; - is standard output.",
)
def main(
    kernels: tuple[str, ...] | None,
    graphs: tuple[str, ...] | None,
    cases: str,
    threads: tuple[int, ...],
    rounds: int,
    budget: float,
    minutes: float,
    all_peers: bool,
    quick: bool,
    enforce: bool,
    json_file: Path | None,
) -> None:
    """Compare the compiled kernels with the kernels of every installed library.

    All run in turns in this process, on the same data, after their results are checked. Ratios are
    the peer's median over ours.
    """
    if quick and graphs:
        raise click.UsageError("--quick has graphs of its own; leave out --graphs.")
    chosen = SMALL_GRAPHS if quick else {name: GRAPHS[name] for name in graphs or GRAPHS}
    graphs_raced = Graphs(chosen)
    scope = Scope(graphs_raced, small=quick, all_peers=all_peers)
    rounds = min(rounds, 3) if quick else rounds
    table = sys.stderr if json_file == STDOUT else sys.stdout
    stream = {count: measure_stream(count) for count in threads}
    for count, speed in stream.items():
        print(f"copying, {count} threads: {format_si(speed, 'B/s')}", file=table)
    for name, setting in find_pages().items():
        print(f"pages: {name}: {setting or 'not set'}", file=table)
    if not dispatch.compiled():
        print("the compiled kernels are not used here; what races is their twins", file=table)
    print(LEGEND, HEADER, sep="\n", file=table, flush=True)
    asked = {name: KERNELS[name] for name in kernels or KERNELS}
    rows: list[Row] = []
    left_out: list[str] = []
    report = partial(describe, rows, stream, graphs_raced.absent, left_out)
    number = sum(races for *_, races in plan(asked, scope, threads, cases))
    begin = time.perf_counter()
    for case, count, races in plan(asked, scope, threads, cases):
        if not races:
            left_out.append(f"{case}, {count_threads(count)}")
            continue
        spent = time.perf_counter() - begin
        place = f"{len(rows) + 1} of {number}, after {spent / 60:.1f} min"
        click.echo(f"{place}: {case}, {count_threads(count)}", err=True)
        share = max(60 * minutes - spent, 0) / (number - len(rows))
        outcome = race(case, count, Limits(rounds, min(budget, share)))
        print_outcome(outcome, stream[count], table)
        rows.append(describe_outcome(outcome, stream[count]))
        # The outcome holds its inputs, which may be gigabytes: free them before the next case.
        del outcome
        if json_file is not None and json_file != STDOUT:
            # The file is written after every case, so that a later crash loses nothing.
            write_report(json_file, report())
    for name, reason in graphs_raced.absent.items():
        print(f"left out: graph {name}: {reason}", file=table)
    absences = Counter(item for row in rows for item in row["absent"].items())
    for (name, reason), times in absences.items():
        print(f"left out: {name}, {times} times: {reason}", file=table)
    for name in left_out:
        print(f"left out: {name}", file=table)
    print(f"all in {(time.perf_counter() - begin) / 60:.1f} min", file=table, flush=True)
    if json_file is not None:
        write_report(json_file, report())
    sys.exit(exit_status(rows, enforce))


def plan(
    kernels: Mapping[str, Cases], scope: Scope, threads: Sequence[int], text: str
) -> Iterator[tuple[Case, int, bool]]:
    """Yield every case with ``text`` in its name, each number of threads, and whether it races.

    A case without threads runs once, with the first number; a lengthy one races with the largest.
    """
    for cases in kernels.values():
        for case in cases(scope):
            if text in str(case):
                for count in threads if case.threaded else threads[:1]:
                    yield case, count, count == max(threads) or not case.lengthy


def count_threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


def exit_status(rows: Sequence[Row], enforce: bool) -> int:
    wrong = any(row["wrong"] for row in rows)
    missed = any(claim["met"] is False for row in rows for claim in row["claims"])
    return int(wrong or (enforce and missed))


def print_outcome(outcome: Outcome, stream: float, table: TextIO) -> None:
    """Print a line for each peer with a target, for the fastest peer, and for each failure.

    ``stream`` is the copy bandwidth [bytes/s].
    """
    case = outcome.case
    shares = (
        find_share(outcome, size, stream) for size in (case.compulsory_bytes, case.gathered_bytes)
    )
    rates = ["" if share is None else f"{share:.0%}" for share in shares]
    for claim in outcome.claims():
        speedup = claim.speedup
        line = LINE.format(
            case.kernel,
            case.graph,
            case.name,
            outcome.threads,
            format_si(outcome.median(OURS), "s"),
            *rates,
            claim.peer,
            format_si(outcome.median(claim.peer), "s"),
            len(outcome.seconds[claim.peer]),
            f"{speedup.ratio:.2f}",
            "{:.2f} to {:.2f}".format(*speedup.interval) if speedup.interval else "",
            "" if claim.factor is None else f"{claim.factor:.2f}",
            {True: "met", False: "missed", None: ""}[claim.met],
        )
        print(line.rstrip(), file=table, flush=True)
    for name, reason in outcome.wrong.items():
        print(f"WRONG: {case}: {name} {reason}", file=table, flush=True)


def find_share(outcome: Outcome, size: int | None, stream: float) -> float | None:
    """Return our rate as a share of ``stream`` [bytes/s]; None if either is unknown.

    Our rate is ``size`` bytes over our median time.
    """
    if size is None or OURS not in outcome.seconds:
        return None
    return size / outcome.median(OURS) / stream


def find_pages() -> dict[str, str | None]:
    """Return the switches of torch and of the system for huge pages of large arrays."""
    return {
        "THP_MEM_ALLOC_ENABLE": os.environ.get("THP_MEM_ALLOC_ENABLE"),
        "transparent_hugepage": THP_FILE.read_text().strip() if THP_FILE.exists() else None,
    }


# --------------------------------------------------------------------------- JSON


def write_report(file: Path, report: Mapping[str, Any]) -> None:
    with click.open_file(str(file), "w", encoding="utf-8") as target:
        target.write(json.dumps(report, indent=1) + "\n")


def describe(
    rows: Sequence[Row],
    stream: Mapping[int, float],
    absent: Mapping[str, str],
    left_out: Sequence[str],
) -> dict[str, Any]:
    """Return all measurements, and the settings needed to repeat them."""
    return {
        "format": 1,
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "gnnbench": __version__,
        "command": sys.argv[1:],
        "compiled": dispatch.compiled(),
        "machine": describe_machine(),
        "libraries": {name: version for name in LIBRARIES if (version := find_version(name))},
        "pages": find_pages(),
        "simd": os.environ.get("GNNBENCH_SIMD"),
        "stream_bytes_per_s": {str(count): speed for count, speed in stream.items()},
        "absent_graphs": dict(absent),
        "left_out": list(left_out),
        "rows": list(rows),
    }


def describe_outcome(outcome: Outcome, stream: float) -> Row:
    case = outcome.case
    ours = outcome.median(OURS) if OURS in outcome.seconds else None
    return {
        "kernel": case.kernel,
        "graph": case.graph,
        "case": case.name,
        "threads": outcome.threads,
        "median_s": ours,
        "samples_s": outcome.seconds.get(OURS, []),
        "peers": {
            peer: {
                "median_s": outcome.median(peer),
                "samples_s": outcome.seconds[peer],
                "ratio": (speedup := outcome.speedup(peer)).ratio,
                "interval": speedup.interval,
            }
            for peer in outcome.peers
        },
        "claims": [
            {"peer": claim.peer, "target": claim.factor, "met": claim.met}
            for claim in outcome.claims()
        ],
        "compulsory_bytes": case.compulsory_bytes,
        "gathered_bytes": case.gathered_bytes,
        "bytes_per_s": case.compulsory_bytes / ours if ours and case.compulsory_bytes else None,
        "share_of_stream": find_share(outcome, case.compulsory_bytes, stream),
        "rows_share_of_stream": find_share(outcome, case.gathered_bytes, stream),
        "wall_s": {
            "prepare": outcome.prepare_s,
            "check": outcome.check_s,
            "race": outcome.race_s,
        },
        "wrong": outcome.wrong,
        "absent": outcome.absent,
    }


def find_version(library: str) -> str | None:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    main()
