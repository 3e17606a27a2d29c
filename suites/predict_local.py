"""HyScale-GNN's performance model against the wall clock of this machine, CPU only.

``python -m suites.predict_local`` probes the machine, predicts an epoch of strategy hyscale on
three graphs with GCN and GraphSAGE, trains, and prints both, the errors, and an iteration by stage.
Section VI-C has errors of 5 to 14 % between the paper's model and its machine. The CPU is the only
trainer: propagation is Equation 10, and Equations 8 and 13 have nothing to move.

Beside the wall clock stands the processor time of the epoch over the threads used: what the wall
clock would say if nothing else ran here and no thread waited. With ``--threads 1 --stages 0`` the
two are the same on an idle machine.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean, median

from gnnbench import datasets, plugins
from gnnbench.clock.wall import WallClock
from gnnbench.compare import Options, make_setting
from gnnbench.engine import train
from gnnbench.metrics import busy_by_stage
from gnnbench.parts import MiniBatchSampler, Setting
from gnnbench.platforms import load_platform
from gnnbench.platforms.machine import Platform
from gnnbench.platforms.probe import probe
from gnnbench.records import BatchProfile, EpochTrace, Stage, Unit
from gnnbench_plugins.hyscale.performance import Prediction, Split, predict
from suites.epochs import make_request

GRAPHS = ("ego_twitter", "coauthor_physics", "rmat")
MODELS = ("gcn", "sage")
EPOCHS = 2
#: The paper's largest error (section VI-C).
WITHIN = 0.14


@dataclass(frozen=True, slots=True)
class Compared:
    """Predicted beside measured: an epoch, and an iteration's stages."""

    label: str
    prediction: Prediction
    predicted_s: float
    wall_s: float
    processor_s: float
    stages: dict[Stage, float]

    @property
    def wall_error(self) -> float:
        return self.predicted_s / self.wall_s - 1.0

    @property
    def processor_error(self) -> float:
        return self.predicted_s / self.processor_s - 1.0


def profile_batches(setting: Setting, sampler: MiniBatchSampler) -> list[BatchProfile]:
    """The design phase of section V: mini-batches of a sixteenth of a round up to a whole one, each
    sampled with every number of threads, the median of five; of one thread on the processor. Each
    time other vertices are drawn for, as in training."""
    rounds = sampler.rounds(0)
    seeds = rounds[0]
    profiles = []
    for size in sorted({max(1, len(seeds) // 2**k) for k in range(5)}):
        timed = []
        for threads in range(1, setting.platform.host.cores + 1):
            now = time.process_time if threads == 1 else time.perf_counter
            taken = []
            for draw in range(5):
                chosen = rounds[draw % len(rounds)][:size]
                began_s = now()
                sampler.sample(chosen, 0, threads)
                taken.append(now() - began_s)
            timed.append((threads, median(taken)))
        unit = Unit(0, sampler.sample(seeds[:size], 0, 0))
        profiles.append(BatchProfile(size, unit.vertices, unit.edges, tuple(timed)))
    return profiles


def compare_with_wall_clock(graph: str, model: str, platform: Platform, stages: int) -> Compared:
    """Predict and train one cell; ``stages`` is the prefetch depth."""
    registry = plugins.load()
    request = make_request(datasets.load(graph), platform.name, "mini-batch", "hyscale")
    threads = platform.host.cores
    workload = replace(request.workload, model=model, epochs=EPOCHS, threads=threads)
    setting = make_setting(replace(request, workload=workload, platform=platform))
    options: Options = {"communication": {"stages": str(stages)}}
    parts = registry.strategy("hyscale").bundles["mini-batch"]
    bundle = plugins.assemble(registry, parts, options)
    bundle.begin(setting)
    if not isinstance(bundle.sampler, MiniBatchSampler):
        raise TypeError("strategy hyscale trains on mini-batches")
    profiles = profile_batches(setting, bundle.sampler)
    prefetch = bundle.prefetch_stages(platform)
    placement = bundle.placement
    placement.overlap(prefetch)
    placement.prepare(setting, profiles)
    split = Split(workload.batch_size, placement.host_threads())
    prediction = predict(setting, profiles, (), split, prefetch)
    rounds = len(setting.dataset.train_ids) / workload.batch_size

    epochs: list[EpochTrace] = []
    ended_s: list[float] = []

    def watch(epoch: EpochTrace, _: object) -> bool:
        epochs.append(epoch)
        ended_s.append(time.process_time())
        return False

    train(plugins.assemble(registry, parts, options), setting, WallClock(), watch)
    # The first epoch warms up.
    counted = epochs[1:]
    busy = [busy_by_stage(epoch.spans) for epoch in counted]
    each = {stage: fmean(b[stage] for b in busy) / rounds for stage in busy[0]}
    return Compared(
        f"{model} {graph}",
        prediction,
        prediction.epoch_s(rounds, filling=True),
        min(epoch.wall_s for epoch in counted),
        min(after - before for before, after in pairwise(ended_s)) / threads,
        each,
    )


def describe(cell: Compared) -> str:
    """One line: epochs and errors, then an iteration's stages, predicted and measured in ms."""
    expected, found = cell.prediction.stages(), cell.stages
    trained_s = found.get("aggregate", 0.0) + found.get("update", 0.0)
    pairs = (
        ("sample", expected["sample"], found.get("sample", 0.0)),
        ("load", expected["load"], found.get("load", 0.0)),
        ("train", expected["update"], trained_s),
        ("step", expected["synchronize"], found.get("synchronize", 0.0)),
    )
    stages = "  ".join(f"{name} {a * 1e3:.3g}/{b * 1e3:.3g}" for name, a, b in pairs)
    return (
        f"{cell.label:22}{cell.predicted_s:9.2f}{cell.wall_s:9.2f}{cell.wall_error:+7.0%}"
        f"{cell.processor_s:10.2f}{cell.processor_error:+7.0%}   {stages}"
    )


def summarise(clock: str, errors: Sequence[float]) -> str:
    sizes = [abs(error) for error in errors]
    close = sum(size <= WITHIN for size in sizes)
    return f"{clock}: {close} of {len(sizes)} within {WITHIN:.0%}, median {median(sizes):.0%}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--graphs", nargs="+", default=GRAPHS)
    parser.add_argument("--models", nargs="+", default=MODELS, choices=MODELS)
    parser.add_argument("--stages", type=int, default=2, choices=(0, 1, 2), help="prefetch stages")
    parser.add_argument("--threads", type=int, default=0, help="cores to use; 0 = all")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long to probe")
    parser.add_argument("--probed", action="store_true", help="use local as last probed")
    chosen = parser.parse_args(arguments)
    platform = load_platform("local") if chosen.probed else probe(chosen.seconds)
    cores = chosen.threads or platform.host.cores
    platform = replace(platform, host=replace(platform.host, cores=cores))
    cores_text = f"{cores} core{'s' * (cores > 1)}"
    print(
        f"{platform.host.model}, {cores_text}, load {os.getloadavg()[0]:.1f}; seconds of an epoch"
    )
    print(
        f"{'':22}{'predicted':>9}{'wall':>9}{'error':>7}{'processor':>10}{'error':>7}   ms a round"
    )
    cells = []
    for graph in chosen.graphs:
        for model in chosen.models:
            cells.append(compare_with_wall_clock(graph, model, platform, chosen.stages))
            print(describe(cells[-1]), flush=True)
    print(summarise("wall clock", [cell.wall_error for cell in cells]))
    print(summarise("processor time", [cell.processor_error for cell in cells]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
