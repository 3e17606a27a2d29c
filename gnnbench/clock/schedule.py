"""A small deterministic scheduler: tasks, exclusive resources, precedence; out comes a timeline.

Work-conserving list scheduling. A task starts when everything it waits for has ended and all its
resources are free; among tasks that could start at the same moment, the one listed first goes
first. Ties never depend on hashing or timing, so equal input gives an equal timeline to the bit.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Task:
    """``after`` and the result refer to positions in the list of tasks."""

    duration_s: float
    resources: tuple[str, ...]
    after: tuple[int, ...] = ()


def schedule(tasks: Sequence[Task]) -> list[float]:
    """The start time of each task, seconds from 0; it ends ``duration_s`` later.

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

    start_s = [-1.0] * count
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
                busy.update(task.resources)
                start_s[number] = now_s
                heapq.heappush(running, (now_s + task.duration_s, number))
                continue
            heapq.heappush(queues.setdefault(taken, []), number)
            if queues.get(queue) and queue not in busy:
                heapq.heappush(candidates, (heapq.heappop(queues[queue]), queue))
        if not running:
            break
        now_s = running[0][0]
        released: set[str] = set()
        while running and running[0][0] == now_s:
            _, number = heapq.heappop(running)
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
    return start_s
