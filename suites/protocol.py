"""``python -m suites.protocol``: the gain of prefetching and the cost of the harness here.

Epochs on this machine's processor, by its wall clock, of runs that take turns:

- HyScale-GNN without prefetching, with one-stage and with two-stage prefetching. Prefetching stages
  run on separate threads, on the same cores. On a host without a core for each stage nothing is
  prefetched, whatever the option; the line says so.
- The engine without prefetching against a bare loop over the same kernels. The loop samples,
  gathers, computes forward and backward, steps and reads the loss, without spans, memories or
  parts. They take turns round by round. The bare loop runs another epoch's mini-batches of the same
  sizes, so that neither finds the other's data in a cache.

Other load slows both in a turn alike. For epochs, the ratio is the median over turns. For rounds,
it is the ratio of two epochs in which each round takes its median over all epochs. Work done once
an epoch is included. Both have a 95 % interval. The exit status is 0. With ``--enforce`` it is 1 if
prefetching is significantly slower than none, or the harness significantly costs more than 2 %.
"""

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

import click
import numpy as np
import torch

from gnnbench import datasets, plugins
from gnnbench.lowering.units import needs_aggregate_gradient
from gnnbench.machines import load_platform
from gnnbench.machines.describe import LOCAL
from gnnbench.models import BoundBlock, Degrees, build
from gnnbench.models.products import keeps_sparse, projected_layers
from gnnbench.parts import Bundle, MiniBatchSampler, Setting
from gnnbench.price.wall_clock import WallClock
from gnnbench.program.recorder import Recorder
from gnnbench.records import Block, Dataset, IntArray, PartKind, Workload
from gnnbench.run import make_engine
from gnnbench.run.features import feature_rows
from gnnbench.run.passes import (
    run_aggregate,
    run_aggregate_backward,
    run_update,
    run_update_backward,
    take_gradients,
)
from gnnbench.run.replicas import Replicas, torch_dtype
from gnnbench.units import format_si
from suites.race import DoubleArray, resample

#: The largest allowed cost of the harness, as a share of the bare loop.
HARNESS = 0.02
#: Datasets with rounds large enough for a pipeline.
DATASETS = ("coauthor_physics", "ego_twitter")

#: An offset far beyond the trained epochs, so that the bare loop has other mini-batches.
OTHER_EPOCHS = 1 << 20
#: The fewest turns of a comparison.
FEWEST_TURNS = 5

#: A function that runs the epoch with the given number.
Epoch = Callable[[int], object]
Draw = Callable[..., tuple[Block, ...]]


@dataclass(frozen=True, slots=True)
class Options:
    """``seconds`` for a dataset and model, and the seeds of a round."""

    seconds: float
    batch_size: int


@dataclass(frozen=True, slots=True)
class Ratio:
    """A median and its 95 % confidence interval."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: the compared pair, their median seconds, and the second's time over the first's.

    ``same`` says that neither prefetches here.
    """

    dataset: str
    model: str
    what: str
    seconds: tuple[float, float]
    ratio: Ratio
    met: bool
    same: bool = False


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
    """Return HyScale-GNN with ``stages`` prefetch stages, on the processor alone."""
    registry = plugins.load()
    parts = registry.strategy("hyscale").bundles["mini-batch"]
    parts = plugins.with_swap(registry, parts, [("kernel", kernel)])
    options: dict[PartKind, dict[str, str]] = {
        "communication": {"stages": str(prefetch)},
        "placement": {"accelerators": "0"},
    }
    bundle = plugins.assemble(registry, parts, options)
    return bundle.begin(setting)


def make_epoch(setting: Setting, prefetch: int, kernel: str) -> Epoch:
    """Return a function that runs epochs of the engine."""
    bundle = make_bundle(setting, prefetch, kernel)
    return start_engine(bundle, setting)


def start_engine(bundle: Bundle, setting: Setting) -> Epoch:
    engine = make_engine(bundle, setting, Recorder(WallClock()))
    engine.prepare()
    return engine.run_epoch


def take_sampler(bundle: Bundle) -> MiniBatchSampler:
    if not isinstance(bundle.sampler, MiniBatchSampler):
        raise TypeError("epochs are compared of mini-batches alone")
    return bundle.sampler


