"""Numbers on the command line: the types of numeric options.

Every refusal is one sentence that names the option and its range.
"""

from __future__ import annotations

import math
import re

import click

from gnnbench.jobs.limits import Real, Whole

#: More processes than any one machine has devices.
MOST_PROCESSES = 1024
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


def read_list(
    text: str, least: int, most: int, hint: str, example: str, least_count: int = 1
) -> list[int]:
    """Parse whole numbers between commas, each from ``least`` to ``most``.

    Raises ``BadParameter`` if the text is no such list.
    """
    words = text.split(",")
    numbers = [read_whole(word) for word in words]
    counts = [n for n in numbers if n is not None and least <= n <= most]
    if len(counts) != len(words) or len(words) < least_count:
        more = f"{least_count} or more " if least_count > 1 else ""
        raise click.BadParameter(
            f"{shorten(text)} is not a list of {more}whole numbers from {least} to {most:,}, "
            f"such as {example}.",
            param_hint=hint,
        )
    return counts
