"""A platform calibrated by epochs that were measured on it.

The plan of a measured epoch says how long each stage takes at the platform's rates. A stage's
calibration is its measured time over this modelled time. With several epochs it is the median over
independent groups, each with its own kernel, mode, model and graph. The time of a step is the
harness's time over the number of steps.

The error of a calibrated platform is found by leaving out. Each group is predicted by a calibration
with all other groups.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np

from gnnbench.constants import MEASURED, Bound, Mark
from gnnbench.machines.machine import Calibration, Platform
from gnnbench.price.folds import Digest
from gnnbench.price.model_error import COVERAGE
from gnnbench.price.schedule import Task, schedule
from gnnbench.records import STAGES, Stage

#: The keys of a calibration's error.
ERRORS: Bound[tuple[str, str]] = ("calibration.groups", "calibration.error_factor")


@dataclass(frozen=True, slots=True)
class MeasuredEpoch:
    """An epoch measured on a platform, and its plan at the platform's bare rates.

    Epochs of one ``group`` are not independent of each other. Outside all spans the epoch takes
    ``harness_s``, None if that is unknown.
    """

    name: str
    group: str
    epoch_s: float
    stages_s: Mapping[Stage, float]
    harness_s: float | None
    planned: Digest


@dataclass(frozen=True, slots=True)
class Fit:
    """The factors of the measured stages' modelled times, and the seconds of a step if known."""

    times: Mapping[Stage, float]
    step_s: float | None

    def apply(self, platform: Platform) -> Platform:
        """Return a platform with these times; stages without a factor keep theirs."""
        times: dict[str, Any] = {stage: factor for stage, factor in self.times.items()}
        step_s = platform.step_s if self.step_s is None else self.step_s
        return replace(platform, step_s=step_s, calibration=replace(platform.calibration, **times))


@dataclass(frozen=True, slots=True)
class Prediction:
    """An epoch's seconds by the platform before and after its calibration.

    ``left_out_s`` are those of a calibration without the epoch's group, None if there is no other.
    """

    epoch: MeasuredEpoch
    before_s: float
    after_s: float
    left_out_s: float | None


def take_bare(platform: Platform) -> Platform:
    """Return a platform without its calibration and without the time of a step."""
    return replace(platform, calibration=Calibration(), step_s=0.0)


def calibrate(
    platform: Platform, epochs: Sequence[MeasuredEpoch], runs: Sequence[str], source: str
) -> tuple[Platform, tuple[Prediction, ...]]:
    """Return the platform calibrated by the epochs, and the predictions of each epoch.

    ``runs`` name the measured runs that the numbers are fitted on, and ``source`` says how they
    were fitted.
    """
    fit = fit_stages(epochs, platform)
    fitted = fit.apply(platform)
    groups = dict.fromkeys(epoch.group for epoch in epochs)
    left_out: dict[str, Platform] = {}
    if len(groups) > 1:
        for group in groups:
            others = [epoch for epoch in epochs if epoch.group != group]
            left_out[group] = fit_stages(others, platform).apply(platform)
    predictions = tuple(
        Prediction(
            epoch,
            predict(epoch.planned, platform),
            predict(epoch.planned, fitted),
            predict(epoch.planned, left_out[epoch.group]) if left_out else None,
        )
        for epoch in epochs
    )
    return _state(fitted, fit, predictions, runs, source), predictions


def fit_stages(epochs: Sequence[MeasuredEpoch], platform: Platform) -> Fit:
    """Return the fit to the epochs."""
    times: dict[Stage, float] = {}
    for stage in STAGES:
        ratios = [
            (epoch.group, epoch.stages_s[stage] / epoch.planned.stages[stage])
            for epoch in epochs
            if epoch.stages_s.get(stage, 0.0) > 0 and epoch.planned.stages.get(stage, 0.0) > 0
        ]
        if ratios:
            times[stage] = _take_middle(ratios)
    steps = [
        (epoch.group, epoch.harness_s / len(epoch.planned.timeline))
        for epoch in epochs
        if epoch.harness_s is not None and epoch.planned.timeline
    ]
    # A platform file of several hosts has no time of a step.
    return Fit(times, _take_middle(steps) if steps and not platform.other_hosts else None)


def _take_middle(values: Iterable[tuple[str, float]]) -> float:
    """Return the median over groups of the median of each group's values."""
    by_group: dict[str, list[float]] = {}
    for group, value in values:
        by_group.setdefault(group, []).append(value)
    return median(median(each) for each in by_group.values())


def predict(planned: Digest, platform: Platform) -> float:
    """Return the seconds of a planned epoch by a platform's calibration and time of a step.

    ``planned`` is a plan on the bare platform. The timeline of its last epoch is scheduled again
    with the new times of its spans.
    """
    spans = [item.span for item in planned.timeline]
    times_of, step_s = platform.calibration.times_of, platform.step_s
    tasks = [
        Task(times_of(span.stage) * span.seconds + step_s, span.resources, span.after)
        for span in spans
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


def _state(
    platform: Platform,
    fit: Fit,
    predictions: Sequence[Prediction],
    runs: Sequence[str],
    source: str,
) -> Platform:
    """Return a fitted platform with its error, and with the sources and marks of both."""
    fitted = [f"calibration.{stage}" for stage in fit.times]
    fitted += ["step"] if fit.step_s is not None else []
    groups, factor = ERRORS
    errors = {groups: f"{source}: epochs of unlike kernel, mode, model or graph"}
    if any(each.left_out_s is not None for each in predictions):
        share = f"{100 * COVERAGE:.0f} % of the groups lie within it, each predicted by the others"
        errors[factor] = f"{source}: {share}"
    marks = dict.fromkeys(fitted, Mark("fitted", tuple(runs))) | dict.fromkeys(errors, MEASURED)
    known = {key: told for key, told in platform.sources.items() if key not in ERRORS}
    return replace(
        platform,
        calibration=replace(
            platform.calibration,
            groups=len({each.epoch.group for each in predictions}),
            error_factor=find_error_factor(predictions),
        ),
        sources={**known, **dict.fromkeys(fitted, source), **errors},
        marks={**platform.marks, **marks},
    )
