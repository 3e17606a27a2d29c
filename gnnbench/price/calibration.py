"""A platform calibrated by epochs that were measured on it.

The plan of a measured epoch says how long each stage takes at the platform's rates. A stage's
calibration is its measured time over this modelled time, for each kernel in each mode, both summed
over epochs. The time of a step is the harness's time over the number of steps.

One kernel says little about another: their libraries do unlike work in a stage, and a mini-batch
has other fixed costs than a full graph. Other kernels and modes therefore keep their times.

The error is found by leaving out. Each group is predicted by all other groups of its kernel and
mode.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np

from gnnbench.constants import MEASURED, Mark
from gnnbench.machines.machine import PathTimes, Platform
from gnnbench.machines.tables import list_numbers
from gnnbench.price.folds import Digest
from gnnbench.price.model_error import COVERAGE
from gnnbench.price.schedule import Task, schedule
from gnnbench.records import STAGES, Stage


@dataclass(frozen=True, slots=True)
class MeasuredEpoch:
    """An epoch measured on a platform, and its plan at the platform's bare rates.

    ``path`` names its kernel and mode (:func:`gnnbench.machines.machine.name_path`). Epochs of one
    path and ``group``, the model and the graph, are not independent of each other. Outside all
    spans the epoch takes ``harness_s``, None if that is unknown.
    """

    name: str
    path: str
    group: str
    epoch_s: float
    stages_s: Mapping[Stage, float]
    harness_s: float | None
    planned: Digest


@dataclass(frozen=True, slots=True)
class Prediction:
    """An epoch's seconds by the platform before and after its calibration.

    ``left_out_s`` are those by the other groups of its path, None if there are none.
    """

    epoch: MeasuredEpoch
    before_s: float
    after_s: float
    left_out_s: float | None


def take_bare(platform: Platform) -> Platform:
    """Return a platform without its calibration and without the time of a step."""
    return replace(platform, calibration={}, step_s=0.0)


def calibrate(
    platform: Platform, epochs: Sequence[MeasuredEpoch], runs: Sequence[str], source: str
) -> tuple[Platform, tuple[Prediction, ...]]:
    """Return the platform calibrated by the epochs, and the predictions of each epoch.

    ``runs`` name the measured runs that the numbers are fitted on, and ``source`` says how they
    were fitted. An earlier calibration of the same kernel and mode is replaced.
    """
    found: list[Prediction] = []
    for path in dict.fromkeys(epoch.path for epoch in epochs):
        own = [epoch for epoch in epochs if epoch.path == path]
        times = fit_path(own)
        predictions = _predict_path(platform, own, times)
        found += predictions
        groups = len({epoch.group for epoch in own})
        fitted = [number.key for number in list_numbers(times)]
        errors = ["groups", *(["error_factor"] if groups > 1 else [])]
        times = replace(times, groups=groups, error_factor=find_error_factor(predictions))
        before = f"calibration.{path}."
        sources = {k: told for k, told in platform.sources.items() if not k.startswith(before)}
        mark = Mark("fitted", tuple(runs))
        platform = replace(
            platform,
            calibration={**platform.calibration, path: times},
            sources=sources | {f"{before}{key}": source for key in (*fitted, *errors)},
            marks={
                **platform.marks,
                **{f"{before}{key}": mark for key in fitted},
                **{f"{before}{key}": MEASURED for key in errors},
            },
        )
    return platform, tuple(found)


def fit_path(epochs: Sequence[MeasuredEpoch]) -> PathTimes:
    """Return the times of a kernel in a mode by its epochs.

    Sums over epochs are divided, so that a stage that is short in an epoch decides little.
    """
    times: dict[str, Any] = {}
    for stage in STAGES:
        both = [epoch for epoch in epochs if stage in epoch.stages_s.keys() & epoch.planned.stages]
        measured_s = sum(epoch.stages_s[stage] for epoch in both)
        planned_s = sum(epoch.planned.stages[stage] for epoch in both)
        if measured_s > 0 and planned_s > 0:
            times[stage] = measured_s / planned_s
    timed = [epoch for epoch in epochs if epoch.harness_s is not None]
    steps = sum(len(epoch.planned.timeline) for epoch in timed)
    if steps:
        times["step_s"] = sum(epoch.harness_s or 0.0 for epoch in timed) / steps
    return PathTimes(**times)


def _predict_path(
    platform: Platform, epochs: Sequence[MeasuredEpoch], times: PathTimes
) -> list[Prediction]:
    """Return the predictions of the epochs of one path, which has these ``times`` from now on."""
    known = platform.calibration.get(epochs[0].path, PathTimes())
    left_out: dict[str, PathTimes] = {}
    for group in dict.fromkeys(epoch.group for epoch in epochs):
        others = [epoch for epoch in epochs if epoch.group != group]
        if others:
            left_out[group] = fit_path(others)
    return [
        Prediction(
            epoch,
            predict(epoch.planned, known, platform),
            predict(epoch.planned, times, platform),
            predict(epoch.planned, left_out[epoch.group], platform) if left_out else None,
        )
        for epoch in epochs
    ]


def predict(planned: Digest, times: PathTimes, platform: Platform) -> float:
    """Return the seconds of a planned epoch by the times of its path.

    ``planned`` is a plan on the bare platform. The timeline of its last epoch is scheduled again
    with the new times of its spans.
    """
    step_s = platform.step_s if times.step_s is None else times.step_s
    tasks = [
        Task(times.times_of(span.stage) * span.seconds + step_s, span.resources, span.after)
        for span in (item.span for item in planned.timeline)
    ]
    end_s = max(end_s for _, end_s in schedule(tasks, platform.shared_lanes))
    return planned.epoch_s * end_s / max(item.end_s for item in planned.timeline)


def find_error_factor(predictions: Iterable[Prediction]) -> float:
    """Return the factor within which ``COVERAGE`` of the groups are predicted by the others.

    A group's error is the median of its epochs', without regard to their signs. The factor is 1 if
    nothing was left out.
    """
    errors: dict[str, list[float]] = {}
    for each in predictions:
        if each.left_out_s is not None:
            error = abs(math.log(each.left_out_s / each.epoch.epoch_s))
            errors.setdefault(each.epoch.group, []).append(error)
    middle = [median(each) for each in errors.values()] or [0.0]
    return math.exp(float(np.quantile(middle, COVERAGE, method="higher")))
