"""``python -m suites.protocol``: what prefetching gains here, and what the harness costs.

Epochs on this machine's processor, by its wall clock, of runs that take turns:

- HyScale-GNN without prefetching, with one-stage and with two-stage prefetching: stages then run on
  threads of their own, on the same cores.
- The engine without prefetching against a bare loop over the same kernels, which samples, gathers,
  computes forward and backward, and steps, without spans, memories or parts.

Every ratio is of medians, with a 95 % interval. Exit status 0, or 1 with ``--enforce`` where
prefetching is slower than none or the harness costs more than 2 %, and that for certain.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import click
import numpy as np
import torch

from gnnbench import datasets, plugins
from gnnbench.clock.wall import WallClock
from gnnbench.engine import make_engine
from gnnbench.engine.machinery import (
    Replicas,
    feature_rows,
    keeps_sparse,
    projected_layers,
    torch_dtype,
)
from gnnbench.engine.passes import (
    needs_aggregate_gradient,
    run_aggregate,
    run_aggregate_backward,
    run_update,
    run_update_backward,
    take_gradients,
)
from gnnbench.engine.recorder import Recorder
from gnnbench.models import BoundBlock, build
from gnnbench.parts import Bundle, MiniBatchSampler, Setting
from gnnbench.platforms import load_platform
from gnnbench.platforms.describe import LOCAL
from gnnbench.records import Dataset, IntArray, Workload
from gnnbench.units import format_si
from suites.race import Speedup, find_speedup

#: The most that the harness may take, as a share of the bare loop.
HARNESS = 0.02
#: The data sets compared on, whose rounds are large enough to be worth a pipeline.
DATASETS = ("coauthor_physics", "ego_twitter")

#: Runs one epoch, whose number is the argument.
Epoch = Callable[[int], object]


@dataclass(frozen=True, slots=True)
class Options:
    rounds: int
    batch_size: int


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: what was compared, and how many times as long the second took as the first."""

    dataset: str
    model: str
    what: str
    seconds: tuple[float, float]
    speedup: Speedup
    met: bool


def make_setting(dataset: Dataset, model: str, batch_size: int) -> Setting:
    workload = Workload(
        model=model,
        dims=(dataset.num_features, 256, dataset.num_classes),
        epochs=1,
        batch_size=batch_size,
        fanouts=(25, 10),
        seed=0,
        threads=torch.get_num_threads(),
    )
    return Setting(dataset, load_platform(LOCAL), workload, build(workload).shapes)


def make_bundle(setting: Setting, prefetch: int, kernel: str) -> Bundle:
    """HyScale-GNN with so many prefetch stages, on the processor alone."""
    registry = plugins.load()
    parts = registry.strategy("hyscale").bundles["mini-batch"]
    parts = plugins.with_swap(registry, parts, [("kernel", kernel)])
    options = {"communication": {"stages": str(prefetch)}, "placement": {"accelerators": "0"}}
    bundle = plugins.assemble(registry, parts, options)
    bundle.begin(setting)
    return bundle


def make_epoch(setting: Setting, prefetch: int, kernel: str) -> Epoch:
    """The engine."""
    bundle = make_bundle(setting, prefetch, kernel)
    engine = make_engine(bundle, setting, Recorder(WallClock()))
    engine.prepare()
    return engine.run_epoch


def make_bare_loop(setting: Setting, kernel: str) -> Epoch:
    """The same kernels on the same mini-batches, and nothing else."""
    bundle = make_bundle(setting, 0, kernel)
    sampler = bundle.sampler
    if not isinstance(sampler, MiniBatchSampler):
        raise TypeError("the bare loop takes mini-batches")
    host = setting.platform.host
    projected = projected_layers(bundle, setting)
    sparse = keeps_sparse(bundle, setting, (host,), projected)
    replicas = Replicas(setting, (host,), projected)
    layers, labels = replicas.on(host).stack, torch.from_numpy(setting.dataset.labels)
    degrees, dtype = setting.dataset.graph.degrees, torch_dtype(setting.workload)
    threads = setting.workload.threads

    def train(seeds: IntArray, epoch: int) -> None:
        blocks = sampler.sample(seeds, epoch, threads)
        h = feature_rows(setting, blocks[0].src_ids, sparse=sparse, threads=threads)
        bounds = [
            BoundBlock(block, bundle.kernel, degrees, dtype, torch.device("cpu"))
            for block in blocks
        ]
        tapes = []
        for number, (layer, bound) in enumerate(zip(layers, bounds, strict=True)):
            first = number == 0
            aggregated = run_aggregate(layer, bound, h, first=first)
            needs = needs_aggregate_gradient(layer, first=first)
            updated = run_update(layer, bound, aggregated.output, needs_input_gradient=needs)
            tapes.append((aggregated, updated))
            h = updated.output.detach()
        logits = h.requires_grad_()
        loss = torch.nn.functional.cross_entropy(logits, labels[seeds], reduction="sum")
        torch.autograd.backward(loss)
        gradient = logits.grad
        for number in reversed(range(len(layers))):
            aggregated, updated = tapes.pop()
            if gradient is None:
                raise RuntimeError("a layer above the first returned no gradient")
            below = run_update_backward(updated, gradient)
            if below is not None:
                gradient = run_aggregate_backward(
                    layers[number], bounds[number], aggregated, below, first=number == 0
                )
        replicas.step([part.div_(len(seeds)) for part in take_gradients(layers)])

    def run_epoch(epoch: int) -> None:
        for seeds in sampler.rounds(epoch):
            train(seeds, epoch)

    return run_epoch


