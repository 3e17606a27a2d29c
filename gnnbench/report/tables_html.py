"""Tables of ``reproduce`` as one web page, with a chart where a table has an axis."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from gnnbench.records import Cell, Provenance, Table, TableRow
from gnnbench.report.html import STYLE
from gnnbench.report.svg import draw_lines
from gnnbench.report.tables import format_quantity, sum_up_agreement
from gnnbench.results.output import write_text


def write_tables(tables: Sequence[Table], path: Path) -> None:
    """Write the page, whole or not at all."""
    write_text(path, make_page(tables))


def make_page(tables: Sequence[Table]) -> str:
    """The page as text; it needs nothing else."""
    title = ", ".join(table.name for table in tables)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n"
        f"<body><main>{''.join(map(_section, tables))}</main></body></html>\n"
    )


def _section(table: Table) -> str:
    sentence = sum_up_agreement(table)
    notes = "".join(f"<p>{escape(note[:1].upper() + note[1:])}.</p>" for note in table.notes)
    return (
        f"<section><h2>{escape(table.title)}</h2>{_chart(table)}{_table(table)}"
        f'<p class="soft">{escape(sentence)}</p>'
        f"<details open><summary>What to know</summary>{notes}</details></section>"
    )


def _chart(table: Table) -> str:
    """The rows as curves, and where their numbers come from; nothing without an axis."""
    if not table.axis:
        return ""
    curves = {row.label: _curve(row) for row in table.rows}
    units = sorted({cell.unit for cell in table.cells})
    origins = ", ".join(sorted({cell.provenance for cell in table.cells}))
    some = {label: values for label, values in curves.items() if values}
    drawn = draw_lines(table.title, table.axis, [float(c) for c in table.columns], some, units[-1])
    return f"<figure>{drawn}<figcaption>Every point is {escape(origins)}.</figcaption></figure>"


def _curve(row: TableRow) -> list[float]:
    """A row's numbers up to where they end; none where one is missing before another."""
    values = [cell.value for cell in row.cells]
    numbers = [value for value in values if value is not None]
    return numbers if None not in values[: len(numbers)] else []


def _table(table: Table) -> str:
    heads = "".join(f'<th scope="col">{escape(title)}</th>' for title in ("", *table.columns))
    lines = "".join(
        f'<tr><th scope="row">{escape(row.label)}</th>'
        f"{''.join(f'<td>{_describe(cell)}</td>' for cell in row.cells)}</tr>"
        for row in table.rows
    )
    return (
        f'<div class="scroll"><table aria-label="{escape(table.title)}"><thead><tr>{heads}</tr>'
        f"</thead><tbody>{lines}</tbody></table></div>"
    )


def _describe(cell: Cell) -> str:
    """What is here, then what the paper has and the error, each with its origin."""
    parts = []
    if cell.value is not None:
        parts.append(_mark(format_quantity(cell.value, cell.unit), cell.provenance))
    elif cell.text:
        parts.append(_mark(cell.text, cell.provenance))
    if cell.quoted is not None:
        parts.append(_mark(format_quantity(cell.quoted, cell.unit), "quoted"))
    elif cell.quoted_text:
        parts.append(_mark(cell.quoted_text, "quoted"))
    if cell.error is not None:
        parts.append(f"{100 * cell.error:+.0f} %")
    return "<br>".join(parts)


def _mark(text: str, provenance: Provenance) -> str:
    return f'{escape(text)} <span class="soft">{provenance}</span>'
