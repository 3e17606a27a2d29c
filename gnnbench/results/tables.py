"""Tables of ``plan`` and ``reproduce`` as JSON, and how far a table is from the paper it quotes."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from pydantic import JsonValue

from gnnbench.records import Cell, Table

#: Errors up to this count as close.
CLOSE = 0.25
_NUMBER = r"(\d[\d,]*(?:\.\d+)?)"
#: What a paper has where it gives the least and the most only.
_RANGE = re.compile(rf"{_NUMBER}\s*[-\u2013]\s*{_NUMBER}")


@dataclass(frozen=True, slots=True)
class Agreement:
    """How a table's cells compare with the paper's.

    Of ``numbers`` cells with an error, ``close`` are within ``CLOSE``; ``median_error`` and
    ``largest_error`` are of absolute relative errors, None without any. Of ``words`` cells where
    the paper has words or ours has, ``same_words`` say the same.
    """

    numbers: int
    close: int
    median_error: float | None
    largest_error: float | None
    words: int
    same_words: int


def measure_agreement(table: Table) -> Agreement:
    """Over all cells that a paper's number or word stands beside; an error that is not finite
    does not count."""
    cells = [cell for row in table.rows for cell in row.cells]
    known = (_finite(find_error(cell)) for cell in cells)
    errors = [abs(error) for error in known if error is not None]
    words = [cell for cell in cells if compares_words(cell)]
    return Agreement(
        numbers=len(errors),
        close=sum(error <= CLOSE for error in errors),
        median_error=median(errors) if errors else None,
        largest_error=max(errors, default=None),
        words=len(words),
        same_words=sum(same_words(cell) for cell in words),
    )


def find_error(cell: Cell) -> float | None:
    """A number's relative error. Where a paper has a range, such as "1.2-3.4", that is 0 within it,
    and else of the nearer end."""
    ends = _RANGE.fullmatch(cell.quoted_text)
    if cell.value is None or ends is None:
        return cell.error
    low, high = (float(end.replace(",", "")) for end in ends.groups())
    nearest = min(max(cell.value, low), high)
    return (cell.value - nearest) / nearest if nearest else None


def compares_words(cell: Cell) -> bool:
    """Whether the paper or we have words here, and the other something to hold them against. A
    range beside a number is no word."""
    if cell.value is not None and _RANGE.fullmatch(cell.quoted_text):
        return False
    return bool(cell.quoted_text) or (bool(cell.text) and cell.quoted is not None)


def same_words(cell: Cell) -> bool:
    """Whether both have the same words, and neither a number."""
    return cell.text == cell.quoted_text and cell.value is None and cell.quoted is None


def make_document(tables: Sequence[Table]) -> dict[str, JsonValue]:
    """``{"tables": [...]}``; a number that is not finite is null."""
    return {"tables": [_table(table) for table in tables]}


def _table(table: Table) -> JsonValue:
    agreement = measure_agreement(table)
    return {
        "name": table.name,
        "title": table.title,
        "columns": list(table.columns),
        "axis": table.axis,
        "rows": [
            {"label": row.label, "cells": [_cell(cell) for cell in row.cells]} for row in table.rows
        ],
        "agreement": {
            "numbers": agreement.numbers,
            "close": agreement.close,
            "median_error": agreement.median_error,
            "largest_error": agreement.largest_error,
            "words": agreement.words,
            "same_words": agreement.same_words,
        },
        "notes": list(table.notes),
    }


def _cell(cell: Cell) -> JsonValue:
    return {
        "value": _finite(cell.value),
        "unit": cell.unit,
        "provenance": cell.provenance,
        "quoted": _finite(cell.quoted),
        "error": _finite(find_error(cell)),
        "text": cell.text,
        "quoted_text": cell.quoted_text,
    }


def _finite(value: float | None) -> float | None:
    # float: a NumPy number is no JSON.
    return float(value) if value is not None and math.isfinite(value) else None
