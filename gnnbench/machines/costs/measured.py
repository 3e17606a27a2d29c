"""Prices of operations on a device where their library was measured."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from gnnbench.constants import Bound
from gnnbench.machines.costs.library import Library
from gnnbench.machines.costs.operation import Operation
from gnnbench.machines.costs.passes import count_stored
from gnnbench.machines.costs.roofline import mapping_seconds, price_operation, rates_of, with_values
from gnnbench.machines.machine import Device, LibraryRates, SumRates
from gnnbench.records import Work

#: Bytes of a value: rates were measured by the number of values in a row.
VALUE_BYTES: Bound[float] = 4.0


def price_measured(
    operations: Iterable[Operation],
    device: Device,
    library: Library,
    measured: LibraryRates,
    threads: int = 0,
) -> float:
    """Return the seconds of ``operations``: gathered and written rows, and products, at the
    ``measured`` rates, all else at the device's own."""
    begun_s = work_s = 0.0
    for operation in operations:
        begun_s += operation.launches * device.hardware.launch_s
        work_s += _price(operation, device, library, measured, threads)
    return max(begun_s, work_s) if rates_of(device).issues_ahead else begun_s + work_s


def price_calls(work: Work, measured: LibraryRates) -> float:
    """Return the seconds of the library's calls for ``work``. They include the preparation of a
    block that is new to the library, and of its sparse rows."""
    calls, edges = measured.calls, measured.edges
    if work.form == "loss":
        return (work.fresh and calls.fresh_batch_s) or calls.batch_s
    if work.op != "aggregate":
        return (work.fresh and calls.update_fresh_call_s) or calls.update_call_s
    attends = work.form == "attention"
    if not work.fresh:
        return (attends and calls.attention_call_s) or calls.call_s or 0.0
    rate = edges.transposed_edges_per_s if work.backward else edges.bound_edges_per_s
    call_s = (attends and calls.attention_fresh_call_s) or calls.fresh_call_s
    return call_s + ((work.edges + count_stored(work)) / rate if rate else 0.0)


def _price(
    operation: Operation, device: Device, library: Library, measured: LibraryRates, threads: int
) -> float:
    if operation.kind == "product" and measured.update is not None:
        multiplied_s = operation.flops / measured.update.at(operation.width, threads)
        return multiplied_s + mapping_seconds(operation, device, threads)
    sums = measured.sums
    adds = operation.kind in ("aggregate", "scalar", "dot") and operation.picked_rows
    if adds and operation.kind == "scalar" and sums.weighted is not None:
        weighted = replace(sums, aggregate=sums.weighted, cached=sums.weighted_cached)
        return _price_sum(operation, device, weighted, threads)
    if adds and operation.kind == "dot" and sums.dotted is not None:
        dotted = replace(sums, aggregate=sums.dotted, cached=sums.dotted_cached)
        # The rate is per edge, including the rows at both ends and the writes.
        edges = operation.flops * VALUE_BYTES / operation.row_bytes
        of_edges = replace(operation, picked_rows=edges, written_bytes=0.0)
        return _price_sum(of_edges, device, dotted, threads)
    if adds and sums.aggregate is not None:
        summed_s = _price_sum(operation, device, sums, threads)
        return with_values(summed_s, operation, device, library, threads)
    return price_operation(operation, device, library, threads)


def _price_sum(operation: Operation, device: Device, sums: SumRates, threads: int) -> float:
    """Return the seconds of gathering and writing rows. Writes are no faster than the memory if the
    last cache does not hold both. The cache holds all gathered rows if they fit. Otherwise it holds
    those that recur soon enough. If the gather order is unknown, that is its share of the distinct
    rows, applied to the repeated ones."""
    picked, cached, written = sums.aggregate, sums.cached, sums.written
    if picked is None:
        raise ValueError("a library of which no sum was measured has no price for one")
    width = operation.row_bytes / VALUE_BYTES
    size_bytes = operation.picked_rows * operation.row_bytes
    table_bytes = operation.distinct_rows * operation.row_bytes
    cache_bytes = device.hardware.cache_bytes
    kept = min(1.0, cache_bytes / table_bytes) if table_bytes else 1.0
    spills = table_bytes + operation.written_bytes > cache_bytes
    if spills:
        # Earlier contents of the cache are evicted: the first gather of a row misses.
        again = max(0.0, 1.0 - operation.distinct_rows / operation.picked_rows)
        known = operation.kept
        kept = kept * again if known is None else known(cache_bytes / operation.row_bytes)
    if cached is None:
        kept, cached = 0.0, picked
    seconds = size_bytes * (1.0 - kept) / picked.at(width, threads)
    seconds += size_bytes * kept / cached.at(width, threads)
    if written is not None:
        rate = written.at(width, threads)
        if spills:
            rate = min(rate, device.bandwidth_bytes_per_s(threads))
        seconds += operation.written_bytes / rate
    # Rates were measured on rows in memory that allocators keep.
    return seconds + mapping_seconds(operation, device, threads)
