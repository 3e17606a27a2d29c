"""What this project predicts for a published measurement, by the parts that stand for its system.

A kernel is asked for its seconds, and a training is gone through step by step and priced. No
formula of this study's own is in between, and nothing is tuned: what the model lacks is an error
of the ledger.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import ClassVar

from gnnbench.constants import Bound
from gnnbench.machines import load_platform
from gnnbench.machines.costs.passes import Passes, count_degrees
from gnnbench.machines.costs.roofline import price_operations, rates_of
from gnnbench.machines.machine import CallTimes, LibraryRates, Platform
from gnnbench.machines.tables import replace_fields
from gnnbench.models import build
from gnnbench.parts import Bundle, Kernel, MiniBatchSampler, Setting
from gnnbench.price.epochs import EpochPrice, price_epochs
from gnnbench.records import AggregateWork, BatchProfile, BlockSize, Dataset, Form, Workload
from gnnbench_plugins.dgl.kernel import DGLKernel
from gnnbench_plugins.distgnn.communication import DistGNNCommunication
from gnnbench_plugins.distgnn.placement import DistGNNPlacement
from gnnbench_plugins.hongtu.placement import HongTuPlacement
from gnnbench_plugins.pyg.kernel import PyGKernel, PyGMessages
from gnnbench_plugins.reference.communication import NoCommunication
from gnnbench_plugins.reference.data_parallel import DataParallelPlacement
from gnnbench_plugins.reference.kernel import TorchKernel
from gnnbench_plugins.reference.memory import HostMemory, ResidentMemory
from gnnbench_plugins.reference.native_kernel import NativeKernel
from gnnbench_plugins.reference.placement import SinglePlacement
from gnnbench_plugins.reference.sampler import WholeGraphSampler
from gnnbench_plugins.salient.communication import SalientCommunication
from gnnbench_plugins.salient.memory import SalientMemory
from gnnbench_plugins.sancus.communication import SancusCommunication
from gnnbench_plugins.studies.validation.mini_batches import Draw, find_profile
from gnnbench_plugins.studies.validation.published import (
    Aggregation,
    FullGraphEpoch,
    LayerForward,
    MiniBatchEpoch,
    PublishedCell,
    Task,
)
from gnnbench_plugins.studies.validation.sizes import (
    AllRowsCross,
    DGLMiniBatches,
    DGLMiniBatchesInPlace,
    DGLMiniBatchesPinned,
    LibraryPlacement,
    PyGMiniBatches,
    PyGMiniBatchesPersistent,
    PyGMiniBatchesPinned,
    SalientMiniBatches,
    SalientRowsCross,
    SizedMiniBatches,
    SizedPartitions,
    make_dataset,
)

KERNELS: dict[str, type[Kernel]] = {
    "torch": TorchKernel,
    "pyg": PyGKernel,
    "pyg-messages": PyGMessages,
    "dgl": DGLKernel,
    "native": NativeKernel,
}
SAMPLERS: dict[str, Callable[..., MiniBatchSampler]] = {
    "pyg": PyGMiniBatches,
    "pyg-messages": PyGMiniBatches,
    "dgl": DGLMiniBatches,
    "torch": SizedMiniBatches,
    "native": SizedMiniBatches,
}
#: Loaders of programs that draw by PyG, and of systems that draw by DGL.
PYG_LOADERS: dict[str, Callable[..., MiniBatchSampler]] = {
    "pinned": PyGMiniBatchesPinned,
    "persistent": PyGMiniBatchesPersistent,
}
LOADERS: dict[str, Callable[..., MiniBatchSampler]] = {
    "pinned": DGLMiniBatchesPinned,
    "in-place": DGLMiniBatchesInPlace,
}
ITEMSIZE: Bound[int] = 4
#: Tensors of a layer's output that dropout, or batch normalisation, reads and writes, forward and
#: backward: a mask has a byte a value.
REGULARISER: Bound[Passes] = ((1, 1.25), (1.25, 1))
#: Rounds of mini-batches that are gone through. They are alike, so that from the first to the
#: second number on every further one takes the same.
FEW: Bound[int] = 4
MORE: Bound[int] = 5
#: Epochs of a full graph: the first, in which stale copies are made, and the two that count.
EPOCHS: Bound[int] = 3


def make_kernel(name: str, regularisers: int = 0) -> Kernel:
    """Make the kernel part of a library, with ``regularisers`` between two layers of the model."""
    kind = KERNELS[name]
    if not regularisers:
        return kind()
    (read, written), (read_back, written_back) = kind.hidden_passes
    forward, backward = REGULARISER

    class Regularised(kind):  # type: ignore[misc, valid-type]
        hidden_passes: ClassVar[Passes] = (
            (read + regularisers * forward[0], written + regularisers * forward[1]),
            (read_back + regularisers * backward[0], written_back + regularisers * backward[1]),
        )

    made: Kernel = Regularised()
    return made


def predict(cell: PublishedCell) -> float:
    """Predict a cell, in its unit."""
    task = cell.task
    if isinstance(task, Aggregation):
        seconds = _aggregate_s(cell, task)
        return task.operations / seconds if cell.unit == "FLOP/s" else seconds
    if isinstance(task, LayerForward):
        return _layer_s(cell, task)
    if isinstance(task, FullGraphEpoch):
        return predict_full_graph_s(cell.machine, cell.stack.kernel, task)
    # Cells of an epoch's stages share its price.
    whole = task.model_copy(update={"stages": ()})
    priced = _price_mini_batches(cell.machine, cell.stack.kernel, whole)
    if task.stages:
        return sum(priced.stages_s.get(stage, 0.0) for stage in task.stages)
    return priced.epoch_s


# --------------------------------------------------------------------------- kernels


def _aggregate_s(cell: PublishedCell, task: Aggregation) -> float:
    device = SinglePlacement().trainers(load_platform(cell.machine))[0]
    form: Form = "weighted" if task.weighted else "plain"
    work = AggregateWork(task.edges, task.rows, task.width, itemsize=ITEMSIZE, form=form)
    return make_kernel(cell.stack.kernel).seconds(work, device)


def _layer_s(cell: PublishedCell, task: LayerForward) -> float:
    device = SinglePlacement().trainers(load_platform(cell.machine))[0]
    kernel = make_kernel(cell.stack.kernel)
    layer = build(_workload(task.model, task.dims, 1, ())).stack[0]
    block = BlockSize(task.vertices, task.vertices, task.edges)
    seconds = kernel.seconds(layer.aggregate_work(block, ITEMSIZE), device)
    if task.degrees:
        counted = count_degrees(task.vertices, serial=device.kind == "cpu")
        seconds += price_operations([counted], device, kernel.library)
    return seconds + kernel.seconds(layer.update_work(task.vertices, ITEMSIZE), device)


def _workload(model: str, dims: tuple[int, ...], batch: int, fanouts: tuple[int, ...]) -> Workload:
    return Workload(model=model, dims=dims, epochs=1, batch_size=batch, fanouts=fanouts, seed=0)


def _setting(dataset: Dataset, platform: Platform, workload: Workload) -> Setting:
    return Setting(dataset, platform, workload, build(workload).shapes)


# --------------------------------------------------------------------------- full graphs


@cache
def predict_full_graph_s(machine: str, kernel: str, task: FullGraphEpoch) -> float:
    """Return the seconds of the epochs that a number is of.

    Raises ``DeviceOutOfMemoryError`` where a memory cannot hold them.
    """
    vertices, edges = round(task.vertices * task.scale), round(task.edges * task.scale)
    dataset = make_dataset(task.graph, vertices, edges, task.dims, vertices)
    platform = shrink(load_platform(machine), task.scale)
    setting = _setting(dataset, platform, _workload(task.model, task.dims, 1, ()))
    chosen = make_kernel(kernel, task.regularisers)
    epochs = price_epochs(_full_graph_bundle(chosen, task, vertices), setting, EPOCHS)
    epoch_s = sum(epoch.epoch_s for epoch in epochs[1:]) / (EPOCHS - 1) / task.scale
    return task.epochs * epoch_s


def shrink(platform: Platform, scale: float) -> Platform:
    """Scale the memories and caches of a platform, and the time that it takes to begin anything.

    A share of a graph then takes as large a share of the time.
    """
    fronts = {
        name: LibraryRates(calls=CallTimes(call_s=kernel.library.call_s * scale))
        for name, kernel in KERNELS.items()
    }
    host, *accelerators = (
        replace_fields(
            device,
            memory_bytes=round(device.hardware.memory_bytes * scale),
            launch_s=device.hardware.launch_s * scale,
            cache_bytes=device.hardware.cache_bytes * scale,
            mapped_from_bytes=rates_of(device).pages.fresh_from_bytes * scale,
            libraries=fronts,
        )
        for device in platform.devices
    )
    links = tuple(replace(link, latency_s=link.latency_s * scale) for link in platform.links)
    return replace(platform, host=host, accelerators=tuple(accelerators), links=links)


def _full_graph_bundle(chosen: Kernel, task: FullGraphEpoch, vertices: int) -> Bundle:
    memory = ResidentMemory()
    if task.system == "library":
        whole = WholeGraphSampler()
        return Bundle(whole, SinglePlacement(), NoCommunication(), memory, chosen)
    if task.system == "sancus":
        others = SizedPartitions(halo=vertices - vertices // task.devices)
        placement = HongTuPlacement(accelerators=task.devices)
        return Bundle(others, placement, SancusCommunication(), memory, chosen)
    halo = SizedPartitions(halo=round((task.replication - 1.0) * vertices / task.devices))
    nodes = DistGNNPlacement(nodes=task.devices)
    return Bundle(halo, nodes, DistGNNCommunication(delay=0), memory, chosen)


# --------------------------------------------------------------------------- mini-batches


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
        return sum(profile_of(task).edges) * count_rounds(task) * max(1, task.devices)
    layers = len(task.dims) - 1 if isinstance(task, FullGraphEpoch) else 1
    return task.edges * layers


def count_rounds(task: MiniBatchEpoch) -> float:
    """Return the rounds of mini-batches that a number is of."""
    batches = task.batches
    return batches.count or batches.train / (batches.seeds * max(1, task.devices))


@cache
def _price_mini_batches(machine: str, kernel: str, task: MiniBatchEpoch) -> EpochPrice:
    """Price an epoch, or the rounds of the task, from ``FEW`` and ``MORE`` of its rounds.

    Both counts are larger if threads have several rounds under way, so that the first rounds are
    over.
    """
    under_way = task.loader.workers if task.system == "salient" else 0
    counts = 2 * under_way + FEW, 3 * under_way + MORE
    few, more = (_price_rounds(machine, kernel, task, count) for count in counts)
    rounds = count_rounds(task)

    def extend(first: float, second: float) -> float:
        return second + (rounds - counts[1]) * (second - first) / (counts[1] - counts[0])

    stages_s = {
        stage: extend(few.stages_s[stage], seconds) for stage, seconds in more.stages_s.items()
    }
    return EpochPrice(extend(few.epoch_s, more.epoch_s), stages_s)


def _price_rounds(machine: str, kernel: str, task: MiniBatchEpoch, count: int) -> EpochPrice:
    profile, platform = profile_of(task), load_platform(machine)
    batches, loader = task.batches, task.loader
    devices = task.described or max(1, task.devices)
    chosen = make_kernel(kernel, task.regularisers)
    memory = SalientMemory() if platform.other_hosts else HostMemory()
    if task.system == "salient":
        bundle = Bundle(
            SalientMiniBatches(profile=profile, count=count, workers=loader.workers),
            DataParallelPlacement(accelerators=devices),
            SalientRowsCross(SalientCommunication(precision="half")),
            SalientMemory(),
            chosen,
        )
    else:
        loaders = PYG_LOADERS if kernel.startswith("pyg") else LOADERS
        sampler = SAMPLERS[kernel] if loader.rows == "library" else loaders[loader.rows]
        bundle = Bundle(
            sampler(profile=profile, count=count),
            LibraryPlacement(
                min(task.devices, devices), loader.workers, loader.sampled_by == "devices"
            ),
            AllRowsCross(stages=loader.prefetch),
            memory,
            chosen,
        )
    # All that is read of the graph itself is how far vertices are numbered.
    seeds = devices * batches.seeds
    dataset = make_dataset(task.graph, max(profile.vertices[0], seeds), 0, task.dims, seeds)
    workload = _workload(task.model, task.dims, seeds, batches.fanouts)
    return price_epochs(bundle, _setting(dataset, platform, workload), 1)[0]
