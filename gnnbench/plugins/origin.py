"""Where an offer comes from: a plugin, and its distribution."""

from __future__ import annotations

from dataclasses import dataclass

import gnnbench


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
