"""The machine's pace at each turn: one small piece of work, timed beside every measured epoch.

Two result files are compared through it. A row of the comparison is no substitute: files need not
share one, and its own code may change between them. The work takes about a millisecond. It fits in
a core's caches, and leaves most of the next row's data there.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from statistics import median

import numpy as np
import torch

from gnnbench.kernels.dispatch import gather_rows
from gnnbench.parts import Setting
from gnnbench.price.metrics import YARDSTICK
from gnnbench.records import Metric

#: A product of two square matrices, and all rows of a table of 2 MiB in another order.
SIDE = 256
TABLE_ROWS, WIDTH = 2**13, 64


class Yardstick:
    """A fixed piece of work on ``threads`` threads."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._square = torch.full((SIDE, SIDE), 1.0 / SIDE, dtype=torch.float32)
        self._product = torch.empty_like(self._square)
        self._table = np.ones((TABLE_ROWS, WIDTH), np.float32)
        self._rows = np.random.default_rng(0).permutation(TABLE_ROWS).astype(np.int64)
        self._picked = np.empty_like(self._table)
        self.measure()

    def measure(self) -> float:
        """Return the seconds that the work takes now."""
        began_s = time.perf_counter()
        torch.mm(self._square, self._square, out=self._product)
        gather_rows(self._table, self._rows, out=self._picked, threads=self._threads)
        return time.perf_counter() - began_s


class Paces:
    """The yardstick's seconds beside each epoch of a run; empty if times are modelled."""

    def __init__(self, setting: Setting) -> None:
        virtual = setting.platform.virtual
        self._yardstick = None if virtual else Yardstick(setting.workload.threads)
        self._seconds: list[float] = []

    def measure(self) -> None:
        """Time the yardstick once."""
        if self._yardstick is not None:
            self._seconds.append(self._yardstick.measure())

    def state(self, metrics: Mapping[str, Metric], warmup: int) -> Mapping[str, Metric]:
        """Return the metrics and the yardstick's; its median leaves out the first ``warmup``."""
        if not self._seconds:
            return metrics
        seconds = median(self._seconds[warmup:])
        paces = Metric(seconds, "s", "measured", tuple(self._seconds), warmup)
        return {**metrics, YARDSTICK: paces}
