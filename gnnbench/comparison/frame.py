"""The frame of a row's run: its three steps, what they have in common, and how it fails.

A row of parts and a whole program differ in what they do at each step (:class:`RowSteps`). An
exception there, ``SystemExit`` included, ends its own run and no other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from gnnbench.comparison.left_work import LeftWork
from gnnbench.comparison.machine import Throttled
from gnnbench.comparison.orders import seeded
from gnnbench.comparison.plain import Shared
from gnnbench.comparison.process_state import ProcessState, RandomStreams
from gnnbench.comparison.request import PlannedRow, Request, Row
from gnnbench.comparison.yardstick import Paces
from gnnbench.errors import (
    DeviceOutOfMemoryError,
    GnnbenchError,
    MissingDependencyError,
    StageFailedError,
    words_of,
)
from gnnbench.host import progress
from gnnbench.host.progress import Task
from gnnbench.parts import Setting
from gnnbench.plugins import Registry
from gnnbench.records import RunResult, Status
from gnnbench.run.collectives import PeerLostError, Processes

T = TypeVar("T")

#: When times are measured and epochs are short, a run continues after its last training epoch until
#: it has this many samples or they have taken this long. The reported model is the one before.
#: On an idle machine, whose epochs vary by a few percent, 30 pairs show a difference of a tenth.
#: Under other load, where pairs differ by a fifth, 30 show it once in four times, and 100 nearly
#: always (``suites.verdicts``). Ten seconds have eight pairs of epochs of a second, the fewest that
#: show anything, and a hundred of a tenth of one.
ENOUGH_SAMPLES = 100
ENOUGH_S = 10.0
#: Parts of a run that its progress counts: opened, trained, checked.
PHASES = 3


@dataclass(frozen=True, slots=True)
class Scene:
    """State that all runs of a comparison share. ``processes`` are the ranks; this is the first.

    ``whole`` is the comparison as a task, of ``PHASES`` steps a run. ``shared`` is what plain
    training of all rows has in common. ``state`` are the settings of the process before the first
    run.
    """

    request: Request
    registry: Registry
    setting: Setting
    whole: Task
    processes: Processes | None = None
    shared: Shared = field(default_factory=Shared)
    state: ProcessState = field(default_factory=ProcessState)


class RunState:
    """What a run's frame and its steps share.

    ``setting`` has the seed of the repeat. ``reached`` is the number of epochs to the target
    accuracy, None before. ``accuracy`` is that of the last epoch that was asked for. ``left`` names
    the settings of the process that had to be restored.
    """

    def __init__(self, scene: Scene, row: Row, repeat: int) -> None:
        self.scene, self.row, self.repeat = scene, row, repeat
        self.setting = seeded(scene.setting, scene.request, repeat)
        self.paces = Paces(self.setting)
        self.left_work, self.throttled = LeftWork(), Throttled()
        self.reached: int | None = None
        self.accuracy: Mapping[str, float] = {}
        self.left: dict[str, None] = {}

    @property
    def name(self) -> str:
        """The label and the mode."""
        return f"{self.row.label} ({self.row.mode})"

    @property
    def epochs(self) -> int:
        """The epochs that were asked for."""
        return self.setting.workload.epochs

    def restore(self) -> None:
        """Restore the settings of the process that the row has changed."""
        self.left.update(dict.fromkeys(self.scene.state.restore()))

    def note_target(self) -> list[str]:
        """Return a note if there is a target accuracy and it was not reached."""
        target = self.scene.request.target_accuracy
        if target is None or self.reached is not None:
            return []
        return [f"validation accuracy {target:g} was not reached in {self.epochs} epochs"]


class RowSteps(Protocol):
    """What a kind of row does at each step; ``skips`` are errors that say that it cannot run."""

    skips: tuple[type[BaseException], ...]

    @property
    def measured(self) -> bool:
        """Whether its times are measured; known once it is open."""

    @property
    def alive(self) -> bool:
        """Whether it is open."""

    @property
    def held_bytes(self) -> int:
        """The bytes that it holds of this machine's memory, modelled devices included."""

    def open(self) -> None:
        """Prepare the first epoch."""

    def train(self, number: int) -> float:
        """Train an epoch, and return its seconds."""

    def look(self) -> None:
        """Check the epoch that has just ended, outside everything timed."""

    def evaluate(self, *, last: bool) -> Mapping[str, float]:
        """Return the accuracies of the model now; ``last`` after the last epoch asked for."""

    def close(self) -> RunResult:
        """Check the results, and summarise them."""

    def interrupt(self) -> None:
        """Note that the user has interrupted a step."""

    def release(self) -> None:
        """Release everything that was opened."""

    def make_result(self, status: Status, reason: str) -> RunResult:
        """Return the result of a run that is not done."""


