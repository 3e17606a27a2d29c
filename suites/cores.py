"""``python -m suites.cores``: the gains of systems' ideas on devices made of cores.

Every strategy with ablation steps is trained step by step by ``gnnbench ablate``, on one-core
devices (``cores:1,1``). HyScale-GNN runs beside a host at half the speed. Steps take turns, and
their epochs are measured. Each is printed beside the model's prediction for the same program. The
prediction uses a probe of those cores (``gnnbench platforms probe``). It is repeated before the
rows of each graph and model, because the speed of a shared machine changes within an hour.

``drm`` compares DRM, from a split that is wrong by a factor of four, with the best of a sweep of
static splits. ``overlap`` compares transfers that overlap with computing and blocking transfers,
over a link on which both take about as long. This suite is not part of the tests: run it on an idle
machine.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import click

from gnnbench import plugins
from gnnbench.comparison import (
    PlannedRow,
    make_request,
    make_setting,
    options_for,
    plan_ablation,
    plan_rows,
)
from gnnbench.errors import GnnbenchError
from gnnbench.jobs.job import Job
from gnnbench.plugins import Registry, assemble
from gnnbench.price.epochs import price_epochs
from gnnbench.statistics import Difference, compare_pairs, compare_samples
from gnnbench.units import format_si

#: Two devices of one core each.
EVEN = "cores:1,1"
#: A device of one core, beside a host of one core at half the speed.
UNEQUAL = """
name = "unequal"
description = "a core beside a host of one core at half its speed"

[[cores]]
count = 1

[host]
count = 1
speed = 0.5
"""
LIMITED = """
name = "{name}"
description = "two cores over a limited link"

[[cores]]
count = 1

[[cores]]
count = 1

[link]
bandwidth = {{ value = {rate}, unit = "B/s", source = "as long as computing" }}
blocking = {blocking}
"""
#: Strategies with transfers that overlap computing, and options.
OVERLAPPING = (("mixgcn",), ("hongtu",), ("hongtu", "communication.overlap=true"))
#: Static shares of the CPU, as multiples of the planned share; 0 is none.
SHARES = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0)


@dataclass(frozen=True, slots=True)
class Step:
    """A measured row: its epochs in seconds, and the model's prediction of one."""

    name: str
    samples_s: tuple[float, ...]
    predicted_s: float

    @property
    def epoch_s(self) -> float:
        return median(self.samples_s)

    @property
    def error(self) -> float:
        return self.predicted_s / self.epoch_s - 1.0


def measure(*words: str) -> list[dict[str, Any]]:
    """Return the completed runs of a gnnbench command, as in its result file.

    Raises ``CalledProcessError`` with the command's output.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "result.json")
        command = [sys.executable, "-m", "gnnbench", *words, "--json", str(path)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        runs: list[dict[str, Any]] = json.loads(path.read_text())["runs"]
    return [run for run in runs if run["status"] == "done"]


@contextmanager
def probed(seconds: float) -> Iterator[None]:
    """Describe this machine by a fresh probe, not by the saved one, within the body."""
    with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, XDG_CACHE_HOME=folder):
        words = ("platforms", "probe", "--save", "--seconds", str(seconds))
        command = [sys.executable, "-m", "gnnbench", *words]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        yield


def list_samples(run: Mapping[str, Any]) -> tuple[float, ...]:
    """Return the steady epochs of a run, seconds."""
    metric = run["metrics"]["epoch_time"]
    return tuple(metric.get("samples", [metric["value"]])[metric.get("warmup", 0) :])


class Question:
    """One strategy on one graph, model and platform, for the command line and for the model."""

    def __init__(self, registry: Registry, strategy: str, dataset: str, model: str, platform: str):
        self.words = ("--dataset", dataset, "--model", model, "--platform", platform)
        job = Job(strategy, dataset, model=model, platform=platform)
        self._registry = registry
        self._request = make_request(job, registry)
        self._strategy = strategy

    def list_rows(self) -> tuple[PlannedRow, ...]:
        """Return the steps of the strategy's ablation, or the strategy alone."""
        if self._registry.strategy(self._strategy).ablation:
            return plan_ablation(self._request, self._registry, each_part=False)
        return plan_rows(self._request, self._registry)

    def predict(self, row: PlannedRow) -> float:
        """Return the seconds of the row's first epoch by the model. Raises ``GnnbenchError``."""
        options = options_for(row, self._request.options, self._registry)
        bundle = assemble(self._registry, row.parts, options)
        (price,) = price_epochs(bundle, make_setting(self._request), 1)
        return price.epoch_s


