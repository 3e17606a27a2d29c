"""The groups of the ledger: cells that are not independent of each other.

A cell states its group. Two groups are joined if a constant was fitted on cells of both. They are
also joined if both have the same measurement: an equal task on the same machine, by the same
kernel, with an equal number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gnnbench_plugins.studies import find_fitted
from gnnbench_plugins.studies.validation.published import PublishedCell, PublishedSource


def list_fits(cell: PublishedCell) -> tuple[str, ...]:
    """Return the constants fitted on a cell, and the readings chosen in view of it."""
    return (*find_fitted(cell.id), *(f"reading: {text}" for text in cell.reading.chosen))


def join_groups(sources: Iterable[PublishedSource]) -> Mapping[str, str]:
    """Return the group of each cell, by id; joined groups have the name of the first."""
    joined: dict[str, str] = {}
    holders: dict[object, str] = {}

    def find(group: str) -> str:
        while joined.setdefault(group, group) != group:
            group = joined[group]
        return group

    cells = [cell for source in sources for cell in source.cell]
    for cell in cells:
        same = (cell.task, cell.machine, cell.stack.kernel, cell.measured)
        for shared in (same, *find_fitted(cell.id)):
            joined[find(cell.group)] = find(holders.setdefault(shared, cell.group))
    return {cell.id: find(cell.group) for cell in cells}
