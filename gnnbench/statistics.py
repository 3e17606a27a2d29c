"""What may be said of samples of times: when a run is steady, medians, intervals, and differences.

Samples of two rows that took turns are pairs: what else the machine did meanwhile, it did to both.
Nothing here knows what was timed. SciPy's tests are imported where they are made: that takes half a
second, and modelled times need none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

#: A difference is shown where one as large or larger comes by chance less often than this.
SIGNIFICANCE = 0.01
#: Ratios this near to 1 show nothing. Two rows of one strategy were up to 2 % apart, chance
#: included, in 190 comparisons of 6 ms epochs on an idle machine (``suites.verdicts``), and more of
#: them than chance explains were shown. Why they differ is not known: the margin was set from this.
MARGIN = 0.02
#: The share of intervals that hold the value.
CONFIDENCE = 0.95
RESAMPLES = 2000
#: Fewer pairs than this cannot show a difference at ``SIGNIFICANCE``, whatever they are.
FEWEST_PAIRS = 8
#: A run is taken to be steady after so many epochs.
MOST_WARMUP = 5
#: Above this, the spread of the samples (half the interquartile range over the median) is noise
#: that a reader should know of.
NOISY = 0.1


@dataclass(frozen=True, slots=True)
class Difference:
    """How two rows' times compare: ``ratio`` is theirs over ours, above 1 where ours is faster,
    between ``low`` and ``high`` with ``CONFIDENCE``. ``shown`` says whether chance is ruled out,
    and that they are within ``MARGIN``, as two rows of one strategy are."""

    ratio: float
    low: float
    high: float
    shown: bool

    def about(self, ratio: float) -> Difference:
        """The same around the ratio of two figures that are reported, such as medians of medians:
        the interval has it, and nothing is shown where samples and figures disagree on who is
        faster, or where the figures are within ``MARGIN``."""
        low, high = min(self.low, ratio), max(self.high, ratio)
        return Difference(ratio, low, high, self.shown and _agree(ratio, low, high))


def count_warmup(samples: Sequence[float]) -> int:
    """How many leading samples to leave out: at least the first, at most ``MOST_WARMUP`` and a
    quarter of them.

    White's MSER rule (1997): as many as make the standard error of the rest's mean least. What is
    slow later than that is noise, which falls on all rows alike, and no warm-up.
    """
    values = np.asarray(samples, dtype=float)
    if len(values) < 2:
        return 0
    most = max(1, min(MOST_WARMUP, len(values) // 4))
    errors = [values[cut:].var() / (len(values) - cut) for cut in range(1, most + 1)]
    return 1 + int(np.argmin(errors))


def spread(samples: Sequence[float]) -> float:
    """Half the interquartile range over the median; 0 for fewer than four samples."""
    if len(samples) < 4 or not median(samples):
        return 0.0
    low, high = np.quantile(samples, (0.25, 0.75))
    return float((high - low) / (2 * median(samples)))


def find_interval(samples: Sequence[float]) -> tuple[float, float]:
    """The median's bootstrap interval; the least and the most of fewer than three samples."""
    if len(samples) < 3:
        return min(samples), max(samples)
    drawn = _resample(np.asarray(samples, dtype=float))
    low, high = np.quantile(np.median(drawn, axis=1), _tails())
    return float(low), float(high)


def compare_pairs(ours: Sequence[float], theirs: Sequence[float]) -> Difference:
    """Of samples that were taken in turns, the i-th of one beside the i-th of the other.

    Shown by Wilcoxon's signed-rank test, a permutation test of how far the pairs' log ratios are
    beyond ``MARGIN``.
    """
    logs = np.log(np.asarray(theirs, dtype=float) / np.asarray(ours, dtype=float))
    ratio = median(theirs) / median(ours)
    if len(logs) < 3:
        return Difference(ratio, *_ends(np.exp(logs), ratio), shown=False)
    own, other = (
        np.median(_resample(np.asarray(each, dtype=float)), axis=1) for each in (ours, theirs)
    )
    ratios = other / own
    low, high = (float(end) for end in np.quantile(ratios, _tails()))
    if len(logs) < FEWEST_PAIRS or not _agree(ratio, low, high):
        return Difference(ratio, low, high, shown=False)
    from scipy.stats import wilcoxon

    found = wilcoxon(logs - _margin(ratio), alternative="greater" if ratio > 1.0 else "less")
    return Difference(ratio, low, high, bool(2 * found.pvalue < SIGNIFICANCE))


def compare_samples(ours: Sequence[float], theirs: Sequence[float]) -> Difference:
    """Of samples that were not taken in turns; shown by the Mann-Whitney test."""
    ratio = median(theirs) / median(ours)
    if min(len(ours), len(theirs)) < 3:
        return Difference(ratio, min(theirs) / max(ours), max(theirs) / min(ours), shown=False)
    own, other = (
        np.median(_resample(np.asarray(each, dtype=float), seed), axis=1)
        for seed, each in enumerate((ours, theirs))
    )
    low, high = (float(end) for end in np.quantile(other / own, _tails()))
    if not _agree(ratio, low, high):
        return Difference(ratio, low, high, shown=False)
    from scipy.stats import mannwhitneyu

    as_slow = np.asarray(ours, dtype=float) * math.exp(_margin(ratio))
    found = mannwhitneyu(theirs, as_slow, alternative="greater" if ratio > 1.0 else "less")
    return Difference(ratio, low, high, bool(2 * found.pvalue < SIGNIFICANCE))


def _agree(ratio: float, low: float, high: float) -> bool:
    """Whether a ratio is further from 1 than ``MARGIN``, and all its interval on that side of 1."""
    return (low > 1.0 and ratio > 1.0 + MARGIN) or (high < 1.0 and ratio < 1.0 / (1.0 + MARGIN))


def _margin(ratio: float) -> float:
    """The logarithm of ``MARGIN`` on a ratio's side of 1."""
    return math.copysign(math.log1p(MARGIN), math.log(ratio))


def _resample(values: FloatArray, seed: int = 0) -> FloatArray:
    """``(RESAMPLES, n)`` with replacement: of arrays of one length and seed the same places, so
    that pairs stay pairs, and every report of the same samples says the same."""
    drawn = np.random.default_rng(seed).integers(len(values), size=(RESAMPLES, len(values)))
    resampled: FloatArray = values[drawn]
    return resampled


def _tails() -> tuple[float, float]:
    return (1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2


def _ends(ratios: FloatArray, ratio: float) -> tuple[float, float]:
    return min(ratio, float(ratios.min(initial=math.inf))), max(
        ratio, float(ratios.max(initial=-math.inf))
    )
