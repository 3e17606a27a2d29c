"""Comparison of two measurements of a library on a device."""

from __future__ import annotations

from dataclasses import replace

from gnnbench.machines.machine import LibraryRates, RateCurve
from gnnbench.machines.tables import flatten, list_leaves, replace_fields


def best_of(one: LibraryRates, other: LibraryRates) -> LibraryRates:
    """Return the better of two measurements of a library, number by number, since other activity on
    the machine only slows it down. Both measurements must have the same fields set."""
    better, theirs = flatten(one), flatten(other)
    for name, leaf in list_leaves(LibraryRates).items():
        mine = better[name]
        if isinstance(mine, RateCurve):
            better[name] = best_curve(mine, theirs[name])
        elif mine is not None:
            better[name] = (min if leaf.key.unit == "s" else max)(mine, theirs[name])
    return replace_fields(one, **better)


def best_curve(one: RateCurve, other: RateCurve) -> RateCurve:
    """Return the higher of two curves at each of their equal widths."""
    return replace(
        one,
        rates=tuple(map(max, one.rates, other.rates)),
        core_rates=tuple(map(max, one.core_rates, other.core_rates)),
    )
