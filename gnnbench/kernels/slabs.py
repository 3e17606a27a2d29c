"""Many arrays cut from few large ones.

A fresh page costs the system more than what is written to it. It gives a large array's pages out
2 MB at a time, where it can, and a small one's 4 kB at a time.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

Element = TypeVar("Element", bound=np.generic)

SMALLEST_BYTES = 1 << 16
LARGEST_BYTES = 1 << 24
#: Where an array starts: at a cache line of its own.
LINE_BYTES = 64


class Slab:
    """Memory for arrays that live about as long as each other.

    It is taken in pieces that double, and one is there as long as any array cut from it.
    """

    def __init__(self) -> None:
        self._piece = np.empty(0, dtype=np.uint8)
        self._used = 0

    def take(self, length: int, dtype: type[Element]) -> npt.NDArray[Element]:
        """An array ``(length,)`` that holds anything."""
        size = length * np.dtype(dtype).itemsize
        if self._used + size > len(self._piece):
            doubled = min(max(2 * len(self._piece), SMALLEST_BYTES), LARGEST_BYTES)
            self._piece = np.empty(max(doubled, size), dtype=np.uint8)
            self._used = 0
        begin = self._used
        self._used = begin + -(-size // LINE_BYTES) * LINE_BYTES
        return self._piece[begin : begin + size].view(dtype)
