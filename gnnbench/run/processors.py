"""The processors of a stage here: some of the host's threads, or a stream of a CUDA device.

A CUDA device has two streams, one for copies from page-locked staging buffers and one for
computing. So the rows of a round arrive while the previous round is trained on. Elsewhere there is
no choice, and a stage runs as it is called.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass

import torch
from torch import Tensor

from gnnbench.errors import DeviceOutOfMemoryError
from gnnbench.machines.machine import Device
from gnnbench.run.timers import StreamTimer

#: The context for a body that needs no change.
AS_IT_IS: AbstractContextManager[None] = nullcontext()


def host_threads(count: int) -> AbstractContextManager[None]:
    """Return a context in which torch computes with ``count`` threads; 0 changes nothing.

    The number applies to computations that this thread asks for.
    """
    before = torch.get_num_threads()
    return AS_IT_IS if count in (0, before) else _with_threads(count, before)


@contextmanager
def _with_threads(count: int, before: int) -> Iterator[None]:
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """A CUDA stream and the timer that uses its events."""

    stream: torch.cuda.Stream
    timer: StreamTimer


@dataclass(frozen=True, slots=True, eq=False)
class Streams:
    """The streams of one CUDA device."""

    copy: Stream
    compute: Stream


def open_streams(devices: tuple[Device, ...]) -> dict[str, Streams]:
    """Return two streams for every CUDA device among ``devices``, by the device's name."""
    opened = {}
    for device in devices:
        where = torch.device(device.torch_device)
        if where.type == "cuda":
            copy, compute = (torch.cuda.Stream(where) for _ in range(2))  # type: ignore[no-untyped-call]
            opened[device.name] = Streams(
                Stream(copy, StreamTimer(copy)), Stream(compute, StreamTimer(compute))
            )
    return opened


@contextmanager
def on_stream(stream: Stream, device: str) -> Iterator[None]:
    """Run the body on a stream.

    Torch's own error for a full device becomes ``DeviceOutOfMemoryError`` of ``device``.
    """
    try:
        with torch.cuda.stream(stream.stream):
            yield
    except torch.OutOfMemoryError as error:
        raise _out_of_memory(device, stream.stream.device) from error


@contextmanager
def on_devices(devices: Sequence[Device]) -> Iterator[None]:
    """Run the body, which computes on ``devices``.

    Torch's own error for a full device becomes ``DeviceOutOfMemoryError`` of the fullest one, since
    torch does not say which it was. If several of a platform's devices are one CUDA device, that is
    named.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        names: dict[torch.device, list[str]] = {}
        for device in devices:
            where = torch.device(device.torch_device)
            if where.type == "cuda":
                names.setdefault(where, []).append(device.name)
        if not names:
            raise
        fullest = min(names, key=_free_bytes)
        name = names[fullest][0] if len(names[fullest]) == 1 else str(fullest)
        raise _out_of_memory(name, fullest) from error


@contextmanager
def on_cores(cores: Sequence[int]) -> Iterator[None]:
    """Run the body, with all threads of this process, only on these cores of the machine.

    Without ``cores``, it may use all cores that this process may use.
    """
    if not cores:
        yield
        return
    before = os.sched_getaffinity(0)
    _pin_threads(cores)
    try:
        yield
    finally:
        _pin_threads(before)


def _pin_threads(cores: Iterable[int]) -> None:
    """Pin all threads of this process to cores; new threads inherit the cores of their parent."""
    chosen = set(cores)
    for thread in os.listdir("/proc/self/task"):
        with suppress(ProcessLookupError):  # it has ended
            os.sched_setaffinity(int(thread), chosen)


def _out_of_memory(device: str, where: torch.device) -> DeviceOutOfMemoryError:
    # Torch wanted more in one piece than its own and the device's free blocks.
    wanted, total = _free_bytes(where) + 1, torch.cuda.mem_get_info(where)[1]
    return DeviceOutOfMemoryError(device, "a torch tensor", wanted, total - wanted + 1, total)


def _free_bytes(where: torch.device) -> int:
    """Return the free bytes of a CUDA device, and torch's reserved but unused bytes."""
    unused = torch.cuda.memory_reserved(where) - torch.cuda.memory_allocated(where)
    return torch.cuda.mem_get_info(where)[0] + unused


class StagingBuffers:
    """Page-locked host memory into which rows are loaded, and from which CUDA devices copy them.

    There is one for each device and round in progress. It is reused once that round is over, and it
    grows.
    """

    def __init__(self, rounds_under_way: int) -> None:
        self._rounds = rounds_under_way
        self._buffers: dict[tuple[int, int], Tensor] = {}

    def take(self, slot: int, round_: int, rows: int, width: int, dtype: torch.dtype) -> Tensor:
        """Return uninitialised memory of shape ``(rows, width)``."""
        key = (slot, round_ % self._rounds)
        buffer = self._buffers.get(key)
        if buffer is None or buffer.numel() < rows * width:
            # An eighth more than needed now, so that slightly larger rounds need no new one.
            size = rows * width + rows * width // 8
            buffer = self._buffers[key] = torch.empty(size, dtype=dtype, pin_memory=True)
        return buffer[: rows * width].view(rows, width)
