"""What training with HyScale-GNN would take, by its performance model: ``gnnbench plan hyscale``.

A few mini-batches are sampled from the dataset; seconds follow from Equations 5 to 13, bytes from
the mini-batches' sizes. Nothing is trained.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch

from gnnbench.errors import IncompatibleParts, UsageError
from gnnbench.footprint import DEVICE_BUFFERS, mini_batch_bytes, reserved_bytes, sparse_bytes
from gnnbench.kernels.dispatch import RmatStream
from gnnbench.models import build
from gnnbench.models.products import keeps_sparse, projected_layers
from gnnbench.parts import (
    Bundle,
    CacheMemory,
    LoadingMemory,
    MiniBatchSampler,
    SeedPlacement,
    Setting,
)
from gnnbench.platforms.machine import Device
from gnnbench.records import BatchProfile, Cell, IntArray, PartKind, Table, TableRow, Unit
from gnnbench.studies import Planner, PlanRequest
from gnnbench.units import format_si
from gnnbench_plugins.hyscale.performance import (
    Prediction,
    Split,
    fetched_of,
    plan_split,
    predict,
    sizes_of,
)
from gnnbench_plugins.hyscale.placement import HyScalePlacement

#: Mini-batches that are sampled: a round, and halves of it down to a sixteenth.
HALVINGS = 5


class HyScalePlanner(Planner):
    """Samples a few mini-batches and predicts from their sizes alone."""

    name: ClassVar[str] = "hyscale"
    summary: ClassVar[str] = "stage times, the split and memory, from a few sampled mini-batches"
    # The plan is the first round's, by the equations alone.
    unplanned: ClassVar[Mapping[PartKind, tuple[str, ...]]] = {
        "placement": ("drm", "rule", "skew", "design"),
    }

    def plan(self, bundle: Bundle, request: PlanRequest) -> tuple[Table, ...]:
        plan = make_plan(bundle, request)
        return (tabulate_split(plan), tabulate_stages(plan), tabulate_memory(plan))


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What the tables are made of; ``rounds`` is iterations of an epoch, ``cached`` how many rows
    every accelerator keeps."""

    setting: Setting
    bundle: Bundle
    profiles: Sequence[BatchProfile]
    accelerators: tuple[Device, ...]
    split: Split
    prediction: Prediction
    rounds: float
    cached: int


def make_plan(bundle: Bundle, request: PlanRequest) -> Plan:
    """Sample, split and predict. Raises ``UsageError`` for a stream of edges, and
    ``IncompatibleParts`` where training would."""
    sampler, placement, graph = bundle.sampler, bundle.placement, request.graph
    if isinstance(graph, RmatStream):
        raise UsageError(
            "a plan for hyscale samples neighbours, which a stream of edges cannot give; plan for "
            "a --dataset, such as ogbn-products:0.1."
        )
    if not (isinstance(sampler, MiniBatchSampler) and isinstance(placement, HyScalePlacement)):
        raise IncompatibleParts("a plan for hyscale needs a mini-batch sampler and its placement.")
    if bundle.shares_rows or not isinstance(bundle.memory, LoadingMemory):
        raise IncompatibleParts(
            "a plan for hyscale counts what each mini-batch by itself brings from the host; choose "
            "memory 'host' or 'pagraph', and communication 'hyscale' or 'vanilla'."
        )
    workload = request.workload
    shapes = build(workload, model=request.model).shapes
    setting = Setting(graph, request.platform, workload, shapes, request.model)
    projected = projected_layers(bundle, setting)
    shapes = build(workload, projected, request.model).shapes
    setting = replace(setting, layers=shapes)
    reason = bundle.refusal(setting)
    if reason is not None:
        raise IncompatibleParts(reason)
    bundle = bundle.begin(setting)
    rounds = sampler.rounds(0)
    if not rounds:
        raise UsageError(f"dataset {graph.name} has no training vertices to plan for.")
    dtype = torch.float32 if workload.dtype == "float32" else torch.float64
    row_bytes = graph.num_features * workload.itemsize
    if bundle.rounding is not None:
        row_bytes = bundle.rounding.row_bytes(graph.num_features, dtype)
    trainers, host = placement.trainers(request.platform), request.platform.host
    accelerators = tuple(device for device in trainers if device.name != host.name)
    sparse = keeps_sparse(bundle, setting, trainers, projected)
    prefetch = bundle.prefetch_stages(request.platform)
    sizes = sorted({max(1, len(rounds[0]) >> k) for k in range(HALVINGS)})
    units = [Unit(0, sampler.sample(rounds[0][:size], 0, workload.threads)) for size in sizes]
    whole = BatchProfile(sizes[-1], units[-1].vertices, units[-1].edges)
    cached = choose_cached(setting, bundle, accelerators, whole, prefetch)
    profiles = []
    for size, unit in zip(sizes, units, strict=True):
        count = int(np.count_nonzero(~np.isin(unit.input_ids, cached)))
        profiles.append(
            BatchProfile(
                size,
                unit.vertices,
                unit.edges,
                fetched=count,
                fetched_bytes=count * row_bytes,
                stored=graph.count_stored(unit.input_ids, unit.vertices[1]) if sparse else None,
            )
        )
    split = plan_split(
        setting, profiles, accelerators, cpu_trainer=host in trainers, prefetch=prefetch
    )
    prediction = predict(setting, profiles, accelerators, split, prefetch)
    iterations = len(graph.train_ids) / len(rounds[0])
    return Plan(setting, bundle, profiles, accelerators, split, prediction, iterations, len(cached))


