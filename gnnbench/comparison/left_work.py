"""Work of a row's threads and processes outside its turns, while other rows have theirs."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

#: How long they are observed after an epoch, and the processor time in it that counts as working: a
#: thread that is about to end takes less.
LOOK_S, WORKING_S = 1e-3, 2e-4
#: They may work on after fewer epochs than this share of a row's epochs, or than this number.
MOST_SHARE, LEAST_EPOCHS = 0.1, 2


class LeftWork:
    """The processor time of Python threads and processes that a row has begun and not ended.

    The clock of an epoch stops when the epoch returns. Work that a thread does later counts in no
    row's time, or in the time of the row at turn. So it is counted as preparation, and a row that
    leaves such work repeatedly has no times. After an epoch all are observed for ``look_s``.
    """

    def __init__(self, look_s: float = LOOK_S) -> None:
        self._look_s = look_s
        #: Processor seconds, by clock.
        self._spent_s: dict[int, float] = {}
        self._turns = self._worked = 0
        #: Processor seconds that the row took outside its opening and its epochs.
        self.outside_s = 0.0
        #: Processor seconds that they took in the row's own epochs, beside its main thread.
        self.beside_s = 0.0

    @contextmanager
    def at_opening(self) -> Iterator[None]:
        """Attribute to the row the threads and processes that begin while it is opened."""
        others = list_clocks()
        yield
        self._note(list_clocks() - others)

    @contextmanager
    def at_turn(self) -> Iterator[None]:
        """Attribute to the row the threads and processes that begin while it trains an epoch."""
        others = list_clocks() - self._spent_s.keys()
        worked = self._advance() and self._turns > 0
        yield
        before_s = self._spent_s
        self._note(list_clocks() - others)
        self.beside_s += sum(now - before_s.get(key, 0.0) for key, now in self._spent_s.items())
        if self._spent_s:
            time.sleep(self._look_s)
            worked = self._advance() or worked
        self._turns += 1
        self._worked += worked

    @property
    def fault(self) -> str:
        """A sentence on the work left to others' turns; empty if there is none."""
        if self._worked < max(LEAST_EPOCHS, MOST_SHARE * self._turns):
            return ""
        return (
            f"its threads or processes kept working after {self._worked} of its {self._turns} "
            f"epochs, so its times are too short. Let them finish before an epoch ends."
        )

    def _advance(self) -> bool:
        """Add and note the time that all have computed; return whether any was working."""
        before_s = self._spent_s
        self._note(set(before_s))
        advanced_s = [now - before_s[clock] for clock, now in self._spent_s.items()]
        self.outside_s += sum(advanced_s)
        return max(advanced_s, default=0.0) > WORKING_S

    def _note(self, clocks: set[int]) -> None:
        self._spent_s = {clock: spent for clock in clocks if (spent := _read(clock)) is not None}


def list_clocks() -> set[int]:
    """Return the processor clocks, in Linux numbering, of Python threads and child processes.

    The set is empty on other systems. The clock of a process is the complement of its number,
    shifted, with the kind of clock below (``linux/posix-timers.h``).
    """
    if not hasattr(time, "pthread_getcpuclockid") or not sys.platform.startswith("linux"):
        return set()
    # None of these ends meanwhile: a thread gives up its frame under the interpreter's lock.
    threads = {time.pthread_getcpuclockid(thread) for thread in sys._current_frames()}
    return threads | {(~process << 3) | 2 for process in _list_processes("self")}


def _list_processes(parent: int | str) -> Iterator[int]:
    """Yield all descendants of a process."""
    for children in Path(f"/proc/{parent}/task").glob("*/children"):
        with suppress(OSError):
            for process in map(int, children.read_text().split()):
                yield process
                yield from _list_processes(process)


def _read(clock: int) -> float | None:
    """Return the seconds of a clock, or None if its thread or process has ended."""
    try:
        return time.clock_gettime(clock)
    except OSError:
        return None
