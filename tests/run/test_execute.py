"""Steps are taken in order and accounted for later, but no later than somebody asks."""

from typing import NamedTuple

import pytest

from gnnbench.program import (
    Access,
    Account,
    Buffer,
    Collective,
    Counts,
    Ledger,
    Place,
    Section,
    Sizes,
    Step,
    Times,
)
from gnnbench.program.reader import MOST_TAKEN, Reader, take_items
from gnnbench.program.recorder import Recorder
from gnnbench.records import AggregateWork
from tests.run.counting_clock import CountingClock


class Pause(NamedTuple):
    seconds: float


@pytest.fixture
def recorder():
    return Recorder(CountingClock())


def make_step(edges, reads=(), writes=(), adds=(), **fields):
    work, access = AggregateWork(edges=edges), Access(reads, writes, adds)
    place = Place("a", ("a",))
    return Step(None, "update", f"{edges}", place, work, access=access, **fields)


def end(recorder):
    return recorder.end_epoch(0.0, [0.0], 1)


@pytest.mark.parametrize("kind", ["account", "index_work", "announcement", "section"])
def test_who_asks_knows_the_seconds_of_all_steps_up_to_there(recorder, kind):
    known, times = [], Times()

    def make():
        yield make_step(2, times=times)
        known.append([*times.seconds])
        if kind == "section":
            yield Section(1, (0, 0))
        elif kind == "account":
            yield make_step(3, times=times)
            known.append([*times.seconds])
            yield Account()
        else:
            sized = Sizes(AggregateWork(edges=7)) if kind == "index_work" else None
            yield make_step(3, index_work=lambda: sized, times=times)
        known.append([*times.seconds])
        yield make_step(4, times=times)
        known.append([*times.seconds])

    take_items(make(), recorder, Ledger({}), None)
    told = {
        "account": [[], [2.0, 3.0]],
        "index_work": [[2.0, 7.0]],
        "announcement": [[2.0, 3.0]],
        "section": [[2.0]],
    }[kind]
    assert known == [[], *told, told[-1]]
    assert times.total == sum([*told[-1], 4.0])


def test_index_work_says_how_much_a_step_was(recorder):
    sized = Sizes(AggregateWork(edges=7), Counts((), 7, 5, 0.5))
    take_items([make_step(0, index_work=lambda: sized)], recorder, Ledger({}), None)
    trace = end(recorder)
    assert trace.spans[0].work == AggregateWork(edges=7)
    assert (trace.edges, trace.vertices, trace.work_by_device) == (7, 5, {"a": 0.5})


def test_a_long_section_does_not_hold_all_its_steps(recorder):
    times = Times()

    def make():
        yield from (make_step(number, times=times) for number in range(MOST_TAKEN + 1))
        assert times.seconds == list(range(MOST_TAKEN))

    take_items(make(), recorder, Ledger({}), None)
    assert [span.seconds for span in end(recorder).spans] == list(range(MOST_TAKEN + 1))


@pytest.mark.parametrize("told", [False, True])
def test_steps_keep_their_order_and_their_waits_whenever_they_are_accounted_for(recorder, told):
    rows, others = Buffer("rows"), Buffer("others")
    steps = [
        make_step(1, writes=(rows,)),
        make_step(2, reads=(rows,), writes=(others,)),
        make_step(3, reads=(rows,)),
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

    def wait(operation):
        now[0] += operation.seconds

    def make():
        for seconds in (2.0, 3.0):
            now[0] += 10.0
            yield make_step(1)._replace(operation=Pause(seconds))

    take_items(make(), recorder, Ledger({}), {Pause: wait})
    started_s = recorder.started_s
    spans = end(recorder).spans
    assert [span.wall_s for span in spans] == [2.0, 3.0]
    assert [span.wall_start_s + started_s for span in spans] == pytest.approx([10.0, 22.0])
