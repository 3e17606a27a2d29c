"""Values on the command line: the types of options.

Every refusal is one sentence that names the option and its range.
"""

from __future__ import annotations

import math
import os
import re
from pathlib import Path

import click

from gnnbench.jobs.limits import Real, Whole, Wholes

#: Characters of a typed text that a refusal repeats.
_SHOWN = 24

_WHOLE = re.compile(r"[+-]?[0-9]{1,30}")


def shorten(text: str) -> str:
    """Return a typed text in quotes, shortened if it is long."""
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")


def read_whole(text: str) -> int | None:
    """Return a text's whole number; None if it is none or has more than 30 digits."""
    word = text.strip()
    return int(word) if _WHOLE.fullmatch(word) else None


class Number(click.ParamType):  # type: ignore[type-arg]
    """An option's type: a number that a rule takes."""

    def __init__(self, rule: Whole | Real) -> None:
        self.rule = rule
        self.name = "N" if isinstance(rule, Whole) else "X"

    def __repr__(self) -> str:
        return repr(self.rule)

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | float:
        """Read a number by the rule; a number that breaks it is wrong usage."""
        number = value
        if isinstance(value, str):
            number = read_whole(value) if isinstance(self.rule, Whole) else read_real(value)
        try:
            return self.rule.read(number)
        except ValueError:
            self.fail(f"{shorten(str(value))} is not {self.rule}.", param, ctx)


def read_real(text: str) -> float:
    """Return a text's number, NaN if it is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


class Numbers(click.ParamType):  # type: ignore[type-arg]
    """An option's type: whole numbers between commas that a rule takes."""

    name = "N,N..."

    def __init__(self, rule: Wholes) -> None:
        self.rule = rule

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Return the numbers of a text, or numbers unchanged."""
        try:
            if isinstance(value, str):
                return self.rule.read([read_whole(word) for word in value.split(",")])
            return self.rule.read(value)
        except ValueError:
            text = shorten(str(value))
            self.fail(f"{text} is not {self.rule}, such as {self.rule.example}.", param, ctx)


class FilePath(click.Path):
    """A path of a file or folder, kept as typed.

    It may be one that no file can have: the code that uses the path reports the error.
    """

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Path:
        """Return the value as a path."""
        return Path(value)
