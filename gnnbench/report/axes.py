"""Axes of charts: where a value lies between two ends, and the round values to write beside it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

#: Most values that an axis names: they fit beside each other on a screen of 390 pixels.
MOST_TICKS = 6
#: From this ratio between its ends on, a logarithmic axis names 1, 2 and 5 times powers of ten.
_WIDE = 8.0


@dataclass(frozen=True, slots=True)
class Axis:
    """A range of values, linear or logarithmic, with the values that are written beside it."""

    low: float
    high: float
    ticks: tuple[float, ...]
    logarithmic: bool = False

    def share(self, value: float) -> float:
        """Return the place of a value: 0 at the lower end, 1 at the upper end, cut at both."""
        low, high = self.low, self.high
        if self.logarithmic:
            value, low, high = (math.log(max(each, self.low)) for each in (value, low, high))
        return min(1.0, max(0.0, (value - low) / (high - low)))


def scale_from_zero(most: float) -> Axis:
    """Return a linear axis from 0 to ``most``."""
    high = most if most > 0 else 1.0
    step = _round_step(high)
    count = int(high / step * (1 + 1e-9))
    return Axis(0.0, high, tuple(step * number for number in range(count + 1)))


def scale_between(values: Iterable[float], *, zero: bool = False) -> Axis:
    """Return a linear axis with round ends around finite values, and from 0 if ``zero``."""
    finite = [value for value in values if math.isfinite(value)] + [0.0] * zero
    low, high = min(finite, default=0.0), max(finite, default=1.0)
    if high <= low:
        low, high = low - 0.1 * abs(low), high + (0.1 * abs(high) or 1.0)
    step = _round_step(high - low)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = tuple(step * number for number in range(first, last + 1))
    return Axis(ticks[0], ticks[-1], ticks)


def scale_by_ratio(values: Iterable[float]) -> Axis:
    """Return a logarithmic axis around positive values, with a margin at both ends."""
    known = [value for value in values if math.isfinite(value) and value > 0] or [1.0]
    margin = max(1.03, (max(known) / min(known)) ** 0.04)
    low, high = min(known) / margin, max(known) * margin
    if high < _WIDE * low:
        step = _round_step(high - low)
        first = math.ceil(low / step)
        ticks = [step * number for number in range(first, int(high / step) + 1)]
    else:
        ticks = _list_powers(low, high)
    return Axis(low, high, tuple(ticks), logarithmic=True)


def _list_powers(low: float, high: float) -> list[float]:
    """Return 1, 2 and 5 times powers of ten, or fewer of them, at most ``MOST_TICKS``."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for factors in ((1, 2, 5), (1, 3), (1,)):
        found = [f * 10.0**power for power in powers for f in factors if low <= f * 10.0**power]
        found = [value for value in found if value <= high]
        if len(found) <= MOST_TICKS:
            return found
    return found[:: -(-len(found) // MOST_TICKS)]


def _round_step(most: float) -> float:
    """Return a step of 1, 2 or 5 times a power of ten with at most six steps from 0 to ``most``."""
    power = 10.0 ** math.floor(math.log10(most / MOST_TICKS))
    return next(power * factor for factor in (1, 2, 5, 10) if most <= MOST_TICKS * power * factor)
