"""The rate at which ``compare`` calls a row "faster" wrongly, and rightly.

``python -m suites.faster simulate`` draws times of two rows with independent noise. The noise is
fresh in each turn or lasts over turns (AR(1) with a correlation of 0.9 and 0.98). The rule of every
verdict judges them (:func:`gnnbench.statistics.compare_pairs`). The command prints how often a row
is called faster than itself, and how often real differences are seen. This includes the cases in
which the rule does badly. It exits with 1 if a row is called faster than itself in more than 5 % of
the comparisons.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

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


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    simulated = commands.add_parser("simulate", help="noise of known kinds")
    simulated.add_argument("--comparisons", type=int, default=2000, metavar="N")
    return 0 if simulate(parser.parse_args(words).comparisons) else 1


if __name__ == "__main__":
    sys.exit(main())
