"""Finds plugins, checks what they offer, and puts five parts together.

Plugins come from the entry points of group ``gnnbench`` and from ``--plugin``. One that is broken
and merely installed is reported in ``Registry.problems`` and skipped; one that was asked for by
name must work, so there it is an error. What is offered is then chosen by name alone: the order in
which plugins load decides nothing.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import importlib
import importlib.machinery
import importlib.util
import inspect
import math
import os
import pkgutil
import re
import sys
import traceback
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Literal, NoReturn, TypeVar, cast

import pluggy

import gnnbench
from gnnbench import hookspecs, units
from gnnbench.errors import GnnbenchError, PluginError, UsageError
from gnnbench.files import resolve
from gnnbench.models import MODELS, Layer
from gnnbench.parts import (
    BOTH_MODES,
    Bundle,
    Communication,
    FullGraphSampler,
    Kernel,
    LayerClass,
    Memory,
    MiniBatchSampler,
    Part,
    Placement,
    option_fields,
)
from gnnbench.records import PART_KINDS, PartKind, Parts, Strategy
from gnnbench.studies import Planner, Reproduction

GROUP = "gnnbench"
BUNDLED = "gnnbench_plugins"

#: What a class offered as each kind of part must derive from.
BASES: Mapping[PartKind, tuple[type[Part], ...]] = {
    "sampler": (MiniBatchSampler, FullGraphSampler),
    "placement": (Placement,),
    "communication": (Communication,),
    "memory": (Memory,),
    "kernel": (Kernel,),
}

#: A kind of class that plugins offer by name.
Offered = TypeVar("Offered")

#: Names stand in ``--plugins a,b``, ``--swap kind=name`` and file names.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


# --------------------------------------------------------------------------- registry


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an offer comes from; a file outside any distribution has no ``distribution``."""

    plugin: str
    distribution: str | None
    version: str | None

    def __str__(self) -> str:
        if self.distribution is None:
            return f"{self.plugin} (not installed)"
        return f"{self.plugin} ({self.distribution} {self.version})"


#: Where the bundled models come from.
HARNESS = Origin("gnnbench", "gnnbench", gnnbench.__version__)


