"""The wall clock: the time that this machine took for a span, or takes for a call."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

from gnnbench.records import Provenance, Work


class WallClock:
    """The clock for platforms with only real devices, on this machine."""

    provenance: Provenance = "measured"

    def seconds(self, work: Work, place: str, wall_s: float) -> float:
        """Return the measured duration, whatever the work."""
        return wall_s


class CallTimer:
    """The timer of calls for a study (``gnnbench.studies.Timer``).

    It gives the median of up to five calls, of fewer if they take more than a second together.
    """

    CALLS = 5
    ENOUGH_S = 1.0

    def measure(self, work: Callable[[], object]) -> float:
        samples: list[float] = []
        while len(samples) < self.CALLS and sum(samples) < self.ENOUGH_S:
            began_s = time.perf_counter()
            work()
            samples.append(time.perf_counter() - began_s)
        return median(samples)
