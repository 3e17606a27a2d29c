"""The work of one kernel of a library, in bytes and operations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

#: The bound of an operation: sequential memory; rows gathered one by one and written apart, summed
#: as they come, or scattered; a dense product; edge after edge without vector instructions; dot
#: products of the rows at both ends of edges, also without; a loop on one core.
OperationKind = Literal[
    "stream", "gather", "aggregate", "scatter", "product", "scalar", "dot", "serial"
]


@dataclass(frozen=True, slots=True)
class Operation:
    """One kernel of a library, or several alike.

    ``read_bytes`` and ``written_bytes`` move sequentially between the device and its memory.
    ``picked_rows`` rows of ``row_bytes`` are gathered one by one, or scattered; ``distinct_rows``
    of them are distinct. ``width`` is the narrower side of a product. For ``scalar``, ``dot`` and
    ``serial`` operations ``flops`` counts the values processed. ``launches`` are the kernels
    launched on an accelerator, or the parallel regions opened on a CPU. Each launch writes a new
    tensor, unless ``outputs`` gives the number of new tensors: 0 if all writes go to existing
    tensors, or to memory that the library keeps. ``calls`` counts calls of the library's Python
    front end. ``kept`` is the share of gathered rows that a cache of a number of rows still holds,
    if the order of the gathers is known.
    """

    kind: OperationKind
    read_bytes: float = 0.0
    written_bytes: float = 0.0
    picked_rows: float = 0.0
    distinct_rows: float = 0.0
    row_bytes: float = 0.0
    flops: float = 0.0
    width: float = 0.0
    launches: int = 1
    outputs: int | None = None
    calls: int = 0
    kept: Callable[[float], float] | None = None
