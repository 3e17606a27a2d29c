"""Times of the collectives of a job between its ranks, by the size of the messages."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Literal

import torch

from gnnbench.constants import Bound
from gnnbench.run.collectives import Processes

#: The bytes of each rank, from a message whose latency dominates to one of full bandwidth.
SIZES: Bound[tuple[int, ...]] = (2**10, 2**17, 2**24)
#: The fewest and the most runs of each size.
FEWEST: Bound[int] = 3
MOST: Bound[int] = 100


@dataclass(frozen=True, slots=True)
class NetworkTime:
    """The median time of a collective of ``size`` bytes a rank.

    A rank sends ``sent`` of these bytes, and receives as many. ``backend`` is gloo or NCCL.
    """

    operation: Literal["all-reduce", "all-to-all"]
    backend: str
    size: int
    sent: int
    seconds: float
    runs: int

    @property
    def bytes_per_s(self) -> float:
        """The bytes that each rank sends a second."""
        return self.sent / self.seconds


def time_network(processes: Processes, seconds: float) -> tuple[NetworkTime, ...]:
    """Time all-reduce and all-to-all for about ``seconds`` in all.

    All ranks call this together. A run takes as long as its slowest rank.
    """
    found = []
    share_s = seconds / (2 * len(SIZES) * len(processes.ways))
    others = (processes.size - 1) / processes.size
    for backend, device in processes.ways.items():
        processes.device = device
        for size in SIZES:
            # Each rank sends an equal part to every rank.
            part = max(1, size // 4 // processes.size)
            values = torch.ones(part * processes.size, device=device)
            parts = [part] * processes.size
            reduce = partial(processes.sum, values)
            exchange = partial(_exchange, processes, values, parts)
            whole = values.numel() * values.element_size()
            for operation, run, sent in (
                ("all-reduce", reduce, 2 * others * whole),
                ("all-to-all", exchange, others * whole),
            ):
                taken = _time(processes, run, share_s)
                found.append(
                    NetworkTime(operation, backend, whole, round(sent), median(taken), len(taken))  # type: ignore[arg-type]
                )
    return tuple(found)


def _exchange(processes: Processes, values: torch.Tensor, parts: list[int]) -> None:
    processes.all_to_all(values, parts, parts).wait()
    processes.finish()


def _time(processes: Processes, run: Callable[[], object], budget_s: float) -> list[float]:
    """Return the times of runs, each as long as its slowest rank; the first two are not timed."""
    run()
    first_s = processes.share(_take(processes, run))
    count = min(MOST, max(FEWEST, int(budget_s / max(first_s, 1e-6))))
    own = torch.tensor([_take(processes, run) for _ in range(count)], dtype=torch.float64)
    return [float(each) for each in processes.largest(own)]


def _take(processes: Processes, run: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    run()
    if processes.device.type == "cuda":
        torch.cuda.synchronize(processes.device)
    return time.perf_counter() - began_s
