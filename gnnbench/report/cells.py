"""Tables of pages: headings, cells and lines, which readers sort and choose columns of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gnnbench.records import Provenance

#: What stands beside a figure for its provenance.
MARKS: dict[Provenance, str] = {"measured": "●", "modelled": "◇", "quoted": "□"}


class Cell(NamedTuple):
    """A cell of a table: its text and style.

    Small text or the mark of a provenance follows the text. A column is sorted by ``value``.
    """

    text: str
    style: str = ""
    small: str = ""
    provenance: Provenance | None = None
    value: float | str | None = None


class Head(NamedTuple):
    """The heading of a column: its title, and the text below it.

    Readers choose and sort columns by ``key``. A column that ``decides`` is shown at first.
    """

    title: str
    below: str
    key: str
    decides: bool

    @property
    def name(self) -> str:
        """The title with its provenance."""
        provenance = self.below if self.below in MARKS else self.key.removeprefix("speed-")
        return f"{self.title} [{provenance}]" if provenance in MARKS else self.title


class Line(NamedTuple):
    """A line of a table, or why a run has none; the first line of a row has the row's ``id``.

    Readers filter lines by ``facets``, such as the data set.
    """

    label: str
    cells: Sequence[Cell] = ()
    failure: str = ""
    id: str = ""
    facets: Mapping[str, str] = {}
