"""The records written during a run: pieces of work, epochs and times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from gnnbench.records.work import Work

Stage = Literal[
    "sample", "load", "transfer", "aggregate", "update", "synchronize", "recompute", "offload"
]
STAGES: tuple[Stage, ...] = (
    "sample",
    "load",
    "transfer",
    "aggregate",
    "update",
    "synchronize",
    "recompute",
    "offload",
)


class StageTimes(NamedTuple):
    """The seconds of each stage of one round: the input of HyScale-GNN's Algorithm 1.

    ``sample_accelerator`` is None if no accelerator can sample, ``train_cpu`` if there is no CPU
    trainer, ``train_accelerator`` if there is no accelerator.
    """

    sample_cpu: float
    load: float
    transfer: float
    sample_accelerator: float | None = None
    train_cpu: float | None = None
    train_accelerator: float | None = None


class Span(NamedTuple):
    """One recorded piece of work: its kind, device, size, dependencies and duration.

    ``place`` names the device or link it runs on. ``resources`` are the names it holds exclusively
    while it runs; a device may have several, as an FPGA's aggregate and update kernels run at once.
    ``seconds`` is the platform clock's duration. ``wall_s`` is the duration on this machine, from
    ``wall_start_s`` on its monotonic clock. ``after`` lists ids of spans it waits for.
    """

    id: int
    stage: Stage
    label: str
    place: str
    resources: tuple[str, ...]
    work: Work
    after: tuple[int, ...]
    epoch: int
    round: int
    layer: int
    seconds: float
    wall_start_s: float
    wall_s: float


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A span's place on the timeline, seconds from the start of its epoch."""

    span: Span
    start_s: float
    end_s: float


ByteKind = Literal[
    "host_to_device",
    "device_to_host",
    "device_to_device",
    "host_to_host",
    "reused",
    "all_to_all",
    "all_reduce",
]
BYTE_KINDS: tuple[ByteKind, ...] = (
    "host_to_device",
    "device_to_host",
    "device_to_device",
    "host_to_host",
    "reused",
    "all_to_all",
    "all_reduce",
)


@dataclass(frozen=True, slots=True)
class EpochTrace:
    """The record of one epoch.

    ``loss`` is the mean over the epoch's training seeds, of which there were ``seeds``;
    ``round_losses`` the mean of each round. ``work_by_device`` counts traversed edges times width,
    for the imbalance. ``wall_s`` spans the whole epoch on this machine; ``harness_s`` is the part
    of it outside every span.
    """

    epoch: int
    spans: tuple[Span, ...]
    bytes: Mapping[ByteKind, int]
    edges: int
    vertices: int
    seeds: int
    loss: float
    round_losses: tuple[float, ...]
    work_by_device: Mapping[str, float]
    wall_s: float
    harness_s: float


@dataclass(frozen=True, slots=True)
class Trace:
    """The result of an engine: the epochs, peak memory by device, and the trained parameters.

    ``parameters`` maps a parameter's name to its final value (NumPy, the workload's dtype).
    ``notes`` are sentences for the report (a plan that was made, a choice). ``idle`` names ideas of
    the parts without effect. ``rank_bytes`` has each rank's peak share of its machine's memory.
    """

    epochs: tuple[EpochTrace, ...]
    peak_bytes: Mapping[str, int]
    parameters: Mapping[str, npt.NDArray[np.generic]]
    preprocessing_s: float
    notes: tuple[str, ...] = ()
    idle: tuple[str, ...] = ()
    rank_bytes: tuple[int, ...] = ()
