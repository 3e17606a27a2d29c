"""Tables of ``plan`` and ``reproduce`` in a terminal: computed numbers beside quoted ones.

A column of the table becomes one for each provenance that occurs in it, so that numbers of
different origin never share one. A further one has the error if both are known. Columns that do not
fit move to a further panel, as in the comparison's table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral

from rich.cells import cell_len
from rich.console import Console

from gnnbench.records import Cell, Contradiction, Provenance, Table
from gnnbench.report.writer import Writer, pad, wrap
from gnnbench.reproduce.agreement import (
    compares_words,
    describe_agreement,
    describe_fits,
    find_error,
    measure_agreement,
    same_words,
)
from gnnbench.units import format_si

_ORDER: tuple[Provenance, ...] = ("measured", "modelled", "quoted")
#: Units that take prefixes; seconds from one up do not, because papers print 6260 s.
_PREFIXED = ("s", "J", "B", "B/s", "FLOP/s", "edges/s", "vertices/s")


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of the table: headings and texts, one for each of its parts."""

    title: str
    parts: tuple[str, ...]
    texts: tuple[tuple[str, ...], ...]

    def widths(self) -> list[int]:
        """Return the width of each part; the last is widened to fit the title."""
        widths = [
            max(cell_len(text) for text in (part, *texts))
            for part, texts in zip(self.parts, self.texts, strict=True)
        ]
        widths[-1] += max(0, cell_len(self.title) - self._span(widths))
        return widths

    @staticmethod
    def _span(widths: Sequence[int]) -> int:
        return sum(widths) + 2 * (len(widths) - 1)

    @property
    def width(self) -> int:
        return self._span(self.widths())


def print_table(table: Table, console: Console, *, details: bool = False) -> None:
    """Print one table: title, panels, agreement with the paper, notes, and contradictions.

    A contradiction has one line, or with ``details`` everything known of it.
    """
    write = Writer(console)
    write.paragraph(table.title, "bold")
    columns = [
        _make_column(title, [row.cells[number] for row in table.rows])
        for number, title in enumerate(table.columns)
    ]
    labels = [row.label for row in table.rows]
    label_width = max(map(cell_len, labels), default=0)
    for panel in _split(columns, label_width, write.width):
        write.blank()
        _print_panel(write, panel, labels, label_width)
    sentence = sum_up_agreement(table)
    if sentence:
        write.blank()
        write.paragraph(sentence, "bold")
    fits = describe_fits(table)
    if table.notes or fits:
        write.blank()
    for fit in fits:
        write.entry("no test", fit)
    for note in table.notes:
        write.entry("note", note)
    if table.contradictions:
        write.blank()
        _print_contradictions(write, table.contradictions, details=details)


def _print_contradictions(
    write: Writer, contradictions: Sequence[Contradiction], *, details: bool
) -> None:
    if details:
        for each in contradictions:
            write.entry("sensitivity", each.sentence)
        return
    write.paragraph("The smallest change that would explain each number (--details: all changes)")
    whats = [each.what for each in contradictions]
    values = [f"{each.modelled} for {each.quoted}" for each in contradictions]
    widths = [max(map(cell_len, texts)) for texts in (whats, values)]
    room = write.width - sum(widths) - 5
    for what, value, each in zip(whats, values, contradictions, strict=True):
        first, *others = wrap(each.remedy, max(30, room))
        lead = f" {pad(what, widths[0])}  {pad(value, widths[1])}  "
        write.line([(lead, ""), (first, "dim")])
        for line in others:
            write.line([(" " * cell_len(lead), ""), (line, "dim")])


def sum_up_agreement(table: Table) -> str:
    """Return a sentence on the table's distance from the paper; empty if it quotes none."""
    text = describe_agreement(measure_agreement(table.cells))
    return f"{text[0].upper()}{text[1:]}." if text else ""


def format_quantity(value: float, unit: str) -> str:
    """Return a number with its unit, at least three significant digits: ``"403 ms"``.

    A whole number is a count, and has no digits after the point. Thousands have commas, as in
    ``"6,260 s"``.
    """
    if not math.isfinite(value):
        return f"{value:g} {unit}".rstrip()
    if isinstance(value, Integral):
        return f"{value:,} {unit}".rstrip() if unit not in _PREFIXED else format_si(value, unit)
    if unit in _PREFIXED and not (unit == "s" and abs(value) >= 1):
        return format_si(value, unit)
    decimals = 0 if value == 0 else max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f} {unit}".rstrip()


def _make_column(title: str, cells: Sequence[Cell]) -> _Column:
    parts: list[str] = []
    texts: list[tuple[str, ...]] = []
    for provenance in _ORDER:
        column = tuple(_text(cell, provenance) for cell in cells)
        if any(column):
            parts.append(f"[{provenance}]")
            texts.append(column)
    errors = tuple(format_error(cell) for cell in cells)
    if any(errors):
        parts.append("error")
        texts.append(errors)
    return _Column(title, tuple(parts) or ("",), tuple(texts) or (("",) * len(cells),))


def _text(cell: Cell, provenance: Provenance) -> str:
    """Return a cell's text for one provenance; its ``quoted`` value counts as quoted too."""
    if cell.provenance == provenance:
        if cell.value is not None:
            return format_quantity(cell.value, cell.unit)
        if cell.text:
            return cell.text
    if provenance == "quoted":
        if cell.quoted is not None:
            return format_quantity(cell.quoted, cell.unit)
        return cell.quoted_text
    return ""


def format_error(cell: Cell) -> str:
    """Return a cell's error, in parentheses where it does not count; empty without one."""
    error = find_error(cell)
    if compares_words(cell):
        text = "same" if same_words(cell) else "DIFFERS"
    elif error is None:
        return ""
    elif error == 0 and cell.quoted is None:
        text = "within"
    else:
        text = f"{100 * error:+.0f} %"
    return f"({text})" if cell.uncounted else f"{text} fitted" if cell.fitted_on else text


def _split(columns: Sequence[_Column], label_width: int, width: int) -> list[list[_Column]]:
    """Return columns by panel, as many as fit in each, and at least one."""
    panels: list[list[_Column]] = []
    room = 0
    for column in columns:
        needed = 4 + column.width
        if not panels or needed > room:
            panels.append([])
            room = width - 1 - label_width
        panels[-1].append(column)
        room -= needed
    return panels


def _print_panel(
    write: Writer, columns: Sequence[_Column], labels: Sequence[str], label_width: int
) -> None:
    lead = " " + pad("", label_width)
    titles = "".join(f"    {pad(column.title, column.width)}" for column in columns)
    write.line([(lead, ""), (titles, "bold")])
    write.line([(lead, ""), ("".join(_join(c, c.parts) for c in columns), "dim")])
    for number, label in enumerate(labels):
        texts = "".join(_join(c, [part[number] for part in c.texts]) for c in columns)
        write.line([(f" {pad(label, label_width)}", ""), (texts, "")])


def _join(column: _Column, texts: Sequence[str]) -> str:
    padded = (pad(text, width, "right") for text, width in zip(texts, column.widths(), strict=True))
    return "    " + "  ".join(padded)
