"""``gnnbench platforms calibrate``: a platform's rates fitted to runs that were measured on it."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import click

from gnnbench.cli.options import (
    Json,
    check_file,
    check_files,
    load_registry,
    open_console,
    plugin_option,
    print_rows,
    shared_options,
    write_document,
)
from gnnbench.cli.values import FilePath
from gnnbench.errors import GnnbenchError, UsageError, words_of
from gnnbench.units import format_si

if TYPE_CHECKING:
    from rich.console import Console

    from gnnbench.comparison import Request
    from gnnbench.machines.machine import PathTimes, Platform
    from gnnbench.plugins import Registry
    from gnnbench.price.calibration import MeasuredEpoch, Prediction
    from gnnbench.records import RunResult, Stage
    from gnnbench.report.results.schema import ResultDocument, RunEntry

LOCAL = "local"
#: The most that the drawn edges of a run and its plan differ: both are means over other epochs.
NEAR_EDGES = 0.1


@click.command("calibrate")
@click.argument("spec", default=LOCAL, metavar="[NAME or FILE.toml]")
@click.option(
    "--run",
    "run_paths",
    multiple=True,
    required=True,
    type=FilePath(),
    metavar="FILE.json",
    help="A result of 'gnnbench compare --json' with times measured on the platform. May be "
    "repeated.",
)
@click.option(
    "--trace",
    "trace_path",
    type=FilePath(),
    metavar="FILE",
    help="Take the seconds of the stages from this Chrome trace of the first row in the --run "
    "file. Its spans must have the names of stages.",
)
@click.option(
    "--out",
    "out_path",
    type=FilePath(),
    metavar="FILE.toml",
    help="Write the calibrated description to a file.",
)
@click.option("--save", is_flag=True, help="Keep it as the platform 'local'.")
@plugin_option
@shared_options
def calibrate(
    run_paths: tuple[Path, ...],
    trace_path: Path | None,
    spec: str,
    out_path: Path | None,
    save: bool,
    extra_plugins: tuple[str, ...],
    json_path: Path | None,
) -> int:
    """Fit the stages of a platform, by default 'local', to measured runs.

    The measured seconds of each stage are divided by the seconds in the plan of the run. From
    then on the platform's modelled times of the stage are multiplied by the quotient.
    """
    if save and spec != LOCAL:
        raise click.UsageError(
            f"--save keeps the platform 'local', and {spec} is calibrated; name a file by --out."
        )
    from gnnbench.machines.describe import load_platform, local_path
    from gnnbench.report.results.kept import read_result
    from gnnbench.report.results.output import make_folder

    kept = local_path() if save else None
    if kept is not None:
        make_folder(kept.parent)
        check_file(kept)
    if trace_path is not None and len(run_paths) > 1:
        raise click.UsageError(f"--trace is of one run, and {len(run_paths)} are given; give one.")
    inputs = [*run_paths, *([] if trace_path is None else [trace_path])]
    check_files(json_path, out_path, platform=spec, plugins=extra_plugins, files=inputs)
    platform = load_platform(spec)
    documents = {path: read_result(path) for path in run_paths}
    for path, document in documents.items():
        check_run(path, document, platform)

    from gnnbench.price.calibration import calibrate as fit

    registry = load_registry(extra_plugins)
    unused: list[str] = []
    epochs = [
        epoch
        for path, document in documents.items()
        for epoch in plan_document(path, document, platform, registry, trace_path, unused)
    ]
    if not epochs:
        raise UsageError(f"no run can be used: {unused[0]}")
    today = datetime.date.today().isoformat()
    source = f"gnnbench platforms calibrate on {today}: {describe_epochs(epochs)}"
    fitted, predictions = fit(platform, epochs, list(map(name_run, inputs)), source)
    notes = [f"{path}: {each.noise}" for path, each in documents.items() if each.noise]
    notes += [f"not used: {sentence}" for sentence in unused]
    write_fit(fitted, predictions, notes, out_path, kept, json_path)
    return 0


def write_fit(
    platform: Platform,
    predictions: Sequence[Prediction],
    notes: Sequence[str],
    out_path: Path | None,
    kept: Path | None,
    json_path: Path | None,
) -> None:
    """Print a calibration, and write the platform to a file and as ``local`` if asked for."""
    from gnnbench.machines.local import save_local
    from gnnbench.machines.show import to_toml
    from gnnbench.report.results.output import write_all, write_text

    def tell() -> None:
        print_fit(platform, predictions, notes, open_console(json_path))
        write_document(make_document(platform, predictions, notes), json_path)

    writes: list[tuple[str, Callable[[], object]]] = [("the calibration", tell)]
    if out_path is not None:
        writes.append((str(out_path), partial(write_text, out_path, to_toml(platform))))
    if kept is not None:
        writes.append((str(kept), partial(save_local, platform)))
    write_all(writes)
    console = open_console(json_path)
    for written in (out_path, kept):
        if written is not None:
            console.print(f"wrote {written}", soft_wrap=True)
    if out_path is None and kept is None:
        console.print("nothing was kept; use --save, or --out FILE.toml")


def name_run(path: Path) -> str:
    """Return a result file's name with its digest."""
    return f"{path.name} (sha256 {hashlib.sha256(path.read_bytes()).hexdigest()[:16]})"