def make_bare_loop(setting: Setting, kernel: str) -> Callable[[int], Iterator[float]]:
    """Return a loop over the same kernels and mini-batches, and nothing else.

    For an epoch it yields 0 once the rounds are drawn, then each round's loss, summed over its
    seeds.
    """
    bundle = make_bundle(setting, 0, kernel)
    sampler = take_sampler(bundle)
    host = setting.platform.host
    projected = projected_layers(bundle, setting)
    sparse = keeps_sparse(bundle, setting, (host,), projected)
    replicas = Replicas(setting, (host,), projected)
    layers, labels = replicas.on(host).stack, torch.from_numpy(setting.dataset.labels)
    degrees, dtype = Degrees.of(setting.dataset, setting.workload), torch_dtype(setting.workload)
    threads = setting.workload.threads

    def train(seeds: IntArray, epoch: int) -> float:
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
        torch.autograd.backward(loss, torch.full_like(loss, 1.0 / len(seeds)))
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
        replicas.step(take_gradients(layers))
        return loss.item()

    def run_epoch(epoch: int) -> Iterator[float]:
        rounds = sampler.rounds(epoch)
        yield 0.0
        for seeds in rounds:
            yield train(seeds, epoch)

    return run_epoch


def take_rounds_in_turn(
    setting: Setting, kernel: str, seconds: float
) -> tuple[DoubleArray, DoubleArray]:
    """Return the seconds of the bare loop and of the engine, each ``(epochs, rounds + 1)``.

    The first column is the time before the first round. The engine stops before each of its rounds
    for a round of the bare loop. A first epoch warms up; epochs run until ``seconds`` are spent.
    """
    bare_epoch, bundle = make_bare_loop(setting, kernel), make_bundle(setting, 0, kernel)
    engine, sampler = start_engine(bundle, setting), take_sampler(bundle)
    pieces: Iterator[float] = iter(())
    resumed_s = 0.0
    bare: list[list[float]] = []
    ours: list[list[float]] = []

    def pause(draw: Draw) -> Draw:
        def sample(*arguments: object) -> tuple[Block, ...]:
            ours[-1].append(time.perf_counter() - resumed_s)
            go_on()
            return draw(*arguments)

        return sample

    def go_on() -> None:
        """Run one piece of the bare loop, then restart the engine's clock."""
        nonlocal resumed_s
        began_s = time.perf_counter()
        next(pieces)
        bare[-1].append(time.perf_counter() - began_s)
        resumed_s = time.perf_counter()

    sampler.sample = pause(sampler.sample)  # type: ignore[method-assign]
    ends_s = time.perf_counter() + seconds
    for epoch in count():
        if epoch > FEWEST_TURNS and time.perf_counter() > ends_s:
            break
        pieces, resumed_s = bare_epoch(epoch + OTHER_EPOCHS), 0.0
        bare.append([])
        ours.append([])
        go_on()
        engine(epoch)
        ours[-1].append(time.perf_counter() - resumed_s)
    return np.array(bare[1:]), np.array(ours[1:])


def find_epoch_ratio(bare: DoubleArray, ours: DoubleArray, *, seed: int = 0) -> Ratio:
    """Return the ratio of ``ours`` to ``bare``, both ``(epochs, pieces)``.

    Each is the sum over pieces of the median over epochs. The interval is a bootstrap over epochs.
    """

    def ratio(epochs: IntArray | slice) -> float:
        return float(np.median(ours[epochs], axis=0).sum() / np.median(bare[epochs], axis=0).sum())

    def find_ratios(picks: IntArray) -> DoubleArray:
        return np.array([ratio(epochs) for epochs in picks])

    return Ratio(ratio(slice(None)), *resample(len(bare), find_ratios, seed=seed))


def take_turns(epochs: Mapping[str, Epoch], seconds: float) -> dict[str, list[float]]:
    """Return the seconds of each epoch, by name, of all turns that fit into ``seconds``.

    A first epoch of each warms up. The starting contestant rotates, and every other turn runs
    backwards.
    """
    for run in epochs.values():
        run(0)
    names = list(epochs)
    taken: dict[str, list[float]] = {name: [] for name in names}
    ends_s = time.perf_counter() + seconds
    for turn in count(1):
        if turn > FEWEST_TURNS and time.perf_counter() > ends_s:
            break
        first = turn // 2 % len(names)
        order = names[first:] + names[:first]
        for name in order if turn % 2 else reversed(order):
            began_s = time.perf_counter()
            epochs[name](turn)
            taken[name].append(time.perf_counter() - began_s)
    return taken


