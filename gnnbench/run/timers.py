"""Durations on this machine, by the host's clock or by events on a CUDA stream."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol

import torch

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
        return first, time.perf_counter() - first


class SynchronisedTimer(HostTimer):
    """A timer that waits for all work on some devices before it reads the clock.

    They are CUDA devices, or others for which torch has a module.
    """

    def __init__(self, devices: Sequence[torch.device]) -> None:
        self._devices = devices

    def read(self) -> Moment:
        for device in self._devices:
            getattr(torch, device.type).synchronize(device)
        return time.perf_counter()

    def since(self, first: Moment) -> tuple[float, float]:
        return first, self.read() - first


class StreamTimer:
    """A timer by events on one CUDA stream, while other streams continue.

    ``since`` waits for its last event: the caller continues when its own work is done.
    """

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self._stream = stream
        # Both clocks at one moment, so that events have a time on the host's clock.
        self._origin = self.read()
        self._origin.synchronize()
        self._origin_s = time.perf_counter()

    def read(self) -> Moment:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(self._stream)
        return event

    def since(self, first: Moment) -> tuple[float, float]:
        last = self.read()
        last.synchronize()
        began_s = self._origin_s + self._origin.elapsed_time(first) * 1e-3
        return began_s, first.elapsed_time(last) * 1e-3
