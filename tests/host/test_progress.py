"""Tasks under way: how far the whole is, who is told, and when nothing may be shown."""

import pytest

from gnnbench.host import progress
from gnnbench.host.progress import begin, doing, find_latest, held, is_held, note_steps, shown_by


class Listener:
    def __init__(self):
        self.heard = []

    def begin(self, label, total):
        self.heard.append(("begin", label, total))

    def advance(self, label, steps):
        self.heard.append(("advance", label, steps))

    def end(self, label, status):
        self.heard.append(("end", label, status))


def test_the_share_of_the_whole_counts_what_its_parts_have_done():
    with doing("whole", 4) as whole:
        whole.advance()
        one, other = begin("one", 10), begin("other", 10)
        one.advance(5)
        other.advance(10)
        assert whole.share == pytest.approx((1 + 0.5 + 1.0) / 4)
        with doing("part", 2):
            note_steps()
            with doing("piece", 2):
                note_steps()
                assert whole.share == pytest.approx((1 + 0.5 + 1.0 + 0.75) / 4)
                assert [task.label for task in find_latest().path] == ["whole", "part", "piece"]
        other.end()
        assert find_latest() is whole
        one.advance(99)  # more than was expected
        assert whole.share == pytest.approx((1 + 1.0) / 4)
    assert find_latest() is None


def test_a_failure_leaves_no_task_behind():
    def fail():
        with doing("whole"):
            begin("left alone")
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert find_latest() is None
    with doing("next") as after:
        assert after.parent is None


def test_a_receiver_hears_of_each_task_in_its_block_alone():
    listener = Listener()
    with shown_by(listener):
        with doing("work", 3) as work:
            work.advance(2)
        with shown_by(None), doing("more"):
            pass
    with doing("unheard"):
        pass
    assert listener.heard == [
        ("begin", "work", 3),
        ("advance", "work", 2),
        ("end", "work", "done"),
        ("begin", "more", 1),
        ("end", "more", "done"),
    ]


def test_a_timed_block_is_held_until_its_outermost_end():
    with held():
        with held():
            pass
        assert is_held()
    assert not is_held()
    assert not progress.is_held()