def find_ratio(ours: Sequence[float], theirs: Sequence[float], *, seed: int = 0) -> Ratio:
    """Return the median of ``theirs`` over ``ours``, turn by turn, with a bootstrap interval."""
    ratios = np.array(theirs) / np.array(ours)

    def find_medians(picks: IntArray) -> DoubleArray:
        medians: DoubleArray = np.median(ratios[picks], axis=1)
        return medians

    return Ratio(float(np.median(ratios)), *resample(len(ratios), find_medians, seed=seed))


def measure(
    dataset: Dataset, name: str, model: str, kernel: str, options: Options
) -> list[Finding]:
    """Compare prefetching with none, and the engine with the bare loop."""
    setting = make_setting(dataset, model, options.batch_size)
    stages: Mapping[str, int] = {"one-stage prefetching": 1, "two-stage prefetching": 2}
    epochs: dict[str, Epoch] = {
        "no prefetching": make_epoch(setting, 0, kernel),
        **{what: make_epoch(setting, depth, kernel) for what, depth in stages.items()},
    }
    seconds = take_turns(epochs, options.seconds / 2)

    def find(first: str, second: str) -> tuple[str, tuple[float, float], Ratio]:
        medians = (float(np.median(seconds[first])), float(np.median(seconds[second])))
        return f"{first} / {second}", medians, find_ratio(seconds[first], seconds[second])

    findings = []
    for what, depth in stages.items():
        bundle = make_bundle(setting, depth, kernel)
        same = bundle.prefetch_stages(setting.platform) == 0
        text, medians, ratio = find(what, "no prefetching")
        findings.append(Finding(name, model, text, medians, ratio, same or ratio.high >= 1.0, same))
    bare, ours = take_rounds_in_turn(setting, kernel, options.seconds / 2)
    medians = (float(np.median(bare, axis=0).sum()), float(np.median(ours, axis=0).sum()))
    ratio = find_epoch_ratio(bare, ours)
    met = ratio.low <= 1.0 + HARNESS
    findings.append(Finding(name, model, "bare loop / engine", medians, ratio, met))
    return findings


def print_findings(findings: Sequence[Finding]) -> None:
    for found in findings:
        interval = f"{found.ratio.low:.3f} to {found.ratio.high:.3f}"
        first, second = (format_si(seconds, "s") for seconds in found.seconds)
        verdict = "nothing prefetched" if found.same else "" if found.met else "missed"
        print(
            f"{found.dataset:<17} {found.model:<5} {found.what:<40} {first:>8} {second:>8} "
            f"{found.ratio.median:>6.3f}  {interval:<15} {verdict}".rstrip(),
            flush=True,
        )


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--dataset", "names", multiple=True, default=DATASETS, show_default=True)
@click.option("--model", "models", multiple=True, default=("gcn", "sage"), show_default=True)
@click.option("--kernel", default="native", show_default=True)
@click.option("--seconds", type=click.FloatRange(min=0), default=50.0, show_default=True)
@click.option("--batch-size", type=click.IntRange(min=1), default=1024, show_default=True)
@click.option("--enforce", is_flag=True, help="Exit with 1 where a target is missed.")
def main(
    names: tuple[str, ...],
    models: tuple[str, ...],
    kernel: str,
    seconds: float,
    batch_size: int,
    enforce: bool,
) -> None:
    """Compare epochs with and without prefetching, and with a bare loop, in turns.

    A ratio is the second's time over the first's: above 1, the first is faster. Each dataset and
    model gets the given seconds.
    """
    missed = False
    for name in names:
        dataset = datasets.load(name)
        for model in models:
            findings = measure(dataset, name, model, kernel, Options(seconds, batch_size))
            print_findings(findings)
            missed |= not all(found.met for found in findings)
    sys.exit(int(enforce and missed))


if __name__ == "__main__":
    main()
