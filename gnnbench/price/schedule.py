"""A small deterministic scheduler that turns tasks with resources and precedence into a timeline.

Resources are exclusive, except lanes that transfers share. This is work-conserving list scheduling:
a task starts when everything it waits for has ended and all its resources are free. Among tasks
that could start at the same moment, the one listed first goes first. Ties never depend on hashing
or timing, so equal input gives an equal timeline to the bit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush


@dataclass(frozen=True, slots=True)
class Task:
    """A task; ``after`` and the result refer to positions in the list of tasks."""

    duration_s: float
    resources: tuple[str, ...]
    after: tuple[int, ...] = ()


class SharedLanes:
    """Transfers in flight on lanes with evenly shared bandwidth.

    A transfer that is alone on its lanes lasts ``duration_s``. While the fullest of its lanes has k
    transfers, it advances at 1/k of that pace. Its latency is stretched alike.
    """

    def __init__(self) -> None:
        self._left_s: dict[int, float] = {}
        self._uses: dict[int, tuple[str, ...]] = {}
        self._crowd: Counter[str] = Counter()
        self._now_s = 0.0
        #: The result of ``ends``, or None if a transfer has begun or ended since.
        self._ends_s: dict[int, float] | None = None

    def start(self, number: int, duration_s: float, lanes: tuple[str, ...], now_s: float) -> None:
        """Begin a transfer at ``now_s``, up to which all others have been advanced."""
        self._now_s, self._ends_s = now_s, None
        self._left_s[number], self._uses[number] = duration_s, lanes
        self._crowd.update(lanes)

    def ends(self) -> dict[int, float]:
        """Return when each transfer would end if no other began or ended before."""
        if self._ends_s is None:
            now_s, uses, crowd = self._now_s, self._uses, self._crowd
            self._ends_s = {
                number: now_s + left_s * max([crowd[lane] for lane in uses[number]])
                for number, left_s in self._left_s.items()
            }
        return self._ends_s

    def advance(self, now_s: float) -> list[int]:
        """Advance to ``now_s``, before which no transfer ends, and return those that end then."""
        over, left_s, before_s = [], self._left_s, self._now_s
        for number, end_s in self.ends().items():
            if end_s <= now_s:
                over.append(number)
            else:
                left_s[number] *= (end_s - now_s) / (end_s - before_s)
        for number in over:
            del left_s[number]
            self._crowd.subtract(self._uses.pop(number))
        self._now_s, self._ends_s = now_s, None
        return over


class _Resources:
    """The resources in use, and the tasks that wait for one.

    Tasks that hold the same resources are a *group*. No task of a group can start before the
    group's first ready task. So when a resource is released, one task of each of its groups is
    examined.
    """

    def __init__(self, tasks: Sequence[Task], shared: Collection[str]) -> None:
        numbers: dict[tuple[str, ...], int] = {}
        self._group_of = [numbers.setdefault(task.resources, len(numbers)) for task in tasks]
        names = {name for resources in numbers for name in resources}.difference(shared)
        bits = {name: 1 << place for place, name in enumerate(names)}
        #: By group: a bit for each resource that its tasks hold exclusively, the lanes that they
        #: share, and a heap of the tasks that wait for no other task.
        self._own = [sum({bits.get(name, 0) for name in resources}) for resources in numbers]
        self._shared = [
            tuple(name for name in resources if name not in bits) for resources in numbers
        ]
        self._ready: list[list[int]] = [[] for _ in numbers]
        self._users = {
            bit: [group for group, own in enumerate(self._own) if own & bit]
            for bit in bits.values()
        }
        self._taken = 0
        #: The groups whose first task may be able to start now.
        self._fresh: set[int] = set()

    def shared_by(self, number: int) -> tuple[str, ...]:
        """Return the shared lanes among a task's resources."""
        return self._shared[self._group_of[number]]

    def add(self, numbers: Iterable[int]) -> None:
        """Mark tasks as ready: they wait for no other task from now on."""
        for number in numbers:
            group = self._group_of[number]
            heappush(self._ready[group], number)
            self._fresh.add(group)

    def release(self, numbers: Iterable[int]) -> None:
        """Release the resources of tasks that have ended."""
        own, ready, released = self._own, self._ready, 0
        for number in numbers:
            released |= own[self._group_of[number]]
        self._taken = taken = self._taken & ~released
        while released:
            bit = released & -released
            released ^= bit
            self._fresh.update(
                [each for each in self._users[bit] if ready[each] and not own[each] & taken]
            )

    def start(self) -> Iterator[int]:
        """Yield the tasks that start now, first listed first; each takes its resources."""
        own, ready = self._own, self._ready
        candidates = [(ready[group][0], group) for group in self._fresh]
        self._fresh = set()
        heapify(candidates)
        while candidates:
            _, group = heappop(candidates)
            if own[group] & self._taken:
                continue
            self._taken |= own[group]
            yield heappop(ready[group])
            if not own[group] and ready[group]:  # such tasks do not wait for each other
                heappush(candidates, (ready[group][0], group))


def schedule(tasks: Sequence[Task], shared: Collection[str] = ()) -> list[tuple[float, float]]:
    """Return when each task starts and ends, seconds from 0.

    A task takes ``duration_s``, or longer if it shares one of the ``shared`` lanes with others.

    Raises ``ValueError`` for a negative or non-finite duration, a reference out of range, or tasks
    that wait for each other in a circle.
    """
    waiting_for, followers = _find_followers(tasks)
    start_s, end_s = [-1.0] * len(tasks), [-1.0] * len(tasks)
    resources, lanes = _Resources(tasks, shared), SharedLanes()
    resources.add(number for number, count in enumerate(waiting_for) if count == 0)
    running: list[tuple[float, int]] = []
    now_s, ended = 0.0, 0
    while True:
        for number in resources.start():
            start_s[number] = now_s
            duration_s = tasks[number].duration_s
            if uses := resources.shared_by(number):
                lanes.start(number, duration_s, uses, now_s)
            else:
                heappush(running, (now_s + duration_s, number))
        ends_s = [*lanes.ends().values(), *(end for end, _ in running[:1])]
        if not ends_s:
            break
        now_s = min(ends_s)
        over = lanes.advance(now_s)
        while running and running[0][0] == now_s:
            over.append(heappop(running)[1])
        ended += len(over)
        ready = []
        for number in over:
            end_s[number] = now_s
            for follower in followers[number]:
                waiting_for[follower] -= 1
                if waiting_for[follower] == 0:
                    ready.append(follower)
        resources.add(ready)
        resources.release(over)
    if ended != len(tasks):
        raise ValueError("tasks wait for each other in a circle")
    return list(zip(start_s, end_s, strict=True))


def _find_followers(tasks: Sequence[Task]) -> tuple[list[int], list[list[int]]]:
    """Return the number of tasks that each task waits for, and the tasks that wait for it.

    A reference that occurs twice counts twice. Errors are as in ``schedule``.
    """
    count = len(tasks)
    followers: list[list[int]] = [[] for _ in range(count)]
    for number, task in enumerate(tasks):
        if not 0.0 <= task.duration_s < float("inf"):
            raise ValueError(f"task {number} has a duration of {task.duration_s} s")
        for earlier in task.after:
            if not 0 <= earlier < count:
                raise ValueError(f"task {number} waits for task {earlier}, which does not exist")
            followers[earlier].append(number)
    return [len(task.after) for task in tasks], followers
