"""Dynamic Resource Management: HyScale-GNN §IV-A, Algorithm 1, and a proportional rule beside it.

``decide`` is the algorithm: from stage times to one action. ``Balancer`` applies actions to a split
of seeds, threads and sampling. The paper leaves open how far one action moves. Here it moves to the
point where both tasks would take equally long, or part of the way. ``Balancer.equalise`` is the
other rule: it moves every task at once, by the ratio of its time to the others'. Neither rule knows
which stages overlap, and that an epoch starts with an empty pipeline. A guard therefore rejects
moves that lengthen an epoch by the performance model, unless it is off.
"""

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from gnnbench.constants import Bound
from gnnbench.records import HostThreads, StageTimes

BalancedTask = Literal["sample_cpu", "sample_accelerator", "load", "train_cpu", "accelerator"]
CpuTask = Literal["sample_cpu", "load", "train_cpu"]
CPU_TASKS: tuple[CpuTask, ...] = ("sample_cpu", "load", "train_cpu")
#: Rounds by which a move of seeds is judged. With fewer, one odd mini-batch decides; with more, the
#: reaction to the machine's present speed is late.
REMEMBERED: Bound[int] = 8


@dataclass(frozen=True, slots=True)
class BalanceWork:
    """A move of mini-batch work from the slower task ``slow`` to the faster one ``fast``."""

    slow: BalancedTask
    fast: BalancedTask


@dataclass(frozen=True, slots=True)
class BalanceThread:
    """A move of host threads from the fastest CPU task ``source`` to the bottleneck ``target``."""

    source: CpuTask
    target: CpuTask


Action = BalanceWork | BalanceThread


def task_seconds(times: StageTimes) -> dict[BalancedTask, float]:
    """Return the five times that Algorithm 1 sorts, in its order, without absent tasks."""
    # Line 1: transfer and training on an accelerator are one task.
    accelerator = (
        None if times.train_accelerator is None else max(times.transfer, times.train_accelerator)
    )
    named: tuple[tuple[BalancedTask, float | None], ...] = (
        ("sample_cpu", times.sample_cpu),
        ("sample_accelerator", times.sample_accelerator),
        ("load", times.load),
        ("train_cpu", times.train_cpu),
        ("accelerator", accelerator),
    )
    return {task: seconds for task, seconds in named if seconds is not None}


