"""The question: which parts, with which settings, for this graph, model and machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product

from gnnbench.comparison.request import Options, PlannedRow
from gnnbench.comparison.rows import name_swaps
from gnnbench.machines.machine import Platform
from gnnbench.plugins import Registry
from gnnbench.records import PART_KINDS, Dataset, Mode, PartKind, Parts, Workload

MODES: tuple[Mode, ...] = ("full-graph", "mini-batch")


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """A graph, a model and a machine.

    ``kept`` are parts (kind, name) that every combination has, ``options`` are fixed settings. The
    parts of ``strategies`` are combined, by default of all strategies.
    """

    dataset: Dataset
    workload: Workload
    platform: Platform
    registry: Registry
    modes: tuple[Mode, ...] = MODES
    strategies: tuple[str, ...] = ()
    kept: tuple[tuple[PartKind, str], ...] = ()
    options: Options = field(default_factory=dict)

    def list_parts(self, mode: Mode) -> Mapping[PartKind, tuple[str, ...]]:
        """Return the names of the parts that are combined in a mode, by kind."""
        kept = dict(self.kept)
        bundled = [parts for own, _, parts in self.list_bundles() if own == mode]
        found: dict[PartKind, tuple[str, ...]] = {}
        for kind in PART_KINDS:
            names = [p.name for p in self.registry.parts_of(kind) if mode in p.modes]
            if self.strategies:
                named = {parts.named(kind) for parts in bundled}
                names = [name for name in names if name in named]
            if kind in kept:
                only = self.registry.part(kind, kept[kind])
                names = [only.name] if mode in only.modes else []
            found[kind] = tuple(names)
        return found

    def list_bundles(self) -> tuple[tuple[Mode, str, Parts], ...]:
        """Return the unchanged strategies, in the modes asked for: mode, name and parts."""
        chosen = (
            map(self.registry.strategy, self.strategies)
            if self.strategies
            else self.registry.strategies
        )
        return tuple(
            (mode, strategy.name, parts)
            for strategy in chosen
            for mode, parts in strategy.bundles.items()
            if mode in self.modes
        )

    def list_combinations(self, mode: Mode) -> tuple[Parts, ...]:
        """Return every combination of the parts, in the order of their names."""
        names = self.list_parts(mode)
        return tuple(Parts(*each) for each in product(*(names[kind] for kind in PART_KINDS)))

    def make_row(
        self, mode: Mode, parts: Parts, options: tuple[tuple[PartKind, str, str], ...] = ()
    ) -> PlannedRow:
        """Return a combination as a row, named after the strategy that shares most parts."""
        name, label = self.name_parts(mode, parts)
        swapped = name != label
        return PlannedRow(name, label, mode, parts, swapped=swapped, options=options)

    def name_parts(self, mode: Mode, parts: Parts) -> tuple[str, str]:
        """Return the strategy that shares most of the parts, and its name with the other parts.

        Among equal strategies it is the first by name.
        """
        known = [
            (count_swaps(strategy.bundles[mode], parts), strategy.name)
            for strategy in self.registry.strategies
            if mode in strategy.bundles
        ]
        if not known:
            label = "·".join(parts.named(kind) for kind in PART_KINDS)
            return label, label
        _, name = min(known)
        base = self.registry.strategy(name).bundles[mode]
        swaps = tuple((kind, parts.named(kind)) for kind in PART_KINDS)
        return name, name_swaps(name, base, swaps)

    def list_systems(self, parts: Parts) -> frozenset[str]:
        """Return the plugins that offer the parts."""
        origins = (self.registry.part_origins[kind, parts.named(kind)] for kind in PART_KINDS)
        return frozenset(origin.plugin for origin in origins)


def count_swaps(one: Parts, other: Parts) -> int:
    """Return the number of parts in which two combinations differ."""
    return sum(one.named(kind) != other.named(kind) for kind in PART_KINDS)
