"""The record of an epoch: spans, bytes, work. This is the only module that takes times.

Several threads may record at once, each one stage of a round at a time (:meth:`Recorder.stage`). A
stage has a track that no other thread writes to. The epoch's trace is the tracks one after the
other in the order of their keys. So it does not depend on how the threads took turns.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import count
from operator import attrgetter, eq
from typing import Protocol

import numpy as np

from gnnbench.program.step import NOTHING, Step
from gnnbench.program.timers import HostTimer, Moment, Timer
from gnnbench.records import BYTE_KINDS, ByteKind, EpochTrace, Provenance, Span, Stage, Work


class Clock(Protocol):
    """A clock that gives a piece of work its duration on the platform."""

    provenance: Provenance

    def seconds(self, work: Work, place: str, wall_s: float, stage: Stage | None = None) -> float:
        """Return the duration of ``work`` on ``place``; ``wall_s`` is what it took here.

        ``place`` is a device or link, and ``stage`` the stage that the work belongs to.
        """


#: The timer of stages without a separate timer.
HOST = HostTimer()
#: Does what Span._make does, without a Python frame for each span.
_new_span = partial(tuple.__new__, Span)


class _Here(threading.local):
    """The track of the stage that this thread is in, or None."""

    track: Track | None = None


class Track:
    """The record of one thread in one stage of a round; entering it makes it the thread's.

    Steps are added when they are done. ``read`` returns a moment. ``since`` returns when a moment
    was on the host's clock, and how long ago.
    """

    __slots__ = (
        "_clock",
        "_epoch",
        "_here",
        "_started_s",
        "bytes",
        "edges",
        "excluded",
        "key",
        "read",
        "since",
        "spans",
        "timer",
        "vertices",
        "work",
    )

    def __init__(
        self, recorder: Recorder, round: int, rank: tuple[int, int], timer: Timer | None
    ) -> None:
        """Open a track; ``timer`` is None for the host's timer."""
        self._here = recorder.here
        self._clock = recorder.pricing
        self._epoch = recorder.epoch
        self._started_s = recorder.started_s
        self.key = (round, rank)
        self.timer = timer
        own = HOST if timer is None else timer
        self.read: Callable[[], Moment] = own.read
        self.since: Callable[[Moment], tuple[float, float]] = own.since
        self.spans: list[Span] = []
        #: Start and duration of what is not part of the epoch.
        self.excluded: list[tuple[float, float]] = []
        self.bytes: dict[ByteKind, int] = {}
        self.work: dict[str, float] = {}
        self.edges = 0
        self.vertices = 0

    def __enter__(self) -> Track:
        self._here.track = self
        return self

    def __exit__(self, *error: object) -> None:
        self._here.track = None

    def add(
        self, step: Step, number: int, after: tuple[int, ...], began_s: float, wall_s: float
    ) -> None:
        """Add a step's span, bytes, work and traversals, and its seconds to its times.

        The step has a ``number``, and ``after`` has the numbers of the steps that it waited for,
        ascending. It began at a moment of the host's clock, and took ``wall_s``.
        """
        # This is called for every step: all in one frame.
        _, stage, label, (place, resources, _, _), work, layer, round, counts, _, times, _ = step
        clock = self._clock
        seconds = wall_s if clock is None else clock.seconds(work, place, wall_s, stage)
        if times is not None:
            times.seconds.append(seconds)
        self.spans.append(
            _new_span(
                (
                    number,
                    stage,
                    label,
                    place,
                    resources,
                    work,
                    after,
                    self._epoch,
                    round,
                    layer,
                    seconds,
                    began_s - self._started_s,
                    wall_s,
                )
            )
        )
        if counts is not NOTHING:
            moves, edges, vertices, arithmetic = counts
            counted = self.bytes
            for kind, size_bytes in moves:
                counted[kind] = counted.get(kind, 0) + size_bytes
            self.edges += edges
            self.vertices += vertices
            if arithmetic:
                self.work[place] = self.work.get(place, 0.0) + arithmetic


