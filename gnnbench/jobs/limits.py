"""The values that each field of a job takes, for the command line, Python, sweeps and advice."""

from __future__ import annotations

import math
import operator
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import SupportsIndex, TypeAlias, cast

#: The largest whole number that arrays can count.
LARGEST = 2**63 - 1
#: The largest fan-out: vertex ids have 32 bits, so no vertex has more neighbours.
MOST_NEIGHBOURS = 2**31 - 1
#: More threads than any one machine has cores.
MOST_THREADS = 1024
#: Above this rate Adam's first step is not a number in float32.
MOST_LEARNING_RATE = 1e6
# Spelt out, not imported: `gnnbench --help` does without NumPy and torch. Tests hold them equal.
MODEL_NAMES = ("gcn", "sage", "gin", "gat", "commnet", "ggcn")
SCALINGS = ("auto", "rows", "columns", "none")
MODES = ("full-graph", "mini-batch")


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
    """At least ``least`` whole numbers, one after the other."""

    each: Whole
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
    """A name, a path, or an object of a class of gnnbench: ``module`` and ``kind``."""

    what: str
    module: str = ""
    kind: str = ""

    def __str__(self) -> str:
        return self.what

    def read(self, value: object) -> object:
        """Return the object, or the text. Raises ``ValueError`` for anything else."""
        text = os.fspath(value) if isinstance(value, os.PathLike) else value
        # An object of a class exists only if the class has been imported.
        known = getattr(sys.modules.get(self.module), self.kind, None) if self.kind else None
        if not isinstance(text, str) and not (known and isinstance(text, known)):
            raise ValueError
        return text


Rule: TypeAlias = "Whole | Real | Wholes | OneOf | Source"
COUNT = Whole(1)
FLAG = OneOf((True, False))
#: The rule of each field, by name. A field with default None may be None.
RULES: Mapping[str, Rule] = {
    "dataset": Source("a name, a path or a data set", "gnnbench.records", "Dataset"),
    "platform": Source("a name, a path or a platform", "gnnbench.machines.machine", "Platform"),
    "model": Source("a name or a class of layers"),
    "layers": COUNT,
    "hidden": COUNT,
    "epochs": COUNT,
    "batch_size": COUNT,
    "repeats": COUNT,
    "checked_updates": COUNT,
    "fanouts": Wholes(Whole(0, MOST_NEIGHBOURS)),
    "widths": Wholes(COUNT, least=2),
    "seed": Whole(0),
    "train": Whole(0),
    "threads": Whole(1, MOST_THREADS),
    "learning_rate": Real(0.0, MOST_LEARNING_RATE),
    "target_accuracy": Real(0.0, 1.0),
    "scaling": OneOf(SCALINGS),
    "mode": OneOf(MODES),
    "same_seed": FLAG,
    "check": FLAG,
    "plain": FLAG,
    "changes": FLAG,
}
