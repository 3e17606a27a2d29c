"""How a comparison reports its progress."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """A receiver of progress. ``total`` counts epochs; several runs may be under way at once."""

    def begin(self, label: str, total: int) -> None: ...
    def advance(self, label: str) -> None: ...
    def end(self, label: str, status: str) -> None: ...


class SilentProgress:
    """A receiver that reports nothing."""

    def begin(self, label: str, total: int) -> None: ...
    def advance(self, label: str) -> None: ...
    def end(self, label: str, status: str) -> None: ...
