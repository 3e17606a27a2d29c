"""What this project predicts for a published measurement, by the parts that stand for its system.

A kernel is asked for its seconds, and a training is gone through step by step and priced. No
formula of this study's own is in between, and nothing is tuned: what the model lacks is an error
of the ledger.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from gnnbench.models import build
from gnnbench.parts import Bundle, Kernel, Setting
from gnnbench.platforms import load_platform
from gnnbench.platforms.machine import Platform
from gnnbench.price.epochs import EpochPrice, price_epochs
from gnnbench.records import BatchProfile, BlockSize, Dataset, Work, Workload
from gnnbench_plugins.dgl.kernel import DGLKernel
from gnnbench_plugins.distgnn.communication import DistGNNCommunication
from gnnbench_plugins.distgnn.placement import DistGNNPlacement
from gnnbench_plugins.hongtu.placement import HongTuPlacement
from gnnbench_plugins.pyg.kernel import PyGKernel
from gnnbench_plugins.reference.communication import NoCommunication
from gnnbench_plugins.reference.kernel import TorchKernel
from gnnbench_plugins.reference.memory import HostMemory, ResidentMemory
from gnnbench_plugins.reference.native_kernel import NativeKernel
from gnnbench_plugins.reference.placement import SinglePlacement
from gnnbench_plugins.reference.sampler import WholeGraphSampler
from gnnbench_plugins.sancus.communication import SancusCommunication
from gnnbench_plugins.studies.validation.mini_batches import Draw, find_profile
from gnnbench_plugins.studies.validation.published import (
    Aggregation,
    FullGraphEpoch,
    LayerForward,
    MiniBatchEpoch,
    PublishedCell,
)
from gnnbench_plugins.studies.validation.sizes import (
    AllRowsCross,
    LibraryPlacement,
    SizedMiniBatches,
    SizedPartitions,
    make_dataset,
)

KERNELS: dict[str, type[Kernel]] = {
    "torch": TorchKernel,
    "pyg": PyGKernel,
    "dgl": DGLKernel,
    "native": NativeKernel,
}
ITEMSIZE = 4
#: Rounds of mini-batches that are gone through. They are alike, so that from the first to the
#: second number on every further one takes the same.
FEW, MORE = 4, 5
#: Epochs of a full graph: the first, in which stale copies are made, and the two that count.
EPOCHS = 3


def predict(cell: PublishedCell) -> float:
    """In the unit of the cell."""
    task = cell.task
    if isinstance(task, Aggregation):
        seconds = _aggregate_s(cell, task)
        return task.operations / seconds if cell.unit == "FLOP/s" else seconds
    if isinstance(task, LayerForward):
        return _layer_s(cell, task)
    if isinstance(task, FullGraphEpoch):
        return predict_full_graph_s(cell.machine, cell.kernel, task)
    priced = _price_mini_batches(cell.machine, cell.kernel, task)
    if cell.stages:
        return sum(priced.stages_s.get(stage, 0.0) for stage in cell.stages)
    return priced.epoch_s


# --------------------------------------------------------------------------- kernels


def _aggregate_s(cell: PublishedCell, task: Aggregation) -> float:
    device = SinglePlacement().trainers(load_platform(cell.machine))[0]
    work = Work("aggregate", task.edges, task.rows, task.width, itemsize=ITEMSIZE)
    return KERNELS[cell.kernel]().seconds(work, device)


def _layer_s(cell: PublishedCell, task: LayerForward) -> float:
    device = SinglePlacement().trainers(load_platform(cell.machine))[0]
    kernel = KERNELS[cell.kernel]()
    layer = build(_workload(task.model, task.dims, 1, ())).stack[0]
    block = BlockSize(task.vertices, task.vertices, task.edges)
    aggregate = kernel.seconds(layer.aggregate_work(block, ITEMSIZE), device)
    return aggregate + kernel.seconds(layer.update_work(task.vertices, ITEMSIZE), device)


def _workload(model: str, dims: tuple[int, ...], batch: int, fanouts: tuple[int, ...]) -> Workload:
    return Workload(model=model, dims=dims, epochs=1, batch_size=batch, fanouts=fanouts, seed=0)


def _setting(dataset: Dataset, platform: Platform, workload: Workload) -> Setting:
    return Setting(dataset, platform, workload, build(workload).shapes)


# --------------------------------------------------------------------------- full graphs


@cache
def predict_full_graph_s(machine: str, kernel: str, task: FullGraphEpoch) -> float:
    """Seconds of an epoch; raises ``DeviceOutOfMemory`` where a memory cannot hold it."""
    vertices, edges = round(task.vertices * task.scale), round(task.edges * task.scale)
    dataset = make_dataset(task.graph, vertices, edges, task.dims, vertices)
    platform = shrink(load_platform(machine), task.scale)
    setting = _setting(dataset, platform, _workload(task.model, task.dims, 1, ()))
    epochs = price_epochs(_full_graph_bundle(kernel, task, vertices), setting, EPOCHS)
    return sum(epoch.epoch_s for epoch in epochs[1:]) / (EPOCHS - 1) / task.scale


def shrink(platform: Platform, scale: float) -> Platform:
    """The platform with that share of its memories, and of what it takes to begin anything, so that
    as large a share of a graph takes as large a share of the time."""
    host, *accelerators = (
        replace(
            device,
            memory_bytes=round(device.memory_bytes * scale),
            launch_s=device.launch_s * scale,
        )
        for device in platform.devices
    )
    links = tuple(replace(link, latency_s=link.latency_s * scale) for link in platform.links)
    return replace(platform, host=host, accelerators=tuple(accelerators), links=links)


def _full_graph_bundle(kernel: str, task: FullGraphEpoch, vertices: int) -> Bundle:
    memory, chosen = ResidentMemory(), KERNELS[kernel]()
    if task.system == "library":
        whole = WholeGraphSampler()
        return Bundle(whole, SinglePlacement(), NoCommunication(), memory, chosen)
    if task.system == "sancus":
        others = SizedPartitions(halo=vertices - vertices // task.devices)
        placement = HongTuPlacement(accelerators=task.devices)
        return Bundle(others, placement, SancusCommunication(), memory, chosen)
    halo = SizedPartitions(halo=round((task.replication - 1.0) * vertices / task.devices))
    nodes = DistGNNPlacement(nodes=task.devices)
    return Bundle(halo, nodes, DistGNNCommunication(), memory, chosen)


# --------------------------------------------------------------------------- mini-batches


def profile_of(task: MiniBatchEpoch) -> BatchProfile:
    """Sizes of a mini-batch: drawn from the graph's stand-in, and |V^0| as published."""
    drawn = find_profile(Draw(task.graph, task.fanouts, task.seeds))
    if not task.inputs:
        return drawn
    return replace(drawn, vertices=(task.inputs, *drawn.vertices[1:]))


