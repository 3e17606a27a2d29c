"""Records what an epoch does: spans, bytes, work, memory. The only place that takes times.

Several threads may record at once, each a stage of a round at a time (:meth:`Recorder.stage`): a
stage has a track of its own, which nobody else writes to, and the epoch's trace is the tracks one
after the other in the order of their keys. So it does not depend on how the threads took turns.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import NamedTuple, Protocol

from gnnbench.engine.timers import HostTimer, SynchronisedTimer, Timer
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

    Work that only its own execution can size (edges drawn by a sampler) is set on ``work``. In the
    epoch's trace spans are numbered from 0 in their order there.
    """

    __slots__ = ("id", "seconds", "work")

    def __init__(self, id: int, work: Work) -> None:
        self.id = id
        self.work = work
        self.seconds = 0.0


class _Recorded(NamedTuple):
    """A span before all are numbered: its id and those it waits for, as they were recorded."""

    id: int
    after: Sequence[int]
    make: partial[Span]


class _Track:
    """What one thread records of one stage of a round."""

    def __init__(self, round: int, rank: tuple[int, int], timer: Timer) -> None:
        self.round = round
        self.key = (round, rank)
        self.timer = timer
        self.spans: list[_Recorded] = []
        self.bytes: dict[ByteKind, int] = dict.fromkeys(BYTE_KINDS, 0)
        self.work: dict[str, float] = {}
        self.edges = 0
        self.vertices = 0
        self.open = ""


class Recorder:
    """Collects one epoch at a time. ``synchronise`` waits for CUDA before each reading outside of
    stages, which have their own timers."""

    def __init__(self, clock: Clock, *, synchronise: bool = False) -> None:
        self._clock = clock
        self._timer: Timer = SynchronisedTimer() if synchronise else HostTimer()
        self._here = threading.local()
        self.start_epoch(0)

    def start_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        self._main = _Track(0, (-1, 0), self._timer)
        self._tracks = [self._main]
        self._ids = itertools.count()
        # Begin and duration of whatever is not harness, on all threads, and of what is no part of
        # the epoch.
        self._busy: list[tuple[float, float]] = []
        self._excluded: list[tuple[float, float]] = []
        self._started_s: float = self._timer.read()

    @property
    def provenance(self) -> Provenance:
        """Whether durations are measured or modelled."""
        return self._clock.provenance

    @property
    def measures(self) -> bool:
        """Whether spans last as long as they took here."""
        return self._clock.provenance == "measured"

    @property
    def _track(self) -> _Track:
        """This thread's: of the stage it is in, else the epoch's own."""
        track: _Track = getattr(self._here, "track", self._main)
        return track

    @property
    def round(self) -> int:
        """The round that spans belong to."""
        return self._track.round

    @round.setter
    def round(self, number: int) -> None:
        self._track.round = number

    @contextmanager
    def stage(
        self, round: int, rank: tuple[int, int], timer: Timer | None = None
    ) -> Iterator[None]:
        """What this thread records inside belongs to ``round``, timed by ``timer`` (the host's by
        default). ``rank`` is its place among the round's stages and parts of stages, of which each
        has its own."""
        track = _Track(round, rank, timer or HostTimer())
        self._tracks.append(track)
        self._here.track = track
        try:
            yield
        finally:
            del self._here.track

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
        track = self._track
        if track.open:
            raise RuntimeError(f"span {label!r} opened inside another span, {track.open!r}")
        opened = Opened(next(self._ids), work)
        track.open = label
        first = track.timer.read()
        try:
            yield opened
        finally:
            track.open = ""
        began_s, wall_s = track.timer.between(first, track.timer.read())
        opened.seconds = self._clock.seconds(opened.work, place, wall_s)
        self._busy.append((began_s, wall_s))
        make = partial(
            Span,
            stage=stage,
            label=label,
            place=place,
            resources=(place,) if resources is None else resources,
            work=opened.work,
            epoch=self.epoch,
            round=track.round,
            layer=layer,
            seconds=opened.seconds,
            wall_start_s=began_s - self._started_s,
            wall_s=wall_s,
        )
        track.spans.append(_Recorded(opened.id, tuple(after), make))

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

    def inside_part(self) -> AbstractContextManager[None]:
        """The body asks a part to decide something: its time, though no span, is not harness."""
        outside = self._track is self._main
        # What parts decide outside of stages, they decide on the host.
        return self._timed(self._busy, HostTimer() if outside else self._track.timer)

    def excluded(self) -> AbstractContextManager[None]:
        """Keep the body out of the epoch's wall time: it serves the harness, not the strategy."""
        return self._timed(self._excluded, self._track.timer)

    @contextmanager
    def _timed(self, intervals: list[tuple[float, float]], timer: Timer) -> Iterator[None]:
        first = timer.read()
        try:
            yield
        finally:
            intervals.append(timer.between(first, timer.read()))

    def count_bytes(self, kind: ByteKind, number: int) -> None:
        self._track.bytes[kind] += number

    def count_traversed(self, edges: int, vertices: int) -> None:
        """Add to the sums of |E^l| and |B^l| over units and layers."""
        self._track.edges += edges
        self._track.vertices += vertices

    def count_work(self, device: str, amount: float) -> None:
        """Arithmetic done by a device, for the imbalance."""
        work = self._track.work
        work[device] = work.get(device, 0.0) + amount

    def end_epoch(self, loss: float, round_losses: Sequence[float]) -> EpochTrace:
        """The epoch's trace. Harness is what is left of its wall time when nothing else went on:
        neither a span nor a part, on any thread."""
        whole_s = self._timer.read() - self._started_s
        tracks = sorted(self._tracks, key=lambda track: track.key)
        work: dict[str, float] = {}
        for track in tracks:
            for device, amount in track.work.items():
                work[device] = work.get(device, 0.0) + amount
        return EpochTrace(
            epoch=self.epoch,
            spans=_number([span for track in tracks for span in track.spans]),
            bytes={kind: sum(track.bytes[kind] for track in tracks) for kind in BYTE_KINDS},
            edges=sum(track.edges for track in tracks),
            vertices=sum(track.vertices for track in tracks),
            loss=loss,
            round_losses=tuple(round_losses),
            work_by_device=work,
            wall_s=whole_s - _covered_s(self._excluded),
            harness_s=max(0.0, whole_s - _covered_s([*self._busy, *self._excluded])),
        )


