"""Prices of drawing mini-batches, of sending rows of host memory, and of plain copies."""

from __future__ import annotations

from dataclasses import replace

from gnnbench.machines.costs.library import Library
from gnnbench.machines.costs.operation import Stream
from gnnbench.machines.costs.passes import pick_rows
from gnnbench.machines.costs.roofline import mapping_seconds, price_operation, rates_of
from gnnbench.machines.machine import Device, LibraryRates
from gnnbench.records import CopyWork, Loading, RowsWork, SampleWork

UNMEASURED = LibraryRates()


def price_sampling(
    work: SampleWork, device: Device, library: Library, measured: LibraryRates = UNMEASURED
) -> float:
    """Return the seconds of drawing ``work``.

    They are a library's calls for each layer, and edges at the library's rate, the platform's, or
    the rate ``measured`` here. A host's threads draw a mini-batch each, so all their work is
    divided by the threads. Workers of a library contend, so their gain is smaller. If the joint
    rate on one mini-batch was measured, all threads draw it together, and each call is made once.
    """
    call_s = measured.edges.sampling_call_s or library.sampling_call_s
    of_host = device.kind == "cpu"
    threads = (work.threads or device.cores) if of_host else 1
    started_s = work.starts * library.worker_start_s
    if of_host and measured.edges.jointly_sampled_edges_per_s:
        alone = threads * measured.edges.sampled_edges_per_s
        rate = min(alone, measured.edges.jointly_sampled_edges_per_s)
        return started_s + work.layers * call_s + work.edges / rate
    own = library.sampled_edges_per_s if of_host else library.device_sampled_edges_per_s
    rate = measured.edges.sampled_edges_per_s or own or device.rates.sampled_edges_per_s
    together = float(threads)
    if of_host and own and not measured.edges.sampled_edges_per_s:
        together = threads ** rates_of(device).workers_gain
    return started_s + (work.layers * call_s + work.edges / rate) / together


def price_copy(work: CopyWork, device: Device) -> float:
    """Return the seconds of a copy within a device's memory; its bytes count reads and writes.

    Half of them are written, and a ``fresh`` copy on a host may have to map memory for them.
    """
    seconds = work.bytes / device.bandwidth_bytes_per_s(work.threads)
    if not work.fresh or device.kind != "cpu":
        return seconds
    written = Stream(written_bytes=work.bytes / 2)
    return max(seconds, mapping_seconds(written, device, work.threads))


def price_rows(work: RowsWork, device: Device) -> float:
    """Return the seconds of gathering rows of a device's memory.

    ``staged`` rows go into newly allocated memory of each process. If the rate of mapping memory
    was measured, it applies only to tensors larger than allocators keep. Rows that are read in
    place are not gathered.

    Threads that gather ``apart`` each have a share of the joint rate.
    """
    if work.loading == "in-place":
        return 0.0
    if work.apart:
        together = work._replace(threads=work.apart, processes=work.apart, apart=0)
        return work.apart * price_rows(together, device)
    rates = rates_of(device)
    if device.rates.gather is not None or not rates.cache.row_s:
        seconds = work.bytes / device.gather_bytes_per_s(work.features, work.threads)
    else:
        row_bytes = work.bytes / max(1, work.rows)
        picked = replace(pick_rows(work.rows, work.rows, row_bytes, 8.0), written_bytes=0.0)
        seconds = price_operation(picked, device, Library(), work.threads)
        seconds += work.bytes / (device.bandwidth_bytes_per_s(work.threads) * rates.reached.stream)
    if device.memory.fresh_bandwidth_bytes_per_s and (work.fresh or work.loading == "staged"):
        written = Stream(written_bytes=work.bytes)
        seconds = max(seconds, mapping_seconds(written, device, work.threads))
    elif work.loading == "staged":
        # Processes contend for the machine's pages, so the gain from each further process falls.
        fresh = rates.pages.fresh_bytes_per_s * float(work.processes**rates.pages.side_by_side)
        seconds = max(seconds, work.bytes / fresh)
    return seconds


def limit_rate(loading: Loading, rate: float, host: Device, other: Device) -> float:
    """Return the bytes/s that cross a link of ``rate`` to or from an accelerator."""
    if loading == "staged":
        return min(rate, rates_of(host).pages.staged_bytes_per_s or rate)
    return rate * rates_of(other).in_place
