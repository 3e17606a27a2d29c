"""Sums over an epoch's spans: its timeline, critical path, busy seconds, energy and imbalance."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from gnnbench.machines.machine import Device, Platform
from gnnbench.price.schedule import Task, schedule
from gnnbench.records import STAGES, EpochTrace, Provenance, Scheduled, Span, Stage


@dataclass(frozen=True, slots=True)
class Digest:
    """The data kept of one epoch once its spans have been turned into a timeline."""

    epoch_s: float
    stages: Mapping[Stage, float]
    timeline: tuple[Scheduled, ...]
    energy_j: float | None = None


def lay_out(
    epoch: EpochTrace, provenance: Provenance, shared: Collection[str] = ()
) -> tuple[Scheduled, ...]:
    """Return the epoch's timeline: scheduled if times are modelled, as measured otherwise.

    On the ``shared`` lanes transfers share the bandwidth.
    """
    spans = epoch.spans
    if provenance == "measured":
        return tuple(
            Scheduled(span, span.wall_start_s, span.wall_start_s + span.wall_s) for span in spans
        )
    tasks = [Task(span.seconds, span.resources, span.after) for span in spans]
    return tuple(
        Scheduled(span, start_s, end_s)
        for span, (start_s, end_s) in zip(spans, schedule(tasks, shared), strict=True)
    )


def busy_by_stage(spans: Sequence[Span]) -> dict[Stage, float]:
    """Return the seconds of the busiest resource in each stage; unused stages are absent."""
    busy: dict[Stage, dict[str, float]] = {}
    for span in spans:
        by_resource = busy.setdefault(span.stage, {})
        for resource in span.resources or (span.place,):
            by_resource[resource] = by_resource.get(resource, 0.0) + span.seconds
    return {stage: max(busy[stage].values()) for stage in STAGES if stage in busy}


def digest(epoch: EpochTrace, provenance: Provenance, platform: Platform | None = None) -> Digest:
    """Return the epoch time, busy seconds by stage, timeline and energy of an epoch.

    Without a platform no lane is shared, and there is no energy.
    """
    timeline = lay_out(epoch, provenance, platform.shared_lanes if platform else ())
    epoch_s = (
        epoch.wall_s
        if provenance == "measured"
        else max((item.end_s for item in timeline), default=0.0)
    )
    used = energy(timeline, platform.devices) if platform else None
    return Digest(epoch_s, busy_by_stage(epoch.spans), timeline, used)


def find_critical_path(timeline: Sequence[Scheduled]) -> list[Scheduled]:
    """Return the critical path of an epoch, in order of time.

    The path ends with the last span. Before each span stands the last to end of the spans that it
    waits for, and of the earlier spans on its resources. A shorter span on the path makes the epoch
    shorter, until another path is as long.
    """
    spans: dict[int, Scheduled] = {}
    before: dict[int, Scheduled] = {}
    last: dict[str, Scheduled] = {}
    for item in sorted(timeline, key=lambda item: (item.start_s, item.end_s, item.span.id)):
        span = item.span
        waited = [spans[number] for number in span.after if number in spans]
        waited += [last[name] for name in span.resources if name in last]
        ended = [each for each in waited if each.end_s <= item.start_s]
        if ended:
            before[span.id] = max(ended, key=lambda each: each.end_s)
        spans[span.id] = item
        last.update(dict.fromkeys(span.resources, item))
    path: list[Scheduled] = []
    step = max(timeline, key=lambda item: item.end_s, default=None)
    while step is not None:
        path.append(step)
        step = before.get(step.span.id)
    return path[::-1]


def busy_seconds(timeline: Sequence[Scheduled], place: str) -> float:
    """Return the seconds in which at least one span runs on ``place``."""
    busy_s, until_s = 0.0, 0.0
    for start_s, end_s in sorted((s.start_s, s.end_s) for s in timeline if s.span.place == place):
        busy_s += max(0.0, end_s - max(start_s, until_s))
        until_s = max(until_s, end_s)
    return busy_s


def energy(timeline: Sequence[Scheduled], devices: Sequence[Device]) -> float | None:
    """Return the joules of an epoch: each device's power times its busy seconds, summed.

    The power of idle devices and of links is left out. The result is None if a device that was busy
    has no stated power.
    """
    total_j = 0.0
    by_place: dict[str, list[Scheduled]] = {}
    for item in timeline:
        by_place.setdefault(item.span.place, []).append(item)
    for device in devices:
        busy_s = busy_seconds(by_place.get(device.name, ()), device.name)
        if busy_s and device.hardware.power_w is None:
            return None
        total_j += busy_s * (device.hardware.power_w or 0.0)
    return total_j


def imbalance(work_by_device: Mapping[str, float]) -> float:
    """Return the largest device's work divided by the mean."""
    if not work_by_device:
        return 1.0
    mean = fmean(work_by_device.values())
    return max(work_by_device.values()) / mean if mean else 1.0
