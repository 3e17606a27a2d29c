"""Described machines.

``machine`` holds the records, ``files`` reads them from TOML, ``describe`` lists and loads them by
name, and ``show`` prints and writes them. ``local`` is this machine, which ``probe`` measures.
"""

from __future__ import annotations

from gnnbench.machines.describe import PlatformEntry as PlatformEntry
from gnnbench.machines.describe import default_platform as default_platform
from gnnbench.machines.describe import list_platforms as list_platforms
from gnnbench.machines.describe import load_platform as load_platform
from gnnbench.machines.show import PlatformRow as PlatformRow
from gnnbench.machines.show import show_platform as show_platform
from gnnbench.machines.show import to_toml as to_toml
