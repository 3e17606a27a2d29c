"""Predictions of training on counted chunks, by the program that training executes."""

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np

from gnnbench.errors import DeviceOutOfMemoryError, UsageError
from gnnbench.lowering import choose_lowering
from gnnbench.lowering.device_resident import DeviceResidentLowering
from gnnbench.lowering.host_resident import HostResidentLowering
from gnnbench.lowering.memory import allocate_host_graph, masks_gradients
from gnnbench.machines.machine import Link, Platform
from gnnbench.models import build
from gnnbench.models.products import projected_layers
from gnnbench.parts import (
    Bundle,
    Kernel,
    LayerClass,
    OffloadingMemory,
    Setting,
)
from gnnbench.price.dry_run import price_epoch
from gnnbench.price.folds import find_critical_path
from gnnbench.price.model_clock import ModelClock
from gnnbench.program import Ledger
from gnnbench.records import CopyWork, Dataset, Graph, RowsWork, Span, Work, Workload
from gnnbench_plugins.hongtu.counts import ChunkCounts, PartitionHomes, plan_shards, plan_units
from gnnbench_plugins.hongtu.placement import HongTuPlacement

#: Stages of an epoch's time; rows copied within a device are counted as between devices.
Stage = Literal[
    "host to device",
    "device to device",
    "computation",
    "gradients added, and the loss",
    "device to host",
    "all-reduce",
]
STAGES: tuple[Stage, ...] = get_args(Stage)


class PathStep(NamedTuple):
    """Work that occurs ``times`` times on the path that decides an epoch's length."""

    stage: Stage
    place: str
    work: Work
    times: int


@dataclass(frozen=True, slots=True, eq=False)
class Outlook:
    """A predicted epoch of counted chunks.

    ``stages_s`` are the seconds on the critical ``path``; they add up to the epoch. ``host_bytes``
    are the hosts' permanent tensors, ``peak_bytes`` the peak of every memory. If a device is full,
    ``reason`` names it, and the tensor that does not fit.
    """

    epoch_s: float
    stages_s: Mapping[Stage, float]
    path: tuple[PathStep, ...]
    host_bytes: Mapping[str, int]
    peak_bytes: Mapping[str, int]
    reason: str = ""


def foresee(counts: ChunkCounts, bundle: Bundle, setting: Setting) -> Outlook:
    """Predict the first epoch on ``counts`` from their sizes, whether or not it fits.

    Raises ``UsageError`` if the platform has fewer trainers than partitions.
    """
    platform = setting.platform
    trainers = bundle.placement.trainers(platform)
    names = [device.name for device in trainers]
    if len(trainers) < counts.partitions:
        raise UsageError(
            f"platform {platform.name} has {len(platform.accelerators)} accelerators for "
            f"{counts.partitions} partitions; choose as many partitions, or another platform."
        )
    unbounded = {host.name: sys.maxsize for host in platform.hosts}
    roomy = Ledger(dict.fromkeys((*unbounded, *names), sys.maxsize))
    lowering = lay_out(counts, bundle, setting, roomy)
    host_bytes: dict[str, int] = {}
    for host in platform.hosts:
        for name, size in roomy.tensors(host.name).items():
            host_bytes[name] = host_bytes.get(name, 0) + size
    _, epoch = price_epoch(lowering, roomy)
    stages_s: dict[Stage, float] = {}
    steps: Counter[tuple[Stage, str, Work]] = Counter()
    for item in reversed(find_critical_path(epoch.timeline)):
        stage = name_stage(item.span, platform)
        stages_s[stage] = stages_s.get(stage, 0.0) + item.end_s - item.start_s
        steps[stage, item.span.place, item.span.work] += 1
    path = tuple(PathStep(*step, times) for step, times in steps.items())
    capacity = {device.name: bundle.memory.capacity_bytes(device) for device in trainers}
    reason = ""
    if any(roomy.peak_bytes[name] > capacity[name] for name in names):
        tight = Ledger({**unbounded, **capacity})
        try:
            price_epoch(lay_out(counts, bundle, setting, tight), tight)
        except DeviceOutOfMemoryError as error:
            reason = str(error)
    return Outlook(epoch.epoch_s, stages_s, path, host_bytes, roomy.peak_bytes, reason)


def price_path(
    path: Sequence[PathStep], platform: Platform, kernel: Kernel
) -> Mapping[Stage, float]:
    """Return seconds by stage of the same path on a platform of other rates.

    They add up to an epoch there as long as the same steps decide.
    """
    clock = ModelClock(platform, kernel)
    stages_s: dict[Stage, float] = {}
    for stage, place, work, times in path:
        stages_s[stage] = stages_s.get(stage, 0.0) + times * clock.seconds(work, place, 0.0)
    return stages_s


def make_setting(
    vertices: int,
    edges: int,
    platform: Platform,
    workload: Workload,
    model: LayerClass | None = None,
) -> Setting:
    """Return a setting with a graph of this size; its arrays repeat one element."""
    graph = Graph(
        np.broadcast_to(np.int64(0), (vertices + 1,)), np.broadcast_to(np.int32(0), (edges,))
    )
    features = np.broadcast_to(np.float32(0), (vertices, workload.dims[0]))
    none, labels = np.zeros(0, dtype=np.bool_), np.empty(0, dtype=np.int64)
    counted = Dataset("counts alone", graph, features, labels, workload.dims[-1], none, none, none)
    return Setting(counted, platform, workload, build(workload, model=model).shapes, model)


def lay_out(
    counts: ChunkCounts, bundle: Bundle, setting: Setting, ledger: Ledger
) -> HostResidentLowering | DeviceResidentLowering:
    """Lay out the program of counted chunks; permanent tensors are in the ledger."""
    projected = projected_layers(bundle, setting)
    model = build(setting.workload, projected, setting.model, masked=masks_gradients(bundle))
    if not isinstance(bundle.memory, OffloadingMemory):
        shards = DeviceResidentLowering(bundle, setting, model.stack)
        allocate_host_graph(ledger, setting, shards.frame.homes)
        shards.lay_out(ledger, plan_shards(counts))
        return shards
    placement = bundle.placement
    chunks = choose_lowering(bundle)(bundle, setting, model.stack)
    if not isinstance(chunks, HostResidentLowering):
        raise TypeError("vertex data on the host takes memories that offload")
    sockets = placement.sockets(setting, np.arange(counts.partitions))
    spread = isinstance(placement, HongTuPlacement) and not placement.numa_aware
    homes = PartitionHomes(setting.platform, sockets.tolist(), spread=spread)
    units = plan_units(counts, bundle.communication, homes)
    chunks.lay_out(ledger, homes.of_vertices(counts), *units)
    return chunks


def name_stage(span: Span, platform: Platform) -> Stage:
    """Return the stage that a span's time belongs to."""
    place = platform.place(span.place)
    if span.stage == "synchronize":
        return "all-reduce"
    if isinstance(place, Link):
        if not any(host.name in place.ends for host in platform.hosts):
            return "device to device"
        return "host to device" if span.stage == "transfer" else "device to host"
    if not isinstance(span.work, CopyWork | RowsWork):
        return "computation"
    moves = span.stage in ("transfer", "offload") and place not in platform.hosts
    return "device to device" if moves else "gradients added, and the loss"
