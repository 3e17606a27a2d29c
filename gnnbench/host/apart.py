"""Work in a child process: it can be ended at once, and its memory is gone when it has ended."""

from __future__ import annotations

import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn


class ChildFailedError(Exception):
    """A child that failed or was killed; the text says why."""


def call_apart(work: Callable[[], bytes]) -> bytes:
    """Return the result of ``work`` in a forked child, which has ended when this returns or raises.

    The child has none of this process's threads. Raises ``ChildFailedError``.
    """
    reading, writing = os.pipe()
    child = ended = 0
    with open(reading, "rb") as pipe:
        try:
            try:
                with _deferring_signals(), warnings.catch_warnings():
                    warnings.simplefilter("ignore", DeprecationWarning)  # about threads
                    child = os.fork()
                    if not child:
                        os.close(reading)
                        _answer(writing, work)
            finally:
                os.close(writing)
            answer = pipe.read()
        except BaseException:
            if child:
                os.kill(child, signal.SIGKILL)
            raise
        finally:
            if child:
                ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if ended:
        said = answer.decode(errors="replace") if ended > 0 else signal.Signals(-ended).name
        raise ChildFailedError(said)
    return answer


@contextmanager
def _deferring_signals() -> Iterator[None]:
    """Defer signals that arrive in the body until its end.

    Nothing is raised between a fork and the assignment of the child's id. A signal mask is not
    enough: this thread also handles signals that another thread receives.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # handlers run in the main thread
        return
    came: list[int] = []
    both = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    # A handler that Python has not installed cannot be restored, and raises nothing.
    handlers = {number: handler for number, handler in both.items() if handler is not None}
    for number in handlers:
        signal.signal(number, lambda which, _: came.append(which))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for which in came:
            signal.raise_signal(which)


def _answer(writing: int, work: Callable[[], bytes]) -> NoReturn:  # pragma: no cover - in the child
    """Write the result, or why there is none, and end this process."""
    failed = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.dup2(2, 1)  # libraries print their errors
        with open(writing, "wb") as pipe:
            try:
                pipe.write(work())
                failed = 0
            except Exception as error:
                pipe.write(f"{type(error).__name__}: {error}".encode())
    finally:
        os._exit(failed)
