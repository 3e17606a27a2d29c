"""HyScale-GNN's Figure 11 by training: the gains of hybrid training, DRM and prefetching.

``python -m suites.hyscale_ablation`` trains strategy hyscale step by step on stand-ins of the three
graphs, with GCN and GraphSAGE, on the modelled CPU-FPGA and CPU-GPU servers. It prints each step's
speed-up over offloading everything, and the steps that are slower than the previous one.

An epoch of a small stand-in has few rounds and starts with an empty pipeline. The real graph's
epoch has hundreds of rounds, so the steady state shows its gain. A steady round is the time from
the end of one round to the end of a later one, divided by the rounds between.

Platform constants that were fitted on the paper's steps are printed first.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from gnnbench import datasets, plugins
from gnnbench.comparison import make_setting, options_for, plan_ablation
from gnnbench.errors import UsageError
from gnnbench.price.folds import lay_out
from gnnbench.price.model_clock import ModelClock
from gnnbench.records import Dataset, EpochTrace
from gnnbench.run import train
from gnnbench_plugins.studies import list_constants
from suites.epochs import make_request

PLATFORMS = ("epyc7763x2-4xu250", "epyc7763x2-4xa5000")
#: Stand-ins small enough to train in seconds.
GRAPHS = ("ogbn-products:0.02", "ogbn-papers100M:0.005", "mag240m:0.003")
MODELS = ("gcn", "sage")
#: Speed-ups over the baseline (section VI-F).
QUOTED = {"+hybrid": 1.13, "+DRM": 1.33, "+TFP": 1.79}
#: Epochs in which DRM settles, and the seeds of a round over all trainers.
EPOCHS = 3
SEEDS = 256


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the ablation: seconds of the last epoch, and of a round in its second half."""

    label: str
    epoch_s: float
    round_s: float


def round_seconds(epoch: EpochTrace) -> float:
    """Return the seconds from round to round in the second half of an epoch.

    A round ends when its gradients are averaged. The last round is smaller and is left out.
    """
    ends: dict[int, float] = {}
    for item in lay_out(epoch, "modelled"):
        if item.span.stage == "synchronize":
            number = item.span.round
            ends[number] = max(ends.get(number, 0.0), item.end_s)
    last = max(ends) - 1
    first = last // 2
    if first == last:
        raise UsageError(
            f"an epoch of {last + 2} rounds has no steady state; train more vertices, or fewer "
            f"--seeds a round."
        )
    return (ends[last] - ends[first]) / (last - first)


def ablate(dataset: Dataset, model: str, platform: str, seeds: int) -> list[Step]:
    """Train every step on the modelled platform."""
    registry = plugins.load()
    request = make_request(dataset, platform, "mini-batch", "hyscale")
    workload = replace(request.workload, model=model, batch_size=seeds, epochs=EPOCHS)
    request = replace(request, workload=workload)
    setting = make_setting(request)
    steps = []
    for row in plan_ablation(request, registry, each_part=False):
        options = options_for(row, request.options, registry)
        bundle = plugins.assemble(registry, row.parts, options)
        trace = train(bundle, setting, ModelClock(setting.platform, bundle.kernel, bundle.sampler))
        last = trace.epochs[-1]
        epoch_s = max(item.end_s for item in lay_out(last, "modelled"))
        steps.append(Step(row.label, epoch_s, round_seconds(last)))
    return steps


def list_fitted(platform: str) -> list[str]:
    """Return the platform constants fitted on the paper's results, which prove nothing."""
    return [
        f"{platform}: {number.name}, {number.value}, is fitted on {', '.join(number.fitted_on)}"
        for number in list_constants()
        if number.fitted_on and number.place.endswith(f"/{platform}.toml")
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--graphs", nargs="+", default=GRAPHS)
    parser.add_argument("--models", nargs="+", default=MODELS, choices=MODELS)
    parser.add_argument("--platforms", nargs="+", default=PLATFORMS)
    parser.add_argument("--seeds", type=int, default=SEEDS, help="of a round, all trainers")
    chosen = parser.parse_args(arguments)
    quoted = ", ".join(f"{label} {gain}x" for label, gain in QUOTED.items())
    print(f"speed-up over offload all, a round in the steady state (an epoch); quoted: {quoted}")
    slower = 0
    for platform in chosen.platforms:
        for sentence in list_fitted(platform):
            print(sentence)
        for graph in chosen.graphs:
            dataset = datasets.load(graph)
            for model in chosen.models:
                steps = ablate(dataset, model, platform, chosen.seeds)
                base = steps[0]
                texts = [
                    f"{step.label} {base.round_s / step.round_s:.2f}x "
                    f"({base.epoch_s / step.epoch_s:.2f}x)"
                    for step in steps[1:]
                ]
                worse = [b.label for a, b in pairwise(steps) if b.round_s > a.round_s * (1 + 1e-9)]
                slower += len(worse)
                remark = f"  SLOWER: {', '.join(worse)}" if worse else ""
                print(f"{platform} {model} {graph}: {'  '.join(texts)}{remark}", flush=True)
    print(f"{slower} steps slower than the one before")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
