"""The scheduler: legal, work-conserving, first listed first, and quick on long queues."""

import random
import time
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnbench.price import schedule as clock
from gnnbench.price.schedule import Task

RESOURCES = ("host", "link", "gpu", "fpga")


def schedule(tasks):
    return [begin_s for begin_s, _ in clock.schedule(tasks)]


@st.composite
def task_lists(draw):
    """Up to 25 tasks on up to two of four resources each, waiting for earlier ones."""
    tasks = []
    for number in range(draw(st.integers(0, 25))):
        after = draw(st.sets(st.integers(0, number - 1), max_size=3)) if number else set()
        resources = draw(st.lists(st.sampled_from(RESOURCES), max_size=2, unique=True))
        # Small whole numbers, so that many tasks end and are ready at the same moment.
        duration_s = draw(st.one_of(st.integers(0, 4).map(float), st.floats(0, 5)))
        tasks.append(Task(duration_s, tuple(resources), tuple(sorted(after))))
    return tasks


def ends(tasks, starts):
    return [start + task.duration_s for task, start in zip(tasks, starts, strict=True)]


def ready_times(tasks, starts):
    """When the last task that each one waits for has ended."""
    end = ends(tasks, starts)
    return [max((end[earlier] for earlier in task.after), default=0.0) for task in tasks]


def schedule_naively(tasks):
    """List scheduling from its definition: at every event, try every task in list order."""
    starts, now = {}, 0.0
    while len(starts) < len(tasks):
        changed = True
        while changed:
            changed = False
            done = {i for i, s in starts.items() if s + tasks[i].duration_s <= now}
            held = {name for i in starts if i not in done for name in tasks[i].resources}
            for number, task in enumerate(tasks):
                if number in starts or not done.issuperset(task.after):
                    continue
                if held.isdisjoint(task.resources):
                    starts[number] = now
                    held.update(task.resources)
                    changed = True
        later = [
            s + tasks[i].duration_s for i, s in starts.items() if s + tasks[i].duration_s > now
        ]
        if later:
            now = min(later)
    return [starts[number] for number in range(len(tasks))]


def draw_tasks(seed, count=30):
    """Tasks of 1 to 4 s, so that many end at once, on none to two resources, after none to two
    others."""
    draw = random.Random(seed)
    tasks = []
    for number in range(count):
        after = draw.sample(range(number), min(number, draw.choice((0, 0, 1, 2))))
        resources = draw.sample(RESOURCES, draw.choice((0, 1, 1, 2)))
        duration_s = float(draw.randint(1, 4))
        tasks.append(Task(duration_s, tuple(sorted(resources)), tuple(sorted(after))))
    return tasks


def test_equals_list_scheduling_from_its_definition():
    """Among 200 lists are blocked queues and several releases at one moment."""
    for seed in range(200):
        tasks = draw_tasks(seed)
        assert schedule(tasks) == schedule_naively(tasks), seed


@settings(derandomize=True)
@given(task_lists())
def test_a_schedule_is_legal_and_conserves_work(tasks):
    starts = schedule(tasks)
    end, ready = ends(tasks, starts), ready_times(tasks, starts)
    assert_nothing_runs_beside_itself(tasks, starts, end)
    assert all(start >= at for start, at in zip(starts, ready, strict=True))
    assert_no_task_waits_without_cause(tasks, starts, end, ready)
    assert_the_first_listed_goes_first(tasks, starts, ready)
    # Something always runs: it is never longer than everything one after the other.
    total_s = sum(task.duration_s for task in tasks)
    assert max(end, default=0.0) <= total_s * (1 + 1e-12)
    renamed = [
        Task(task.duration_s, tuple(f"other {name}" for name in task.resources), task.after)
        for task in tasks
    ]
    assert schedule(renamed) == starts
    # Lanes that may be shared and that nobody uses change nothing.
    assert [begin_s for begin_s, _ in clock.schedule(tasks, {"up"})] == starts


def assert_nothing_runs_beside_itself(tasks, starts, end):
    """A resource is held by one task at a time."""
    for name in RESOURCES:
        spans = sorted(
            (starts[i], end[i])
            for i, task in enumerate(tasks)
            if name in task.resources and task.duration_s
        )
        for (_, first_end), (second_start, _) in pairwise(spans):
            assert second_start >= first_end


def assert_no_task_waits_without_cause(tasks, starts, end, ready):
    """From ready to start, at every moment, another task holds one of its resources."""
    for number, task in enumerate(tasks):
        moment = ready[number]
        while moment < starts[number]:
            holding = [
                end[other]
                for other, peer in enumerate(tasks)
                if starts[other] <= moment < end[other]
                and not set(peer.resources).isdisjoint(task.resources)
            ]
            assert holding, f"task {number} could have started at {moment}"
            moment = max(holding)


