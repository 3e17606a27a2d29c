"""The ledger with one source left out of every fit.

``leave_out.toml`` has the findings: finding them predicts most of the ledger many times. ``python
-m tests.ledger --leave-out`` writes it, and a test checks it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gnnbench.host.toml import read_toml

FILE = Path(__file__).with_name("leave_out.toml")


@dataclass(frozen=True, slots=True)
class LeftOutSource:
    """The error factors of a source's groups if the source takes no part in a fit.

    ``how`` says which constants were fitted anew, on what, and with which result.
    """

    source: str
    how: str
    factors: Mapping[str, float]


def write_left_out(found: Iterable[LeftOutSource], path: Path = FILE) -> None:
    """Write the findings, with four digits each."""
    tables = ["# Rewritten by python -m tests.ledger --leave-out; see leave_out.py."]
    for each in found:
        lines = ["[[source]]", f"source = {json.dumps(each.source)}"]
        lines += [f"how = {json.dumps(each.how, ensure_ascii=False)}", "[source.factors]"]
        lines += [f"{json.dumps(group)} = {value:.4g}" for group, value in each.factors.items()]
        tables.append("\n".join(lines))
    path.write_text("\n\n".join(tables) + "\n", encoding="utf-8")


@cache
def read_left_out(path: Path = FILE) -> tuple[LeftOutSource, ...]:
    """Return what was found, by the names of the sources."""
    tables = read_toml(path).get("source", ()) if path.exists() else ()
    return tuple(
        LeftOutSource(
            str(table["source"]),
            str(table["how"]),
            {str(group): float(value) for group, value in table["factors"].items()},
        )
        for table in (tables if isinstance(tables, list) else ())
    )
