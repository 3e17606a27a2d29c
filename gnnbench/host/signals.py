"""Signals: Ctrl-C, SIGTERM and SIGHUP end the command in one sentence, without a traceback.

The status is 130, 143 and 129. All three are raised as ``KeyboardInterrupt``, so any clean-up after
one also happens after the others.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

from gnnbench.host.rank import end, is_watched

#: The word for a command's end by each signal. A terminal that closes sends SIGHUP.
WORDS = {
    signal.SIGINT: "interrupted",
    signal.SIGTERM: "terminated",
    signal.SIGHUP: "its terminal was closed",
}
#: A second signal after this time ends the process at once; some senders send two.
INSIST_S = 1.0
#: How long a rank may take to end after a signal.
ENDING_S = 5.0
#: The delay before an interrupt that could not be raised is tried again.
AGAIN_S = 0.02


class _Came:
    """The first signal that came, its time, and whether the user was told."""

    number: int | None = None
    at_s = 0.0
    said = False
    #: When it came, if a thread watches: the main thread may take it much later.
    arrived_s: float | None = None
    #: Returns the moment and the sentence of a fault elsewhere that this process ends for, if any.
    find_fault: Callable[[], tuple[float, str] | None] = staticmethod(lambda: None)
    #: Returns a clause on what the user can do next, or nothing.
    find_hint: Callable[[], str] = staticmethod(lambda: "")


def take() -> None:
    """Install the handlers that end this process in order; ignored signals stay ignored."""
    for number in WORDS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _interrupt)
    signal.signal(signal.SIGALRM, _raise)
    sys.unraisablehook = _raise_again


def insist() -> None:
    """End this process soon after a signal, even if its main thread waits in a library.

    Such a wait returns only when it is over, and Python takes no signal before.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)

    def wait() -> None:
        number = 0
        while number not in WORDS:
            number = os.read(reading, 1)[0]
        _Came.arrived_s = time.monotonic()
        time.sleep(ENDING_S)
        _Came.number = _Came.number or number
        cause = find_cause()
        if cause is not None and not is_watched():
            print(f"gnnbench: error: {cause}", file=sys.stderr, flush=True)
            os._exit(3)
        os._exit(say())

    threading.Thread(target=wait, name="signals", daemon=True).start()


def explain_by(find_fault: Callable[[], tuple[float, str] | None]) -> None:
    """Have :func:`find_cause` ask for faults elsewhere, each with its moment and a sentence."""
    _Came.find_fault = staticmethod(find_fault)


def hint_by(find_hint: Callable[[], str]) -> None:
    """Have :func:`say` add the clause that ``find_hint`` returns."""
    _Came.find_hint = staticmethod(find_hint)


def find_cause() -> str | None:
    """Return the fault elsewhere for which this process was sent a signal: one that came before."""
    fault, came_s = _Came.find_fault(), _Came.arrived_s or _Came.at_s
    return fault[1] if fault is not None and fault[0] < came_s else None


def forget() -> None:
    """Forget the signal, because an error says why this process ends."""
    _Came.number = None


def has_come() -> bool:
    """Return whether one of the signals has come, so that it may have caused an error."""
    return _Came.number is not None


def is_interrupt(error: BaseException) -> bool:
    """Return whether an error is the user's Ctrl-C or SIGTERM.

    Foreign code may raise ``KeyboardInterrupt``, too, which does not count.
    """
    own = signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    return isinstance(error, KeyboardInterrupt) and (has_come() or not own)


def status() -> int:
    """Return the exit status of an interrupted command, which is a shell's for the signal."""
    return 128 + (_Came.number or signal.SIGINT)


def say(where: str = "") -> int:
    """Tell the user, once, that the command was ended, and ``where``; return its exit status."""
    told, _Came.said = _Came.said, has_come()
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    # The command that started a rank ends it, and says why.
    if not (told or is_watched()):
        word = WORDS[signal.Signals(_Came.number or signal.SIGINT)]
        with contextlib.suppress(OSError):  # the terminal may be gone
            hint = _Came.find_hint()
            print(f"gnnbench: error: {word}{where}{hint}.", file=sys.stderr, flush=True)
    return status()


def leave(code: int) -> NoReturn:
    """Exit without further interrupts, since everything has been printed."""
    if signal.getsignal(signal.SIGINT) == _interrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
    end(code, interrupted=has_come())


def _interrupt(number: int, frame: FrameType | None) -> None:
    if _Came.number is None:
        _Came.number, _Came.at_s = number, time.monotonic()
        _raise(number, frame)
    elif time.monotonic() - _Came.at_s > INSIST_S:
        os._exit(say())


def _raise(_: int, __: FrameType | None) -> None:
    if not _Came.said:  # the process may be about to leave
        raise KeyboardInterrupt


def _raise_again(unraisable: sys.UnraisableHookArgs) -> None:
    """Raise again soon an interrupt that came where nothing may be raised, such as in a finaliser.

    Show any other exception there as usual.
    """
    if isinstance(unraisable.exc_value, KeyboardInterrupt):
        signal.setitimer(signal.ITIMER_REAL, AGAIN_S)
    else:
        sys.__unraisablehook__(unraisable)
