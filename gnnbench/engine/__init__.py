"""Trains a bundle of parts for real, and records what it did."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from gnnbench.engine.checkpoints import Checkpoints
from gnnbench.engine.layer_major import LayerMajorEngine
from gnnbench.engine.recorder import Clock, Recorder
from gnnbench.engine.unit_major import UnitMajorEngine
from gnnbench.errors import IncompatibleParts
from gnnbench.models import GNN
from gnnbench.parts import Bundle, Setting
from gnnbench.records import EpochTrace, Trace

__all__ = ["Checkpoints", "Clock", "Watch", "train"]

#: Called after every epoch, outside everything timed; returning True ends the training.
Watch = Callable[[EpochTrace, GNN], bool]


def train(
    bundle: Bundle,
    setting: Setting,
    clock: Clock,
    watch: Watch | None = None,
    checkpoints: Checkpoints | None = None,
) -> Trace:
    """Train for the workload's epochs and return everything recorded.

    ``checkpoints`` are filled along the way, or followed if they belong to another run.

    Raises ``IncompatibleParts`` before anything runs when the parts do not fit together, and
    ``DeviceOutOfMemory`` at the allocation that would exceed a capacity.
    """
    reason = bundle.refusal(setting)
    if reason is not None:
        raise IncompatibleParts(reason)
    threads = torch.get_num_threads()
    torch.set_num_threads(setting.workload.threads or threads)
    try:
        return _train(bundle, setting, clock, watch, checkpoints)
    finally:
        torch.set_num_threads(threads)


def _train(
    bundle: Bundle,
    setting: Setting,
    clock: Clock,
    watch: Watch | None,
    checkpoints: Checkpoints | None,
) -> Trace:
    uses_cuda = any(device.torch_device != "cpu" for device in setting.platform.devices)
    recorder = Recorder(clock, synchronise=uses_cuda)
    started_s = time.perf_counter()
    for part in bundle.all():
        part.begin(setting)
    mini_batch = bundle.sampler.mode == "mini-batch"
    make = UnitMajorEngine if mini_batch else LayerMajorEngine
    engine = make(bundle, setting, recorder, checkpoints)
    engine.prepare()
    preprocessing_s = time.perf_counter() - started_s
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
