"""Asks every plugin what it offers; keeps what is sound and refuses what is ambiguous."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import pluggy

from gnnbench.errors import PluginError
from gnnbench.models import MODELS
from gnnbench.parts import LayerClass, Part
from gnnbench.plugins.checking import (
    Offered,
    check_bundles,
    check_class,
    check_model,
    check_part,
    check_strategy,
)
from gnnbench.plugins.origin import HARNESS, Origin
from gnnbench.plugins.problems import Broken, describe, report
from gnnbench.plugins.registry import Registry
from gnnbench.records import PART_KINDS, PartKind, Strategy
from gnnbench.studies import Planner, Reproduction


@dataclass(slots=True)
class Plugin:
    """A registered plugin; ``required`` when ``--plugin`` asked for it."""

    module: object
    origin: Origin
    required: bool


def collect(
    manager: pluggy.PluginManager, plugins: Sequence[Plugin], problems: list[str]
) -> Registry:
    """Ask every plugin what it offers; keep what is sound and refuse what is ambiguous."""
    parts: dict[tuple[PartKind, str], type[Part]] = {}
    part_origins: dict[tuple[PartKind, str], Origin] = {}
    offered: dict[str, tuple[Strategy, Plugin]] = {}
    for plugin in plugins:
        for kind in PART_KINDS:
            for part in _offers(manager, plugin, f"gnnbench_{kind}", problems):
                try:
                    checked = check_part(kind, part, plugin.origin.plugin)
                except Broken as problem:
                    report(problem, plugin.required, problems)
                    continue
                key = (kind, checked.name)
                if key in parts:
                    _refuse_twice(kind, checked.name, part_origins[key], plugin.origin)
                parts[key] = checked
                part_origins[key] = plugin.origin
        for strategy in _offers(manager, plugin, "gnnbench_strategy", problems):
            try:
                named = check_strategy(strategy, plugin.origin.plugin)
            except Broken as problem:
                report(problem, plugin.required, problems)
                continue
            if named.name in offered:
                _refuse_twice("strategy", named.name, offered[named.name][1].origin, plugin.origin)
            offered[named.name] = (named, plugin)

    models, model_origins = _collect_models(manager, plugins, problems)
    planners = _collect_classes(manager, plugins, "planner", Planner, problems)  # type: ignore[type-abstract]
    reproductions = _collect_classes(manager, plugins, "reproduction", Reproduction, problems)  # type: ignore[type-abstract]
    # A strategy may use parts of any plugin, so this waits until all parts are known.
    strategies: dict[str, Strategy] = {}
    for name, (strategy, plugin) in offered.items():
        try:
            check_bundles(strategy, plugin.origin.plugin, parts)
        except Broken as problem:
            report(problem, plugin.required, problems)
        else:
            strategies[name] = strategy
    return Registry(
        parts=types.MappingProxyType(parts),
        strategies_by_name=types.MappingProxyType(strategies),
        part_origins=types.MappingProxyType(part_origins),
        strategy_origins=types.MappingProxyType(
            {name: plugin.origin for name, (_, plugin) in offered.items()}
        ),
        models=types.MappingProxyType(models),
        model_origins=types.MappingProxyType(model_origins),
        planners=types.MappingProxyType({name: cls for name, (cls, _) in planners.items()}),
        reproductions=types.MappingProxyType(
            {name: cls for name, (cls, _) in reproductions.items()}
        ),
        reproduction_origins=types.MappingProxyType(
            {name: origin for name, (_, origin) in reproductions.items()}
        ),
        problems=tuple(problems),
    )


def _collect_models(
    manager: pluggy.PluginManager, plugins: Sequence[Plugin], problems: list[str]
) -> tuple[dict[str, LayerClass], dict[str, Origin]]:
    """The bundled models and those that plugins offer, and where the latter come from."""
    models = dict(MODELS)
    origins: dict[str, Origin] = {}
    for plugin in plugins:
        for item in _offers(manager, plugin, "gnnbench_model", problems):
            try:
                name, model = check_model(item, plugin.origin.plugin)
            except Broken as problem:
                report(problem, plugin.required, problems)
                continue
            if name in models:
                _refuse_twice("model", name, origins.get(name, HARNESS), plugin.origin)
            models[name], origins[name] = model, plugin.origin
    return models, origins


def _collect_classes(
    manager: pluggy.PluginManager,
    plugins: Sequence[Plugin],
    what: str,
    base: type[Offered],
    problems: list[str],
) -> Mapping[str, tuple[type[Offered], Origin]]:
    """The subclasses of ``base`` that plugins offer by the hook ``gnnbench_<what>``, by name, and
    where they come from."""
    offered: dict[str, tuple[type[Offered], Origin]] = {}
    for plugin in plugins:
        for item in _offers(manager, plugin, f"gnnbench_{what}", problems):
            try:
                name, cls = check_class(what, item, base, plugin.origin.plugin)
            except Broken as problem:
                report(problem, plugin.required, problems)
                continue
            if name in offered:
                _refuse_twice(what, name, offered[name][1], plugin.origin)
            offered[name] = (cls, plugin.origin)
    return offered


def _offers(
    manager: pluggy.PluginManager, plugin: Plugin, hook: str, problems: list[str]
) -> Iterator[object]:
    """What one plugin's hook returns, item by item."""
    name = plugin.origin.plugin
    others = [other for other in manager.get_plugins() if other is not plugin.module]
    try:
        results = manager.subset_hook_caller(hook, others)()
        offers = [item for result in results for item in result]
    except (Exception, SystemExit) as error:
        report(
            Broken(
                f"plugin {name!r} offers nothing by {hook}, which must return a list and "
                f"raised {describe(error)}."
            ),
            plugin.required,
            problems,
        )
        return
    yield from offers


def _refuse_twice(what: str, name: str, one: Origin, other: Origin) -> NoReturn:
    if one == other:
        raise PluginError(f"{what} {name!r} is offered twice by plugin {one}; rename one of them.")
    raise PluginError(
        f"{what} {name!r} is offered by two plugins, {one} and {other}; rename one of them or "
        f"leave out its plugin."
    )
