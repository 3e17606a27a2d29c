"""How long operations take a device: its memory, its cache, its arithmetic, and beginning them."""

from __future__ import annotations

from collections.abc import Iterable

from gnnbench.costs.library import DeviceRates, Library, read_devices
from gnnbench.costs.operation import Operation
from gnnbench.platforms.machine import Device


def rates_of(device: Device) -> DeviceRates:
    """What its kind reaches of the peaks."""
    return read_devices()[device.kind]


def price_operations(
    operations: Iterable[Operation], device: Device, library: Library, threads: int = 0
) -> float:
    """Seconds of ``operations`` one after the other, done by ``threads`` cores (0: all).

    Beginning them takes a launch each, and their library's calls. An accelerator's host goes on
    meanwhile, so that the longer of the two counts there, and on a CPU both.
    """
    begun_s = work_s = 0.0
    for operation in operations:
        begun_s += operation.launches * device.launch_s + operation.calls * library.call_s
        work_s += price_operation(operation, device, library, threads)
    return max(begun_s, work_s) if rates_of(device).issues_ahead else begun_s + work_s


def price_operation(
    operation: Operation, device: Device, library: Library, threads: int = 0
) -> float:
    """Seconds of the work alone: what is longer of moving and computing; what goes in order comes
    beside the rows that are picked."""
    rates = rates_of(device)
    bandwidth = device.bandwidth_bytes_per_s(threads)
    moved = operation.read_bytes + operation.written_bytes
    seconds = moved / (bandwidth * rates.stream)
    seconds = max(seconds, mapping_seconds(operation, device, threads))
    if operation.picked_rows:
        seconds += _price_rows(operation, device, rates, threads)
    if operation.kind in ("scalar", "dot", "serial"):
        return with_values(seconds, operation, device, library, threads)
    reached = rates.product * operation.width / (operation.width + rates.half_width)
    if operation.kind != "product":
        reached = 1.0
    peak = device.flops_per_s * device.share_of_cores(threads)
    return max(seconds, operation.flops / (peak * reached)) if operation.flops else seconds


def mapping_seconds(operation: Operation, device: Device, threads: int = 0) -> float:
    """Seconds in which new memory is mapped for what an operation writes: allocators give larger
    tensors back, and their pages are mapped anew."""
    rates = rates_of(device)
    mapped_from_bytes = device.mapped_from_bytes or rates.fresh_from_bytes
    outputs = max(1, operation.launches) if operation.outputs is None else operation.outputs
    if not outputs or not mapped_from_bytes <= operation.written_bytes / outputs > 0:
        return 0.0
    fresh = device.fresh_bytes_per_s(threads) or rates.fresh_bytes_per_s
    return operation.written_bytes / fresh


def with_values(
    moved_s: float, operation: Operation, device: Device, library: Library, threads: int = 0
) -> float:
    """Seconds of an operation that moves what it reads and writes in ``moved_s`` and goes through
    values without vector instructions: the longer of both. The dot product of an edge is longer
    than a core looks ahead, so that it waits for its rows first, and both count."""
    cores = min(threads or device.cores, device.cores)
    rate = library.values_per_s(operation.kind, cores)
    values_s = operation.flops / rate if rate else 0.0
    return moved_s + values_s if operation.kind == "dot" else max(moved_s, values_s)


def _price_rows(operation: Operation, device: Device, rates: DeviceRates, threads: int) -> float:
    """Rows that are picked one by one. The cache keeps a share of the different ones, of which
    more than as large a share is picked: those of hubs are, most often, and stay."""
    lines = -(-operation.row_bytes // rates.line_bytes) * rates.line_bytes
    rows, distinct = operation.picked_rows, min(operation.picked_rows, operation.distinct_rows)
    cache_bytes = device.cache_bytes or rates.cache_bytes * device.cores
    kept = min(1.0, cache_bytes / max(1.0, distinct * operation.row_bytes))
    # What was there before has been lost where all that is gone through does not fit.
    through_bytes = distinct * operation.row_bytes + operation.read_bytes + operation.written_bytes
    # Rows narrower than a line come with their neighbours.
    first = distinct * min(1.0, operation.row_bytes / rates.line_bytes)
    first = first if through_bytes > cache_bytes else 0.0
    missed = first + (rows - first) * (1.0 - float(kept**rates.skew))
    bandwidth = device.bandwidth_bytes_per_s(threads)
    memory_s = missed * lines / (bandwidth * rates.gather)
    cache_s = (rows - missed) * lines / (bandwidth * rates.cache_times)
    if not rates.row_s:
        return memory_s + cache_s
    cores = min(threads or device.cores, device.cores)
    waited_s = (missed * rates.row_s + (rows - missed) * rates.line_s) / cores
    return max(memory_s + cache_s, waited_s)
