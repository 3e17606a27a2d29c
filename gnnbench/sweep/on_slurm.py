"""Jobs of Slurm: one for each run, submitted by ``sbatch`` and followed by ``squeue``.

A job has a name that its task determines. So a sweep knows the jobs of an earlier one with the same
store, even if that was killed while it submitted them.

https://slurm.schedmd.com/job_state_codes.html lists the states.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gnnbench.errors import GnnbenchError, MissingDependencyError
from gnnbench.sweep.carrying import Ended, find_end, forget, keep_loss, log_of, lose
from gnnbench.sweep.running import Task
from gnnbench.sweep.turns import is_measured

#: The seconds between two questions, and after which a Slurm that does not answer is given up.
POLL_S, SILENT_S = 2.0, 600.0
#: How often a run is submitted whose job is lost.
TRIES = 3
#: States of jobs that have ended: by the run itself, by a user, and by Slurm or its nodes.
OWN_ENDS = ("FAILED", "OUT_OF_MEMORY", "TIMEOUT", "DEADLINE")
CANCELLED, COMPLETED, UNKNOWN = "CANCELLED", "COMPLETED", ""
ENDS = (*OWN_ENDS, CANCELLED, COMPLETED, UNKNOWN, "BOOT_FAIL", "NODE_FAIL", "PREEMPTED", "REVOKED")

#: The script of a job. Ranks of several jobs on one node meet at different ports.
SCRIPT = """#!/bin/sh
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_ADDR MASTER_PORT=$((20000 + SLURM_JOB_ID % 12000))
exec srun {options} {python} -m gnnbench.sweep.on_node {told}
"""


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A job of Slurm, as ``squeue`` knows it."""

    number: int = 0
    state: str = UNKNOWN


class SlurmExecutor:
    """Jobs of Slurm. Set further options of ``sbatch`` by its ``SBATCH_`` variables."""

    runs_here = False

    def __init__(self, jobs: int, store: Path) -> None:
        for program in ("sbatch", "squeue"):
            if shutil.which(program) is None:
                raise MissingDependencyError(
                    f"--executor slurm needs Slurm's commands, and {program} is not on the PATH; "
                    f"sweep where Slurm's jobs are submitted, or by --executor local."
                )
        self._jobs = jobs
        self._store = store.absolute()
        self._answered_s = 0.0

    def run(self, tasks: Sequence[Task]) -> Iterator[Ended]:
        """Carry out all tasks, and yield each when it has ended."""
        names = {self._name(task): task for task in tasks}
        known = self._ask()
        running = [name for name in names if name in known and known[name].state not in ENDS]
        waiting = deque(name for name in names if name not in running)
        tries = Counter[str]()
        while waiting or running:
            while waiting and len(running) < self._jobs:
                name = waiting.popleft()
                # Its job may have ended since the store was read.
                ended = None if tries[name] else find_end(names[name])
                if ended is not None and ended[1] != "failed":
                    yield ended
                    continue
                self._submit(name, names[name])
                tries[name] += 1
                running.append(name)
            if running:
                time.sleep(POLL_S)
                known = self._ask()
            for name in list(running):
                job = known.get(name, SlurmJob())
                ended = self._find_end(names[name], job)
                if ended is None:
                    continue
                running.remove(name)
                if ended[1] == "lost" and job.state != CANCELLED and tries[name] < TRIES:
                    waiting.append(name)
                else:
                    yield ended

    def _name(self, task: Task) -> str:
        """Return the name of a task's jobs, which no other store has."""
        digest = hashlib.sha256(str(self._store).encode()).hexdigest()[:8]
        return f"gnnbench-{task.key}-{digest}"

    def _find_end(self, task: Task, job: SlurmJob) -> Ended | None:
        """Return how a task has ended; None while its job goes on.

        The result of a completed job may appear later, if the store's file system is slow.
        """
        if job.state not in ENDS:
            return None
        if ended := find_end(task):
            return ended
        if job.state == COMPLETED:
            return None
        how = f"ended as {job.state}" if job.state else "is no longer known to Slurm"
        reason = f"its Slurm job {how}; see {log_of(task)}"
        return keep_loss(task, reason) if job.state in OWN_ENDS else lose(task, reason)

    def _ask(self) -> dict[str, SlurmJob]:
        """Return the latest job of each name. Raises ``GnnbenchError`` if Slurm is silent."""
        words = ["squeue", "--me", "--noheader", "--states=all", "--format=%A|%T|%j"]
        while True:
            answer = subprocess.run(words, capture_output=True, text=True, check=False)
            now_s = time.monotonic()
            if answer.returncode == 0:
                break
            if not self._answered_s or now_s - self._answered_s >= SILENT_S:
                raise GnnbenchError(
                    f"squeue failed: {' '.join(answer.stderr.split())}; see whether Slurm runs, "
                    f"and repeat the command, which knows the jobs that were submitted."
                )
            time.sleep(POLL_S)
        self._answered_s = now_s
        jobs: dict[str, SlurmJob] = {}
        for line in answer.stdout.splitlines():
            number, state, name = line.strip().split("|", 2)
            if int(number) >= jobs.get(name, SlurmJob()).number:
                jobs[name] = SlurmJob(int(number), state)
        return jobs

    def _submit(self, name: str, task: Task) -> None:
        """Submit a task. Raises ``GnnbenchError`` if Slurm refuses it."""
        forget(task)
        spread = task.configuration.spread
        share = [
            f"--nodes={spread.nodes}",
            "--ntasks-per-node=1",
            f"--cpus-per-task={task.configuration.node_cores}",
        ]
        words = [
            *("sbatch", f"--job-name={name}", f"--output={log_of(task)}"),
            *("--chdir=/", "--requeue", *share),
        ]
        if spread.gpus:
            words.append(f"--gpus-per-node={spread.gpus // spread.nodes}")
        if is_measured(task):
            words.append("--exclusive")
        script = SCRIPT.format(
            options=" ".join([*share, f"--ntasks={spread.nodes}"]),
            python=shlex.quote(sys.executable),
            told=shlex.quote(json.dumps({**task.to_json(), "folder": os.getcwd()})),
        )
        answer = subprocess.run(words, input=script, capture_output=True, text=True, check=False)
        if answer.returncode != 0:
            raise GnnbenchError(
                f"sbatch refused {task.configuration.label}: {' '.join(answer.stderr.split())}; "
                f"set its options by SBATCH_ variables, and repeat the command."
            )
