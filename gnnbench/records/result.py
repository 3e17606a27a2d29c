"""Results of a run and of a comparison of runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from gnnbench.records.data import Mode, Workload
from gnnbench.records.ledger import MachineKind, OwnError
from gnnbench.records.program import ProgramOrigin
from gnnbench.records.strategy import Card, Parts
from gnnbench.records.trace import Scheduled, Stage

Provenance = Literal["measured", "modelled", "quoted"]
Status = Literal["done", "out-of-memory", "skipped", "error"]


@dataclass(frozen=True, slots=True)
class Metric:
    """A number with its unit and origin; ``samples`` are the raw values, one for each epoch.

    Summaries leave out the first ``warmup`` samples, since the run was not steady yet. A modelled
    number is expected to be within a factor of ``error_factor`` of the true one, up or down, if
    known.
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
    """The outcome of checking a run against plain single-device training on equal data.

    ``reference`` is ``"full-graph"`` or ``"mini-batch"``, and ``sampling`` the plain training's
    sampling law. ``fault`` is a sentence that names a deviation beyond rounding; it is empty if
    there is none. ``max_relative_loss_error`` is the largest |loss - reference| / |reference| of
    the checked updates, each from the run's own parameters. ``updates`` is the number of recomputed
    updates. ``looked_at`` counts the updates with mini-batches inspected edge by edge, and all
    updates of the run.
    """

    reference: Mode
    max_relative_loss_error: float
    fault: str = ""
    sampling: str = ""
    updates: int = 0
    looked_at: tuple[int, int] = (0, 0)

    @property
    def holds(self) -> bool:
        """Whether no fault was found."""
        return not self.fault


@dataclass(frozen=True, slots=True)
class EpochWork:
    """The work of a run in an epoch; it decides which rows are ranked together.

    ``updates`` counts the updates of the parameters, ``seeds`` the vertices in their loss, and
    ``edges`` the drawn edges, summed over layers. ``devices`` are the names of the devices that
    trained. ``sampling`` is the sampling law of mini-batches, and ``"every neighbour"`` for a full
    graph. ``kind`` is the kind of machine, which decides how far a modelled time can be trusted.

    If epochs differ, ``updates`` and ``seeds`` are rounded means over the workload's epochs, and
    ``different`` lists each distinct pair of the two, ascending. ``own_error`` is the error
    of modelled times by epochs measured on the platform.
    """

    updates: int
    seeds: int
    edges: int
    devices: tuple[str, ...]
    sampling: str
    kind: MachineKind | None = None
    different: tuple[tuple[int, int], ...] = ()
    own_error: OwnError | None = None

    @property
    def alike(self) -> tuple[int, int, str, tuple[tuple[int, int], ...]]:
        """The fields that rows ranked together have in common."""
        return self.updates, self.seeds, self.sampling, self.different


@dataclass(frozen=True, slots=True)
class RunResult:
    """One row of a comparison.

    ``strategy`` is the strategy's name; ``label`` is the row's name in the table, ``strategy·part``
    when a part was swapped. ``stages`` are the busy seconds of the busiest resource in each stage,
    per epoch. ``timeline`` is the last epoch's. ``other_maths`` names in a word or two the design
    that makes the maths differ, such as ``"stale"`` if rows of earlier epochs were read; there is
    then no ``equivalence``. ``work`` is set if the run is done. ``idle`` names ideas without
    effect, such as ``"the cache (no row was found in it)"``. ``stated`` names the parts that state
    a modelled run's time themselves, such as ``"kernel mine"``. ``left`` names settings of the
    process that the run's parts changed, such as ``"torch's anomaly detection"``; they were
    restored after each turn. Runs with an equal ``lot`` took turns, so their samples are pairs.
    ``target_accuracy`` is the validation accuracy to reach; a run without the metric
    ``time_to_accuracy`` missed it. A whole program's run has its ``program`` and no ``parts``, and
    its name as ``strategy``. ``unverified`` says what of it could not be checked, so that it is not
    ranked. ``spread_seeds`` is the number of seeds of the reference whose spread holds the loss
    curve and the accuracies of a mini-batch program; 0 if they were not compared.
    """

    strategy: str
    label: str
    mode: Mode
    parts: Parts | None
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
    program: ProgramOrigin | None = None
    unverified: str = ""
    spread_seeds: int = 0


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of ``compare``: the setting once, and a row for every run.

    ``model_title`` is the model's name in reports. ``noise`` names disturbances of measured times,
    and ``interrupted`` the stages in which the comparison was stopped; both are empty otherwise.
    ``cards`` describe, by strategy, how faithful a strategy is to the system that it names, if it
    has a card.
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
