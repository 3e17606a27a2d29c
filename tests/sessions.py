"""Sees, or alters, what a part opens for a run."""

from collections.abc import Callable
from typing import Any


def on_open(part: Any, see: Callable[..., None]) -> None:
    """Let ``see`` have every session that the part opens from now on, and what it was opened with;
    it may alter the session."""
    opens = part.open

    def open(*given: Any) -> Any:
        session = opens(*given)
        see(session, *given)
        return session

    object.__setattr__(part, "open", open)  # options stay as they are, a part's methods too


def keep_opened(part: Any) -> list[Any]:
    """The sessions that the part opens from now on."""
    opened: list[Any] = []
    on_open(part, lambda session, *given: opened.append(session))
    return opened