def assert_the_first_listed_goes_first(tasks, starts, ready):
    """Of equal claims: those that hold the same resources."""
    for second, task in enumerate(tasks):
        for first in range(second):
            same = set(tasks[first].resources) == set(task.resources) != set()
            # Strictly before: a task of no length makes others ready after a moment's first starts.
            if same and ready[first] < starts[second]:
                assert starts[first] <= starts[second]


@pytest.mark.parametrize(
    ("tasks", "starts"),
    [
        ([], []),
        # A resource is shared in turn, and others run beside it.
        ([(2, "a"), (3, "a"), (4, "b"), (1, "")], [0, 2, 0, 0]),
        # A task that needs two resources waits for both, while later ones pass.
        ([(2, "a"), (5, "b"), (1, "ab"), (1, "a")], [0, 0, 5, 2]),
        # The next in a queue goes when the first must queue elsewhere.
        ([(1, "a"), (9, "b"), (1, "ab"), (1, "a"), (1, "a")], [0, 0, 9, 1, 2]),
        # A task of no length delays nobody.
        ([(0, "a"), (1, "a"), (0, "a", 1)], [0, 0, 1]),
        # It may wait for a task listed later.
        ([(1, "a", 1), (2, "a")], [2, 0]),
    ],
)
def test_small_lists_by_hand(tasks, starts):
    """Each task is its seconds, its resources, and what it waits for."""
    assert schedule([Task(float(s), tuple(names), after) for s, names, *after in tasks]) == starts


def test_a_pipeline_of_three_stages_and_four_rounds():
    """Stage s of round r starts at the bottleneck's pace: 1, 3 and 2 seconds."""
    tasks = []
    for _ in range(4):
        first = len(tasks)
        tasks += [
            Task(1.0, ("sample",)),
            Task(3.0, ("load",), (first,)),
            Task(2.0, ("train",), (first + 1,)),
        ]
    assert schedule(tasks) == [0, 1, 4, 1, 4, 7, 2, 7, 10, 3, 10, 13]


@pytest.mark.parametrize(
    ("tasks", "sentence"),
    [
        *(
            ([Task(1.0, ()), Task(float(text), ())], "task 1 has a duration of")
            for text in ("-1", "nan", "inf", "-inf")
        ),
        ([Task(1.0, ()), Task(1.0, (), (-1,))], "task 1 waits for task -1, which does not"),
        ([Task(1.0, ()), Task(1.0, (), (2,))], "task 1 waits for task 2, which does not"),
        ([Task(1.0, (), (0,))], "circle"),
        ([Task(1.0, ()), Task(1.0, (), (2,)), Task(1.0, (), (1,))], "circle"),
    ],
)
def test_lists_that_cannot_be_scheduled_are_refused(tasks, sentence):
    with pytest.raises(ValueError, match=sentence):
        schedule(tasks)


def test_fifty_thousand_tasks_in_a_chain_over_two_resources():
    count = 50_000
    tasks = [Task(1.0, ("a" if i % 2 else "b",), (i - 1,) if i else ()) for i in range(count)]
    assert schedule(tasks) == [float(i) for i in range(count)]


def test_fifty_thousand_tasks_queue_on_one_resource():
    """One release looks at one waiting task; looking at all takes over a billion steps here."""
    count = 50_000
    began_s = time.process_time()
    assert schedule([Task(1.0, ("a",))] * count) == [float(i) for i in range(count)]
    assert time.process_time() - began_s < 20.0


def transfers(*tasks):
    return clock.schedule([Task(*task) for task in tasks], {"up", "down"})


@pytest.mark.parametrize(
    ("tasks", "found"),
    [
        # Of 2 and 1 seconds: half as fast until 2, then the longer has one second left.
        ([(2, ("up",)), (1, ("up",))], [(0, 3), (0, 2)]),
        # A transfer that comes later slows down what is under way.
        ([(2, ("up",)), (1, ("gpu",)), (2, ("up",), (1,))], [(0, 3), (0, 1), (1, 4)]),
        # The fullest of a transfer's lanes decides.
        (
            [(1, ("up",)), (1, ("up", "down")), (1, ("down",)), (1, ("down",))],
            [(0, 2), (0, 3), (0, 3), (0, 3)],
        ),
        # What else a transfer holds is its own.
        ([(1, ("up", "buffer")), (1, ("up", "buffer")), (3, ("up",))], [(0, 2), (2, 4), (0, 5)]),
    ],
)
def test_transfers_share_a_lane(tasks, found):
    assert transfers(*tasks) == found


@settings(derandomize=True)
@given(st.lists(st.floats(0.1, 5.0), min_size=1, max_size=8))
def test_a_shared_lane_is_never_idle_and_never_faster(seconds):
    """The last ends when all would have ended in turn; shorter ones end before longer ones."""
    found = transfers(*((each, ("up",)) for each in seconds))
    ends_s = [end_s for _, end_s in found]
    assert max(ends_s) == pytest.approx(sum(seconds))
    by_length = [end_s for _, end_s in sorted(zip(seconds, ends_s, strict=True))]
    assert by_length == sorted(by_length)
