"""Every constant that the model rests on: of code by annotations, of TOML files by their tables."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import gnnbench
import gnnbench_plugins
from gnnbench.constants import MARKS, MarkedNumber, find_constants, find_marked, read_number
from gnnbench.records import Cell, Table, TableRow
from gnnbench.studies import Inventory
from gnnbench.toml import read_toml

PACKAGES = (gnnbench, gnnbench_plugins)
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


@cache
def list_constants() -> tuple[MarkedNumber, ...]:
    """Of both packages: of TOML files by their names, then of modules."""
    found = [number for package in PACKAGES for number in _read_files(_folder(package))]
    found += [number for package in PACKAGES for number in _read_modules(package)]
    return tuple(found)


@cache
def find_fitted(cell: str) -> tuple[str, ...]:
    """The constants that were fitted on a cell of the ledger, by its id."""
    return tuple(number.name for number in list_constants() if cell in number.fitted_on)


def _folder(package: ModuleType) -> Path:
    return Path(package.__path__[0])


def _read_files(folder: Path) -> Iterator[MarkedNumber]:
    for path in sorted(folder.rglob("*.toml")):
        for name, table in find_marked(read_toml(path)):
            yield read_number(path.relative_to(folder.parent).as_posix(), name, table)


def _read_modules(package: ModuleType) -> Iterator[MarkedNumber]:
    folder = _folder(package)
    for path in sorted(folder.rglob("*.py")):
        if "Constant(" in path.read_text(encoding="utf-8"):
            parts = path.relative_to(folder.parent).with_suffix("").parts
            name = ".".join(parts).removesuffix(".__init__")
            yield from find_constants(importlib.import_module(name))


def count_marks(numbers: Sequence[MarkedNumber]) -> Table:
    """How many constants have which mark, by the folder that they are in."""
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
            f"{len(numbers)} constants stand for the world, {totals['fitted']} of which were "
            f"fitted, on {len(cells)} results: {'; '.join(sorted(cells))}."
        ),
        columns=MARKS,
        rows=tuple(rows),
        notes=NOTES,
    )


def _place(number: MarkedNumber) -> str:
    """``"gnnbench/platforms"`` of a file or a module there."""
    path = number.place.replace(".", "/").removesuffix("/toml")
    return path.rpartition("/")[0]
