"""HyScale-GNN's performance model against the wall clock of this machine, CPU only.

``python -m suites.predict_hyscale`` predicts an epoch of strategy hyscale on three graphs with GCN
and GraphSAGE, then trains. It prints both times, the errors, and an iteration by stage. Section
VI-C reports errors of 5 to 14 % between the paper's model and its machine. The CPU is the only
trainer: propagation is Equation 10, and Equations 8 and 13 have nothing to transfer.

The effective rates of Equations 7, 11 and 12 come from a design phase before the predicted run. It
is a few rounds of the same training, one stage after the other, with every core and with one.
Section V takes T_samp from such runs, and the rest from "platform metadata". The column *probed* is
the same model with platform metadata, which ``gnnbench platforms probe`` measures on made blocks.
It is less accurate, because a cache holds more of a probe's arrays than of a run's.

The processor time of the epoch over the threads used is printed beside the wall clock. It is the
wall time if nothing else ran and no thread waited. With ``--threads 1 --stages 0`` the two are
equal on an idle machine.
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
from gnnbench.comparison import Options, make_setting
from gnnbench.kernels.pages import keep_pages
from gnnbench.machines import load_platform
from gnnbench.machines.machine import Platform
from gnnbench.machines.probe import probe
from gnnbench.parts import Bundle, Setting
from gnnbench.price.design_phase import DESIGN_EPOCHS, DesignPhase, run_design_phase, with_rates
from gnnbench.price.folds import busy_by_stage
from gnnbench.price.wall_clock import WallClock
from gnnbench.records import BatchProfile, EpochTrace, Stage
from gnnbench.run import train
from gnnbench_plugins.hyscale.performance import Prediction, Split, predict
from suites.epochs import make_request

GRAPHS = ("ego_twitter", "coauthor_physics", "rmat")
MODELS = ("gcn", "sage")
EPOCHS = 2
#: The paper's largest error (section VI-C).
WITHIN = 0.14


@dataclass(frozen=True, slots=True)
class Compared:
    """Predicted beside measured: an epoch, and an iteration's stages.

    ``probed_s`` is the model's time with the platform's rates, ``predicted_s`` with the rates of
    the design phase.
    """

    label: str
    prediction: Prediction
    probed_s: float
    predicted_s: float
    wall_s: float
    processor_s: float
    stages: dict[Stage, float]

    @property
    def probed_error(self) -> float:
        return self.probed_s / self.wall_s - 1.0

    @property
    def wall_error(self) -> float:
        return self.predicted_s / self.wall_s - 1.0

    @property
    def processor_error(self) -> float:
        return self.predicted_s / self.processor_s - 1.0


# --------------------------------------------------------------------------- a cell


def compare_with_wall_clock(graph: str, model: str, platform: Platform, stages: int) -> Compared:
    """Predict and train one cell; ``stages`` is the prefetch depth."""
    registry = plugins.load()
    request = make_request(datasets.load(graph), platform.name, "mini-batch", "hyscale")
    cores = platform.host.cores
    workload = replace(request.workload, model=model, epochs=EPOCHS, threads=cores)
    setting = make_setting(replace(request, workload=workload, platform=platform))
    parts = registry.strategy("hyscale").bundles["mini-batch"]
    ended_s: list[float] = []

    def make_bundle(depth: int) -> Bundle:
        options: Options = {"communication": {"stages": str(depth)}}
        return plugins.assemble(registry, parts, options)

    def train_epochs(which: Setting, depth: int) -> list[EpochTrace]:
        epochs: list[EpochTrace] = []

        def watch(epoch: EpochTrace, _: object) -> bool:
            epochs.append(epoch)
            ended_s.append(time.process_time())
            return False

        train(make_bundle(depth), which, WallClock(), watch)
        return epochs

    def design(threads: int) -> DesignPhase:
        return run_design_phase(setting, threads, lambda few: train_epochs(few, 0), DESIGN_EPOCHS)

    together = design(cores)
    alone = design(1) if cores > 1 else together
    sampling = tuple(sorted({1: alone.sample_s, cores: together.sample_s}.items()))
    profile = BatchProfile(workload.batch_size, together.vertices, together.edges, sampling)
    designed = replace(
        setting,
        platform=replace(platform, host=with_rates(platform.host, together, alone)),
    )
    bundle = make_bundle(stages)
    prefetch = bundle.prefetch_stages(platform)
    shares = bundle.placement.open(designed, [profile], prefetch)
    split = Split(workload.batch_size, shares.host_threads())
    rounds = len(setting.dataset.train_ids) / workload.batch_size
    probed = predict(setting, [profile], (), split, prefetch)
    prediction = predict(designed, [profile], (), split, prefetch, together.fixed_s)

    ended_s.clear()
    # The first epoch warms up.
    counted = train_epochs(setting, stages)[1:]
    busy = [busy_by_stage(epoch.spans) for epoch in counted]
    each = {stage: fmean(b[stage] for b in busy) / rounds for stage in busy[0]}
    return Compared(
        f"{model} {graph}",
        prediction,
        probed.epoch_s(rounds, filling=True),
        prediction.epoch_s(rounds, filling=True),
        min(epoch.wall_s for epoch in counted),
        min(after - before for before, after in pairwise(ended_s)) / cores,
        each,
    )


def describe(cell: Compared) -> str:
    """Return one line: epochs, errors, and an iteration's predicted and measured stages [ms]."""
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
        f"{cell.label:22}{cell.probed_s:9.2f}{cell.probed_error:+7.0%}"
        f"{cell.predicted_s:10.2f}{cell.wall_s:9.2f}{cell.wall_error:+7.0%}"
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
    keep_pages()
    platform = load_platform("local") if chosen.probed else probe(chosen.seconds)
    cores = chosen.threads or platform.host.cores
    platform = replace(platform, host=replace(platform.host, cores=cores))
    cores_text = f"{cores} core{'s' * (cores > 1)}"
    print(
        f"{platform.host.model}, {cores_text}, load {os.getloadavg()[0]:.1f}; seconds of an epoch"
    )
    print(
        f"{'':22}{'probed':>9}{'error':>7}{'predicted':>10}{'wall':>9}{'error':>7}"
        f"{'processor':>10}{'error':>7}   ms a round"
    )
    cells = []
    for graph in chosen.graphs:
        for model in chosen.models:
            cells.append(compare_with_wall_clock(graph, model, platform, chosen.stages))
            print(describe(cells[-1]), flush=True)
    print(summarise("wall clock", [cell.wall_error for cell in cells]))
    print(summarise("processor time", [cell.processor_error for cell in cells]))
    print(summarise("wall clock, probed rates alone", [cell.probed_error for cell in cells]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
