"""Tables of what is planned, and of papers' numbers beside ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from gnnbench.records.result import Provenance


@dataclass(frozen=True, slots=True)
class Cell:
    """One entry of a table: a number with its unit and origin, or ``text`` where there is none.

    A count is an int, and printed whole.

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
    """A number that is far from the paper's, and what would have to be otherwise for it.

    ``what`` is ``modelled`` here and ``quoted`` from the paper, both with their units. ``remedy``
    is the assumption that would have to change least, or says that none does. ``sentence``, without
    its full stop, has the next ones too, and what each would move beside.
    """

    what: str
    modelled: str
    quoted: str
    remedy: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Table:
    """What ``plan`` and ``reproduce`` print: cells in rows and columns, and what to know.

    Where the columns are numbers along an axis, ``axis`` says what they count; a row is a curve.
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
        """Of all rows, one after the other."""
        return tuple(cell for row in self.rows for cell in row.cells)
