"""What training with HyScale-GNN would take, by its performance model: ``gnnbench plan hyscale``.

A few mini-batches are sampled from the dataset; seconds follow from Equations 5 to 13, bytes from
the mini-batches' sizes. Nothing is trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from gnnbench.errors import IncompatibleParts, UsageError
from gnnbench.kernels.dispatch import RmatStream
from gnnbench.models import build
from gnnbench.parts import Bundle, MiniBatchSampler, Setting
from gnnbench.platforms.machine import Device
from gnnbench.records import BatchProfile, Cell, Table, TableRow, Unit
from gnnbench.studies import Planner, PlanRequest
from gnnbench_plugins.hyscale.performance import (
    Prediction,
    Split,
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

    def plan(self, bundle: Bundle, request: PlanRequest) -> tuple[Table, ...]:
        plan = make_plan(bundle, request)
        return (tabulate_split(plan), tabulate_stages(plan), tabulate_memory(plan))


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What the tables are made of; ``rounds`` is iterations of an epoch."""

    setting: Setting
    bundle: Bundle
    profiles: Sequence[BatchProfile]
    accelerators: tuple[Device, ...]
    split: Split
    prediction: Prediction
    rounds: float


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
    workload = request.workload
    shapes = build(workload, model=request.model).shapes
    setting = Setting(graph, request.platform, workload, shapes, request.model)
    reason = bundle.refusal(setting)
    if reason is not None:
        raise IncompatibleParts(reason)
    bundle.begin(setting)
    rounds = sampler.rounds(0)
    if not rounds:
        raise UsageError(f"dataset {graph.name} has no training vertices to plan for.")
    dtype = torch.float32 if workload.dtype == "float32" else torch.float64
    row_bytes = bundle.communication.row_bytes(graph.num_features, dtype)
    profiles = []
    for size in sorted({max(1, len(rounds[0]) >> k) for k in range(HALVINGS)}):
        unit = Unit(0, sampler.sample(rounds[0][:size], 0, workload.threads))
        count = len(unit.input_ids)
        profiles.append(
            BatchProfile(
                size, unit.vertices, unit.edges, fetched=count, fetched_bytes=count * row_bytes
            )
        )
    trainers = placement.trainers(request.platform)
    host = request.platform.host
    accelerators = tuple(device for device in trainers if device.name != host.name)
    prefetch = bundle.prefetch_stages(request.platform)
    split = plan_split(
        setting, profiles, accelerators, cpu_trainer=host in trainers, prefetch=prefetch
    )
    prediction = predict(setting, profiles, accelerators, split, prefetch)
    count = len(graph.train_ids) / len(rounds[0])
    return Plan(setting, bundle, profiles, accelerators, split, prediction, count)


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
        ),
    )


def tabulate_memory(plan: Plan) -> Table:
    """What an accelerator and the host would hold, and what they can."""
    setting, prefetch = plan.setting, plan.prediction.prefetch
    item, graph = setting.workload.itemsize, setting.dataset.graph
    features = setting.dataset.features
    stored = features.nbytes if hasattr(features, "nbytes") else features.data.nbytes
    held = {
        "host: topology and features": float(graph.indptr.nbytes + graph.indices.nbytes + stored)
    }
    limits = {"host: topology and features": setting.platform.host.memory_bytes}
    for device in plan.accelerators[:1]:
        each = (plan.profiles[-1].seeds - plan.split.cpu_seeds) / len(plan.accelerators)
        vertices, edges = sizes_of(plan.profiles, each)
        label = f"an accelerator, {device.model}"
        held[label] = device_bytes(
            setting, vertices, edges, buffers=2 if prefetch else 1, itemsize=item
        )
        limits[label] = plan.bundle.memory.capacity_bytes(device)
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
    )


def device_bytes(
    setting: Setting,
    vertices: Sequence[float],
    edges: Sequence[float],
    *,
    buffers: int,
    itemsize: int,
) -> float:
    """An accelerator's fullest moment: model and gradients, ``buffers`` of input rows and topology,
    every layer's aggregate and output, and the largest gradient of a layer's input."""
    layers = setting.layers
    rows = vertices[0] * layers[0].in_features * itemsize
    topology = 4.0 * sum(n + 1 + e for n, e in zip(vertices[1:], edges, strict=True))
    outputs = sum(
        n * (layer.aggregate_features + layer.out_features)
        for n, layer in zip(vertices[1:], layers, strict=True)
    )
    gradients = max(
        vertices[number + 1] * layer.aggregate_features
        + (vertices[number] * layer.in_features if number else 0.0)
        for number, layer in enumerate(layers)
    )
    return (
        2.0 * setting.parameter_bytes
        + buffers * (rows + topology)
        + itemsize * (outputs + gradients)
    )
