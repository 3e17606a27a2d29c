"""What one kernel of a library does, in bytes and operations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gnnbench.records import ReadOrder

#: What bounds an operation: memory read in order; rows picked one by one and written apart, summed
#: up as they come, or added where they belong; a dense product; edge after edge without vectors;
#: the dot products of the rows at both ends of edges, so as well; a loop of one core.
OperationKind = Literal[
    "stream", "gather", "aggregate", "scatter", "product", "scalar", "dot", "serial"
]


@dataclass(frozen=True, slots=True)
class Operation:
    """One kernel, or some alike, of a library.

    ``read_bytes`` and ``written_bytes`` go in order between the device and its memory.
    ``picked_rows`` rows of ``row_bytes`` are picked one by one, or added to where they belong, of
    which ``distinct_rows`` are different. ``width`` is the narrower side of a product, and of
    ``scalar``, ``dot`` and ``serial`` operations ``flops`` are the values that they go through.
    ``launches`` are the kernels begun on an accelerator, or the parallel regions opened on a CPU;
    each writes a new tensor, unless ``outputs`` says how many all of them make: 0 where they write
    to tensors that there are, or to memory that the library keeps.
    ``calls`` are those of the library's own front, which is Python. Rows are picked in ``order``,
    where it is known: ``backward`` in that of its sources.
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
    order: ReadOrder | None = None
    backward: bool = False

    def kept_rows(self, rows: float) -> float | None:
        """The share of picked rows that a cache of so many still has; None where nobody knows."""
        return None if self.order is None else self.order.kept(rows, backward=self.backward)