class _Interval:
    """A context that adds the start and the duration of its body to ``intervals``."""

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
    """The collection of one epoch at a time.

    ``timer`` reads moments outside of stages, which may have separate timers; by default it is the
    host's.
    """

    def __init__(self, clock: Clock, timer: Timer | None = None) -> None:
        self._clock = clock
        #: The clock, unless spans last as long as they took here.
        self.pricing = None if clock.provenance == "measured" else clock
        self._timer = timer
        #: Each thread's track.
        self.here = _Here()
        self.start_epoch(0)

    def start_epoch(self, epoch: int) -> None:
        """Start an epoch: forget the last one, and number spans from 0."""
        self.epoch = epoch
        self.ids = count()
        # Start and duration of parts' decisions, on all threads.
        self._decided: list[tuple[float, float]] = []
        self.started_s: float = (self._timer or HOST).read()
        self._main = Track(self, 0, (-1, 0), self._timer)
        self._tracks = [self._main]

    @property
    def provenance(self) -> Provenance:
        """Whether durations are measured or modelled."""
        return self._clock.provenance

    @property
    def measures(self) -> bool:
        """Whether spans last as long as they took here."""
        return self._clock.provenance == "measured"

    @property
    def track(self) -> Track:
        """The track of this thread's stage, or the epoch's own track outside of stages."""
        return self.here.track or self._main

    def stage(self, round: int, rank: tuple[int, int], timer: Timer | None = None) -> Track:
        """Return a track for what this thread records inside of ``round``.

        ``timer`` is the host's by default. ``rank`` orders the round's stages and parts of stages,
        and is unique among them.
        """
        track = Track(self, round, rank, timer)
        self._tracks.append(track)
        return track

    def inside_part(self) -> AbstractContextManager[None]:
        """Return a context in which a part decides something.

        Its time is no span, but is not the harness's.
        """
        track = self.here.track
        # Outside of stages, parts decide on the host.
        return _Interval(self._decided, HOST if track is None else track.timer or HOST)

    def excluded(self) -> AbstractContextManager[None]:
        """Return a context that is left out of the epoch's wall time.

        Its body serves the harness, not the strategy. While another track has a span, the epoch
        goes on, and the time counts.
        """
        return _Interval(self.track.excluded, self.track.timer or HOST)

    def count_bytes(self, kind: ByteKind, number: int) -> None:
        """Add to the bytes of a kind on this track."""
        counted = self.track.bytes
        counted[kind] = counted.get(kind, 0) + number

    def count_work(self, device: str, amount: float) -> None:
        """Add arithmetic done by a device, for the imbalance."""
        work = (self.here.track or self._main).work
        work[device] = work.get(device, 0.0) + amount

    def list_numbers(self) -> list[int]:
        """Return the ids that the epoch's spans had when they began, in the order of its trace."""
        tracks = sorted(self._tracks, key=attrgetter("key"))
        return [span.id for track in tracks for span in track.spans]

    def end_epoch(self, loss: float, round_losses: Sequence[float], seeds: int) -> EpochTrace:
        """Return the epoch's trace.

        The harness's time is the part of the wall time with neither a span nor a part's decision on
        any thread.
        """
        whole_s = (self._timer or HOST).read() - self.started_s
        counted: dict[ByteKind, int] = dict.fromkeys(BYTE_KINDS, 0)
        work: dict[str, float] = {}
        spans: list[Span] = []
        edges = vertices = 0
        for track in sorted(self._tracks, key=attrgetter("key")):
            spans += track.spans
            edges += track.edges
            vertices += track.vertices
            for kind, number in track.bytes.items():
                counted[kind] += number
            for device, amount in track.work.items():
                work[device] = work.get(device, 0.0) + amount
        aside = [
            (began_s - self.started_s, lasted_s)
            for intervals in (self._decided, *[track.excluded for track in self._tracks])
            for began_s, lasted_s in intervals
        ]
        busy = map(attrgetter("wall_start_s", "wall_s"), spans)
        return EpochTrace(
            epoch=self.epoch,
            spans=_number(spans),
            bytes=counted,
            edges=edges,
            vertices=vertices,
            seeds=seeds,
            loss=loss,
            round_losses=tuple(round_losses),
            work_by_device=work,
            wall_s=whole_s - _covered_s([*_find_still(self._tracks, self.started_s)]),
            harness_s=max(0.0, whole_s - _covered_s([*busy, *aside])),
        )


def _find_still(tracks: Sequence[Track], started_s: float) -> Iterator[tuple[float, float]]:
    """Yield the start and duration of excluded intervals, without spans of other tracks.

    Starts are in seconds since ``started_s``.
    """
    if not any(track.excluded for track in tracks):
        return
    spans = sorted(
        (span.wall_start_s, span.wall_start_s + span.wall_s, number)
        for number, track in enumerate(tracks)
        for span in track.spans
    )
    begins = [span[0] for span in spans]
    longest_s = max((ends_s - began_s for began_s, ends_s, _ in spans), default=0.0)
    for own, track in enumerate(tracks):
        for moment_s, lasted_s in track.excluded:
            reached_s = moment_s - started_s
            ends_s = reached_s + lasted_s
            first = bisect_left(begins, reached_s - longest_s)
            for other_s, until_s, number in spans[first : bisect_left(begins, ends_s)]:
                if number != own and until_s > reached_s:
                    if other_s > reached_s:
                        yield reached_s, other_s - reached_s
                    reached_s = until_s
            if ends_s > reached_s:
                yield reached_s, ends_s - reached_s


def _number(spans: Sequence[Span]) -> tuple[Span, ...]:
    """Return the spans with ids from 0 in their order; ``after`` is changed too, ascending."""
    if all(map(eq, map(attrgetter("id"), spans), count())):
        return tuple(spans)
    place = {span.id: number for number, span in enumerate(spans)}
    return tuple(
        [
            span._replace(
                id=number, after=tuple(sorted([place[earlier] for earlier in span.after]))
            )
            for number, span in enumerate(spans)
        ]
    )


def _covered_s(intervals: Sequence[tuple[float, float]]) -> float:
    """Return the seconds in at least one of the intervals (start, duration)."""
    if not intervals:
        return 0.0
    began_s, lasted_s = np.array(sorted(intervals)).T
    ended_s = began_s + lasted_s
    reached_s = np.maximum.accumulate(ended_s)
    np.maximum(began_s[1:], reached_s[:-1], out=began_s[1:])
    return float(np.maximum(ended_s - began_s, 0.0).sum())
