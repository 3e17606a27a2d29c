"""Executors of the runs of a sweep: processes of this machine, Ray, or Slurm.

Every executor has each task carried out by :func:`carry_out` in another process, which keeps the
result itself. It yields how each task ended, as it ends. If the process of a run is lost, the run
is kept as failed. If the run had not begun, nothing is kept, and the next sweep runs it.

Processes start in the root folder, since Python imports from the folder that it starts in.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Literal, Protocol, get_args

import gnnbench
from gnnbench.errors import GnnbenchError, MissingDependencyError, UsageError
from gnnbench.host.waiting import wait_briefly
from gnnbench.report.results.kept import (
    KeptHeader,
    KeptStatus,
    identify_machine,
    name_kept,
    read_kept,
    write_kept,
)
from gnnbench.sweep.running import Task, run_task
from gnnbench.sweep.turns import hold_machine, is_measured

ExecutorName = Literal["local", "ray", "slurm"]
EXECUTORS: tuple[ExecutorName, ...] = get_args(ExecutorName)
#: How a task ended: a status that is kept, or "lost" if its process ended before the run began.
EndStatus = Literal["done", "failed", "refused", "lost"]
#: A task, its end, and the reason if it is not done.
Ended = tuple[Task, EndStatus, str]
#: The variable that makes Ray on one machine listen on the loopback, as it does on macOS.
_RAY_BEYOND_LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"

#: ``prctl``'s request for a signal when the parent process ends.
_PR_SET_PDEATHSIG = 1
#: The seconds between questions to Slurm about its jobs.
_POLL_S = 0.5


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


@contextlib.contextmanager
def start_in_root() -> Iterator[str]:
    """Let processes start in the root folder meanwhile; yield this process's own folder."""
    folder = os.getcwd()
    os.chdir("/")
    try:
        yield folder
    finally:
        os.chdir(folder)


def carry_out(task: Task, folder: str) -> tuple[KeptStatus, str]:
    """Carry a task out in ``folder``, alone on its machine if its times are measured."""
    wait_briefly()  # before anything imports torch
    os.chdir(folder)
    mark = _mark(task)
    with contextlib.suppress(OSError):
        mark.touch()
    try:
        with hold_machine() if is_measured(task) else contextlib.nullcontext():
            return run_task(task)
    finally:
        mark.unlink(missing_ok=True)


def _mark(task: Task) -> Path:
    """Return the file that exists from the beginning of a task's run until it is kept."""
    return task.store / f".{task.key}.begun"


def keep_loss(task: Task, reason: str) -> Ended:
    """Keep a task of a lost process as failed, unless it has kept a result or had not begun."""
    mark = _mark(task)
    begun = mark.exists()
    mark.unlink(missing_ok=True)
    if not begun:
        return task, "lost", reason
    from gnnbench.comparison import describe_machine

    machine = identify_machine(describe_machine())
    with contextlib.suppress(UsageError):
        kept = read_kept(name_kept(task.store, task.key, machine))
        if kept.header.status != "failed":
            return task, kept.header.status, kept.header.reason
    header = KeptHeader(
        schema_version=1,
        key=task.key,
        machine=machine,
        gnnbench=gnnbench.__version__,
        configuration=task.configuration.to_json(),
        status="failed",
        reason=reason,
        began=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        took_s=0.0,
    )
    write_kept(task.store, header, None)
    return task, "failed", reason


# --------------------------------------------------------------------------- processes here


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
        _mark(task).unlink(missing_ok=True)  # left by a killed sweep
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
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(EOFError, OSError):
        while True:
            task: Task = end.recv()
            try:
                end.send(carry_out(task, folder))
            except GnnbenchError as error:
                end.send(error)


# --------------------------------------------------------------------------- Ray


