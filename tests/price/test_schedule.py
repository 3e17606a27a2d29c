"""The scheduler: legal, work-conserving, first listed first, and quick on long queues."""

from __future__ import annotations

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
    """Start times."""
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


# --------------------------------------------------------------------------- properties


@settings(derandomize=True)
@given(task_lists())
def test_no_resource_runs_two_tasks_at_once(tasks):
    starts = schedule(tasks)
    end = ends(tasks, starts)
    for name in RESOURCES:
        spans = sorted(
            (starts[i], end[i])
            for i, task in enumerate(tasks)
            if name in task.resources and task.duration_s
        )
        for (_, first_end), (second_start, _) in pairwise(spans):
            assert second_start >= first_end


@settings(derandomize=True)
@given(task_lists())
def test_no_task_starts_before_what_it_waits_for(tasks):
    starts = schedule(tasks)
    for start, ready in zip(starts, ready_times(tasks, starts), strict=True):
        assert start >= ready


@settings(derandomize=True)
@given(task_lists())
def test_no_task_waits_without_cause(tasks):
    """From ready to start, at every moment, another task holds one of its resources."""
    starts = schedule(tasks)
    end, ready = ends(tasks, starts), ready_times(tasks, starts)
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


@settings(derandomize=True)
@given(task_lists())
def test_of_equal_claims_the_first_listed_goes_first(tasks):
    starts = schedule(tasks)
    ready = ready_times(tasks, starts)
    for second, task in enumerate(tasks):
        for first in range(second):
            same = set(tasks[first].resources) == set(task.resources) != set()
            # Strictly before: a task of no length makes others ready after a moment's first starts.
            if same and ready[first] < starts[second]:
                assert starts[first] <= starts[second]


@settings(derandomize=True)
@given(task_lists())
def test_as_long_as_its_longest_chain_and_its_busiest_resource(tasks):
    starts = schedule(tasks)
    end = ends(tasks, starts)
    chain: list[float] = []
    for task in tasks:
        chain.append(max((chain[i] for i in task.after), default=0.0) + task.duration_s)
    makespan = max(end, default=0.0)
    assert makespan >= max(chain, default=0.0) * (1 - 1e-12)
    for name in RESOURCES:
        load = sum(task.duration_s for task in tasks if name in task.resources)
        assert makespan >= load * (1 - 1e-12)
    # Something always runs: it is never longer than everything one after the other.
    assert makespan <= sum(task.duration_s for task in tasks) * (1 + 1e-12)


@settings(derandomize=True)
@given(st.lists(st.tuples(st.integers(0, 4), st.sets(st.sampled_from(RESOURCES))), max_size=12))
def test_equals_list_scheduling_from_its_definition(drawn):
    """Independent tasks with whole durations above zero, so that no moment has two states."""
    tasks = [Task(float(length + 1), tuple(sorted(names))) for length, names in drawn]
    assert schedule(tasks) == schedule_naively(tasks)


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


@pytest.mark.parametrize("block", range(6))
def test_equals_list_scheduling_where_tasks_wait_and_queue(block):
    """The same 300 lists in every run. Among them are tasks that find one of two resources taken,
    queues whose first must queue elsewhere, and several releases at one moment."""
    for seed in range(50 * block, 50 * block + 50):
        tasks = draw_tasks(seed)
        assert schedule(tasks) == schedule_naively(tasks), seed


@settings(derandomize=True)
@given(task_lists())
def test_equal_input_gives_an_equal_timeline(tasks):
    renamed = [
        Task(task.duration_s, tuple(f"other {name}" for name in task.resources), task.after)
        for task in tasks
    ]
    assert schedule(tasks) == schedule(list(tasks)) == schedule(renamed)


# --------------------------------------------------------------------------- by hand


def test_nothing_to_do():
    assert schedule([]) == []


def test_a_resource_is_shared_in_turn_and_others_run_beside_it():
    tasks = [Task(2.0, ("a",)), Task(3.0, ("a",)), Task(4.0, ("b",)), Task(1.0, ())]
    assert schedule(tasks) == [0.0, 2.0, 0.0, 0.0]