def take_turns(epochs: Mapping[str, Epoch], rounds: int) -> dict[str, list[float]]:
    """Seconds of each epoch, by name; a first one of each warms up, and every other round goes
    through them backwards."""
    for run in epochs.values():
        run(0)
    seconds: dict[str, list[float]] = {name: [] for name in epochs}
    for turn in range(rounds):
        names = list(epochs) if turn % 2 == 0 else list(reversed(epochs))
        for name in names:
            began_s = time.perf_counter()
            epochs[name](turn + 1)
            seconds[name].append(time.perf_counter() - began_s)
    return seconds


def measure(
    dataset: Dataset, name: str, model: str, kernel: str, options: Options
) -> list[Finding]:
    """Prefetching against none, and the engine against the bare loop."""
    setting = make_setting(dataset, model, options.batch_size)
    epochs: dict[str, Epoch] = {
        "bare loop": make_bare_loop(setting, kernel),
        "no prefetching": make_epoch(setting, 0, kernel),
        "one-stage prefetching": make_epoch(setting, 1, kernel),
        "two-stage prefetching": make_epoch(setting, 2, kernel),
    }
    seconds = take_turns(epochs, options.rounds)

    def find(first: str, second: str, met: Callable[[Speedup], bool]) -> Finding:
        speedup = find_speedup(seconds[first], seconds[second])
        medians = (float(np.median(seconds[first])), float(np.median(seconds[second])))
        what = f"{first} / {second}"
        return Finding(name, model, what, medians, speedup, met(speedup))

    findings = [
        find(stages, "no prefetching", lambda speedup: speedup.high >= 1.0)
        for stages in ("one-stage prefetching", "two-stage prefetching")
    ]
    findings.append(
        find("bare loop", "no prefetching", lambda speedup: speedup.low <= 1.0 + HARNESS)
    )
    return findings


def print_findings(findings: Sequence[Finding]) -> None:
    for found in findings:
        interval = f"{found.speedup.low:.3f} to {found.speedup.high:.3f}"
        first, second = (format_si(seconds, "s") for seconds in found.seconds)
        verdict = "" if found.met else "missed"
        print(
            f"{found.dataset:<17} {found.model:<5} {found.what:<40} {first:>8} {second:>8} "
            f"{found.speedup.ratio:>6.3f}  {interval:<15} {verdict}".rstrip(),
            flush=True,
        )


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--dataset", "names", multiple=True, default=DATASETS, show_default=True)
@click.option("--model", "models", multiple=True, default=("gcn", "sage"), show_default=True)
@click.option("--kernel", default="native", show_default=True)
@click.option("--rounds", type=click.IntRange(min=3), default=7, show_default=True)
@click.option("--batch-size", type=click.IntRange(min=1), default=1024, show_default=True)
@click.option("--enforce", is_flag=True, help="Exit with 1 where a target is missed.")
def main(
    names: tuple[str, ...],
    models: tuple[str, ...],
    kernel: str,
    rounds: int,
    batch_size: int,
    enforce: bool,
) -> None:
    """Compare epochs with and without prefetching, and with a bare loop, by turns.

    A ratio is the second's median over the first's: above 1, the first is faster.
    """
    missed = False
    for name in names:
        dataset = datasets.load(name)
        for model in models:
            findings = measure(dataset, name, model, kernel, Options(rounds, batch_size))
            print_findings(findings)
            missed |= not all(found.met for found in findings)
    sys.exit(int(enforce and missed))


if __name__ == "__main__":
    main()