class RowRun:
    """A row's repeat: call ``open``, then ``run_epoch`` until ``over``, then ``close``.

    After a failure ``result`` is set at once.
    """

    def __init__(self, state: RunState, steps: RowSteps) -> None:
        self._state, self._steps = state, steps
        self._random = RandomStreams()
        self._count = 0
        self._timed_s = 0.0
        self._task: Task | None = None
        self.result: RunResult | None = None

    @property
    def over(self) -> bool:
        """Whether all epochs are done."""
        if self.result is not None:
            return True
        if self._count < self._state.epochs:
            return False
        enough = self._count >= ENOUGH_SAMPLES or self._timed_s >= ENOUGH_S
        return not self._steps.measured or enough

    @property
    def trained(self) -> bool:
        """Whether it has trained the epochs that were asked for, and is not closed yet."""
        return self.result is None and self._steps.alive and self._count >= self._state.epochs

    @property
    def held_bytes(self) -> int:
        """The bytes that it holds of this machine's memory, modelled devices included."""
        return 0 if self.result is not None else self._steps.held_bytes

    def open(self) -> None:
        """Prepare the first epoch."""
        state = self._state
        with progress.doing(f"preparing {state.name}"), state.left_work.at_opening():
            self._guard(self._steps.open)
        state.scene.whole.advance()
        if self.result is None:
            self._task = progress.begin(state.name, state.epochs)

    def run_epoch(self) -> None:
        """Train one epoch."""
        self._guard(self._run_epoch)
        if self.over:
            self._end_task()

    def close(self) -> RunResult:
        """Check the results, and summarise them."""
        self._end_task()
        if self.result is None:
            with progress.doing(f"checking {self._state.name}"):
                found = self._guard(self._steps.close)
            self.result = found or self.result  # a failure has left its own
        self._steps.release()
        if self.result is None:
            raise RuntimeError("a run that is closed has a result")
        self.result = replace(self.result, left=tuple(self._state.left))
        self._state.scene.whole.advance()
        return self.result

    def fail(self, status: Status, reason: str) -> None:
        """End the run with a reason, and release everything."""
        self.result = self._steps.make_result(status, reason)
        self._steps.release()
        self._end_task()

    def _end_task(self) -> None:
        """End the task of the epochs, which then count as a step of the whole."""
        if self._task is not None:
            self._task.end("done" if self.result is None else self.result.status)
            self._task = None
            self._state.scene.whole.advance()

    def _run_epoch(self) -> None:
        state, number = self._state, self._count
        # The first epoch counts in no time, so progress may be shown meanwhile.
        with progress.held() if number else nullcontext():
            with state.left_work.at_turn(), state.throttled.at_turn():
                seconds = self._steps.train(number)
            state.paces.measure()
        self._steps.look()
        self._count += 1
        if number:
            self._timed_s += seconds
        if number >= state.epochs:
            return
        if self._task is not None:
            self._task.advance()
        last, target = number == state.epochs - 1, state.scene.request.target_accuracy
        if last or (target is not None and state.reached is None):
            accuracy = self._steps.evaluate(last=last)
            if target is not None and state.reached is None and accuracy.get("val", 0.0) >= target:
                state.reached = number + 1
            if last:
                state.accuracy = accuracy

    def _guard(self, step: Callable[[], T]) -> T | None:
        """Take a step; an exception becomes the run's result."""
        try:
            with self._random.at_turn():
                return step()
        except (PeerLostError, KeyboardInterrupt):
            self._steps.interrupt()
            raise
        except BaseException as error:
            if self._must_raise(error):
                self._steps.interrupt()
                raise
            status: Status = "skipped" if isinstance(error, self._steps.skips) else "error"
            if isinstance(error, DeviceOutOfMemoryError):
                status = "out-of-memory"
            self.fail(status, describe_failure(error))
        finally:
            self._state.restore()
        return None

    def _must_raise(self, error: BaseException) -> bool:
        """Return whether an error is unexpected, and ends the whole comparison."""
        if isinstance(error, GnnbenchError) and not isinstance(error, StageFailedError):
            return False
        if os.environ.get("GNNBENCH_DEBUG"):
            return True
        # The other ranks wait for this one, which cannot go on with the next row.
        alone = self._state.scene.processes is None or not isinstance(self._state.row, PlannedRow)
        return not alone and not isinstance(error, GnnbenchError)


#: Errors that say that a row of parts cannot run here.
SKIPS: tuple[type[BaseException], ...] = (MissingDependencyError,)


def describe_failure(error: BaseException) -> str:
    """Describe an exception of a part as a sentence; its own message may fail too."""
    if isinstance(error, SystemExit):
        return "a part called sys.exit, which ends its own run alone."
    words = words_of(error)
    if isinstance(error, GnnbenchError):
        return words
    name = type(error).__name__
    return f"{f'{name}: {words}' if words else name}; run with --debug for the traceback."


def empty_result(row: Row, repeat: int, status: Status, reason: str) -> RunResult:
    """Return the result of a run that is not done."""
    return RunResult(
        strategy=row.strategy,
        label=row.label,
        mode=row.mode,
        parts=row.parts,
        repeat=repeat,
        status=status,
        reason=reason,
        program=None if isinstance(row, PlannedRow) else row.origin,
    )
