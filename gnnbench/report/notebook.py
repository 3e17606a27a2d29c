"""A comparison, a plan and advice as pieces of HTML, as notebooks show a cell's value."""

from __future__ import annotations

from collections.abc import Sequence

from gnnbench.comparison.ranking import group_runs
from gnnbench.records import Comparison, Table
from gnnbench.report.columns import deciding_columns
from gnnbench.report.comparison import figures_line, made_up_lines, title_line
from gnnbench.report.page import render_page
from gnnbench.report.tables_html import describe_table
from gnnbench.report.verdict import describe_noise, summarise


def render_comparison(comparison: Comparison) -> str:
    """Return the answer, the deciding columns, and their provenance, as on a terminal."""
    groups = group_runs(comparison)
    columns = deciding_columns(groups)
    sections = []
    number = 0
    for group in groups:
        lines = []
        for row in group.rows:
            cells = [column.cells[number][0] for column in columns] if row.done else []
            number += bool(row.done)
            lines.append((row.label, cells, "; ".join(row.failures)))
        sections.append((group.title, lines))
    warnings = [describe_noise(comparison, groups), comparison.interrupted]
    return render_page(
        "notebook.html",
        title_line(comparison),
        answers=[*summarise(groups), *filter(None, warnings)],
        heads=[" ".join(column.heading).replace("- ", "-") for column in columns],
        sections=sections,
        tables=[],
        below=[*made_up_lines(comparison), figures_line(comparison, groups)],
    )


def render_tables(title: str, tables: Sequence[Table], answers: Sequence[str] = ()) -> str:
    """Return the tables of a plan or of advice, below their summary."""
    return render_page(
        "notebook.html",
        title,
        answers=answers,
        heads=[],
        sections=[],
        tables=[describe_table(table) for table in tables],
        below=[],
    )
