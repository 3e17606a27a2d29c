"""What a plugin can say of its system without training: plans of runs, and its paper's tables.

Both return :class:`~gnnbench.records.Table`, whose cells say where each number comes from.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from gnnbench.parts import Bundle
from gnnbench.platforms.machine import Platform
from gnnbench.records import Graph, Table


@dataclass(frozen=True, slots=True, eq=False)
class PlanRequest:
    """What to plan for: a graph, a model's widths f^0 .. f^L, a platform.

    ``itemsize`` is S_feat, the bytes of one feature; ``threads`` of this machine may count.
    """

    graph: Graph
    graph_name: str
    model: str
    dims: tuple[int, ...]
    platform: Platform
    itemsize: int = 4
    seed: int = 0
    threads: int = 1


class Planner(ABC):
    """Predicts memory, traffic and time of a strategy from counts: ``gnnbench plan``."""

    #: The strategy it plans for.
    name: ClassVar[str]
    summary: ClassVar[str]

    @abstractmethod
    def plan(self, bundle: Bundle, request: PlanRequest) -> tuple[Table, ...]:
        """Tables of what training with ``bundle`` would take; nothing is trained."""


class Reproduction(ABC):
    """A table of a paper beside this project's numbers for it: ``gnnbench reproduce``."""

    #: Such as ``hongtu-table6``.
    name: ClassVar[str]
    summary: ClassVar[str]

    @abstractmethod
    def run(self) -> tuple[Table, ...]:
        """The table, the paper's numbers quoted in its cells, and a summary of the errors."""
