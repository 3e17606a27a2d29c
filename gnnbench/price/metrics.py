"""From a trace to metrics: the names, units and formulas of the result file.

Times follow the platform's clock. ``wall_time``, ``preprocessing_time``, ``harness_overhead`` and
``peak_rank_bytes`` are always measured on this machine. Counts carry the provenance of the
platform's clock too: bytes over a link that does not exist here were counted, not observed.
``energy`` is always modelled, from the power that the platform file states.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, median

from gnnbench.machines.machine import DISK
from gnnbench.price.folds import Digest, imbalance
from gnnbench.price.model_error import error_of
from gnnbench.records import (
    BYTE_KINDS,
    STAGES,
    EpochTrace,
    Metric,
    PathKind,
    Provenance,
    Stage,
    Trace,
)

#: The name of the metric of fixed work that is timed beside each measured epoch, in seconds.
YARDSTICK = "yardstick"


def _overhead_of(epoch: EpochTrace) -> float:
    """Return the harness's share of an epoch's time."""
    return epoch.harness_s / epoch.wall_s if epoch.wall_s else 0.0


def summarise(
    trace: Trace,
    digests: Sequence[Digest],
    provenance: Provenance,
    hosts: Collection[str],
    reached: int | None,
    warmup: int = 0,
) -> tuple[dict[str, Metric], dict[Stage, Metric]]:
    """Return all metrics of a run, and its stages.

    ``hosts`` are the names of the hosts, of which the fullest one gives the host's peak. With
    several hosts, bytes between them are a metric too.

    Counts are means over all epochs. Measured times are medians over the epochs after the first
    ``warmup``, since disturbances of a machine only ever add time. Modelled times are means, since
    an epoch in which a strategy does more is no noise. A rate is the work of an epoch over its
    time, so that two columns never contradict each other. Edges a second are HyScale-GNN
    Equation 5, vertices a second HP-GNN Equation 3. ``energy`` exists if all busy devices have a
    stated power, ``time_to_accuracy`` if the target was ``reached``, after that number of epochs.
    ``peak_rank_bytes`` has a sample for each rank, if several trained.
    """
    epochs, epoch_s = trace.epochs, [item.epoch_s for item in digests]

    def time_of(values: Sequence[float], unit: str, origin: Provenance) -> Metric:
        return _time_of(values, unit, origin, warmup)

    def mean_of(values: Sequence[float], unit: str) -> Metric:
        return Metric(fmean(values), unit, provenance, tuple(values))

    def rate_of(counts: Sequence[int], unit: str) -> Metric:
        steady_s = _centre(epoch_s[warmup:], provenance)
        return Metric(fmean(counts) / steady_s if steady_s else 0.0, unit, provenance)

    peaks = {n: size for n, size in trace.peak_bytes.items() if n not in (*hosts, DISK)}
    host_peak = float(max(trace.peak_bytes.get(name, 0) for name in hosts))
    metrics = {
        "epoch_time": time_of(epoch_s, "s", provenance),
        "wall_time": time_of([epoch.wall_s for epoch in epochs], "s", "measured"),
        "throughput_edges": rate_of([epoch.edges for epoch in epochs], "edges/s"),
        "throughput_vertices": rate_of([epoch.vertices for epoch in epochs], "vertices/s"),
        **{
            f"{kind}_bytes": mean_of([float(epoch.bytes[kind]) for epoch in epochs], "B")
            for kind in BYTE_KINDS
            if kind != "host_to_host" or len(hosts) > 1
        },
        "peak_device_bytes": Metric(float(max(peaks.values(), default=host_peak)), "B", provenance),
        "peak_host_bytes": Metric(host_peak, "B", provenance),
        "imbalance": mean_of([imbalance(epoch.work_by_device) for epoch in epochs], "1"),
        "preprocessing_time": Metric(trace.preprocessing_s, "s", "measured"),
        "harness_overhead": time_of([_overhead_of(each) for each in epochs], "1", "measured"),
    }
    if each := tuple(map(float, trace.rank_bytes)):
        metrics["peak_rank_bytes"] = Metric(max(each), "B", "measured", each)
    joules = [item.energy_j for item in digests if item.energy_j is not None]
    if joules and len(joules) == len(digests):
        metrics["energy"] = Metric(fmean(joules), "J", "modelled", tuple(joules))
    if reached is not None:
        reached_s = _sum_first(epoch_s, reached, provenance, warmup, trace.preprocessing_s)
        metrics["time_to_accuracy"] = Metric(reached_s, "s", provenance)
    return metrics, _summarise_stages(digests, provenance, warmup)


def with_error(metrics: Mapping[str, Metric], path: PathKind | None) -> dict[str, Metric]:
    """Return the metrics, with the error factor of a modelled epoch of that kind of path.

    If the kind is unknown, or its error has no basis, they are unchanged.
    """
    epoch = metrics["epoch_time"]
    error = None if path is None or epoch.provenance != "modelled" else error_of(path)
    if error is None:
        return dict(metrics)
    return {**metrics, "epoch_time": replace(epoch, error_factor=error.factor)}


def _summarise_stages(
    digests: Sequence[Digest], provenance: Provenance, warmup: int
) -> dict[Stage, Metric]:
    """Return the busiest resource's seconds in each stage that any epoch has.

    An epoch without the stage counts as 0.
    """
    return {
        stage: _time_of([item.stages.get(stage, 0.0) for item in digests], "s", provenance, warmup)
        for stage in STAGES
        if any(stage in item.stages for item in digests)
    }


def _time_of(values: Sequence[float], unit: str, origin: Provenance, warmup: int) -> Metric:
    return Metric(_centre(values[warmup:], origin), unit, origin, tuple(values), warmup)


def _sum_first(
    seconds: Sequence[float], count: int, provenance: Provenance, warmup: int, before_s: float
) -> float:
    """Return the seconds of the first ``count`` epochs.

    A modelled time is their sum. A measured one is ``count`` times the time of an epoch plus the
    measured preparation ``before_s``. A sum would charge the first row of a process with one-time
    work of the process.
    """
    if provenance != "measured":
        return sum(seconds[:count])
    return before_s + count * _centre(seconds[warmup:], provenance)


def _centre(seconds: Sequence[float], provenance: Provenance) -> float:
    return median(seconds) if provenance == "measured" else fmean(seconds)
