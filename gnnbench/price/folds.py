"""What an epoch's spans come to: its timeline, busy seconds, energy and imbalance."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from gnnbench.platforms.machine import Device, Platform
from gnnbench.price.schedule import Task, schedule
from gnnbench.records import STAGES, EpochTrace, Provenance, Scheduled, Span, Stage


@dataclass(frozen=True, slots=True)
class Digest:
    """What is kept of one epoch once its spans have been turned into a timeline."""

    epoch_s: float
    stages: Mapping[Stage, float]
    timeline: tuple[Scheduled, ...]
    energy_j: float | None = None


def lay_out(
    epoch: EpochTrace, provenance: Provenance, shared: Collection[str] = ()
) -> tuple[Scheduled, ...]:
    """The epoch's timeline: scheduled where times are modelled, as it happened where measured.
    On the ``shared`` lanes transfers share the bandwidth."""
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
    """Seconds of the busiest resource in each stage; stages that never ran are absent."""
    busy: dict[Stage, dict[str, float]] = {}
    for span in spans:
        by_resource = busy.setdefault(span.stage, {})
        for resource in span.resources or (span.place,):
            by_resource[resource] = by_resource.get(resource, 0.0) + span.seconds
    return {stage: max(busy[stage].values()) for stage in STAGES if stage in busy}


def digest(epoch: EpochTrace, provenance: Provenance, platform: Platform | None = None) -> Digest:
    """Epoch time by the platform's clock, busy seconds by stage, the timeline, and the energy of
    the ``platform``'s devices. Without a platform no lane is shared."""
    timeline = lay_out(epoch, provenance, platform.shared_lanes if platform else ())
    epoch_s = (
        epoch.wall_s
        if provenance == "measured"
        else max((item.end_s for item in timeline), default=0.0)
    )
    used = energy(timeline, platform.devices) if platform else None
    return Digest(epoch_s, busy_by_stage(epoch.spans), timeline, used)


def busy_seconds(timeline: Sequence[Scheduled], place: str) -> float:
    """Seconds in which at least one span runs on ``place``, however many do at a time."""
    busy_s, until_s = 0.0, 0.0
    for start_s, end_s in sorted((s.start_s, s.end_s) for s in timeline if s.span.place == place):
        busy_s += max(0.0, end_s - max(start_s, until_s))
        until_s = max(until_s, end_s)
    return busy_s


def energy(timeline: Sequence[Scheduled], devices: Sequence[Device]) -> float | None:
    """Joules of an epoch: each device's power times its busy seconds, summed.

    What a device draws while it waits, and what links draw, is left out. None where a device that
    was busy has no stated power.
    """
    total_j = 0.0
    for device in devices:
        busy_s = busy_seconds(timeline, device.name)
        if busy_s and device.power_w is None:
            return None
        total_j += busy_s * (device.power_w or 0.0)
    return total_j


def imbalance(work_by_device: Mapping[str, float]) -> float:
    """The largest device's work over the mean."""
    if not work_by_device:
        return 1.0
    mean = fmean(work_by_device.values())
    return max(work_by_device.values()) / mean if mean else 1.0
