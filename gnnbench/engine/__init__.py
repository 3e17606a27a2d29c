"""Trains a bundle of parts for real, and records what it did."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from gnnbench.engine.base import Engine
from gnnbench.engine.checkpoints import Checkpoints
from gnnbench.engine.collectives import Collectives
from gnnbench.engine.device_resident import DeviceResidentEngine
from gnnbench.engine.feature_parallel import FeatureParallelEngine
from gnnbench.engine.host_resident import HostResidentEngine
from gnnbench.engine.host_store import IdleMemory
from gnnbench.engine.mixed import MixedEngine
from gnnbench.engine.processors import on_devices
from gnnbench.engine.recorder import Clock, Recorder
from gnnbench.engine.unit_major import UnitMajorEngine
from gnnbench.errors import IncompatibleParts
from gnnbench.models import GNN
from gnnbench.parts import Bundle, Setting
from gnnbench.platforms.machine import Platform
from gnnbench.records import EpochTrace, Trace

__all__ = ["Checkpoints", "Clock", "Lend", "Watch", "accelerators_here", "make_engine", "train"]

#: Called after every epoch, outside everything timed; returning True ends the training.
Watch = Callable[[EpochTrace, GNN], bool]
#: Called before the first epoch with the memory that a ``Watch`` may write to.
Lend = Callable[[IdleMemory], None]


def make_engine(
    bundle: Bundle,
    setting: Setting,
    recorder: Recorder,
    checkpoints: Checkpoints | None = None,
    collectives: Collectives | None = None,
) -> Engine:
    """The engine that trains such a bundle; its parts must have begun."""
    by_features = bundle.placement.aggregates_by == "features"
    if bundle.sampler.mode == "mini-batch":
        made = FeatureParallelEngine if by_features else UnitMajorEngine
        return made(bundle, setting, recorder, checkpoints)
    if by_features:
        return MixedEngine(bundle, setting, recorder, checkpoints, collectives)
    if bundle.memory.vertex_data == "host":
        return HostResidentEngine(bundle, setting, recorder, checkpoints)
    return DeviceResidentEngine(bundle, setting, recorder, checkpoints)


def accelerators_here(platform: Platform) -> tuple[torch.device, ...]:
    """The accelerators of this machine that a platform's devices compute on, each once."""
    names = dict.fromkeys(device.torch_device for device in platform.accelerators)
    return tuple(torch.device(name) for name in names if name != "cpu")


def train(
    bundle: Bundle,
    setting: Setting,
    clock: Clock,
    watch: Watch | None = None,
    checkpoints: Checkpoints | None = None,
    collectives: Collectives | None = None,
    lend: Lend | None = None,
) -> Trace:
    """Train for the workload's epochs and return everything recorded.

    ``checkpoints`` are filled along the way, or followed if they belong to another run.
    ``collectives`` say where the workers of a placement by features are; by default all are here.

    Raises ``IncompatibleParts`` before anything runs when the parts do not fit together, and
    ``DeviceOutOfMemory`` at the allocation that would exceed a capacity, or that torch refuses.
    """
    reason = bundle.refusal(setting)
    if reason is None and collectives is not None:
        reason = collectives.refuses(len(bundle.placement.trainers(setting.platform)))
    if reason is not None:
        raise IncompatibleParts(reason)
    threads = torch.get_num_threads()
    torch.set_num_threads(setting.workload.threads or threads)
    try:
        with on_devices(bundle.placement.trainers(setting.platform)):
            return _train(bundle, setting, clock, watch, checkpoints, collectives, lend)
    finally:
        torch.set_num_threads(threads)


def _train(
    bundle: Bundle,
    setting: Setting,
    clock: Clock,
    watch: Watch | None,
    checkpoints: Checkpoints | None,
    collectives: Collectives | None,
    lend: Lend | None,
) -> Trace:
    recorder = Recorder(clock, synchronise=accelerators_here(setting.platform))
    # The first optimiser of a process imports for a second what no run should be charged with.
    torch.optim.Adam([torch.zeros(1)])
    started_s = time.perf_counter()
    bundle.begin(setting)
    engine = make_engine(bundle, setting, recorder, checkpoints, collectives)
    engine.lends = lend is not None
    engine.prepare()
    preprocessing_s = time.perf_counter() - started_s
    idle = engine.idle_memory()
    if lend is not None and idle is not None:
        lend(idle)
    epochs = []
    for epoch in range(setting.workload.epochs):
        epochs.append(engine.run_epoch(epoch))
        if watch is not None and watch(epochs[-1], engine.replicas.master):
            break
    return Trace(
        epochs=tuple(epochs),
        peak_bytes=dict(engine.ledger.peak_bytes),
        parameters={
            name: parameter.detach().cpu().numpy().copy()
            for name, parameter in engine.replicas.master.named_parameters()
        },
        preprocessing_s=preprocessing_s,
        notes=(*(note for part in bundle.all() for note in part.notes()), *engine.notes()),
    )
