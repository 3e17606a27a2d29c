"""Records what an epoch does: spans, bytes, work, memory. The only place that takes times.

Several threads may record at once, each a stage of a round at a time (:meth:`Recorder.stage`): a
stage has a track of its own, which nobody else writes to, and the epoch's trace is the tracks one
after the other in the order of their keys. So it does not depend on how the threads took turns.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import count, repeat
from operator import attrgetter, itemgetter
from types import TracebackType
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from gnnbench.engine.timers import HostTimer, Moment, SynchronisedTimer, Timer
from gnnbench.errors import DeviceOutOfMemory
from gnnbench.platforms.machine import Route
from gnnbench.records import BYTE_KINDS, ByteKind, EpochTrace, Provenance, Span, Stage, Work


class Clock(Protocol):
    """Gives a piece of work its duration on the platform."""

    provenance: Provenance

    def seconds(self, work: Work, place: str, wall_s: float) -> float:
        """Duration of ``work`` on the device or link ``place``; ``wall_s`` is what it took here."""


class SpanKind(NamedTuple):
    """What spans of one kind have in common; see ``Span``. An engine makes those of every round
    once."""

    stage: Stage
    label: str
    place: str
    resources: tuple[str, ...]
    layer: int = -1


class Opened:
    """A span being recorded, for as long as the body of a ``with`` statement.

    ``id`` is known at once, so that later work can wait for it. Work that only its own execution
    can size (edges drawn by a sampler) is set on ``work``; ``seconds`` is there after the body. A
    body that raises leaves no span. In the epoch's trace spans are numbered from 0 in their order
    there.
    """

    __slots__ = (
        "_first",
        "_track",
        "after",
        "id",
        "interval",
        "kind",
        "round",
        "seconds",
        "work",
    )
    _first: Moment
    interval: tuple[float, float]
    seconds: float

    def __init__(
        self, track: _Track, id: int, kind: SpanKind, work: Work, after: Sequence[int]
    ) -> None:
        self._track = track
        self.id = id
        self.kind = kind
        self.work = work
        self.after = after
        self.round = track.round

    def __enter__(self) -> Opened:
        track = self._track
        if track.open:
            raise RuntimeError(
                f"span {self.kind.label!r} opened inside another span, {track.open.label!r}"
            )
        track.open = self.kind
        self._first = track.timer.read()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        track = self._track
        del self._track  # which has this span in its list
        track.open = None
        if kind is None:
            self.interval = interval = track.timer.since(self._first)
            self.seconds = track.clock.seconds(self.work, self.kind.place, interval[1])
            track.spans.append(self)


class _Here(threading.local):
    """The track of the stage that this thread is in, if it is in one."""

    track: _Track | None = None


class _Track:
    """What one thread records of one stage of a round; entered, it is that thread's."""

    __slots__ = (
        "_here",
        "bytes",
        "clock",
        "edges",
        "key",
        "open",
        "round",
        "spans",
        "timer",
        "vertices",
        "work",
    )

    def __init__(
        self, here: _Here, clock: Clock, round: int, rank: tuple[int, int], timer: Timer
    ) -> None:
        self._here = here
        self.clock = clock
        self.round = round
        self.key = (round, rank)
        self.timer = timer
        self.spans: list[Opened] = []
        self.bytes: dict[ByteKind, int] = {}
        self.work: dict[str, float] = {}
        self.edges = 0
        self.vertices = 0
        self.open: SpanKind | None = None

    def __enter__(self) -> None:
        self._here.track = self

    def __exit__(self, *error: object) -> None:
        self._here.track = None


class _Interval:
    """Adds when its body began, and how long it was, to ``intervals``."""

    __slots__ = ("_first", "_intervals", "_timer")
    _first: Moment

    def __init__(self, intervals: list[tuple[float, float]], timer: Timer) -> None:
        self._intervals = intervals
        self._timer = timer

    def __enter__(self) -> None:
        self._first = self._timer.read()

    def __exit__(self, *error: object) -> None:
        self._intervals.append(self._timer.since(self._first))


