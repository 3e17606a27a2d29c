"""HyScale-GNN's performance model: §V, Equations 6 to 13, and the first split derived from it.

"Bandwidth" and N freq are effective rates throughout: the rates of loading, aggregation and update
that a platform gives for its host (``TrainerRates``). Without these,
plain rates are used.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Literal, Protocol

import numpy as np

from gnnbench.lowering.footprint import sparse_bytes
from gnnbench.machines.machine import Device, Platform
from gnnbench.parts import LayerShape
from gnnbench.records import BatchProfile, HostThreads, Stage, StageTimes, Workload
from gnnbench.units import format_si

#: Rounds in flight: none ahead, or ahead in one or two prefetch stages (§IV-B).
Prefetch = Literal[0, 1, 2]


class Task(Protocol):
    """The inputs of the equations; :class:`gnnbench.parts.Setting` is one."""

    @property
    def platform(self) -> Platform: ...

    @property
    def workload(self) -> Workload: ...

    @property
    def layers(self) -> tuple[LayerShape, ...]: ...

    @property
    def parameter_bytes(self) -> int:
        """The numerator of Equation 13: all weights."""


@dataclass(frozen=True, slots=True)
class Split:
    """A task mapping: seeds on the CPU trainer, the rest evenly on the accelerators, threads."""

    cpu_seeds: int
    threads: HostThreads


@dataclass(frozen=True, slots=True)
class Prediction:
    """Stage seconds of one iteration under a split.

    ``busy_s`` is the time of the host's stages in sequence on all its cores: no pipeline is faster.
    It matters if stages have more threads than there are cores.
    """

    sample_s: float
    load_s: float
    transfer_s: float
    train_cpu_s: float
    train_accelerator_s: float
    synchronise_s: float
    busy_s: float = 0.0
    prefetch: Prefetch = 2

    @property
    def propagate_s(self) -> float:
        """Equation 9: the slowest trainer, then the synchroniser."""
        return max(self.train_cpu_s, self.train_accelerator_s) + self.synchronise_s

    @property
    def latency_s(self) -> float:
        """Seconds of one iteration alone, its stages in sequence.

        The CPU trainer does not wait for the transfer.
        """
        accelerator_s = self.transfer_s + self.train_accelerator_s
        trained_s = max(self.train_cpu_s, accelerator_s)
        return self.sample_s + self.load_s + trained_s + self.synchronise_s

    @property
    def execution_s(self) -> float:
        """Equation 6: the four stages form a pipeline.

        With one prefetch stage loading and transfer are one. Without prefetching there is no
        pipeline.
        """
        if self.prefetch == 0:
            return self.latency_s
        if self.prefetch == 1:
            fetch_s = self.load_s + self.transfer_s
            return max(self.sample_s, fetch_s, self.propagate_s, self.busy_s)
        return max(self.sample_s, self.load_s, self.transfer_s, self.propagate_s, self.busy_s)

    @property
    def bottleneck(self) -> str:
        """The stage that decides Equation 6."""
        stages = {
            "sampling": self.sample_s,
            "loading": self.load_s,
            "transfer": self.transfer_s,
            "propagation": self.propagate_s,
        }
        return max(stages, key=lambda name: stages[name])

    def epoch_s(self, rounds: float, *, filling: bool = False) -> float:
        """Return the seconds of ``rounds`` iterations.

        ``filling`` starts with an empty pipeline, which the paper's model leaves out (§VI-C).
        """
        if not filling:
            return rounds * self.execution_s
        return self.latency_s + max(0.0, rounds - 1.0) * self.execution_s

    def stages(self) -> dict[Stage, float]:
        """Return seconds by stage, under the stage names of results.

        Propagation, ``aggregate`` and ``update`` together, is under ``update``.
        """
        return {
            "sample": self.sample_s,
            "load": self.load_s,
            "transfer": self.transfer_s,
            "update": max(self.train_cpu_s, self.train_accelerator_s),
            "synchronize": self.synchronise_s,
        }


def trainer_seconds(
    device: Device,
    threads: int,
    vertices: Sequence[float],
    edges: Sequence[float],
    layers: Sequence[LayerShape],
    itemsize: int,
    stored: tuple[float, float] | None = None,
) -> float:
    """Return Equation 10: forward over all layers, backward without the first's aggregation.

    ``vertices`` are |V^0| .. |V^L|, ``edges`` |E^1| .. |E^L|. Aggregation follows Equation 11,
    update Equation 12. They overlap on a pipelined device (the operator is max) and add up
    elsewhere. The backward pass aggregates at its own rate if the device has one.

    Layers that multiply by W before they aggregate do both in Equation 11's time. So does the first
    layer, since its backward pass gives W's gradient. For sparse features only stored values are
    multiplied: ``stored`` has their numbers in V^0 and V^1.
    """

    def combine(aggregate_s: float, update_s: float) -> float:
        return max(aggregate_s, update_s) if device.hardware.pipelined else aggregate_s + update_s

    total = 0.0
    for number, layer in enumerate(layers):
        width = layer.summed_features
        macs_per_s = device.update_flop_per_s(layer.narrow_side, threads) / 2.0
        sources, destinations = vertices[number], vertices[number + 1]
        if number == 0 and stored is not None:
            sources, destinations = (values / layer.in_features for values in stored)
        macs = sources * layer.early.source_macs
        macs += destinations * layer.early.destination_macs
        # Attention is over N(v) and v.
        read = edges[number] + (vertices[number + 1] if layer.on_edges.of_loops else 0.0)
        traffic, product_s = read * width * itemsize, macs / macs_per_s
        aggregate_s = traffic / device.aggregate_bytes_per_s(width, threads) + product_s
        update_s = vertices[number + 1] * layer.macs_per_row / macs_per_s
        total += combine(aggregate_s, update_s)
        if number == 0 and not layer.early.source_macs:
            total += update_s
            continue
        back_s = traffic / device.aggregate_backward_bytes_per_s(width, threads) + product_s
        total += combine(back_s, update_s)
    return total


def sizes_of(profiles: Sequence[BatchProfile], seeds: float) -> tuple[list[float], list[float]]:
    """Return |V^l| and |E^l| of a mini-batch of ``seeds`` seeds, between the profiled sizes."""
    known = [0.0, *(float(profile.seeds) for profile in profiles)]

    def between(values: list[int]) -> float:
        return float(np.interp(seeds, known, [0.0, *values]))

    depth = len(profiles[-1].edges)
    return (
        [between([profile.vertices[layer] for profile in profiles]) for layer in range(depth + 1)],
        [between([profile.edges[layer] for profile in profiles]) for layer in range(depth)],
    )


def fetched_of(
    profiles: Sequence[BatchProfile], seeds: float, row_bytes: float
) -> tuple[float, float]:
    """Return the rows and bytes that an accelerator's mini-batch fetches from host memory.

    The mini-batch has ``seeds`` seeds; bytes count as they cross. Without figures in the profiles
    it is all of V^0, at ``row_bytes`` a row.
    """
    known = [0.0, *(float(profile.seeds) for profile in profiles)]
    rows, sizes = [0.0], [0.0]
    for profile in profiles:
        count = profile.vertices[0] if profile.fetched is None else profile.fetched
        size = profile.fetched_bytes
        rows.append(float(count))
        sizes.append(count * row_bytes if size is None else float(size))
    return float(np.interp(seeds, known, rows)), float(np.interp(seeds, known, sizes))


def stored_of(profiles: Sequence[BatchProfile], seeds: float) -> tuple[float, float] | None:
    """Return the stored feature values in a mini-batch's rows of V^0, and of V^1.

    The mini-batch has ``seeds`` seeds. Returns None if features are dense.
    """
    known, sources, destinations = [0.0], [0.0], [0.0]
    for profile in profiles:
        if profile.stored is None:
            return None
        known.append(float(profile.seeds))
        sources.append(float(profile.stored[0]))
        destinations.append(float(profile.stored[1]))
    return (
        float(np.interp(seeds, known, sources)),
        float(np.interp(seeds, known, destinations)),
    )


def sampling_seconds(
    host: Device, profiles: Sequence[BatchProfile], seeds: float, threads: int
) -> float:
    """Return T_samp of one mini-batch of ``seeds`` seeds with ``threads`` threads (0: every core).

    §V runs the sampler "under different numbers of threads and different mini-batch sizes" in the
    design phase. Times are interpolated between the ones of ``profiles``, and constant beyond the
    most threads. Without profiled times, the platform's sampled edges a second and core are used.
    """
    threads = threads or host.cores
    timed = [profile for profile in profiles if profile.sampling_s]
    if not timed:
        edges = sum(sizes_of(profiles, seeds)[1])
        return edges / (host.rates.sampled_edges_per_s * threads)
    known = [0.0, *(float(profile.seeds) for profile in timed)]
    taken = []
    for profile in timed:
        counts, seconds = zip(*profile.sampling_s, strict=True)
        taken.append(float(np.interp(threads, counts, seconds)))
    return float(np.interp(seeds, known, [0.0, *taken]))


def synchronise_seconds(task: Task, accelerators: Sequence[Device]) -> float:
    """Return Equation 13: gradients to the host and back, over the slowest link."""
    platform = task.platform
    links = [platform.host_link(device) for device in accelerators]
    crossings = (link.crossing_s(2.0 * task.parameter_bytes) for link in links)
    return max(crossings, default=0.0)


def predict(
    task: Task,
    profiles: Sequence[BatchProfile],
    accelerators: Sequence[Device],
    split: Split,
    prefetch: Prefetch = 2,
    fixed_s: float = 0.0,
    *,
    part: float = 1.0,
) -> Prediction:
    """Apply Equations 6 to 13 to one iteration with the seeds of the largest profile.

    It has a ``part`` of those seeds, split in the same proportion. ``prefetch`` says how far the
    stages of iterations overlap.

    Equations 7 and 8 have |V^0| rows of S_feat a value. An accelerator's cache saves some of these
    rows, and rows that cross may be rounded (:func:`fetched_of`). Sparse features, which only a CPU
    trainer keeps sparse, have the bytes of their values.

    One term is not the paper's: ``fixed_s``, the measured seconds of an iteration outside its
    equations (loss, optimiser step, runtime). It follows propagation, as the synchroniser does, and
    holds the interpreter, without which no stage starts.
    """
    platform, item = task.platform, task.workload.itemsize
    host, threads = platform.host, split.threads
    width = task.layers[0].in_features
    count, cpu_seeds = len(accelerators), part * split.cpu_seeds
    each = (part * profiles[-1].seeds - cpu_seeds) / count if count else 0.0
    cpu_vertices, cpu_edges = sizes_of(profiles, cpu_seeds)
    vertices, edges = sizes_of(profiles, each)
    sample_s = sampling_seconds(host, profiles, cpu_seeds, threads.sample)
    sample_s += count * sampling_seconds(host, profiles, each, threads.sample)
    fetched, fetched_bytes = fetched_of(profiles, each, width * item)
    stored = stored_of(profiles, cpu_seeds)
    loaded = (cpu_vertices[0] + count * fetched) * width * item
    if stored is not None:
        loaded = sparse_bytes(cpu_vertices[0], stored[0], item)
    load_s = loaded / host.gather_bytes_per_s(width, threads.load)  # Equation 7
    transfer_s = train_accelerator_s = 0.0
    for device in accelerators:
        link = platform.host_link(device)
        transfer_s = max(transfer_s, link.crossing_s(fetched_bytes))  # Equation 8
        trained_s = trainer_seconds(device, 0, vertices, edges, task.layers, item)
        train_accelerator_s = max(train_accelerator_s, trained_s)
    train_cpu_s = trainer_seconds(
        host, threads.train, cpu_vertices, cpu_edges, task.layers, item, stored
    )
    stages = ((sample_s, threads.sample), (load_s, threads.load), (train_cpu_s, threads.train))
    busy_s = sum(seconds * min(1.0, (used or host.cores) / host.cores) for seconds, used in stages)
    synchronise_s, busy_s = synchronise_seconds(task, accelerators) + fixed_s, busy_s + fixed_s
    return Prediction(
        sample_s,
        load_s,
        transfer_s,
        train_cpu_s,
        train_accelerator_s,
        synchronise_s,
        busy_s,
        prefetch,
    )


def add_described(
    prediction: Prediction,
    task: Task,
    profiles: Sequence[BatchProfile],
    accelerators: Sequence[Device],
    cpu_seeds: float,
    *,
    part: float = 1.0,
) -> Prediction:
    """Add to a prediction the costs that a platform describes and the paper's model omits (§VI-C).

    They are kernel launches, link latencies, and the topology that crosses with features. A trainer
    launches two kernels a layer forward, two backward (one in the first layer), and the loss. With
    layers that multiply first there is one more. A pipelined device launches AGGREGATE and UPDATE
    at the same time. On a device without rates for all of a step, a library launches more kernels,
    some of them hidden by its work. The equations have neither.
    """
    depth, host = len(task.layers), task.platform.host

    def launches_s(device: Device) -> float:
        if device.hardware.pipelined:
            return (2 * depth + 1) * device.hardware.launch_s
        return (4 * depth + bool(task.layers[0].early.source_macs)) * device.hardware.launch_s

    if not accelerators:
        return replace(prediction, train_cpu_s=prediction.train_cpu_s + launches_s(host))
    each = part * (profiles[-1].seeds - cpu_seeds) / len(accelerators)
    vertices, edges = sizes_of(profiles, each)
    topology = sum(4 * (d + 1 + e) for d, e in zip(vertices[1:], edges, strict=True))
    links = [task.platform.host_link(device) for device in accelerators]
    latency_s = max(link.latency_s for link in links)
    crossing_s = max(link.crossing_s(topology) for link in links)
    return replace(
        prediction,
        transfer_s=prediction.transfer_s + crossing_s + latency_s,
        synchronise_s=prediction.synchronise_s + 2.0 * latency_s,
        train_cpu_s=prediction.train_cpu_s + (launches_s(host) if cpu_seeds else 0.0),
        train_accelerator_s=prediction.train_accelerator_s
        + (max(map(launches_s, accelerators)) if each else 0.0),
    )


def note_round(prediction: Prediction, observed: Sequence[StageTimes]) -> str:
    """Return a sentence with an iteration's predicted and observed times, by stage.

    ``observed`` are times of full rounds, of any clock; each stage is their median. The
    synchroniser is not observed, and is left out of both.
    """
    pairs: list[tuple[str, float, list[float | None]]] = [
        ("sampling", prediction.sample_s, [times.sample_cpu for times in observed]),
        ("loading", prediction.load_s, [times.load for times in observed]),
        ("transfer", prediction.transfer_s, [times.transfer for times in observed]),
        ("training on the CPU", prediction.train_cpu_s, [times.train_cpu for times in observed]),
        (
            "on accelerators",
            prediction.train_accelerator_s,
            [times.train_accelerator for times in observed],
        ),
    ]
    texts = []
    for name, predicted_s, taken in pairs:
        known = [seconds for seconds in taken if seconds is not None]
        if known and (predicted_s or any(known)):
            texts.append(f"{name} {format_si(predicted_s, 's')}/{format_si(median(known), 's')}")
    return f"a round by stage, predicted/achieved: {', '.join(texts)}"


def divide_threads(cores: int, parts: int = 8) -> list[HostThreads]:
    """Return ways to divide the host's cores over sampling, loading and training, in eighths.

    A few cores are not divided: sampling and loading get a thread each, and share the trainer's
    cores.
    """
    unit = max(1, cores // parts)
    steps = cores // unit
    ways = []
    for sample in range(1, steps - 1):
        for load in range(1, steps - sample):
            train = cores - (sample + load) * unit
            ways.append(HostThreads(sample * unit, load * unit, train))
    return ways or [HostThreads(1, 1, cores)]


def plan_split(
    task: Task,
    profiles: Sequence[BatchProfile],
    accelerators: Sequence[Device],
    *,
    cpu_trainer: bool,
    prefetch: Prefetch = 2,
    own_threads: bool = False,
) -> Split:
    """Return the split with the least predicted T_execution.

    Searches 33 shares for the CPU trainer (0 to all) and every division of threads in eighths.
    Without prefetching the stages have all threads in turn, unless each host task has
    ``own_threads``. Ties go to fewer seeds on the CPU, then to the threads that fill the pipeline
    soonest.
    """
    total, cores = profiles[-1].seeds, task.platform.host.cores
    if not accelerators:
        candidates = [total]
    elif not cpu_trainer:
        candidates = [0]
    else:
        candidates = sorted({round(total * part / 32) for part in range(33)})
    ways = [HostThreads(cores, cores, cores)]
    if prefetch or own_threads:
        ways = divide_threads(cores)
    splits = [Split(seeds, threads) for seeds in candidates for threads in ways]

    def rank(split: Split) -> tuple[float, int, float]:
        prediction = predict(task, profiles, accelerators, split, prefetch)
        filling_s = prediction.sample_s + prediction.load_s + prediction.train_cpu_s
        return prediction.execution_s, split.cpu_seeds, filling_s

    return min(splits, key=rank)


def refine_split(
    task: Task,
    profiles: Sequence[BatchProfile],
    accelerators: Sequence[Device],
    split: Split,
    prefetch: Prefetch = 2,
) -> Split:
    """Return the best split that DRM may reach from ``split``.

    No single move of seeds to or from the CPU trainer, or of threads between two stages, makes the
    predicted iteration shorter. Moves start with a thirty-second of the seeds and of the threads
    and are halved down to one.
    """
    total = profiles[-1].seeds

    def seconds(candidate: Split) -> float:
        return predict(task, profiles, accelerators, candidate, prefetch).execution_s

    best, best_s = split, seconds(split)
    step = max(1, total // 32)
    while step:
        nearby = _moves(best, step, total, max(1, step * task.platform.host.cores // total))
        found = min(nearby, key=seconds)
        found_s = seconds(found)
        if found_s < best_s:
            best, best_s = found, found_s
        else:
            step //= 2
    return best


def _moves(split: Split, seeds: int, total: int, threads: int) -> list[Split]:
    """Return splits with ``seeds`` moved either way, or ``threads`` moved between two stages."""
    shares = (split.threads.sample, split.threads.load, split.threads.train)
    moves = [
        Split(min(total, max(0, split.cpu_seeds + way * seeds)), split.threads) for way in (-1, 1)
    ]
    for source in range(3):
        for target in range(3):
            if source != target and shares[source] > threads:
                moved = list(shares)
                moved[source] -= threads
                moved[target] += threads
                moves.append(Split(split.cpu_seeds, HostThreads(*moved)))
    return moves
