"""The request of a comparison, and its rows before anything has run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gnnbench.machines.machine import Platform
from gnnbench.records import Dataset, Mode, PartKind, Parts, Workload

#: How many updates of a run are computed again by default: the first, the last, and one that is
#: drawn from those in between. All others are only looked at.
CHECKED_UPDATES = 3

Options = Mapping[PartKind, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Variant:
    """A strategy with some of its parts swapped, which runs instead of the strategy itself."""

    strategy: str
    swaps: tuple[tuple[PartKind, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """A comparison to run. With empty ``modes``, they are chosen from what the strategies share.

    ``strategies`` are names of strategies, or variants of them. ``swaps`` add a swapped row beside
    each, and ``plain`` adds a row with plain parts on the same devices. Each repeat has its own
    seed, unless ``same_seed``. ``checked_updates`` of each run are checked against the reference.

    ``rows``, if there are any, run instead of the strategies with and without swaps. ``demanded``
    names options of mini-batches that were asked for; some row has to train by them.
    """

    strategies: tuple[str | Variant, ...]
    dataset: Dataset
    workload: Workload
    platform: Platform
    swaps: tuple[tuple[PartKind, str], ...] = ()
    options: Options = field(default_factory=dict)
    repeats: int = 1
    target_accuracy: float | None = None
    check: bool = True
    plain: bool = False
    same_seed: bool = False
    checked_updates: int = CHECKED_UPDATES
    modes: tuple[Mode, ...] = ()
    rows: tuple[PlannedRow, ...] = ()
    demanded: tuple[str, ...] = ()


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
