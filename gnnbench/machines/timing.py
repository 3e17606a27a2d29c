"""Rates of repeated, timed runs of a piece of work.

Rates are rounded to three digits, more than such a measurement's precision.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from statistics import median

import torch

from gnnbench.constants import Bound
from gnnbench.host.progress import held, note_steps

#: The shortest time of a run, since a clock may not have advanced.
SHORTEST_S: Bound[float] = 1e-9
FEWEST_RUNS: Bound[int] = 3


def read_clock(threads: int) -> Callable[[], float]:
    """Return the clock that times work on ``threads`` threads of the processor."""
    return time.process_time if threads == 1 else time.perf_counter


def time_runs(
    work: Callable[[], object],
    budget_s: float,
    device: torch.device,
    threads: int,
    before: Callable[[], object] | None = None,
) -> list[float]:
    """Return the seconds of three or more runs of ``work`` on ``device``.

    More runs follow while time is left, and one comes before to warm up. Each run follows an
    uncounted call of ``before``. All together are a step of the task under way.

    One thread's work on the processor is timed by the process's clock, which stands still while
    other processes run. Several threads' and other devices' work is timed by the wall clock.
    """
    now = read_clock(threads if device.type == "cpu" else 0)
    work()
    taken: list[float] = []
    deadline = time.perf_counter() + budget_s
    with held():
        while len(taken) < FEWEST_RUNS or time.perf_counter() < deadline:
            if before is not None:
                before()
            wait_for(device)
            start = now()
            work()
            wait_for(device)
            taken.append(max(now() - start, SHORTEST_S))
    note_steps()
    return taken


def typical_rate(
    work: Callable[[], object],
    amount: float,
    budget_s: float,
    threads: int,
    before: Callable[[], object] | None = None,
) -> float:
    """Return ``amount`` a second on the processor, from the median time of :func:`time_runs`."""
    taken = time_runs(work, budget_s, torch.device("cpu"), threads, before)
    return round_rate(amount / median(taken))


def best_rate(
    work: Callable[[], object], amount: float, budget_s: float, device: torch.device
) -> float:
    """Return ``amount`` a second in the fastest run of :func:`time_runs`.

    It uses torch's number of threads.
    """
    return round_rate(amount / min(time_runs(work, budget_s, device, torch.get_num_threads())))


def round_rate(number: float) -> float:
    """Return a number rounded to three significant digits."""
    return float(f"{number:.3g}")


def wait_for(device: torch.device) -> None:
    """Wait for all work on ``device``, CUDA's or another that torch has a module for."""
    if device.type != "cpu":
        getattr(torch, device.type).synchronize(device)


@contextlib.contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Set torch's number of threads for the body."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
