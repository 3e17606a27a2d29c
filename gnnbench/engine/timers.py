"""How long something took on this machine: by the host's clock, or by events on a CUDA stream."""

from __future__ import annotations

import time
from typing import Any, Protocol

import torch

#: A moment, as a timer reads it: host seconds, or an event on a stream.
Moment = Any


class Timer(Protocol):
    """Reads moments; two of them make an interval on the host's monotonic clock."""

    def read(self) -> Moment: ...

    def between(self, first: Moment, last: Moment) -> tuple[float, float]:
        """When the interval began, in seconds of ``time.perf_counter``, and how long it was."""


class HostTimer:
    """For work that is over when the call returns."""

    #: Called for every span, twice: without a frame of its own.
    read = staticmethod(time.perf_counter)

    def between(self, first: Moment, last: Moment) -> tuple[float, float]:
        return first, last - first


class SynchronisedTimer(HostTimer):
    """Waits for everything on the current CUDA device before it reads the clock."""

    def read(self) -> Moment:
        torch.cuda.synchronize()
        return time.perf_counter()


class StreamTimer:
    """By events on one CUDA stream, so that other streams go on meanwhile.

    ``between`` waits for the last event: the caller goes on when its own work is done.
    """

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self._stream = stream
        # Both clocks at one moment: events then have a place on the host's.
        self._origin = self.read()
        self._origin.synchronize()
        self._origin_s = time.perf_counter()

    def read(self) -> Moment:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(self._stream)
        return event

    def between(self, first: Moment, last: Moment) -> tuple[float, float]:
        last.synchronize()
        began_s = self._origin_s + self._origin.elapsed_time(first) * 1e-3
        return began_s, first.elapsed_time(last) * 1e-3
