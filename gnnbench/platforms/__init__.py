"""Described machines: ``machine`` holds the nouns, ``describe`` reads, lists and writes the TOML
files (``schema`` checks them), ``probe`` measures this machine.
"""

from __future__ import annotations

from gnnbench.platforms.describe import (
    PlatformEntry,
    PlatformRow,
    default_platform,
    list_platforms,
    load_platform,
    show_platform,
    to_toml,
)

__all__ = [
    "PlatformEntry",
    "PlatformRow",
    "default_platform",
    "list_platforms",
    "load_platform",
    "show_platform",
    "to_toml",
]
