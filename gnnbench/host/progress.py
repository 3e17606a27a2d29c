"""The work that a command has under way: one tree of tasks, and the receiver that is told of it.

Code that takes long wraps itself in :func:`doing`, or calls :func:`begin` and ``end`` if tasks
overlap. It needs no receiver: without one nothing happens. While times are measured, :func:`held`
keeps the receiver from working.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar, Protocol


class Progress(Protocol):
    """A receiver of progress; several tasks may be under way, each with its label.

    A comparison has a task for each row, of which ``total`` counts the epochs, and tasks for what
    comes before and after them.
    """

    def begin(self, label: str, total: float) -> None:
        """Announce a task of ``total`` steps."""

    def advance(self, label: str, steps: float) -> None:
        """Count ``steps`` of a task."""

    def end(self, label: str, status: str) -> None:
        """Announce the end of a task with its status."""


@dataclass(slots=True, eq=False)
class Task:
    """A task under way: ``done`` of ``total`` steps, and the tasks that are parts of it.

    ``began_s`` is the moment on the monotonic clock.
    """

    label: str
    total: float
    parent: Task | None = None
    done: float = 0.0
    parts: list[Task] = field(default_factory=list)
    began_s: float = field(default_factory=time.monotonic)

    @property
    def share(self) -> float:
        """The share of the task that is done, by its own steps and those of its parts."""
        begun = sum(each.share for each in self.parts)
        return min(1.0, (self.done + begun) / self.total) if self.total > 0 else 0.0

    @property
    def path(self) -> list[Task]:
        """The task after all that it is a part of, the whole first."""
        return [*(self.parent.path if self.parent else ()), self]

    def advance(self, steps: float = 1) -> None:
        """Count some steps."""
        self.done += steps
        _Here.latest = self
        if _Here.receiver is not None:
            _Here.receiver.advance(self.label, steps)

    def end(self, status: str = "done") -> None:
        """End the task; ending it twice changes nothing."""
        siblings = self.parent.parts if self.parent else _Here.roots
        if self in siblings:
            siblings.remove(self)
            _Here.latest = self.parent or (siblings[-1] if siblings else None)
            if _Here.receiver is not None:
                _Here.receiver.end(self.label, status)


class _Here:
    """The receiver, the tasks, the innermost one of :func:`doing`, and the one last heard of."""

    receiver: Progress | None = None
    roots: ClassVar[list[Task]] = []
    inner: Task | None = None
    latest: Task | None = None
    held = 0


def begin(label: str, total: float = 1) -> Task:
    """Begin a task of ``total`` steps, as a part of the innermost one of :func:`doing`."""
    task = Task(label, total, _Here.inner)
    (_Here.roots if task.parent is None else task.parent.parts).append(task)
    _Here.latest = task
    if _Here.receiver is not None:
        _Here.receiver.begin(label, total)
    return task


@contextmanager
def doing(label: str, total: float = 1) -> Iterator[Task]:
    """Begin a task, and end it after the block; tasks begun in the block are parts of it."""
    task, outer = begin(label, total), _Here.inner
    _Here.inner = task
    try:
        yield task
    finally:
        _Here.inner = outer
        task.end()


def note_steps(steps: float = 1) -> None:
    """Count steps of the innermost task of :func:`doing`, if there is one."""
    if _Here.inner is not None:
        _Here.inner.advance(steps)


@contextmanager
def shown_by(receiver: Progress | None) -> Iterator[None]:
    """Tell a receiver of all tasks in the block; None changes nothing."""
    before = _Here.receiver
    _Here.receiver = receiver or before
    try:
        yield
    finally:
        _Here.receiver = before


@contextmanager
def held() -> Iterator[None]:
    """Mark the block as timed: nothing may be shown meanwhile."""
    _Here.held += 1
    try:
        yield
    finally:
        _Here.held -= 1


def is_held() -> bool:
    """Return whether times are measured right now."""
    return _Here.held > 0


def find_latest() -> Task | None:
    """Return the task that was last heard of, if one is under way."""
    return _Here.latest
