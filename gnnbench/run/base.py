"""What both engines hold: the bundle, the setting, the trainers, their memories and models."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from gnnbench.lowering import Lowering
from gnnbench.lowering.memory import masks_gradients, open_ledger
from gnnbench.models import Degrees
from gnnbench.models.products import keeps_sparse, projected_layers
from gnnbench.parts import Bundle, Setting
from gnnbench.platforms.machine import Device
from gnnbench.records import EpochTrace, IntArray
from gnnbench.run.evidence import Evidence
from gnnbench.run.host_store import IdleMemory
from gnnbench.run.passes import take_gradients
from gnnbench.run.recorder import Recorder
from gnnbench.run.replicas import Replicas, torch_dtype


class Engine(ABC):
    """Trains one bundle in one setting: ``prepare`` once, then ``run_epoch`` for each epoch.

    ``lends`` says, before ``prepare``, that others borrow idle memory between epochs and need some
    of the host's beside it.
    """

    lends: bool = False
    _lowering: Lowering

    def __init__(
        self,
        bundle: Bundle,
        setting: Setting,
        recorder: Recorder,
        evidence: Evidence | None = None,
    ) -> None:
        self._bundle = bundle
        self._setting = setting
        self._recorder = recorder
        self._evidence = evidence
        self._epoch = 0
        self._platform = setting.platform
        self._host = setting.platform.host
        self._trainers = bundle.placement.trainers(setting.platform)
        self._dtype = torch_dtype(setting.workload)
        self._itemsize = setting.workload.itemsize
        self._degrees = Degrees(setting.dataset.graph.degrees)
        self._labels = torch.from_numpy(setting.dataset.labels)
        self.ledger = open_ledger(bundle, setting.platform, self._trainers)
        projected = projected_layers(bundle, setting)
        masked = masks_gradients(bundle)
        self.replicas = Replicas(setting, self._trainers_here(), projected, masked=masked)
        self._sparse = keeps_sparse(bundle, setting, self._trainers, projected)

    def _trainers_here(self) -> tuple[Device, ...]:
        """The trainers that work in this process: all of them, unless others have some."""
        return self._trainers

    @abstractmethod
    def prepare(self) -> None:
        """Plan, and place what stays in memory for the whole run."""

    @property
    def lowering(self) -> Lowering:
        """What makes the programs that it trains by, once prepared."""
        return self._lowering

    def notes(self) -> tuple[str, ...]:
        """Sentences for the reader of the result, of what the engine decided by itself."""
        return ()

    def idle_memory(self) -> IdleMemory | None:
        """What others may write to between two epochs, once the engine is prepared."""
        return None

    @abstractmethod
    def run_epoch(self, epoch: int) -> EpochTrace:
        """Train one epoch and return what it did."""

    def _begin_update(self, round: int = 0, num_rounds: int = 1) -> None:
        """Let the model be kept as it is before a round of this epoch, where that is wanted."""
        if self._evidence is not None and self._evidence.wants(self._epoch, round, num_rounds):
            with self._recorder.excluded():
                self._evidence.begin(self._epoch, round, self.replicas)

    def _keep_logits(self, ids: IntArray, rows: Tensor, round: int = 0) -> None:
        """Let the logits ``(len(ids), classes)`` of a round be kept, where that is wanted."""
        if self._evidence is not None and self._evidence.keeps(self._epoch, round):
            with self._recorder.excluded():
                self._evidence.add_logits(self._epoch, round, ids, rows)

    def _step(self, gradients: list[Tensor], round: int = 0) -> None:
        """Update every replica by the gradients of a round's mean loss."""
        if self._evidence is not None and self._evidence.keeps(self._epoch, round):
            with self._recorder.excluded():
                self._evidence.add_gradients(self._epoch, round, gradients)
        self.replicas.step(gradients)

    def _update_model(self) -> None:
        """Add up the gradients that the replicas have accumulated, and step."""
        models = {d.torch_device: self.replicas.on(d).stack for d in self._trainers}
        gradients = [take_gradients(stack) for stack in models.values()]
        self._step(
            [
                torch.stack([part.to("cpu") for part in parts]).sum(dim=0)
                for parts in zip(*gradients, strict=True)
            ]
        )
