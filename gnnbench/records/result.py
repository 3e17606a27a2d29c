"""What a run and a comparison of runs come to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from gnnbench.records.data import Mode, Workload
from gnnbench.records.ledger import MachineKind
from gnnbench.records.strategy import Card, Parts
from gnnbench.records.trace import Scheduled, Stage

Provenance = Literal["measured", "modelled", "quoted"]
Status = Literal["done", "out-of-memory", "skipped", "error"]


@dataclass(frozen=True, slots=True)
class Metric:
    """A number with its unit and origin; ``samples`` are the raw values, an epoch each.

    The first ``warmup`` of them are in no summary: the run was not steady yet. A modelled number is
    believed to be within ``error_factor`` times and one part in as much, where that is known.
    """

    value: float
    unit: str
    provenance: Provenance
    samples: tuple[float, ...] = ()
    warmup: int = 0
    error_factor: float | None = None

    @property
    def steady(self) -> tuple[float, ...]:
        """The samples that ``value`` summarises."""
        return self.samples[self.warmup :]


@dataclass(frozen=True, slots=True)
class Equivalence:
    """Whether a run computed what plain single-device training computes on the same data.

    ``reference`` is ``"full-graph"`` or ``"mini-batch"``, and ``sampling`` what plain training drew
    there. ``fault`` is a sentence that names what is off by more than rounding, empty where nothing
    is. ``max_relative_loss_error`` is the largest |loss - reference| / |reference| of the updates
    that were checked, each from the run's own parameters. ``updates`` were computed once more.
    ``looked_at`` counts the updates that were looked at, with every edge of their mini-batches, and
    all updates of the run.
    """

    reference: Mode
    max_relative_loss_error: float
    fault: str = ""
    sampling: str = ""
    updates: int = 0
    looked_at: tuple[int, int] = (0, 0)

    @property
    def holds(self) -> bool:
        return not self.fault


@dataclass(frozen=True, slots=True)
class EpochWork:
    """What a run did in an epoch, by which rows may be ranked beside each other.

    ``updates`` of the parameters, from ``seeds`` whose loss was taken, over ``edges`` that were
    drawn, summed over layers; ``devices`` are the names of those that trained, and ``sampling`` the
    law by which mini-batches were drawn, ``"every neighbour"`` of a full graph. ``kind`` is what
    machine the devices are together, which says how far a modelled time is to be believed.

    Where epochs differ, ``updates`` and ``seeds`` are rounded means over the workload's epochs, and
    ``different`` has each pair of both that any epoch had, ascending.
    """

    updates: int
    seeds: int
    edges: int
    devices: tuple[str, ...]
    sampling: str
    kind: MachineKind | None = None
    different: tuple[tuple[int, int], ...] = ()

    @property
    def alike(self) -> tuple[int, int, str, tuple[tuple[int, int], ...]]:
        """What rows that are ranked beside each other have in common."""
        return self.updates, self.seeds, self.sampling, self.different


@dataclass(frozen=True, slots=True)
class RunResult:
    """One row of a comparison.

    ``strategy`` is the strategy's name; ``label`` what the table calls the row, ``strategy·part``
    when a part was swapped. ``stages`` are the busy seconds of the busiest resource in each stage,
    per epoch. ``timeline`` is the last epoch's. ``other_maths`` says in a word or two by which
    design the maths differ, such as ``"stale"`` where rows of earlier epochs were read; there is
    then no ``equivalence``. ``work`` is there where the run is done. ``idle``
    names ideas that did nothing, such as ``"the cache (no row was found in it)"``. ``stated`` names
    the parts by whose own word a modelled run takes as long as it does, such as ``"kernel mine"``.
    ``left`` names settings of the process that the run's parts changed, such as ``"torch's anomaly
    detection"``; they were restored after each turn. Runs with the same ``lot`` took turns, so that
    their samples are pairs. ``target_accuracy`` is the validation accuracy that was to be reached;
    a run without the metric ``time_to_accuracy`` missed it.
    """

    strategy: str
    label: str
    mode: Mode
    parts: Parts
    repeat: int
    status: Status
    reason: str = ""
    loss: tuple[float, ...] = ()
    accuracy: Mapping[str, float] = field(default_factory=dict)
    equivalence: Equivalence | None = None
    other_maths: str = ""
    work: EpochWork | None = None
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    stages: Mapping[Stage, Metric] = field(default_factory=dict)
    timeline: tuple[Scheduled, ...] = ()
    notes: tuple[str, ...] = ()
    idle: tuple[str, ...] = ()
    stated: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    lot: int = 0
    target_accuracy: float | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """What ``compare`` returns: the setting once, and a row for every run.

    ``model_title`` is what reports call the workload's model. ``noise`` says what disturbed times
    that were measured, ``interrupted`` in which stages the comparison was ended; both are empty
    where nothing did. ``cards`` say how faithful strategies are to the systems that they name, by
    their names; of strategies that have one.
    """

    created: str
    gnnbench: str
    command: tuple[str, ...]
    machine: Mapping[str, str | int | float | None]
    dataset: Mapping[str, str | int | float | tuple[str, ...]]
    workload: Workload
    model_title: str
    platform: str
    platform_description: str
    modelled: bool
    runs: tuple[RunResult, ...]
    noise: str = ""
    interrupted: str = ""
    cards: Mapping[str, Card] = field(default_factory=dict)
