"""What small runs of every strategy did, to the last digits, in a table beside this file.

``combinations.txt`` lists the runs: every strategy, platform, model and part, and the options that
change a schedule. ``values.json`` has a line for each with its losses, bytes, the peak of every
memory, modelled times, and where and when its spans run (``recording``). Nothing says that the
numbers are right: those that a hand can count are counted in ``tests/price/test_hand_counts.py``.
They say that nothing has changed that was not meant to. After a change that was,
``python -m tests.pins --write`` makes the table anew, and its difference belongs into the commit
that explains it.
"""

import json
import math
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.pins.combinations import Combination, read_list
from tests.pins.recording import LOSS_WITHIN, record, record_dry_run

__all__ = [
    "TABLE",
    "Combination",
    "compare",
    "find_differences",
    "load",
    "read_list",
    "record",
    "record_dry_run",
    "write",
]

TABLE = Path(__file__).with_name("values.json")
#: Between the items of a line, and between a name and its value.
MARKS = (",", ":")
#: How near numbers must come, relative, and those under some names.
WITHIN = 1e-12
WITHIN_UNDER = {"labels": 2e-3}


def load() -> dict[str, dict[str, Any]]:
    """The table: records by a combination's line."""
    table = json.loads(TABLE.read_text(encoding="utf-8")) if TABLE.exists() else {}
    for found in table.values():
        for before, epoch in pairwise(found.get("epochs", ())):
            epoch.update({name: value for name, value in before.items() if name not in epoch})
    return table


def write(table: Mapping[str, Mapping[str, Any]]) -> None:
    """Keep a table, a combination a line; of an epoch what differs from the one before."""
    lines = (
        f"{json.dumps(name)}: {json.dumps(shorten(table[name]), sort_keys=True, separators=MARKS)}"
        for name in sorted(table)
    )
    TABLE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def shorten(found: Mapping[str, Any]) -> dict[str, Any]:
    """A record whose epochs have only what is not as in the one before; ``load`` adds the rest."""
    if "epochs" not in found:
        return dict(found)
    changed = [
        {name: value for name, value in epoch.items() if value != before[name]}
        for before, epoch in pairwise(found["epochs"])
    ]
    return {**found, "epochs": [*found["epochs"][:1], *changed]}


def compare(
    combination: Combination, expected: Mapping[str, Any] | None, found: Mapping[str, Any]
) -> list[str]:
    """What a combination's record has otherwise than the one before, each as ``combination: what:
    before, now``."""
    if expected is None:
        return [f"{combination}: not in {TABLE.name}"]
    under = {**WITHIN_UNDER, "loss": LOSS_WITHIN[combination.dtype]}
    return find_differences(expected, found, str(combination), under)


def find_differences(
    expected: Any,
    found: Any,
    where: str = "",
    within_under: Mapping[str, float] = WITHIN_UNDER,
    within: float = WITHIN,
) -> list[str]:
    """What is not the same, each with where it stands: numbers that differ by more than ``within``,
    relative, or by what ``within_under`` has for a name above them."""
    if isinstance(expected, dict) and isinstance(found, dict):
        pairs = [(key, expected.get(key), found.get(key)) for key in sorted({*expected, *found})]
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        pairs = list(zip(range(len(expected)), expected, found, strict=True))
    elif agree(expected, found, within):
        return []
    else:
        return [f"{where}: {expected} before, {found} now"]
    return [
        difference
        for key, before, now in pairs
        for difference in find_differences(
            before,
            now,
            f"{where}: {key}" if where else str(key),
            within_under,
            within_under.get(str(key), within),
        )
    ]


def agree(expected: Any, found: Any, within: float) -> bool:
    """Whether two values are the same, numbers ``within`` so much of the larger; counts exactly."""
    if isinstance(expected, int) and isinstance(found, int):
        return expected == found
    if isinstance(expected, int | float) and isinstance(found, int | float):
        return math.isclose(expected, found, rel_tol=within, abs_tol=0.0)
    return bool(expected == found)
