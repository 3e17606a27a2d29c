"""How far the papers' tables were from the papers, cell by cell, in a file beside this one.

``baseline.toml`` has the error of every cell of the tables in ``TABLES`` that a paper's number
stands beside. Nothing says that they are small. They say which cells a change has moved away from
the paper: a test fails on those. After a change that was meant, ``python -m tests.errors --write``
makes the file anew, and its difference belongs into the commit that explains it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from gnnbench import plugins
from gnnbench.agreement import find_error
from gnnbench.records import Table
from gnnbench.toml import read_toml

__all__ = ["BASELINE", "TABLES", "find_worse", "load", "measure", "run", "write"]

BASELINE = Path(__file__).with_name("baseline.toml")
#: Reproductions whose errors are kept; none of them trains or takes times.
TABLES = (
    "hyscale-table4",
    "hyscale-table6",
    "hyscale-table7",
    "hyscale-figure8",
    "hyscale-figure10",
    "hyscale-figure11",
    "hpgnn-table7",
)
#: How much further from the paper's number a cell may be, of that number: rounding differs.
WITHIN = 1e-3


def run(name: str) -> tuple[Table, ...]:
    """The tables of a reproduction that neither trains nor takes times."""
    return plugins.load().reproduction(name)().run()


def measure(tables: Iterable[Table]) -> dict[str, float]:
    """The relative error of each cell that has one, by table, row and column."""
    errors = {}
    for table in tables:
        for row in table.rows:
            for column, cell in zip(table.columns, row.cells, strict=True):
                error = find_error(cell)
                if error is not None:
                    errors[f"{table.name}: {row.label}: {column}"] = error
    return errors


def load(path: Path = BASELINE) -> dict[str, float]:
    """The errors that were kept."""
    kept = read_toml(path)["errors"] if path.exists() else {}
    assert isinstance(kept, dict)
    return {str(name): float(value) for name, value in kept.items()}


def write(errors: Mapping[str, float], path: Path = BASELINE) -> None:
    """Keep these errors, four digits of each."""
    lines = [f"{json.dumps(name)} = {error:.4g}" for name, error in errors.items()]
    # TOML has no integers here.
    lines = [line if set(line.split(" = ")[1]) & set(".en") else f"{line}.0" for line in lines]
    heading = "# Rewritten by python -m tests.errors --write; see __init__.py.\n\n[errors]\n"
    path.write_text(heading + "\n".join(sorted(lines)) + "\n", encoding="utf-8")


def find_worse(before: Mapping[str, float], now: Mapping[str, float]) -> list[str]:
    """Cells that are further from the paper than they were, and those on one side alone, a line
    each."""
    lines = [f"{name}: in {BASELINE.name}, and in no table" for name in before.keys() - now.keys()]
    lines += [f"{name}: not in {BASELINE.name}" for name in now.keys() - before.keys()]
    for name in sorted(before.keys() & now.keys()):
        if abs(now[name]) > abs(before[name]) + WITHIN:
            lines.append(f"{name}: {before[name]:+.1%} before, {now[name]:+.1%} now")
    return lines
