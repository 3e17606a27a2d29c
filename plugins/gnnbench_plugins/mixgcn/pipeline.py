"""The fine-grain pipeline between sparse and dense devices as a timeline: MixGCN Figures 5 and 6.

Aggregation goes to the sparse devices, update to the dense ones. A *pass* is one aggregation over
all vertices and the dense work behind it; an epoch of L layers is 2 L - 1 of them, forward, turning
round at the last layer, and backward. A pass is cut into s batches of vertices in a fixed order,
and each batch takes four steps: the sparse devices aggregate it, its rows go to the dense devices,
these update it, and the result comes back. Each of the four works through the batches one by one
in their order. The four run beside each other, but where the sparse devices are the dense ones:
there aggregation and update take turns, and so do sending and returning. A batch of the next pass
begins when everything it reads is back.

- Figure 5a, *naive*: one batch a pass, so that sparse and dense devices take turns.
- Figure 5b and c, *pipelined*: s batches of the vertices as they are numbered.
- Figure 5d, *reordered*: s batches of them in the order of ``ordering.reorder``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gnnbench.records import IntArray

SecondsArray = npt.NDArray[np.float64]

STEPS = ("aggregate", "send", "update", "return")
#: The steps that cross between the devices.
CROSSING = [1, 3]


@dataclass(frozen=True, slots=True, eq=False)
class Pass:
    """Seconds of every batch in each of the four steps, float64 ``(4, s)`` in ``STEPS``' order."""

    label: str
    seconds: SecondsArray


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """When each step of each batch starts and ends, float64 ``(passes, 4, s)``, from 0 s."""

    start_s: SecondsArray
    end_s: SecondsArray

    @property
    def epoch_s(self) -> float:
        return float(self.end_s.max())

    @property
    def waits_s(self) -> SecondsArray:
        """How long the sparse devices idle before each batch of each pass, ``(passes, s)``."""
        start = self.start_s[:, 0].ravel()
        end = self.end_s[:, 0].ravel()
        return (start - np.concatenate(([0.0], end[:-1]))).reshape(len(self.start_s), -1)

    @property
    def idle_s(self) -> float:
        """How long the sparse devices idle between their first batch and their last."""
        return float(self.waits_s.sum())


def schedule_passes(
    passes: Sequence[Pass], last_read: IntArray, *, shared: bool = False
) -> Timeline:
    """The timeline of an epoch; ``last_read`` int64 ``(s,)`` as ``ordering.Batches`` has it, and
    ``shared`` where the sparse devices are the dense ones."""
    if shared:
        return _take_turns(passes, last_read)
    shape = (len(passes), len(STEPS), len(last_read))
    start, end = np.zeros(shape), np.zeros(shape)
    free_s = [0.0] * len(STEPS)
    back_s = [0.0] * len(last_read)  # when each batch of the pass before is back
    needed = last_read.tolist()
    for number, each in enumerate(passes):
        durations = each.seconds.T.tolist()
        came_back_s = []
        for batch, of_batch in enumerate(durations):
            ready_s = back_s[needed[batch]]
            for step, duration_s in enumerate(of_batch):
                ready_s = max(ready_s, free_s[step])
                start[number, step, batch] = ready_s
                ready_s += duration_s
                end[number, step, batch] = free_s[step] = ready_s
            came_back_s.append(ready_s)
        back_s = came_back_s
    return Timeline(start, end)


def _take_turns(passes: Sequence[Pass], last_read: IntArray) -> Timeline:
    """The timeline where a device aggregates or updates, and its link sends or returns.

    What could start first does; of two that could start together, the earlier batch.
    """
    stages = len(last_read)
    start, end = (np.zeros((len(passes), len(STEPS), stages)) for _ in range(2))
    seconds, needed = [each.seconds.tolist() for each in passes], last_read.tolist()
    free_s = [0.0, 0.0]
    done = [0] * len(STEPS)  # batches of all passes, by step
    for _ in range(len(passes) * len(STEPS) * stages):
        ready = []
        for step, count in enumerate(done):
            number, batch = divmod(count, stages)
            if number == len(passes):
                continue
            ready_s = 0.0
            if step:
                if done[step - 1] <= count:
                    continue
                ready_s = end[number, step - 1, batch]
            elif number:
                if done[-1] <= (number - 1) * stages + needed[batch]:
                    continue
                ready_s = end[number - 1, -1, needed[batch]]
            ready.append((max(float(ready_s), free_s[step % 2]), count, step))
        start_s, count, step = min(ready)
        number, batch = divmod(count, stages)
        start[number, step, batch] = start_s
        free_s[step % 2] = start_s + seconds[number][step][batch]
        end[number, step, batch] = free_s[step % 2]
        done[step] += 1
    return Timeline(start, end)


def find_lag(passes: Sequence[Pass]) -> int | None:
    """After how many sparse steps, at the latest, a batch is back from the dense devices.

    The longest send, update and return together over the shortest aggregation, rounded up; with
    s >= ``ordering.count_stages(n, b, lag=...)`` batches nothing waits between layers. 1 is what
    Proposition 3.5 takes for granted. None where one of the three takes longer than an aggregation:
    batches then queue for it, and the sparse devices wait whatever they depend on.
    """
    longest = [max(float(each.seconds[step].max()) for each in passes) for step in (1, 2, 3)]
    shortest = min(float(each.seconds[0].min()) for each in passes)
    if max(longest) > shortest:
        return None
    return max(1, math.ceil(sum(longest) / shortest)) if shortest else 1
