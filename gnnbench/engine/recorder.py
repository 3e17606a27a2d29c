"""Records what an epoch does: spans, bytes, work, memory. The only place that looks at the time."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

import torch

from gnnbench.errors import DeviceOutOfMemory
from gnnbench.platforms.machine import Route
from gnnbench.records import BYTE_KINDS, ByteKind, EpochTrace, Provenance, Span, Stage, Work


class Clock(Protocol):
    """Gives a piece of work its duration on the platform."""

    provenance: Provenance

    def seconds(self, work: Work, place: str, wall_s: float) -> float:
        """Duration of ``work`` on the device or link ``place``; ``wall_s`` is what it took here."""


class Opened:
    """A span being recorded; ``id`` is known at once so that later work can wait for it.

    Work that only its own execution can size (edges drawn by a sampler) is set on ``work``.
    """

    __slots__ = ("id", "seconds", "work")

    def __init__(self, id: int, work: Work) -> None:
        self.id = id
        self.work = work
        self.seconds = 0.0


class Recorder:
    """Collects one epoch at a time. ``synchronise`` waits for CUDA before each reading."""

    def __init__(self, clock: Clock, *, synchronise: bool = False) -> None:
        self._clock = clock
        self._synchronise = synchronise
        self.start_epoch(0)

    def start_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        self.round = 0
        self._spans: list[Span] = []
        self._bytes: dict[ByteKind, int] = dict.fromkeys(BYTE_KINDS, 0)
        self._work: dict[str, float] = {}
        self._edges = 0
        self._vertices = 0
        self._depth = 0
        self._excluded_s = 0.0
        self._inside_s = 0.0
        self._started_s = self._now_s()

    def _now_s(self) -> float:
        if self._synchronise:
            torch.cuda.synchronize()
        return time.perf_counter()

    @contextmanager
    def span(
        self,
        stage: Stage,
        label: str,
        place: str,
        work: Work,
        *,
        after: Sequence[int] = (),
        resources: tuple[str, ...] | None = None,
        layer: int = -1,
    ) -> Iterator[Opened]:
        """Time the body as one span on ``place``; it holds ``resources`` (the place by default)."""
        opened = Opened(len(self._spans) + self._depth, work)
        if self._depth:
            raise RuntimeError(f"span {label!r} opened inside another span")
        self._depth += 1
        start_s = self._now_s()
        try:
            yield opened
        finally:
            self._depth -= 1
        wall_s = self._now_s() - start_s
        opened.seconds = self._clock.seconds(opened.work, place, wall_s)
        self._spans.append(
            Span(
                id=opened.id,
                stage=stage,
                label=label,
                place=place,
                resources=(place,) if resources is None else resources,
                work=opened.work,
                after=tuple(sorted(set(after))),
                epoch=self.epoch,
                round=self.round,
                layer=layer,
                seconds=opened.seconds,
                wall_start_s=start_s - self._started_s,
                wall_s=wall_s,
            )
        )

    def transfer(
        self,
        stage: Stage,
        label: str,
        route: Route,
        work: Work,
        *,
        after: Sequence[int] = (),
        layer: int = -1,
    ) -> AbstractContextManager[Opened]:
        """Time the body as one span over a route, holding its lanes."""
        return self.span(
            stage, label, route.place, work, after=after, resources=route.lanes, layer=layer
        )

    @contextmanager
    def inside_part(self) -> Iterator[None]:
        """The body asks a part to decide something: its time, though no span, is not harness."""
        start_s = self._now_s()
        try:
            yield
        finally:
            self._inside_s += self._now_s() - start_s

    @contextmanager
    def excluded(self) -> Iterator[None]:
        """Keep the body out of the epoch's wall time: it serves the harness, not the strategy."""
        start_s = self._now_s()
        try:
            yield
        finally:
            self._excluded_s += self._now_s() - start_s

    def count_bytes(self, kind: ByteKind, number: int) -> None:
        self._bytes[kind] += number

    def count_traversed(self, edges: int, vertices: int) -> None:
        """Add to the sums of |E^l| and |B^l| over units and layers."""
        self._edges += edges
        self._vertices += vertices

    def count_work(self, device: str, amount: float) -> None:
        """Arithmetic done by a device, for the imbalance."""
        self._work[device] = self._work.get(device, 0.0) + amount

    def end_epoch(self, loss: float, round_losses: Sequence[float]) -> EpochTrace:
        wall_s = self._now_s() - self._started_s - self._excluded_s
        return EpochTrace(
            epoch=self.epoch,
            spans=tuple(self._spans),
            bytes=dict(self._bytes),
            edges=self._edges,
            vertices=self._vertices,
            loss=loss,
            round_losses=tuple(round_losses),
            work_by_device=dict(self._work),
            wall_s=wall_s,
            harness_s=max(0.0, wall_s - self._inside_s - sum(span.wall_s for span in self._spans)),
        )


class Ledger:
    """What each memory holds, tensor by tensor, and never more than its capacity."""

    def __init__(self, capacity_bytes: dict[str, int]) -> None:
        self._capacity = capacity_bytes
        self._held: dict[str, dict[str, int]] = {name: {} for name in capacity_bytes}
        self._in_use = dict.fromkeys(capacity_bytes, 0)
        self.peak_bytes = dict.fromkeys(capacity_bytes, 0)

    def open(self, memory: str, capacity_bytes: int) -> None:
        """One more memory, empty."""
        self._capacity[memory] = capacity_bytes
        self._held[memory] = {}
        self._in_use[memory] = self.peak_bytes[memory] = 0

    def free_bytes(self, memory: str) -> int:
        """How much more the memory can take."""
        return self._capacity[memory] - self._in_use[memory]

    def grow(self, memory: str, tensor: str, size_bytes: int) -> int:
        """Hold ``size_bytes`` more under the name ``tensor``, which need not be held yet.

        Returns what it holds then.
        """
        whole_bytes = self._held[memory].get(tensor, 0) + size_bytes
        self.allocate(memory, tensor, whole_bytes)
        return whole_bytes

    def allocate(self, memory: str, tensor: str, size_bytes: int) -> None:
        """Hold ``size_bytes`` under the name ``tensor``, replacing what that name held before.

        Raises ``DeviceOutOfMemory`` when the memory cannot take it.
        """
        held = self._held[memory]
        in_use = self._in_use[memory] - held.get(tensor, 0)
        if in_use + size_bytes > self._capacity[memory]:
            raise DeviceOutOfMemory(memory, tensor, size_bytes, in_use, self._capacity[memory])
        held[tensor] = size_bytes
        self._in_use[memory] = in_use + size_bytes
        self.peak_bytes[memory] = max(self.peak_bytes[memory], self._in_use[memory])

    def free(self, memory: str, *tensors: str) -> None:
        """Release tensors by name; one that is not held is an error of the caller."""
        for tensor in tensors:
            self._in_use[memory] -= self._held[memory].pop(tensor)

    @contextmanager
    def scope(self, memory: str) -> Iterator[None]:
        """Release on exit whatever was newly held inside."""
        before = set(self._held[memory])
        try:
            yield
        finally:
            self.free(memory, *(set(self._held[memory]) - before))
