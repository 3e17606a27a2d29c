"""The line on standard error that says what a command does, how far it is, and how long it takes.

On a terminal one line is written over again. Elsewhere, such as in a log, a line is added now and
then. Nothing is written while times are measured (:func:`gnnbench.host.progress.held`).
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from types import TracebackType

from gnnbench.host import progress
from gnnbench.host.progress import Task

#: A command that ends sooner writes no line.
FIRST_S = 1.0
#: Seconds between two lines on a terminal, and elsewhere.
AGAIN_S, AGAIN_IN_LOG_S = 0.5, 10.0
#: No time is estimated before this share of the work is done, or so soon.
LEAST_SHARE, LEAST_S = 0.02, 2.0
#: If this is set and not empty, nothing is shown.
QUIET = "GNNBENCH_QUIET"
#: Moves to the start of the terminal's line and clears it.
_CLEAR = "\r\x1b[2K"


class _Shown:
    """The line of the running command."""

    line: StatusLine | None = None


class StatusLine:
    """A receiver of progress that writes a line; a thread writes it where no task advances."""

    def __init__(self, command: str) -> None:
        self._command = command
        self._stream = sys.stderr
        self._began_s = time.monotonic()
        self._due_s = self._began_s + FIRST_S
        self._on_terminal = _is_terminal()
        # Rank 0 speaks for all of them.
        mute = bool(os.environ.get(QUIET)) or os.environ.get("RANK", "0") != "0"
        self._quiet = mute or self._stream is None
        self._drawn = self._broken = False
        self._lock = threading.RLock()
        self._over = threading.Event()

    def __enter__(self) -> StatusLine:
        _Shown.line = self
        if not self._quiet:
            threading.Thread(target=self._tick, name="progress", daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Remove the line, and write none from now on."""
        self._quiet = True
        self._over.set()
        self.clear()

    def begin(self, label: str, total: float) -> None:
        """Write the line if it is time to."""
        self._draw()

    def advance(self, label: str, steps: float) -> None:
        """Write the line if it is time to."""
        self._draw()

    def end(self, label: str, status: str) -> None:
        """Write the line if it is time to."""
        self._draw()

    def clear(self, *, broken: bool = False) -> None:
        """Make room for other output; a ``broken`` one is in the middle of its line."""
        with self._lock:
            self._broken = broken
            if self._drawn:
                self._drawn = False
                self._write(_CLEAR)

    def look(self) -> None:
        """Write the line if it is time to, unless times are measured right now."""
        if not progress.is_held():
            self._draw()

    def _tick(self) -> None:
        while not self._over.wait(AGAIN_S):
            self.look()

    def _draw(self) -> None:
        now_s = time.monotonic()
        if self._quiet or now_s < self._due_s:
            return
        with self._lock:
            if self._broken or now_s < self._due_s:
                return
            text = describe(self._command, progress.find_latest(), self._began_s, now_s)
            if self._on_terminal:
                text = f"{_CLEAR}{text[: _find_width()]}"
            self._write(text if self._on_terminal else f"{text}\n")
            self._drawn = self._on_terminal
            self._due_s = now_s + (AGAIN_S if self._on_terminal else AGAIN_IN_LOG_S)

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # the terminal may be gone
            self._stream.write(text)
            self._stream.flush()


def make_room(text: str = "\n") -> None:
    """Clear the line of the running command, if there is one, before ``text`` is written."""
    if _Shown.line is not None:
        _Shown.line.clear(broken=not text.endswith("\n"))


def silence() -> None:
    """Write no line from now on: the output follows, or other processes have the word."""
    if _Shown.line is not None:
        _Shown.line.stop()


def describe(command: str, task: Task | None, began_s: float, now_s: float) -> str:
    """Return what a command does, how far it is, and the time that it takes, in ASCII.

    The whole comes first, then its innermost part. The rest is estimated from the share of the
    outermost task with several steps. Both times are on the monotonic clock.
    """
    path = [] if task is None else task.path
    shown = [path[0], path[-1]] if len(path) > 1 else path
    words = [_describe_task(each) for each in shown] or ["working"]
    told = f"{tell_seconds(now_s - began_s)} so far"
    counted = next((each for each in path if each.total > 1), None)
    if counted is not None and counted.share >= LEAST_SHARE:
        took_s = now_s - counted.began_s
        if took_s >= LEAST_S:
            told += f", about {tell_seconds(took_s * (1.0 / counted.share - 1.0))} left"
    line = f"{command}: {', '.join(words)}; {told}"
    return "".join(each if " " <= each <= "~" else "?" for each in line)


def _describe_task(task: Task) -> str:
    if task.total <= 1:
        return task.label
    if task.total > 1000:  # bytes or edges
        return f"{task.label} {min(1.0, task.done / task.total):.0%}"
    return f"{task.label} {task.done:.0f}/{task.total:.0f}"


def tell_seconds(seconds: float) -> str:
    """Return ``"12 s"``, ``"3 min"`` or ``"2.5 h"``."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5970 else f"{seconds / 3600:.1f} h"


def _is_terminal() -> bool:
    stream = sys.stderr
    return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"


def _find_width() -> int:
    """Return the columns of the terminal that a line may fill."""
    try:
        columns = os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError):
        columns = 0
    return (columns or 80) - 1
