"""Durations on this machine, by the host's clock."""

from __future__ import annotations

import time
from typing import Any, Protocol

#: A moment, as a timer reads it: host seconds, or an event on a stream.
Moment = Any


class Timer(Protocol):
    """A timer that reads moments, and measures from a moment to now on the host's clock.

    The clock is monotonic.
    """

    def read(self) -> Moment:
        """Return this moment."""

    def since(self, first: Moment) -> tuple[float, float]:
        """Return when ``first`` was, in seconds of ``time.perf_counter``, and how long ago."""


class HostTimer:
    """The timer of work that is over when the call returns."""

    #: Called for every span, so without a Python frame.
    read = staticmethod(time.perf_counter)

    def since(self, first: Moment) -> tuple[float, float]:
        """Return a moment in seconds, and the seconds since then."""
        return first, time.perf_counter() - first
