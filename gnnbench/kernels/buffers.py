"""Large arrays that are handed out again once nobody holds them.

Every page of a fresh array is zeroed by the system at its first touch, which for an output that is
written once costs as much as writing it. Memory comes from torch's allocator, so that
``THP_MEM_ALLOC_ENABLE`` says the same of these pages as of every other tensor's.
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

#: Below this, the system's allocator keeps memory itself.
SMALLEST_BYTES = 1 << 20


class BufferPool:
    """Keeps what has come back, up to ``limit_bytes``; the oldest is dropped first."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        # By address, the oldest first, each with its bytes. Memory comes back whenever an array
        # dies, on any thread and in the midst of the methods below: each step on this is a single,
        # atomic one, and there is no total that could be off after an interrupt.
        self._idle: dict[int, tuple[int, Tensor]] = {}

    @property
    def idle_bytes(self) -> int:
        """Bytes that are kept and not in use."""
        return sum(map(itemgetter(0), list(self._idle.values())))

    def take(
        self, shape: Sequence[int], dtype: type[Element] | np.dtype[Element]
    ) -> npt.NDArray[Element]:
        """An array of ``shape`` that holds anything, its first element aligned to 64 bytes.

        Its memory comes back once neither it nor a view or a tensor made of it is left.
        """
        kind = np.dtype(dtype)
        size = math.prod(shape) * kind.itemsize
        memory = self._find(size) if size >= SMALLEST_BYTES else None
        if memory is None:
            memory = torch.empty(max(size, 1), dtype=torch.uint8)
        whole = memory.numpy()
        if size >= SMALLEST_BYTES:
            # NumPy makes this the base of every view, also of a view of a view; and a tensor's
            # storage holds the array that torch.from_numpy was given.
            weakref.finalize(whole, self._give_back, memory).atexit = False
        return whole[:size].view(kind).reshape(shape)

    def release(self) -> None:
        """Give everything idle back to the system."""
        self._idle.clear()

    def _find(self, size: int) -> Tensor | None:
        """Idle memory of at least ``size`` bytes and at most an eighth more."""
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


#: What the kernels allocate from: it may keep an eighth of this machine's memory.
pool = BufferPool(psutil.virtual_memory().total // 8)
