"""What is done of epochs before their clock is found, and what serves all epochs is not."""

import os
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from gnnbench.comparison import ahead
from gnnbench.comparison.ahead import MOST_EPOCHS, refuse_work_ahead
from gnnbench.comparison.left_work import LeftWork, list_clocks
from gnnbench.errors import PluginError
from gnnbench.price.folds import Digest


def take(prepared_s, computed_s=0.08, before_s=0.0):
    stages = {"sample": prepared_s / 2, "load": prepared_s / 2, "aggregate": computed_s}
    return Digest(before_s + prepared_s + computed_s, stages, ())


class Training:
    """Trains unforeseen epochs that take as long as they are told to."""

    def __init__(self, *epochs):
        self.epochs, self.numbers = list(epochs), []

    def __call__(self, number):
        self.numbers.append(number)
        return None, self.epochs[len(self.numbers) - 1]


def refuse(timed, training, before_s, warmup=1):
    refuse_work_ahead("row", timed, warmup, before_s, training)


def test_what_nothing_was_prepared_for_takes_longer():
    training = Training(*[take(0.02)] * MOST_EPOCHS)
    with pytest.raises(PluginError, match=r"row: .* takes 500 µs in .*, and 10.0 ms in unforese"):
        refuse([take(0.001)] * 10, training, before_s=0.3)
    assert len(set(training.numbers)) == MOST_EPOCHS
    assert min(training.numbers) > 1_000_000


def test_a_long_first_epoch_is_before_the_clock_too():
    with pytest.raises(PluginError):
        refuse([take(0.3), *[take(0.001)] * 9], Training(*[take(0.02)] * MOST_EPOCHS), 0.0)


@pytest.mark.parametrize(
    "unforeseen",
    [
        # As long as ever; once as long; on a machine with more to do, and with less.
        [take(0.02)],
        [*[take(0.2)] * 5, take(0.02)],
        [take(0.1, 0.4)],
        [take(0.02, 0.02)],
    ],
)
def test_preparation_that_serves_all_epochs_is_let_pass(unforeseen):
    training = Training(*unforeseen)
    refuse([take(0.02)] * 10, training, before_s=60.0)
    assert len(training.numbers) == len(unforeseen)


def test_sampling_ahead_is_found_where_loading_takes_as_long_as_ever():
    timed, unforeseen = (
        Digest(0.1, {"sample": sample_s, "load": 0.006, "aggregate": 0.09}, ())
        for sample_s in (0.0002, 0.005)
    )
    with pytest.raises(PluginError, match=r"Sampling takes 200 µs.*, and 5.00 ms .* ones\. Draw"):
        refuse([timed] * 96, Training(*[unforeseen] * MOST_EPOCHS), before_s=0.48)


def test_a_busy_machine_that_lengthens_long_epochs_in_succession_refuses_nobody(monkeypatch):
    training = Training(*[take(0.2)] * 5, take(0.02))
    clock = SimpleNamespace(perf_counter=lambda: 3.0 * len(training.numbers))
    monkeypatch.setattr(ahead, "time", clock)
    refuse([take(0.02)] * 10, training, before_s=60.0)
    assert len(training.numbers) == 6


def test_what_is_short_beside_an_epoch_is_let_pass():
    refuse([take(0.0001)] * 10, Training(take(0.001)), before_s=60.0)


def test_no_epoch_is_trained_where_preparation_cannot_hide_any():
    refuse([take(0.001)] * 10, Training(), before_s=0.01)


@pytest.fixture
def start():
    """Start a command that is ended with the test."""
    started = []

    def begin(*command):
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def clock_of(process):
    return (~process << 3) | 2


def test_a_process_that_works_between_epochs_is_found(start):
    left, epochs = LeftWork(), 3
    with left.at_opening():
        clock = clock_of(start(sys.executable, "-c", "while True: pass").pid)
    for _ in range(epochs):
        until_s = time.clock_gettime(clock) + 0.01
        while time.clock_gettime(clock) < until_s:
            time.sleep(0.001)
        with left.at_turn():
            pass
    assert left.outside_s >= 0.01 * epochs
    assert f"of its {epochs} epochs" in left.fault


def test_what_a_thread_of_the_row_computes_in_its_epochs_is_known():
    left, asked, done = LeftWork(), threading.Semaphore(0), threading.Semaphore(0)

    def work():
        for _ in range(2):
            asked.acquire()
            until_s = time.thread_time() + 0.02
            while time.thread_time() < until_s:
                pass
            done.release()
        asked.acquire()

    with left.at_opening():
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
    for _ in range(2):
        with left.at_turn():
            asked.release()
            done.acquire()
    asked.release()
    thread.join()
    assert 0.04 <= left.beside_s < 0.06
    assert left.outside_s < 0.01
    assert not left.fault


def test_what_others_began_is_not_the_rows(start):
    start("sleep", "60")
    left = LeftWork()
    with left.at_opening():
        pass
    with left.at_turn():
        pass
    assert left.outside_s == 0.0


def test_processes_of_processes_are_listed(start):
    shell = start("sh", "-c", "sleep 60 & echo $!; wait")
    child = int(shell.stdout.readline())
    assert {clock_of(shell.pid), clock_of(child)} <= list_clocks()
    os.kill(child, signal.SIGKILL)
