"""The work of one kernel of a library, in bytes and operations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Operation:
    """One kernel of a library, or several alike; its type says what bounds it.

    ``read_bytes`` and ``written_bytes`` move sequentially between the device and its memory.
    ``picked_rows`` rows of ``row_bytes`` are gathered one by one, or scattered; ``distinct_rows``
    of them are distinct. ``flops`` are its arithmetic, or the number of values that it processes
    without vector instructions. ``launches`` are the kernels launched on an accelerator, or the
    parallel regions opened on a CPU. Each launch writes a new tensor, unless ``outputs`` gives the
    number of new tensors. It is 0 if all writes go to existing memory. ``calls`` counts calls of
    the library's Python front end. ``kept`` is the share of gathered rows that a cache of a
    number of rows still holds, if the order of the gathers is known.
    """

    read_bytes: float = 0.0
    written_bytes: float = 0.0
    picked_rows: float = 0.0
    distinct_rows: float = 0.0
    row_bytes: float = 0.0
    flops: float = 0.0
    launches: int = 1
    outputs: int | None = None
    calls: int = 0
    kept: Callable[[float], float] | None = None


class Stream(Operation):
    """Elementwise kernels over tensors in sequential memory."""

    __slots__ = ()


class Gather(Operation):
    """Rows gathered one by one, and written apart."""

    __slots__ = ()


class Sum(Operation):
    """Rows gathered one by one, and summed as they come."""

    __slots__ = ()


class Scatter(Operation):
    """Rows added to rows at scattered positions."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Product(Operation):
    """A dense product; ``width`` is its narrower side."""

    width: float = 0.0


class ScalarLoop(Operation):
    """A kernel that goes edge after edge, without vector instructions."""

    __slots__ = ()


class DotProducts(Operation):
    """Dot products of the rows at both ends of edges, without vector instructions."""

    __slots__ = ()


class SerialLoop(Operation):
    """A loop on one core."""

    __slots__ = ()