def describe_epochs(epochs: Sequence[MeasuredEpoch]) -> str:
    """Name one epoch, or the first of several."""
    more = f" and {len(epochs) - 1} more" if len(epochs) > 1 else ""
    return f"{epochs[0].name}{more}"


# --------------------------------------------------------------------------- runs and their plans


def check_run(path: Path, document: ResultDocument, platform: Platform) -> None:
    """Refuse a file without times that were measured on the platform. Raises ``UsageError``."""
    if document.platform.modelled:
        raise UsageError(
            f"{path} has times modelled on {document.platform.name}, and calibration needs "
            f"measured ones; run gnnbench compare with --platform local."
        )
    gpus = [device.model for device in platform.accelerators if device.kind == "gpu"]
    described = (platform.host.model, gpus[0] if gpus else None)
    ran_on = (document.machine.cpu, document.machine.gpu)
    if ran_on != described:
        there, here = (f"{cpu} with {gpu or 'no GPU'}" for cpu, gpu in (ran_on, described))
        raise UsageError(
            f"{path} was run on {there}, and platform {platform.name} describes {here}; give a run "
            f"of that machine."
        )
    if not any(is_measured(run) for run in document.runs):
        raise UsageError(
            f"{path} has no finished run with measured stages; run gnnbench compare again, with "
            f"strategies that train here."
        )


def is_measured(run: RunEntry) -> bool:
    """Whether a run of a strategy has the measured seconds of its stages."""
    measured = any(stage.provenance == "measured" for stage in run.stages.values())
    return run.status == "done" and run.parts is not None and run.work is not None and measured


def plan_document(
    path: Path,
    document: ResultDocument,
    platform: Platform,
    registry: Registry,
    trace_path: Path | None,
    unused: list[str],
) -> Iterator[MeasuredEpoch]:
    """Yield each measured row of a file with its plan; add to ``unused`` why others have none.

    If a trace is given, it has the stages of the first row, and no other row counts. Raises
    ``UsageError`` if the data set is not here, or if the trace has no stages.
    """
    from gnnbench.price.calibration import take_bare
    from gnnbench.report.chrome import read_stages

    request = make_request(path, document, take_bare(platform), registry)
    labels = dict.fromkeys((run.mode, run.label) for run in document.runs if is_measured(run))
    for mode, label in labels if trace_path is None else [*labels][:1]:
        traced = None if trace_path is None else read_stages(trace_path, label, mode)
        name = f"{label} {mode} {document.workload.model} on {document.dataset.name}"
        runs = [run for run in document.runs if (run.mode, run.label) == (mode, label)]
        runs = [run for run in runs if is_measured(run)]
        try:
            epoch = plan_row(name, runs, request, registry)
        except GnnbenchError as error:
            unused.append(f"{path}: {name}: {words_of(error)}")
        else:
            yield epoch if traced is None else replace(epoch, stages_s=traced)


