"""How far the reproductions are from their papers, in a table beside this file.

``baseline.toml`` has the error of each cell that a paper has a number or a range for, and of each
that has words whether they are the paper's. Nothing says that errors are small: the reproductions
do. They say which cells a change has moved, and whether away from the paper. After a change that
was meant, ``python -m tests.agreements --write`` makes the table anew, and its difference belongs
into the commit that explains it; and with it the counts of ``gnnbench/reproduce/agreement.toml``.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from gnnbench.host.toml import read_toml
from gnnbench.records import Table
from gnnbench.reproduce.agreement import compares_words, find_error, same_words

__all__ = ["BASELINE", "REPRODUCTIONS", "choose", "collect_errors", "compare", "load", "write"]

BASELINE = Path(__file__).with_name("baseline.toml")
#: Those that are modelled; the first are quick enough for every run of the tests.
QUICK = ("hongtu-table1", "hongtu-table9", "hongtu-figure11")
REPRODUCTIONS = (
    *QUICK,
    "hongtu-breakdown",
    "hongtu-table5",
    "hongtu-table6",
    "hongtu-table7",
    "hongtu-figure9",
    "hongtu-figure10",
    "hongtu-headlines",
    "hyscale-table4",
    "hyscale-table6",
    "hyscale-figure8",
    "hyscale-figure10",
    "hyscale-figure11",
    "hpgnn-table6",
    "hpgnn-table7",
    "mixgcn-figure7",
    "mixgcn-figure12",
    "mixgcn-table3",
    "mixgcn-table4",
)
#: By how much an error may grow: rounding differs among machines.
WITHIN = 1e-4
#: The error of a cell that has words where the paper has others, or a number.
DIFFERS = 1.0


def collect_errors(tables: Iterable[Table]) -> dict[str, float]:
    """The errors of cells that something of a paper stands beside, by table, row and column."""
    found: dict[str, float] = {}
    for number, table in enumerate(tables):
        for row in table.rows:
            for column, cell in zip(table.columns, row.cells, strict=True):
                error = find_error(cell)
                if compares_words(cell):
                    error = 0.0 if same_words(cell) else DIFFERS
                if error is not None and math.isfinite(error):
                    found[f"{table.name} {number} · {row.label} · {column}"] = error
    return found


def load(path: Path = BASELINE) -> dict[str, float]:
    """The errors of the table."""
    errors = read_toml(path)["errors"] if path.exists() else {}
    assert isinstance(errors, dict)
    return {str(name): float(value) for name, value in errors.items()}


def write(errors: Mapping[str, float], path: Path = BASELINE) -> None:
    """Keep the errors that there are now."""
    heading = "# Rewritten by python -m tests.agreements --write; see __init__.py.\n\n[errors]\n"
    lines = [f"{json.dumps(name, ensure_ascii=False)} = {errors[name]!r}" for name in errors]
    path.write_text(heading + "\n".join(sorted(lines)) + "\n", encoding="utf-8")


def choose(errors: Mapping[str, float], names: Iterable[str]) -> dict[str, float]:
    """Those in the tables ``names``, and in tables that are parts of these: ``NAME-PART``."""
    chosen = tuple(f"{name}{end}" for name in names for end in " -")
    return {name: error for name, error in errors.items() if name.startswith(chosen)}


def compare(
    before: Mapping[str, float], found: Mapping[str, float], names: Iterable[str]
) -> list[str]:
    """What has moved in the tables ``names``, those cells first that got worse."""
    was = choose(before, names)
    worse, others = list(_list_strangers(was, found)), []
    for name in sorted(was.keys() & found.keys()):
        growth = abs(found[name]) - abs(was[name])
        if abs(growth) <= WITHIN:
            continue
        line = f"{name}: off by {was[name]:+.1%} before, {found[name]:+.1%} now"
        (worse if growth > 0 else others).append(f"{line}, {'WORSE' if growth > 0 else 'better'}")
    return worse + others


def _list_strangers(before: Mapping[str, float], found: Mapping[str, float]) -> Iterator[str]:
    for name in sorted(before.keys() - found.keys()):
        yield f"{name}: in {BASELINE.name}, and in no reproduction"
    for name in sorted(found.keys() - before.keys()):
        yield f"{name}: not in {BASELINE.name}"
