"""The line that says what a command does: when it comes, what it says, where it is not written."""

import io
import sys
import time
from types import SimpleNamespace

import pytest

from gnnbench.cli import progress as lines
from gnnbench.cli.progress import QUIET, StatusLine, describe, make_room
from gnnbench.cli.screen import Output
from gnnbench.host.progress import begin, doing, held, shown_by


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test sets, and no thread."""
    monkeypatch.delenv(QUIET)
    now = SimpleNamespace(s=100.0)
    monkeypatch.setattr(lines, "time", SimpleNamespace(monotonic=lambda: now.s))
    monkeypatch.setattr(lines.threading, "Thread", lambda **_: SimpleNamespace(start=lambda: None))
    return now


def open_line(monkeypatch, stream):
    monkeypatch.setattr(sys, "stderr", stream)
    return StatusLine("gnnbench compare")


def test_a_log_gets_a_line_after_a_second_and_then_now_and_then(clock, monkeypatch):
    stream = io.StringIO()
    counts = []
    with open_line(monkeypatch, stream) as line, shown_by(line), doing("comparing", 40) as whole:
        for _ in range(24):
            clock.s += 1.0
            whole.advance()
            counts.append(len(stream.getvalue().splitlines()))
    assert counts.index(1) < 2
    assert counts[-1] == 3
    assert "\x1b" not in stream.getvalue()
    assert stream.getvalue().splitlines()[-1].startswith("gnnbench compare: comparing 2")


def test_a_terminal_has_one_line_that_goes_away(clock, monkeypatch):
    stream, out = Terminal(), io.StringIO()
    with open_line(monkeypatch, stream) as line, shown_by(line), doing("comparing", 3):
        clock.s += 2.0
        task = begin("hongtu", 4)
        clock.s += 1.0
        task.advance()
        assert stream.getvalue().endswith("comparing 0/3, hongtu 1/4; 3 s so far")
        Output(out).write("a result\n")
        assert stream.getvalue().endswith("\r\x1b[2K")
        Output(out).write("half of a li")
        clock.s += 9.0
        task.advance()  # would end up in the middle of it
        assert stream.getvalue().endswith("\r\x1b[2K")
        make_room()
        clock.s += 1.0
        task.end()
        assert stream.getvalue().endswith("comparing 0/3; 13 s so far")
    assert stream.getvalue().endswith("\r\x1b[2K")
    assert "\n" not in stream.getvalue()


def test_nothing_is_written_while_times_are_measured(clock, monkeypatch):
    stream = io.StringIO()
    with open_line(monkeypatch, stream) as line:
        clock.s += 5.0
        with held():
            line.look()
        assert stream.getvalue() == ""
        line.look()
        assert stream.getvalue() == "gnnbench compare: working; 5 s so far\n"


@pytest.mark.parametrize("name", [QUIET, "RANK"])
def test_it_is_quiet_where_nobody_reads(clock, monkeypatch, name):
    monkeypatch.setenv(name, "1")
    stream = io.StringIO()
    with open_line(monkeypatch, stream) as line, shown_by(line), doing("comparing", 3):
        clock.s += 99.0
        line.look()
    assert stream.getvalue() == ""


def test_the_thread_speaks_where_no_task_advances(monkeypatch):
    monkeypatch.delenv(QUIET)
    monkeypatch.setattr(lines, "FIRST_S", 0.0)
    monkeypatch.setattr(lines, "AGAIN_S", 0.01)
    stream = io.StringIO()
    with open_line(monkeypatch, stream):
        until_s = time.monotonic() + 60.0
        while not stream.getvalue() and time.monotonic() < until_s:
            time.sleep(0.01)
    assert stream.getvalue() == "gnnbench compare: working; 0 s so far\n"


@pytest.mark.parametrize(
    ("done", "elapsed_s", "says"),
    [
        (0, 5, "work 0/4; 5 s so far"),
        (1, 60, "work 1/4; 60 s so far, about 3 min left"),
        (3, 9000, "work 3/4; 2.5 h so far, about 50 min left"),
        (1, 1, "work 1/4; 1 s so far"),
    ],
)
def test_the_rest_is_estimated_once_something_is_known(done, elapsed_s, says):
    with doing("work", 4) as task:
        task.advance(done)
        now_s = task.began_s + elapsed_s
        assert describe("gnnbench", task, task.began_s, now_s) == f"gnnbench: {says}"


def test_the_rest_is_that_of_the_outermost_task_with_several_steps():
    with doing("planning", 4) as whole:
        whole.advance(1)
        with doing("degrees", 10) as degrees:
            degrees.advance(8)
            told = describe("gnnbench", degrees, whole.began_s, whole.began_s + 45)
    assert told == "gnnbench: planning 1/4, degrees 8/10; 45 s so far, about 55 s left"


def test_one_step_says_nothing_of_its_rest():
    with doing("planning") as whole, doing("degrees", 4) as degrees:
        degrees.advance(2)
        told = describe("gnnbench", degrees, whole.began_s, degrees.began_s + 10)
        assert told == "gnnbench: planning, degrees 2/4; 10 s so far, about 10 s left"
    with doing("planning") as whole, doing("degrees"):
        assert "left" not in describe("gnnbench", whole, 0.0, whole.began_s + 10)


def test_edges_are_a_percentage_and_other_alphabets_question_marks():
    with doing("gr\x1bäph", 8_000_000) as task:
        task.advance(2_000_000)
        assert describe("gnnbench", task, 0.0, 1.0).startswith("gnnbench: gr??ph 25%; 1 s so far")