class Recorder:
    """Collects one epoch at a time. The devices ``synchronise`` are waited for before each reading
    outside of stages, which have their own timers."""

    def __init__(self, clock: Clock, *, synchronise: Sequence[torch.device] = ()) -> None:
        self._clock = clock
        self._host_timer = HostTimer()
        self._timer: Timer = SynchronisedTimer(synchronise) if synchronise else self._host_timer
        self._here = _Here()
        self.start_epoch(0)

    def start_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        self._main = _Track(self._here, self._clock, 0, (-1, 0), self._timer)
        self._tracks = [self._main]
        self._ids = count()
        # Begin and duration of what parts decide, on all threads, and of what is no part of the
        # epoch.
        self._decided: list[tuple[float, float]] = []
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
        return self._here.track or self._main

    @property
    def round(self) -> int:
        """The round that spans belong to."""
        return self._track.round

    @round.setter
    def round(self, number: int) -> None:
        self._track.round = number

    def stage(
        self, round: int, rank: tuple[int, int], timer: Timer | None = None
    ) -> AbstractContextManager[None]:
        """What this thread records inside belongs to ``round``, timed by ``timer`` (the host's by
        default). ``rank`` is its place among the round's stages and parts of stages, of which each
        has its own."""
        track = _Track(self._here, self._clock, round, rank, timer or self._host_timer)
        self._tracks.append(track)
        return track

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
    ) -> Opened:
        """Time the body as one span on ``place``; it holds ``resources`` (the place by default)."""
        held = (place,) if resources is None else resources
        return self.open(SpanKind(stage, label, place, held, layer), work, after)

    def open(self, kind: SpanKind, work: Work, after: Sequence[int] = ()) -> Opened:
        """Time the body as one span of a kind."""
        return Opened(self._here.track or self._main, next(self._ids), kind, work, after)

    def transfer(
        self,
        stage: Stage,
        label: str,
        route: Route,
        work: Work,
        *,
        after: Sequence[int] = (),
        layer: int = -1,
    ) -> Opened:
        """Time the body as one span over a route, holding its lanes."""
        return self.span(
            stage, label, route.place, work, after=after, resources=route.lanes, layer=layer
        )

    def inside_part(self) -> AbstractContextManager[None]:
        """The body asks a part to decide something: its time, though no span, is not harness."""
        track = self._here.track
        # What parts decide outside of stages, they decide on the host.
        return _Interval(self._decided, self._host_timer if track is None else track.timer)

    def excluded(self) -> AbstractContextManager[None]:
        """Keep the body out of the epoch's wall time: it serves the harness, not the strategy."""
        return _Interval(self._excluded, self._track.timer)

    def count_bytes(self, kind: ByteKind, number: int) -> None:
        counted = self._track.bytes
        counted[kind] = counted.get(kind, 0) + number

    def count_traversed(self, edges: int, vertices: int) -> None:
        """Add to the sums of |E^l| and |B^l| over units and layers."""
        track = self._here.track or self._main
        track.edges += edges
        track.vertices += vertices

    def count_work(self, device: str, amount: float) -> None:
        """Arithmetic done by a device, for the imbalance."""
        work = (self._here.track or self._main).work
        work[device] = work.get(device, 0.0) + amount

    def end_epoch(self, loss: float, round_losses: Sequence[float]) -> EpochTrace:
        """The epoch's trace. Harness is what is left of its wall time when nothing else went on:
        neither a span nor a part, on any thread."""
        whole_s = self._timer.read() - self._started_s
        tracks = sorted(self._tracks, key=lambda track: track.key)
        counted: dict[ByteKind, int] = dict.fromkeys(BYTE_KINDS, 0)
        work: dict[str, float] = {}
        recorded: list[Opened] = []
        for track in tracks:
            recorded += track.spans
            for kind, number in track.bytes.items():
                counted[kind] += number
            for device, amount in track.work.items():
                work[device] = work.get(device, 0.0) + amount
        busy = map(attrgetter("interval"), recorded)
        return EpochTrace(
            epoch=self.epoch,
            spans=self._number(recorded),
            bytes=counted,
            edges=sum([track.edges for track in tracks]),
            vertices=sum([track.vertices for track in tracks]),
            loss=loss,
            round_losses=tuple(round_losses),
            work_by_device=work,
            wall_s=whole_s - _covered_s(self._excluded),
            harness_s=max(0.0, whole_s - _covered_s([*busy, *self._decided, *self._excluded])),
        )

    def _number(self, recorded: Sequence[Opened]) -> tuple[Span, ...]:
        """The spans with ids from 0 in their order; what they wait for follows, ascending."""
        intervals = list(map(attrgetter("interval"), recorded))
        place = dict(zip(map(attrgetter("id"), recorded), count(), strict=False))

        def column(name: str) -> Iterator[Any]:
            return map(attrgetter(name), recorded)

        def in_order(after: Sequence[int]) -> tuple[int, ...]:
            """Each once."""
            return tuple(sorted({place[earlier] for earlier in after}))

        # In the order of the fields, column by column: an epoch has thousands of spans.
        fields = zip(
            range(len(recorded)),
            *map(column, ("kind.stage", "kind.label", "kind.place", "kind.resources", "work")),
            [
                (place[span.after[0]],) if len(span.after) == 1 else in_order(span.after)
                for span in recorded
            ],
            repeat(self.epoch),
            *map(column, ("round", "kind.layer", "seconds")),
            [began_s - self._started_s for began_s, _ in intervals],
            map(itemgetter(1), intervals),
            strict=False,
        )
        # What Span._make does, without a frame for each.
        return tuple(map(partial(tuple.__new__, Span), fields))


