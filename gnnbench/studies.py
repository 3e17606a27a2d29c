"""What a plugin can say of its system without training: plans of runs, and its paper's tables.

Both return :class:`~gnnbench.records.Table`, whose cells say where each number comes from.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from gnnbench.constants import MarkedNumber
from gnnbench.kernels.dispatch import RmatStream
from gnnbench.parts import Bundle, LayerClass, Session, Setting, option_fields
from gnnbench.platforms.machine import Platform
from gnnbench.records import Dataset, LedgerEntry, Mode, PartKind, Table, Workload


class PassProgress(Protocol):
    """Hears how far a planner has got, and takes the times; a planner never does.

    ``begin``, any number of ``advance`` and ``end`` enclose one pass over a graph's edges.
    """

    def begin(self, label: str, edges: int) -> None: ...

    def advance(self, edges: int) -> None: ...

    def end(self) -> None: ...


@dataclass(frozen=True, slots=True, eq=False)
class PlanRequest:
    """What to plan for: a graph, the workload that would be trained on it, a platform.

    A graph too large to store is a stream of edges. ``model`` is the class of the layers that
    ``workload.model`` names. ``workload.threads`` of this machine may count, 0 for every core.
    """

    graph: Dataset | RmatStream
    workload: Workload
    platform: Platform
    model: LayerClass
    progress: PassProgress


class Planner(ABC):
    """Predicts memory, traffic and time of a strategy from counts: ``gnnbench plan``."""

    #: The strategy it plans for.
    name: ClassVar[str]
    summary: ClassVar[str]
    #: By part, the options of which nothing in a plan from sizes alone follows, whatever they do in
    #: training.
    unplanned: ClassVar[Mapping[PartKind, tuple[str, ...]]] = {}

    def refuses(self, bundle: Bundle) -> str | None:
        """Why the options of these parts cannot be planned for from sizes alone, as a sentence;
        None where they can."""
        for kind, names in self.unplanned.items():
            part = getattr(bundle, kind)
            fields = option_fields(type(part))
            for name in names:
                if name in fields and getattr(part, name) != fields[name].default:
                    return (
                        f"a plan for {self.name} from sizes alone does not depend on "
                        f"{kind}.{name}; leave it out, or plan over a dataset."
                    )
        return None

    @abstractmethod
    def plan(self, bundle: Bundle, request: PlanRequest) -> tuple[Table, ...]:
        """Tables of what training with ``bundle`` would take; nothing is trained.

        Raises ``UsageError`` for a request that cannot be planned for; over a dataset that leaves
        these tables out, with its reason.
        """


class Reproduction(ABC):
    """A table of a paper beside this project's numbers for it: ``gnnbench reproduce``."""

    #: Such as ``hongtu-table6``.
    name: ClassVar[str]
    summary: ClassVar[str]
    #: Tables and figures of the same paper that have no results, and so are no reproductions; on
    #: one of the paper's.
    left_out: ClassVar[str] = ""

    @abstractmethod
    def run(self) -> tuple[Table, ...]:
        """The table, the paper's numbers quoted in its cells, and a summary of the errors."""


class Ledger(Reproduction):
    """A reproduction of measurements that others made, machine by machine: beside its tables each
    stands in the document, with what is predicted for it."""

    @abstractmethod
    def entries(self) -> tuple[LedgerEntry, ...]:
        """Every measurement with its prediction; the same ones each time it is asked for."""


class Inventory(Reproduction):
    """A reproduction that lists the constants on which everything modelled rests; beside its tables
    each stands in the document."""

    @abstractmethod
    def numbers(self) -> tuple[MarkedNumber, ...]:
        """Every constant with its mark."""


class Timer(Protocol):
    """Takes the times of a study; a study never does."""

    def measure(self, work: Callable[[], object]) -> float:
        """How long this machine takes for ``work``, seconds; it may be called several times."""


class StudyTrainer(Protocol):
    """Trains for a study; a study never drives a run."""

    def train(
        self, strategy: str, setting: Setting, options: Mapping[PartKind, Mapping[str, str]]
    ) -> Mapping[PartKind, Session]:
        """What the parts of ``strategy``, with ``options``, opened for a run and have of it after
        it, on the model clock of the setting's platform."""

    def follow_accuracy(
        self, strategy: str, mode: Mode, setting: Setting, epochs: Sequence[int]
    ) -> Sequence[Mapping[str, float]]:
        """Train ``strategy`` in a mode, and how accurate the model is after each of ``epochs``,
        ascending: the share of train, val and test vertices that it classifies rightly."""


class TrainedReproduction(Reproduction):
    """A reproduction whose numbers come from training: it says what to train."""

    def __init__(self, trainer: StudyTrainer) -> None:
        self.trainer = trainer


class MeasuredReproduction(Reproduction):
    """A reproduction whose numbers are times of this machine: it says what to time."""

    def __init__(self, timer: Timer) -> None:
        self.timer = timer
