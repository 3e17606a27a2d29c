"""What a combination's run is recorded as: every number that its schedule decides.

A run is set up as ``gnnbench compare`` does it for the same words, but for the type: float64, so
that losses agree between machines, unless the combination says float32.
"""

import hashlib
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

from gnnbench import datasets, plugins
from gnnbench.comparison import (
    PlannedRow,
    Request,
    Variant,
    check_options,
    make_setting,
    options_for,
    plan_row,
)
from gnnbench.datasets import scale_features
from gnnbench.errors import DeviceOutOfMemoryError
from gnnbench.machines.describe import load_platform
from gnnbench.machines.machine import Platform
from gnnbench.parts import Bundle, Setting
from gnnbench.plugins import Registry, assemble
from gnnbench.price import folds
from gnnbench.price.clocks import clock_for
from gnnbench.price.dry_run import DryRun
from gnnbench.price.schedule import Task, schedule
from gnnbench.records import Dataset, EpochTrace, Scheduled, Trace, Workload
from gnnbench.run import train
from tests.pins.combinations import Combination

MODELS = Path(__file__).with_name("models.py")
#: How near losses must come, relative: to rounding in float64. In float32 rounding differs between
#: machines by some 1e-7, and Adam's first steps follow the sign of small gradients.
LOSS_WITHIN = {"float64": 1e-12, "float32": 1e-4}
#: Significant digits of a float that is kept: more than are compared.
DIGITS = 14
#: Significant digits of times in a timeline's digest, of which one that is off gives another:
#: few enough that no sum in another order does.
DIGEST_DIGITS = 9
#: Of what a timeline's labels have, which is for the reader alone: the digest has them all.
LABEL_DIGITS = 4


@cache
def load_registry() -> Registry:
    """The installed plugins, and the models that stand beside this file."""
    return plugins.load([str(MODELS)])


@cache
def load_dataset(spec: str, seed: int) -> Dataset:
    """A data set with its features scaled, as ``compare`` trains on it."""
    return scale_features(datasets.load(spec, seed=seed))


load_machine = cache(load_platform)


def plan(combination: Combination) -> PlannedRow:
    """The row that ``compare`` has for a combination."""
    registry = load_registry()
    strategy = registry.strategy(combination.name)
    variant = Variant(combination.name, combination.swaps)
    return plan_row(variant, strategy, combination.mode or strategy.default_mode, registry)


def set_up(combination: Combination) -> tuple[Bundle, Setting]:
    """The parts and the setting of a combination.

    Raises ``UsageError`` for an option that no part of it has, or with a value that it cannot take.
    """
    registry, row = load_registry(), plan(combination)
    check_options((row,), combination.options, registry)
    bundle = assemble(registry, row.parts, options_for(row, combination.options, registry))
    data = load_dataset(combination.dataset, combination.seed)
    model = registry.model(combination.model)
    hidden = [combination.hidden] * (combination.layers - 1)
    workload = Workload(
        model=combination.model,
        dims=(data.num_features, *hidden, data.num_classes),
        epochs=combination.epochs,
        batch_size=combination.batch_size,
        fanouts=combination.counts,
        seed=combination.seed,
        learning_rate=model.learning_rate,
        dtype=combination.dtype,
        threads=1,
    )
    request = Request((combination.name,), data, workload, load_machine(combination.platform))
    return bundle, make_setting(request, model)


def record(combination: Combination) -> dict[str, Any]:
    """Train a combination and say what it did; one that does not fit, which memory was full.

    Raises ``IncompatiblePartsError`` where its parts refuse each other, and ``DatasetError`` or
    ``MissingDependencyError`` where something that it needs is not here.
    """
    bundle, setting = set_up(combination)
    clock, threads = clock_for(bundle, setting), torch.get_num_threads()
    torch.set_num_threads(setting.workload.threads)
    try:
        lend = (lambda idle: None) if combination.lends else None
        trace = train(bundle, setting, clock, lend=lend)
    except DeviceOutOfMemoryError as error:
        return {"out of memory": error.device}
    finally:
        torch.set_num_threads(threads)
    return describe(combination, trace, setting.platform)


def record_dry_run(combination: Combination) -> dict[str, Any]:
    """The same of a dry run, whose losses are no numbers; raises as :func:`record` does."""
    bundle, setting = set_up(combination)
    try:
        dry = DryRun(bundle, setting, lends=combination.lends)
        trace = dry.finish([dry.run_epoch(epoch) for epoch in range(combination.epochs)])
    except DeviceOutOfMemoryError as error:
        return {"out of memory": error.device}
    return describe(combination, trace, setting.platform)


def describe(combination: Combination, trace: Trace, platform: Platform) -> dict[str, Any]:
    """What a run did in its epochs."""
    return {
        "dtype": combination.dtype,
        "peak_bytes": dict(trace.peak_bytes),
        "epochs": [describe_epoch(epoch, platform) for epoch in trace.epochs],
    }


def describe_epoch(epoch: EpochTrace, platform: Platform) -> dict[str, Any]:
    """What an epoch did; bytes of a kind of which there are none, and stages that never ran, are
    left out; energy is None where a busy device has no stated power."""
    found = folds.digest(epoch, "modelled", platform)
    return {
        "loss": keep(epoch.loss),
        "epoch_s": keep(found.epoch_s),
        "waits_s": keep(follow_waits(epoch)),
        "imbalance": keep(folds.imbalance(epoch.work_by_device)),
        "edges": epoch.edges,
        "vertices": epoch.vertices,
        "updates": len(epoch.round_losses),
        "seeds": epoch.seeds,
        "bytes": {kind: count for kind, count in epoch.bytes.items() if count},
        "stage_s": {stage: keep(seconds) for stage, seconds in found.stages.items()},
        "spans": len(epoch.spans),
        "timeline": digest_timeline(found.timeline),
        "labels": summarise_labels(found.timeline),
        "energy_j": None if found.energy_j is None else keep(found.energy_j),
    }


def follow_waits(epoch: EpochTrace) -> float:
    """Seconds of the longest chain of spans that wait for each other: what the epoch would take if
    no two of them shared a resource, which hides waits that are missing."""
    tasks = [Task(span.seconds, (), span.after) for span in epoch.spans]
    return max((end_s for _, end_s in schedule(tasks)), default=0.0)


def keep(value: float, digits: int = DIGITS) -> float:
    """A float with so many significant digits."""
    return float(f"{value:.{digits}g}")


def digest_timeline(timeline: Sequence[Scheduled]) -> str:
    """SHA-256 (first 16 hex digits) over where and when every span runs, in whatever order they
    were recorded: its label, place, resources, layer, round, start and end."""
    lines = sorted(
        "|".join(
            (
                each.span.label,
                each.span.place,
                ",".join(each.span.resources),
                str(each.span.layer),
                str(each.span.round),
                repr(keep(each.start_s, DIGEST_DIGITS)),
                repr(keep(each.end_s, DIGEST_DIGITS)),
            )
        )
        for each in timeline
    )
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def summarise_labels(timeline: Sequence[Scheduled]) -> dict[str, list[float]]:
    """By stage and label how many spans there are, their seconds together, and when the last of
    them ends: where to look when a timeline's digest has changed."""
    spans: dict[str, list[Scheduled]] = {}
    for each in timeline:
        spans.setdefault(f"{each.span.stage}: {each.span.label}", []).append(each)
    return {
        label: [
            len(found),
            keep(math.fsum(each.span.seconds for each in found), LABEL_DIGITS),
            keep(max(each.end_s for each in found), LABEL_DIGITS),
        ]
        for label, found in spans.items()
    }
