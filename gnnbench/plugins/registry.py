"""Offers of the loaded plugins, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import get_args

from gnnbench.errors import PluginError, UsageError
from gnnbench.models import MODELS
from gnnbench.parts import (
    Communication,
    Kernel,
    LayerClass,
    Memory,
    Part,
    Placement,
    Sampler,
)
from gnnbench.plugins.origin import HARNESS, Origin
from gnnbench.plugins.problems import refuse
from gnnbench.records import PART_KINDS, PartKind, Strategy
from gnnbench.reproduce.studies import Planner, Reproduction

#: Base classes of each kind of part; an offered class must derive from one of them.
BASES: Mapping[PartKind, tuple[type[Part], ...]] = {
    "sampler": get_args(Sampler),
    "placement": (Placement,),
    "communication": get_args(Communication),
    "memory": get_args(Memory),
    "kernel": (Kernel,),
}


@dataclass(frozen=True, slots=True)
class Registry:
    """Offers of the loaded plugins, by name. ``problems`` are sentences about skipped plugins.

    ``models`` are the bundled models and those of plugins; only the latter are in
    ``model_origins``.
    """

    parts: Mapping[tuple[PartKind, str], type[Part]]
    strategies_by_name: Mapping[str, Strategy]
    part_origins: Mapping[tuple[PartKind, str], Origin]
    strategy_origins: Mapping[str, Origin]
    models: Mapping[str, LayerClass] = field(default_factory=lambda: MODELS)
    model_origins: Mapping[str, Origin] = field(default_factory=dict)
    planners: Mapping[str, type[Planner]] = field(default_factory=dict)
    reproductions: Mapping[str, type[Reproduction]] = field(default_factory=dict)
    reproduction_origins: Mapping[str, Origin] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    @property
    def strategies(self) -> tuple[Strategy, ...]:
        """Every strategy, by ascending name."""
        return tuple(self.strategies_by_name[name] for name in sorted(self.strategies_by_name))

    def parts_of(self, kind: PartKind) -> tuple[type[Part], ...]:
        """Return every part of one kind, by ascending name."""
        names = sorted(name for offered, name in self.parts if offered == kind)
        return tuple(self.parts[kind, name] for name in names)

    def part(self, kind: PartKind, name: str) -> type[Part]:
        """Return the part class called ``name``; ``PluginError`` with close matches if there is
        none."""
        check_kind(kind)
        if (kind, name) not in self.parts:
            refuse(kind, name, [part.name for part in self.parts_of(kind)], self.problems)
        return self.parts[kind, name]

    def strategy(self, name: str) -> Strategy:
        """Return the strategy called ``name``; ``PluginError`` if there is none."""
        if name not in self.strategies_by_name:
            refuse("strategy", name, sorted(self.strategies_by_name), self.problems)
        return self.strategies_by_name[name]

    def model(self, name: str) -> LayerClass:
        """Return the model called ``name``; ``PluginError`` with close matches if there is none."""
        if name not in self.models:
            refuse("model", name, list(self.models), self.problems)
        return self.models[name]

    def planner(self, name: str) -> type[Planner]:
        """Return the planner of strategy ``name`` from sizes alone; ``PluginError`` without one."""
        self.strategy(name)
        if name not in self.planners:
            known = ", ".join(sorted(self.planners)) or "no strategy"
            raise PluginError(
                f"strategy {name!r} cannot be planned for from sizes alone; give a --dataset, such "
                f"as ogbn-products:0.1. From sizes there are plans for {known}."
            )
        return self.planners[name]

    def reproduction(self, name: str) -> type[Reproduction]:
        """Return the reproduction called ``name``; ``PluginError`` if there is none."""
        if name not in self.reproductions:
            refuse("reproduction", name, sorted(self.reproductions), self.problems)
        return self.reproductions[name]

    def origin(self, offered: Strategy | type[Part]) -> Origin:
        """Return the plugin and distribution of a strategy or part of this registry."""
        if isinstance(offered, Strategy):
            return self.strategy_origins[offered.name]
        return self.part_origins[offered.kind, offered.name]

    def model_origin(self, name: str) -> Origin:
        """Return the origin of the model called ``name``; bundled ones come with the harness."""
        return self.model_origins.get(name, HARNESS)


def check_kind(kind: str) -> None:
    """Raise ``UsageError`` for a word that is no kind of part."""
    if kind not in BASES:
        raise UsageError(f"there is no part {kind!r}; the parts are {', '.join(PART_KINDS)}.")
