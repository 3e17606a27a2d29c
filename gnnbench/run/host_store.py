"""Vertex data on the host: tensors in its memory, and beyond its budget in mapped files.

A file is deleted as soon as it is open, so that nothing is left behind however a run ends. Its
blocks are free once its tensor is. Pages of a mapped file that were written or read belong to the
system's page cache and may be dropped at any time. ``drop_pages`` removes them from this process.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gnnbench.errors import UsageError
from gnnbench.lowering.footprint import HostTensor
from gnnbench.lowering.host_plan import HostPlan
from gnnbench.program import Ledger
from gnnbench.units import format_si

#: Saved intermediates are made one by one; on disk they share files of at least this size.
SEGMENT_BYTES = 1 << 28
#: cudaHostRegisterPortable: the memory is pinned for all devices.
PORTABLE = 1
#: The alignment of tensors in a segment: a cache line, a multiple of every element's size.
ALIGNMENT_BYTES = 64


@dataclass(frozen=True, slots=True)
class IdleMemory:
    """Memory of a run that holds nothing between its epochs.

    ``buffers`` are one-dimensional, in the run's dtype. Some may be mapped from files, and
    ``drop_pages`` removes their pages from this process. A borrower accounts for other tensors in
    the run's ``ledger``, on the ``host``.
    """

    buffers: tuple[Tensor, ...]
    drop_pages: Callable[[], None]
    ledger: Ledger
    host: str


class HostStore:
    """The maker of a run's tensors on the host, in memory or on disk as a plan says."""

    def __init__(self, plan: HostPlan, dtype: torch.dtype, share: tuple[int, int] = (1, 1)) -> None:
        """Make tensors by vertex for a ``share``: vertices here, and all vertices."""
        self._share = share
        self._plan = plan
        self._dtype = dtype
        self._files: list[mmap.mmap] = []
        self._segments: dict[int, _Segments] = {}
        self._mapped: set[int] = set()
        self._not_pinned = ""

    def empty(self, tensor: HostTensor) -> Tensor:
        """Return the uninitialised memory of a tensor, one-dimensional."""
        some, all_ = self._share
        elements = tensor.size_bytes // self._dtype.itemsize // all_ * some
        if tensor not in self._plan.spilled or not elements:
            return torch.empty(elements, dtype=self._dtype)
        mapped = self._map(elements * self._dtype.itemsize)
        made = torch.frombuffer(mapped, dtype=self._dtype)
        self._mapped.add(made.data_ptr())
        return made

    def like(self, layer: int, tensor: Tensor) -> Tensor:
        """Return memory for one more of a layer's saved intermediates, until ``rewind``.

        It has the shape of ``tensor``.
        """
        size_bytes = tensor.numel() * tensor.element_size()
        if not self._plan.is_spilled("intermediates", layer) or not size_bytes:
            return torch.empty(tensor.shape, dtype=tensor.dtype)
        segments = self._segments.setdefault(layer, _Segments())
        if not segments.have_room(size_bytes):
            segments.add(self._map(max(size_bytes, SEGMENT_BYTES)))
        return segments.take(size_bytes).view(tensor.dtype).view(tensor.shape)

    def rewind(self) -> None:
        """Reuse the memory of everything made by ``like``."""
        for segments in self._segments.values():
            segments.rewind()

    def pin(self, tensors: Sequence[Tensor]) -> None:
        """Lock tensors in memory as long as this store lives; tensors on disk are left out.

        CUDA then copies from and to them without the processor. They are locked in place, because
        torch's own pinned memory comes in powers of two.
        """
        pinned: list[Tensor] = []
        weakref.finalize(self, _unpin, pinned).atexit = False
        for tensor in tensors:
            if not tensor.numel() or tensor.is_pinned() or self.is_on_disk(tensor):
                continue
            size_bytes = tensor.numel() * tensor.element_size()
            error = _cudart().cudaHostRegister(tensor.data_ptr(), size_bytes, PORTABLE)
            if int(error):
                self._not_pinned = (
                    f"vertex data on the host is not pinned: cudaHostRegister of "
                    f"{format_si(size_bytes, 'B')} failed with error {int(error)}"
                )
                return
            pinned.append(tensor)

    def is_on_disk(self, tensor: Tensor) -> bool:
        """Return whether a tensor, or a view with the same start, lies in a mapped file."""
        return tensor.data_ptr() in self._mapped

    def drop_pages(self) -> None:
        """Remove the mapped files' pages from this process; the files keep their contents."""
        for file in self._files:
            file.madvise(mmap.MADV_DONTNEED)

    def notes(self) -> tuple[str, ...]:
        """Return why data was not pinned, if it was not."""
        return (self._not_pinned,) if self._not_pinned else ()

    def _map(self, size_bytes: int) -> mmap.mmap:
        """Return a new mapped file of that size, already deleted."""
        try:
            with tempfile.TemporaryFile(dir=self._plan.directory, prefix="gnnbench-") as file:
                # Reserve blocks now: a full disk is an error here, but would crash a later write.
                os.posix_fallocate(file.fileno(), 0, size_bytes)
                mapped = mmap.mmap(file.fileno(), size_bytes)
        except OSError as error:
            raise UsageError(
                f"{size_bytes:,} bytes cannot be spilled to {self._plan.directory}: "
                f"{error.strerror}; name another directory with memory.spill_dir, or raise "
                f"memory.host_bytes."
            ) from None
        self._files.append(mapped)
        return mapped


def _cudart() -> Any:
    """Return CUDA's runtime, which torch does not type."""
    return torch.cuda.cudart()  # type: ignore[no-untyped-call]


def _unpin(pinned: Sequence[Tensor]) -> None:
    for tensor in pinned:
        _cudart().cudaHostUnregister(tensor.data_ptr())


class _Segments:
    """Mapped files that are filled one after the other, and again from the start."""

    def __init__(self) -> None:
        self._segments: list[Tensor] = []
        self.rewind()

    def rewind(self) -> None:
        self._current = self._offset = 0

    def add(self, file: mmap.mmap) -> None:
        self._segments.append(torch.frombuffer(file, dtype=torch.uint8))

    def have_room(self, size_bytes: int) -> bool:
        """Return whether ``size_bytes`` fit somewhere after the memory in use."""
        if self._current == len(self._segments):
            return False
        if self._offset + size_bytes <= len(self._segments[self._current]):
            return True
        return any(size_bytes <= len(segment) for segment in self._segments[self._current + 1 :])

    def take(self, size_bytes: int) -> Tensor:
        """Return the next ``size_bytes`` contiguous bytes."""
        while self._offset + size_bytes > len(self._segments[self._current]):
            self._current, self._offset = self._current + 1, 0
        taken = self._segments[self._current][self._offset : self._offset + size_bytes]
        self._offset += -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        return taken
