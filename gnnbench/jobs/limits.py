"""Rules: the values that an option takes, wherever it is given."""

from __future__ import annotations

import math
import operator
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, SupportsIndex, cast

from gnnbench.errors import UsageError

#: The largest whole number that arrays can count.
LARGEST = 2**63 - 1
#: The largest fan-out: vertex ids have 32 bits, so no vertex has more neighbours.
MOST_NEIGHBOURS = 2**31 - 1
#: More processes than any one machine has devices.
MOST_PROCESSES = 1024
#: More threads than any one machine has cores.
MOST_THREADS = 1024
#: Above this rate Adam's first step is not a number in float32.
MOST_LEARNING_RATE = 1e6
#: More copies of a vertex than any machine has devices.
MOST_COPIES = 1e6
# Spelt out, not imported: `gnnbench --help` does without NumPy and torch. Tests hold them equal.
MODEL_NAMES = ("gcn", "sage", "gin", "gat", "commnet", "ggcn")
SCALINGS = ("auto", "rows", "columns", "none")
MODES = ("full-graph", "mini-batch")
TARGETS = ("time", "memory", "traffic")
#: The number of characters of a refused value that a message repeats.
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number from ``least`` to ``most``."""

    least: int
    most: int = LARGEST

    def __str__(self) -> str:
        return f"a whole number from {self.least:,} to {self.most:,}"

    def read(self, value: object) -> int:
        """Return the number. Raises ``ValueError`` for anything else."""
        if isinstance(value, bool):
            raise ValueError
        try:
            number = operator.index(cast("SupportsIndex", value))
        except TypeError as error:
            raise ValueError from error
        if not self.least <= number <= self.most:
            raise ValueError
        return number


@dataclass(frozen=True, slots=True)
class Real:
    """A finite number above ``above``, and up to ``most``."""

    above: float
    most: float

    def __str__(self) -> str:
        return f"a number above {self.above:g} and up to {self.most:g}"

    def read(self, value: object) -> float:
        """Return the number. Raises ``ValueError`` for anything else."""
        number = math.nan
        if hasattr(value, "__float__") and not isinstance(value, bool):
            number = float(value)
        if not self.above < number <= self.most:
            raise ValueError
        return number


@dataclass(frozen=True, slots=True)
class Wholes:
    """At least ``least`` whole numbers, one after the other, such as ``example``."""

    each: Whole
    example: str
    least: int = 1

    def __str__(self) -> str:
        more = f"{self.least} or more " if self.least > 1 else ""
        return f"a list of {more}whole numbers from {self.each.least:,} to {self.each.most:,}"

    def read(self, value: object) -> tuple[int, ...]:
        """Return the numbers. Raises ``ValueError`` for anything else."""
        if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
            raise ValueError
        numbers = tuple(self.each.read(one) for one in value)
        if len(numbers) < self.least:
            raise ValueError
        return numbers


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of several values."""

    values: tuple[str | bool, ...]

    def __str__(self) -> str:
        return f"one of {', '.join(map(str, self.values))}"

    def read(self, value: object) -> str | bool:
        """Return the value. Raises ``ValueError`` for anything else."""
        for known in self.values:
            if type(value) is type(known) and value == known:
                return known
        raise ValueError


@dataclass(frozen=True, slots=True)
class Source:
    """A name, a path, or an object of a class of gnnbench: ``module`` and ``kind``.

    With ``derived`` it is a class that derives from that class.
    """

    what: str
    module: str
    kind: str
    derived: bool = False

    def __str__(self) -> str:
        return self.what

    def read(self, value: object) -> object:
        """Return the object, or the text. Raises ``ValueError`` for anything else."""
        text = os.fspath(value) if isinstance(value, os.PathLike) else value
        # An object of a class exists only if the class has been imported.
        known = getattr(sys.modules.get(self.module), self.kind, Source)
        fits = issubclass if self.derived and isinstance(text, type) else isinstance
        if not isinstance(text, str) and not fits(text, known):  # type: ignore[arg-type]
            raise ValueError
        return text


@dataclass(frozen=True, slots=True)
class Listed:
    """A list of objects; one that fits ``each`` stands for a list of itself.

    ``refuse`` raises ``UsageError`` for a list that is wrong as a whole.
    """

    what: str
    each: Source | None = None
    refuse: Callable[[tuple[Any, ...]], object] = tuple

    def __str__(self) -> str:
        return self.what

    def read(self, value: object) -> tuple[object, ...]:
        """Return the objects. Raises ``ValueError`` for anything else."""
        several = isinstance(value, (list, tuple))
        if self.each is None and not several:
            raise ValueError
        objects = tuple(cast("Iterable[object]", value)) if several else (value,)
        if self.each is not None:
            objects = tuple(map(self.each.read, objects))
        self.refuse(objects)
        return objects


@dataclass(frozen=True, slots=True)
class Receiver:
    """An object with certain methods."""

    methods: tuple[str, ...]

    def __str__(self) -> str:
        return f"an object with {', '.join(self.methods)}"

    def read(self, value: object) -> object:
        """Return the object. Raises ``ValueError`` for anything else."""
        if not all(hasattr(value, each) for each in self.methods):
            raise ValueError
        return value


@dataclass(frozen=True, slots=True)
class Parsed:
    """A value that ``parse`` understands, which raises ``UsageError`` otherwise."""

    parse: Callable[[Any], object]

    def read(self, value: object) -> object:
        """Return the value as it was given. Raises ``UsageError`` if it cannot be parsed."""
        self.parse(value)
        return value


class Rule(Protocol):
    """The values that an option takes; as text, it completes "give ..."."""

    def read(self, value: object) -> object:
        """Return a value as the record keeps it.

        Raises ``ValueError`` for a value of another kind, or ``UsageError`` with a sentence.
        """


COUNT = Whole(1)
FLAG = OneOf((True, False))


def read_value(name: str, rule: Rule, value: object) -> Any:
    """Return the value of option ``name`` as its rule reads it. Raises ``UsageError``."""
    try:
        return rule.read(value)
    except ValueError:
        raise UsageError(f"{name} is {show_value(value)}; give {rule}.") from None


def show_value(value: object) -> str:
    """Return a value as text for messages, shortened if it is long."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # raised by a foreign object
        text = f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
