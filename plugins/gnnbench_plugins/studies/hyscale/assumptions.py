"""The numbers that HyScale-GNN's predictions rest on, each to be scaled alone.

The model of ``reproduce.sensitivity`` is :class:`Machines`, the paper's two platforms. A changed
machine is predicted under the threads of the split that the unchanged one has, with the CPU
trainer's share chosen anew: Table VI's cells stand beside every change, since a number that mends
one figure may spoil the others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from gnnbench.constants import Bound
from gnnbench.jobs.sized import PlanOptions, price_plan
from gnnbench.machines import load_platform
from gnnbench.machines.machine import Platform
from gnnbench.reproduce.sensitivity import Assumption, Quantity, scale_field
from gnnbench_plugins.hyscale.performance import Prediction, Split, predict
from gnnbench_plugins.studies.hyscale.neighbourhoods import cut_profiles
from gnnbench_plugins.studies.hyscale.platform_assumptions import (
    Change,
    accelerator_assumptions,
    host_assumptions,
)
from gnnbench_plugins.studies.hyscale.tables import (
    BATCH,
    COLUMNS,
    FPGAS,
    GPUS,
    MODELS,
    RIVALS,
    PaperGraph,
    count_rounds,
    make_task,
    predict_best,
    sample_graph,
)

#: Shares of the CPU trainer that a changed machine is tried with.
SHARES: Bound[int] = 32


@dataclass(frozen=True, slots=True)
class Machines:
    """The CPU-FPGA and the CPU-GPU platform, or what an assumption changes them to.

    ``pyg`` is a factor on what PyTorch-Geometric takes.
    """

    fpgas: Platform
    gpus: Platform
    pyg: float = 1.0

    @classmethod
    def published(cls) -> Machines:
        return cls(load_platform(FPGAS), load_platform(GPUS))


@cache
def best_split(
    name: str, graph: PaperGraph, model: str, fanouts: tuple[int, ...], hidden: int
) -> Split:
    """Return the best split of the platform as described."""
    return predict_best(load_platform(name), graph, model, fanouts, hidden)[1]


def predict_hybrid(
    platform: Platform,
    graph: PaperGraph,
    model: str,
    fanouts: tuple[int, ...] = (25, 10),
    hidden: int = 256,
) -> Prediction:
    """Predict one iteration of HyScale-GNN by the split's threads and the best CPU share."""
    task = make_task(platform, graph, model, fanouts, hidden)
    total = task.workload.batch_size
    profiles = cut_profiles(sample_graph(graph, fanouts), total)
    known = best_split(platform.name, graph, model, fanouts, hidden)
    shares = {known.cpu_seeds, *(round(total * part / SHARES) for part in range(SHARES + 1))}
    predictions = (
        predict(task, profiles, platform.accelerators, Split(seeds, known.threads))
        for seeds in sorted(shares)
    )
    return min(predictions, key=lambda each: each.execution_s)


def epoch_of(
    platform: Platform,
    graph: PaperGraph,
    model: str,
    fanouts: tuple[int, ...] = (25, 10),
    hidden: int = 256,
) -> float:
    """Return the seconds of HyScale-GNN's epoch."""
    prediction = predict_hybrid(platform, graph, model, fanouts, hidden)
    return prediction.epoch_s(count_rounds(platform, graph))


def describe_library(graph: PaperGraph, model: str, *, prefetches: bool) -> PlanOptions:
    """Return the options of the plan of PyTorch-Geometric on the four GPUs.

    Its loader has no workers, as is its default. With ``prefetches`` its stages overlap as
    HyScale-GNN's do.
    """
    profile = next(each for each in sample_graph(graph, (25, 10)) if each.seeds == BATCH)
    return (
        ("strategy", "pyg-multi-gpu"),
        ("model", model),
        ("platform", GPUS),
        ("swap", ("communication=hyscale",) if prefetches else ()),
        ("dims", (graph.features, 256, graph.classes)),
        ("batch_vertices", profile.vertices),
        ("batch_edges", profile.edges),
        ("train_vertices", graph.train),
    )


def library_epoch_of(
    machines: Machines, graph: PaperGraph, model: str, *, prefetches: bool = False
) -> float:
    """Return the seconds of an epoch at what PyTorch-Geometric takes on the four GPUs.

    The multi-GPU baseline loads, transfers and trains in turn. HyScale-GNN's CPU-GPU design is made
    of the same library; the share that its CPU trains is left out.
    """
    return machines.pyg * price_plan(describe_library(graph, model, prefetches=prefetches)).epoch_s


def plain_epoch_of(platform: Platform, graph: PaperGraph, model: str) -> float:
    """Return the seconds of an epoch of the multi-GPU baseline, PyTorch-Geometric.

    It trains on accelerators alone. Its loader's workers sample ahead. In the process of each
    accelerator, loading, transfer and training follow each other, as PyTorch-Geometric 2.0.3's
    loader hands out batches.
    """
    prediction, _ = predict_best(platform, graph, model, cpu_trainer=False, prefetch=0)
    in_turn_s = prediction.load_s + prediction.transfer_s + prediction.propagate_s
    return count_rounds(platform, graph) * max(prediction.sample_s, in_turn_s)


def table6() -> tuple[Quantity[Machines], ...]:
    """List the cells of HyScale-GNN in Table VI."""
    found = []
    for rival in RIVALS:
        for (graph, model), quoted in zip(COLUMNS, rival.ours_s, strict=True):
            if quoted is not None:
                found.append(_epoch(graph, model, rival.name, rival.fanouts, rival.hidden, quoted))
    return tuple(found)


def _epoch(
    graph: PaperGraph,
    model: str,
    rival: str,
    fanouts: tuple[int, ...],
    hidden: int,
    quoted: float,
) -> Quantity[Machines]:
    return Quantity(
        f"Table VI's {MODELS[model]} on {graph.name} beside {rival}",
        lambda machines: epoch_of(machines.fpgas, graph, model, fanouts, hidden),
        quoted,
        "s",
    )


# --------------------------------------------------------------------------- the assumptions


def _on_fpgas(machines: Machines, change: Change) -> Machines:
    return replace(machines, fpgas=change(machines.fpgas))


def all_assumptions() -> tuple[Assumption[Machines], ...]:
    """Return the assumptions on the FPGAs and their host, and on PyTorch-Geometric."""
    fpgas = load_platform(FPGAS)
    return (
        *accelerator_assumptions(fpgas, "fpga", _on_fpgas),
        *host_assumptions(fpgas, _on_fpgas),
        Assumption(
            "what PyTorch-Geometric takes", 1.0, "",
            "its kernels, sampler and loader as in the ledger (`reproduce validation`)",
            scale_field("pyg"),
        ),
    )  # fmt: skip
