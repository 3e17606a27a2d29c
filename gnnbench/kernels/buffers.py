"""A pool of large arrays that are reused once they are unreferenced.

The operating system zeroes every page of a fresh array at its first touch. For an output that is
written once, this costs as much as writing it. Memory comes from torch's allocator, so
``THP_MEM_ALLOC_ENABLE`` applies to these pages as to every other tensor's.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from operator import itemgetter
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import psutil
import torch
from torch import Tensor

Element = TypeVar("Element", bound=np.generic)

#: Arrays below this size are not pooled, because the system's allocator reuses their memory.
SMALLEST_BYTES = 1 << 20


class BufferPool:
    """A pool that keeps returned memory, up to ``limit_bytes``; it drops the oldest first."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        # By address, the oldest first, each with its size in bytes. Memory comes back whenever an
        # array dies, on any thread and during the methods below. Each access is therefore a single
        # atomic step, and no total is stored that an interrupt could leave wrong.
        self._idle: dict[int, tuple[int, Tensor]] = {}

    @property
    def idle_bytes(self) -> int:
        """Bytes that the pool holds and that are not in use."""
        return sum(map(itemgetter(0), list(self._idle.values())))

    def take(
        self, shape: Sequence[int], dtype: type[Element] | np.dtype[Element]
    ) -> npt.NDArray[Element]:
        """Return an uninitialised array of ``shape``, its first element aligned to 64 bytes.

        Its memory returns to the pool once the array and all its views and tensors are gone.
        """
        kind = np.dtype(dtype)
        size = math.prod(shape) * kind.itemsize
        memory = self._find(size) if size >= SMALLEST_BYTES else None
        if memory is None:
            memory = torch.empty(max(size, 1), dtype=torch.uint8)
        whole = memory.numpy()
        if size >= SMALLEST_BYTES:
            # NumPy makes this array the base of every view, also of a view of a view. A tensor's
            # storage holds the array that was passed to torch.from_numpy.
            weakref.finalize(whole, self._give_back, memory).atexit = False
        return whole[:size].view(kind).reshape(shape)

    def release(self) -> None:
        """Return all idle memory to the operating system."""
        self._idle.clear()

    def _find(self, size: int) -> Tensor | None:
        """Take idle memory of ``size`` bytes or up to an eighth more; None without any."""
        largest = size + size // 8
        for address in reversed(list(self._idle)):
            kept = self._idle.get(address)
            if (
                kept is not None
                and size <= kept[0] <= largest
                and self._idle.pop(address, None) is not None
            ):
                return kept[1]
        return None

    def _give_back(self, memory: Tensor) -> None:
        self._idle[memory.data_ptr()] = (memory.numel(), memory)
        for address in list(self._idle):
            if self.idle_bytes <= self.limit_bytes:
                break
            self._idle.pop(address, None)


#: The pool of all kernels; it keeps at most an eighth of this machine's memory.
pool = BufferPool(psutil.virtual_memory().total // 8)