def ablate(question: Question, strategy: str) -> list[Step]:
    """Return the strategy's steps, measured in turns and predicted."""
    predicted = {row.label: question.predict(row) for row in question.list_rows()}
    return [
        Step(run["label"], list_samples(run), predicted[run["label"]])
        for run in measure("ablate", strategy, *question.words)
    ]


def compare(questions: Mapping[str, Question]) -> list[Step]:
    """Compare strategies, measured in turns, and predict them."""
    predicted = {
        row.label: question.predict(row)
        for question in questions.values()
        for row in question.list_rows()
    }
    words = next(iter(questions.values())).words
    runs = measure("compare", "--plugins", ",".join(questions), "--no-plain", *words)
    return [Step(run["label"], list_samples(run), predicted[run["label"]]) for run in runs]


def describe(steps: Sequence[Step]) -> Iterator[str]:
    """Yield one line a step: measured and predicted epoch, and the speed over the first step."""
    first = steps[0]
    for step in steps:
        count = min(len(first.samples_s), len(step.samples_s))
        found = compare_pairs(step.samples_s[-count:], first.samples_s[-count:])
        modelled = first.predicted_s / step.predicted_s
        measured = "" if step is first else f"  {tell(found)}, modelled {modelled:.2f}x"
        times = f"{format_si(step.epoch_s, 's'):>9} {format_si(step.predicted_s, 's'):>9}"
        yield f"  {step.name:22}{times} {step.error:>+6.0%}{measured}"


def tell(found: Difference) -> str:
    shown = "" if found.shown else ", not shown"
    return f"{found.ratio:.2f}x ({found.low:.2f} to {found.high:.2f}{shown})"


