"""Records what an epoch does: spans, bytes, work. The only place that takes times.

Several threads may record at once, each a stage of a round at a time (:meth:`Recorder.stage`): a
stage has a track of its own, which nobody else writes to, and the epoch's trace is the tracks one
after the other in the order of their keys. So it does not depend on how the threads took turns.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import count
from operator import attrgetter, eq
from typing import Protocol

import numpy as np
import torch

from gnnbench.program import Step
from gnnbench.records import BYTE_KINDS, ByteKind, EpochTrace, Provenance, Span, Work
from gnnbench.run.timers import HostTimer, Moment, SynchronisedTimer, Timer


class Clock(Protocol):
    """Gives a piece of work its duration on the platform."""

    provenance: Provenance

    def seconds(self, work: Work, place: str, wall_s: float) -> float:
        """Duration of ``work`` on the device or link ``place``; ``wall_s`` is what it took here."""


#: Of stages that have no timer of their own.
HOST = HostTimer()
#: What Span._make does, without a frame for each.
_new_span = partial(tuple.__new__, Span)


class _Here(threading.local):
    """The track of the stage that this thread is in, if it is in one."""

    track: Track | None = None


class Track:
    """What one thread records of one stage of a round; entered, it is that thread's.

    Steps are added when they are done. ``read`` is a moment, and ``since`` says of one when it
    was on the host's clock, and how long ago.
    """

    __slots__ = (
        "_clock",
        "_epoch",
        "_here",
        "_started_s",
        "bytes",
        "edges",
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
        """``timer`` is None where it is the host's."""
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
        """A step's span, bytes, work and what it traverses, and let it know its seconds.

        It has a ``number``, is ``after`` others by theirs, ascending, began at a moment of the
        host's clock, and was ``wall_s`` long.
        """
        # This is called for every step: all in one frame.
        clock, work, place = self._clock, step.work, step.place
        seconds = wall_s if clock is None else clock.seconds(work, place, wall_s)
        step.seconds = seconds
        self.spans.append(
            _new_span(
                (
                    number,
                    step.stage,
                    step.label,
                    place,
                    step.resources,
                    work,
                    after,
                    self._epoch,
                    step.round,
                    step.layer,
                    seconds,
                    began_s - self._started_s,
                    wall_s,
                )
            )
        )
        if step.moves:
            counted = self.bytes
            for kind, size_bytes in step.moves:
                counted[kind] = counted.get(kind, 0) + size_bytes
        if step.vertices or step.edges:
            self.edges += step.edges
            self.vertices += step.vertices
        if step.arithmetic:
            self.work[place] = self.work.get(place, 0.0) + step.arithmetic


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
        #: The clock, unless spans last as long as they took here.
        self.pricing = None if clock.provenance == "measured" else clock
        self._timer = SynchronisedTimer(synchronise) if synchronise else None
        #: Each thread's track.
        self.here = _Here()
        self.start_epoch(0)

    def start_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        self.ids = count()
        # Begin and duration of what parts decide, on all threads, and of what is no part of the
        # epoch.
        self._decided: list[tuple[float, float]] = []
        self._excluded: list[tuple[float, float]] = []
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
        """This thread's: of the stage it is in, else the epoch's own."""
        return self.here.track or self._main

    def stage(self, round: int, rank: tuple[int, int], timer: Timer | None = None) -> Track:
        """What this thread records inside belongs to ``round``, timed by ``timer`` (the host's by
        default). ``rank`` is its place among the round's stages and parts of stages, of which each
        has its own."""
        track = Track(self, round, rank, timer)
        self._tracks.append(track)
        return track

    def inside_part(self) -> AbstractContextManager[None]:
        """The body asks a part to decide something: its time, though no span, is not harness."""
        track = self.here.track
        # What parts decide outside of stages, they decide on the host.
        return _Interval(self._decided, HOST if track is None else track.timer or HOST)

    def excluded(self) -> AbstractContextManager[None]:
        """Keep the body out of the epoch's wall time: it serves the harness, not the strategy."""
        return _Interval(self._excluded, self.track.timer or HOST)

    def count_bytes(self, kind: ByteKind, number: int) -> None:
        counted = self.track.bytes
        counted[kind] = counted.get(kind, 0) + number

    def count_work(self, device: str, amount: float) -> None:
        """Arithmetic done by a device, for the imbalance."""
        work = (self.here.track or self._main).work
        work[device] = work.get(device, 0.0) + amount

    def list_numbers(self) -> list[int]:
        """Of the epoch's spans in the order of its trace, the ids that they had when they began."""
        tracks = sorted(self._tracks, key=attrgetter("key"))
        return [span.id for track in tracks for span in track.spans]

    def end_epoch(self, loss: float, round_losses: Sequence[float], seeds: int) -> EpochTrace:
        """The epoch's trace. Harness is what is left of its wall time when nothing else went on:
        neither a span nor a part, on any thread."""
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
        excluded, decided = (
            [(began_s - self.started_s, lasted_s) for began_s, lasted_s in intervals]
            for intervals in (self._excluded, self._decided)
        )
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
            wall_s=whole_s - _covered_s(excluded),
            harness_s=max(0.0, whole_s - _covered_s([*busy, *decided, *excluded])),
        )


def _number(spans: Sequence[Span]) -> tuple[Span, ...]:
    """The spans with ids from 0 in their order; what they wait for follows, ascending."""
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
    """Seconds in at least one of the intervals (begin, duration)."""
    if not intervals:
        return 0.0
    began_s, lasted_s = np.array(sorted(intervals)).T
    ended_s = began_s + lasted_s
    reached_s = np.maximum.accumulate(ended_s)
    np.maximum(began_s[1:], reached_s[:-1], out=began_s[1:])
    return float(np.maximum(ended_s - began_s, 0.0).sum())
