"""How fast dynamic resource management settles: Algorithm 1 and the proportional rule, trained.

The paper has no such figure. A first split that is wrong by four is what either rule starts from;
how many rounds pass until an iteration is as short as the better of the two ever makes it is told
from the stage times of training on a described platform.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import ClassVar

from gnnbench import datasets
from gnnbench.constants import Bound
from gnnbench.models import build
from gnnbench.parts import Setting
from gnnbench.platforms import load_platform
from gnnbench.platforms.machine import Device, Platform
from gnnbench.records import Cell, PartKind, StageTimes, Table, TableRow, Workload
from gnnbench.studies import StudyTrainer, TrainedReproduction
from gnnbench_plugins.hyscale.performance import Prediction, synchronise_seconds
from gnnbench_plugins.hyscale.placement import HyScaleSession
from gnnbench_plugins.studies.hyscale.regret import tabulate_regrets
from gnnbench_plugins.studies.hyscale.tables import FPGAS, GPUS

RULES = {"algorithm1": "Algorithm 1", "proportional": "proportional"}
#: What the planned share of the CPU trainer is multiplied by.
SKEWS: Bound[tuple[float, ...]] = (0.25, 4.0)
GRAPH = "sbm:vertices=3000,edges=30000,classes=8"
#: Widths of the models that are trained on it.
DIMS: Bound[tuple[tuple[int, int, int], ...]] = ((64, 128, 8), (64, 32, 8), (128, 32, 8))
#: Of six rounds each.
EPOCHS: Bound[int] = 5
#: Every rate is divided by it, so that the small graph weighs as much as one so many times larger.
SLOWER: Bound[float] = 100.0
#: An iteration is as short as it gets within this much of the mean of the last ones: threads and
#: seeds are whole, and of five threads one is a fifth.
WITHIN: Bound[float] = 0.15
LAST: Bound[int] = 12


def slow_down(platform: Platform, factor: float) -> Platform:
    """Every plain rate divided: a small graph then weighs as much as a ``factor`` times larger one,
    while launches and latencies, which the equations leave out, stay as they are."""

    def slow(device: Device) -> Device:
        return replace(
            device,
            flops_per_s=device.flops_per_s / factor,
            memory_bandwidth_bytes_per_s=device.memory_bandwidth_bytes_per_s / factor,
            core_bandwidth_bytes_per_s=device.core_bandwidth_bytes_per_s / factor,
            sampled_edges_per_s=device.sampled_edges_per_s / factor,
        )

    return replace(
        platform,
        host=slow(platform.host),
        accelerators=tuple(slow(device) for device in platform.accelerators),
        links=tuple(
            replace(link, bandwidth_bytes_per_s=link.bandwidth_bytes_per_s / factor)
            for link in platform.links
        ),
    )


def iteration_seconds(times: StageTimes, synchronise_s: float) -> float:
    """Equation 6 of what a round's stages took: what one more round costs a full pipeline.
    Propagation ends with the synchroniser, whose time no split changes."""
    return Prediction(
        times.sample_cpu,
        times.load,
        times.transfer,
        times.train_cpu or 0.0,
        times.train_accelerator or 0.0,
        synchronise_s,
    ).execution_s


def count_rounds_to_settle(seconds: Sequence[float], level_s: float) -> int:
    """After how many rounds an iteration stays within ``WITHIN`` of ``level_s``."""
    longer = [number for number, s in enumerate(seconds, 1) if s > (1.0 + WITHIN) * level_s]
    return max(longer, default=0)


@dataclass(frozen=True, slots=True)
class Settled:
    """A rule's run: rounds until it has settled, and an iteration at first and in the end."""

    rounds: int
    first_s: float
    last_s: float


