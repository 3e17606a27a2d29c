"""Tables of plans, and of papers' numbers beside ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from gnnbench.records.result import Provenance


@dataclass(frozen=True, slots=True)
class Cell:
    """One entry of a table: a number with its unit and origin, or ``text`` if there is no number.

    A count is an int, and printed in full.

    ``quoted`` is a paper's number for the same thing, in the same unit; the error of ``value`` is
    taken against it. ``text`` stands for what is not a number, such as "out of memory", and
    ``quoted_text`` for what the paper has instead of one. Constants that were fitted on what is
    quoted here are named in ``fitted_on``; the cell then proves nothing. ``uncounted`` says why a
    cell counts neither for nor against the paper, such as ``"counted in hongtu-table7"``.
    """

    value: float | None = None
    unit: str = ""
    provenance: Provenance = "modelled"
    quoted: float | None = None
    text: str = ""
    quoted_text: str = ""
    fitted_on: tuple[str, ...] = ()
    uncounted: str = ""

    @property
    def error(self) -> float | None:
        """(value - quoted) / quoted, where both are known and ``quoted`` is not zero."""
        if self.value is None or not self.quoted:
            return None
        return (self.value - self.quoted) / self.quoted


@dataclass(frozen=True, slots=True)
class TableRow:
    """A labelled row: one cell a column."""

    label: str
    cells: tuple[Cell, ...]


class Contradiction(NamedTuple):
    """A number far from the paper's, and the assumption that would have to change to reach it.

    ``what`` is ``modelled`` here and ``quoted`` from the paper, both with their units. ``remedy``
    is the assumption that would have to change least, or says that none suffices. ``sentence``,
    without its full stop, lists the next candidates too, and the other numbers that each would
    change.
    """

    what: str
    modelled: str
    quoted: str
    remedy: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Table:
    """The output of ``plan`` and ``reproduce``: cells in rows and columns, and notes.

    If the columns are numbers along an axis, ``axis`` names their quantity; a row is then a curve.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...] = ()
    axis: str = ""
    contradictions: tuple[Contradiction, ...] = ()

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The cells of all rows, row by row."""
        return tuple(cell for row in self.rows for cell in row.cells)