@dataclass(frozen=True, slots=True)
class Registry:
    """What the loaded plugins offer, by name. ``problems`` are sentences about what was skipped.

    ``models`` are the bundled ones and those of plugins, which ``model_origins`` has.
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
        """Every part of one kind, by ascending name."""
        names = sorted(name for offered, name in self.parts if offered == kind)
        return tuple(self.parts[kind, name] for name in names)

    def part(self, kind: PartKind, name: str) -> type[Part]:
        """The part class called ``name``; ``PluginError`` with close matches if there is none."""
        _check_kind(kind)
        if (kind, name) not in self.parts:
            self._refuse(kind, name, [part.name for part in self.parts_of(kind)])
        return self.parts[kind, name]

    def strategy(self, name: str) -> Strategy:
        """The strategy called ``name``; ``PluginError`` with close matches if there is none."""
        if name not in self.strategies_by_name:
            self._refuse("strategy", name, sorted(self.strategies_by_name))
        return self.strategies_by_name[name]

    def model(self, name: str) -> LayerClass:
        """The model called ``name``; ``PluginError`` with close matches if there is none."""
        if name not in self.models:
            self._refuse("model", name, list(self.models), "--model takes")
        return self.models[name]

    def planner(self, name: str) -> type[Planner]:
        """What plans the strategy ``name`` from sizes alone; ``PluginError`` where nothing does."""
        self.strategy(name)
        if name not in self.planners:
            known = ", ".join(sorted(self.planners)) or "no strategy"
            raise PluginError(
                f"strategy {name!r} cannot be planned for from sizes alone; give a --dataset, such "
                f"as ogbn-products:0.1. From sizes there are plans for {known}."
            )
        return self.planners[name]

    def reproduction(self, name: str) -> type[Reproduction]:
        """The reproduction called ``name``; ``PluginError`` with close matches if there is none."""
        if name not in self.reproductions:
            self._refuse("reproduction", name, sorted(self.reproductions))
        return self.reproductions[name]

    def origin(self, offered: Strategy | type[Part]) -> Origin:
        """Which plugin, of which distribution, offers a strategy or part of this registry."""
        if isinstance(offered, Strategy):
            return self.strategy_origins[offered.name]
        return self.part_origins[offered.kind, offered.name]

    def model_origin(self, name: str) -> Origin:
        """Which plugin offers the model called ``name``; the bundled ones come with the harness."""
        return self.model_origins.get(name, HARNESS)

    def _refuse(
        self, what: str, name: str, known: Sequence[str], offer: str = "there is"
    ) -> NoReturn:
        related = [problem for problem in self.problems if repr(name) in problem]
        if related:
            raise PluginError(f"{what} {name!r} is not available: {related[0]}")
        raise PluginError(
            f"there is no {what} {name!r}{_closest(name, known)}; "
            f"{offer} {', '.join(known) or 'none installed'}."
        )


def _check_kind(kind: str) -> None:
    if kind not in BASES:
        raise UsageError(f"there is no part {kind!r}; the parts are {', '.join(PART_KINDS)}.")


def _closest(name: str, known: Iterable[str]) -> str:
    """``", did you mean 'x'?"`` where something known is spelt alike, else nothing."""
    matches = difflib.get_close_matches(name, list(known), n=2)
    return f" (did you mean {' or '.join(map(repr, matches))}?)" if matches else ""


# --------------------------------------------------------------------------- loading


class _Broken(Exception):
    """Why a plugin, or one thing it offers, cannot be used: a sentence."""


@dataclass(slots=True)
class _Plugin:
    """A registered plugin; ``required`` when ``--plugin`` asked for it."""

    module: object
    origin: Origin
    required: bool


def load(extra: Sequence[str] = ()) -> Registry:
    """Load every installed plugin, then each of ``extra`` (a module's name or a ``.py`` file).

    Raises ``PluginError`` when one of ``extra`` cannot be used as it is, or when two plugins offer
    the same name; other trouble is reported in the registry's ``problems``.
    """
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    problems: list[str] = []
    plugins: list[_Plugin] = []

    def add(origin: Origin, required: bool, bring: Callable[[], object]) -> None:
        try:
            module = bring()
            # One module under two entry points, or asked for although installed, is one plugin.
            if not manager.is_registered(module):
                _register(manager, module, origin.plugin)
                plugins.append(_Plugin(module, origin, required))
        except _Broken as problem:
            _report(problem, required, problems)

    installed = sorted(metadata.entry_points(group=GROUP), key=lambda entry: entry.name)
    for entry in installed:
        add(_entry_origin(entry), False, partial(_bring_entry, entry))
    for name in _bundled_but_not_installed(installed, problems):
        origin = Origin(name.rpartition(".")[2], "gnnbench", gnnbench.__version__)
        add(origin, False, partial(_bring_module, name))
    for text in extra:
        if _is_file(text):
            add(Origin(text, None, None), True, partial(_bring_file, resolve(text)))
        else:
            add(_module_origin(text), True, partial(_bring_module, text))
    return _collect(manager, plugins, problems)


def find_file(text: str) -> Path | None:
    """The file that ``--plugin TEXT`` runs, whether or not it is there, found without running any;
    None for a module that is no file, or that there is not."""
    if _is_file(text):
        return resolve(text)
    path: Sequence[str] | None = None
    spec = None
    for end in (*(match.start() for match in re.finditer(r"\.", text)), len(text)):
        spec = importlib.machinery.PathFinder.find_spec(text[:end], path)
        path = spec.submodule_search_locations if spec is not None else None
        if spec is None or (path is None and end < len(text)):
            return None
    return Path(spec.origin) if spec is not None and spec.has_location and spec.origin else None


def _report(problem: _Broken, required: bool, problems: list[str]) -> None:
    if required:
        raise PluginError(str(problem)) from problem.__cause__
    problems.append(str(problem))


def _register(manager: pluggy.PluginManager, module: object, name: str) -> None:
    """Register a plugin, or leave the manager as it was and raise ``_Broken``."""
    try:
        manager.register(module)
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        callers = manager.get_hookcallers(module) or []
        unknown = [caller.name for caller in callers if not caller.has_spec()]
        if manager.is_registered(module):
            manager.unregister(module)
        if not unknown:
            raise _Broken(
                f"plugin {name!r} has a hook of the wrong form: {_describe(error)}."
            ) from error
        specs = [hook for hook in vars(hookspecs) if hook.startswith("gnnbench_")]
        raise _Broken(
            f"plugin {name!r} implements a hook {unknown[0]!r}, which does not exist"
            f"{_closest(unknown[0], specs)}; the hooks are {', '.join(specs)}."
        ) from error
    if not manager.get_hookcallers(module):
        manager.unregister(module)
        raise _Broken(
            f"plugin {name!r} implements no hook; mark at least one gnnbench_... function with "
            f"@gnnbench.hookspecs.hookimpl."
        )


def _bring_entry(entry: metadata.EntryPoint) -> object:
    try:
        return entry.load()
    except (Exception, SystemExit) as error:
        raise _Broken(
            f"plugin {entry.name!r} does not import ({entry.value}): {_describe_at(error)}; mend "
            f"or uninstall it."
        ) from error


def _bring_module(name: str) -> object:
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and (name == missing or name.startswith(f"{missing}.")):
            raise _Broken(
                f"there is no plugin module {name!r}; give the name of an importable module or "
                f"the path of a .py file."
            ) from error
        raise _Broken(
            f"plugin {name!r} does not import: {_describe_at(error)}; mend it or leave it out."
        ) from error


def _bring_file(path: Path) -> types.ModuleType:
    """Run a file as a module of its own; an ``__init__.py`` may import its package relatively."""
    if not os.path.isfile(path):
        raise _Broken(
            f"there is no plugin file {str(path)!r}; give the path of an existing .py file or the "
            f"name of an importable module."
        )
    package = path.name == "__init__.py"
    stem = re.sub(r"\W", "_", path.parent.name if package else path.stem)
    # The digest keeps two files of one name, or an installed copy of this one, apart.
    name = f"{stem}_{hashlib.sha256(os.fsencode(path)).hexdigest()[:8]}"
    for loaded in [key for key in sys.modules if key == name or key.startswith(f"{name}.")]:
        del sys.modules[loaded]
    spec = importlib.util.spec_from_file_location(
        name, path, submodule_search_locations=[str(path.parent)] if package else None
    )
    if spec is None or spec.loader is None:
        raise _Broken(f"plugin file {str(path)!r} is not Python; its name must end in .py.")
    module = importlib.util.module_from_spec(spec)
    # Registered before it runs: dataclasses and type hints look their module up there.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        line = _line_within(path, error)
        where = f"{str(path)!r}, line {line}," if line else repr(str(path))
        raise _Broken(
            f"plugin file {where} raised {_describe(error)}; mend the file or leave out --plugin."
        ) from error
    return module


def _describe(error: BaseException) -> str:
    """An exception's type and its message on one line, without a final full stop."""
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    message = " ".join(text.split()).rstrip(".")
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def _describe_at(error: BaseException) -> str:
    """An exception with the file and line that raised it."""
    if isinstance(error, SyntaxError):
        return f"{_describe(error)} in {error.filename}, line {error.lineno}"
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<frozen")
    ]
    return f"{_describe(error)} in {frames[-1].filename}, line {frames[-1].lineno}"


