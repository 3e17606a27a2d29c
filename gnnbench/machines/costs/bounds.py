"""The least time of a piece of work on a device, by any implementation. A plugin may not state less
for its parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gnnbench.constants import Bound
from gnnbench.machines.costs.library import read_devices
from gnnbench.machines.machine import Device, RateCurve
from gnnbench.records import Work

#: Rounding tolerance: a time may be this fraction of the least time.
FASTEST: Bound[float] = 0.999
#: The least share of a work's source rows that it reads: a buffer of HongTu's holds rows for other
#: chunks too.
READ_SHARE: Bound[float] = 0.5
#: The bytes written for a drawn edge: a position of 32 bits.
DRAWN_BYTES: Bound[int] = 4


@dataclass(frozen=True, slots=True)
class Peaks:
    """The largest rates of a device by its description, of all its cores together.

    Up to ``cache_bytes`` of the rows read may come at ``cached_bytes_per_s``. A device that
    ``skips`` computes only the outputs that a mask selects.
    """

    bytes_per_s: float
    cached_bytes_per_s: float
    cache_bytes: float
    operations_per_s: float
    drawn_edges_per_s: float
    skips: bool


def find_peaks(device: Device) -> Peaks:
    """Return the peaks of a device: its memory, its cache and its arithmetic. Described rates of
    all or of single libraries replace them if they are higher."""
    memory = device.hardware.memory_bandwidth_bytes_per_s
    libraries = device.libraries.values()
    written = [device.rates.aggregate, device.rates.aggregate_backward]
    written += [curve for each in libraries for curve in (each.sums.aggregate, each.sums.written)]
    fastest = max(memory, *_list_rates(*written))
    reached = read_devices().get(device.kind)
    cached = [fastest, *_list_rates(*(each.sums.cached for each in libraries))]
    cache_bytes = device.hardware.cache_bytes
    if reached is not None:
        cached.append(memory * reached.cache.cache_times)
        cache_bytes = cache_bytes or reached.cache.cache_bytes * device.cores
    products = _list_rates(device.rates.update, *(each.update for each in libraries))
    drawn = [each.edges.sampled_edges_per_s for each in libraries]
    drawn.append(device.rates.sampled_edges_per_s)
    cores = device.cores if device.kind == "cpu" else 1
    return Peaks(
        bytes_per_s=fastest,
        cached_bytes_per_s=max(cached),
        cache_bytes=cache_bytes,
        operations_per_s=max(device.hardware.flops_per_s, *products),
        drawn_edges_per_s=max(memory / DRAWN_BYTES, cores * max(drawn)),
        skips=device.kind == "sparse",
    )


def _list_rates(*curves: RateCurve | None) -> Iterator[float]:
    """Yield the rates of curves, and one that is below any."""
    yield 1.0
    for curve in curves:
        if curve is not None:
            yield from curve.rates


def least_seconds(work: Work, peaks: Peaks) -> float:
    """Return the least seconds of a work on a device with these peaks; 0 for a copy.

    AGGREGATE writes only the rows that have edges. Meanwhile every edge but a row's first is one
    addition, and half of the distinct source rows are read once. A kernel that multiplies first may
    have these rows in cache. A product takes two operations for each multiply-accumulate. Sampling
    writes every edge once.
    """
    if work.op == "sample":
        return work.edges / peaks.drawn_edges_per_s
    if work.op == "copy":
        return 0.0
    row_bytes = work.features * work.itemsize
    operations = 2 * work.macs
    seconds = 0.0
    if not peaks.skips:
        operations += max(0, work.edges - work.rows) * work.features
        seconds = min(work.rows, work.edges) * row_bytes / peaks.bytes_per_s
    if work.op == "aggregate" and not work.macs:
        sources = work.rows if work.backward else work.sources
        read_bytes = READ_SHARE * min(sources, work.edges) * row_bytes
        kept_bytes = min(read_bytes, peaks.cache_bytes)
        read_s = kept_bytes / peaks.cached_bytes_per_s
        read_s += (read_bytes - kept_bytes) / peaks.bytes_per_s
        seconds = max(seconds, read_s)
    return max(seconds, operations / peaks.operations_per_s)


def describe_work(work: Work) -> str:
    """Return a work in words, for sentences about its time."""
    if work.op == "aggregate":
        return f"{work.edges:,} edges of width {work.features} into {work.rows:,} rows"
    if work.op == "sample":
        return f"drawing {work.edges:,} edges in {work.layers} layers"
    if work.op == "copy":
        return "the loss and the optimiser"
    return f"{work.macs:,} multiply-accumulates of width {work.features}"
