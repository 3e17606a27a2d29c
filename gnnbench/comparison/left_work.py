"""What a row's threads and processes compute outside its turns, while others are at turn."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

#: How long they are looked at after an epoch, and what one computes meanwhile that is at work: one
#: that is about to end takes less.
LOOK_S, WORKING_S = 1e-3, 2e-4
#: After how many of a row's epochs they may work on, as a share; and how many that are at least.
MOST_SHARE, LEAST_EPOCHS = 0.1, 2


class LeftWork:
    """Python's threads and the processes that a row has begun and not ended, by the processor time
    that they take.

    An epoch's time is over when it returns. What a thread that goes on does then is in nobody's
    time, or in that of the row whose turn it is. So it is counted as preparation, and a row that
    does so again and again has no times.
    """

    def __init__(self) -> None:
        #: Processor seconds by clock.
        self._spent_s: dict[int, float] = {}
        self._turns = self._worked = 0
        #: Seconds that the row took besides its opening and its epochs: processor time.
        self.outside_s = 0.0

    @contextmanager
    def at_opening(self) -> Iterator[None]:
        """While the row is opened: what begins within is its own."""
        others = list_clocks()
        yield
        self._note(list_clocks() - others)

    @contextmanager
    def at_turn(self) -> Iterator[None]:
        """While the row trains an epoch: what begins within is its own."""
        others = list_clocks() - self._spent_s.keys()
        worked = self._advance() and self._turns > 0
        yield
        self._note(list_clocks() - others)
        if self._spent_s:
            time.sleep(LOOK_S)
            worked = self._advance() or worked
            self._note(set(self._spent_s))
        self._turns += 1
        self._worked += worked

    @property
    def fault(self) -> str:
        """What it left to others' turns, as a sentence; empty where that is nothing."""
        if self._worked < max(LEAST_EPOCHS, MOST_SHARE * self._turns):
            return ""
        return (
            f"threads or processes that it began worked on after {self._worked} of its "
            f"{self._turns} epochs, so that its times leave out what they did; have them done "
            f"before an epoch ends."
        )

    def _advance(self) -> bool:
        """Add what all have computed since they were noted; whether any was at work."""
        advanced_s = [
            now - before
            for clock, before in self._spent_s.items()
            if (now := _read(clock)) is not None
        ]
        self.outside_s += sum(advanced_s)
        return max(advanced_s, default=0.0) > WORKING_S

    def _note(self, clocks: set[int]) -> None:
        self._spent_s = {clock: spent for clock in clocks if (spent := _read(clock)) is not None}


def list_clocks() -> set[int]:
    """The clocks of processor time of all threads that run Python, and of all processes that this
    one has begun, as Linux numbers them; empty elsewhere.

    The clock of a process is the complement of its number, shifted, with the kind of clock below
    (``linux/posix-timers.h``).
    """
    if not hasattr(time, "pthread_getcpuclockid") or not sys.platform.startswith("linux"):
        return set()
    # None of these ends meanwhile: a thread gives up its frame under the interpreter's lock.
    threads = {time.pthread_getcpuclockid(thread) for thread in sys._current_frames()}
    return threads | {(~process << 3) | 2 for process in _list_processes("self")}


def _list_processes(parent: int | str) -> Iterator[int]:
    """The processes that another has begun, and those that they have."""
    for children in Path(f"/proc/{parent}/task").glob("*/children"):
        with suppress(OSError):
            for process in map(int, children.read_text().split()):
                yield process
                yield from _list_processes(process)


def _read(clock: int) -> float | None:
    """Seconds of a clock; None where its thread or process has ended."""
    try:
        return time.clock_gettime(clock)
    except OSError:
        return None
