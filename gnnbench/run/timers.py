"""How long something took on this machine: by the host's clock, or by events on a CUDA stream."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol

import torch

#: A moment, as a timer reads it: host seconds, or an event on a stream.
Moment = Any


class Timer(Protocol):
    """Reads moments, and measures from one of them to now on the host's monotonic clock."""

    def read(self) -> Moment: ...

    def since(self, first: Moment) -> tuple[float, float]:
        """When ``first`` was, in seconds of ``time.perf_counter``, and how long ago."""


class HostTimer:
    """For work that is over when the call returns."""

    #: Called for every span: without a frame of its own.
    read = staticmethod(time.perf_counter)

    def since(self, first: Moment) -> tuple[float, float]:
        return first, time.perf_counter() - first


class SynchronisedTimer(HostTimer):
    """Waits for everything on some devices before it reads the clock: CUDA ones, or others that
    torch has a module of."""

    def __init__(self, devices: Sequence[torch.device]) -> None:
        self._devices = devices

    def read(self) -> Moment:
        for device in self._devices:
            getattr(torch, device.type).synchronize(device)
        return time.perf_counter()

    def since(self, first: Moment) -> tuple[float, float]:
        return first, self.read() - first


class StreamTimer:
    """By events on one CUDA stream, so that other streams go on meanwhile.

    ``since`` waits for its last event: the caller goes on when its own work is done.
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

    def since(self, first: Moment) -> tuple[float, float]:
        last = self.read()
        last.synchronize()
        began_s = self._origin_s + self._origin.elapsed_time(first) * 1e-3
        return began_s, first.elapsed_time(last) * 1e-3
