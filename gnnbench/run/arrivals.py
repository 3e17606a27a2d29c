"""Transfers in flight to this process while steps go on, and the steps that wait for them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from gnnbench.machines.machine import Link, Platform
from gnnbench.program import Step
from gnnbench.run.recorder import HOST, Recorder
from gnnbench.run.timers import Moment


class Pending(Protocol):
    """Data that arrives here."""

    def wait(self) -> object:
        """Return the data, once it is here."""


class _Arrival(NamedTuple):
    """Data in flight since a moment, by the number of its step; ``receive`` takes the data."""

    number: int
    since: Moment
    pending: Pending
    receive: Callable[[object], None]


class Arrivals:
    """The arriving data of an epoch, put in place in the order of the program.

    Data is put in place when the first step that depends on it, directly or through others, is
    about to be taken. ``lasted_s`` has the seconds that each step's data was in flight, by step
    number.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.start()

    def start(self) -> None:
        """Begin an epoch."""
        #: By the number of a step, the number of the last arrival that must be in place before
        #: the steps that wait for it.
        self._reach: list[int] = []
        self._under_way: deque[_Arrival] = deque()
        self._numbers: set[int] = set()
        self.lasted_s: dict[int, float] = {}

    def add(self, number: int, pending: Pending, receive: Callable[..., None]) -> None:
        """Mark the data of a step as in flight from now on."""
        self._under_way.append(_Arrival(number, HOST.read(), pending, receive))
        self._numbers.add(number)

    def arrive(self, after: Sequence[int], *, needed: bool) -> None:
        """Prepare for the next step, which waits for the steps with the numbers ``after``.

        If the step is ``needed`` here, the data of those steps is put in place.
        """
        reach, numbers = -1, self._numbers
        for earlier in after:
            reach = max(reach, earlier if earlier in numbers else self._reach[earlier])
        self._reach.append(reach)
        if needed and self._under_way and self._under_way[0].number <= reach:
            self.place(reach)

    def place(self, last: int) -> None:
        """Put arriving data in place, up to the step with number ``last``."""
        with self._recorder.inside_part():
            while self._under_way and self._under_way[0].number <= last:
                arrival = self._under_way.popleft()
                arrived = arrival.pending.wait()
                _, self.lasted_s[arrival.number] = HOST.since(arrival.since)
                arrival.receive(arrived)

    def finish(self) -> None:
        """Put in place all data that is still in flight."""
        self.place(len(self._reach))

    def abandon(self) -> None:
        """Wait for all data that is in flight, and drop it."""
        while self._under_way:
            self._under_way.popleft().pending.wait()


class Until:
    """An arrival at a moment of ``time.monotonic``."""

    def __init__(self, moment_s: float) -> None:
        self._moment_s = moment_s

    def wait(self) -> None:
        """Sleep until the moment, unless it is over."""
        rest_s = self._moment_s - time.monotonic()
        if rest_s > 0.0:
            time.sleep(rest_s)


class Lanes:
    """The times at which lanes of limited bandwidth are free; each sends one message at a time."""

    def __init__(self) -> None:
        self._free_s: dict[object, float] = {}

    def send(self, lane: object, size_bytes: int, bytes_per_s: float) -> float:
        """Return the moment of ``time.monotonic`` at which data that leaves now has crossed."""
        begins_s = max(time.monotonic(), self._free_s.get(lane, 0.0))
        self._free_s[lane] = begins_s + size_bytes / bytes_per_s
        return self._free_s[lane]


class LimitedLinks:
    """The limited links between a host and the devices of this process.

    A step's data is copied at once, and counts as in flight for as long as the link takes.
    """

    def __init__(self, platform: Platform, arrivals: Arrivals) -> None:
        ends = platform.host.name
        self._links: Mapping[str, Link] = {
            link.name: link for link in platform.links if link.limited and ends in link.ends
        }
        self._arrivals = arrivals
        self._lanes = Lanes()

    def __bool__(self) -> bool:
        return bool(self._links)

    def leave(self, step: Step, number: int) -> None:
        """Mark the data of a step as in flight on its link, if the link is limited."""
        link = self._links.get(step.place)
        if link is None:
            return
        crossed_s = self._lanes.send(step.resources[0], step.work.bytes, link.bandwidth_bytes_per_s)
        self._arrivals.add(number, Until(crossed_s), _ignore)
        if link.blocking:
            self._arrivals.place(number)


def _ignore(_: object) -> None:
    """Do nothing: data that crossed a limited link is in place already."""