def make_request(
    path: Path, document: ResultDocument, platform: Platform, registry: Registry
) -> Request:
    """Return the request behind a result file, on the platform. Raises ``UsageError``."""
    from gnnbench.comparison import Request
    from gnnbench.datasets import scale_features
    from gnnbench.jobs.preparation import load_dataset, uses_weights
    from gnnbench.jobs.words import parse_settings

    words, said = document.command, document.dataset.model_dump()
    if words[1:2] == ("ablate",):
        raise UsageError(
            f"{path} is of gnnbench ablate, whose rows have options of their own; give a result of "
            f"gnnbench compare."
        )
    spec = ([*read_option(words, "--dataset"), document.dataset.name])[0]
    data = load_dataset(spec, document.workload.seed)
    data = scale_features(data, said.get("feature_scaling", "auto"))
    if data.digest() != document.dataset.digest:
        raise UsageError(
            f"{path} was run on data set {spec} with digest {document.dataset.digest}, and it has "
            f"{data.digest()} here; give a run of the data set as it is."
        )
    weighted = uses_weights(data.graph, registry.model(document.workload.model))
    workload = replace(document.workload, edge_weights=weighted)
    settings = parse_settings(read_option(words, "--set"))
    return Request((), data, workload, platform, options=settings, check=False)


def read_option(words: Sequence[str], flag: str) -> list[str]:
    """Return the values of an option in the words of a command."""
    after = [value for word, value in pairwise(words) if word == flag]
    return after + [word.partition("=")[2] for word in words if word.startswith(f"{flag}=")]


def plan_row(
    name: str, runs: Sequence[RunEntry], request: Request, registry: Registry
) -> MeasuredEpoch:
    """Return the repeats of a row beside their plan.

    Raises ``GnnbenchError`` if the row has no plan, or one of other work.
    """
    from gnnbench.comparison import PlannedRow, make_setting
    from gnnbench.comparison.planned import plan_run
    from gnnbench.machines.machine import name_path
    from gnnbench.price.calibration import MeasuredEpoch
    from gnnbench.price.folds import Digest
    from gnnbench.records import STAGES

    run = runs[0]
    if run.parts is None or run.strategy not in registry.strategies_by_name:
        raise UsageError(f"there is no strategy {run.strategy!r} here; see gnnbench plugins list.")
    row = PlannedRow(run.strategy, run.label, run.mode, run.parts)
    setting = make_setting(request, registry.model(request.workload.model))
    planned = plan_run(request, row, setting, registry)
    check_plan(planned, run)

    def measure(value: Callable[[RunEntry], float]) -> float:
        return median(map(value, runs))

    epoch_s = measure(lambda each: each.metrics["epoch_time"].value)
    overhead = None
    if all("harness_overhead" in each.metrics for each in runs):
        overhead = measure(lambda each: each.metrics["harness_overhead"].value)
    stages_s = {
        stage: median(each.stages[stage].value for each in runs if stage in each.stages)
        for stage in STAGES
        if any(stage in each.stages for each in runs)
    }
    plan = Digest(
        planned.metrics["epoch_time"].value,
        {stage: metric.value for stage, metric in planned.stages.items()},
        planned.timeline,
    )
    workload = request.workload
    group = f"{workload.model} {request.dataset.name}"
    path = name_path(row.parts.kernel, row.mode)
    harness_s = None if overhead is None else overhead * epoch_s
    return MeasuredEpoch(name, path, group, epoch_s, stages_s, harness_s, plan)


def check_plan(planned: RunResult, run: RunEntry) -> None:
    """Raise ``UsageError`` if a plan does not fit, or does other work than the run."""
    if planned.work is None or run.work is None:
        raise UsageError(planned.reason)
    ours, theirs = planned.work, run.work
    counts = ((ours.updates, theirs.updates), (ours.seeds, theirs.seeds))
    near = abs(ours.edges - theirs.edges) <= NEAR_EDGES * theirs.edges
    if any(one != other for one, other in counts) or not near or ours.devices != theirs.devices:
        raise UsageError(
            f"the run had {theirs.updates:,} updates of {theirs.seeds:,} seeds and "
            f"{theirs.edges:,} edges on {', '.join(theirs.devices)}. Its plan has "
            f"{ours.updates:,} of {ours.seeds:,} and {ours.edges:,} on {', '.join(ours.devices)}. "
            f"Give a run of this version on the whole platform."
        )


