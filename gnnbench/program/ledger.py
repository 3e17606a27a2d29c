"""The bytes that each memory holds, and the peak of each."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

from gnnbench.errors import DeviceOutOfMemoryError


class _Scopes(threading.local):
    """A thread's open scopes, innermost first; each is a memory and its newly held tensors."""

    open: tuple[tuple[str, set[str]], ...] = ()


class _Scope:
    """A scope that releases on exit all tensors that its thread newly held inside."""

    __slots__ = ("_ledger", "_memory", "_new", "_outer", "_scopes")
    _outer: tuple[tuple[str, set[str]], ...]

    def __init__(self, ledger: Ledger, scopes: _Scopes, memory: str) -> None:
        self._ledger = ledger
        self._scopes = scopes
        self._memory = memory
        self._new: set[str] = set()

    def __enter__(self) -> None:
        self._outer = self._scopes.open
        self._scopes.open = ((self._memory, self._new), *self._outer)

    def __exit__(self, *error: object) -> None:
        self._scopes.open = self._outer
        self._ledger.free(self._memory, *self._new)


class Held:
    """Tensors in a memory until they are released, or to the end of a ``with`` statement."""

    __slots__ = ("_ledger", "_memory", "_size_bytes")

    def __init__(self, ledger: Ledger, memory: str, size_bytes: int) -> None:
        self._ledger = ledger
        self._memory = memory
        self._size_bytes = size_bytes

    def release(self) -> None:
        """Give the bytes back to the memory."""
        with self._ledger.lock:
            self._ledger.in_use_bytes[self._memory] -= self._size_bytes

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None:
        self.release()


class Ledger:
    """The bytes that each memory holds, by tensor, and never more than its capacity.

    Several threads may use it at once.
    """

    def __init__(self, capacity_bytes: dict[str, int]) -> None:
        self._capacity = capacity_bytes
        self._held: dict[str, dict[str, int]] = {name: {} for name in capacity_bytes}
        self.in_use_bytes = dict.fromkeys(capacity_bytes, 0)
        self.peak_bytes = dict.fromkeys(capacity_bytes, 0)
        self.lock = threading.RLock()
        self._scopes = _Scopes()

    def open(self, memory: str, capacity_bytes: int) -> None:
        """Add one more memory, empty."""
        self._capacity[memory] = capacity_bytes
        self._held[memory] = {}
        self.in_use_bytes[memory] = self.peak_bytes[memory] = 0

    def free_bytes(self, memory: str) -> int:
        """Return how many more bytes the memory can hold."""
        return self._capacity[memory] - self.in_use_bytes[memory]

    def tensors(self, memory: str) -> dict[str, int]:
        """Return the bytes of each tensor that the memory holds now, by name."""
        return dict(self._held[memory])

    def grow(self, memory: str, tensor: str, size_bytes: int) -> int:
        """Hold ``size_bytes`` more under the name ``tensor``, which need not be held yet.

        Returns the bytes that the tensor then has.
        """
        with self.lock:
            whole_bytes = self._held[memory].get(tensor, 0) + size_bytes
            self.allocate(memory, tensor, whole_bytes)
            return whole_bytes

    def allocate(self, memory: str, tensor: str, size_bytes: int) -> None:
        """Hold ``size_bytes`` under the name ``tensor``, replacing what that name held before.

        Raises ``DeviceOutOfMemoryError`` when the memory cannot hold it.
        """
        self.allocate_all(memory, ((tensor, size_bytes),))

    def allocate_all(self, memory: str, sizes: Sequence[tuple[str, int]]) -> None:
        """Hold each tensor with its size, in order, as ``allocate`` does."""
        with self.lock:
            held, capacity = self._held[memory], self._capacity[memory]
            in_use, peak = self.in_use_bytes[memory], self.peak_bytes[memory]
            inside: set[str] | None = None
            for name, new in self._scopes.open:
                if name == memory:
                    inside = new
                    break
            try:
                for tensor, size_bytes in sizes:
                    before = held.get(tensor)
                    others = in_use if before is None else in_use - before
                    if others + size_bytes > capacity:
                        raise DeviceOutOfMemoryError(memory, tensor, size_bytes, others, capacity)
                    if before is None and inside is not None:
                        inside.add(tensor)
                    held[tensor] = size_bytes
                    in_use = others + size_bytes
                    if in_use > peak:
                        peak = in_use
            finally:
                self.in_use_bytes[memory], self.peak_bytes[memory] = in_use, peak

    def hold(self, memory: str, sizes_bytes: Mapping[str, int]) -> Held:
        """Hold several tensors beside all others, until they are released together.

        Raises ``DeviceOutOfMemoryError`` for the first tensor that the memory cannot hold, and then
        holds none of them.
        """
        size_bytes = sum(sizes_bytes.values())
        with self.lock:
            in_use = self.in_use_bytes[memory] + size_bytes
            if in_use > self._capacity[memory]:
                self._refuse(memory, sizes_bytes)
            self.in_use_bytes[memory] = in_use
            if in_use > self.peak_bytes[memory]:
                self.peak_bytes[memory] = in_use
        return Held(self, memory, size_bytes)

    def _refuse(self, memory: str, sizes_bytes: Mapping[str, int]) -> None:
        """Raise for the first of several tensors that do not fit together."""
        in_use, capacity = self.in_use_bytes[memory], self._capacity[memory]
        for tensor, size_bytes in sizes_bytes.items():
            if in_use + size_bytes > capacity:
                raise DeviceOutOfMemoryError(memory, tensor, size_bytes, in_use, capacity)
            in_use += size_bytes
            self.peak_bytes[memory] = max(self.peak_bytes[memory], in_use)

    def free(self, memory: str, *tensors: str) -> None:
        """Release tensors by name; all of them must be held."""
        with self.lock:
            for tensor in tensors:
                self.in_use_bytes[memory] -= self._held[memory].pop(tensor)
            for name, new in self._scopes.open:
                if name == memory:
                    new.difference_update(tensors)

    def scope(self, memory: str) -> AbstractContextManager[None]:
        """Return a context that releases on exit all tensors that this thread newly held inside."""
        return _Scope(self, self._scopes, memory)
