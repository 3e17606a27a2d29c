"""Registers plugins: every installed one, and those asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pluggy

import gnnbench
from gnnbench import hookspecs
from gnnbench.host.files import resolve
from gnnbench.parts import closest
from gnnbench.plugins.collecting import Plugin, collect
from gnnbench.plugins.offers import find_plugins, name_object
from gnnbench.plugins.origin import Origin
from gnnbench.plugins.problems import BrokenOfferError, describe, report
from gnnbench.plugins.registry import Registry
from gnnbench.plugins.sources import (
    BUNDLED,
    bring_entry,
    bring_file,
    bring_module,
    entry_origin,
    find_entries,
    find_uninstalled,
    is_file,
    module_origin,
)


def load(extra: Sequence[str] = (), objects: Sequence[object] = ()) -> Registry:
    """Load every installed plugin, then each of ``extra``, then ``objects``.

    ``extra`` are names of modules or of ``.py`` files. ``objects`` are modules or instances with
    hooks, or offers themselves: classes and strategies.

    Raises ``PluginError`` when one of ``extra`` or ``objects`` cannot be used, or offers a name
    that another plugin offers too. Other trouble is reported in the registry's ``problems``.
    """
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    problems: list[str] = []
    plugins: list[Plugin] = []

    def add(origin: Origin, required: bool, bring: Callable[[], object]) -> None:
        try:
            module = bring()
            # One module under two entry points, or asked for although installed, is one plugin.
            if not manager.is_registered(module):
                _register(manager, module, origin.plugin)
                plugins.append(Plugin(module, origin, required))
        except BrokenOfferError as problem:
            report(problem, required, problems)

    installed = find_entries(problems)
    for entry in installed:
        add(entry_origin(entry), False, partial(bring_entry, entry))
    for name in find_uninstalled(installed, problems):
        origin = Origin(name.removeprefix(f"{BUNDLED}."), "gnnbench", gnnbench.__version__)
        add(origin, False, partial(bring_module, name))
    for text in extra:
        if is_file(text):
            add(Origin(text, None, None), True, partial(bring_file, resolve(text)))
        else:
            add(module_origin(text), True, partial(bring_module, text))
    for plugin in find_plugins(objects):
        add(Origin(name_object(plugin), None, None), True, partial(_hand_over, plugin))
    return collect(manager, plugins, problems)


def _hand_over(plugin: object) -> object:
    return plugin


def _register(manager: pluggy.PluginManager, module: object, name: str) -> None:
    """Register a plugin, or leave the manager as it was and raise ``BrokenOfferError``."""
    try:
        manager.register(module)
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        callers = manager.get_hookcallers(module) or []
        unknown = [caller.name for caller in callers if not caller.has_spec()]
        if manager.is_registered(module):
            manager.unregister(module)
        if not unknown:
            raise BrokenOfferError(
                f"plugin {name!r} has a hook of the wrong form: {describe(error)}."
            ) from error
        specs = [hook for hook in vars(hookspecs) if hook.startswith("gnnbench_")]
        raise BrokenOfferError(
            f"plugin {name!r} implements a hook {unknown[0]!r}, which does not exist"
            f"{closest(unknown[0], specs)}; the hooks are {', '.join(specs)}."
        ) from error
    if not manager.get_hookcallers(module):
        manager.unregister(module)
        raise BrokenOfferError(
            f"plugin {name!r} implements no hook; mark at least one gnnbench_... function with "
            f"@gnnbench.hookspecs.hookimpl."
        )