def choose_cached(
    setting: Setting,
    bundle: Bundle,
    accelerators: Sequence[Device],
    whole: BatchProfile,
    prefetch: int,
) -> IntArray:
    """The vertices whose rows every accelerator would keep, beside the model and mini-batches."""
    chosen, memory = np.empty(0, dtype=np.int64), bundle.memory
    if not isinstance(memory, CacheMemory):
        return chosen
    reserved = reserved_bytes(setting.layers, whole, setting.workload.itemsize, prefetch)
    for number, device in enumerate(accelerators):
        free = memory.capacity_bytes(device) - held_all_along(setting, bundle, device)
        room = {number: memory.count_rows(setting, free, reserved)}
        kept = memory.open(setting, room).kept[number]
        chosen = np.intersect1d(chosen, kept) if number else kept
    return chosen


def held_all_along(setting: Setting, bundle: Bundle, device: Device) -> int:
    """Bytes of an accelerator that the model, its gradients and, where it draws its mini-batches,
    the topology take."""
    graph = setting.dataset.graph
    placement = bundle.placement
    draws = isinstance(placement, SeedPlacement) and device in placement.samplers(setting.platform)
    topology = graph.indptr.nbytes + graph.indices.nbytes if draws else 0
    return 2 * setting.parameter_bytes + topology


def tabulate_split(plan: Plan) -> Table:
    """Seeds and mini-batch sizes of each kind of trainer, and the host's threads."""
    total, count = plan.profiles[-1].seeds, len(plan.accelerators)
    host = plan.setting.platform.host
    depth = len(plan.setting.layers)
    rows = []
    shares: list[tuple[str, float]] = [(f"the CPU, {host.model}", plan.split.cpu_seeds)]
    if count:
        each = (total - plan.split.cpu_seeds) / count
        shares.append((f"each of {count} {plan.accelerators[0].model}", each))
    for label, seeds in shares:
        vertices, edges = sizes_of(plan.profiles, seeds)
        sizes = (seeds, *reversed(vertices[:-1]), sum(edges))
        whole = (int(size) if size == int(size) else size for size in sizes)
        rows.append(TableRow(label, tuple(map(Cell, whole))))
    threads = plan.split.threads
    return Table(
        name="split",
        title=f"a round of {total:,} seeds by trainer",
        columns=("seeds", *(f"|V^{layer}|" for layer in reversed(range(depth))), "edges"),
        rows=tuple(rows),
        notes=(
            f"of the host's {host.cores} cores {threads.sample} sample, {threads.load} load and "
            f"{threads.train} train",
        ),
    )