def _number(recorded: Sequence[_Recorded]) -> tuple[Span, ...]:
    """The spans with ids from 0 in their order; what they wait for follows, ascending."""
    place = {span.id: position for position, span in enumerate(recorded)}
    return tuple(
        span.make(id=position, after=tuple(sorted({place[earlier] for earlier in span.after})))
        for position, span in enumerate(recorded)
    )


def _covered_s(intervals: Sequence[tuple[float, float]]) -> float:
    """Seconds in at least one of the intervals (begin, duration)."""
    covered_s, reached_s = 0.0, float("-inf")
    for began_s, lasted_s in sorted(intervals):
        covered_s += max(0.0, began_s + lasted_s - max(began_s, reached_s))
        reached_s = max(reached_s, began_s + lasted_s)
    return covered_s


class Ledger:
    """What each memory holds, tensor by tensor, and never more than its capacity.

    Several threads may use it at once.
    """

    def __init__(self, capacity_bytes: dict[str, int]) -> None:
        self._capacity = capacity_bytes
        self._held: dict[str, dict[str, int]] = {name: {} for name in capacity_bytes}
        self._in_use = dict.fromkeys(capacity_bytes, 0)
        self.peak_bytes = dict.fromkeys(capacity_bytes, 0)
        self._lock = threading.RLock()
        self._here = threading.local()

    @property
    def _scopes(self) -> tuple[tuple[str, set[str]], ...]:
        """This thread's open scopes, the innermost first: a memory, and what was newly held."""
        scopes: tuple[tuple[str, set[str]], ...] = getattr(self._here, "scopes", ())
        return scopes

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
        with self._lock:
            whole_bytes = self._held[memory].get(tensor, 0) + size_bytes
            self.allocate(memory, tensor, whole_bytes)
            return whole_bytes

    def allocate(self, memory: str, tensor: str, size_bytes: int) -> None:
        """Hold ``size_bytes`` under the name ``tensor``, replacing what that name held before.

        Raises ``DeviceOutOfMemory`` when the memory cannot take it.
        """
        with self._lock:
            held = self._held[memory]
            in_use = self._in_use[memory] - held.get(tensor, 0)
            if in_use + size_bytes > self._capacity[memory]:
                raise DeviceOutOfMemory(memory, tensor, size_bytes, in_use, self._capacity[memory])
            scope = next((new for name, new in self._scopes if name == memory), None)
            if scope is not None and tensor not in held:
                scope.add(tensor)
            held[tensor] = size_bytes
            self._in_use[memory] = in_use + size_bytes
            self.peak_bytes[memory] = max(self.peak_bytes[memory], self._in_use[memory])

    def free(self, memory: str, *tensors: str) -> None:
        """Release tensors by name; one that is not held is an error of the caller."""
        with self._lock:
            for tensor in tensors:
                self._in_use[memory] -= self._held[memory].pop(tensor)
            for name, new in self._scopes:
                if name == memory:
                    new.difference_update(tensors)

    @contextmanager
    def scope(self, memory: str) -> Iterator[None]:
        """Release on exit whatever this thread newly held inside."""
        outer, new = self._scopes, set[str]()
        self._here.scopes = ((memory, new), *outer)
        try:
            yield
        finally:
            self._here.scopes = outer
            self.free(memory, *new)