def decide(times: StageTimes) -> Action | None:
    """Return the action of Algorithm 1, or None if only the bottleneck itself could help.

    Tasks that do not exist here (no accelerator samples, no CPU trainer) are left out of both
    sorted lists. Equal times keep the algorithm's order of the tasks. Lines 23 and 31 print
    ``fastest`` for balance_thread. The prose and line 16 say the fastest *CPU* task, which is used
    here: an accelerator has no threads to give.
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


@dataclass(frozen=True, slots=True)
class _Trained:
    """Training seconds of both kinds of trainers for their seeds of one round."""

    cpu_seeds: int
    threads: int
    cpu_s: float
    accelerator_s: float

    @property
    def cpu_is_slower(self) -> bool:
        return self.cpu_s > self.accelerator_s


class Assignment(NamedTuple):
    """An assignment by DRM: CPU seeds, host threads, and ``sampling`` accelerators.

    ``sampling`` counts the accelerators that draw the mini-batches they train on.
    """

    cpu_seeds: int
    threads: HostThreads
    sampling: int = 0


class Balancer:
    """The split that the rules move, out of a constant total of seeds and of threads.

    An action moves as much as would make its two tasks equally long in a linear model. There
    training time is proportional to seeds, and a host task's time inversely to its threads. Real
    times have fixed parts and grow more slowly, so a step falls short rather than overshoots. The
    bottleneck shrinks from round to round, and at balance the threads rest. Mini-batches vary,
    small shares most, and to follow each costs more than it gains. Seeds therefore move only if the
    last similar rounds would have been shorter too, with whole seeds on each accelerator.

    ``accelerators`` share the seeds that the CPU trainer leaves. ``samplers`` of them can draw
    their own mini-batches, whole ones, since a mini-batch is one subgraph. With ``shares_threads``
    every host task may use all threads, and none can be moved. ``expect`` gives the expected
    seconds of an epoch under an assignment, from the last round's times. A move that would lengthen
    it is halved, down to one seed or thread. Without ``expect`` every move is made, as Algorithm 1
    is printed.
    """

    def __init__(
        self,
        total_seeds: int,
        cpu_seeds: int,
        threads: HostThreads,
        *,
        sampling: int = 0,
        accelerators: int = 1,
        samplers: int = 0,
        shares_threads: bool = False,
        expect: Callable[[Assignment], float] | None = None,
    ) -> None:
        self.total_seeds = total_seeds
        self.cpu_seeds = cpu_seeds
        self.threads = threads
        self.sampling = sampling
        self._accelerators = accelerators
        self._samplers = samplers
        self._shares_threads = shares_threads
        self._expect = expect
        #: Last seconds of each task that had work; an idle task is judged by them.
        self._last_s: dict[BalancedTask, float] = {}
        self._trained: deque[_Trained] = deque(maxlen=REMEMBERED)
        #: Whether each kind of trainers has been the slower one under similar shares.
        self._balanced = False

    @property
    def accelerator_seeds(self) -> int:
        return self.total_seeds - self.cpu_seeds

    @property
    def assignment(self) -> Assignment:
        return Assignment(self.cpu_seeds, self.threads, self.sampling)

    def apply(self, action: Action | None, times: StageTimes) -> None:
        """Apply the action decided from ``times``, which a round under this split took."""
        seconds = self._remember(times)
        if isinstance(action, BalanceWork) and "sample_cpu" in (action.slow, action.fast):
            moved = self._move_sampling(seconds)
            # The accelerators cannot take more: threads are the other way to help CPU sampling.
            if not moved and action.slow == "sample_cpu":
                source = min(CPU_TASKS, key=lambda task: seconds.get(task, math.inf))
                if source != "sample_cpu":
                    self._move_threads(BalanceThread(source, "sample_cpu"), seconds)
        elif isinstance(action, BalanceWork):
            self._move_work(action, seconds)
        elif isinstance(action, BalanceThread):
            threads = self._move_threads(action, seconds)
            # No whole thread to move: seeds are the other way to help the CPU trainer.
            if not threads and action.target == "train_cpu" and "accelerator" in seconds:
                self._move_work(BalanceWork("train_cpu", "accelerator"), seconds)

    def equalise(self, times: StageTimes) -> None:
        """Apply the proportional rule to ``times`` of a round under this split.

        Each trainer gets seeds in proportion to its seeds a second, then each host task threads by
        its core-seconds. Accelerators draw as many mini-batches as shortens sampling.
        """
        seconds = self._remember(times)
        before = self.cpu_seeds
        if "train_cpu" in seconds and "accelerator" in seconds:
            self._divide_seeds(seconds)
        if not self._shares_threads:
            grown = self.cpu_seeds / before if before else 1.0
            self._divide_threads(seconds, grown)
        self._move_sampling(seconds)

    def _remember(self, times: StageTimes) -> dict[BalancedTask, float]:
        seconds = task_seconds(times)
        had_work: dict[BalancedTask, int] = {
            "train_cpu": self.cpu_seeds,
            "accelerator": self.accelerator_seeds,
            "sample_accelerator": self.sampling,
        }
        for task, work in had_work.items():
            if work and task in seconds:
                self._last_s[task] = seconds[task]
        if self._both_train and "train_cpu" in seconds and "accelerator" in seconds:
            now = _Trained(
                self.cpu_seeds, self.threads.train, seconds["train_cpu"], seconds["accelerator"]
            )
            # If the slower kind alternates, balance is near, until shares change a lot.
            alike = [trained for trained in self._trained if self._is_like_now(trained)]
            turned = any(trained.cpu_is_slower != now.cpu_is_slower for trained in alike)
            self._balanced = bool(alike) and (self._balanced or turned)
            self._trained.append(now)
        return seconds

    @property
    def _both_train(self) -> bool:
        return self.cpu_seeds > 0 and self.accelerator_seeds > 0

    def _move_work(self, action: BalanceWork, seconds: dict[BalancedTask, float]) -> None:
        to_cpu = action.fast == "train_cpu"
        giving = self.accelerator_seeds if to_cpu else self.cpu_seeds
        slow_s, fast_s = seconds[action.slow], seconds[action.fast]
        if giving == 0 or slow_s <= fast_s:
            return
        if self._both_train:
            best = self._best_cpu_seeds(seconds)
            # Before balance at least one seed moves: a small share costs less than in proportion.
            if best == self.cpu_seeds and not self._balanced:
                best += 1 if to_cpu else -1
            if (best > self.cpu_seeds) == to_cpu:
                self._move_seeds(best)
            return
        # An idle trainer is tried if that pays, unless its last time with seeds exceeds the
        # bottleneck. It gets one seed if it gave its last away.
        tried = 1 if action.fast in self._last_s else max(1, self.total_seeds // 32)
        cpu_seeds = self.cpu_seeds + (tried if to_cpu else -tried)
        if self._last_s.get(action.fast, 0.0) < slow_s and self._pays(cpu_seeds, self.threads):
            self.cpu_seeds = cpu_seeds

    def _move_seeds(self, cpu_seeds: int) -> None:
        """Move towards ``cpu_seeds`` on the CPU trainer, as far as it pays."""
        moved = cpu_seeds - self.cpu_seeds
        while moved and not self._pays(self.cpu_seeds + moved, self.threads):
            moved = int(moved / 2)
        self.cpu_seeds += moved

    def _pays(self, cpu_seeds: int, threads: HostThreads) -> bool:
        """Return whether the expected epoch is not longer than under the present assignment."""
        if self._expect is None:
            return True
        after = Assignment(cpu_seeds, threads, self.sampling)
        return self._expect(after) <= self._expect(self.assignment)

    def _divide_seeds(self, seconds: dict[BalancedTask, float]) -> None:
        """Divide seeds by the seeds a second of each kind of trainer."""
        cpu_s, them_s = seconds["train_cpu"], seconds["accelerator"]
        if self._both_train and max(cpu_s, them_s) > 0:
            self._move_seeds(self._best_cpu_seeds(seconds))
            return
        to_cpu, to_them = (
            BalanceWork("accelerator", "train_cpu"),
            BalanceWork("train_cpu", "accelerator"),
        )
        self._move_work(to_cpu if them_s > cpu_s else to_them, seconds)

    def _best_cpu_seeds(self, seconds: dict[BalancedTask, float]) -> int:
        """Return the CPU trainer's best number of seeds, judged by the last similar rounds.

        Candidates lie near the point where both kinds would now take equally long. The present
        number stays if no candidate would have been faster.
        """
        now, count, total = self.cpu_seeds, self._accelerators, self.total_seeds
        # Seeds a second, both times multiplied by their product: one may be 0.
        rate = now * seconds["accelerator"]
        their_rate = self.accelerator_seeds * seconds["train_cpu"]
        fair = round(total * rate / (rate + their_rate))
        alike = self._trained if self._balanced else [self._trained[-1]]
        alike = [trained for trained in alike if self._is_like_now(trained)]

        def largest(cpu_seeds: int) -> int:
            return math.ceil((total - cpu_seeds) / count)

        def longer_s(seeds: int) -> float:
            return sum(
                max(
                    trained.cpu_s * seeds / trained.cpu_seeds,
                    trained.accelerator_s * largest(seeds) / largest(trained.cpu_seeds),
                )
                for trained in alike
            )

        nearby = range(max(0, fair - count), min(total, fair + count) + 1)
        candidates: tuple[int, ...] = (now, *nearby)
        return min(candidates, key=lambda seeds: (longer_s(seeds), abs(seeds - now)))

    def _is_like_now(self, trained: _Trained) -> bool:
        """Return whether a past round's seconds a seed apply to the present split."""
        theirs = self.total_seeds - trained.cpu_seeds
        return (
            trained.threads == self.threads.train
            and trained.cpu_seeds <= 2 * self.cpu_seeds <= 4 * trained.cpu_seeds
            and theirs <= 2 * self.accelerator_seeds <= 4 * theirs
        )

    def _move_sampling(self, seconds: dict[BalancedTask, float]) -> bool:
        """Choose how many accelerators draw their own mini-batches; return whether that changed.

        The choice minimises the longer of sampling on the CPU and on accelerators. Accelerators
        draw at the same time, so their number changes only the CPU's time, which is assumed to be
        proportional to its seeds.
        """
        if not self._samplers or "sample_accelerator" not in seconds:
            return False
        drawn = self._seeds_drawn_on_cpu(self.sampling)
        if not drawn:
            # The CPU draws nothing, so its speed is unknown.
            self.sampling -= seconds["sample_accelerator"] > 0
            return bool(seconds["sample_accelerator"] > 0)
        on_cpu_s = seconds["sample_cpu"] / drawn
        on_them_s = self._last_s.get("sample_accelerator", 0.0)

        def longer_s(sampling: int) -> float:
            return max(
                self._seeds_drawn_on_cpu(sampling) * on_cpu_s, on_them_s if sampling else 0.0
            )

        before = self.sampling
        # Ties go to the fewest: accelerators train meanwhile.
        self.sampling = min(range(self._samplers + 1), key=lambda count: (longer_s(count), count))
        return self.sampling != before

    def _seeds_drawn_on_cpu(self, sampling: int) -> float:
        left = self._accelerators - sampling
        return self.cpu_seeds + self.accelerator_seeds * left / self._accelerators

    def _move_threads(self, action: BalanceThread, seconds: dict[BalancedTask, float]) -> int:
        """Return the number of threads moved."""
        if self._shares_threads:
            return 0
        shares, target = self._thread_counts(), action.target
        by_speed = sorted(
            (task for task in CPU_TASKS if task in seconds and task != target),
            key=lambda task: (task != action.source, seconds[task]),
        )
        source = next((task for task in by_speed if shares[task] > 1), None)
        if source is None:
            return 0
        # Core-seconds of work; the slower task's share of all is its share of the threads.
        source_work, target_work = (
            shares[source] * seconds[source],
            shares[target] * seconds[target],
        )
        if source_work + target_work <= 0:
            return 0
        both = shares[source] + shares[target]
        fair = math.ceil(both * source_work / (source_work + target_work))
        moved = max(0, shares[source] - max(1, fair))
        # Less than one thread is due: one still helps if its loss leaves the source the faster.
        if moved == 0 and source_work < (shares[source] - 1) * seconds[target]:
            moved = 1
        while moved:
            threads = _host_threads(
                {**shares, source: shares[source] - moved, target: shares[target] + moved}
            )
            if self._pays(self.cpu_seeds, threads):
                self.threads = threads
                break
            moved //= 2
        return moved

    def _divide_threads(self, seconds: dict[BalancedTask, float], trained: float) -> None:
        """Divide threads by core-seconds of work, if that pays.

        The CPU trainer has ``trained`` times its earlier work. Each task gets one thread; each
        further one goes to the task that is then the longest.
        """
        before = self._thread_counts()
        work = {task: count * seconds.get(task, 0.0) for task, count in before.items()}
        work["train_cpu"] *= trained
        if not sum(work.values()):
            return
        divided = dict.fromkeys(before, 1)
        for _ in range(sum(before.values()) - len(before)):
            divided[max(CPU_TASKS, key=lambda task: work[task] / divided[task])] += 1
        threads = _host_threads(divided)
        if self._pays(self.cpu_seeds, threads):
            self.threads = threads

    def _thread_counts(self) -> dict[CpuTask, int]:
        threads = self.threads
        return {"sample_cpu": threads.sample, "load": threads.load, "train_cpu": threads.train}


def _host_threads(counts: Mapping[CpuTask, int]) -> HostThreads:
    return HostThreads(sample=counts["sample_cpu"], load=counts["load"], train=counts["train_cpu"])
