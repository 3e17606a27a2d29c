"""What the ledger of ``gnnbench reproduce validation`` predicted, in a table beside this file.

``baseline.toml`` has a prediction for each measurement. Nothing says that they are near: the ledger
does. They say which predictions a change has moved, and whether away from what was measured. After
a change that was meant, ``python -m tests.ledger --write`` makes the table anew, and its difference
belongs into the commit that explains it.
"""

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path

from gnnbench.host.toml import read_toml
from gnnbench.records import LedgerEntry

__all__ = ["BASELINE", "compare", "load", "write"]

BASELINE = Path(__file__).with_name("baseline.toml")
#: How near a prediction must come to the one before, relative: rounding differs among machines.
WITHIN = 1e-6


def load(path: Path = BASELINE) -> dict[str, float]:
    """The predictions of the table, by id, in the unit of the measurement."""
    predicted = read_toml(path)["predicted"] if path.exists() else {}
    assert isinstance(predicted, dict)
    return {str(name): float(value) for name, value in predicted.items()}


def write(entries: Iterable[LedgerEntry], path: Path = BASELINE) -> None:
    """Keep what is predicted now."""
    lines = [f"{json.dumps(entry.id)} = {entry.predicted!r}" for entry in entries]
    heading = "# Rewritten by python -m tests.ledger --write; see __init__.py.\n\n[predicted]\n"
    path.write_text(heading + "\n".join(sorted(lines)) + "\n", encoding="utf-8")


def compare(before: Mapping[str, float], entries: Iterable[LedgerEntry]) -> list[str]:
    """What has moved, each as a line: an id, the factors before and now, and whether that is
    worse; those that got worse first."""
    found = {entry.id: entry for entry in entries}
    lines = [
        f"{name}: in {BASELINE.name}, and not in the ledger"
        for name in before.keys() - found.keys()
    ]
    lines += [f"{name}: not in {BASELINE.name}" for name in found.keys() - before.keys()]
    worse, better = [], []
    for name in sorted(found.keys() & before.keys()):
        entry, was = found[name], before[name]
        if math.isclose(entry.predicted, was, rel_tol=WITHIN, abs_tol=0.0):
            continue
        off = max(was / entry.measured, entry.measured / was)
        got_worse = entry.factor > off
        line = (
            f"{name}: off by {off:.3g}x before, {entry.factor:.3g}x now, "
            f"{'WORSE' if got_worse else 'better'} ({was:.6g} to {entry.predicted:.6g} "
            f"{entry.unit}, measured {entry.measured:.6g})"
        )
        (worse if got_worse else better).append(line)
    return [*sorted(lines), *worse, *better]
