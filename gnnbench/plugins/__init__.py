"""Finds plugins, checks what they offer, and puts five parts together.

Plugins come from the entry points of group ``gnnbench`` and from ``--plugin``. A broken plugin that
is merely installed is reported in ``Registry.problems`` and skipped. A plugin that was asked for by
name must work, so a fault in it is an error. Parts and strategies are chosen by name alone: the
order in which plugins load decides nothing.

Plugins import torch, so these names are imported when they are first used. ``index`` keeps a
listing of the installed plugins, which answers questions about names without loading any.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gnnbench.plugins.assembling import assemble, with_swap
    from gnnbench.plugins.loading import load
    from gnnbench.plugins.origin import Origin
    from gnnbench.plugins.registry import Registry
    from gnnbench.plugins.sources import GROUP, find_file

__all__ = [
    "GROUP",
    "Origin",
    "Registry",
    "assemble",
    "find_file",
    "load",
    "with_swap",
]

#: The module of each name that the package offers.
_HOMES = {
    "GROUP": "sources",
    "Origin": "origin",
    "Registry": "registry",
    "assemble": "assembling",
    "find_file": "sources",
    "load": "loading",
    "with_swap": "assembling",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'gnnbench.plugins' has no attribute {name!r}")
    return getattr(importlib.import_module(f"gnnbench.plugins.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
