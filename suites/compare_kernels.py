"""``python -m suites.compare_kernels``: our kernels against every peer installed, by turns.

Exit status: 0 all results right; 1 a result is wrong or, with ``--enforce``, a target missed; 2
wrong usage. README.md's figures of kernels come from this command.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TextIO

import click

from gnnbench import __version__
from gnnbench.compare import describe_machine
from gnnbench.kernels import dispatch
from gnnbench.units import format_si
from suites.contestants import Cases, Scope, all_kernels
from suites.graphs import GRAPHS, SMALL_GRAPHS, Graphs
from suites.race import OURS, Case, Limits, Outcome, measure_stream, race

LIBRARIES = ("dgl", "numpy", "scipy", "torch", "torch-geometric", "torch_sparse")
#: What ``--json`` calls standard output.
STDOUT = Path("-")
THP_FILE = Path("/sys/kernel/mm/transparent_hugepage/enabled")
#: Kernel, graph, case, threads; our time, the peer and its time; rounds, ratio, interval,
#: target.
LINE = "{:<12} {:<17} {:<27} {:>3}  {:>8}  {:<19} {:>8} {:>6}  {:>6} {:<15} {:>6} {}"
HEADER = LINE.format(
    "kernel",
    "graph",
    "case",
    "thr",
    "ours",
    "peer",
    "",
    "rounds",
    "ratio",
    "95 % interval",
    "target",
    "",
)


class Names(click.ParamType):
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


class Threads(click.ParamType):
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


#: An outcome as JSON has it; tests name its keys.
Row = dict[str, Any]

KERNELS = all_kernels()


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--kernels", type=Names(list(KERNELS)), help="Kernels, of " + ", ".join(KERNELS))
@click.option("--graphs", type=Names(list(GRAPHS)), help="Graphs, of " + ", ".join(GRAPHS))
@click.option("--cases", default="", metavar="TEXT", help="Only cases with TEXT in their names.")
@click.option("--threads", type=Threads(), default="1,2", show_default=True)
@click.option("--rounds", type=click.IntRange(min=1), default=9, show_default=True)
@click.option(
    "--budget",
    type=click.FloatRange(min=0, min_open=True),
    default=20.0,
    show_default=True,
    metavar="SECONDS",
    help="Time for a case, shared by its contestants: slow ones run fewer rounds, at least 3, or 1 "
    "where another peer takes less than half as long.",
)
@click.option(
    "--minutes",
    type=click.FloatRange(min=0, min_open=True),
    default=20.0,
    show_default=True,
    help="Time for all cases: each has an equal share of what is left, and no more than --budget.",
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
    """Compare the compiled kernels with those of every library that is installed.

    All run by turns in this process, on the same data; results are checked first. Ratios are the
    peer's median over ours.
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
    if not dispatch.compiled():
        print("the compiled kernels are not used here; what races is their twins", file=table)
    print(HEADER, file=table)
    rows: list[Row] = []
    asked = {name: KERNELS[name] for name in kernels or KERNELS}
    number = sum(cases in str(case) for case, _ in plan(asked, scope, threads))
    end = time.perf_counter() + 60 * minutes
    for case, count in plan(asked, scope, threads):
        if cases in str(case):
            share = max(end - time.perf_counter(), 0) / (number - len(rows))
            outcome = race(case, count, Limits(rounds, min(budget, share)))
            print_outcome(outcome, table)
            rows.append(describe_outcome(outcome, stream[count]))
            # It holds its inputs, which may be gigabytes: the next case is not to run beside them.
            del outcome
            if json_file is not None and json_file != STDOUT:
                # Again after every case, so that no later one can take with it what is measured.
                write_report(json_file, rows, stream, graphs_raced.absent)
    for name, reason in graphs_raced.absent.items():
        print(f"left out: graph {name}: {reason}", file=table)
    if json_file is not None:
        write_report(json_file, rows, stream, graphs_raced.absent)
    sys.exit(exit_status(rows, enforce))


def plan(
    kernels: Mapping[str, Cases], scope: Scope, threads: Sequence[int]
) -> Iterator[tuple[Case, int]]:
    """Every case with every number of threads, or the first where it knows no threads."""
    for cases in kernels.values():
        for case in cases(scope):
            for count in threads if case.threaded else threads[:1]:
                yield case, count


def exit_status(rows: Sequence[Row], enforce: bool) -> int:
    wrong = any(row["wrong"] for row in rows)
    missed = any(claim["met"] is False for row in rows for claim in row["claims"])
    return int(wrong or (enforce and missed))


def print_outcome(outcome: Outcome, table: TextIO) -> None:
    """A line for each peer that a target is about, for the fastest, and for what went wrong."""
    case = outcome.case
    for claim in outcome.claims():
        speedup = claim.speedup
        line = LINE.format(
            case.kernel,
            case.graph,
            case.name,
            outcome.threads,
            format_si(outcome.median(OURS), "s"),
            claim.peer,
            format_si(outcome.median(claim.peer), "s"),
            len(outcome.seconds[claim.peer]),
            f"{speedup.ratio:.2f}",
            f"{speedup.low:.2f} to {speedup.high:.2f}",
            "" if claim.factor is None else f"{claim.factor:.2f}",
            {True: "met", False: "missed", None: ""}[claim.met],
        )
        print(line.rstrip(), file=table, flush=True)
    for name, reason in outcome.wrong.items():
        print(f"WRONG: {case}: {name} {reason}", file=table, flush=True)
    for name, reason in outcome.absent.items():
        print(f"left out: {case}: {name}: {reason}", file=table, flush=True)


# --------------------------------------------------------------------------- JSON


def write_report(
    file: Path, rows: Sequence[Row], stream: Mapping[int, float], absent: Mapping[str, str]
) -> None:
    report = describe(rows, stream, absent)
    with click.open_file(str(file), "w", encoding="utf-8") as target:
        target.write(json.dumps(report, indent=1) + "\n")


def describe(
    rows: Sequence[Row], stream: Mapping[int, float], absent: Mapping[str, str]
) -> dict[str, Any]:
    """Everything measured, and what is needed to measure it again."""
    return {
        "format": 1,
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "gnnbench": __version__,
        "command": sys.argv[1:],
        "compiled": dispatch.compiled(),
        "machine": describe_machine(),
        "libraries": {name: version for name in LIBRARIES if (version := find_version(name))},
        "pages": {
            "THP_MEM_ALLOC_ENABLE": os.environ.get("THP_MEM_ALLOC_ENABLE"),
            "transparent_hugepage": THP_FILE.read_text().strip() if THP_FILE.exists() else None,
        },
        "simd": os.environ.get("GNNBENCH_SIMD"),
        "stream_bytes_per_s": {str(count): speed for count, speed in stream.items()},
        "absent_graphs": dict(absent),
        "rows": list(rows),
    }


def describe_outcome(outcome: Outcome, stream: float) -> Row:
    case, timed = outcome.case, OURS in outcome.seconds
    ours = outcome.median(OURS) if timed else None
    speed = case.compulsory_bytes / ours if ours and case.compulsory_bytes else None
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
                "interval": [speedup.low, speedup.high],
            }
            for peer in outcome.peers
        },
        "claims": [
            {"peer": claim.peer, "target": claim.factor, "met": claim.met}
            for claim in outcome.claims()
        ],
        "compulsory_bytes": case.compulsory_bytes,
        "gathered_bytes": case.gathered_bytes,
        "bytes_per_s": speed,
        "share_of_stream": speed / stream if speed else None,
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