# --------------------------------------------------------------------------- what is printed


def print_fit(
    platform: Platform,
    predictions: Sequence[Prediction],
    notes: Sequence[str],
    console: Console,
) -> None:
    """Print the change of each stage, the predictions of each epoch, their errors, and notes."""
    count = len(predictions)
    console.print(f"{platform.name}, calibrated by {count} measured epoch{'s' * (count > 1)}")
    for path in dict.fromkeys(each.epoch.path for each in predictions):
        own = [each for each in predictions if each.epoch.path == path]
        print_path(path, platform.calibration[path], own, console)
    for note in notes:
        console.print(note, soft_wrap=True)


def print_path(
    path: str, times: PathTimes, predictions: Sequence[Prediction], console: Console
) -> None:
    """Print the calibration of a kernel in a mode."""
    from gnnbench.price.model_error import FEWEST_GROUPS

    console.print()
    console.print(f"{path}, a step besides its work: {format_si(times.step_s or 0.0, 's')}")
    print_rows(
        console,
        ("stage", "measured", "at the platform's rates", "times as long"),
        [
            (stage, format_si(measured_s, "s"), format_si(modelled_s, "s"), f"{factor:.3g}")
            for stage, measured_s, modelled_s in list_stages(predictions)
            for factor in (times.times_of(stage),)
        ],
    )
    print_rows(
        console,
        ("measured", "before", "after", "by the others", "epoch"),
        [
            (
                format_si(each.epoch.epoch_s, "s"),
                format_si(each.before_s, "s"),
                format_si(each.after_s, "s"),
                "-" if each.left_out_s is None else format_si(each.left_out_s, "s"),
                each.epoch.name,
            )
            for each in predictions
        ],
    )
    lacking = f", and a basis needs {FEWEST_GROUPS}" * (times.groups < FEWEST_GROUPS)
    within = f" within {times.error_factor:.2g}x" * (times.groups > 1)
    console.print(f"groups of epochs: {times.groups}{within}{lacking}", soft_wrap=True)


def list_stages(predictions: Sequence[Prediction]) -> Iterator[tuple[Stage, float, float]]:
    """Yield the stages with their measured and their modelled seconds, summed over epochs."""
    from gnnbench.records import STAGES

    epochs = [each.epoch for each in predictions]
    for stage in STAGES:
        both = [each for each in epochs if {stage} <= {*each.stages_s} & {*each.planned.stages}]
        if both:
            measured_s = sum(each.stages_s[stage] for each in both)
            yield stage, measured_s, sum(each.planned.stages[stage] for each in both)


def make_document(
    platform: Platform, predictions: Sequence[Prediction], notes: Sequence[str]
) -> dict[str, Json]:
    """Return the calibration as JSON, in seconds."""
    paths: dict[str, Json] = {}
    for path in dict.fromkeys(each.epoch.path for each in predictions):
        times = platform.calibration[path]
        own = [each for each in predictions if each.epoch.path == path]
        paths[path] = {
            "stages": {
                stage: {
                    "measured": measured_s,
                    "modelled": modelled_s,
                    "times": times.times_of(stage),
                }
                for stage, measured_s, modelled_s in list_stages(own)
            },
            "step": times.step_s,
            "groups": times.groups,
            "error_factor": times.error_factor if times.groups > 1 else None,
            "measured_epochs": [
                {
                    "name": each.epoch.name,
                    "measured": each.epoch.epoch_s,
                    "before": each.before_s,
                    "after": each.after_s,
                    "left_out": each.left_out_s,
                }
                for each in own
            ],
        }
    return {"platform": platform.name, "paths": paths, "notes": list(notes)}
