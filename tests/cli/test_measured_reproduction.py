"""A reproduction that measures says what to time, and the command takes the times."""

from __future__ import annotations

import json
import time

from gnnbench.price.wall_clock import CallTimer

PLUGIN = """
import time
from gnnbench.hookspecs import hookimpl
from gnnbench.records import Cell, Table, TableRow
from gnnbench.studies import MeasuredReproduction


class Naps(MeasuredReproduction):
    name = "naps"
    summary = "how long a nap takes"

    def run(self):
        taken_s = self.timer.measure(lambda: time.sleep(0.02))
        row = TableRow("short", (Cell(taken_s, "s", "measured"),))
        return (Table(name="naps", title="naps", columns=("nap",), rows=(row,)),)


@hookimpl
def gnnbench_reproduction():
    return [Naps]
"""


def test_it_is_handed_a_timer(run, tmp_path):
    path = tmp_path / "naps.py"
    path.write_text(PLUGIN)
    result = run("reproduce", "naps", "--plugin", path, "--json", "-")
    assert result.exit_code == 0, result.output
    (cell,) = json.loads(result.stdout)["tables"][0]["rows"][0]["cells"]
    assert cell["provenance"] == "measured"
    assert cell["value"] >= 0.02


def test_short_calls_are_timed_five_times_and_long_ones_until_a_second_is_over(monkeypatch):
    """The clock jumps by what the call says it takes; the median is the third of five."""
    now_s = 0.0
    monkeypatch.setattr(time, "perf_counter", lambda: now_s)
    lengths = iter([0.4, 0.1, 0.3, 0.1, 0.05, 2.0, 0.7, 0.5, 9.0])
    calls = []

    def work():
        nonlocal now_s
        calls.append(next(lengths))
        now_s += calls[-1]

    timer = CallTimer()
    assert round(timer.measure(work), 9) == 0.1
    assert len(calls) == 5
    assert timer.measure(work) == 2.0
    assert len(calls) == 6
    assert round(timer.measure(work), 9) == 0.6
    assert len(calls) == 8
