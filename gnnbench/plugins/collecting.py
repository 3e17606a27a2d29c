"""Asks every plugin for its offers; keeps sound ones and refuses ambiguous ones."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pluggy

from gnnbench.host.signals import is_interrupt
from gnnbench.models import MODELS
from gnnbench.plugins.checking import (
    check_any_part,
    check_bundles,
    check_class,
    check_model,
    check_part,
    check_program,
    check_strategy,
)
from gnnbench.plugins.origin import HARNESS, Origin
from gnnbench.plugins.problems import BrokenOfferError, describe, report
from gnnbench.plugins.registry import Registry
from gnnbench.records import PART_KINDS, Strategy
from gnnbench.reproduce.studies import Planner, Reproduction


@dataclass(slots=True)
class Plugin:
    """A registered plugin; ``required`` if ``--plugin`` asked for it."""

    module: object
    origin: Origin
    required: bool


class _Offered:
    """Offers of plugins, by kind and name.

    A name that two plugins offer is contested, and available from neither. It is an error if one of
    the two was asked for, else a problem.
    """

    def __init__(
        self, manager: pluggy.PluginManager, plugins: Sequence[Plugin], problems: list[str]
    ) -> None:
        self._manager, self._plugins, self._problems = manager, plugins, problems
        self._found: dict[tuple[str, str], tuple[Any, Plugin]] = {}
        self.contested: dict[tuple[str, str], str] = {}

    def gather_parts(self) -> None:
        """Ask every plugin by ``gnnbench_parts``, then by the hooks of each kind of part."""
        for plugin in self._plugins:
            for item in _ask(self._manager, plugin, "gnnbench_parts", self._problems):
                try:
                    name, part = check_any_part(item, plugin.origin.plugin)
                    self.add(part.kind, name, part, plugin)
                except BrokenOfferError as problem:
                    report(problem, plugin.required, self._problems)
        for kind in PART_KINDS:
            self.gather(kind, partial(check_part, kind))

    def gather(self, what: str, check: Callable[[object, str], tuple[str, object]]) -> None:
        """Ask every plugin by the hook ``gnnbench_<what>``."""
        for plugin in self._plugins:
            for item in _ask(self._manager, plugin, f"gnnbench_{what}", self._problems):
                try:
                    name, value = check(item, plugin.origin.plugin)
                    self.add(what, name, value, plugin)
                except BrokenOfferError as problem:
                    report(problem, plugin.required, self._problems)

    def add(self, what: str, name: str, value: object, plugin: Plugin) -> None:
        """Keep one offer. Raises ``PluginError`` if a required plugin contests it."""
        own = (value, plugin)
        first = self._found.setdefault((what, name), own)
        if first is own:
            return
        other = first[1]
        said = f"{what} {name!r} is offered by two plugins, {other.origin} and {plugin.origin}"
        if other.origin == plugin.origin:
            said = f"{what} {name!r} is offered twice by plugin {plugin.origin}"
        if other.required or plugin.required:
            problem = BrokenOfferError(f"{said}; rename one of them or leave out its plugin.")
            report(problem, True, self._problems)
        self.contested.setdefault((what, name), said)

    def settle(self) -> None:
        """Remove contested offers, and each strategy that would use one."""
        using: dict[tuple[str, str], list[str]] = {key: [] for key in self.contested}
        for name, (strategy, _) in self.of("strategy").items():
            for bundle in strategy.bundles.values():
                for kind in PART_KINDS:
                    users = using.get((kind, bundle.named(kind)), [])
                    users += [name] * (name not in users)
        for key, said in self.contested.items():
            self._found.pop(key)
            lost = ", ".join(map(repr, using[key]))
            more = f", and no strategy that uses it can be ({lost})" if lost else ""
            self._problems.append(f"{said}, and so is not available{more}; uninstall one of them.")
            for name in using[key]:
                self._found.pop(("strategy", name), None)

    def of(self, what: str) -> dict[str, tuple[Any, Plugin]]:
        """Return the offers of a kind with their plugins, by name."""
        return {name: found for (kind, name), found in self._found.items() if kind == what}

    def values(self, *kinds: str) -> Mapping[Any, Any]:
        """Return the offers: of one kind by name, of several by kind and name."""
        return self._table(kinds, lambda found: found[0])

    def origins(self, *kinds: str) -> Mapping[Any, Origin]:
        """Return the origins of the offers, keyed as :meth:`values` keys them."""
        return self._table(kinds, lambda found: found[1].origin)

    def _table(
        self, kinds: Sequence[str], take: Callable[[tuple[Any, Plugin]], Any]
    ) -> Mapping[Any, Any]:
        table = {
            name if len(kinds) == 1 else (kind, name): take(found)
            for (kind, name), found in self._found.items()
            if kind in kinds
        }
        return types.MappingProxyType(table)


def collect(
    manager: pluggy.PluginManager, plugins: Sequence[Plugin], problems: list[str]
) -> Registry:
    """Ask every plugin for its offers; keep sound ones and refuse ambiguous ones."""
    offered = _Offered(manager, plugins, problems)
    harness = Plugin(None, HARNESS, required=False)
    for name, model in MODELS.items():
        offered.add("model", name, model, harness)
    offered.gather_parts()
    offered.gather("strategy", check_strategy)
    offered.gather("model", check_model)
    offered.gather("program", check_program)
    offered.gather("planner", partial(check_class, "planner", Planner))  # type: ignore[type-abstract]
    offered.gather("reproduction", partial(check_class, "reproduction", Reproduction))  # type: ignore[type-abstract]
    offered.settle()
    parts = offered.values(*PART_KINDS)
    # A strategy may use parts of any plugin, so this waits until all parts are known.
    strategies: dict[str, Strategy] = {}
    for name, (strategy, plugin) in offered.of("strategy").items():
        try:
            check_bundles(strategy, plugin.origin.plugin, parts)
        except BrokenOfferError as problem:
            report(problem, plugin.required, problems)
        else:
            strategies[name] = strategy
    return Registry(
        parts=parts,
        strategies_by_name=types.MappingProxyType(strategies),
        part_origins=offered.origins(*PART_KINDS),
        strategy_origins=offered.origins("strategy"),
        models=offered.values("model"),
        model_origins=offered.origins("model"),
        programs=offered.values("program"),
        program_origins=offered.origins("program"),
        planners=offered.values("planner"),
        reproductions=offered.values("reproduction"),
        reproduction_origins=offered.origins("reproduction"),
        problems=tuple(problems),
    )


def _ask(
    manager: pluggy.PluginManager, plugin: Plugin, hook: str, problems: list[str]
) -> Iterator[object]:
    """Yield the offers of one plugin's hook."""
    name = plugin.origin.plugin
    others = [other for other in manager.get_plugins() if other is not plugin.module]
    try:
        results = manager.subset_hook_caller(hook, others)()
        offers = [item for result in results for item in result]
    except BaseException as error:
        if is_interrupt(error):
            raise
        report(
            BrokenOfferError(
                f"plugin {name!r} offers nothing by {hook}, which must return a list and "
                f"raised {describe(error)}."
            ),
            plugin.required,
            problems,
        )
        return
    yield from offers
