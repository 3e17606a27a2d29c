"""The critical path is what decides an epoch: only a shorter span in it makes the epoch shorter."""

import random

import pytest

from gnnbench.price.folds import find_critical_path
from gnnbench.price.schedule import Task, schedule
from gnnbench.records import CopyWork, Scheduled, Span

LANES = ("gpu0", "gpu1", "pcie0", "pcie1")


def make_tasks(seed):
    """Tasks of unlike lengths, each on a lane, or on two, that wait for up to two others."""
    draw = random.Random(seed)
    return [
        Task(
            draw.uniform(0.5, 2.0),
            tuple(draw.sample(LANES, draw.choice((1, 1, 1, 2)))),
            tuple(draw.sample(range(number), min(number, draw.choice((0, 1, 2))))),
        )
        for number in range(40)
    ]


def lay_out(tasks):
    times = schedule(tasks)
    return [
        Scheduled(
            Span(
                number, "transfer", "", task.resources[0], task.resources, CopyWork(1),
                task.after, 0, 0, 0, task.duration_s, 0.0, 0.0,
            ),
            *times[number],
        )
        for number, task in enumerate(tasks)
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(5))
def test_a_shorter_span_shortens_the_epoch_only_on_the_path(seed):
    """Each span is made a trifle shorter, and everything is scheduled once more."""
    tasks = make_tasks(seed)
    timeline = lay_out(tasks)
    end_s, trifle_s = max(item.end_s for item in timeline), 1e-7
    path = find_critical_path(timeline)
    assert sum(item.end_s - item.start_s for item in path) == pytest.approx(end_s)
    found = {item.span.id for item in path}
    assert 1 < len(found) < len(tasks)
    for number, task in enumerate(tasks):
        others = list(tasks)
        others[number] = Task(task.duration_s - trifle_s, task.resources, task.after)
        saved_s = end_s - max(end for _, end in schedule(others))
        assert saved_s == pytest.approx(trifle_s if number in found else 0.0, abs=1e-9)


def test_a_timeline_with_gaps_has_a_path_and_an_empty_one_has_none():
    """Measured spans begin later than what they wait for has ended."""
    (first, second, *_) = lay_out([Task(1.0, ("gpu0",)), Task(1.0, ("gpu0",), (0,))])
    late = Scheduled(second.span, 1.5, 2.5)
    assert find_critical_path([late, first]) == [first, late]
    assert find_critical_path([]) == []
