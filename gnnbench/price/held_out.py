"""The statistics of held-out measurements: one value for each independent group.

Entries of one group depend on each other, so that a group counts once. It is held out if no
constant was fitted on any of its entries. Its error is the median of its entries' errors, without
regard to their signs. An entry that occurs twice counts once.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from statistics import median

from gnnbench.records import LedgerEntry


def log_error(entry: LedgerEntry) -> float:
    """Return ln of the predicted time over the measured one; rates are inverted."""
    error = math.log(entry.predicted / entry.measured)
    return -error if entry.unit.endswith("/s") else error


def list_held_out(entries: Sequence[LedgerEntry]) -> list[LedgerEntry]:
    """Return the entries of groups without any fitted entry."""
    touched = {entry.group for entry in entries if entry.fitted_on}
    return [entry for entry in entries if entry.group not in touched]


def find_group_factors(entries: Sequence[LedgerEntry]) -> dict[str, float]:
    """Return the error factor of each group, e to its median absolute log error."""
    errors: dict[str, dict[tuple[float, float], float]] = {}
    for entry in entries:
        seen = errors.setdefault(entry.group, {})
        seen[entry.measured, entry.predicted] = abs(log_error(entry))
    return {group: math.exp(median(seen.values())) for group, seen in errors.items()}


def share_within(factors: Collection[float], limit: float) -> float:
    """Return the share of the factors that are at most ``limit``."""
    return sum(factor <= limit for factor in factors) / len(factors)
