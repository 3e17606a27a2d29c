"""How a comparison reports its progress."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """A receiver of progress. ``total`` counts epochs; several runs may be under way at once."""

    def begin(self, label: str, total: int) -> None:
        """Announce a row of ``total`` epochs."""

    def advance(self, label: str) -> None:
        """Count one epoch of a row."""

    def end(self, label: str, status: str) -> None:
        """Announce the end of a row with its status."""


class SilentProgress:
    """A receiver that reports nothing."""

    def begin(self, label: str, total: int) -> None:
        """Print nothing."""

    def advance(self, label: str) -> None:
        """Print nothing."""

    def end(self, label: str, status: str) -> None:
        """Print nothing."""
