"""Drawing mini-batches, rows that are picked from host memory and sent, and plain copies."""

from __future__ import annotations

from dataclasses import replace

from gnnbench.costs.library import Library
from gnnbench.costs.operation import Operation
from gnnbench.costs.passes import pick_rows
from gnnbench.costs.roofline import mapping_seconds, price_operation, rates_of
from gnnbench.platforms.machine import Device, LibraryRates
from gnnbench.records import Loading, Work

UNMEASURED = LibraryRates()


def price_sampling(
    work: Work, device: Device, library: Library, measured: LibraryRates = UNMEASURED
) -> float:
    """Seconds of drawing ``work``: a library's calls for each layer, and edges at its rate, that of
    the platform, or what was ``measured`` of it here. A host's threads draw a mini-batch each, so
    that all they do is shared out; where it was measured what they reach together on one, they draw
    it so, and each call is one of all."""
    call_s = measured.sampling_call_s or library.sampling_call_s
    of_host = device.kind == "cpu"
    threads = (work.threads or device.cores) if of_host else 1
    started_s = work.starts * library.worker_start_s
    if of_host and measured.jointly_sampled_edges_per_s:
        alone = threads * measured.sampled_edges_per_s
        rate = min(alone, measured.jointly_sampled_edges_per_s)
        return started_s + work.layers * call_s + work.edges / rate
    own = library.sampled_edges_per_s if of_host else library.device_sampled_edges_per_s
    rate = measured.sampled_edges_per_s or own or device.sampled_edges_per_s
    return started_s + (work.layers * call_s + work.edges / rate) / threads


def price_copy(work: Work, device: Device) -> float:
    """Seconds of a copy within a device's memory, whose bytes are those that are read and written,
    half of them where it is ``fresh``, into memory that a host may have to map."""
    seconds = work.bytes / device.bandwidth_bytes_per_s(work.threads)
    if not work.fresh or device.kind != "cpu":
        return seconds
    written = Operation("stream", written_bytes=work.bytes / 2)
    return max(seconds, mapping_seconds(written, device, work.threads))


def price_rows(work: Work, device: Device) -> float:
    """Seconds of picking rows of a device's memory, ``staged`` ones into memory that each of the
    processes has just been given. Where it was measured how fast memory is mapped, that counts for
    what is larger than allocators keep alone. Nobody picks rows that are read in place.

    Where threads do so apart, each has its share of what all of them reach together.
    """
    if work.loading == "in-place":
        return 0.0
    if work.apart:
        together = work._replace(threads=work.apart, processes=work.apart, apart=0)
        return work.apart * price_rows(together, device)
    rates = rates_of(device)
    if device.gather is not None or not rates.row_s:
        seconds = work.bytes / device.gather_bytes_per_s(work.features, work.threads)
    else:
        row_bytes = work.bytes / max(1, work.rows)
        picked = replace(pick_rows(work.rows, work.rows, row_bytes, 8.0), written_bytes=0.0)
        seconds = price_operation(picked, device, Library(), work.threads)
        seconds += work.bytes / (device.bandwidth_bytes_per_s(work.threads) * rates.stream)
    if device.fresh_bandwidth_bytes_per_s and (work.fresh or work.loading == "staged"):
        written = Operation("stream", written_bytes=work.bytes)
        seconds = max(seconds, mapping_seconds(written, device, work.threads))
    elif work.loading == "staged":
        # Processes contend for the machine's pages, so that more of them help less and less.
        fresh = rates.fresh_bytes_per_s * float(work.processes**rates.side_by_side)
        seconds = max(seconds, work.bytes / fresh)
    return seconds


def limit_rate(loading: Loading, rate: float, host: Device, other: Device) -> float:
    """Bytes a second that cross a link of ``rate`` for an accelerator."""
    if loading == "staged":
        return min(rate, rates_of(host).staged_bytes_per_s or rate)
    return rate * rates_of(other).in_place
