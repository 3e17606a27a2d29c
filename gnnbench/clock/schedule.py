"""A small deterministic scheduler: tasks, resources, precedence; out comes a timeline.

Resources are exclusive, but for lanes that transfers share. Work-conserving list scheduling: a task
starts when everything it waits for has ended and all its resources are free; among tasks that could
start at the same moment, the one listed first goes first. Ties never depend on hashing or timing,
so equal input gives an equal timeline to the bit.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Task:
    """``after`` and the result refer to positions in the list of tasks."""

    duration_s: float
    resources: tuple[str, ...]
    after: tuple[int, ...] = ()


class SharedLanes:
    """Transfers under way on lanes whose bandwidth they share evenly.

    A transfer that is alone on its lanes lasts ``duration_s``; while the fullest of them has k, it
    gets on at 1/k of that pace. What it waits for before it moves anything is stretched alike.
    """

    def __init__(self, lanes: Collection[str]) -> None:
        self._lanes = frozenset(lanes)
        self._left_s: dict[int, float] = {}
        self._uses: dict[int, tuple[str, ...]] = {}
        self._now_s = 0.0

    def used_by(self, task: Task) -> tuple[str, ...]:
        """The shared lanes among a task's resources."""
        if not self._lanes:
            return ()
        return tuple(name for name in task.resources if name in self._lanes)

    def start(self, number: int, task: Task, now_s: float) -> None:
        """A transfer begins at ``now_s``, up to which all others have been advanced."""
        self._now_s = now_s
        self._left_s[number], self._uses[number] = task.duration_s, self.used_by(task)

    def ends(self) -> dict[int, float]:
        """When each would end if no other began or ended before."""
        if not self._left_s:
            return {}
        crowd = Counter(lane for lanes in self._uses.values() for lane in lanes)
        return {
            number: self._now_s + left_s * max(crowd[lane] for lane in self._uses[number])
            for number, left_s in self._left_s.items()
        }

    def advance(self, now_s: float) -> list[int]:
        """Go on to ``now_s``, before which none ends; those that end then."""
        over = []
        for number, end_s in self.ends().items():
            if end_s <= now_s:
                over.append(number)
            else:
                self._left_s[number] *= (end_s - now_s) / (end_s - self._now_s)
        for number in over:
            del self._left_s[number], self._uses[number]
        self._now_s = now_s
        return over


def schedule(tasks: Sequence[Task], shared: Collection[str] = ()) -> list[tuple[float, float]]:
    """When each task starts and ends, seconds from 0: it takes ``duration_s``, and longer where it
    has ``shared`` lanes among its resources and meets others there.

    Raises ``ValueError`` for a negative or non-finite duration, a reference out of range, or
    tasks that wait for each other in a circle.
    """
    count = len(tasks)
    waiting_for = [0] * count
    followers: list[list[int]] = [[] for _ in range(count)]
    for number, task in enumerate(tasks):
        if not 0.0 <= task.duration_s < float("inf"):
            raise ValueError(f"task {number} has a duration of {task.duration_s} s")
        for earlier in set(task.after):
            if not 0 <= earlier < count:
                raise ValueError(f"task {number} waits for task {earlier}, which does not exist")
            followers[earlier].append(number)
            waiting_for[number] += 1

    start_s, end_s = [-1.0] * count, [-1.0] * count
    lanes = SharedLanes(shared)
    busy: set[str] = set()
    # A ready task that found a resource taken queues there. When it is released, only the first in
    # its queue is looked at, and the next only if that one must queue elsewhere.
    queues: dict[str, list[int]] = {}
    running: list[tuple[float, int]] = []
    # Tasks that may be able to start now, each with the queue it came from ("" for none).
    candidates = [(number, "") for number in range(count) if waiting_for[number] == 0]
    now_s, ended = 0.0, 0
    while True:
        heapq.heapify(candidates)
        while candidates:
            number, queue = heapq.heappop(candidates)
            task = tasks[number]
            taken = next((name for name in task.resources if name in busy), None)
            if taken is None:
                start_s[number] = now_s
                if mixed := lanes.used_by(task):
                    busy.update(set(task.resources).difference(mixed))
                    lanes.start(number, task, now_s)
                else:
                    busy.update(task.resources)
                    heapq.heappush(running, (now_s + task.duration_s, number))
                continue
            heapq.heappush(queues.setdefault(taken, []), number)
            if queues.get(queue) and queue not in busy:
                heapq.heappush(candidates, (heapq.heappop(queues[queue]), queue))
        ends_s = [*lanes.ends().values(), *(end for end, _ in running[:1])]
        if not ends_s:
            break
        now_s = min(ends_s)
        over = lanes.advance(now_s)
        while running and running[0][0] == now_s:
            over.append(heapq.heappop(running)[1])
        released: set[str] = set()
        for number in over:
            end_s[number] = now_s
            ended += 1
            busy.difference_update(tasks[number].resources)
            released.update(tasks[number].resources)
            for follower in followers[number]:
                waiting_for[follower] -= 1
                if waiting_for[follower] == 0:
                    candidates.append((follower, ""))
        candidates.extend(
            (heapq.heappop(queues[name]), name) for name in released if queues.get(name)
        )
    if ended != count:
        raise ValueError("tasks wait for each other in a circle")
    return list(zip(start_s, end_s, strict=True))
