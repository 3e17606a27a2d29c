"""Many arrays cut from few large ones.

A fresh page costs more time than writing to it. The system provides a large array's pages 2 MB at a
time if it can, and a small array's 4 kB at a time.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

Element = TypeVar("Element", bound=np.generic)

SMALLEST_BYTES = 1 << 16
LARGEST_BYTES = 1 << 24
#: Alignment of each array: arrays share no cache line.
LINE_BYTES = 64


class Slab:
    """Memory for arrays with about the same lifetime.

    It is allocated in pieces of doubling size. A piece lives as long as any array cut from it.
    """

    def __init__(self) -> None:
        self._piece = np.empty(0, dtype=np.uint8)
        self._used = 0

    def take(self, length: int, dtype: type[Element]) -> npt.NDArray[Element]:
        """Return an uninitialised array ``(length,)``."""
        size = length * np.dtype(dtype).itemsize
        if self._used + size > len(self._piece):
            doubled = min(max(2 * len(self._piece), SMALLEST_BYTES), LARGEST_BYTES)
            self._piece = np.empty(max(doubled, size), dtype=np.uint8)
            self._used = 0
        begin = self._used
        self._used = begin + -(-size // LINE_BYTES) * LINE_BYTES
        return self._piece[begin : begin + size].view(dtype)