def list_steps(registry: Registry, dataset: str, model: str) -> Iterator[Step]:
    """Yield the steps of every strategy on a graph and a model; print each as it comes."""
    asked = f"{dataset} · {model}: measured, predicted, error"
    with tempfile.TemporaryDirectory() as folder:
        unequal = Path(folder, "unequal.toml")
        unequal.write_text(UNEQUAL)
        for strategy in ("hongtu", "mixgcn", "hyscale"):
            platform = str(unequal) if strategy == "hyscale" else EVEN
            steps = ablate(Question(registry, strategy, dataset, model, platform), strategy)
            click.echo("\n".join([f"{strategy} · {asked}", *describe(steps)]))
            yield from steps
        names = ("partition", "pipegcn")
        steps = compare({name: Question(registry, name, dataset, model, EVEN) for name in names})
        click.echo("\n".join([f"{', '.join(names)} · {asked}", *describe(steps)]))
        yield from steps


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Measure systems' ideas on devices made of this machine's cores."""


DATASET = click.option("--dataset", default="amazon_photo", show_default=True)
MODEL = click.option("--model", default="gcn", show_default=True)


@main.command()
@click.option("--dataset", "datasets", multiple=True, default=("cora", "amazon_photo"))
@click.option("--model", "models", multiple=True, default=("gcn", "sage"))
@click.option("--probe-seconds", default=10.0, type=click.FloatRange(min=0), show_default=True)
def ideas(datasets: tuple[str, ...], models: tuple[str, ...], probe_seconds: float) -> None:
    """Print the gain of each idea, measured and modelled."""
    registry = plugins.load()
    found: list[Step] = []
    for dataset, model in product(datasets, models):
        with probed(probe_seconds):
            found += list_steps(registry, dataset, model)
    errors = [abs(step.error) for step in found]
    click.echo(
        f"The median error of {len(errors)} predicted epochs is {median(errors):.0%}, and the "
        f"largest is {max(errors):.0%}."
    )


@main.command()
@DATASET
@MODEL
@click.option("--epochs", default=12, show_default=True)
@click.option("--rounds", default=2, show_default=True)
def drm(dataset: str, model: str, epochs: int, rounds: int) -> None:
    """Run DRM from a split wrong by a factor of four, in turns with the best static split."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "unequal.toml")
        path.write_text(UNEQUAL)
        asked = ("--dataset", dataset, "--model", model, "--platform", str(path), "--no-plain")
        common = ("compare", "--plugins", "hyscale", "--epochs", str(epochs), *asked)
        static: dict[float, tuple[float, ...]] = {}
        for share in SHARES:
            fixed = ("--set", "placement.drm=false", "--set", f"placement.skew={share}")
            (run,) = measure(*common, *fixed)
            static[share] = list_samples(run)
            click.echo(f"  static, {share:g} of the plan: {format_si(median(static[share]), 's')}")
        best = min(static, key=lambda share: median(static[share]))
        for guard in ("model", "none"):
            for wrong in (0.25, 4.0):
                skew = ("--set", f"placement.skew={wrong}", "--set", f"placement.guard={guard}")
                fixed = ("--set", "placement.drm=false", "--set", f"placement.skew={best}")
                beside: list[float] = []
                settled: list[float] = []
                for _ in range(rounds):
                    (run,) = measure(*common, *fixed)
                    beside += list_samples(run)
                    (run,) = measure(*common, *skew)
                    settled += list_samples(run)[-epochs:]
                lost = compare_samples(beside, settled)
                click.echo(
                    f"  DRM from {wrong:g} of the plan, guard {guard}: "
                    f"{format_si(median(settled), 's')}, {lost.ratio:.2f} ({lost.low:.2f} to "
                    f"{lost.high:.2f}) of the best static split's"
                )


@main.command()
@DATASET
@MODEL
@click.option("--rounds", default=3, show_default=True)
def overlap(dataset: str, model: str, rounds: int) -> None:
    """Compare overlapped with blocking transfers, over a link as slow as computing."""
    for strategy, *options in OVERLAPPING:
        asked = ["compare", "--plugins", strategy, "--no-plain", "--dataset", dataset]
        asked += ["--model", model, *(word for option in options for word in ("--set", option))]
        (run,) = measure(*asked, "--platform", EVEN)
        crossing = sum(
            run["metrics"][f"{kind}_bytes"]["value"]
            for kind in ("host_to_device", "device_to_host", "device_to_device", "all_to_all")
        )
        # Each of two devices sends and receives half of the bytes, in about its computing time.
        rate = crossing / 2 / median(list_samples(run))
        samples: dict[bool, list[float]] = {False: [], True: []}
        with tempfile.TemporaryDirectory() as folder:
            for turn in range(rounds):
                for blocking in (False, True) if turn % 2 else (True, False):
                    path = Path(folder, "limited.toml")
                    text = LIMITED.format(name="l", rate=rate, blocking=str(blocking).lower())
                    path.write_text(text)
                    (run,) = measure(*asked, "--platform", str(path))
                    samples[blocking] += list_samples(run)
        gained = compare_samples(samples[False], samples[True])
        click.echo(
            f"{' '.join([strategy, *options])} · {dataset} · {model}, "
            f"{format_si(rate, 'B/s')} a link: "
            f"{format_si(median(samples[False]), 's')} beside computing, "
            f"{format_si(median(samples[True]), 's')} blocking: {tell(gained)}"
        )


if __name__ == "__main__":
    try:
        main()
    except GnnbenchError as error:
        raise SystemExit(f"error: {error}") from error