def _covered_s(intervals: Sequence[tuple[float, float]]) -> float:
    """Seconds in at least one of the intervals (begin, duration)."""
    if not intervals:
        return 0.0
    began_s, lasted_s = np.array(sorted(intervals)).T
    ended_s = began_s + lasted_s
    reached_s = np.maximum.accumulate(ended_s)
    np.maximum(began_s[1:], reached_s[:-1], out=began_s[1:])
    return float(np.maximum(ended_s - began_s, 0.0).sum())


class _Scopes(threading.local):
    """A thread's open scopes, the innermost first: a memory, and what was newly held."""

    open: tuple[tuple[str, set[str]], ...] = ()


class _Scope:
    """Releases on exit whatever its thread newly held inside."""

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
        with self._ledger.lock:
            self._ledger.in_use_bytes[self._memory] -= self._size_bytes

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None:
        self.release()


class Ledger:
    """What each memory holds, tensor by tensor, and never more than its capacity.

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
        """One more memory, empty."""
        self._capacity[memory] = capacity_bytes
        self._held[memory] = {}
        self.in_use_bytes[memory] = self.peak_bytes[memory] = 0

    def free_bytes(self, memory: str) -> int:
        """How much more the memory can take."""
        return self._capacity[memory] - self.in_use_bytes[memory]

    def grow(self, memory: str, tensor: str, size_bytes: int) -> int:
        """Hold ``size_bytes`` more under the name ``tensor``, which need not be held yet.

        Returns what it holds then.
        """
        with self.lock:
            whole_bytes = self._held[memory].get(tensor, 0) + size_bytes
            self.allocate(memory, tensor, whole_bytes)
            return whole_bytes

    def allocate(self, memory: str, tensor: str, size_bytes: int) -> None:
        """Hold ``size_bytes`` under the name ``tensor``, replacing what that name held before.

        Raises ``DeviceOutOfMemory`` when the memory cannot take it.
        """
        self.allocate_all(memory, ((tensor, size_bytes),))

    def allocate_all(self, memory: str, sizes: Sequence[tuple[str, int]]) -> None:
        """``allocate`` each tensor with its size, in order."""
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
                        raise DeviceOutOfMemory(memory, tensor, size_bytes, others, capacity)
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

        Raises ``DeviceOutOfMemory`` for the first of them that the memory cannot take, and holds
        none then.
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
        """Raise for the first of tensors that do not fit together."""
        in_use, capacity = self.in_use_bytes[memory], self._capacity[memory]
        for tensor, size_bytes in sizes_bytes.items():
            if in_use + size_bytes > capacity:
                raise DeviceOutOfMemory(memory, tensor, size_bytes, in_use, capacity)
            in_use += size_bytes
            self.peak_bytes[memory] = max(self.peak_bytes[memory], in_use)

    def free(self, memory: str, *tensors: str) -> None:
        """Release tensors by name; one that is not held is an error of the caller."""
        with self.lock:
            for tensor in tensors:
                self.in_use_bytes[memory] -= self._held[memory].pop(tensor)
            for name, new in self._scopes.open:
                if name == memory:
                    new.difference_update(tensors)

    def scope(self, memory: str) -> AbstractContextManager[None]:
        """Release on exit whatever this thread newly held inside."""
        return _Scope(self, self._scopes, memory)
