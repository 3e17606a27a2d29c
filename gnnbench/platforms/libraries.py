"""What single libraries reach on a device, as a platform file has it: ``[host.libraries.NAME]``."""

from __future__ import annotations

from collections.abc import Mapping

from gnnbench.platforms.machine import LibraryRates, RateCurve
from gnnbench.platforms.schema import LibraryTable, Quantity, Rates


def read_rates(rates: Rates | None) -> RateCurve | None:
    if rates is None:
        return None
    return RateCurve(tuple(rates.widths), rates.si(rates.values), rates.si(rates.core_values))


def read_libraries(tables: Mapping[str, LibraryTable]) -> dict[str, LibraryRates]:
    """By the library's name."""
    return {name: _read_library(table) for name, table in tables.items()}


def _read_library(table: LibraryTable) -> LibraryRates:
    return LibraryRates(
        aggregate=read_rates(table.aggregate),
        cached=read_rates(table.cached),
        written=read_rates(table.written),
        weighted=read_rates(table.weighted),
        weighted_cached=read_rates(table.weighted_cached),
        update=read_rates(table.update),
        call_s=table.call.si if table.call else None,
        fresh_call_s=_read_number(table.fresh_call),
        attention_call_s=_read_number(table.attention_call),
        attention_fresh_call_s=_read_number(table.attention_fresh_call),
        update_call_s=_read_number(table.update_call),
        batch_s=_read_number(table.batch),
        bound_edges_per_s=_read_number(table.binding),
        transposed_edges_per_s=_read_number(table.transposing),
        sampled_edges_per_s=_read_number(table.sampling),
        sampling_call_s=_read_number(table.sampling_call),
    )


def _read_number(quantity: Quantity | None) -> float:
    return quantity.si if quantity else 0.0


def list_numbers(rates: LibraryRates) -> dict[str, float | RateCurve]:
    """By their key in the file, without those that were not measured."""
    numbers: dict[str, float | RateCurve | None] = {
        "aggregate": rates.aggregate,
        "cached": rates.cached,
        "written": rates.written,
        "weighted": rates.weighted,
        "weighted_cached": rates.weighted_cached,
        "update": rates.update,
        "call": rates.call_s,
        "fresh_call": rates.fresh_call_s,
        "attention_call": rates.attention_call_s,
        "attention_fresh_call": rates.attention_fresh_call_s,
        "update_call": rates.update_call_s,
        "batch": rates.batch_s,
        "binding": rates.bound_edges_per_s,
        "transposing": rates.transposed_edges_per_s,
        "sampling": rates.sampled_edges_per_s,
        "sampling_call": rates.sampling_call_s,
    }
    return {key: number for key, number in numbers.items() if number}
