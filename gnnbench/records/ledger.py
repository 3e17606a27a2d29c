"""Published measurements, each beside this project's prediction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from gnnbench.records.trace import Stage

#: Kinds of machines: CPUs, one accelerator or several, several hosts.
MachineKind = Literal["cpu", "gpu", "multi-gpu", "multi-node", "fpga"]
#: The work of a time: an epoch of mini-batches, an epoch of a whole graph, or a part of an epoch.
#: ``any`` stands for both kinds of epoch.
WorkKind = Literal["sampled", "full graph", "part", "any"]
#: The class of an epoch by the edges that it aggregates over, summed over layers.
SizeClass = Literal["small", "large", "any"]


class OwnError(NamedTuple):
    """The error of a kernel's modelled times in one mode, by epochs measured on the platform.

    Most of ``groups`` independent groups lie within ``factor`` of their predictions.
    """

    groups: int
    factor: float


@dataclass(frozen=True, slots=True)
class PathKind:
    """A kind of priced path; the model's errors are known by kind of path.

    ``library`` is the family of the kernel part: ``pyg`` for both kernels of PyG. If epochs of
    the kernel and mode were measured on the platform, they give its ``own`` error.
    """

    machine: MachineKind
    library: str
    work: WorkKind
    size: SizeClass
    own: OwnError | None = None

    def __str__(self) -> str:
        return f"{self.machine}, {self.library}, {self.work}, {self.size}"


@dataclass(frozen=True, slots=True)
class Subject:
    """The software, graph and model of a measurement; ``kernel`` models the library."""

    library: str
    kernel: str
    graph: str = ""
    model: str = ""


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a measurement.

    ``quote`` is the wording of the ``source``, ``conditions`` how it was measured, ``doubts`` the
    uncertainties, and ``inferred`` the facts that are not in the source. ``sizes`` is the origin of
    the sizes behind the prediction.
    """

    source: str
    quote: str
    conditions: str = ""
    doubts: str = ""
    inferred: tuple[str, ...] = ()
    sizes: str = ""


@dataclass(frozen=True, slots=True)
class PlanReading:
    """The ``gnnbench plan`` command that has a prediction, and how the prediction is read from it.

    The prediction is ``times`` the epoch time of the plan, or the sum of its ``stages`` if there
    are any. Without a ``command``, ``reason`` says why there is none.
    """

    command: str = ""
    times: int = 1
    stages: tuple[Stage, ...] = ()
    reason: str = ""

    @property
    def what(self) -> str:
        """The quantity to read: ``"epoch_time"``, ``"200 x epoch_time"`` or ``"stages sample"``."""
        if not self.command:
            return ""
        if self.stages:
            return f"stages {' + '.join(self.stages)}"
        return "epoch_time" if self.times == 1 else f"{self.times} x epoch_time"


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A published measurement and this project's prediction, both in ``unit``, unprefixed.

    ``machine`` names the platform that describes the measured machine. ``what`` names the quantity
    and the training. Entries of one ``group`` are not independent of each other. ``fitted_on``
    names the constants fitted on this very measurement, and the readings chosen in view of it. Such
    an entry proves nothing, and neither does its group. ``plan`` is the command that predicts it.
    """

    id: str
    group: str
    machine: str
    what: str
    measured: float
    predicted: float
    unit: str
    path: PathKind
    subject: Subject
    origin: Origin
    fitted_on: tuple[str, ...] = ()
    plan: PlanReading = PlanReading()

    @property
    def source(self) -> str:
        """The source of the measurement."""
        return self.origin.source

    @property
    def kind(self) -> MachineKind:
        """The kind of machine."""
        return self.path.machine

    @property
    def error(self) -> float:
        """(predicted - measured) / measured."""
        return (self.predicted - self.measured) / self.measured

    @property
    def factor(self) -> float:
        """The larger of the two numbers divided by the smaller one; 1 is no error."""
        return max(self.predicted / self.measured, self.measured / self.predicted)
