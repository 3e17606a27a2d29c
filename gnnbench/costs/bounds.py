"""What a device takes for a piece of work at least, whoever computes it: a plugin states what its
parts take, and may not state less."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gnnbench.constants import Bound
from gnnbench.costs.library import read_devices
from gnnbench.platforms.machine import Device, RateCurve
from gnnbench.records import Work

#: Rounding that a time may be below what the device can do at most.
FASTEST: Bound[float] = 0.999
#: Of the rows that a work counts as sources, the share that it reads at least: a buffer of HongTu's
#: holds rows for other chunks too.
READ_SHARE: Bound[float] = 0.5
#: What is written of an edge that is drawn: a position of 32 bits.
DRAWN_BYTES: Bound[int] = 4


@dataclass(frozen=True, slots=True)
class Peaks:
    """The largest rates that a device has by its description, of all its cores together.

    Of rows that are read ``cache_bytes`` may come at ``cached_bytes_per_s``. A device that
    ``skips`` computes only those outputs that a mask wants.
    """

    bytes_per_s: float
    cached_bytes_per_s: float
    cache_bytes: float
    operations_per_s: float
    drawn_edges_per_s: float
    skips: bool


def find_peaks(device: Device) -> Peaks:
    """The peaks of a device: of its memory, its cache and its arithmetic, or what its description
    says that all or single libraries reach, where that is more."""
    memory = device.memory_bandwidth_bytes_per_s
    libraries = device.libraries.values()
    written = [device.aggregate, device.aggregate_backward]
    written += [curve for each in libraries for curve in (each.aggregate, each.written)]
    fastest = max(memory, *_list_rates(*written))
    reached = read_devices().get(device.kind)
    cached = [fastest, *_list_rates(*(each.cached for each in libraries))]
    cache_bytes = device.cache_bytes
    if reached is not None:
        cached.append(memory * reached.cache_times)
        cache_bytes = cache_bytes or reached.cache_bytes * device.cores
    products = _list_rates(device.update, *(each.update for each in libraries))
    drawn = [device.sampled_edges_per_s, *(each.sampled_edges_per_s for each in libraries)]
    cores = device.cores if device.kind == "cpu" else 1
    return Peaks(
        bytes_per_s=fastest,
        cached_bytes_per_s=max(cached),
        cache_bytes=cache_bytes,
        operations_per_s=max(device.flops_per_s, *products),
        drawn_edges_per_s=max(memory / DRAWN_BYTES, cores * max(drawn)),
        skips=device.kind == "sparse",
    )


def _list_rates(*curves: RateCurve | None) -> Iterator[float]:
    """The rates of curves, and one that is below any."""
    yield 1.0
    for curve in curves:
        if curve is not None:
            yield from curve.rates


def least_seconds(work: Work, peaks: Peaks) -> float:
    """What a device with these peaks takes for a work at least; 0 for a copy.

    Of AGGREGATE the rows that have edges are only written, and meanwhile every edge but a row's
    first is one addition, and half of the different rows that are read come once. A kernel that
    multiplies first may have these rows at hand. A product takes two operations for each
    multiply-accumulate. Of sampling every edge is written once.
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
    """A work in words, as sentences about its time call it."""
    if work.op == "aggregate":
        return f"{work.edges:,} edges of width {work.features} into {work.rows:,} rows"
    if work.op == "sample":
        return f"drawing {work.edges:,} edges in {work.layers} layers"
    if work.op == "copy":
        return "the loss and the optimiser"
    return f"{work.macs:,} multiply-accumulates of width {work.features}"
