"""The agreement of a table's numbers with the paper that it quotes.

``agreement.toml`` has the results of the bundled tables, for the list of ``gnnbench reproduce``.
``python -m tests.agreements --write`` writes it, and a test checks it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from statistics import median

from gnnbench.host.toml import read_toml
from gnnbench.records import Cell, Table

FILE = Path(__file__).with_name("agreement.toml")

#: Errors up to this count as close.
CLOSE = 0.25
_NUMBER = r"(\d[\d,]*(?:\.\d+)?)"
#: A paper's range, stated by its ends only.
_RANGE = re.compile(rf"{_NUMBER}\s*[-\u2013]\s*{_NUMBER}")


@dataclass(frozen=True, slots=True)
class Agreement:
    """The agreement of a table's cells with the paper's.

    ``numbers`` cells have an error, and ``close`` of them are within ``CLOSE``. ``median_error``
    and ``largest_error`` are of absolute relative errors, None without any. ``words`` cells have
    words in the paper or here, and ``same_words`` of them are equal. Two kinds of cells are in none
    of these counts: ``fitted`` cells have a constant fitted on them, and ``uncounted`` has the
    number of cells by the reason why they do not count.
    """

    numbers: int
    close: int
    median_error: float | None
    largest_error: float | None
    words: int
    same_words: int
    fitted: int
    uncounted: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The counts of an :class:`Agreement`, over all tables of a reproduction."""

    numbers: int
    close: int
    words: int
    same_words: int
    fitted: int


def count_outcome(tables: Iterable[Table]) -> Outcome:
    """Count the cells of ``tables``."""
    cells = [cell for table in tables for row in table.rows for cell in row.cells]
    found = measure_agreement(cells)
    return Outcome(**{each.name: getattr(found, each.name) for each in fields(Outcome)})


def describe_outcome(outcome: Outcome) -> str:
    """Describe an outcome in a few words, for a list."""
    clauses = []
    if outcome.numbers:
        clauses.append(f"{outcome.close} of {outcome.numbers} within {format_share(CLOSE)}")
    if outcome.words:
        clauses.append(f"{outcome.same_words} of {outcome.words} words")
    if outcome.fitted:
        clauses.append(f"{outcome.fitted} fitted")
    return ", ".join(clauses) or "no number to compare"


@cache
def read_outcomes() -> Mapping[str, Outcome]:
    """Return the outcomes of the bundled reproductions, by name."""
    return {
        name: Outcome(**{each.name: int(counts[each.name]) for each in fields(Outcome)})
        for name, counts in read_toml(FILE).items()
        if isinstance(counts, dict)
    }


def write_outcomes(outcomes: Mapping[str, Outcome]) -> None:
    """Write the outcomes of reproductions to the file."""
    lines = ["# Rewritten by python -m tests.agreements --write; see agreement.py.", ""]
    for name in sorted(outcomes):
        counts = (f"{each.name} = {getattr(outcomes[name], each.name)}" for each in fields(Outcome))
        lines.append(f"{name} = {{ {', '.join(counts)} }}")
    FILE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def measure_agreement(cells: Iterable[Cell]) -> Agreement:
    """Measure the cells that count, stand beside a paper's value and have nothing fitted on them.

    An error that is not finite does not count.
    """
    every = tuple(cells)
    cells = [cell for cell in every if not cell.fitted_on and not cell.uncounted]
    known = (find_error(cell) for cell in cells)
    errors = [abs(error) for error in known if error is not None and math.isfinite(error)]
    words = [cell for cell in cells if compares_words(cell)]
    return Agreement(
        numbers=len(errors),
        close=sum(error <= CLOSE for error in errors),
        median_error=median(errors) if errors else None,
        largest_error=max(errors, default=None),
        words=len(words),
        same_words=sum(same_words(cell) for cell in words),
        fitted=sum(bool(cell.fitted_on) for cell in every),
        uncounted=Counter(
            cell.uncounted
            for cell in every
            if cell.uncounted and not cell.fitted_on
            if compares_words(cell) or find_error(cell) is not None
        ),
    )


def find_range(cell: Cell) -> tuple[float, float] | None:
    """Return the ends of a paper's range, or its number twice; None without either."""
    ends = _RANGE.fullmatch(cell.quoted_text)
    if ends is None:
        return None if cell.quoted is None else (cell.quoted, cell.quoted)
    low, high = (float(end.replace(",", "")) for end in ends.groups())
    return low, high


def find_error(cell: Cell) -> float | None:
    """Return a number's relative error.

    Beside a range, such as "1.2-3.4", it is 0 within the range and taken against the nearer end
    outside.
    """
    ends = find_range(cell)
    if cell.value is None or ends is None or not cell.quoted_text:
        return cell.error
    low, high = ends
    nearest = min(max(cell.value, low), high)
    return (cell.value - nearest) / nearest if nearest else None


def compares_words(cell: Cell) -> bool:
    """Return whether the paper or we have words here, and the other has something to compare.

    A range beside a number is no word.
    """
    if cell.value is not None and _RANGE.fullmatch(cell.quoted_text):
        return False
    return bool(cell.quoted_text) or (bool(cell.text) and cell.quoted is not None)


def same_words(cell: Cell) -> bool:
    """Return whether both have the same words, and neither has a number."""
    return cell.text == cell.quoted_text and cell.value is None and cell.quoted is None


def describe_agreement(agreement: Agreement) -> str:
    """Describe the errors in one sentence without its full stop; empty without a comparison."""
    clauses = []
    if agreement.median_error is not None and agreement.largest_error is not None:
        clauses.append(
            f"median error {format_share(agreement.median_error)}, largest "
            f"{format_share(agreement.largest_error)}; {agreement.close} of {agreement.numbers} "
            f"cells within {format_share(CLOSE)}"
        )
    if agreement.words:
        clauses.append(
            f"{agreement.same_words} of {agreement.words} cells without a number say the same"
        )
    if agreement.fitted:
        count = f"{agreement.fitted} more {'has' if agreement.fitted == 1 else 'have'}"
        clauses.append(f"{count} a constant fitted on {'it' if agreement.fitted == 1 else 'them'}")
    for reason, number in agreement.uncounted.items():
        clauses.append(f"{number} more {'does' if number == 1 else 'do'} not count ({reason})")
    return "; ".join(clauses)


def describe_fits(table: Table) -> tuple[str, ...]:
    """Say which constants were fitted on which cells of a table.

    There is one sentence, without its full stop, for each set of constants.
    """
    places: dict[tuple[str, ...], list[str]] = {}
    for row in table.rows:
        for column, cell in zip(table.columns, row.cells, strict=True):
            if cell.fitted_on:
                places.setdefault(cell.fitted_on, []).append(f"{row.label}, {column}")
    return tuple(
        f"{' and '.join(names)} fitted on {'; '.join(cells)}" for names, cells in places.items()
    )


def format_share(share: float) -> str:
    """Return ``"4.6 %"`` below a tenth, ``"25 %"`` from there on."""
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:.0f} %"
