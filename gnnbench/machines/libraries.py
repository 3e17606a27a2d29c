"""The rates of single libraries on a device, from a platform file: ``[host.libraries.NAME]``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from gnnbench.machines.machine import LibraryRates, RateCurve
from gnnbench.machines.schema import LibraryTable, Quantity, Rates

#: The numbers of a library by kind: rates by width, rates, and seconds.
CURVES = (
    "aggregate",
    "cached",
    "written",
    "weighted",
    "weighted_cached",
    "dotted",
    "dotted_cached",
    "update",
)
RATES = (
    "bound_edges_per_s",
    "transposed_edges_per_s",
    "sampled_edges_per_s",
    "jointly_sampled_edges_per_s",
)
SECONDS = (
    "call_s",
    "fresh_call_s",
    "attention_call_s",
    "attention_fresh_call_s",
    "update_call_s",
    "update_fresh_call_s",
    "batch_s",
    "fresh_batch_s",
    "sampling_call_s",
)


def read_rates(rates: Rates | None) -> RateCurve | None:
    if rates is None:
        return None
    return RateCurve(tuple(rates.widths), rates.si(rates.values), rates.si(rates.core_values))


def read_libraries(tables: Mapping[str, LibraryTable]) -> dict[str, LibraryRates]:
    """Return the rates by the library's name."""
    return {name: _read_library(table) for name, table in tables.items()}


def _read_library(table: LibraryTable) -> LibraryRates:
    return LibraryRates(
        aggregate=read_rates(table.aggregate),
        cached=read_rates(table.cached),
        written=read_rates(table.written),
        weighted=read_rates(table.weighted),
        weighted_cached=read_rates(table.weighted_cached),
        dotted=read_rates(table.dotted),
        dotted_cached=read_rates(table.dotted_cached),
        update=read_rates(table.update),
        call_s=table.call.si if table.call else None,
        fresh_call_s=_read_number(table.fresh_call),
        attention_call_s=_read_number(table.attention_call),
        attention_fresh_call_s=_read_number(table.attention_fresh_call),
        update_call_s=_read_number(table.update_call),
        update_fresh_call_s=_read_number(table.update_fresh_call),
        batch_s=_read_number(table.batch),
        fresh_batch_s=_read_number(table.fresh_batch),
        bound_edges_per_s=_read_number(table.binding),
        transposed_edges_per_s=_read_number(table.transposing),
        sampled_edges_per_s=_read_number(table.sampling),
        jointly_sampled_edges_per_s=_read_number(table.joint_sampling),
        sampling_call_s=_read_number(table.sampling_call),
    )


def _read_number(quantity: Quantity | None) -> float:
    return quantity.si if quantity else 0.0


def list_numbers(rates: LibraryRates) -> dict[str, float | RateCurve]:
    """Return the measured numbers by their key in the file."""
    numbers: dict[str, float | RateCurve | None] = {
        "aggregate": rates.aggregate,
        "cached": rates.cached,
        "written": rates.written,
        "weighted": rates.weighted,
        "weighted_cached": rates.weighted_cached,
        "dotted": rates.dotted,
        "dotted_cached": rates.dotted_cached,
        "update": rates.update,
        "call": rates.call_s,
        "fresh_call": rates.fresh_call_s,
        "attention_call": rates.attention_call_s,
        "attention_fresh_call": rates.attention_fresh_call_s,
        "update_call": rates.update_call_s,
        "update_fresh_call": rates.update_fresh_call_s,
        "batch": rates.batch_s,
        "fresh_batch": rates.fresh_batch_s,
        "binding": rates.bound_edges_per_s,
        "transposing": rates.transposed_edges_per_s,
        "sampling": rates.sampled_edges_per_s,
        "joint_sampling": rates.jointly_sampled_edges_per_s,
        "sampling_call": rates.sampling_call_s,
    }
    return {key: number for key, number in numbers.items() if number}


def best_of(one: LibraryRates, other: LibraryRates) -> LibraryRates:
    """Return the better of two measurements of a library, number by number, since other activity on
    the machine only slows it down. Both measurements must have the same fields set."""
    better: dict[str, Any] = {}
    for names, choose in ((CURVES, best_curve), (RATES, max), (SECONDS, min)):
        for name in names:
            mine, theirs = getattr(one, name), getattr(other, name)
            better[name] = None if mine is None else choose(mine, theirs)
    return replace(one, **better)


def best_curve(one: RateCurve, other: RateCurve) -> RateCurve:
    """Return the higher of two curves at each of their equal widths."""
    return replace(
        one,
        rates=tuple(map(max, one.rates, other.rates)),
        core_rates=tuple(map(max, one.core_rates, other.core_rates)),
    )


def at_speed(rates: LibraryRates, speed: float) -> LibraryRates:
    """Return the rates for a device on which everything takes ``1 / speed`` as long; curves are
    unchanged."""
    changed: dict[str, Any] = {name: getattr(rates, name) * speed for name in RATES}
    for name in SECONDS:
        taken_s = getattr(rates, name)
        changed[name] = None if taken_s is None else taken_s / speed
    return replace(rates, **changed)


def with_curves(rates: LibraryRates, change: Callable[[RateCurve], RateCurve]) -> LibraryRates:
    """Return the rates with all curves changed."""
    changed: dict[str, Any] = {}
    for name in CURVES:
        curve = getattr(rates, name)
        changed[name] = None if curve is None else change(curve)
    return replace(rates, **changed)
