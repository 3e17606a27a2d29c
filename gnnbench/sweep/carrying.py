"""Tasks carried out in another process, and what is known of them when that process is lost.

Processes start in the root folder, since Python imports from the folder that it starts in.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal

from gnnbench.errors import UsageError
from gnnbench.host.waiting import wait_briefly
from gnnbench.report.results.kept import ENDING, KeptStatus, read_kept
from gnnbench.sweep.launching import Node
from gnnbench.sweep.running import Task, keep, run_task
from gnnbench.sweep.turns import hold_machine, is_measured

#: How a task ended: a status that is kept, or "lost": nothing is kept, and it is to be run again.
EndStatus = Literal["done", "failed", "refused", "lost"]
#: A task, its end, and the reason if it is not done.
Ended = tuple[Task, EndStatus, str]
#: This machine, where a run has one node.
ALONE = Node()


@contextlib.contextmanager
def start_in_root() -> Iterator[str]:
    """Let processes start in the root folder meanwhile; yield this process's own folder."""
    folder = os.getcwd()
    os.chdir("/")
    try:
        yield folder
    finally:
        os.chdir(folder)


def carry_out(task: Task, folder: str, node: Node = ALONE) -> tuple[KeptStatus, str]:
    """Carry a task out in ``folder``, alone on its machine if its times are measured.

    Every node of a run does so. Raises ``RunLostError`` if another node is lost.
    """
    wait_briefly()  # before anything imports torch
    os.chdir(folder)
    mark = mark_of(task)
    with hold_machine() if is_measured(task) else contextlib.nullcontext():
        if node.number > 0:
            return run_task(task, node)
        with contextlib.suppress(OSError):
            mark.touch()
        try:
            return run_task(task, node)
        finally:
            mark.unlink(missing_ok=True)


def mark_of(task: Task) -> Path:
    """Return the file that exists from the beginning of a task's run until it is kept."""
    return task.store / f".{task.key}.begun"


def log_of(task: Task) -> Path:
    """Return the file of what the Slurm job of a task prints, until the task is kept."""
    return task.store.absolute() / f".{task.key}.log"


def find_end(task: Task) -> Ended | None:
    """Return the end of a task that the store has kept; None without one.

    A result of one machine goes before a failure of another.
    """
    found = None
    for path in task.store.glob(f"{task.key}.*{ENDING}"):
        with contextlib.suppress(UsageError):
            header = read_kept(path).header
            if found is None or header.status != "failed":
                found = header
    return None if found is None else (task, found.status, found.reason)


def forget(task: Task) -> None:
    """Remove what earlier runs of a task have left: its mark, and failures that are kept."""
    mark_of(task).unlink(missing_ok=True)
    for path in task.store.glob(f"{task.key}.*{ENDING}"):
        with contextlib.suppress(UsageError):
            if read_kept(path).header.status == "failed":
                path.unlink(missing_ok=True)


def lose(task: Task, reason: str) -> Ended:
    """Return the end of a task after a loss of its machine or process: its result, or "lost"."""
    mark_of(task).unlink(missing_ok=True)
    return find_end(task) or (task, "lost", reason)


def keep_loss(task: Task, reason: str) -> Ended:
    """Keep a task that has ended its process as failed, unless it is kept or had not begun."""
    begun = mark_of(task).exists()
    ended = lose(task, reason)
    if ended[1] in ("done", "refused"):
        return ended
    if not begun:
        return task, "lost", reason
    keep(task, "failed", reason, datetime.now(timezone.utc), 0.0)
    return task, "failed", reason
