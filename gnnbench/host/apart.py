"""Work in a child process: it can be ended at once, and its memory is gone when it has ended."""

from __future__ import annotations

import multiprocessing
import os
import signal
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection


class ChildFailedError(Exception):
    """A child that failed or was killed; the text says why."""


def call_apart(work: Callable[[], bytes]) -> bytes:
    """Return the result of ``work`` in a forked child, which has ended when this returns or raises.

    The child has none of this process's threads. Raises ``ChildFailedError``.
    """
    context = multiprocessing.get_context("fork")
    reading, writing = context.Pipe(duplex=False)
    child = context.Process(target=_answer, args=(writing, work))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # about threads
        child.start()
    writing.close()
    answer, said = b"", ""
    with reading:
        try:
            answer, said = reading.recv()
        except EOFError:
            child.join()
            status = child.exitcode or 0
            said = signal.Signals(-status).name if status < 0 else f"status {status}"
        except BaseException:
            child.kill()
            raise
        finally:
            child.join()
    if said:
        raise ChildFailedError(said)
    return answer


def _answer(writing: Connection, work: Callable[[], bytes]) -> None:  # pragma: no cover - a child
    """Send the result, and why there is none."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.dup2(2, 1)  # libraries print their errors
    try:
        writing.send((work(), ""))
    except Exception as error:
        writing.send((b"", f"{type(error).__name__}: {error}"))
