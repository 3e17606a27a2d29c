"""The base class of lowerings: a frame of parts, layers and devices, and how a step is made."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping

from gnnbench.lowering.frame import Frame
from gnnbench.lowering.memory import describe_store
from gnnbench.lowering.stages.averaging import Reduction
from gnnbench.machines.machine import Device
from gnnbench.models import Layer
from gnnbench.parts import (
    Bundle,
    SeedSession,
    Session,
    Setting,
)
from gnnbench.program import Item, Ledger
from gnnbench.records import PartKind


class Lowering(ABC):
    """The epochs of a bundle in one setting, as programs.

    ``frame`` has the parts, layers and devices, which stages share. ``reduction`` averages
    gradients. A reader of the programs may set ``frame.deciding``. ``lends`` says, before
    ``prepare``, that others borrow idle memory between epochs and need some of the host's memory.
    ``cut_notes`` are sentences about how a full graph was cut.
    """

    frame: Frame
    frames: type[Frame] = Frame
    lends: bool = False
    cut_notes: tuple[str, ...] = ()

    def __init__(self, bundle: Bundle, setting: Setting, layers: tuple[Layer, ...]) -> None:
        frame = self.frame = self.frames(bundle, setting, layers)
        self.bundle = bundle
        self.setting = setting
        self.layers = layers
        self.platform = frame.platform
        self.trainers = frame.trainers
        self.slots = frame.slots
        self.hosts = frame.hosts
        self.reduction = Reduction(frame, ring=bundle.communication.all_reduce == "ring")

    @abstractmethod
    def prepare(self, ledger: Ledger) -> None:
        """Plan, and place in ``ledger`` what stays in memory for the whole run.

        Raises ``DeviceOutOfMemoryError`` for what does not fit.
        """

    @abstractmethod
    def run_epoch(self, epoch: int) -> Iterator[Item]:
        """Yield the items of one epoch; epochs follow each other from 0."""

    @property
    def steady(self) -> bool:
        """Whether every epoch is the same program once prepared.

        Such a program can be made once, and one dry run stands for all epochs.
        """
        return False

    @property
    def workers(self) -> tuple[Device, ...]:
        """The devices that count for the imbalance even if they have no work."""
        return ()

    def count_seeds(self) -> tuple[int, ...]:
        """Return how many seeds each update of the last epoch had.

        By default it is one update of all training vertices.
        """
        return (len(self.setting.dataset.train_ids),)

    def count_reduced(self, size_bytes: int, slots: Collection[int]) -> int:
        """Return the bytes that an all-reduce of a tensor moves for the devices ``slots``."""
        return self.reduction.count(size_bytes, slots)

    def sessions(self) -> Mapping[PartKind, Session]:
        """Return what parts have opened for this run, once prepared."""
        return {}

    def notes(self) -> tuple[str, ...]:
        """Return sentences for the reader of the result about decisions of the lowering."""
        return describe_store(self.setting)


def collect_notes(lowering: Lowering) -> tuple[str, ...]:
    """Return the notes of a run's parts, each part's choices first, and of the lowering."""
    bundle, sessions = lowering.bundle, lowering.sessions()
    found: list[str] = []
    for part in bundle.all():
        found += [*bundle.chosen.get(part.kind, ()), *part.notes()]
        if part.kind == "sampler":
            found += lowering.cut_notes
        if part.kind in sessions:
            found += sessions[part.kind].notes()
    return (*found, *lowering.notes())


def collect_idle(lowering: Lowering) -> tuple[str, ...]:
    """Return the techniques of the parts that had no effect in a run."""
    sessions = lowering.sessions()
    opened = [sessions[part.kind] for part in lowering.bundle.all() if part.kind in sessions]
    clauses = [part.idle() for part in lowering.bundle.all()]
    return tuple(clause for each in (*clauses, *(one.idle() for one in opened)) for clause in each)


def collect_predictions(lowering: Lowering) -> Mapping[str, float]:
    """Return the seconds of an epoch that the placement predicts, by the basis of each."""
    shares = lowering.sessions().get("placement")
    return shares.predicted_epochs() if isinstance(shares, SeedSession) else {}
