"""Ctrl-C, SIGTERM and SIGHUP end the command in one sentence: with status 130, 143 and 129, and no
traceback.

All arrive as ``KeyboardInterrupt``, so that whatever cleans up after one does after the others.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from types import FrameType
from typing import NoReturn

from gnnbench.rank import end, is_watched

#: What a command is that each signal has ended. A terminal that closes sends SIGHUP.
WORDS = {
    signal.SIGINT: "interrupted",
    signal.SIGTERM: "terminated",
    signal.SIGHUP: "its terminal was closed",
}
#: A second signal after this long ends the process whatever it is doing; some senders send two.
INSIST_S = 1.0
#: Until an interrupt that could not be raised is tried once more.
AGAIN_S = 0.02
#: An import that lasts longer is interrupted after all.
IMPORT_S = 10.0


class _Came:
    """The first signal that came, and when; whether there is something to clean up after it, and
    whether people were told."""

    number: int | None = None
    at_s = 0.0
    in_work = False
    said = False


def take() -> None:
    """Have the signals end this process in order; they stay ignored where they are."""
    for number in WORDS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _interrupt)
    signal.signal(signal.SIGALRM, _raise_or_defer)
    sys.unraisablehook = _raise_again


def begin_work() -> None:
    """From here on there may be files and processes that an end must clean up."""
    _Came.in_work = True


def has_come() -> bool:
    """Whether one of the signals has come, and so an error may be its doing."""
    return _Came.number is not None


def is_interrupt(error: BaseException) -> bool:
    """Whether an error is the user's Ctrl-C or SIGTERM, and no ``KeyboardInterrupt`` that foreign
    code raises by itself."""
    own = signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    return isinstance(error, KeyboardInterrupt) and (has_come() or not own)


def status() -> int:
    """What an interrupted command exits with, which is a shell's for the signal."""
    return 128 + (_Came.number or signal.SIGINT)


def say(where: str = "") -> int:
    """Tell people, once, that the command was ended, and ``where``; its exit status."""
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    told, _Came.said = _Came.said, has_come()
    # A rank is ended by the command that started it, which says why.
    if not (told or is_watched()):
        word = WORDS[signal.Signals(_Came.number or signal.SIGINT)]
        with contextlib.suppress(OSError):  # the terminal may be gone
            print(f"gnnbench: error: {word}{where}.", file=sys.stderr, flush=True)
    return status()


def leave(code: int) -> NoReturn:
    """Exit: nothing is interrupted any more, since all has been said."""
    if signal.getsignal(signal.SIGINT) == _interrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
    end(code)


def _interrupt(number: int, frame: FrameType | None) -> None:
    if _Came.number is None:
        _Came.number, _Came.at_s = number, time.monotonic()
        _raise_or_defer(number, frame)
    elif time.monotonic() - _Came.at_s > INSIST_S:
        os._exit(say())


def _raise_or_defer(_: int, frame: FrameType | None) -> None:
    """Raise the interrupt, but not within an import: some libraries take whatever is raised there
    for something missing, and go on without it. Before work has begun nothing is lost by leaving
    at once; else the import is awaited."""
    if not _is_importing(frame) or time.monotonic() - _Came.at_s > IMPORT_S:
        raise KeyboardInterrupt
    if not _Came.in_work:
        os._exit(say())
    signal.setitimer(signal.ITIMER_REAL, AGAIN_S)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def _raise_again(unraisable: sys.UnraisableHookArgs) -> None:
    """An interrupt that came where nothing may be raised, as in a finaliser, is raised soon after;
    all else that ends there is shown as usual."""
    if isinstance(unraisable.exc_value, KeyboardInterrupt):
        signal.setitimer(signal.ITIMER_REAL, AGAIN_S)
    else:
        sys.__unraisablehook__(unraisable)
