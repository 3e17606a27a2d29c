"""Prices of operations on a device: its memory, its cache, its arithmetic, and launches."""

from __future__ import annotations

from collections.abc import Iterable

from gnnbench.machines.costs.library import DeviceRates, Library, read_devices
from gnnbench.machines.costs.operation import Operation
from gnnbench.machines.machine import Device


def rates_of(device: Device) -> DeviceRates:
    """Return the rates that a device's kind reaches, relative to its peaks."""
    return read_devices()[device.kind]


def price_operations(
    operations: Iterable[Operation], device: Device, library: Library, threads: int = 0
) -> float:
    """Return the seconds of ``operations`` one after the other, on ``threads`` cores (0: all).

    Each operation takes its launches and its library's calls. An accelerator works while its host
    launches, so the longer of the two counts; on a CPU both count.
    """
    begun_s = work_s = 0.0
    for operation in operations:
        begun_s += operation.launches * device.hardware.launch_s + operation.calls * library.call_s
        work_s += price_operation(operation, device, library, threads)
    return max(begun_s, work_s) if rates_of(device).issues_ahead else begun_s + work_s


def price_operation(
    operation: Operation, device: Device, library: Library, threads: int = 0
) -> float:
    """Return the seconds of an operation without launches: the longer of memory traffic and
    arithmetic. Traffic is the sequential bytes plus the gathered rows."""
    rates = rates_of(device)
    bandwidth = device.bandwidth_bytes_per_s(threads)
    moved = operation.read_bytes + operation.written_bytes
    seconds = moved / (bandwidth * rates.reached.stream)
    seconds = max(seconds, mapping_seconds(operation, device, threads))
    if operation.picked_rows:
        seconds += _price_rows(operation, device, rates, threads)
    if operation.kind in ("scalar", "dot", "serial"):
        return with_values(seconds, operation, device, library, threads)
    reached = rates.reached.product * operation.width / (operation.width + rates.reached.half_width)
    if operation.kind != "product":
        reached = 1.0
    peak = device.hardware.flops_per_s * device.share_of_cores(threads)
    return max(seconds, operation.flops / (peak * reached)) if operation.flops else seconds


def mapping_seconds(operation: Operation, device: Device, threads: int = 0) -> float:
    """Return the seconds of mapping new memory for an operation's writes. Allocators return larger
    tensors to the system, so their pages are mapped anew."""
    rates = rates_of(device)
    mapped_from_bytes = device.memory.mapped_from_bytes or rates.pages.fresh_from_bytes
    outputs = max(1, operation.launches) if operation.outputs is None else operation.outputs
    if not outputs or not mapped_from_bytes <= operation.written_bytes / outputs > 0:
        return 0.0
    fresh = device.fresh_bytes_per_s(threads) or rates.pages.fresh_bytes_per_s
    return operation.written_bytes / fresh


def with_values(
    moved_s: float, operation: Operation, device: Device, library: Library, threads: int = 0
) -> float:
    """Return the seconds of an operation that moves its bytes in ``moved_s`` and processes values
    without vector instructions: the longer of both. For ``dot`` it is the sum: an edge's dot
    product is longer than a core's look-ahead, so the core waits for its rows first."""
    cores = min(threads or device.cores, device.cores)
    rate = library.values_per_s(operation.kind, cores)
    values_s = operation.flops / rate if rate else 0.0
    return moved_s + values_s if operation.kind == "dot" else max(moved_s, values_s)


def _price_rows(operation: Operation, device: Device, rates: DeviceRates, threads: int) -> float:
    """Return the seconds of gathering rows one by one. The cache keeps a share of the distinct
    rows. It serves a larger share of the gathers, since rows of hubs recur most often and stay."""
    cache = rates.cache
    lines = -(-operation.row_bytes // cache.line_bytes) * cache.line_bytes
    rows, distinct = operation.picked_rows, min(operation.picked_rows, operation.distinct_rows)
    cache_bytes = device.hardware.cache_bytes or cache.cache_bytes * device.cores
    kept = min(1.0, cache_bytes / max(1.0, distinct * operation.row_bytes))
    # Earlier contents of the cache are evicted if the rows and the traffic do not fit.
    through_bytes = distinct * operation.row_bytes + operation.read_bytes + operation.written_bytes
    # Rows narrower than a line come with their neighbours.
    first = distinct * min(1.0, operation.row_bytes / cache.line_bytes)
    first = first if through_bytes > cache_bytes else 0.0
    missed = first + (rows - first) * (1.0 - float(kept**cache.skew))
    bandwidth = device.bandwidth_bytes_per_s(threads)
    memory_s = missed * lines / (bandwidth * rates.reached.gather)
    cache_s = (rows - missed) * lines / (bandwidth * cache.cache_times)
    if not cache.row_s:
        return memory_s + cache_s
    cores = min(threads or device.cores, device.cores)
    waited_s = (missed * cache.row_s + (rows - missed) * cache.line_s) / cores
    return max(memory_s + cache_s, waited_s)
