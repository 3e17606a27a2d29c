"""Described machines. ``machine`` holds the records, ``files`` reads them from TOML, ``describe``
lists and loads them by name, and ``show`` prints and writes them. ``local`` is this machine, which
``probe`` measures."""

from __future__ import annotations

from gnnbench.machines.describe import (
    PlatformEntry,
    default_platform,
    list_platforms,
    load_platform,
)
from gnnbench.machines.show import PlatformRow, show_platform, to_toml

__all__ = [
    "PlatformEntry",
    "PlatformRow",
    "default_platform",
    "list_platforms",
    "load_platform",
    "show_platform",
    "to_toml",
]
