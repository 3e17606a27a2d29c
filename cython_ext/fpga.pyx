# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Compiled loops behind ``gnnbench.kernels.dispatch.fpga``; their twin, with the machine's rules,
is ``gnnbench.kernels.reference.fpga``, their inner loops stand in ``fpga.h``.

The dispatcher checks dtypes, layouts, ranges and the machine.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

import numpy as np

cdef extern from "fpga.h" nogil:
    ctypedef struct Machine:
        int64_t dies
        int64_t pes
        int64_t adder_cycles
        int64_t fifo_updates
        int64_t cycle_ticks
        int64_t burst_ticks
        int64_t miss_ticks
        int64_t latency_ticks
        int64_t page_shift
        int64_t banks
        int64_t row_words
        int64_t rows_kept
        int64_t contended

    ctypedef struct Die:
        int64_t channel
        int64_t held
        int64_t row_there
        int64_t pe
        int64_t slot
        int64_t first
        int64_t cycles
        int64_t loads
        int64_t channel_ticks
        int64_t misses
        int64_t spilled_rows
        int64_t conflicts
        int64_t hazards
        int64_t starved

    ctypedef struct State:
        Die* dies
        int64_t* open_page
        int64_t* scatter_free
        int64_t* link_free
        int64_t* gather_free
        int64_t* taken
        int64_t* kept
        uint8_t* spilled
        int64_t* last
        int64_t* complete

    void simulate_edges(
        const Machine* machine, const State* state, const int32_t* src, const int32_t* dst,
        int64_t edges, const int64_t* address, const int64_t* ready
    )
    void add_updates(
        const int32_t* src, const int32_t* dst, const float* weight, int64_t edges,
        const float* rows, int64_t width, float* out
    )

# A die's numbers, in the order of ``Die``.
cdef int DIE_NUMBERS = sizeof(Die) // sizeof(int64_t)


cdef int64_t* fill(list keep, int64_t size, int64_t value):
    """Memory that lives as long as the list."""
    cdef int64_t[::1] array = np.full(max(1, size), value, dtype=np.int64)
    keep.append(array)
    return &array[0]


def simulate_aggregation(
    const int32_t[::1] src, const int32_t[::1] dst, const int64_t[::1] address,
    const int64_t[::1] ready, const int64_t[::1] first, int64_t row_words, machine
):
    """``complete`` and, one row a die, the eight numbers of ``Aggregation``, int64."""
    cdef Machine m
    cdef State s
    cdef int64_t d, num_dst, edges = src.shape[0]
    cdef int stages
    cdef list keep = []
    cdef uint8_t[::1] spilled
    cdef int64_t[::1] complete
    cdef int64_t[:, ::1] dies
    m.dies, m.pes, m.adder_cycles = machine.dies, machine.pes, machine.adder_cycles
    m.fifo_updates, m.cycle_ticks = machine.fifo_updates, machine.cycle_ticks
    m.burst_ticks, m.miss_ticks = machine.burst_ticks, machine.miss_ticks
    m.latency_ticks, m.page_shift = machine.latency_ticks, machine.page_words.bit_length() - 1
    m.banks, m.row_words, m.contended = machine.banks, row_words, machine.contended
    num_dst = first[m.dies]
    m.rows_kept = machine.buffer_words // (m.pes * row_words)
    if (num_dst + m.dies - 1) // m.dies <= m.pes * m.rows_kept:
        m.rows_kept = 0
    stages = m.pes.bit_length() - 1
    result = np.zeros(num_dst, dtype=np.int64)
    numbers = np.zeros((m.dies, DIE_NUMBERS), dtype=np.int64)
    complete, dies = result, numbers
    spilled = np.zeros(max(1, num_dst), dtype=np.uint8)
    s.dies = <Die*> &dies[0, 0]
    s.open_page = fill(keep, m.dies * m.banks, -1)
    s.scatter_free = fill(keep, m.dies * m.pes, 0)
    s.link_free = fill(keep, m.dies * stages * m.pes, 0)
    s.gather_free = fill(keep, m.dies * m.pes, 0)
    s.taken = fill(keep, m.dies * m.pes * m.fifo_updates, 0)
    s.kept = fill(keep, m.dies * m.pes * m.rows_kept, -1)
    s.spilled = &spilled[0]
    s.last = fill(keep, num_dst, -m.adder_cycles)
    for d in range(m.dies):
        s.dies[d].first = first[d]
        s.dies[d].held = -1
        s.dies[d].row_there = -row_words
    if edges:
        s.complete = &complete[0]
        with nogil:
            simulate_edges(&m, &s, &src[0], &dst[0], edges, &address[0], &ready[0])
    return result, numbers[:, 6:]


def scatter_gather(
    const int32_t[::1] src, const int32_t[::1] dst, const float[::1] weight,
    const float[:, ::1] rows, int64_t num_dst
):
    """The sums, float32 ``(num_dst, f)``."""
    cdef float[:, ::1] out
    cdef int64_t edges = src.shape[0], width = rows.shape[1]
    result = np.zeros((num_dst, width), dtype=np.float32)
    out = result
    if edges and width:
        with nogil:
            add_updates(&src[0], &dst[0], &weight[0], edges, &rows[0, 0], width, &out[0, 0])
    return result
