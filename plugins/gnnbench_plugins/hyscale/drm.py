"""Dynamic Resource Management: HyScale-GNN §IV-A, Algorithm 1.

``decide`` is the algorithm: from stage times to one action. ``Balancer`` carries actions out on a
split of seeds and of threads; how far one action moves is the paper's silence and our choice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gnnbench.records import HostThreads, StageTimes

Task = Literal["sample_cpu", "sample_accelerator", "load", "train_cpu", "accelerator"]
CpuTask = Literal["sample_cpu", "load", "train_cpu"]
CPU_TASKS: tuple[CpuTask, ...] = ("sample_cpu", "load", "train_cpu")


@dataclass(frozen=True, slots=True)
class BalanceWork:
    """Move mini-batch work from the slower task ``slow`` to the faster one ``fast``."""

    slow: Task
    fast: Task


@dataclass(frozen=True, slots=True)
class BalanceThread:
    """Move host threads from the fastest CPU task ``source`` to the bottleneck ``target``."""

    source: CpuTask
    target: CpuTask


Action = BalanceWork | BalanceThread


def decide(times: StageTimes) -> Action | None:
    """Algorithm 1. None when the one task left to help is the bottleneck itself.

    Tasks that do not exist here (no accelerator samples, no CPU trainer) are left out of both
    sorted lists. Equal times keep the algorithm's own order of naming the tasks. Where lines 23
    and 31 print ``fastest`` for balance_thread, the prose and line 16 say the fastest *CPU* task,
    which is what is taken: an accelerator has no threads to give.
    """
    # Line 1: transfer and training on an accelerator are one task.
    accelerator = (
        None
        if times.train_accelerator is None
        else max(times.transfer, times.train_accelerator)
    )
    named: tuple[tuple[Task, float | None], ...] = (
        ("sample_cpu", times.sample_cpu),
        ("sample_accelerator", times.sample_accelerator),
        ("load", times.load),
        ("train_cpu", times.train_cpu),
        ("accelerator", accelerator),
    )
    present = [(task, seconds) for task, seconds in named if seconds is not None]
    # Lines 2 to 5: slowest first.
    order = [task for task, _ in sorted(present, key=lambda item: -item[1])]
    bottleneck, fastest = order[0], order[-1]
    second = order[-2] if len(order) > 1 else fastest
    # Lines 7 and 8.
    cpu_seconds = {task: seconds for task, seconds in present}
    cpu_order = sorted(
        (task for task in CPU_TASKS if task in cpu_seconds), key=lambda task: -cpu_seconds[task]
    )
    fastest_cpu = cpu_order[-1]

    if bottleneck == "sample_accelerator":
        return BalanceWork("sample_accelerator", "sample_cpu")
    if bottleneck == "accelerator":
        return BalanceWork("accelerator", "train_cpu") if "train_cpu" in cpu_seconds else None
    if bottleneck == "sample_cpu" and (
        fastest == "sample_accelerator"
        or (fastest == "accelerator" and second == "sample_accelerator")
    ):
        return BalanceWork("sample_cpu", "sample_accelerator")
    if bottleneck == "train_cpu" and (
        fastest == "accelerator"
        or (fastest == "sample_accelerator" and second == "accelerator")
    ):
        return BalanceWork("train_cpu", "accelerator")
    if fastest_cpu == bottleneck:
        return None
    return BalanceThread(fastest_cpu, bottleneck)


class Balancer:
    """The split that the actions move: seeds on the CPU trainer out of a constant total, threads.

    One balance_work moves ``step`` seeds. The step doubles when work keeps moving the same way, up
    to a quarter of the batch, and halves when it turns back, down to one: far from balance it
    hurries, at balance it settles. One balance_thread moves one thread in sixteen of the host's,
    and never takes a task's last one.
    """

    def __init__(self, total_seeds: int, cpu_seeds: int, threads: HostThreads) -> None:
        self.total_seeds = total_seeds
        self.cpu_seeds = cpu_seeds
        self.threads = threads
        self._step = max(1, total_seeds // 32)
        self._direction = 0

    @property
    def accelerator_seeds(self) -> int:
        return self.total_seeds - self.cpu_seeds

    def apply(self, action: Action | None) -> None:
        """Carry out one action."""
        if isinstance(action, BalanceWork):
            self._move_work(action)
        elif isinstance(action, BalanceThread):
            self._move_threads(action)

    def _move_work(self, action: BalanceWork) -> None:
        # Only training work is split by seeds; sampling goes with it, each trainer's own batch.
        direction = -1 if action.slow in ("train_cpu", "sample_cpu") else 1
        if direction == self._direction:
            self._step = min(self._step * 2, max(1, self.total_seeds // 4))
        elif self._direction:
            self._step = max(1, self._step // 2)
        self._direction = direction
        moved = self.cpu_seeds + direction * self._step
        self.cpu_seeds = min(self.total_seeds, max(0, moved))

    def _move_threads(self, action: BalanceThread) -> None:
        shares: dict[CpuTask, int] = {
            "sample_cpu": self.threads.sample,
            "load": self.threads.load,
            "train_cpu": self.threads.train,
        }
        step = max(1, sum(shares.values()) // 16)
        moved = min(step, shares[action.source] - 1)
        if moved > 0:
            shares[action.source] -= moved
            shares[action.target] += moved
            self.threads = HostThreads(
                sample=shares["sample_cpu"], load=shares["load"], train=shares["train_cpu"]
            )
