"""The speed of this machine over time: fixed pieces of work, timed repeatedly.

A shared machine may be half as fast when a strategy is trained as when it was probed. The times of
the same work measure this difference.
"""

from collections.abc import Callable, Sequence
from statistics import geometric_mean, median
from typing import NamedTuple

import numpy as np
import torch

from gnnbench.kernels.dispatch import gather_rows
from gnnbench.machines.timing import read_clock

#: The pieces: a product of two square matrices, a pass over three arrays of 32 MiB, and a gather of
#: an eighth of the rows of a table of 128 MiB. Each takes a few milliseconds.
SIDE = 768
FLOATS = 2**23
TABLE_ROWS, PICKED_ROWS, WIDTH = 2**17, 2**14, 256


class Lengths(NamedTuple):
    """Seconds of a product, of a pass over memory, and of a gather of rows."""

    product: float
    passed: float
    picked: float


class Yardstick:
    """The pieces of work, run on ``cores`` cores."""

    def __init__(self, cores: int) -> None:
        self._now = read_clock(cores)
        drawn = np.random.default_rng(0)
        square = torch.rand(SIDE, SIDE)
        product = torch.empty_like(square)
        one, other, written = (torch.ones(FLOATS) for _ in range(3))
        table = np.ones((TABLE_ROWS, WIDTH), np.float32)
        rows = drawn.permutation(TABLE_ROWS)[:PICKED_ROWS].astype(np.int64)
        picked = np.empty((PICKED_ROWS, WIDTH), np.float32)
        self._pieces = (
            lambda: torch.mm(square, square, out=product),
            lambda: torch.add(one, other, alpha=3.0, out=written),
            lambda: gather_rows(table, rows, out=picked, threads=cores),
        )
        self.measure()

    def measure(self) -> Lengths:
        """Time each piece once."""
        return Lengths(*map(self._time, self._pieces))

    def _time(self, piece: Callable[[], object]) -> float:
        began_s = self._now()
        piece()
        return self._now() - began_s


def middle(lengths: Sequence[Lengths]) -> Lengths:
    """Return the median of each piece."""
    return Lengths(*map(median, zip(*lengths, strict=True)))


def shorter(one: Lengths, other: Lengths) -> Lengths:
    """Return the shorter of each piece."""
    return Lengths(*map(min, zip(one, other, strict=True)))


def find_slowdown(now: Lengths, then: Lengths) -> float:
    """Return the time of the same work now over the time before: the pieces' geometric mean."""
    return geometric_mean([late / early for late, early in zip(now, then, strict=True)])
