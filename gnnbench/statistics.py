"""Samples of times: when a run is steady, how well its middle is known, and what "faster" means.

:attr:`Difference.shown` is the only rule of "faster": the whole interval is beyond a margin. All
sentences, tables and pages show the interval that decides.

Nothing here depends on the kind of work that was timed.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

#: The share of intervals of measured times that hold the value.
CONFIDENCE = 0.95
#: Ratios this near to 1 show nothing. Two rows of one strategy were up to 2 % apart, chance
#: included, in 190 comparisons of 6 ms epochs on an idle machine (``suites.verdicts``). The reason
#: is unknown.
MARGIN = 0.02
#: The margin of samples that did not take turns: two processes place their memory differently. This
#: value is assumed.
MARGIN_APART = 0.05
#: Fewer samples than this cannot tell lasting noise from a difference.
FEWEST_PAIRS = 8
#: Fewer values of different seeds than this have no interval.
FEWEST_SEEDS = 3
#: A run is taken to be steady after this many epochs.
MOST_WARMUP = 5
#: Above this, the spread of the samples (half the interquartile range over the median) is noise
#: that a reader should know of.
NOISY = 0.1
#: Noise models: the correlation of lasting noise from one turn to the next, and the share of the
#: variance that is fresh in each turn.
LASTING = (0.5, 0.8, 0.9, 0.95, 0.98, 0.995)
FRESH = (0.0, 0.5, 0.8, 0.95)
#: Longer series are averaged over consecutive samples to at most this many.
MOST_SAMPLES = 128
#: Samples count as at most this many deviations from their median.
MOST_DEVIATIONS = 3.0
#: Intervals of n samples are widened by the factor 1 + WIDENED / n^2. ``suites.faster`` gives the
#: value: with noise of correlation 0.98, few samples do not say how long noise lasts.
WIDENED = 100.0
#: Noise models of less weight than this are left out.
NEGLIGIBLE = 1e-6


@dataclass(frozen=True, slots=True)
class Difference:
    """A comparison of two rows' times.

    ``ratio`` is their time over ours, above 1 if ours is faster. ``low`` and ``high`` are the
    interval that decides; they are 0 and infinity if the samples show nothing. The interval has to
    be further than ``margin`` from 1. ``why_not`` gives the cause of a wide interval, in a clause;
    it is empty if there is no particular cause.
    """

    ratio: float
    low: float
    high: float
    margin: float = MARGIN
    why_not: str = ""

    @property
    def shown(self) -> bool:
        """Whether one of the two is faster: the whole interval is beyond the margin."""
        return self.low > 1.0 + self.margin or self.high < 1.0 / (1.0 + self.margin)

    @property
    def mark(self) -> str:
        """``"*"`` if one of the two is shown to be faster, else ``"~"``."""
        return "*" if self.shown else "~"

    def about(self, ratio: float) -> Difference:
        """Return this difference with the ratio of two reported figures, widened to include it."""
        return replace(self, ratio=ratio, low=min(self.low, ratio), high=max(self.high, ratio))

    def joined(self, other: Difference) -> Difference:
        """Return this difference with an interval that also includes the other's interval."""
        low, high = min(self.low, other.low), max(self.high, other.high)
        return replace(self, low=low, high=high, why_not=self.why_not or other.why_not)


@dataclass(frozen=True, slots=True)
class Centre:
    """The middle of a series of logarithms, and its interval with ``CONFIDENCE``.

    ``independent`` is the number of independent samples that would say as much.
    """

    value: float
    low: float
    high: float
    independent: float


