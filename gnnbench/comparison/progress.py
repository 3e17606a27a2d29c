"""How a comparison says how far it is."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Told how far a comparison is. ``total`` counts epochs; several runs may be under way."""

    def begin(self, label: str, total: int) -> None: ...
    def advance(self, label: str) -> None: ...
    def end(self, label: str, status: str) -> None: ...


class SilentProgress:
    """Says nothing."""

    def begin(self, label: str, total: int) -> None: ...
    def advance(self, label: str) -> None: ...
    def end(self, label: str, status: str) -> None: ...
