"""Executors of the runs of a sweep: processes of this machine, Ray, or Slurm.

Every executor has each task carried out by :func:`carry_out` in another process, which keeps the
result itself. It yields how each task ended, as it ends.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Literal, Protocol, get_args

from gnnbench.errors import GnnbenchError
from gnnbench.sweep.carrying import Ended, carry_out, keep_loss, mark_of, start_in_root
from gnnbench.sweep.launching import end_with_parent
from gnnbench.sweep.on_ray import RayExecutor
from gnnbench.sweep.on_slurm import SlurmExecutor
from gnnbench.sweep.running import Task

ExecutorName = Literal["local", "ray", "slurm"]
EXECUTORS: tuple[ExecutorName, ...] = get_args(ExecutorName)


class Executor(Protocol):
    """An executor of tasks, several at a time."""

    #: Whether the runs are on this machine, so that times measured elsewhere do not count.
    runs_here: bool

    def run(self, tasks: Sequence[Task]) -> Iterator[Ended]:
        """Carry out all tasks, and yield each when it has ended, in any order."""


def open_executor(name: ExecutorName, jobs: int, store: Path) -> Executor:
    """Open the executor of a name, which runs ``jobs`` tasks at a time.

    Raises ``MissingDependencyError`` if its library is not installed.
    """
    makers: dict[ExecutorName, Callable[[], Executor]] = {
        "local": lambda: LocalExecutor(jobs),
        "ray": lambda: RayExecutor(jobs),
        "slurm": lambda: SlurmExecutor(jobs, store),
    }
    return makers[name]()


class LocalExecutor:
    """Processes of this machine, each of which carries out one task after the other."""

    runs_here = True

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs

    def run(self, tasks: Sequence[Task]) -> Iterator[Ended]:
        waiting = deque(tasks)
        workers = [_Worker() for _ in range(min(self._jobs, len(waiting)))]
        try:
            for worker in workers:
                worker.begin(waiting.popleft())
            while busy := {worker.end: worker for worker in workers if worker.task is not None}:
                for end in wait(list(busy)):
                    worker = busy[end]  # type: ignore[index]
                    yield worker.finish()
                    if waiting:
                        worker.begin(waiting.popleft())
        finally:
            for worker in workers:
                worker.stop()


class _Worker:
    """A process that is given tasks through a pipe, and is replaced if it is lost."""

    def __init__(self) -> None:
        self.task: Task | None = None
        self._process, self.end = self._start()

    @staticmethod
    def _start() -> tuple[BaseProcess, Connection]:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        with start_in_root() as folder:
            process = context.Process(target=_serve, args=(theirs, folder), daemon=True)
            process.start()
        theirs.close()
        return process, ours

    def begin(self, task: Task) -> None:
        self.task = task
        mark_of(task).unlink(missing_ok=True)  # left by a killed sweep
        with contextlib.suppress(OSError):  # it is lost: ``finish`` says so
            self.end.send(task)

    def finish(self) -> Ended:
        """Return how the task ended, after an answer or the end of its process."""
        task, self.task = self.task, None
        assert task is not None
        try:
            answer = self.end.recv()
        except (EOFError, OSError):
            self._process.join()
            code = self._process.exitcode or 0
            how = f"by {signal.Signals(-code).name}" if code < 0 else f"with status {code}"
            self._process, self.end = self._start()
            return keep_loss(task, f"its process ended {how} before the run was over")
        if isinstance(answer, GnnbenchError):
            raise answer
        status, reason = answer
        return task, status, reason

    def stop(self) -> None:
        self.end.close()
        if self.task is not None:
            self._process.terminate()
        self._process.join(5.0)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _serve(end: Connection, folder: str) -> None:
    """Carry out tasks in ``folder`` until the sweep is over or gone.

    A killed sweep takes its processes along. A result that cannot be kept is sent as an error.
    """
    end_with_parent(signal.SIGKILL)()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(EOFError, OSError):
        while True:
            task: Task = end.recv()
            try:
                end.send(carry_out(task, folder))
            except GnnbenchError as error:
                end.send(error)