def tabulate_stages(plan: Plan) -> Table:
    """Equations 5 to 13 for an iteration, and an epoch."""
    found, epoch_s = plan.prediction, plan.prediction.epoch_s(plan.rounds, filling=True)
    seconds = {
        "sampling": found.sample_s,
        "loading": found.load_s,
        "transfer": found.transfer_s,
        "training on the CPU": found.train_cpu_s,
        "training on an accelerator": found.train_accelerator_s,
        "synchronisation": found.synchronise_s,
        "an iteration": found.execution_s,
        "an epoch": epoch_s,
    }
    return Table(
        name="stages",
        title=f"predicted on {plan.setting.platform.name}",
        columns=("seconds",),
        rows=tuple(TableRow(label, (Cell(value, "s"),)) for label, value in seconds.items()),
        notes=(
            f"bounded by {found.bottleneck}; {found.edges_per_s / 1e6:,.0f} million edges a second "
            f"(Equation 5), {plan.rounds:.1f} iterations an epoch, which starts with an empty "
            f"pipeline",
            "launches and link latencies are not in it, as in the paper's model (section VI-C)",
            *note_features(plan),
        ),
    )


def note_features(plan: Plan) -> tuple[str, ...]:
    """How sparse features reach the first layer."""
    if isinstance(plan.setting.dataset.features, np.ndarray):
        return ()
    whole, itemsize = plan.profiles[-1], plan.setting.workload.itemsize
    rows = whole.vertices[0]
    dense_bytes = rows * plan.setting.dataset.num_features * itemsize
    if whole.stored is None:
        size_text = format_si(dense_bytes, "B")
        return (f"the {rows:,} rows of a round's sparse features are made dense, {size_text}",)
    size = sparse_bytes(rows, whole.stored[0], itemsize)
    return (
        f"the {rows:,} rows of a round's features stay sparse, {whole.stored[0]:,} values and "
        f"{format_si(size, 'B')} instead of {format_si(dense_bytes, 'B')}",
    )


def tabulate_memory(plan: Plan) -> Table:
    """What an accelerator and the host would hold, and what they can."""
    setting, graph = plan.setting, plan.setting.dataset.graph
    features = setting.dataset.features
    stored = (
        features.nbytes
        if isinstance(features, np.ndarray)
        else features.data.nbytes + features.indices.nbytes + features.indptr.nbytes
    )
    held = {
        "host: topology and features": float(graph.indptr.nbytes + graph.indices.nbytes + stored)
    }
    limits = {"host: topology and features": setting.platform.host.memory_bytes}
    cached_bytes = plan.cached * setting.dataset.num_features * setting.workload.itemsize
    for device in plan.accelerators[:1]:
        label = f"an accelerator, {device.model}"
        held[label] = float(
            held_all_along(setting, plan.bundle, device) + cached_bytes + device_bytes(plan)
        )
        limits[label] = plan.bundle.memory.capacity_bytes(device)
    notes: tuple[str, ...] = ()
    if plan.cached:
        whole = plan.profiles[-1]
        notes = (
            f"an accelerator keeps {plan.cached:,} rows, {format_si(cached_bytes, 'B')}; of "
            f"the {whole.vertices[0]:,} that a round of {whole.seeds:,} seeds reads, "
            f"{whole.fetched:,} are not among them",
        )
    return Table(
        name="memory",
        title="memory",
        columns=("needed", "there is", ""),
        rows=tuple(
            TableRow(
                label,
                (
                    Cell(size, "B"),
                    Cell(float(limits[label]), "B"),
                    Cell(text="fits" if size <= limits[label] else "does not fit"),
                ),
            )
            for label, size in held.items()
        ),
        notes=notes,
    )


def device_bytes(plan: Plan) -> int:
    """What an accelerator's mini-batches take: the one that is trained on, the next one's topology
    and rows where it is prefetched, and, beside those that they become part of, rows that cross."""
    each = (plan.profiles[-1].seeds - plan.split.cpu_seeds) / len(plan.accelerators)
    vertices, edges = sizes_of(plan.profiles, each)
    itemsize = plan.setting.workload.itemsize
    size = mini_batch_bytes(
        plan.setting.layers,
        [math.ceil(count) for count in vertices],
        [math.ceil(count) for count in edges],
        itemsize,
        prepared=DEVICE_BUFFERS[plan.prediction.prefetch],
    )
    if plan.cached or plan.bundle.rounding is not None:
        row_bytes = plan.setting.dataset.num_features * itemsize
        size += math.ceil(fetched_of(plan.profiles, each, row_bytes)[1])
    return size