def settle(
    trainer: StudyTrainer, platform: Platform, dims: tuple[int, ...], skew: float
) -> Mapping[str, Settled]:
    """Train a GCN of these widths with each rule, from a CPU share ``skew`` times the planned."""
    dataset = datasets.load(f"{GRAPH},features={dims[0]}")
    workload = Workload("gcn", dims, EPOCHS, 125, (10, 10), 0, threads=1)
    setting = Setting(dataset, platform, workload, build(workload).shapes)
    synchronise_s = synchronise_seconds(setting, platform.accelerators)
    seconds: dict[str, list[float]] = {}
    for rule in RULES:
        options: dict[PartKind, dict[str, str]] = {"placement": {"rule": rule, "skew": str(skew)}}
        shares = trainer.train("hyscale", setting, options)["placement"]
        if not isinstance(shares, HyScaleSession):
            raise TypeError("strategy hyscale has a placement of another kind")
        seconds[rule] = [iteration_seconds(times, synchronise_s) for times in shares.times]
    ends = {rule: fmean(taken[-LAST:]) for rule, taken in seconds.items()}
    level_s = min(ends.values())
    return {
        rule: Settled(count_rounds_to_settle(taken, level_s), taken[0], ends[rule])
        for rule, taken in seconds.items()
    }


def count_comparisons(found: Sequence[Mapping[str, Settled]]) -> str:
    """In how many of the runs the proportional rule needs fewer rounds, as many, or more."""
    rounds = [(each["proportional"].rounds, each["algorithm1"].rounds) for each in found]
    fewer = sum(ours < theirs for ours, theirs in rounds)
    more = sum(ours > theirs for ours, theirs in rounds)
    longest = max(each["proportional"].last_s / each["algorithm1"].last_s for each in found)
    return (
        f"of {len(rounds)} starts the proportional rule settles in fewer rounds from {fewer}, in "
        f"as many from {len(rounds) - fewer - more}, in more from {more}; its iterations in the "
        f"end are up to {longest:.2f} times as long as Algorithm 1's"
    )


class Convergence(TrainedReproduction):
    """Rounds that each rule needs, by platform, model and start."""

    name: ClassVar[str] = "hyscale-drm"
    summary: ClassVar[str] = "rounds until DRM has settled, and what it loses to the best split"

    def run(self) -> tuple[Table, ...]:
        rows, results = [], []
        for name in (FPGAS, GPUS):
            platform = slow_down(load_platform(name), SLOWER)
            for dims in DIMS:
                for skew in SKEWS:
                    found = settle(self.trainer, platform, dims, skew)
                    results.append(found)
                    cells = [Cell(found[rule].rounds) for rule in RULES]
                    first_s = next(iter(found.values())).first_s
                    cells.append(Cell(first_s, "s"))
                    cells += [Cell(found[rule].last_s, "s") for rule in RULES]
                    label = f"{name}, GCN {'-'.join(map(str, dims))}, CPU share x{skew:g}"
                    rows.append(TableRow(label, tuple(cells)))
        titles = RULES.values()
        return (
            Table(
                name=self.name,
                title="Rounds until dynamic resource management has settled, from a first split "
                "that is wrong by four",
                columns=(
                    *(f"{title}, rounds" for title in titles),
                    "iteration at first",
                    *(f"{title}, in the end" for title in titles),
                ),
                rows=tuple(rows),
                notes=(
                    count_comparisons(results),
                    "no figure of the paper, whose rule is Algorithm 1; the proportional rule "
                    "moves seeds and threads by the ratio of stage times",
                    f"settled: an iteration (Equations 6 and 9 of a round's stage times, and "
                    f"Equation 13) stays within {WITHIN:.0%} of the shorter of the two rules' "
                    f"means of the last {LAST} rounds; 0 where the first one is",
                    f"trained on the model clock: {GRAPH} and as many features as the model's, "
                    f"125 seeds a round, {EPOCHS} epochs of 6 rounds, two prefetch stages; what a "
                    f"round does is seen four rounds later",
                    f"plain rates of both platforms divided by {SLOWER:g}, for a graph that would "
                    f"be as many times larger; launches and latencies are the platforms' own",
                ),
            ),
            tabulate_regrets(self.name),
        )
