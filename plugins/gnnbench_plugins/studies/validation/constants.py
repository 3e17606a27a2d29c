"""The table of every constant that the model rests on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

from gnnbench.constants import MARKS, MarkedNumber
from gnnbench.records import Cell, Table, TableRow
from gnnbench.reproduce.studies import Inventory
from gnnbench_plugins.studies import list_constants

NOTES = (
    "measured: here; quoted: from the source that is named; assumed: nobody states it, or a user's "
    "file has no mark; fitted: set so that the cells named are met, which therefore prove nothing",
    "a table's errors, and the ledger's, are those over cells on which nothing was fitted",
)


class Constants(Inventory):
    """Every constant of the model, how far it is to be believed, and what was fitted on what."""

    name: ClassVar[str] = "constants"
    summary: ClassVar[str] = "every constant of the model: measured, quoted, assumed or fitted"

    def numbers(self) -> tuple[MarkedNumber, ...]:
        return list_constants()

    def run(self) -> tuple[Table, ...]:
        return (count_marks(self.numbers()),)


def count_marks(numbers: Sequence[MarkedNumber]) -> Table:
    """Count the constants of each mark, by the folder that they are in."""
    places = Counter((_place(number), number.mark) for number in numbers)
    totals = Counter(number.mark for number in numbers)
    folders = dict.fromkeys(_place(number) for number in numbers)
    rows = [TableRow(name, tuple(Cell(places[name, mark]) for mark in MARKS)) for name in folders]
    rows.append(TableRow("all", tuple(Cell(totals[mark]) for mark in MARKS)))
    fitted = [number for number in numbers if number.fitted_on]
    cells = {cell for number in fitted for cell in number.fitted_on}
    return Table(
        name="constants",
        title=(
            f"The model has {len(numbers)} constants. {totals['fitted']} of them were fitted, on "
            f"{len(cells)} results: {'; '.join(sorted(cells))}."
        ),
        columns=MARKS,
        rows=tuple(rows),
        notes=NOTES,
    )


def _place(number: MarkedNumber) -> str:
    """Return the folder of a file or a module, as in ``"gnnbench/platforms"``."""
    path = number.place.replace(".", "/").removesuffix("/toml")
    return path.rpartition("/")[0]
