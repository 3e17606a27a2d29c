"""What to compare: the request, and the rows that it is before anything has run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gnnbench.platforms.machine import Platform
from gnnbench.records import Dataset, Mode, PartKind, Parts, Workload

#: Of a run, how many updates are computed once more by default: the first, the last, and one that
#: is drawn from those in between. All others are looked at.
CHECKED_UPDATES = 3

Options = Mapping[PartKind, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Variant:
    """A strategy with some of its parts swapped, which runs instead of the strategy itself."""

    strategy: str
    swaps: tuple[tuple[PartKind, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """What to compare. ``modes`` empty means: chosen from what the strategies have in common.

    ``strategies`` are names, or variants of what has one; ``swaps`` add a row beside each, and
    ``plain`` one beside each that has plain parts on the same devices. Repeats have seeds of their
    own, unless ``same_seed``. ``checked_updates`` of each run are held equal to the reference.

    ``rows``, where there are any, are what runs, instead of the strategies with and without swaps.
    ``demanded`` names options of mini-batches that were asked for; some row has to train by them.
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

    ``options`` (kind, option, text) are its own, and go before those of the request. A ``plain``
    row was not asked for: others are shown beside it.
    """

    strategy: str
    label: str
    mode: Mode
    parts: Parts
    swapped: bool = False
    plain: bool = False
    options: tuple[tuple[PartKind, str, str], ...] = ()
