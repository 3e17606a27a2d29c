"""HyScale-GNN's performance model: §V, Equations 5 to 13, and the first split derived from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gnnbench.parts import LayerShape, Setting
from gnnbench.platforms.machine import Device
from gnnbench.records import BatchProfile, HostThreads


@dataclass(frozen=True, slots=True)
class Split:
    """A task mapping: seeds on the CPU trainer, the rest evenly on the accelerators, threads."""

    cpu_seeds: int
    threads: HostThreads


@dataclass(frozen=True, slots=True)
class Prediction:
    """Stage seconds of one iteration under a split."""

    sample_s: float
    load_s: float
    transfer_s: float
    train_cpu_s: float
    train_accelerator_s: float
    synchronise_s: float

    @property
    def propagate_s(self) -> float:
        """Equation 9: the slowest trainer, then the synchroniser."""
        return max(self.train_cpu_s, self.train_accelerator_s) + self.synchronise_s

    @property
    def execution_s(self) -> float:
        """Equation 6: the four stages form a pipeline."""
        return max(self.sample_s, self.load_s, self.transfer_s, self.propagate_s)


def trainer_seconds(
    device: Device,
    threads: int,
    vertices: Sequence[float],
    edges: Sequence[float],
    layers: Sequence[LayerShape],
    itemsize: int,
) -> float:
    """Equation 10: forward over all layers, backward over all but the first's aggregation.

    ``vertices`` are |V^0| .. |V^L|, ``edges`` |E^1| .. |E^L|. Aggregation by Equation 11, update by
    Equation 12; they overlap on a pipelined device (the operator is max) and add up elsewhere.
    """
    bandwidth = device.bandwidth_bytes_per_s(threads)
    macs_per_s = device.flops_per_s * device.share_of_cores(threads) / 2.0
    total = 0.0
    for number, layer in enumerate(layers):
        aggregate_s = edges[number] * layer.in_features * itemsize / bandwidth
        update_s = vertices[number + 1] * layer.macs_per_row / macs_per_s
        both = max(aggregate_s, update_s) if device.pipelined else aggregate_s + update_s
        total += both + (update_s if number == 0 else both)
    return total


def sizes_of(profiles: Sequence[BatchProfile], seeds: float) -> tuple[list[float], list[float]]:
    """|V^l| and |E^l| of a mini-batch of ``seeds`` seeds, between the profiled sizes."""
    known = [0.0, *(float(profile.seeds) for profile in profiles)]

    def between(values: list[int]) -> float:
        return float(np.interp(seeds, known, [0.0, *values]))

    depth = len(profiles[-1].edges)
    return (
        [between([profile.vertices[layer] for profile in profiles]) for layer in range(depth + 1)],
        [between([profile.edges[layer] for profile in profiles]) for layer in range(depth)],
    )


def predict(
    setting: Setting,
    profiles: Sequence[BatchProfile],
    accelerators: Sequence[Device],
    split: Split,
) -> Prediction:
    """Equations 6 to 13 for one iteration of as many seeds as the largest profile.

    T_samp comes from the host's sampling rate, measured for the platform rather than derived (§V:
    "instead of formulating an equation").
    """
    platform, item = setting.platform, setting.workload.itemsize
    host = platform.host
    width = setting.layers[0].in_features
    total = profiles[-1].seeds
    cpu_vertices, cpu_edges = sizes_of(profiles, split.cpu_seeds)
    count = len(accelerators)
    vertices, edges = sizes_of(profiles, (total - split.cpu_seeds) / count if count else 0)
    sampled = sum(cpu_edges) + count * sum(edges)
    sample_s = sampled / (host.sampled_edges_per_s * (split.threads.sample or host.cores))
    loaded = (cpu_vertices[0] + count * vertices[0]) * width * item
    load_s = loaded / host.bandwidth_bytes_per_s(split.threads.load)  # Equation 7
    transfer_s = train_accelerator_s = synchronise_s = 0.0
    for device in accelerators:
        link = platform.link(host.name, device.name)
        transfer_s = max(
            transfer_s, vertices[0] * width * item / link.bandwidth_bytes_per_s
        )  # Equation 8
        synchronise_s = max(
            synchronise_s, 2.0 * setting.parameter_bytes / link.bandwidth_bytes_per_s
        )  # Equation 13
        train_accelerator_s = max(
            train_accelerator_s,
            trainer_seconds(device, 0, vertices, edges, setting.layers, item),
        )
    train_cpu_s = trainer_seconds(
        host, split.threads.train, cpu_vertices, cpu_edges, setting.layers, item
    )
    return Prediction(sample_s, load_s, transfer_s, train_cpu_s, train_accelerator_s, synchronise_s)


def divide_threads(cores: int, parts: int = 8) -> list[HostThreads]:
    """Ways to divide the host's cores over sampling, loading and training, in eighths."""
    if cores < 3:
        return [HostThreads(1, 1, 1)]
    unit = max(1, cores // parts)
    steps = cores // unit
    ways = []
    for sample in range(1, steps - 1):
        for load in range(1, steps - sample):
            train = cores - (sample + load) * unit
            ways.append(HostThreads(sample * unit, load * unit, train))
    return ways


def plan_split(
    setting: Setting,
    profiles: Sequence[BatchProfile],
    accelerators: Sequence[Device],
    *,
    cpu_trainer: bool,
) -> Split:
    """The split with the least predicted T_execution.

    Searches 33 shares for the CPU trainer (0 to all) and every division of threads in eighths.
    Ties go to fewer seeds on the CPU, then to the threads that fill the pipeline soonest.
    """
    total = profiles[-1].seeds
    if not accelerators:
        candidates = [total]
    elif not cpu_trainer:
        candidates = [0]
    else:
        candidates = sorted({round(total * part / 32) for part in range(33)})
    splits = [
        Split(seeds, threads)
        for seeds in candidates
        for threads in divide_threads(setting.platform.host.cores)
    ]

    def rank(split: Split) -> tuple[float, int, float]:
        prediction = predict(setting, profiles, accelerators, split)
        filling_s = prediction.sample_s + prediction.load_s + prediction.train_cpu_s
        return prediction.execution_s, split.cpu_seeds, filling_s

    return min(splits, key=rank)
