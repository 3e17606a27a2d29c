"""Dynamic Resource Management: HyScale-GNN §IV-A, Algorithm 1.

``decide`` is the algorithm: from stage times to one action. ``Balancer`` carries actions out on a
split of seeds and of threads; the paper leaves open how far one action moves, and here it moves to
where the two tasks would take equally long.
"""

from __future__ import annotations

import math
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


def task_seconds(times: StageTimes) -> dict[Task, float]:
    """The five times Algorithm 1 sorts, in its order of naming them; absent tasks are left out."""
    # Line 1: transfer and training on an accelerator are one task.
    accelerator = (
        None if times.train_accelerator is None else max(times.transfer, times.train_accelerator)
    )
    named: tuple[tuple[Task, float | None], ...] = (
        ("sample_cpu", times.sample_cpu),
        ("sample_accelerator", times.sample_accelerator),
        ("load", times.load),
        ("train_cpu", times.train_cpu),
        ("accelerator", accelerator),
    )
    return {task: seconds for task, seconds in named if seconds is not None}


def decide(times: StageTimes) -> Action | None:
    """Algorithm 1. None when the one task left to help is the bottleneck itself.

    Tasks that do not exist here (no accelerator samples, no CPU trainer) are left out of both
    sorted lists. Equal times keep the algorithm's own order of naming the tasks. Where lines 23
    and 31 print ``fastest`` for balance_thread, the prose and line 16 say the fastest *CPU* task,
    which is what is taken: an accelerator has no threads to give.
    """
    seconds = task_seconds(times)
    # Lines 2 to 5: slowest first.
    order = sorted(seconds, key=lambda task: -seconds[task])
    bottleneck, fastest = order[0], order[-1]
    second = order[-2] if len(order) > 1 else fastest
    # Lines 7 and 8.
    cpu_order = sorted(
        (task for task in CPU_TASKS if task in seconds), key=lambda task: -seconds[task]
    )
    fastest_cpu = cpu_order[-1]

    if bottleneck == "sample_accelerator":
        return BalanceWork("sample_accelerator", "sample_cpu")
    if bottleneck == "accelerator":
        return BalanceWork("accelerator", "train_cpu") if "train_cpu" in seconds else None
    if bottleneck == "sample_cpu" and (
        fastest == "sample_accelerator"
        or (fastest == "accelerator" and second == "sample_accelerator")
    ):
        return BalanceWork("sample_cpu", "sample_accelerator")
    if bottleneck == "train_cpu" and (
        fastest == "accelerator" or (fastest == "sample_accelerator" and second == "accelerator")
    ):
        return BalanceWork("train_cpu", "accelerator")
    if fastest_cpu == bottleneck:
        return None
    return BalanceThread(fastest_cpu, bottleneck)


class Balancer:
    """The split that the actions move: seeds on the CPU trainer out of a constant total, threads.

    One action moves as much as would make its two tasks equally long, were the time of training
    proportional to its seeds and that of a host task inversely so to its threads. Real times have
    fixed parts and grow more slowly than that, so a step falls short rather than overshoots: the
    bottleneck shrinks from round to round; at balance single seeds move and threads rest.
    """

    def __init__(self, total_seeds: int, cpu_seeds: int, threads: HostThreads) -> None:
        self.total_seeds = total_seeds
        self.cpu_seeds = cpu_seeds
        self.threads = threads
        #: What each trainer took when it last had seeds, so that an idle one is judged by it.
        self._last_s: dict[Task, float] = {}

    @property
    def accelerator_seeds(self) -> int:
        return self.total_seeds - self.cpu_seeds

    def apply(self, action: Action | None, times: StageTimes) -> None:
        """Carry out the action decided from ``times``, those of a round under this split."""
        seconds = task_seconds(times)
        if self.cpu_seeds and "train_cpu" in seconds:
            self._last_s["train_cpu"] = seconds["train_cpu"]
        if self.accelerator_seeds and "accelerator" in seconds:
            self._last_s["accelerator"] = seconds["accelerator"]
        if isinstance(action, BalanceWork):
            self._move_work(action, seconds)
        elif isinstance(action, BalanceThread):
            moved = self._move_threads(action, seconds)
            # No whole thread to move: the other trade-off that can still help the CPU trainer.
            if not moved and action.target == "train_cpu" and "accelerator" in seconds:
                self._move_work(BalanceWork("train_cpu", "accelerator"), seconds)

    def _move_work(self, action: BalanceWork, seconds: dict[Task, float]) -> None:
        # Only training work is split by seeds; sampling goes with it, each trainer's own batch.
        to_cpu = action.fast in ("train_cpu", "sample_cpu")
        giving = self.accelerator_seeds if to_cpu else self.cpu_seeds
        taking = self.total_seeds - giving
        slow_s, fast_s = seconds[action.slow], seconds[action.fast]
        if giving == 0 or slow_s <= fast_s:
            return
        if taking == 0:
            # Nothing is known of a trainer that never ran, so it is tried; one that ran is left
            # idle while its fixed cost alone is above the bottleneck.
            worthwhile = self._last_s.get(action.fast, 0.0) < slow_s
            moved = max(1, self.total_seeds // 32) if worthwhile else 0
        else:
            # Seeds a second, both times multiplied by slow_s * fast_s: fast_s may be 0.
            slow_rate, fast_rate = giving * fast_s, taking * slow_s
            fair = self.total_seeds * slow_rate / (slow_rate + fast_rate)
            # A slower trainer gives one seed at least: small shares are mostly fixed cost.
            moved = max(1, giving - round(fair))
        self.cpu_seeds += min(moved, giving) if to_cpu else -min(moved, giving)

    def _move_threads(self, action: BalanceThread, seconds: dict[Task, float]) -> int:
        """How many threads moved; a task keeps its last one."""
        shares: dict[CpuTask, int] = {
            "sample_cpu": self.threads.sample,
            "load": self.threads.load,
            "train_cpu": self.threads.train,
        }
        source, target = shares[action.source], shares[action.target]
        # Core-seconds of work; the slower task's share of all is its share of the threads.
        source_work, target_work = (
            source * seconds[action.source],
            target * seconds[action.target],
        )
        if source == 1 or source_work + target_work <= 0:
            return 0
        fair = math.ceil((source + target) * source_work / (source_work + target_work))
        moved = max(0, source - max(1, fair))
        # Less than one thread is due: one still helps if its loss leaves the source the faster.
        if moved == 0 and source_work < (source - 1) * seconds[action.target]:
            moved = 1
        shares[action.source] -= moved
        shares[action.target] += moved
        self.threads = HostThreads(
            sample=shares["sample_cpu"], load=shares["load"], train=shares["train_cpu"]
        )
        return moved
