"""What may be said of samples of times: when a run is steady, medians, intervals, and differences.

Samples of two rows that took turns are pairs: what else the machine did meanwhile, it did to both.
Nothing here knows what was timed. The rank tests are SciPy's, by NumPy alone: ``scipy.stats`` takes
half a second to import, and its permutations of tied values take seconds.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

#: A difference is shown where one as large or larger comes by chance less often than this.
SIGNIFICANCE = 0.01
#: Ratios this near to 1 show nothing. Two rows of one strategy were up to 2 % apart, chance
#: included, in 190 comparisons of 6 ms epochs on an idle machine (``suites.verdicts``), and more of
#: them than chance explains were shown. Why they differ is not known: the margin was set from this.
MARGIN = 0.02
#: The share of intervals that hold the value.
CONFIDENCE = 0.95
RESAMPLES = 2000
#: Signed ranks are exact for at most this many pairs, and where some are tied or zero; rank sums
#: where the smaller of two samples without ties has at most ``MOST_EXACT_SAMPLES``.
MOST_EXACT, MOST_EXACT_TIED, MOST_EXACT_SAMPLES = 50, 13, 8
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
    low, high = np.quantile(_resample_medians(samples), _tails())
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
    own, other = _resample_medians(ours), _resample_medians(theirs)
    ratios = other / own
    low, high = (float(end) for end in np.quantile(ratios, _tails()))
    if len(logs) < FEWEST_PAIRS or not _agree(ratio, low, high):
        return Difference(ratio, low, high, shown=False)
    beyond = (logs - _margin(ratio)) * math.copysign(1.0, ratio - 1.0)
    return Difference(ratio, low, high, 2 * rank_signs(beyond) < SIGNIFICANCE)


def compare_samples(ours: Sequence[float], theirs: Sequence[float]) -> Difference:
    """Of samples that were not taken in turns; shown by the Mann-Whitney test."""
    ratio = median(theirs) / median(ours)
    if min(len(ours), len(theirs)) < 3:
        return Difference(ratio, min(theirs) / max(ours), max(theirs) / min(ours), shown=False)
    own, other = _resample_medians(ours), _resample_medians(theirs, seed=1)
    low, high = (float(end) for end in np.quantile(other / own, _tails()))
    if not _agree(ratio, low, high):
        return Difference(ratio, low, high, shown=False)
    as_slow = np.asarray(ours, dtype=float) * math.exp(_margin(ratio))
    slower, faster = np.asarray(theirs, dtype=float), as_slow
    if ratio < 1.0:
        slower, faster = faster, slower
    return Difference(ratio, low, high, 2 * rank_samples(slower, faster) < SIGNIFICANCE)


def rank_signs(values: FloatArray) -> float:
    """Return how likely values centred on zero are as far above it: the one-sided p-value of
    ``scipy.stats.wilcoxon``. Zeros are left out."""
    if np.isnan(values).any():
        return math.nan
    nonzero = values[values != 0]
    count = len(nonzero)
    doubled, ties = _double_ranks(np.abs(nonzero))
    seen = int(doubled[nonzero > 0].sum())
    if len(values) <= (MOST_EXACT_TIED if ties or count < len(values) else MOST_EXACT):
        # In how many of all choices of signs the ranks of positive values have each sum.
        ways = np.zeros(doubled.sum() + 1)
        ways[0] = 1
        for rank in doubled.tolist():
            ways[rank:] += ways[:-rank]
        return float(ways[seen:].sum() / 2**count)
    variance = (count * (count + 1) * (2 * count + 1) - ties / 2) / 24
    return _above(seen / 2 - count * (count + 1) / 4, variance)


def rank_samples(values: FloatArray, others: FloatArray) -> float:
    """Return how likely values are as far above others of one distribution: the one-sided p-value
    of ``scipy.stats.mannwhitneyu``."""
    both = np.concatenate((values, others))
    if np.isnan(both).any():
        return math.nan
    mine, count = len(values), len(both)
    doubled, ties = _double_ranks(both)
    seen = int(doubled[:mine].sum())
    if min(mine, count - mine) <= MOST_EXACT_SAMPLES and not ties:
        # In how many of all choices of so many ranks they have each sum, of the smaller sample.
        few = min(mine, count - mine)
        ways = np.zeros((few + 1, count * (count + 1) + 1))
        ways[0, 0] = 1
        for rank in doubled.tolist():
            ways[1:, rank:] += ways[:-1, :-rank]
        found = ways[few, seen:] if few == mine else ways[few, : count * (count + 1) - seen + 1]
        return float(found.sum() / math.comb(count, few))
    variance = mine * (count - mine) / 12 * (count + 1 - ties / (count * (count - 1)))
    return _above(seen / 2 - mine * (count + 1) / 2 - 0.5, variance)


def _double_ranks(values: FloatArray) -> tuple[IntArray, int]:
    """Return twice the ranks, of which tied values share the mean, and the sum of t^3 - t."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (2 * np.cumsum(counts) - counts + 1)[places], int((counts**3 - counts).sum())


def _above(distance: float, variance: float) -> float:
    """Return how likely a normal value is at least ``distance`` above its mean."""
    return math.erfc(distance / math.sqrt(2 * variance)) / 2 if variance else 1.0


def _agree(ratio: float, low: float, high: float) -> bool:
    """Whether a ratio is further from 1 than ``MARGIN``, and all its interval on that side of 1."""
    return (low > 1.0 and ratio > 1.0 + MARGIN) or (high < 1.0 and ratio < 1.0 / (1.0 + MARGIN))


def _margin(ratio: float) -> float:
    """The logarithm of ``MARGIN`` on a ratio's side of 1."""
    return math.copysign(math.log1p(MARGIN), math.log(ratio))


def _resample_medians(samples: Sequence[float], seed: int = 0) -> FloatArray:
    """Return the medians of ``RESAMPLES`` samples drawn with replacement.

    Samples of one length and seed are drawn at the same places, so that pairs stay pairs, and every
    report of the same samples says the same.
    """
    values = np.asarray(samples, dtype=float)
    if np.isnan(values).any():
        return np.full(RESAMPLES, math.nan)
    middle = sorted({(len(values) - 1) // 2, len(values) // 2})
    drawn = np.partition(values[_draw_places(len(values), seed)], middle, axis=1)
    medians: FloatArray = drawn[:, middle].mean(axis=1)
    return medians


@functools.lru_cache(maxsize=8)
def _draw_places(count: int, seed: int) -> npt.NDArray[np.int64]:
    return np.random.default_rng(seed).integers(count, size=(RESAMPLES, count))


def _tails() -> tuple[float, float]:
    return (1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2


def _ends(ratios: FloatArray, ratio: float) -> tuple[float, float]:
    return min(ratio, float(ratios.min(initial=math.inf))), max(
        ratio, float(ratios.max(initial=-math.inf))
    )


def bound_tail(off: float, variance: float) -> float:
    """Return an upper bound of the logarithm of the probability that a sum is ``off`` its mean by
    as much, or by more, to either side.

    The sum is of independent terms, each off its mean by at most 1, with the ``variance`` together
    (Bennett 1962). A sum without variance is off by rounding alone.
    """
    if abs(off) <= 1e-6 * max(1.0, variance):
        return 0.0
    if variance <= 0:
        return -math.inf
    ratio = abs(off) / variance
    return min(0.0, math.log(2) - variance * ((1 + ratio) * math.log1p(ratio) - ratio))
