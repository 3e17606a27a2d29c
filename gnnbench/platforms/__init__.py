"""Described machines: ``machine`` holds the nouns, ``describe`` reads, lists and writes the TOML
files (``schema`` checks them), ``local`` is this machine, which ``probe`` measures.
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
