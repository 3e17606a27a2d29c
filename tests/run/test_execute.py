"""Steps are taken in order and accounted for later, but no later than somebody asks."""

from __future__ import annotations

import pytest

from gnnbench.program import Buffer, Collective, Ledger, Section, Step
from gnnbench.records import AggregateWork
from gnnbench.run.execute import MOST_TAKEN, Reader, take_items
from gnnbench.run.recorder import Recorder
from tests.run.counting_clock import CountingClock

NOT_YET = -1.0


@pytest.fixture
def recorder():
    return Recorder(CountingClock())


def make_step(edges, **fields):
    work = AggregateWork(edges=edges)
    return Step("", (), "update", f"{edges}", "a", ("a",), work, seconds=NOT_YET, **fields)


def end(recorder):
    return recorder.end_epoch(0.0, [0.0], 1)


def tell(step):
    step.work = step.work._replace(edges=7)


@pytest.mark.parametrize("kind", ["asked", "index_work", "section"])
def test_who_asks_knows_the_seconds_of_all_steps_up_to_there(recorder, kind):
    known = []

    def make():
        first, last = make_step(2), make_step(4)
        yield first
        known.append(first.seconds)
        if kind == "section":
            yield Section(1, (0, 0))
        else:
            asking = make_step(3, **{kind: True if kind == "asked" else tell})
            yield asking
            known.append(asking.seconds)
        yield last
        known.extend((first.seconds, last.seconds))
        yield Section(2, (0, 0))
        known.append(last.seconds)

    take_items(make(), recorder, Ledger({}), None)
    asking_s = {"asked": [3.0], "index_work": [7.0], "section": []}[kind]
    assert known == [NOT_YET, *asking_s, 2.0, NOT_YET, 4.0]


def test_a_long_section_does_not_hold_all_its_steps(recorder):
    steps = [make_step(number) for number in range(MOST_TAKEN + 1)]

    def make():
        yield from steps
        assert steps[MOST_TAKEN - 1].seconds == MOST_TAKEN - 1
        assert steps[MOST_TAKEN].seconds == NOT_YET

    take_items(make(), recorder, Ledger({}), None)
    assert [span.seconds for span in end(recorder).spans] == list(range(MOST_TAKEN + 1))


@pytest.mark.parametrize("told", [False, True])
def test_steps_keep_their_order_and_their_waits_whenever_they_are_accounted_for(recorder, told):
    rows, others = Buffer("rows"), Buffer("others")
    steps = [
        make_step(1, writes=(rows,)),
        make_step(2, reads=(rows,), writes=(others,)),
        make_step(3, reads=(rows,), asked=True),
        make_step(4, adds=(rows,)),
        make_step(5, reads=(rows, others)),
    ]
    items = [steps[0], Collective(tuple(steps[1:3])), *steps[3:]]
    heard = []
    arrive = (lambda number, after: heard.append((number, after))) if told else None
    Reader(recorder, Ledger({}), None, arrive=arrive).take(items)
    spans = end(recorder).spans
    waits = [(0, ()), (1, (0,)), (2, (0,)), (3, (0, 1, 2)), (4, (0, 1, 3))]
    assert [(span.id, span.after) for span in spans] == waits
    assert [span.label for span in spans] == ["1", "2", "3", "4", "5"]
    assert heard == (waits if told else [])


def test_a_step_lasts_as_long_as_its_body_and_no_longer(recorder):
    now = [0.0]
    track = recorder.track
    track.read, track.since = lambda: now[0], lambda began: (began, now[0] - began)

    def wait(seconds):
        now[0] += seconds

    steps = [make_step(1), make_step(2)]
    for step, seconds in zip(steps, (2.0, 3.0), strict=True):
        step.op, step.operands = "wait", (seconds,)

    def make():
        for step in steps:
            now[0] += 10.0
            yield step

    take_items(make(), recorder, Ledger({}), {"wait": wait})
    started_s = recorder.started_s
    spans = end(recorder).spans
    assert [span.wall_s for span in spans] == [2.0, 3.0]
    assert [span.wall_start_s + started_s for span in spans] == pytest.approx([10.0, 22.0])