def count_warmup(samples: Sequence[float]) -> int:
    """Return the number of leading samples to leave out, from 1 to ``MOST_WARMUP``.

    It is at most a quarter of the samples, and 0 for fewer than two. White's MSER rule (1997) takes
    the number that makes the standard error of the rest's mean least. Later slow samples are noise,
    which affects all rows alike, and no warm-up.
    """
    values = np.asarray(samples, dtype=float)
    if len(values) < 2:
        return 0
    most = max(1, min(MOST_WARMUP, len(values) // 4))
    errors = [values[cut:].var() / (len(values) - cut) for cut in range(1, most + 1)]
    return 1 + int(np.argmin(errors))


def spread(samples: Sequence[float]) -> float:
    """Return half the interquartile range over the median; 0 for fewer than four samples."""
    if len(samples) < 4 or not median(samples):
        return 0.0
    low, high = np.quantile(samples, (0.25, 0.75))
    return float((high - low) / (2 * median(samples)))


def compare_pairs(ours: Sequence[float], theirs: Sequence[float]) -> Difference:
    """Compare samples that were taken in turns, in order of time.

    Both have one length. Noise that affects both samples of a pair cancels.
    """
    logs = np.log(np.asarray(theirs, dtype=float) / np.asarray(ours, dtype=float))
    found = find_centre(logs)
    ratio = float(median(theirs) / median(ours))
    if found is None:
        return Difference(ratio, 0.0, math.inf, why_not=_tell_few(len(logs)))
    difference = Difference(math.exp(found.value), math.exp(found.low), math.exp(found.high))
    return replace(difference.about(ratio), why_not=_tell_lasting(len(logs), found))


def compare_samples(
    ours: Sequence[float],
    theirs: Sequence[float],
    paces: tuple[Sequence[float], Sequence[float]] | None = None,
) -> Difference:
    """Compare samples that were not taken in turns.

    ``paces`` are seconds of a yardstick beside each sample of ours and of theirs. The interval then
    includes the ratio with and without division by them. So neither another pace of the machine nor
    the yardstick shows a difference alone.
    """
    found = _compare_apart(ours, theirs)
    if paces is None:
        return found
    divided = [
        np.asarray(times, dtype=float) / np.asarray(pace, dtype=float)
        for times, pace in zip((ours, theirs), paces, strict=True)
    ]
    return found.joined(_compare_apart(divided[0].tolist(), divided[1].tolist()))


def compare_seeds(ours: Sequence[float], theirs: Sequence[float]) -> Difference:
    """Compare times of the same seeds, in their order; seeds are independent of each other."""
    logs = np.log(np.asarray(theirs, dtype=float) / np.asarray(ours, dtype=float))
    found = find_centre(logs, lasting=False)
    ratio = median(theirs) / median(ours)
    if found is None:
        return Difference(ratio, 0.0, math.inf)
    return Difference(math.exp(found.value), math.exp(found.low), math.exp(found.high)).about(ratio)


def find_seed_interval(times: Sequence[float]) -> tuple[float, float] | None:
    """Return the interval of the median time over seeds; None of fewer than ``FEWEST_SEEDS``."""
    return find_interval(times, lasting=False)


def find_interval(times: Sequence[float], *, lasting: bool = True) -> tuple[float, float] | None:
    """Return the interval of the median of times, by the rule of :func:`find_centre`, or None."""
    found = find_centre(np.log(np.asarray(times, dtype=float)), lasting=lasting)
    if found is None:
        return None
    middle = median(times)
    return min(math.exp(found.low), middle), max(math.exp(found.high), middle)


def _compare_apart(ours: Sequence[float], theirs: Sequence[float]) -> Difference:
    ratio = median(theirs) / median(ours)
    own, other = (find_centre(np.log(np.asarray(each, dtype=float))) for each in (ours, theirs))
    fewest = min(len(ours), len(theirs))
    if own is None or other is None:
        return Difference(ratio, 0.0, math.inf, MARGIN_APART, _tell_few(fewest))
    below = math.hypot(other.value - other.low, own.high - own.value)
    above = math.hypot(other.high - other.value, own.value - own.low)
    centre = other.value - own.value
    low, high = math.exp(centre - below), math.exp(centre + above)
    found = Difference(math.exp(centre), low, high, MARGIN_APART).about(ratio)
    return replace(found, why_not=_tell_lasting(fewest, min(own, other, key=_count)))


def _count(centre: Centre) -> float:
    return centre.independent


def _tell_few(count: int) -> str:
    epochs = "1 epoch is" if count == 1 else f"{count} epochs are"
    return f"{epochs} too few to show one; ask for more --epochs or --repeats"


def _tell_lasting(count: int, centre: Centre) -> str:
    """Return a clause if noise lasts so long that the samples are worth few independent ones."""
    if centre.independent >= FEWEST_PAIRS:
        return ""
    return (
        f"noise lasts over turns: {count} epochs say as much as {max(1.0, centre.independent):.0f} "
        f"independent ones"
    )


# --------------------------------------------------------------------------- noise that lasts


def find_centre(logs: FloatArray, *, lasting: bool = True) -> Centre | None:
    """Return the middle of a series (n,) in order of time.

    Return None if the series is too short or not finite. There are several noise models: fresh in
    each turn, lasting from turn to turn (AR(1) with a correlation in ``LASTING``), or a sum of
    both. For each model, generalised least squares give the middle and its error. The interval is
    the posterior's over models, flat in the middle and in the logarithm of the scale. Models with
    noise longer than the series begin with more weight, since the series cannot refute them.
    Without ``lasting`` values are independent, and the interval is Student's.
    """
    if len(logs) < (FEWEST_PAIRS if lasting else FEWEST_SEEDS) or not np.isfinite(logs).all():
        return None
    values = _limit(_shorten(logs)) if lasting else logs
    count = len(values)
    whitening, ones, independent, prior = _whiten(count, lasting)
    whitened = whitening @ values
    centres = (ones * whitened).sum(axis=1) / independent
    squares = (whitened**2).sum(axis=1) - independent * centres**2
    squares = np.maximum(squares, 1e-18)
    likelihood = prior - 0.5 * np.log(independent) - 0.5 * (count - 1) * np.log(squares)
    weights = np.exp(likelihood - likelihood.max())
    weights /= weights.sum()
    errors = np.sqrt(squares / ((count - 1) * independent))
    likely = weights > NEGLIGIBLE
    low, middle, high = _find_quantiles(weights[likely], centres[likely], errors[likely], count - 1)
    wider = 1.0 + WIDENED / count**2 if lasting else 1.0
    return Centre(
        middle,
        middle - wider * (middle - low),
        middle + wider * (high - middle),
        float(weights @ independent),
    )


def _shorten(values: FloatArray) -> FloatArray:
    """Return means of consecutive values, at most ``MOST_SAMPLES`` of them."""
    size = -(-len(values) // MOST_SAMPLES)
    count = len(values) // size
    means: FloatArray = values[len(values) - count * size :].reshape(count, size).mean(axis=1)
    return means


def _limit(values: FloatArray) -> FloatArray:
    """Clip values to ``MOST_DEVIATIONS`` from their median, by the median deviation."""
    middle = np.median(values)
    deviation = 1.4826 * MOST_DEVIATIONS * np.median(np.abs(values - middle))
    if not deviation:
        return values
    limited: FloatArray = np.clip(values, middle - deviation, middle + deviation)
    return limited


@functools.lru_cache(maxsize=8)
def _whiten(count: int, lasting: bool) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return four arrays over the noise models of ``count`` samples.

    They are the matrix (n, n) that makes the noise independent, and that matrix times ones (n,).
    Then come the number of independent samples that the series is worth, and the logarithm of the
    prior weight.
    """
    models = [(0.0, 0.0, 1.0)]
    for correlation in LASTING if lasting else ():
        turns = (1.0 + correlation) / (1.0 - correlation)
        weight = (1.0 + turns / (3.0 * count)) / len(FRESH)
        models += [(correlation, fresh, weight) for fresh in FRESH]
    turn = np.arange(count)
    apart = np.abs(turn[:, None] - turn)
    matrices, priors = [], []
    for correlation, fresh, weight in models:
        covariance = (1.0 - fresh) * correlation**apart + fresh * np.eye(count)
        root = np.linalg.cholesky(covariance)
        matrices.append(np.linalg.inv(root))
        priors.append(math.log(weight) - float(np.log(np.diag(root)).sum()))
    whitening = np.array(matrices)
    ones = whitening.sum(axis=2)
    return whitening, ones, (ones**2).sum(axis=1), np.array(priors)


def _find_quantiles(
    weights: FloatArray, centres: FloatArray, errors: FloatArray, degrees: int
) -> tuple[float, float, float]:
    """Return the lower end, median and upper end of a mixture of Student's distributions.

    It is integrated on a grid that is fine at the middle.
    """
    steps = np.sinh(np.linspace(-11.0, 11.0, 1001)) / 200.0
    grid = float(weights @ centres) + errors.max() * steps
    scaled = (grid - centres[:, None]) / errors[:, None]
    density = (weights / errors) @ (1.0 + scaled**2 / degrees) ** (-(degrees + 1) / 2.0)
    area = np.concatenate(([0.0], np.cumsum((density[1:] + density[:-1]) * np.diff(grid))))
    tail = (1.0 - CONFIDENCE) / 2.0
    low, middle, high = np.interp((tail, 0.5, 1.0 - tail), area / area[-1], grid)
    return float(low), float(middle), float(high)


def bound_tail(off: float, variance: float) -> float:
    """Return an upper bound of the logarithm of a two-sided tail probability of a sum.

    The probability is that the sum is at least ``off`` away from its mean. Its terms are
    independent, each at most 1 from its mean, with the ``variance`` together (Bennett 1962). A sum
    without variance is off by rounding alone.
    """
    if abs(off) <= 1e-6 * max(1.0, variance):
        return 0.0
    if variance <= 0:
        return -math.inf
    ratio = abs(off) / variance
    return min(0.0, math.log(2) - variance * ((1 + ratio) * math.log1p(ratio) - ratio))
