"""Tables of ``plan`` and ``reproduce`` as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral

from pydantic import JsonValue

from gnnbench.constants import MarkedNumber
from gnnbench.price.held_out import list_held_out
from gnnbench.price.model_error import describe_path
from gnnbench.records import Cell, LedgerEntry, Table
from gnnbench.reproduce.agreement import find_error, measure_agreement


def make_document(tables: Sequence[Table]) -> dict[str, JsonValue]:
    """Return ``{"tables": [...]}``; a number that is not finite is null."""
    return {"tables": [_table(table) for table in tables]}


def describe_entries(entries: Sequence[LedgerEntry]) -> JsonValue:
    """Return a ledger's entries as a document has them, under ``cells``."""
    held_out = {entry.id for entry in list_held_out(entries)}
    return [
        {
            "id": entry.id,
            "source": entry.source,
            "library": entry.subject.library,
            "machine": entry.machine,
            "kind": entry.kind,
            "what": entry.what,
            "measured": _finite(entry.measured),
            "predicted": _finite(entry.predicted),
            "unit": entry.unit,
            "fitted_on": list(entry.fitted_on),
            "group": entry.group,
            "held_out": entry.id in held_out,
            "error": _finite(entry.error),
            "factor": _finite(entry.factor),
            "path": describe_path(entry.path),
            "graph": entry.subject.graph,
            "model": entry.subject.model,
            "kernel": entry.subject.kernel,
            "quote": entry.origin.quote,
            "conditions": entry.origin.conditions,
            "doubts": entry.origin.doubts,
            "inferred": list(entry.origin.inferred),
            "sizes": entry.origin.sizes,
            "command": entry.plan.command,
            "command_reads": entry.plan.what,
            "no_command": entry.plan.reason,
        }
        for entry in entries
    ]


def describe_numbers(numbers: Sequence[MarkedNumber]) -> JsonValue:
    """Return constants as a document has them, under ``constants``."""
    return [
        {
            "place": number.place,
            "name": number.name,
            "value": number.value,
            "mark": number.mark,
            "source": number.source,
            "fitted_on": list(number.fitted_on),
        }
        for number in numbers
    ]


def _table(table: Table) -> JsonValue:
    agreement = measure_agreement(table.cells)
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
            "fitted": agreement.fitted,
            "uncounted": dict(agreement.uncounted),
        },
        "notes": list(table.notes),
        "contradictions": [each._asdict() for each in table.contradictions],
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
        "fitted_on": list(cell.fitted_on),
        "uncounted": cell.uncounted,
    }


def _finite(value: float | None) -> float | None:
    if value is None or not math.isfinite(value):
        return None
    # A NumPy number is not valid JSON.
    return int(value) if isinstance(value, Integral) else float(value)
