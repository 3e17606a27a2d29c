"""The prediction of a published measurement: a plan, or the price of a kernel.

An epoch or its stages are those of a ``gnnbench plan`` command, which the cell prints. A kernel
alone is no plan: the kernel part that stands for its library states its seconds. Nothing is tuned.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gnnbench.constants import Bound
from gnnbench.jobs.job import PlanJob
from gnnbench.jobs.options import spell_command
from gnnbench.jobs.sized import PlanOptions, price_plan
from gnnbench.machines import load_platform
from gnnbench.machines.costs.passes import count_degrees
from gnnbench.machines.costs.roofline import price_operations
from gnnbench.models import build
from gnnbench.parts import Kernel
from gnnbench.records import (
    AggregateWork,
    BatchProfile,
    BlockSize,
    Form,
    PlanReading,
    Workload,
)
from gnnbench_plugins.dgl.kernel import DGLKernel
from gnnbench_plugins.pyg.kernel import PyGKernel
from gnnbench_plugins.reference.kernel import TorchKernel
from gnnbench_plugins.reference.placement import SinglePlacement
from gnnbench_plugins.studies.validation.mini_batches import Draw, find_profile
from gnnbench_plugins.studies.validation.published import (
    Aggregation,
    FullGraphEpoch,
    LayerForward,
    MiniBatchEpoch,
    PublishedCell,
    Task,
)

KERNELS: dict[str, type[Kernel]] = {
    "torch": TorchKernel,
    "pyg": PyGKernel,
    "pyg-messages": PyGKernel,
    "dgl": DGLKernel,
    "dgl-sums-first": DGLKernel,
}
ITEMSIZE: Bound[int] = 4
#: Epochs of a full graph that count, after the first, in which stale copies are made.
EPOCHS: Bound[int] = 2
#: Why a cell has no command.
NO_PLAN = "a kernel or a layer alone is no epoch, so no plan has its time"
#: The options of kernels that stand for a version of a library.
VERSIONS = {"pyg-messages": "kernel.messages=true", "dgl-sums-first": "kernel.projects=never"}
#: The parts that hold all rows on the device.
ON_DEVICE = ("memory=resident", "communication=none")


def predict(cell: PublishedCell) -> float:
    """Predict a cell, in its unit."""
    task = cell.task
    if isinstance(task, Aggregation):
        seconds = _aggregate_s(cell, task)
        return task.operations / seconds if cell.unit == "FLOP/s" else seconds
    if isinstance(task, LayerForward):
        return _layer_s(cell, task)
    return predict_epoch_s(cell.machine, cell.stack.kernel, task)


def predict_epoch_s(machine: str, kernel: str, task: FullGraphEpoch | MiniBatchEpoch) -> float:
    """Return the seconds of the epochs, or of the stages, that a number is of.

    Raises ``DeviceOutOfMemoryError`` where a memory cannot hold them.
    """
    found = price_plan(_make_options(machine, kernel, task))
    if isinstance(task, FullGraphEpoch):
        return task.epochs * found.epoch_s
    if task.stages:
        (digest,) = found.digests
        return sum(digest.stages.get(stage, 0.0) for stage in task.stages)
    return found.epoch_s


def read_plan(cell: PublishedCell) -> PlanReading:
    """Return the command of a cell's plan, and how its prediction is read from it."""
    task = cell.task
    if isinstance(task, Aggregation | LayerForward):
        return PlanReading(reason=NO_PLAN)
    options = _make_options(cell.machine, cell.stack.kernel, task)
    command = spell_command("plan", PlanJob, dict(options))
    if isinstance(task, FullGraphEpoch):
        return PlanReading(command, times=task.epochs)
    return PlanReading(command, stages=task.stages)


# --------------------------------------------------------------------------- plans


def _make_options(machine: str, kernel: str, task: FullGraphEpoch | MiniBatchEpoch) -> PlanOptions:
    """Return the options of the plan of a task."""
    # The stages of an epoch share its plan.
    described = (
        _describe_full_graph(kernel, task)
        if isinstance(task, FullGraphEpoch)
        else _describe_mini_batches(machine, kernel, task)
    )
    swap, options = described.pop("swap"), described.pop("options")
    if task.regularisers:
        options.append(f"kernel.regularisers={task.regularisers}")
    if kernel in VERSIONS:
        options.append(VERSIONS[kernel])
    given = {"model": task.model, "dims": task.dims, "platform": machine, **described}
    return (*given.items(), ("swap", tuple(swap)), ("options", tuple(options)))


