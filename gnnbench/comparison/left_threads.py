"""Threads that a row leaves behind after its epochs, which compute while others are at turn."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

#: How long threads are looked at after an epoch, and what one computes meanwhile that is at work:
#: one that is about to end takes less.
LOOK_S, WORKING_S = 1e-3, 2e-4
#: Of a row's epochs, after how many its threads may work on; and how many that are at least.
MOST_SHARE, LEAST_EPOCHS = 0.1, 2


class LeftThreads:
    """Python's threads that a row has begun and not ended, by the processor time that they take.

    An epoch's time is over when it returns. What a thread that goes on does then is in nobody's
    time, or in that of the row whose turn it is.
    """

    def __init__(self) -> None:
        self._spent_s: dict[threading.Thread, float] = {}
        self._turns = self._worked = 0

    @contextmanager
    def at_turn(self) -> Iterator[None]:
        """While the row trains an epoch: threads that begin within are its own."""
        others = set(threading.enumerate())
        worked = self._advanced()
        yield
        own = (set(threading.enumerate()) - others) | set(self._spent_s)
        self._note(own)
        if self._spent_s:
            time.sleep(LOOK_S)
            worked = self._advanced() or worked
            self._note(own)
        self._turns += 1
        self._worked += worked

    @property
    def fault(self) -> str:
        """What it left to others' turns, as a sentence; empty where that is nothing."""
        if self._worked < max(LEAST_EPOCHS, MOST_SHARE * self._turns):
            return ""
        return (
            f"threads that it began worked on after {self._worked} of its {self._turns} epochs, so "
            f"that its times leave out what they did; have them done before an epoch ends."
        )

    def _advanced(self) -> bool:
        """Whether any of the threads has computed since they were noted."""
        return any(
            (now := _spent_s(thread)) is not None and now - before > WORKING_S
            for thread, before in self._spent_s.items()
        )

    def _note(self, threads: set[threading.Thread]) -> None:
        self._spent_s = {
            thread: spent for thread in threads if (spent := _spent_s(thread)) is not None
        }


def _spent_s(thread: threading.Thread) -> float | None:
    """The processor time that a thread has taken; None of one that is over, and where the system
    does not say."""
    if thread.ident is None or not thread.is_alive() or not hasattr(time, "pthread_getcpuclockid"):
        return None
    try:
        return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
    except OSError:  # it has ended meanwhile
        return None
