"""An FPGA's scatter-gather aggregate kernel: when each of its sums is complete.

``gnnbench.kernels.reference.fpga`` lists the rules of the simulation.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from gnnbench.kernels.dispatch.checks import check_range, check_vector
from gnnbench.kernels.native import load
from gnnbench.kernels.reference import fpga as reference
from gnnbench.kernels.reference.fpga import Aggregation, Machine, first_rows
from gnnbench.records import IndexArray, IntArray

#: Upper bound (exclusive) of a machine's numbers, an address and a time.
LARGEST = 2**40
#: Upper bound (exclusive) of all times, in ticks or cycles, and of sums of waiting times.
LARGEST_SUM = 2**62
#: The fields that may be 0: times of a memory without delay, and whether links are shared.
FROM_ZERO = ("burst_ticks", "miss_ticks", "latency_ticks", "edge_ticks", "contended")


def simulate_aggregation(
    src: IndexArray,
    dst: IndexArray,
    address: IntArray,
    num_dst: int,
    row_words: int,
    machine: Machine,
    *,
    ready: IntArray | None = None,
    begin: int = 0,
) -> Aggregation:
    """Run a stream of edges through the aggregate kernels of all dies.

    ``src`` and ``dst`` int32 ``(E,)`` are the edges in the order in which the kernels see them;
    ``address`` int64 ``(S,)`` is the row of memory that holds each source, counted in rows of
    ``row_words`` words. ``ready`` int64 ``(S,)`` is the cycle before which a source cannot be
    loaded; None means 0. No edge is read before the cycle ``begin``.

    Raises ``ValueError`` for arrays of the wrong dtype or layout, and for ids and addresses outside
    their range. The machine's numbers must be positive and below 2^40; ``burst_ticks``,
    ``miss_ticks``, ``latency_ticks`` and ``edge_ticks`` may be 0. PEs and page words must be powers
    of two, and the result buffer must hold a row for each gather PE. Streams so long, or machines
    so slow, that times may pass 2^62 raise it too.
    """
    _check_edges(src, dst, len(address), num_dst)
    check_vector("address", address, np.dtype(np.int64))
    _check_times("address", address)
    if ready is None:
        ready = np.zeros(len(address), dtype=np.int64)
    check_vector("ready", ready, np.dtype(np.int64))
    _check_times("ready", ready)
    if len(ready) != len(address):
        raise ValueError(
            f"ready has {len(ready)} values; pass one for each of {len(address)} sources."
        )
    _check_machine(machine, row_words)
    _check_times("begin", np.array([begin]))
    _check_sums(len(src), address, max(begin, int(ready.max(initial=0))), row_words, machine)
    compiled = load("fpga")
    if compiled is None:
        return reference.simulate_aggregation(
            src, dst, address, ready, num_dst, row_words, machine, begin
        )
    first = first_rows(num_dst, machine.dies)
    complete, numbers = compiled.simulate_aggregation(
        src, dst, address, ready, first, row_words, machine, begin
    )
    return Aggregation(complete, *numbers.T)


def _check_edges(src: IndexArray, dst: IndexArray, num_src: int, num_dst: int) -> None:
    check_vector("src", src, np.dtype(np.int32))
    check_vector("dst", dst, np.dtype(np.int32))
    if len(src) != len(dst):
        raise ValueError(f"src has {len(src)} values and dst {len(dst)}; an edge has one of each.")
    if not 0 <= num_dst < 2**31:
        raise ValueError(f"num_dst is {num_dst}; it must be from 0 to 2^31 - 1.")
    check_range("src", src, num_src)
    check_range("dst", dst, num_dst)


def _check_times(name: str, values: IntArray) -> None:
    if len(values) and not 0 <= values.min() <= values.max() < LARGEST:
        raise ValueError(
            f"{name} holds {values.min()} to {values.max()}; values must be from 0 to 2^40 - 1."
        )


def _check_machine(machine: Machine, row_words: int) -> None:
    numbers = {**dataclasses.asdict(machine), "row_words": row_words}
    numbers |= numbers.pop("channel")
    for name, value in numbers.items():
        lowest = 0 if name in FROM_ZERO else 1
        if not lowest <= value < LARGEST:
            raise ValueError(f"{name} is {value}; it must be from {lowest} to 2^40 - 1.")
    for name in ("pes", "page_words"):
        if numbers[name] & (numbers[name] - 1):
            raise ValueError(f"{name} is {numbers[name]}; it must be a power of two.")
    if machine.buffer_words < machine.pes * row_words:
        raise ValueError(
            f"the result buffer has {machine.buffer_words} words; each of {machine.pes} gather PEs "
            f"needs room for a row of {row_words}, so use fewer PEs or narrower rows."
        )


def _check_sums(
    edges: int, address: IntArray, latest: int, row_words: int, machine: Machine
) -> None:
    """Raise ``ValueError`` unless all sums stay far below the limit of int64.

    The bound assumes that everything starts after ``latest``, the last cycle at which anything may
    begin, and that edges run one after the other. Each edge then has its own word, opens all pages
    of three rows (one loaded, two spilled), and passes through the kernel alone.
    """
    channel = machine.channel
    pages = (row_words - 1) // channel.page_words + 2
    row_ticks = pages * channel.miss_ticks + row_words * channel.burst_ticks
    ticks = edges * (3 * row_ticks + channel.edge_ticks) + channel.latency_ticks
    kernel_cycles = 2 * row_words + machine.adder_cycles + machine.pes.bit_length() + 2
    cycles = latest + ticks // machine.cycle_ticks + (edges + 1) * kernel_cycles
    words = (int(address.max(initial=0)) + 1) * row_words
    if max(words, ticks + latest * machine.cycle_ticks, cycles * (edges + 1)) >= LARGEST_SUM:
        raise ValueError(
            f"{edges} edges of {row_words} words may take {cycles} cycles, and their times are too "
            f"large to add up; pass fewer edges, lower addresses or coarser ticks."
        )