def _line_within(path: Path, error: BaseException) -> int | None:
    """The last line of the file that an exception passed through."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    return lines[-1] if lines else None


def _is_file(text: str) -> bool:
    return text.endswith(".py") or os.sep in text or "/" in text


def _entry_origin(entry: metadata.EntryPoint) -> Origin:
    if entry.dist is None:
        return Origin(entry.name, None, None)
    return Origin(entry.name, entry.dist.name, entry.dist.version)


def _module_origin(name: str) -> Origin:
    """A module asked for by name may belong to an installed distribution."""
    owners = metadata.packages_distributions().get(name.partition(".")[0], [])
    if not owners:
        return Origin(name, None, None)
    return Origin(name, owners[0], metadata.version(owners[0]))


def _bundled_but_not_installed(
    installed: Iterable[metadata.EntryPoint], problems: list[str]
) -> list[str]:
    """Modules of the bundled plugins when a source checkout runs without installation."""
    if any(entry.module.startswith(f"{BUNDLED}.") for entry in installed):
        return []
    try:
        package = importlib.import_module(BUNDLED)
    except ModuleNotFoundError:
        problems.append(
            "the bundled plugins were skipped because they are neither installed nor importable; "
            "install gnnbench, or put its folder plugins/ on PYTHONPATH."
        )
        return []
    return sorted(f"{BUNDLED}.{module.name}" for module in pkgutil.iter_modules(package.__path__))


# --------------------------------------------------------------------------- collecting


def _collect(
    manager: pluggy.PluginManager, plugins: Sequence[_Plugin], problems: list[str]
) -> Registry:
    """Ask every plugin what it offers; keep what is sound and refuse what is ambiguous."""
    parts: dict[tuple[PartKind, str], type[Part]] = {}
    part_origins: dict[tuple[PartKind, str], Origin] = {}
    offered: dict[str, tuple[Strategy, _Plugin]] = {}
    for plugin in plugins:
        for kind in PART_KINDS:
            for part in _offers(manager, plugin, f"gnnbench_{kind}", problems):
                try:
                    checked = _check_part(kind, part, plugin.origin.plugin)
                except _Broken as problem:
                    _report(problem, plugin.required, problems)
                    continue
                key = (kind, checked.name)
                if key in parts:
                    _refuse_twice(kind, checked.name, part_origins[key], plugin.origin)
                parts[key] = checked
                part_origins[key] = plugin.origin
        for strategy in _offers(manager, plugin, "gnnbench_strategy", problems):
            try:
                named = _check_strategy(strategy, plugin.origin.plugin)
            except _Broken as problem:
                _report(problem, plugin.required, problems)
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
            _check_bundles(strategy, plugin.origin.plugin, parts)
        except _Broken as problem:
            _report(problem, plugin.required, problems)
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
    manager: pluggy.PluginManager, plugins: Sequence[_Plugin], problems: list[str]
) -> tuple[dict[str, LayerClass], dict[str, Origin]]:
    """The bundled models and those that plugins offer, and where the latter come from."""
    models = dict(MODELS)
    origins: dict[str, Origin] = {}
    for plugin in plugins:
        for item in _offers(manager, plugin, "gnnbench_model", problems):
            try:
                name, model = _check_model(item, plugin.origin.plugin)
            except _Broken as problem:
                _report(problem, plugin.required, problems)
                continue
            if name in models:
                _refuse_twice("model", name, origins.get(name, HARNESS), plugin.origin)
            models[name], origins[name] = model, plugin.origin
    return models, origins


def _check_model(item: object, plugin: str) -> tuple[str, LayerClass]:
    """An offered model's name and its class of layers; ``_Broken`` says what it lacks."""
    name, layer = _check_class("model", item, Layer, plugin)  # type: ignore[type-abstract]
    what = f"model {name!r} of plugin {plugin!r}"
    title = getattr(layer, "title", None)
    if not (isinstance(title, str) and title.strip()):
        raise _Broken(f"{what} needs a class variable title, what results call it.")
    try:
        inspect.signature(layer).bind(1, 1, activation=True, generator=None)
    except TypeError as error:
        raise _Broken(
            f"{what} cannot be made ({_describe(error)}); __init__ of {layer.__name__} must take "
            f"(self, in_features, out_features, *, activation, generator)."
        ) from error
    return name, cast(LayerClass, layer)


