"""What HyScale-GNN's predictions rest on, each number to be scaled by itself, and what they say.

The model of :mod:`gnnbench.sensitivity` is :class:`Machines`, the paper's two platforms. A changed
machine is predicted under the threads of the split that the unchanged one has, with the CPU
trainer's share chosen anew: Table VI's cells stand beside every change, since a number that mends
one figure may spoil the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

from gnnbench.constants import Bound
from gnnbench.platforms import load_platform
from gnnbench.platforms.machine import Device, Platform, RateCurve
from gnnbench.sensitivity import Assumption, Quantity
from gnnbench_plugins.hyscale.performance import Prediction, Split, predict
from gnnbench_plugins.studies.hyscale.neighbourhoods import cut_profiles
from gnnbench_plugins.studies.hyscale.tables import (
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
    """The CPU-FPGA and the CPU-GPU platform, or what an assumption changes them to."""

    fpgas: Platform
    gpus: Platform

    @classmethod
    def published(cls) -> Machines:
        return cls(load_platform(FPGAS), load_platform(GPUS))


@cache
def best_split(
    name: str, graph: PaperGraph, model: str, fanouts: tuple[int, ...], hidden: int
) -> Split:
    """Of the platform as it is described."""
    return predict_best(load_platform(name), graph, model, fanouts, hidden)[1]


def predict_hybrid(
    platform: Platform,
    graph: PaperGraph,
    model: str,
    fanouts: tuple[int, ...] = (25, 10),
    hidden: int = 256,
) -> Prediction:
    """One iteration of HyScale-GNN, under the split's threads, with the CPU share that is best."""
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
    """Seconds of HyScale-GNN's epoch."""
    prediction = predict_hybrid(platform, graph, model, fanouts, hidden)
    return prediction.epoch_s(count_rounds(platform, graph))


def plain_epoch_of(platform: Platform, graph: PaperGraph, model: str) -> float:
    """Seconds of the multi-GPU baseline's epoch: PyTorch-Geometric trains on accelerators alone.

    Its loader's workers sample ahead; that loading, transfer and training then follow each other
    in a process for each accelerator is how PyTorch-Geometric 2.0.3's loader hands out batches.
    """
    prediction, _ = predict_best(platform, graph, model, cpu_trainer=False, prefetch=0)
    in_turn_s = prediction.load_s + prediction.transfer_s + prediction.propagate_s
    return count_rounds(platform, graph) * max(prediction.sample_s, in_turn_s)


def table6() -> tuple[Quantity[Machines], ...]:
    """This work's cells of Table VI."""
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


def scale_curve(curve: RateCurve | None, factor: float) -> RateCurve | None:
    """A device's curve with all its rates so many times as high, where it has one."""
    if curve is None:
        return None
    return replace(
        curve,
        rates=tuple(factor * rate for rate in curve.rates),
        core_rates=tuple(factor * rate for rate in curve.core_rates),
    )


def _with_accelerators(platform: Platform, change: Callable[[Device], Device]) -> Platform:
    return replace(platform, accelerators=tuple(map(change, platform.accelerators)))


def _scale_links(platform: Platform, factor: float) -> Platform:
    return replace(
        platform,
        links=tuple(
            replace(link, bandwidth_bytes_per_s=factor * link.bandwidth_bytes_per_s)
            for link in platform.links
        ),
    )


def _both(machines: Machines, change: Callable[[Device], Device]) -> Machines:
    """The host is the same machine beside FPGAs and GPUs."""
    return Machines(
        replace(machines.fpgas, host=change(machines.fpgas.host)),
        replace(machines.gpus, host=change(machines.gpus.host)),
    )


def scale_trainer(device: Device, factor: float) -> Device:
    """Equations 11 and 12 of a CPU trainer."""
    return replace(
        device,
        aggregate=scale_curve(device.aggregate, factor),
        update=scale_curve(device.update, factor),
    )


def _accelerator_assumptions(gpus: bool) -> tuple[Assumption[Machines], ...]:
    """Memory, MACs and link of one platform's accelerators."""
    platform = load_platform(GPUS if gpus else FPGAS)
    device, kind = platform.accelerators[0], "GPU" if gpus else "FPGA"
    group = device.name.rstrip("0123456789")
    link = platform.host_link(device)

    def change(machines: Machines, to: Callable[[Platform], Platform]) -> Machines:
        if gpus:
            return replace(machines, gpus=to(machines.gpus))
        return replace(machines, fpgas=to(machines.fpgas))

    def scale_memory(machines: Machines, factor: float) -> Machines:
        return change(
            machines,
            lambda platform: _with_accelerators(
                platform,
                lambda each: replace(
                    each,
                    memory_bandwidth_bytes_per_s=factor * each.memory_bandwidth_bytes_per_s,
                ),
            ),
        )

    def scale_macs(machines: Machines, factor: float) -> Machines:
        return change(
            machines,
            lambda platform: _with_accelerators(
                platform, lambda each: replace(each, flops_per_s=factor * each.flops_per_s)
            ),
        )

    return (
        Assumption(
            f"the {kind}'s memory bandwidth",
            device.memory_bandwidth_bytes_per_s,
            "B/s",
            platform.sources[f"{group}.memory_bandwidth"],
            scale_memory,
        ),
        Assumption(
            f"the {kind}'s arithmetic rate",
            device.flops_per_s,
            "FLOP/s",
            platform.sources[f"{group}.flops"],
            scale_macs,
        ),
        Assumption(
            f"the {kind}'s PCIe link",
            link.bandwidth_bytes_per_s,
            "B/s",
            platform.sources[f"host-{group}.bandwidth"],
            lambda machines, factor: change(
                machines, lambda platform: _scale_links(platform, factor)
            ),
        ),
    )


def host_assumptions() -> tuple[Assumption[Machines], ...]:
    """Loading, sampling and the CPU trainer of the host that both platforms have."""
    platform = load_platform(FPGAS)
    host, sources = platform.host, platform.sources
    return (
        Assumption(
            "the rate at which the host loads rows",
            host.gather_bytes_per_s(1),
            "B/s",
            sources["host.gather"],
            lambda machines, factor: _both(
                machines, lambda each: replace(each, gather=scale_curve(each.gather, factor))
            ),
        ),
        Assumption(
            "the rate at which a core samples",
            host.sampled_edges_per_s,
            "edges/s",
            sources["host.sampling"],
            lambda machines, factor: _both(
                machines,
                lambda each: replace(each, sampled_edges_per_s=factor * each.sampled_edges_per_s),
            ),
        ),
        Assumption(
            "the CPU trainer's aggregation and update",
            host.aggregate_bytes_per_s(1),
            "B/s",
            sources["host.aggregate"],
            lambda machines, factor: _both(machines, lambda each: scale_trainer(each, factor)),
        ),
    )


def all_assumptions() -> tuple[Assumption[Machines], ...]:
    return (
        *_accelerator_assumptions(gpus=False),
        *_accelerator_assumptions(gpus=True),
        *host_assumptions(),
    )


def fpga_assumptions() -> tuple[Assumption[Machines], ...]:
    """Without those of the GPUs."""
    return (*_accelerator_assumptions(gpus=False), *host_assumptions())
