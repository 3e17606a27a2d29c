"""From a trace to metrics: the names, units and formulas of the result file.

Times follow the platform's clock. ``wall_time``, ``preprocessing_time`` and ``harness_overhead``
are always measured on this machine. Counts carry the provenance of the platform's clock too: bytes
over a link that does not exist here were counted, not observed. ``energy`` is always modelled, from
a power that the platform file states.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from gnnbench.clock.schedule import Task, schedule
from gnnbench.platforms.machine import DISK, Device, Platform
from gnnbench.records import (
    BYTE_KINDS,
    STAGES,
    EpochTrace,
    Metric,
    Provenance,
    Scheduled,
    Span,
    Stage,
    Trace,
)


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
    by_place: dict[str, list[Scheduled]] = {}
    for item in timeline:
        by_place.setdefault(item.span.place, []).append(item)
    for device in devices:
        busy_s = busy_seconds(by_place.get(device.name, ()), device.name)
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


def summarise(
    trace: Trace,
    digests: Sequence[Digest],
    provenance: Provenance,
    host: str,
    time_to_accuracy_s: float | None,
    warmup: int = 0,
) -> tuple[dict[str, Metric], dict[Stage, Metric]]:
    """All metrics of a run, and the stages. ``host`` names the host.

    Counts are means over all epochs. Times that were measured are medians over those after the
    first ``warmup``, since what disturbs a machine only ever adds; modelled ones are means, since
    an epoch in which a strategy does more is no noise. A rate is the work of an epoch over the time
    of one, so that two columns never contradict each other.
    ``energy`` is there where every device that was busy has a stated power.
    """
    epochs = trace.epochs
    epoch_s = [item.epoch_s for item in digests]

    def time_of(values: Sequence[float], unit: str, origin: Provenance) -> Metric:
        return Metric(_centre(values[warmup:], origin), unit, origin, tuple(values), warmup)

    def mean_of(values: Sequence[float], unit: str) -> Metric:
        return Metric(fmean(values), unit, provenance, tuple(values))

    def rate_of(counts: Sequence[int], unit: str) -> Metric:
        steady_s = _centre(epoch_s[warmup:], provenance)
        return Metric(fmean(counts) / steady_s if steady_s else 0.0, unit, provenance)

    peaks = {n: size for n, size in trace.peak_bytes.items() if n not in (host, DISK)}
    metrics = {
        "epoch_time": time_of(epoch_s, "s", provenance),
        "wall_time": time_of([epoch.wall_s for epoch in epochs], "s", "measured"),
        # Equation 5 of HyScale-GNN, and NVTPS of HP-GNN.
        "throughput_edges": rate_of([epoch.edges for epoch in epochs], "edges/s"),
        "throughput_vertices": rate_of([epoch.vertices for epoch in epochs], "vertices/s"),
        **{
            f"{kind}_bytes": mean_of([float(epoch.bytes[kind]) for epoch in epochs], "B")
            for kind in BYTE_KINDS
        },
        "peak_device_bytes": Metric(
            float(max(peaks.values(), default=trace.peak_bytes.get(host, 0))), "B", provenance
        ),
        "peak_host_bytes": Metric(float(trace.peak_bytes.get(host, 0)), "B", provenance),
        "imbalance": mean_of([imbalance(epoch.work_by_device) for epoch in epochs], "1"),
        "preprocessing_time": Metric(trace.preprocessing_s, "s", "measured"),
        "harness_overhead": time_of(
            [epoch.harness_s / epoch.wall_s if epoch.wall_s else 0.0 for epoch in epochs],
            "1",
            "measured",
        ),
    }
    joules = [item.energy_j for item in digests if item.energy_j is not None]
    if joules and len(joules) == len(digests):
        metrics["energy"] = Metric(fmean(joules), "J", "modelled", tuple(joules))
    if time_to_accuracy_s is not None:
        metrics["time_to_accuracy"] = Metric(time_to_accuracy_s, "s", provenance)
    stages: dict[Stage, Metric] = {
        stage: time_of([item.stages.get(stage, 0.0) for item in digests], "s", provenance)
        for stage in STAGES
        if any(stage in item.stages for item in digests)
    }
    return metrics, stages


def _centre(seconds: Sequence[float], provenance: Provenance) -> float:
    return median(seconds) if provenance == "measured" else fmean(seconds)
