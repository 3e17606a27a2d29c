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
        int64_t edge_ticks
        int64_t page_shift
        int64_t banks
        int64_t row_words
        int64_t rows_kept
        int64_t contended

    ctypedef struct Time:
        int64_t cycles
        int64_t ticks

    ctypedef struct Load:
        int64_t address
        int64_t ready

    ctypedef struct Update:
        int32_t dst
        int32_t load

    ctypedef struct Die:
        int64_t first
        int64_t held
        int64_t turn
        int64_t edges
        Time channel
        int64_t cycles
        int64_t loads
        int64_t misses
        int64_t spilled_rows
        int64_t conflicts
        int64_t hazards
        int64_t starved
        int64_t stretch_loads
        int64_t stretch_updates
        Load* load
        int64_t* row_there
        int64_t* edge_there
        int64_t* first_edge
        Time* after_load
        Update* update
        int64_t* open_page
        int64_t* scatter_free
        int64_t* link_free
        int64_t* gather_free
        int64_t* taken
        int64_t* kept

    ctypedef struct State:
        Die* dies
        uint8_t* spilled
        int64_t* last

    const int STRETCH
    const int WORDS

    void simulate_edges(
        const Machine* machine, const State* state, const int32_t* src, const int32_t* dst,
        int64_t edges, const int64_t* address, const int64_t* ready
    )
    void complete_sums(const Machine* machine, const State* state, int64_t num_dst)


cdef void* reserve(list keep, int64_t size_bytes):
    """Zeroed memory that lives as long as the list."""
    cdef uint8_t[::1] memory = np.zeros(max(1, size_bytes), dtype=np.uint8)
    keep.append(memory)
    return &memory[0]


cdef int64_t* fill(list keep, int64_t size, int64_t value):
    """Numbers that live as long as the list."""
    cdef int64_t[::1] array = np.full(max(1, size), value, dtype=np.int64)
    keep.append(array)
    return &array[0]


def simulate_aggregation(
    const int32_t[::1] src, const int32_t[::1] dst, const int64_t[::1] address,
    const int64_t[::1] ready, const int64_t[::1] first, int64_t row_words, machine, int64_t begin
):
    """``complete`` and, one row a die, the eight numbers of ``Aggregation``, int64."""
    cdef Machine m
    cdef State s
    cdef Die* die
    cdef int64_t d, num_dst, edges = src.shape[0]
    cdef int stages
    cdef list keep = []
    cdef int64_t[::1] last
    cdef int64_t[:, ::1] rows
    m.dies, m.pes, m.adder_cycles = machine.dies, machine.pes, machine.adder_cycles
    m.fifo_updates, m.cycle_ticks = machine.fifo_updates, machine.cycle_ticks
    channel = machine.channel
    m.burst_ticks, m.miss_ticks = channel.burst_ticks, channel.miss_ticks
    m.latency_ticks, m.edge_ticks = channel.latency_ticks, channel.edge_ticks
    m.page_shift = channel.page_words.bit_length() - 1
    m.banks, m.row_words, m.contended = channel.banks, row_words, machine.contended
    num_dst = first[m.dies]
    m.rows_kept = machine.buffer_words // (m.pes * row_words)
    if (num_dst + m.dies - 1) // m.dies <= m.pes * m.rows_kept:
        m.rows_kept = 0
    stages = m.pes.bit_length() - 1
    complete = np.full(num_dst, -m.adder_cycles, dtype=np.int64)
    numbers = np.empty((m.dies, 8), dtype=np.int64)
    last, rows = complete, numbers
    s.dies = <Die*> reserve(keep, m.dies * sizeof(Die))
    s.spilled = <uint8_t*> reserve(keep, num_dst)
    for d in range(m.dies):
        die = s.dies + d
        die.first, die.held, die.channel.cycles = first[d], -1, begin
        die.load = <Load*> reserve(keep, (STRETCH + 1) * sizeof(Load))
        die.row_there = fill(keep, STRETCH + 1, -row_words)
        die.edge_there = fill(keep, WORDS, 0)
        die.first_edge = fill(keep, STRETCH + 2, 0)
        die.after_load = <Time*> reserve(keep, (STRETCH + 1) * sizeof(Time))
        die.update = <Update*> reserve(keep, STRETCH * sizeof(Update))
        die.open_page = fill(keep, m.banks, -1)
        die.scatter_free = fill(keep, m.pes, 0)
        die.link_free = fill(keep, stages * m.pes, 0)
        die.gather_free = fill(keep, m.pes, 0)
        die.taken = fill(keep, m.fifo_updates * m.pes, 0)
        die.kept = fill(keep, m.pes * m.rows_kept, -1)
    if num_dst:
        s.last = &last[0]
        with nogil:
            if edges:
                simulate_edges(&m, &s, &src[0], &dst[0], edges, &address[0], &ready[0])
            complete_sums(&m, &s, num_dst)
    for d in range(m.dies):
        die = s.dies + d
        rows[d, 0], rows[d, 1], rows[d, 3] = die.cycles, die.loads, die.misses
        rows[d, 2] = die.misses * m.miss_ticks + die.loads * row_words * m.burst_ticks
        rows[d, 4], rows[d, 5], rows[d, 6] = die.spilled_rows, die.conflicts, die.hazards
        rows[d, 7] = die.starved
    return complete, numbers
