"""The base class of engines: the bundle, the setting, the trainers, their memories and models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np
import torch
from torch import Tensor

from gnnbench.constants import Bound
from gnnbench.errors import DeviceOutOfMemoryError
from gnnbench.host.mapped import ReadAhead
from gnnbench.lowering import Lowering
from gnnbench.lowering.memory import masks_gradients, open_ledger
from gnnbench.machines.machine import Device
from gnnbench.models import Degrees, Layer
from gnnbench.models.products import keeps_sparse, projected_layers
from gnnbench.parts import Bundle, Setting
from gnnbench.program import Item
from gnnbench.records import Block, EpochTrace, IntArray
from gnnbench.run.arrivals import Arrivals, LimitedLinks
from gnnbench.run.collectives import Processes
from gnnbench.run.evidence import Evidence
from gnnbench.run.execute import Arrive, Bodies, Enter, Reader
from gnnbench.run.features import mapped_features
from gnnbench.run.host_store import IdleMemory
from gnnbench.run.passes import take_gradients
from gnnbench.run.ranks import Rank, assign_ranks
from gnnbench.run.recorder import Recorder
from gnnbench.run.replicas import Replicas, torch_dtype

#: The most items of a program that is kept; a longer one would take much memory.
MOST_KEPT: Bound[int] = 4096

#: A block of one vertex that reads itself.
LEAST_BLOCK = Block(
    np.zeros(1, dtype=np.int64), 1, np.arange(2, dtype=np.int64), np.zeros(1, dtype=np.int32)
)


@dataclass(frozen=True, slots=True)
class Here:
    """The devices that this process computes on: ``slots``, among all ``trainers`` of a run."""

    setting: Setting
    trainers: tuple[Device, ...]
    slots: tuple[int, ...]
    dtype: torch.dtype

    def has(self, slot: int) -> bool:
        """Return whether this process has a device."""
        return slot in self.slots

    def device(self, slot: int) -> torch.device:
        """Return the torch device of a trainer."""
        return torch.device(self.trainers[slot].torch_device)


class Engine(ABC):
    """The training of one bundle in one setting: ``prepare`` once, then ``run_epoch`` per epoch.

    If there are ``processes``, this one has some of the devices. The body of a step for one device
    is called in the process that has the device. The body of a step for all devices does the part
    of this process's devices. ``lends`` says, before ``prepare``, that others borrow idle memory
    between epochs and need some of the host's memory beside it.
    """

    lends: bool = False
    _lowering: Lowering

    def __init__(
        self,
        bundle: Bundle,
        setting: Setting,
        recorder: Recorder,
        evidence: Evidence | None = None,
        processes: Processes | None = None,
    ) -> None:
        self._bundle = bundle
        self._setting = setting
        self._recorder = recorder
        self._evidence = evidence
        self._epoch = 0
        #: The items of every epoch, if they are kept.
        self._program: Sequence[Item] = ()
        self._platform = setting.platform
        self._host = setting.platform.host
        self._trainers = bundle.placement.trainers(setting.platform)
        self._dtype = torch_dtype(setting.workload)
        self._rank: Rank | None = None
        if processes is not None:
            ranks = assign_ranks(self._trainers, setting.platform)
            self._rank = Rank(processes, recorder, self._dtype, ranks)
        #: The indices of the devices that this process has.
        self._here = tuple(
            slot
            for slot in range(len(self._trainers))
            if self._rank is None or self._rank.has(slot)
        )
        self._site = Here(setting, self._trainers, self._here, self._dtype)
        self._arrivals = Arrivals(recorder) if self._rank is None else self._rank.arrivals
        self._links = LimitedLinks(setting.platform, self._arrivals)
        #: The speed share of its devices: a process has one device, or all have the same share.
        self._speed = min([self._trainers[slot].speed for slot in self._here], default=1.0)
        self._itemsize = setting.workload.itemsize
        self._degrees = Degrees.of(setting.dataset, setting.workload)
        self._labels = torch.from_numpy(setting.dataset.labels)
        self._ahead = ReadAhead(mapped_features(setting))
        self.ledger = open_ledger(bundle, setting.platform, self._trainers)
        projected = projected_layers(bundle, setting)
        here = tuple(self._trainers[slot] for slot in self._here)
        self.replicas = Replicas(
            setting,
            here,
            projected,
            masked=masks_gradients(bundle),
            scaled=bundle.scales_edges,
        )
        if evidence is not None:
            evidence.follow(self.replicas)
        self._sparse = keeps_sparse(bundle, setting, self._trainers, projected)
        for device in {self._device(slot) for slot in self._here}:
            # A kernel's imports for its first block are not part of an epoch.
            bundle.kernel.adjacency(LEAST_BLOCK, self._dtype, device)

    def _layer(self, number: int, slot: int) -> Layer:
        """Return a device's copy of a layer."""
        return self.replicas.on(self._trainers[slot]).stack[number]

    def _device(self, slot: int) -> torch.device:
        return self._site.device(slot)

    def _has(self, slot: int) -> bool:
        """Return whether this process has a device."""
        return self._site.has(slot)

    def _rank_of_slots(self) -> tuple[Sequence[int], int]:
        """Return the rank that has each device, by device index, and the rank of this process."""
        if self._rank is None:
            return [0] * len(self._trainers), 0
        return self._rank.ranks, self._rank.processes.rank

    def _use(self, bodies: Bodies) -> None:
        """Set the bodies of steps, by the names of their operations."""
        self._bodies = bodies if self._rank is None else self._rank.equip(bodies)

    @abstractmethod
    def prepare(self) -> None:
        """Plan, and place what stays in memory for the whole run."""

    @property
    def lowering(self) -> Lowering:
        """The lowering that makes the programs, once prepared."""
        return self._lowering

    def notes(self) -> tuple[str, ...]:
        """Return sentences for the reader of the result, from the engine and the processes."""
        return () if self._rank is None else self._rank.processes.notes()

    def idle_memory(self) -> IdleMemory | None:
        """Return memory that others may write to between two epochs, once prepared."""
        return None

    @abstractmethod
    def run_epoch(self, epoch: int) -> EpochTrace:
        """Train one epoch and return what it did."""

    def _start_epoch(self, epoch: int) -> None:
        """Begin to record an epoch, together with the other processes."""
        self._epoch = epoch
        self._recorder.start_epoch(epoch)
        if self._rank is not None:
            self._rank.start_epoch()
        else:
            self._arrivals.start()

    def _list_epoch(self, epoch: int) -> Iterable[Item]:
        """Return the items of an epoch.

        A program that is equal in all epochs is made once. With several processes it is made anew,
        because each process changes the steps to its own part.
        """
        if self._program:
            return self._program
        items = self._lowering.run_epoch(epoch)
        if self._rank is not None or not self._lowering.steady:
            return items
        first = list(islice(items, MOST_KEPT))
        rest = list(islice(items, 1))
        if not rest:
            self._program = first
        return chain(first, rest, items)

    def _take(self, items: Iterable[Item]) -> None:
        """Take the items of an epoch, or this process's part of them."""
        with self._exchanging():
            self._open_reader().take(items if self._rank is None else self._rank.take(items))

    def _open_reader(self, enter: Enter | None = None) -> Reader:
        """Return the reader that takes the items of an epoch here."""
        arrive: Arrive | None = None
        if self._rank is not None:
            arrive = self._rank.arrive
        elif self._links:
            arrive = self._arrive_alone
        leave = self._links.leave if self._links else None
        recorder, ledger, bodies = self._recorder, self.ledger, self._bodies
        return Reader(recorder, ledger, bodies, enter, arrive, leave, self._speed)

    def _arrive_alone(self, number: int, after: Sequence[int]) -> None:
        self._arrivals.arrive(after, needed=True)

    @contextmanager
    def _exchanging(self) -> Iterator[None]:
        """Run the steps of an epoch, and wait at the end for all data in flight.

        That also holds if a device runs out of memory, which happens in all processes at once.
        """
        ends = self._arrivals if self._rank is None else self._rank
        try:
            yield
        except DeviceOutOfMemoryError:
            ends.abandon()
            raise
        ends.finish()

    def _end_epoch(self, loss: float, round_losses: list[float], seeds: int) -> EpochTrace:
        """Return the trace of an epoch over all processes; each has its own part of the losses."""
        trace = self._recorder.end_epoch(loss, round_losses, seeds)
        if self._evidence is not None:
            self._evidence.hold_parameters(f"epoch {self._epoch}", "at the end of")
        return trace if self._rank is None else self._rank.merge(trace)

    def _begin_update(self, round: int = 0, num_rounds: int = 1) -> None:
        """Let the evidence keep the model before a round of this epoch."""
        if self._evidence is not None:
            with self._recorder.excluded():
                self._evidence.begin(self._epoch, round, num_rounds, self.replicas)

    def _keep_logits(self, ids: IntArray, rows: Tensor, round: int = 0) -> None:
        """Let the evidence keep the logits ``(len(ids), classes)`` of a round, if it wants them."""
        if self._evidence is not None and self._evidence.keeps(self._epoch, round):
            with self._recorder.excluded():
                self._evidence.add_logits(self._epoch, round, ids, rows)

    def _step(self, gradients: list[Tensor], round: int = 0) -> None:
        """Update every replica by the gradients of a round's mean loss."""
        if self._evidence is None:
            self.replicas.step(gradients)
            return
        with self._recorder.excluded():
            self._evidence.add_gradients(self._epoch, round, gradients)
        self.replicas.step(gradients)
        with self._recorder.excluded():
            self._evidence.end(self._epoch, round, gradients, self.replicas)

    def _update_model(self) -> None:
        """Add up the gradients that the replicas have accumulated, and step."""
        here = [self._trainers[slot] for slot in self._here]
        models = {device.torch_device: self.replicas.on(device).stack for device in here}
        gradients = [take_gradients(stack) for stack in models.values()]
        if len(gradients) == 1:
            sums = [part.to("cpu") for part in gradients[0]]
        else:
            sums = [
                torch.stack([part.to("cpu") for part in parts]).sum(dim=0)
                for parts in zip(*gradients, strict=True)
            ]
        self._step(self._reduce(sums))

    def _reduce(self, gradients: list[Tensor], apart: Collection[int] = ()) -> list[Tensor]:
        """Return the sums of the gradients over all processes.

        Gradients at the positions ``apart`` are not moved by the strategy, since each device needs
        only its own. Processes still share them, outside the epoch's time, for the check of the
        model.
        """
        if self._rank is None:
            return gradients
        moved = [each for place, each in enumerate(gradients) if place not in apart]
        found = self._rank.reduce(
            moved, lambda size: self._lowering.count_reduced(size, self._here)
        )
        own = iter(found)
        with self._recorder.excluded():
            return [
                self._rank.share(each) if place in apart else next(own)
                for place, each in enumerate(gradients)
            ]
