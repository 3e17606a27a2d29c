"""A plugin's studies without training: plans of runs, and its paper's tables.

Both return :class:`~gnnbench.records.Table`. Its cells state the provenance of each number.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from gnnbench.constants import MarkedNumber
from gnnbench.host.progress import doing
from gnnbench.kernels.dispatch import RmatStream
from gnnbench.machines.machine import Platform
from gnnbench.parts import Bundle, LayerClass, option_fields
from gnnbench.records import Dataset, LedgerEntry, PartKind, Table, Workload


class Pass(NamedTuple):
    """A planner's pass over the edges of a graph, and the seconds that it took."""

    label: str
    edges: int
    seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class PlanRequest:
    """The input of a plan: a graph, the workload that would be trained on it, and a platform.

    A graph too large to store is a stream of edges. ``model`` is the class of the layers that
    ``workload.model`` names. A planner may use ``workload.threads`` threads of this machine to
    count, 0 for every core. ``passes`` are the passes over the edges so far.
    """

    graph: Dataset | RmatStream
    workload: Workload
    platform: Platform
    model: LayerClass
    passes: list[Pass] = field(default_factory=list)

    @contextmanager
    def counting(self, label: str, edges: int) -> Iterator[Callable[[int], None]]:
        """Time the block as a pass over ``edges`` edges; yield a function that counts edges."""
        began_s = time.perf_counter()
        with doing(label, edges) as task:
            yield task.advance
        self.passes.append(Pass(label, edges, time.perf_counter() - began_s))


class Planner(ABC):
    """A predictor of memory, traffic and time of a strategy from counts: ``gnnbench plan``."""

    #: The strategy it plans for.
    name: ClassVar[str]
    summary: ClassVar[str]
    #: By part, the options that a plan from sizes alone does not depend on, whatever they do in
    #: training.
    unplanned: ClassVar[Mapping[PartKind, tuple[str, ...]]] = {}

    def refuses(self, bundle: Bundle) -> str | None:
        """Return one sentence on why sizes alone cannot plan these parts' options, or None."""
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
        """Return tables of the cost of training with ``bundle``, without training.

        Raises ``UsageError`` for a request that cannot be planned. A plan over a data set then
        omits these tables, and states the reason.
        """


class LeftOut(NamedTuple):
    """A table or figure of a paper that ``gnnbench reproduce`` has nothing to compare with.

    ``name`` is such as ``hongtu-figure8``, or ``hongtu-figure1 to 7`` for several of one kind;
    ``shows`` says what it shows, and ``reason`` why there is nothing to compare.
    """

    name: str
    shows: str
    reason: str


class Reproduction(ABC):
    """A table of a paper beside this project's numbers for it: ``gnnbench reproduce``.

    A reproduction compares something that the paper states with something that is computed here.
    """

    #: The name, such as ``hongtu-table6``.
    name: ClassVar[str]
    summary: ClassVar[str]
    #: The tables and figures of the paper that have no reproduction. One class of a paper lists
    #: them all.
    left_out: ClassVar[tuple[LeftOut, ...]] = ()

    @abstractmethod
    def run(self) -> tuple[Table, ...]:
        """Return the table, with the paper's numbers in its cells and a summary of the errors."""


class Ledger(Reproduction):
    """A reproduction of measurements by others, machine by machine.

    The document lists each measurement with its prediction, beside the tables.
    """

    @abstractmethod
    def entries(self) -> tuple[LedgerEntry, ...]:
        """Return every measurement with its prediction; equal for each call."""


class Inventory(Reproduction):
    """A reproduction that lists the constants behind everything modelled.

    The document lists each, beside the tables.
    """

    @abstractmethod
    def numbers(self) -> tuple[MarkedNumber, ...]:
        """Return every constant with its mark."""