class RayExecutor:
    """Tasks of Ray: on the cluster in ``RAY_ADDRESS``, else by workers on this machine."""

    def __init__(self, jobs: int) -> None:
        os.environ.setdefault(_RAY_BEYOND_LOOPBACK, "0")  # it is read once, by the import
        try:
            import ray
        except ImportError as error:
            raise MissingDependencyError(
                f"--executor ray needs the package ray ({error}); install it with "
                f"`pip install gnnbench[ray]`."
            ) from error
        self._ray = ray
        self._jobs = jobs
        self.runs_here = "RAY_ADDRESS" not in os.environ

    def run(self, tasks: Sequence[Task]) -> Iterator[Ended]:
        ray = self._ray
        begun = not ray.is_initialized()
        # Ray lets everybody write to its folder, so it lies in one of this user's own.
        with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as private:
            with start_in_root() as folder:
                if begun:
                    own = {"num_cpus": self._jobs, "include_dashboard": False}
                    local = {**own, "_temp_dir": f"{private}/r"} if self.runs_here else {}
                    ray.init(log_to_driver=False, logging_level="error", **local)
            yield from self._carry_out(tasks, folder, begun=begun)

    def _carry_out(self, tasks: Sequence[Task], folder: str, *, begun: bool) -> Iterator[Ended]:
        """Carry out all tasks, and shut down the Ray that was ``begun`` for them."""
        ray = self._ray
        try:
            remote = ray.remote(max_retries=0)(carry_out)
            for task in tasks:
                _mark(task).unlink(missing_ok=True)
            refs = {remote.remote(task, folder): task for task in tasks}
            while refs:
                (done, *_), _ = ray.wait(list(refs), num_returns=1)
                task = refs.pop(done)
                try:
                    status, reason = ray.get(done)
                except ray.exceptions.RayError as error:
                    words = " ".join(str(error).split())[:200]
                    yield keep_loss(task, f"its Ray worker was lost: {words}")
                else:
                    yield task, status, reason
        finally:
            if begun:
                ray.shutdown()


# --------------------------------------------------------------------------- Slurm


class SubmittedJob(Protocol):
    """The part of submitit's job that is used here."""

    def done(self) -> bool:
        """Return whether the job has ended."""

    def exception(self) -> BaseException | None:
        """Return the job's error, or None."""

    def result(self) -> tuple[KeptStatus, str]:
        """Return the status and the reason."""


class SlurmExecutor:
    """Jobs of Slurm through submitit, or submitit's processes on this machine without Slurm.

    Set options of ``sbatch`` by submitit's ``SLURM_`` and ``SBATCH_`` environment variables.
    """

    def __init__(self, jobs: int, store: Path) -> None:
        try:
            import submitit
        except ImportError as error:
            raise MissingDependencyError(
                f"--executor slurm needs the package submitit ({error}); install it with "
                f"`pip install gnnbench[slurm]`."
            ) from error
        self._executor = submitit.AutoExecutor(folder=str((store / ".submitit").absolute()))
        self._executor.update_parameters(timeout_min=24 * 60, slurm_array_parallelism=jobs)
        self.cluster: str = self._executor.cluster
        self.runs_here = self.cluster == "local"
        self._jobs = jobs

    def run(self, tasks: Sequence[Task]) -> Iterator[Ended]:
        waiting = deque(tasks)
        running: list[tuple[Task, SubmittedJob]] = []
        while waiting or running:
            while waiting and len(running) < self._jobs:
                task = waiting.popleft()
                _mark(task).unlink(missing_ok=True)
                with start_in_root() as folder:
                    running.append((task, self._executor.submit(carry_out, task, folder)))
            time.sleep(_POLL_S)
            for task, job in [pair for pair in running if pair[1].done()]:
                running.remove((task, job))
                error = job.exception()
                if error is not None:
                    words = " ".join(str(error).split())[:200]
                    yield keep_loss(task, f"its job was lost: {words}")
                else:
                    status, reason = job.result()
                    yield task, status, reason
