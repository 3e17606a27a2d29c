"""The rate at which ``compare`` calls a row "faster" wrongly, and rightly.

``python -m suites.faster simulate`` draws times of two rows with independent noise. The noise is
fresh in each turn or lasts over turns (AR(1) with a correlation of 0.9 and 0.98). The rule of every
verdict judges them (:func:`gnnbench.statistics.compare_pairs`). The command prints how often a row
is called faster than itself, and how often real differences are seen. This includes the cases in
which the rule does badly. It exits with 1 if a row is called faster than itself in more than 5 % of
the comparisons.

``python -m suites.faster files`` runs one command repeatedly, compares every two result files by
``gnnbench compare``, and prints each exit status. It also prints the verdict without the notes on
other programs. It exits with 1 if a difference is claimed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np

from gnnbench.statistics import FloatArray, compare_pairs

#: Correlation of the noise from turn to turn, and pairs of epochs.
CORRELATIONS = (0.0, 0.9, 0.98)
COUNTS = (9, 29, 97)
#: Standard deviations of the noise in the logarithm of each row's times, from a quiet to a busy
#: machine.
DEVIATIONS = (0.02, 0.05, 0.2)
RATIOS = (1.1, 1.3, 2.0)
MOST_FALSE = 0.05
SEED = 20


def draw_noise(
    random: np.random.Generator, correlation: float, count: int, deviation: float
) -> FloatArray:
    """Return a stationary AR(1) series (count,) of the given standard deviation."""
    fresh = random.normal(0.0, deviation, count)
    fresh[1:] *= (1.0 - correlation**2) ** 0.5
    for turn in range(1, count):
        fresh[turn] += correlation * fresh[turn - 1]
    return fresh


def simulate(comparisons: int) -> bool:
    """Print a line for each noise; return whether no row is faster than itself too often."""
    print(
        f"{comparisons} comparisons each; noise of two rows is independent\n"
        f"pairs  correlation  noise   itself faster   "
        + "   ".join(f"{ratio:g}x seen" for ratio in RATIOS)
        + "   slower called faster   a comparison"
    )
    held = True
    for count in COUNTS:
        for correlation in CORRELATIONS:
            for deviation in DEVIATIONS:
                held &= _simulate_noise(comparisons, count, correlation, deviation)
    print(f"at most {MOST_FALSE:.0%} of comparisons with itself: {'held' if held else 'MISSED'}")
    return held


def _simulate_noise(comparisons: int, count: int, correlation: float, deviation: float) -> bool:
    random = np.random.default_rng((SEED, count))
    false, wrong, seen = 0, 0, dict.fromkeys(RATIOS, 0)
    began_s = time.perf_counter()
    for _ in range(comparisons):
        ours, theirs = (
            np.exp(draw_noise(random, correlation, count, deviation)).tolist() for _ in range(2)
        )
        itself = compare_pairs(ours, theirs)
        false += itself.shown
        for ratio in RATIOS:
            # Scaling all times of one row scales the interval by the same factor.
            low, high = ratio * itself.low, ratio * itself.high
            found = replace(itself, ratio=ratio * itself.ratio, low=low, high=high)
            seen[ratio] += found.shown and found.ratio > 1.0
            wrong += found.shown and found.ratio < 1.0
    each_s = (time.perf_counter() - began_s) / comparisons
    shares = "   ".join(f"{seen[ratio] / comparisons:9.0%}" for ratio in RATIOS)
    print(
        f"{count:5}  {correlation:11g}  {deviation:5.0%}   {false / comparisons:13.1%}   "
        f"{shares}   {wrong / comparisons / len(RATIOS):20.1%}   "
        f"{1e3 * each_s:9.1f} ms",
        flush=True,
    )
    return false <= MOST_FALSE * comparisons


def compare_files(seconds: float, words: Sequence[str]) -> bool:
    """Run the command for about ``seconds``; return whether no two files claim a difference."""
    began_s = time.monotonic()
    program = (sys.executable, "-m", "gnnbench", "compare")
    with tempfile.TemporaryDirectory() as folder:
        paths: list[Path] = []
        while len(paths) < 2 or time.monotonic() - began_s < seconds:
            paths.append(Path(folder, f"{len(paths)}.json"))
            _run((*program, *words, "--json", str(paths[-1])))
        for path in paths:
            print(f"{path.name}: {json.loads(path.read_text()).get('noise') or 'quiet'}")
        told = _claim(program, paths)
        for path in paths:
            document = json.loads(path.read_text())
            path.write_text(json.dumps({**document, "noise": ""}))
        print("the same files without their notes on other programs:")
        _claim(program, paths)
    return not told


def _claim(program: Sequence[str], paths: Sequence[Path]) -> int:
    """Compare every two files both ways; return the number of rows said to differ."""
    statuses: list[int] = []
    rows = told = 0
    for before, after in permutations(paths, 2):
        found = _run((*program, str(before), str(after), "--json", "-"))
        statuses.append(found.returncode)
        for row in json.loads(found.stdout)["rows"]:
            rows += 1
            if row["difference_shown"]:
                told += 1
                low, high = row["interval"]
                print(
                    f"  {before.name} {after.name}: {row['label']} ({row['mode']}) "
                    f"{row['ratio']:.2f} ({low:.2f} to {high:.2f})"
                )
    counts = {status: statuses.count(status) for status in sorted(set(statuses))}
    print(f"{len(statuses)} pairs, {told} of {rows} rows differ; by exit status: {counts}")
    return told


def _run(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, check=False, capture_output=True, text=True)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    simulated = commands.add_parser("simulate", help="noise of known kinds")
    simulated.add_argument("--comparisons", type=int, default=2000, metavar="N")
    files = commands.add_parser("files", help="result files of one command on this machine")
    files.add_argument("--seconds", type=float, default=120.0)
    arguments, rest = parser.parse_known_args(words)
    if arguments.command == "simulate":
        return 0 if simulate(arguments.comparisons) else 1
    chosen = rest or ["--plugins", "reference,native", "--dataset", "cora", "--platform", "local"]
    return 0 if compare_files(arguments.seconds, chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
