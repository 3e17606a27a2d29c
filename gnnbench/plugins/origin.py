"""The origin of an offer: a plugin, and its distribution."""

from __future__ import annotations

from dataclasses import dataclass

import gnnbench


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of an offer; a file outside any distribution has no ``distribution``."""

    plugin: str
    distribution: str | None
    version: str | None

    def __str__(self) -> str:
        if self.distribution is None:
            return f"{self.plugin} (not installed)"
        return f"{self.plugin} ({self.distribution} {self.version})"


#: The origin of the bundled models.
HARNESS = Origin("gnnbench", "gnnbench", gnnbench.__version__)