def _collect_classes(
    manager: pluggy.PluginManager,
    plugins: Sequence[_Plugin],
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
                name, cls = _check_class(what, item, base, plugin.origin.plugin)
            except _Broken as problem:
                _report(problem, plugin.required, problems)
                continue
            if name in offered:
                _refuse_twice(what, name, offered[name][1], plugin.origin)
            offered[name] = (cls, plugin.origin)
    return offered


def _check_class(
    what: str, item: object, base: type[Offered], plugin: str
) -> tuple[str, type[Offered]]:
    """An offered class and its name; ``_Broken`` says what it lacks."""
    if not (isinstance(item, type) and issubclass(item, base)):
        raise _Broken(
            f"plugin {plugin!r} offers {item!r} as a {what}, which is not a subclass of "
            f"{base.__name__}."
        )
    name = getattr(item, "name", None)
    if not (isinstance(name, str) and _NAME.fullmatch(name)):
        raise _Broken(
            f"{what} class {item.__name__} of plugin {plugin!r} needs a class variable name of "
            f"letters, digits, '-', '_' or '.', not {name!r}."
        )
    if inspect.isabstract(item):
        missing = ", ".join(sorted(getattr(item, "__abstractmethods__", ())))
        raise _Broken(
            f"{what} {name!r} of plugin {plugin!r} is abstract; {item.__name__} must define "
            f"{missing}."
        )
    return name, item


def _offers(
    manager: pluggy.PluginManager, plugin: _Plugin, hook: str, problems: list[str]
) -> Iterator[object]:
    """What one plugin's hook returns, item by item."""
    name = plugin.origin.plugin
    others = [other for other in manager.get_plugins() if other is not plugin.module]
    try:
        results = manager.subset_hook_caller(hook, others)()
        offers = [item for result in results for item in result]
    except (Exception, SystemExit) as error:
        _report(
            _Broken(
                f"plugin {name!r} offers nothing by {hook}, which must return a list and "
                f"raised {_describe(error)}."
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


def _check_part(kind: PartKind, part: object, plugin: str) -> type[Part]:
    """An offered part as a class that can be assembled; ``_Broken`` says what it lacks."""
    bases = BASES[kind]
    expected = " or ".join(base.__name__ for base in bases)
    if not (isinstance(part, type) and issubclass(part, bases)):
        raise _Broken(
            f"plugin {plugin!r} offers {part!r} as a {kind}, which is not a subclass of {expected}."
        )
    what = f"{kind} class {part.__name__} of plugin {plugin!r}"
    name = getattr(part, "name", None)
    if not (isinstance(name, str) and _NAME.fullmatch(name)):
        raise _Broken(
            f"{what} needs a class variable name of letters, digits, '-', '_' or '.', not {name!r}."
        )
    what = f"{kind} {name!r} of plugin {plugin!r}"
    if inspect.isabstract(part):
        missing = ", ".join(sorted(getattr(part, "__abstractmethods__", ())))
        raise _Broken(f"{what} is abstract; {part.__name__} must define {missing}.")
    summary = getattr(part, "summary", None)
    if not (isinstance(summary, str) and summary.strip()):
        raise _Broken(f"{what} needs a class variable summary, one line of text.")
    modes = getattr(part, "modes", None)
    if not (isinstance(modes, frozenset) and modes and modes <= BOTH_MODES):
        raise _Broken(
            f"{what} needs modes to be a non-empty frozenset of {sorted(BOTH_MODES)}, "
            f"not {modes!r}."
        )
    if kind == "memory" and getattr(part, "vertex_data", None) not in ("host", "device"):
        raise _Broken(f"{what} needs a class variable vertex_data, 'host' or 'device'.")
    bare = [key for key, value in vars(part).items() if isinstance(value, dataclasses.Field)]
    if bare:
        raise _Broken(f"{what} declares option {bare[0]!r} but lacks the decorator @dataclass.")
    for option in option_fields(part).values():
        if option.default is option.default_factory is dataclasses.MISSING:
            raise _Broken(f"option {option.name!r} of {what} has no default; give it one.")
    return part


def _check_strategy(strategy: object, plugin: str) -> Strategy:
    if not isinstance(strategy, Strategy):
        raise _Broken(f"plugin {plugin!r} offers {strategy!r} as a strategy, not a Strategy.")
    if not (isinstance(strategy.name, str) and _NAME.fullmatch(strategy.name)):
        raise _Broken(
            f"plugin {plugin!r} offers a strategy called {strategy.name!r}; a name has letters, "
            f"digits, '-', '_' and '.'."
        )
    if not (strategy.bundles and set(strategy.bundles) <= BOTH_MODES):
        raise _Broken(
            f"strategy {strategy.name!r} of plugin {plugin!r} must have a bundle for mini-batch, "
            f"for full-graph or for both, not {sorted(strategy.bundles)}."
        )
    return strategy


def _check_bundles(
    strategy: Strategy, plugin: str, parts: Mapping[tuple[PartKind, str], type[Part]]
) -> None:
    """Every part of a strategy must be on offer and work in the mode it is bundled for."""
    for mode, bundle in strategy.bundles.items():
        for kind in PART_KINDS:
            name = bundle.named(kind)
            if (kind, name) not in parts:
                known = [offered for group, offered in parts if group == kind]
                raise _Broken(
                    f"strategy {strategy.name!r} of plugin {plugin!r} cannot be used because no "
                    f"plugin offers its {kind} {name!r}{_closest(name, known)}."
                )
            if mode not in parts[kind, name].modes:
                raise _Broken(
                    f"strategy {strategy.name!r} of plugin {plugin!r} cannot be used because its "
                    f"{kind} {name!r} does not work for {mode} training."
                )


# --------------------------------------------------------------------------- options


def parse_option(part_class: type[Part], option: str, text: str) -> object:
    """The value of ``--set kind.option=text``, read by the annotation of the part's field.

    ``int`` (with ``unit="bytes"`` also ``2GB``), ``float``, ``bool``, ``str`` and ``Literal`` are
    read. Raises ``UsageError`` for an unknown option or a text that does not fit.
    """
    what = f"{part_class.kind} {part_class.name!r}"
    fields = option_fields(part_class)
    if option not in fields:
        if not fields:
            raise UsageError(f"{what} has no option {option!r}; it takes no options.")
        raise UsageError(
            f"{what} has no option {option!r}{_closest(option, fields)}; it has "
            f"{'; '.join(describe_option(part_class, name) for name in fields)}."
        )
    annotation = _annotation(part_class, option)
    unit = fields[option].metadata.get("unit", "")
    accepts = _accepts(annotation, unit)
    if accepts is None:
        raise PluginError(
            f"option {option!r} of {what} is declared as {annotation!r}; an option must be int, "
            f"float, bool, str or Literal."
        )
    try:
        return _read(annotation, unit, text.strip())
    except ValueError:
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
        raise UsageError(
            f"{part_class.kind}.{option} of {what} takes {accepts}{_range(annotation, unit)}, not "
            f"{shown!r}."
        ) from None


def describe_option(part_class: type[Part], option: str) -> str:
    """``"fanout (a whole number, default 10): neighbours drawn"`` for lists and messages."""
    field = option_fields(part_class)[option]
    accepts = _accepts(_annotation(part_class, option), field.metadata.get("unit", ""))
    help_text = str(field.metadata.get("help", "")) or "no description"
    return f"{option} ({accepts}, default {field.default!r}): {help_text}"


def list_choices(part_class: type[Part], option: str) -> tuple[object, ...]:
    """The values of an option that is one of several, or true or false; none of any other."""
    annotation = _annotation(part_class, option)
    if annotation is bool:
        return (False, True)
    return typing.get_args(annotation) if typing.get_origin(annotation) is Literal else ()


def _annotation(part_class: type[Part], option: str) -> object:
    """An option's type; strings are resolved in the module of the class that declares it."""
    owner = next(c for c in part_class.__mro__ if option in inspect.get_annotations(c))
    # Only this annotation: another one of the class may name what is imported for typing alone.
    annotations = inspect.get_annotations(owner)
    alone = types.SimpleNamespace(__annotations__={option: annotations[option]})
    try:
        hints = typing.get_type_hints(alone, vars(sys.modules[owner.__module__]))
    except NameError as error:
        raise PluginError(
            f"option {option!r} of {part_class.kind} {part_class.name!r} has an annotation that "
            f"cannot be read: {_describe(error)}."
        ) from error
    return hints[option]


def _accepts(annotation: object, unit: str) -> str | None:
    """What an annotation takes, in words; None for one that cannot be read from text."""
    if typing.get_origin(annotation) is Literal:
        return "one of " + ", ".join(str(value) for value in typing.get_args(annotation))
    if annotation is int and unit == "bytes":
        return "a size in bytes (such as 2GB, 512MiB or 1000000)"
    known: dict[object, str] = {
        int: "a whole number",
        float: "a finite number",
        bool: "true or false",
        str: "text",
    }
    return known.get(annotation)


#: Of a whole number: what arrays can count.
LARGEST = 2**63 - 1
#: Of a text that does not fit, so much is repeated.
_SHOWN = 24


def _range(annotation: object, unit: str) -> str:
    """Of a number: from where to where."""
    if annotation is int:
        return f" below {units.LARGEST_SIZE:.0e}" if unit else f" from {-LARGEST:,} to {LARGEST:,}"
    return ""


_TRUTH = {"true": True, "yes": True, "on": True, "1": True}
_TRUTH |= {"false": False, "no": False, "off": False, "0": False}


def _read(annotation: object, unit: str, text: str) -> object:
    """Text as a value of the annotation; ``ValueError`` where it does not fit."""
    if typing.get_origin(annotation) is Literal:
        values = {str(value): value for value in typing.get_args(annotation)}
        if text not in values:
            raise ValueError(text)
        return values[text]
    if annotation is bool:
        if text.lower() not in _TRUTH:
            raise ValueError(text)
        return _TRUTH[text.lower()]
    if annotation is int:
        count = units.parse_bytes(text) if unit == "bytes" else int(text)
        if not -LARGEST <= count <= LARGEST:
            raise ValueError(text)
        return count
    if annotation is float:
        number = float(text)
        if not math.isfinite(number):
            raise ValueError(text)
        return number
    return text


# --------------------------------------------------------------------------- assembling


def with_swap(registry: Registry, parts: Parts, swaps: Sequence[tuple[PartKind, str]]) -> Parts:
    """``parts`` with some of them replaced; every new name must be on offer."""
    chosen: dict[str, str] = {}
    for kind, name in swaps:
        registry.part(kind, name)
        if kind in chosen:
            raise UsageError(
                f"{kind} is swapped twice, for {chosen[kind]!r} and {name!r}; keep one of the two."
            )
        chosen[kind] = name
    return dataclasses.replace(parts, **chosen)


def assemble(
    registry: Registry, parts: Parts, options: Mapping[PartKind, Mapping[str, str]]
) -> Bundle:
    """The five parts called for, each with its options read from text.

    Raises ``PluginError`` for an unknown part and ``UsageError`` for an unknown or unfit option.
    """
    for kind in options:
        _check_kind(kind)

    def build(kind: PartKind) -> Part:
        part = registry.part(kind, parts.named(kind))
        texts = options.get(kind, {})
        values = {option: parse_option(part, option, text) for option, text in texts.items()}
        try:
            return part(**values)
        except GnnbenchError:
            raise
        except Exception as error:
            given = ", ".join(f"{kind}.{option}={text}" for option, text in texts.items())
            why = str(error).rstrip(".") if isinstance(error, ValueError) else _describe(error)
            raise UsageError(
                f"{kind} {part.name!r} cannot be made with {given or 'its default options'}: {why}."
            ) from error

    # What each class derives from was checked when it was offered.
    return Bundle(
        sampler=cast("MiniBatchSampler | FullGraphSampler", build("sampler")),
        placement=cast(Placement, build("placement")),
        communication=cast(Communication, build("communication")),
        memory=cast(Memory, build("memory")),
        kernel=cast(Kernel, build("kernel")),
    )
