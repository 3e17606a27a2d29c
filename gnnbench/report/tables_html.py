"""Tables of ``reproduce`` as one web page, with a chart if a table has an axis."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from gnnbench.records import Cell, Table, TableRow
from gnnbench.report.axes import Axis, scale_between
from gnnbench.report.charts import Chart
from gnnbench.report.page import render_page
from gnnbench.report.results.output import write_text
from gnnbench.report.svg import Across, draw_lines, name_series
from gnnbench.report.tables import format_error, format_quantity, sum_up_agreement
from gnnbench.reproduce.agreement import describe_fits


def write_tables(tables: Sequence[Table], path: Path) -> None:
    """Write the page, whole or not at all."""
    write_text(path, make_page(tables))


def make_page(tables: Sequence[Table]) -> str:
    """Return the page as self-contained text."""
    names = dict.fromkeys(table.name for table in tables)
    title = f"Beside the paper: {', '.join(names)}"
    return render_page("tables.html", title, tables=[describe_table(table) for table in tables])


def describe_table(table: Table) -> dict[str, object]:
    """Return the template's view of a table, as texts."""
    return {
        "title": table.title,
        "columns": list(table.columns),
        "lines": [(row.label, [_describe(cell) for cell in row.cells]) for row in table.rows],
        "chart": _draw(table) if table.axis else None,
        "agreement": sum_up_agreement(table),
        "notes": [
            f"{note[:1].upper()}{note[1:]}." for note in (*describe_fits(table), *table.notes)
        ],
        "contradictions": [
            (each.what, f"{each.modelled} for {each.quoted}", each.remedy, each.sentence)
            for each in table.contradictions
        ],
    }


def _draw(table: Table) -> Chart:
    """Draw the rows as curves along the axis, from zero on both axes."""
    curves = {row.label: values for row in table.rows if (values := _curve(row))}
    places = [float(column) for column in table.columns]
    unit = sorted({cell.unit for cell in table.cells})[-1]
    across = Across(table.axis, Axis(0.0, max(places), tuple(places)))
    up = Across("", scale_between(chain.from_iterable(curves.values()), zero=True), unit)
    drawing = draw_lines(table.title, across, places, curves, up)
    origins = ", ".join(sorted({cell.provenance for cell in table.cells}))
    caption = f"Every point is {origins}."
    return Chart(drawing, name_series(curves, "curve "), caption=caption)


def _curve(row: TableRow) -> list[float]:
    """Return a row's numbers up to their end; none if one is missing before another."""
    values = [cell.value for cell in row.cells]
    numbers = [value for value in values if value is not None]
    return numbers if None not in values[: len(numbers)] else []


def _describe(cell: Cell) -> list[tuple[str, str]]:
    """Return this project's value, then the paper's and the error, each with its origin."""
    parts: list[tuple[str, str]] = []
    if cell.value is not None:
        parts.append((format_quantity(cell.value, cell.unit), cell.provenance))
    elif cell.text:
        parts.append((cell.text, cell.provenance))
    if cell.quoted is not None:
        parts.append((format_quantity(cell.quoted, cell.unit), "quoted"))
    elif cell.quoted_text:
        parts.append((cell.quoted_text, "quoted"))
    if error := format_error(cell):
        parts.append((error, ""))
    return parts
