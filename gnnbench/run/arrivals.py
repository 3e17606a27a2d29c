"""What is on its way here while steps go on, and who has to wait for it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from gnnbench.platforms.machine import Link, Platform
from gnnbench.program import Step
from gnnbench.run.recorder import HOST, Recorder
from gnnbench.run.timers import Moment


class Pending(Protocol):
    """Something that arrives here."""

    def wait(self) -> object:
        """It, once it is here."""


class _Arrival(NamedTuple):
    """What is on its way since a moment, by the number of its step; ``receive`` is handed it."""

    number: int
    since: Moment
    pending: Pending
    receive: Callable[[object], None]


class Arrivals:
    """Puts in its place what arrives, in the order of the program, when the first step that waits
    for it, directly or through others, is about to be taken.

    ``lasted_s`` says of the numbers of its steps how long each was under way.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.start()

    def start(self) -> None:
        """Begin an epoch."""
        #: By the number of a step, that of the last arrival that has to be in its place before
        #: those that wait for the step.
        self._reach: list[int] = []
        self._under_way: deque[_Arrival] = deque()
        self._numbers: set[int] = set()
        self.lasted_s: dict[int, float] = {}

    def add(self, number: int, pending: Pending, receive: Callable[..., None]) -> None:
        """What the step of this number brings is under way from now on."""
        self._under_way.append(_Arrival(number, HOST.read(), pending, receive))
        self._numbers.add(number)

    def arrive(self, after: Sequence[int], *, needed: bool) -> None:
        """The next step waits for steps of these numbers; where it is ``needed`` here what they
        bring is put in place."""
        reach, numbers = -1, self._numbers
        for earlier in after:
            reach = max(reach, earlier if earlier in numbers else self._reach[earlier])
        self._reach.append(reach)
        if needed and self._under_way and self._under_way[0].number <= reach:
            self.place(reach)

    def place(self, last: int) -> None:
        """Put in place what arrives, up to a step's number."""
        with self._recorder.inside_part():
            while self._under_way and self._under_way[0].number <= last:
                arrival = self._under_way.popleft()
                arrived = arrival.pending.wait()
                _, self.lasted_s[arrival.number] = HOST.since(arrival.since)
                arrival.receive(arrived)

    def finish(self) -> None:
        """Put in place all that is still on its way."""
        self.place(len(self._reach))

    def abandon(self) -> None:
        """Let everything come that is on its way, for nobody."""
        while self._under_way:
            self._under_way.popleft().pending.wait()


class Until:
    """Arrives at a moment of ``time.monotonic``."""

    def __init__(self, moment_s: float) -> None:
        self._moment_s = moment_s

    def wait(self) -> None:
        rest_s = self._moment_s - time.monotonic()
        if rest_s > 0.0:
            time.sleep(rest_s)


class Lanes:
    """When what is sent over a lane of a limited bandwidth is through; one after the other."""

    def __init__(self) -> None:
        self._free_s: dict[object, float] = {}

    def send(self, lane: object, size_bytes: int, bytes_per_s: float) -> float:
        """The moment of ``time.monotonic`` at which what leaves now has crossed."""
        begins_s = max(time.monotonic(), self._free_s.get(lane, 0.0))
        self._free_s[lane] = begins_s + size_bytes / bytes_per_s
        return self._free_s[lane]


class LimitedLinks:
    """The limited links between a host and the devices of this process: what a step moves there is
    in its place in no time, and counts as under way for as long as the link takes."""

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
        """A step has been taken here; what it moves over a limited link is under way."""
        link = self._links.get(step.place)
        if link is None:
            return
        crossed_s = self._lanes.send(step.resources[0], step.work.bytes, link.bandwidth_bytes_per_s)
        self._arrivals.add(number, Until(crossed_s), _ignore)
        if link.blocking:
            self._arrivals.place(number)


def _ignore(_: object) -> None:
    """What has crossed a limited link is in its place already."""
