"""Real training of a bundle of parts, and a record of what it did."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch

from gnnbench.errors import IncompatiblePartsError
from gnnbench.host.mapped import let_all_go
from gnnbench.host.resident import read_share_bytes
from gnnbench.kernels.pages import return_large_arrays
from gnnbench.lowering.base import collect_idle, collect_notes, collect_predictions
from gnnbench.lowering.working_sets import is_streamed
from gnnbench.machines.machine import Device
from gnnbench.machines.ranks import assign_ranks
from gnnbench.models import GNN
from gnnbench.parts import Bundle, OffloadingMemory, Session, Setting
from gnnbench.program.recorder import Clock, Recorder
from gnnbench.program.timers import Timer
from gnnbench.records import EpochTrace, PartKind, Trace
from gnnbench.run.base import Engine
from gnnbench.run.collectives import Processes
from gnnbench.run.device_resident import DeviceResidentEngine
from gnnbench.run.evidence import Evidence
from gnnbench.run.feature_shards import FeatureShardsEngine
from gnnbench.run.host_resident import HostResidentEngine
from gnnbench.run.host_store import IdleMemory
from gnnbench.run.mini_batch import MiniBatchEngine
from gnnbench.run.processors import on_cores, on_devices
from gnnbench.run.streamed import StreamedEngine
from gnnbench.run.timers import SynchronisedTimer

#: A rank's memory is read after preparation and after so many epochs. Later ones are alike, and
#: memory that rank 0 has used to evaluate and check would count.
LOOKED_AT = 2

__all__ = [
    "Clock",
    "Evidence",
    "Lend",
    "Training",
    "Watch",
    "make_engine",
    "open_timer",
    "train",
]

#: Called after every epoch, outside everything timed; returning True ends the training.
Watch = Callable[[EpochTrace, GNN], bool]
#: Called before the first epoch with the memory that a ``Watch`` may write to.
Lend = Callable[[IdleMemory], None]


def make_engine(
    bundle: Bundle,
    setting: Setting,
    recorder: Recorder,
    evidence: Evidence | None = None,
    processes: Processes | None = None,
) -> Engine:
    """Return the engine that trains a bundle; its parts must have begun."""
    if bundle.mode == "mini-batch":
        return MiniBatchEngine(bundle, setting, recorder, evidence, processes)
    if bundle.by_features:
        return FeatureShardsEngine(bundle, setting, recorder, evidence, processes)
    if isinstance(bundle.memory, OffloadingMemory):
        chosen = StreamedEngine if is_streamed(bundle) else HostResidentEngine
        return chosen(bundle, setting, recorder, evidence, processes)
    return DeviceResidentEngine(bundle, setting, recorder, evidence, processes)


def refuse_processes(bundle: Bundle, setting: Setting, processes: Processes | None) -> str | None:
    """Return why these processes cannot train a bundle, as a sentence, or None if they can.

    Without ``processes``, the question is whether this process can train it alone.
    """
    platform = setting.platform
    trainers = bundle.placement.trainers(platform)
    count = 1 + max(assign_ranks(trainers, platform))
    if processes is None:
        if count < 2 or not all(device.pinned for device in trainers):
            return None
        return (
            f"each device of platform {platform.name} needs a separate process, and there is one "
            f"process; start it by gnnbench compare."
        )
    return processes.refuses(count)


def open_timer(devices: Sequence[Device]) -> Timer | None:
    """Return a timer that waits for the accelerators of this machine that devices compute on.

    It is None if there are none.
    """
    names = dict.fromkeys(device.torch_device for device in devices)
    here = [torch.device(name) for name in names if name != "cpu"]
    return SynchronisedTimer(here) if here else None


class Training:
    """A bundle's training in a setting, one epoch at a time, so that several can take turns.

    ``evidence`` is kept of some updates along the way. If there are ``processes``, each trains on
    its own devices; by default all devices are here. ``lends`` says that idle memory will be asked
    for between epochs.

    Raises ``IncompatiblePartsError`` before anything runs when the parts do not fit together.
    Raises ``DeviceOutOfMemoryError`` at the allocation that would exceed a capacity, or that torch
    refuses.
    """

    def __init__(
        self,
        bundle: Bundle,
        setting: Setting,
        clock: Clock,
        evidence: Evidence | None = None,
        processes: Processes | None = None,
        *,
        lends: bool = False,
    ) -> None:
        reason = bundle.refusal(setting)
        if reason is None:
            reason = refuse_processes(bundle, setting, processes)
        if reason is not None:
            raise IncompatiblePartsError(reason)
        if setting.dataset.folder:
            return_large_arrays()
        self._setting = setting
        self._bundle = bundle
        self._processes = processes
        self._trainers = bundle.placement.trainers(setting.platform)
        ranks = [0] * len(self._trainers)
        if processes is not None:
            ranks = list(assign_ranks(self._trainers, setting.platform))
        here = 0 if processes is None else processes.rank
        devices = [
            device for device, rank in zip(self._trainers, ranks, strict=True) if rank == here
        ]
        #: The devices of this process, and its cores if its devices are made of cores.
        self._here = self._trainers if processes is None else tuple(devices)
        self._cores = sorted({core for device in devices for core in device.pinned})
        used = setting.platform.accelerators if processes is None else self._here
        recorder = Recorder(clock, open_timer(used))
        with self._at_work():
            started_s = time.perf_counter()
            bundle = self._bundle = bundle.begin(setting)
            self._engine = make_engine(bundle, setting, recorder, evidence, processes)
            self._engine.lends = lends
            self._engine.prepare()
            #: The seconds of the parts' ``begin`` and of the placement of tensors.
            self.preprocessing_s = time.perf_counter() - started_s
        self._peak_bytes = 0
        self._note_memory()
        if processes is not None:
            # Preparation has read what belongs to other ranks, too.
            let_all_go()

    @property
    def model(self) -> GNN:
        """The model after the last epoch."""
        return self._engine.replicas.master

    @property
    def sessions(self) -> Mapping[PartKind, Session]:
        """The sessions that the parts have opened for this run."""
        return self._engine.lowering.sessions()

    def predicted_epochs(self) -> Mapping[str, float]:
        """Return the seconds of an epoch that the placement predicts, by the basis of each."""
        return collect_predictions(self._engine.lowering)

    @property
    def held_bytes(self) -> int:
        """The peak bytes so far, summed over all memories."""
        return sum(self._engine.ledger.peak_bytes.values())

    def idle_memory(self) -> IdleMemory | None:
        """Return memory that others may write to between epochs, or None if there is none."""
        return self._engine.idle_memory()

    def run_epoch(self, epoch: int) -> EpochTrace:
        """Train one epoch and return what it did; epochs follow each other from 0."""
        with self._at_work():
            trace = self._engine.run_epoch(epoch)
        if epoch < LOOKED_AT:
            self._note_memory()
        return trace

    def _note_memory(self) -> None:
        """Note the memory of this rank; freed memory counts, since the process keeps it."""
        if self._processes is not None:
            self._peak_bytes = max(self._peak_bytes, read_share_bytes())

    def train(self) -> GNN:
        """Train for the workload's epochs, and return the trained model."""
        for epoch in range(self._setting.workload.epochs):
            self.run_epoch(epoch)
        return self.model

    def finish(self, epochs: Sequence[EpochTrace]) -> Trace:
        """Return everything recorded, with the ``epochs`` that the caller has kept."""
        engine, processes = self._engine, self._processes
        return Trace(
            epochs=tuple(epochs),
            peak_bytes=dict(engine.ledger.peak_bytes),
            parameters={
                name: parameter.detach().cpu().numpy().copy()
                for name, parameter in self.model.named_parameters()
            },
            preprocessing_s=self.preprocessing_s,
            notes=(*collect_notes(engine.lowering), *engine.notes(), *self._note_hosts(epochs)),
            idle=collect_idle(engine.lowering),
            rank_bytes=() if processes is None else tuple(processes.gather(self._peak_bytes)),
        )

    def _note_hosts(self, epochs: Sequence[EpochTrace]) -> tuple[str, ...]:
        """Return a note if hosts of the platform send each other rows, and processes need not."""
        if self._processes is None or not any(epoch.bytes["host_to_host"] for epoch in epochs):
            return ()
        return (
            f"bytes between hosts of {self._setting.platform.name} are counted and not sent: a "
            f"process reads the dataset of its node, or gets rows from the process that computed "
            f"them",
        )

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        """Run the body with the workload's threads, on this process's cores and devices.

        Torch's out-of-memory error becomes ``DeviceOutOfMemoryError``.
        """
        threads = torch.get_num_threads()
        torch.set_num_threads(len(self._cores) or self._setting.workload.threads or threads)
        try:
            if self._processes is not None:
                self._processes.serve(self._trainers)
            with on_devices(self._here), on_cores(self._cores):
                yield
        finally:
            torch.set_num_threads(threads)


def train(
    bundle: Bundle,
    setting: Setting,
    clock: Clock,
    watch: Watch | None = None,
    evidence: Evidence | None = None,
    processes: Processes | None = None,
    lend: Lend | None = None,
) -> Trace:
    """Train for the workload's epochs and return everything recorded; see :class:`Training`."""
    training = Training(bundle, setting, clock, evidence, processes, lends=lend is not None)
    idle = training.idle_memory()
    if lend is not None and idle is not None:
        lend(idle)
    epochs = []
    for epoch in range(setting.workload.epochs):
        epochs.append(training.run_epoch(epoch))
        if watch is not None and watch(epochs[-1], training.model):
            break
    return training.finish(epochs)