def test_a_task_that_needs_two_resources_waits_for_both_while_later_ones_pass():
    tasks = [Task(2.0, ("a",)), Task(5.0, ("b",)), Task(1.0, ("a", "b")), Task(1.0, ("a",))]
    assert schedule(tasks) == [0.0, 0.0, 5.0, 2.0]


def test_the_next_in_a_queue_goes_when_the_first_must_queue_elsewhere():
    tasks = [
        Task(1.0, ("a",)),
        Task(9.0, ("b",)),
        Task(1.0, ("a", "b")),
        Task(1.0, ("a",)),
        Task(1.0, ("a",)),
    ]
    assert schedule(tasks) == [0.0, 0.0, 9.0, 1.0, 2.0]


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


def test_a_task_of_no_length_delays_nobody():
    tasks = [Task(0.0, ("a",)), Task(1.0, ("a",)), Task(0.0, ("a",), (1,))]
    assert schedule(tasks) == [0.0, 0.0, 1.0]


def test_it_may_wait_for_a_task_listed_later():
    assert schedule([Task(1.0, ("a",), (1,)), Task(2.0, ("a",))]) == [2.0, 0.0]


@pytest.mark.parametrize("duration_s", [-1.0, float("nan"), float("inf"), float("-inf")])
def test_a_duration_must_be_finite_and_not_negative(duration_s):
    with pytest.raises(ValueError, match="task 1 has a duration of"):
        schedule([Task(1.0, ()), Task(duration_s, ())])


@pytest.mark.parametrize("reference", [-1, 2])
def test_a_reference_must_exist(reference):
    with pytest.raises(ValueError, match=f"task 1 waits for task {reference}, which does not"):
        schedule([Task(1.0, ()), Task(1.0, (), (reference,))])


@pytest.mark.parametrize("tasks", [
    [Task(1.0, (), (0,))],
    [Task(1.0, ()), Task(1.0, (), (2,)), Task(1.0, (), (1,))],
])  # fmt: skip
def test_tasks_must_not_wait_in_a_circle(tasks):
    with pytest.raises(ValueError, match="circle"):
        schedule(tasks)


# --------------------------------------------------------------------------- size


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


# --------------------------------------------------------------------------- shared lanes


def transfers(*tasks):
    return clock.schedule([Task(*task) for task in tasks], {"up", "down"})


def test_two_transfers_share_a_lane_until_the_shorter_is_over():
    """Of 2 and 1 seconds: half as fast until 2, then the longer has one second left."""
    assert transfers((2.0, ("up",)), (1.0, ("up",))) == [(0.0, 3.0), (0.0, 2.0)]


def test_a_transfer_that_comes_later_slows_down_what_is_under_way():
    found = transfers((2.0, ("up",)), (1.0, ("gpu",)), (2.0, ("up",), (1,)))
    assert found == [(0.0, 3.0), (0.0, 1.0), (1.0, 4.0)]


def test_the_fullest_of_a_transfer_s_lanes_decides():
    found = transfers((1.0, ("up",)), (1.0, ("up", "down")), (1.0, ("down",)), (1.0, ("down",)))
    assert found == [(0.0, 2.0), (0.0, 3.0), (0.0, 3.0), (0.0, 3.0)]


def test_what_else_a_transfer_holds_is_its_own():
    found = transfers((1.0, ("up", "buffer")), (1.0, ("up", "buffer")), (3.0, ("up",)))
    assert found == [(0.0, 2.0), (2.0, 4.0), (0.0, 5.0)]


@settings(derandomize=True)
@given(st.lists(st.floats(0.1, 5.0), min_size=1, max_size=8))
def test_a_shared_lane_is_never_idle_and_never_faster(seconds):
    """However many begin together, the last ends when all would have ended one after the other,
    and the shorter ones before the longer ones."""
    found = transfers(*((each, ("up",)) for each in seconds))
    ends_s = [end_s for _, end_s in found]
    assert max(ends_s) == pytest.approx(sum(seconds))
    by_length = [end_s for _, end_s in sorted(zip(seconds, ends_s, strict=True))]
    assert by_length == sorted(by_length)


@settings(derandomize=True)
@given(task_lists())
def test_lanes_that_nobody_uses_change_nothing(tasks):
    assert clock.schedule(tasks, {"up"}) == clock.schedule(tasks)
