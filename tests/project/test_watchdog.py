"""The watchdog of the tests ends what stands still, and nothing that is merely slow."""

import time
from pathlib import Path

import pytest

from tests.commands import run_python
from tests.watchdog import Watchdog

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import sys, threading, time
sys.path.insert(0, {tests!r})
from tests.watchdog import Watchdog
watchdog = Watchdog(stall_s=3)
watchdog.start()
{body}
watchdog.stop()
print("done")
"""
DEADLOCK = "lock = threading.Lock(); lock.acquire(); lock.acquire()"


def test_a_deadlock_is_ended_with_the_stacks_of_all_threads():
    program = PROGRAM.format(tests=str(ROOT), body=DEADLOCK)
    ended = run_python("-c", program)
    assert ended.returncode == 1
    assert "nothing was done for 3 s:" in ended.stderr
    assert "most recent call first" in ended.stderr
    assert ended.stdout == ""


@pytest.mark.parametrize(
    ("ticks", "used_s", "stalls"), [(0, 0.0, True), (1, 0.0, False), (0, 0.1, False)]
)
def test_what_ticks_or_works_is_left_alone_however_slow_it_is(monkeypatch, ticks, used_s, stalls):
    """In every second look a tick, or a tenth of a second of a processor; the limit is three."""
    now_s = 0.0
    monkeypatch.setattr(time, "process_time", lambda: now_s)
    watched = Watchdog(stall_s=3)
    found = []
    for number in range(20):
        if number % 2:
            now_s += used_s * 1.01
            for _ in range(ticks):
                watched.tick()
        found.append(watched.look())
    assert any(found) is stalls