@cache
def _price_mini_batches(machine: str, kernel: str, task: MiniBatchEpoch) -> EpochPrice:
    """An epoch, or as many rounds as the task says, from ``FEW`` of them and ``MORE``."""
    few, more = (_price_rounds(machine, kernel, task, count) for count in (FEW, MORE))
    rounds = task.batches or task.train / (task.seeds * max(1, task.devices))

    def extend(first: float, second: float) -> float:
        return second + (rounds - MORE) * (second - first) / (MORE - FEW)

    stages_s = {
        stage: extend(few.stages_s[stage], seconds) for stage, seconds in more.stages_s.items()
    }
    return EpochPrice(extend(few.epoch_s, more.epoch_s), stages_s)


def _price_rounds(machine: str, kernel: str, task: MiniBatchEpoch, count: int) -> EpochPrice:
    profile, devices = profile_of(task), max(1, task.devices)
    bundle = Bundle(
        SizedMiniBatches(profile=profile, count=count),
        LibraryPlacement(task.devices, task.workers, task.sampled_by == "devices"),
        AllRowsCross(stages=task.prefetch),
        HostMemory(),
        KERNELS[kernel](),
    )
    # All that is read of the graph itself is how far vertices are numbered.
    seeds = devices * task.seeds
    dataset = make_dataset(task.graph, max(profile.vertices[0], seeds), 0, task.dims, seeds)
    workload = _workload(task.model, task.dims, seeds, task.fanouts)
    return price_epochs(bundle, _setting(dataset, load_platform(machine), workload), 1)[0]
