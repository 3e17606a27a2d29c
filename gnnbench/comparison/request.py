"""The request of a comparison, made from a job, and its rows before anything has run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Protocol

from gnnbench.datasets import scale_features
from gnnbench.datasets.sharing import share
from gnnbench.host.cores import count_cores
from gnnbench.host.rank import Place
from gnnbench.jobs.groups import Trials
from gnnbench.jobs.job import Job
from gnnbench.jobs.options import defaults
from gnnbench.jobs.preparation import (
    find_placements,
    load_dataset,
    load_machine,
    make_workload,
    note_unused_weights,
)
from gnnbench.machines.describe import LOCAL
from gnnbench.machines.machine import Platform
from gnnbench.parts import Setting
from gnnbench.plugins import Registry
from gnnbench.records import (
    Dataset,
    Mode,
    PartKind,
    Parts,
    ProgramOrigin,
    Workload,
)

if TYPE_CHECKING:
    from gnnbench.comparison.frame import RowSteps, RunState

Options = Mapping[PartKind, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Variant:
    """A strategy with some of its parts swapped, which runs instead of the strategy itself."""

    strategy: str
    swaps: tuple[tuple[PartKind, str], ...] = ()


@dataclass(frozen=True)
@defaults(plain=False)
class Request(Trials):
    """A comparison to run. With empty ``modes``, they are chosen from what the strategies share.

    ``strategies`` are names of strategies, or variants of them. ``swaps`` add a swapped row beside
    each.

    ``rows``, if there are any, run instead of the strategies with and without swaps. ``demanded``
    names options of mini-batches that were asked for; some row has to train by them. ``programs``
    are rows beside those of strategies; there may be no strategy then.
    """

    strategies: tuple[str | Variant, ...]
    dataset: Dataset
    workload: Workload
    platform: Platform
    swaps: tuple[tuple[PartKind, str], ...] = ()
    options: Options = field(default_factory=dict)
    modes: tuple[Mode, ...] = ()
    rows: tuple[PlannedRow, ...] = ()
    demanded: tuple[str, ...] = ()
    programs: OwnRows | None = None


@dataclass(frozen=True, slots=True)
class PlannedRow:
    """A line of the comparison before it has run.

    ``options`` (kind, option, text) are its own, and override those of the request. A ``plain`` row
    was not asked for: other rows are shown beside it.
    """

    strategy: str
    label: str
    mode: Mode
    parts: Parts
    swapped: bool = False
    plain: bool = False
    options: tuple[tuple[PartKind, str, str], ...] = ()


def make_request(
    job: Job,
    registry: Registry,
    demanded: tuple[str, ...] = (),
    place: Place | None = None,
) -> Request:
    """Make the request of a job, with its data and machine, and set torch's threads.

    A rank, at ``place`` among others, has its share of the cores, and shares the data set with the
    other ranks of its machine. Raises ``UsageError`` for names that are unknown or values that are
    contradictory.
    """
    for name, own_swaps in job.chosen:
        registry.strategy(name)
        for kind, part in own_swaps:
            registry.part(kind, part)
    model = registry.model(job.model_name)

    import torch

    ranks = None if place is None else place.local_size
    threads = job.threads or max(1, count_cores() // (ranks or 1))
    torch.set_num_threads(threads)
    own = registry.strategy(job.chosen[0][0]).platform if job.chosen else ""
    # A whole program is only timed here.
    spec = LOCAL if job.programs and job.platform is None else job.platform
    machine = load_machine(spec, ranks, find_placements(registry, job.chosen), own)
    data = _load_data(job, place)
    data = note_unused_weights(data, model)
    return Request(
        strategies=tuple(Variant(*each) if each[1] else each[0] for each in job.chosen),
        dataset=data,
        workload=make_workload(job, data, model, threads),
        platform=machine,
        swaps=job.swaps,
        options=job.settings,
        modes=() if job.mode is None else (job.mode,),
        demanded=demanded,
        **{each.name: getattr(job, each.name) for each in fields(Trials)},
    )


def _load_data(job: Job, place: Place | None) -> Dataset:
    """Return the data set of a job with scaled features, shared by the ranks of this machine."""

    def make() -> Dataset:
        return scale_features(load_dataset(job.dataset, job.seed), job.scaling)

    if place is None or isinstance(job.dataset, Dataset):
        return make()
    return share(make, str(job.dataset or ""), (job.seed, job.scaling), place)


class OwnRow(Protocol):
    """A row that has steps of its own, instead of being made of parts."""

    @property
    def strategy(self) -> str:
        """The name that stands where other rows have their strategy's."""

    @property
    def label(self) -> str:
        """The row's name in tables."""

    @property
    def mode(self) -> Mode:
        """The mode that it trains in."""

    @property
    def origin(self) -> ProgramOrigin:
        """The program as results name it."""

    @property
    def parts(self) -> Parts | None:
        """None."""

    @property
    def swapped(self) -> bool:
        """False."""

    @property
    def plain(self) -> bool:
        """False."""

    def refusal(self, setting: Setting) -> str | None:
        """Return why the row cannot run; None if it can."""

    def identify(self) -> str:
        """Return a text that changes with everything that decides what the row does."""

    def make_steps(self, state: RunState) -> RowSteps:
        """Return the steps of a run, which is not open yet."""


class OwnRows(Protocol):
    """Rows that make their own runs."""

    def list_rows(self, modes: Sequence[Mode]) -> Sequence[OwnRow]:
        """Return the rows in these modes; without modes, each in a mode of its own choice."""

    def close(self) -> None:
        """Release what the rows share."""


#: A row of a comparison, of either kind.
Row = PlannedRow | OwnRow