def _describe_full_graph(kernel: str, task: FullGraphEpoch) -> dict[str, Any]:
    given: dict[str, Any] = {"vertices": task.vertices, "edges": task.edges // 2}
    if task.system == "library":
        strategy = "pyg" if kernel.startswith("pyg") else "dgl"
        return {"strategy": strategy, "swap": [], "options": [], **given, **_share(task)}
    given |= {"epochs": EPOCHS, **_share(task)}
    if task.system == "sancus":
        options = [f"placement.accelerators={task.devices}"]
        return {"strategy": "sancus", "swap": [], "options": options, **given}
    options = [f"placement.nodes={task.devices}", "communication.delay=0"]
    swap = [] if kernel == "torch" else [f"kernel={kernel}"]
    given["replication"] = task.replication
    return {"strategy": "distgnn", "swap": swap, "options": options, **given}


def _share(task: FullGraphEpoch) -> dict[str, Any]:
    return {"share": task.scale} if task.scale < 1 else {}


def _describe_mini_batches(machine: str, kernel: str, task: MiniBatchEpoch) -> dict[str, Any]:
    profile, loader = profile_of(task), task.loader
    devices = task.described or max(1, task.devices)
    given: dict[str, Any] = {
        "batch_vertices": profile.vertices,
        "batch_edges": profile.edges,
        "train_vertices": count_training_vertices(task),
    }
    options = [f"placement.accelerators={devices}"]
    if task.system == "salient":
        options += [f"sampler.workers={loader.workers}", "communication.precision=half"]
        return {"strategy": "salient", "swap": [], "options": options, **given}
    if devices == 1:
        options = []
    if loader.workers:
        options.append(f"sampler.workers={loader.workers}")
    if loader.persistent:
        options.append("sampler.persistent=true")
    if loader.sampled_by == "devices":
        options.append("sampler.where=devices")
    if loader.prefetch != (1 if loader.workers else 0):
        options.append(f"sampler.prefetch={loader.prefetch}")
    if loader.rows in ("pinned", "in-place"):
        options.append(f"memory.rows={loader.rows}")
    if load_platform(machine).other_hosts:
        options.append("memory.replicated=true")
    strategy, swap = _choose_strategy(kernel, task, several=devices > 1)
    if loader.rows == "device":
        swap += ON_DEVICE
    return {"strategy": strategy, "swap": swap, "options": options, **given}


def _choose_strategy(kernel: str, task: MiniBatchEpoch, *, several: bool) -> tuple[str, list[str]]:
    """Return the strategy of a library's mini-batches, and the parts that replace its own."""
    if kernel.startswith("pyg"):
        return ("pyg-multi-gpu" if several else "pyg"), []
    if task.system == "distdgl":
        return "distdgl", ["sampler=dgl-loader", "kernel=dgl"]
    return "dgl", (["sampler=dgl-loader", "placement=data-parallel"] if several else [])


def count_training_vertices(task: MiniBatchEpoch) -> int:
    """Return the training vertices of the mini-batches that a number is of.

    If the described devices stand for all, only their share of the vertices counts.
    """
    batches, devices = task.batches, max(1, task.devices)
    count = batches.count * batches.seeds * devices if batches.count else batches.train
    return round(count * task.described / devices) if task.described else count


def profile_of(task: MiniBatchEpoch) -> BatchProfile:
    """Return the sizes of a mini-batch: drawn from the graph's stand-in, and |V^0| as published.

    Real neighbourhoods that share more vertices than the stand-in's do so at every hop alike.
    """
    batches = task.batches
    drawn = find_profile(Draw(task.graph, batches.fanouts, batches.seeds))
    if not batches.inputs:
        return drawn
    hops = len(drawn.edges)
    share = (batches.inputs / drawn.vertices[0]) ** (1.0 / hops)
    shares = [share ** (hops - number) for number in range(hops)]
    inner = [
        round(part * count) for part, count in zip(shares[1:], drawn.vertices[1:], strict=False)
    ]
    # A destination has as many edges as before.
    edges = [
        round(part * count) for part, count in zip((*shares[1:], 1.0), drawn.edges, strict=True)
    ]
    return replace(
        drawn,
        vertices=(batches.inputs, *inner, drawn.vertices[-1]),
        edges=tuple(edges),
    )


def count_epoch_edges(task: Task) -> float:
    """Return the edges that a task aggregates over, summed over layers, rounds and devices."""
    if isinstance(task, MiniBatchEpoch):
        batches = task.batches
        rounds = batches.count or batches.train / batches.seeds
        return sum(profile_of(task).edges) * rounds
    layers = len(task.dims) - 1 if isinstance(task, FullGraphEpoch) else 1
    return task.edges * layers


# --------------------------------------------------------------------------- kernels


def _aggregate_s(cell: PublishedCell, task: Aggregation) -> float:
    device = SinglePlacement().trainers(load_platform(cell.machine))[0]
    form: Form = "weighted" if task.weighted else "plain"
    work = AggregateWork(task.edges, task.rows, task.width, itemsize=ITEMSIZE, form=form)
    return KERNELS[cell.stack.kernel]().seconds(work, device)


def _layer_s(cell: PublishedCell, task: LayerForward) -> float:
    device = SinglePlacement().trainers(load_platform(cell.machine))[0]
    kernel = KERNELS[cell.stack.kernel]()
    workload = Workload(task.model, task.dims, epochs=1, batch_size=1, fanouts=(), seed=0)
    layer = build(workload).stack[0]
    block = BlockSize(task.vertices, task.vertices, task.edges)
    seconds = kernel.seconds(layer.aggregate_work(block, ITEMSIZE), device)
    if task.degrees:
        counted = count_degrees(task.vertices, serial=device.kind == "cpu")
        seconds += price_operations([counted], device, kernel.library)
    return seconds + kernel.seconds(layer.update_work(task.vertices, ITEMSIZE), device)
