"""Faults of plugins, in sentences that say how to mend them."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from gnnbench.errors import PluginError, closest


class BrokenOfferError(Exception):
    """A fault of a plugin, or of one of its offers, as a sentence."""


def report(problem: BrokenOfferError, required: bool, problems: list[str]) -> None:
    """Raise the fault of a plugin that was asked for; note the fault of an installed one."""
    if required:
        raise PluginError(str(problem)) from problem.__cause__
    problems.append(str(problem))


def describe(error: BaseException) -> str:
    """Return an exception's type and message on one line, without a final full stop."""
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    message = " ".join(text.split()).rstrip(".")
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def describe_at(error: BaseException) -> str:
    """Describe an exception with the file and line that raised it."""
    if isinstance(error, SyntaxError):
        return f"{describe(error)} in {error.filename}, line {error.lineno}"
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<frozen")
    ]
    return f"{describe(error)} in {frames[-1].filename}, line {frames[-1].lineno}"


def line_within(path: Path, error: BaseException) -> int | None:
    """Return the last line of the file that an exception passed through."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    return lines[-1] if lines else None


def refuse(what: str, name: str, known: Sequence[str], problems: Sequence[str]) -> NoReturn:
    """Raise ``PluginError`` for a name that is not on offer.

    The error repeats the problem that names it, or else gives close matches and every known name.
    For a file it says how to load that.
    """
    related = [problem for problem in problems if repr(name) in problem]
    if related:
        raise PluginError(f"{what} {name!r} is not available: {related[0]}")
    if name.endswith(".py"):
        raise PluginError(
            f"there is no {what} {name!r}; load the file with --plugin {name}, and give the name "
            f"of the {what} in it."
        )
    offer = "--model takes" if what == "model" else "there is"
    raise PluginError(
        f"there is no {what} {name!r}{closest(name, known)}; "
        f"{offer} {', '.join(known) or 'none installed'}."
    )
