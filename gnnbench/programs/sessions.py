"""A program's training, one timed epoch at a time: by command, or in this process.

Both kinds have the same methods, so that a row need not know which it has.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from gnnbench.programs.messages import (
    ProgramFailedError,
    check_epoch,
    read_parts,
    read_report,
    read_text,
    read_texts,
    write_order,
)
from gnnbench.programs.process import ProgramProcess
from gnnbench.programs.task_folder import check_parameters, read_parameters
from gnnbench.records import (
    CommandProgram,
    EpochReport,
    Parameters,
    Program,
    ProgramOrigin,
    Task,
)
from gnnbench.run.processors import host_threads

#: The time that may pass between the order of an epoch and its beginning, in seconds or as a share
#: of the epoch.
MOST_BEFORE_S, MOST_BEFORE_SHARE = 0.005, 0.02


class TimedEpoch(NamedTuple):
    """An epoch's report, its seconds, and the seconds from its order to its beginning.

    The seconds include those before the beginning unless that is short (:func:`is_short`).
    """

    report: EpochReport
    seconds: float
    before_s: float


def is_short(before_s: float, seconds: float) -> bool:
    """Whether a program began an epoch at once; the rest is the delay of a message."""
    return before_s <= max(MOST_BEFORE_S, MOST_BEFORE_SHARE * seconds)


class Training(ABC):
    """A program that trains a task, from its start to its end.

    ``preparation_s`` is the time until it was ready. ``sampling``, ``parts``, ``other_maths`` and
    ``versions`` are what it states.
    """

    preparation_s: float
    sampling: str
    parts: int
    other_maths: str
    versions: Mapping[str, str]

    @abstractmethod
    def run_epoch(self, epoch: int) -> TimedEpoch:
        """Train one epoch, and time it. Raises ``ProgramFailedError``."""

    @abstractmethod
    def read_parameters(self) -> Parameters:
        """Return the current parameters. Raises ``ProgramFailedError``."""

    @property
    def peak_bytes(self) -> int:
        """The largest resident size so far; 0 for a program in this process."""
        return 0

    @abstractmethod
    def close(self) -> None:
        """End the program in order. Raises ``ProgramFailedError`` if it does not end."""

    @abstractmethod
    def kill(self) -> None:
        """End the program at once."""


class CommandTraining(Training):
    """Training by a command, which is stopped between its turns."""

    def __init__(self, program: CommandProgram, task: Task, folder: Path) -> None:
        self._task, self._folder = task, folder
        self._layers = task.workload.num_layers
        began_s = time.perf_counter()
        self._process = ProgramProcess(program, task, folder)
        try:
            ready = self._process.expect("ready")
            self.preparation_s = time.perf_counter() - began_s
            self.sampling = read_text(ready, "sampling")
            self.parts = read_parts(ready)
            self.other_maths = read_text(ready, "other_maths")
            self.versions = read_texts(ready, "versions")
        except BaseException:
            self._process.kill()
            raise
        self._process.stop()
        self._peak_bytes = 0

    def run_epoch(self, epoch: int) -> TimedEpoch:
        process = self._process
        if not process.is_quiet:
            raise ProgramFailedError(
                f"it sent a message before epoch {epoch} was ordered; answer each order once, and "
                f"wait for the next."
            )
        process.resume()
        ordered_s = time.perf_counter()
        process.send(write_order("epoch", epoch=epoch))
        begin = process.expect("epoch_begin")
        end = process.expect("epoch_end")
        process.stop()
        check_epoch(begin, epoch)
        report = read_report(end, epoch, self._layers)
        before_s, seconds = begin.at_s - ordered_s, end.at_s - begin.at_s
        if not seconds:  # both messages were read at once: the epoch lasts from its order
            return TimedEpoch(report, before_s, 0.0)
        if not is_short(before_s, seconds):
            seconds += before_s
        return TimedEpoch(report, seconds, before_s)

    def read_parameters(self) -> Parameters:
        file = self._folder / "final_parameters.npz"
        file.unlink(missing_ok=True)
        self._process.resume()
        self._process.send(write_order("save", file=str(file)))
        self._process.expect("done")
        self._peak_bytes = self._process.read_peak_bytes()
        self._process.stop()
        return read_parameters(file, self._task)

    @property
    def keeper(self) -> int:
        """The process that keeps the program."""
        return self._process.keeper

    @property
    def peak_bytes(self) -> int:
        return self._peak_bytes

    def close(self) -> None:
        self._process.close()

    def kill(self) -> None:
        self._process.kill()


class OwnTraining(Training):
    """Training by a class, in this process."""

    def __init__(self, program: type[Program], task: Task) -> None:
        self._task = task
        began_s = time.perf_counter()
        with host_threads(task.threads):
            self._session = program().open(task)
        self.preparation_s = time.perf_counter() - began_s
        self.sampling = str(self._session.sampling)
        self.parts = int(self._session.parts)
        self.other_maths = str(self._session.other_maths)
        self.versions = dict(self._session.versions)

    def run_epoch(self, epoch: int) -> TimedEpoch:
        with host_threads(self._task.threads):
            began_s = time.perf_counter()
            report = self._session.run_epoch(epoch)
            seconds = time.perf_counter() - began_s
        if not isinstance(report, EpochReport):
            raise ProgramFailedError(f"run_epoch returned {report!r}; return an EpochReport.")
        if report.edges and len(report.edges) != self._task.workload.num_layers:
            raise ProgramFailedError(f"edges of epoch {epoch} are of {len(report.edges)} layers.")
        return TimedEpoch(report, seconds, 0.0)

    def read_parameters(self) -> Parameters:
        return check_parameters(self._session.parameters(), self._task)

    def close(self) -> None:
        self._session.close()

    def kill(self) -> None:
        with suppress(Exception):
            self._session.close()


def check_seconds(timed: TimedEpoch, epoch: int) -> None:
    """Refuse a report that its epoch's time contradicts. Raises ``ProgramFailedError``.

    On a busy machine the message of its beginning may have been read late, but not before its
    order was sent.
    """
    longest_s = timed.seconds + timed.before_s
    for stage, seconds in timed.report.stages.items():
        if seconds > 1.05 * longest_s and not math.isclose(seconds, longest_s):
            raise ProgramFailedError(
                f"it states {seconds:.3g} s of {stage} in epoch {epoch}, which took "
                f"{timed.seconds:.3g} s; state the busy seconds of one resource."
            )


def describe_origin(program: CommandProgram | type[Program]) -> ProgramOrigin:
    """Return a program as results name it, without the versions that it states when it is ready."""
    if isinstance(program, CommandProgram):
        return ProgramOrigin(program.name, program.fill(), variables=dict(program.environment))
    return ProgramOrigin(program.name, module=f"{program.__module__}.{program.__qualname__}")
