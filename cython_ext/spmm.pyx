# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Compiled loops behind ``gnnbench.kernels.dispatch.spmm``; their twin, with the machine's rules,
is ``gnnbench.kernels.reference.spmm``, their inner loops stand in ``spmm.h``.

The dispatcher checks dtypes, layouts, ranges and the engine.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memset

import numpy as np

cdef extern from "spmm.h" nogil:
    ctypedef struct Step:
        int64_t edges
        int64_t segments
        int64_t loaded_rows
        int64_t bank_cycles

    ctypedef struct Lanes:
        int32_t* free_at
        int64_t now
        int64_t place

    ctypedef struct Cuts:
        int64_t* begin
        int32_t* of_word
        int64_t chunks

    ctypedef struct Position:
        int32_t window
        int32_t left

    ctypedef struct Walk:
        const int32_t* wanted
        const uint8_t* selected
        int64_t slices
        int64_t slice_features
        int64_t num_lanes
        int64_t piece_edges
        int64_t ring
        int64_t groups
        int64_t passes
        int64_t window_edges
        const int32_t* cycles_of
        Position* positions
        int32_t* reads
        Lanes* lanes
        int32_t* free_at
        int32_t* segment_chunk
        int32_t* segment_end
        int32_t* window_of
        int32_t window

    void count_reads_c "count_reads" (const int32_t* indices, int64_t edges, int32_t* counts)
    void mark_sources(const int32_t* indices, int64_t edges, uint64_t* bits)
    int64_t cut_chunk(
        const uint64_t* bits, int64_t num_src, int64_t begin, int64_t chunk_rows,
        int64_t window_rows, int64_t* rows
    )
    void set_cuts(Cuts* cuts, const int64_t* begin, int64_t chunks, int64_t num_src)
    void count_tile(
        const Cuts* cuts, const int64_t* indptr, const int32_t* indices, int64_t first,
        int64_t last, int64_t* edges, int64_t* segments
    )
    void open_tile(Walk* walk, int64_t chunks, int64_t edges, int64_t num_src)
    void walk_tile(
        Walk* walk, const Cuts* cuts, const int64_t* indptr, const int32_t* indices, int64_t first,
        int64_t last, Step* steps
    )
    void close_tile(Walk* walk, int64_t chunks, Step* steps, int64_t* lane_cycles)
    void overlap_steps_c "overlap_steps" (
        const int64_t* loads, const int64_t* computes, const int64_t* writes, int64_t steps,
        int64_t byte_ticks, int64_t cycle_ticks, uint64_t* end
    )

# A step's numbers, in the order of ``Step``.
cdef int STEP_NUMBERS = sizeof(Step) // sizeof(int64_t)


def cut_chunks(
    const int64_t[::1] indptr, const int32_t[::1] indices, int64_t num_src, int64_t tile_rows,
    int64_t chunk_rows, int64_t window_rows
):
    """``first`` of each tile, ``begin`` and ``rows`` of each chunk, int64."""
    cdef int64_t num_dst = indptr.shape[0] - 1, v = 0, last, u, begin, rows
    cdef uint64_t[::1] bits = np.zeros((num_src + 63) // 64 + 1, dtype=np.uint64)
    cdef list first = [0], begins = [], counts = []
    while v < num_dst:
        last = min(v + tile_rows, num_dst)
        memset(&bits[0], 0, 8 * bits.shape[0])
        if indptr[last] > indptr[v]:
            with nogil:
                mark_sources(&indices[indptr[v]], indptr[last] - indptr[v], &bits[0])
        begin = 0
        while begin < num_src:
            u = cut_chunk(&bits[0], num_src, begin, chunk_rows, window_rows, &rows)
            if rows:
                begins.append(begin)
                counts.append(rows)
            begin = u
        first.append(len(begins))
        v = last
    return (
        np.array(first, dtype=np.int64), np.array(begins, dtype=np.int64),
        np.array(counts, dtype=np.int64),
    )


def count_edges(
    const int64_t[::1] indptr, const int32_t[::1] indices, int64_t num_src, int64_t tile_rows,
    const int64_t[::1] first, const int64_t[::1] begin
):
    """The edges of each chunk and the destinations they belong to, int64."""
    cdef int64_t num_dst = indptr.shape[0] - 1, tile, v, step
    cdef int64_t[::1] begin_of = np.empty(_most_chunks(first) + 1, dtype=np.int64)
    cdef int32_t[::1] of_word = np.empty((num_src >> 6) + 1, dtype=np.int32)
    cdef int64_t[:, ::1] numbers
    cdef Cuts cuts
    result = np.zeros((2, begin.shape[0]), dtype=np.int64)
    numbers = result
    cuts.begin, cuts.of_word = &begin_of[0], &of_word[0]
    with nogil:
        for tile in range(first.shape[0] - 1):
            v, step = tile * tile_rows, first[tile]
            if first[tile + 1] == step:
                continue
            set_cuts(&cuts, &begin[step], first[tile + 1] - step, num_src)
            count_tile(
                &cuts, &indptr[0], &indices[0], v, min(v + tile_rows, num_dst),
                &numbers[0, step], &numbers[1, step]
            )
    return result[0], result[1]


cdef int64_t _most_chunks(const int64_t[::1] first):
    """Of any tile."""
    cdef int64_t tile, most = 0
    for tile in range(first.shape[0] - 1):
        most = max(most, first[tile + 1] - first[tile])
    return most


def walk_chunks(
    const int64_t[::1] indptr, const int32_t[::1] indices, int64_t num_src, int64_t tile_rows,
    const int64_t[::1] first, const int64_t[::1] begin, const int32_t[:, ::1] wanted,
    const uint8_t[::1] selected, const int32_t[:, ::1] cycles_of, engine, int64_t row_words,
    int64_t groups
):
    """The numbers of ``Steps``: one row a step of four, and ``(steps, slices)``."""
    cdef Walk walk
    cdef Cuts cuts
    cdef int64_t num_dst = indptr.shape[0] - 1, num_steps = begin.shape[0]
    cdef int64_t slices = wanted.shape[1], chunks = _most_chunks(first)
    cdef int64_t tile, step, v, last
    result = np.zeros((num_steps, STEP_NUMBERS), dtype=np.int64)
    cycles = np.zeros((num_steps, slices), dtype=np.int64)
    if not num_steps or not slices:
        return result, cycles
    cdef int64_t[:, ::1] numbers = result, lane_cycles = cycles
    cdef int64_t[::1] begin_of = np.empty(chunks + 1, dtype=np.int64)
    cdef int32_t[::1] of_word = np.empty((num_src >> 6) + 1, dtype=np.int32)
    cuts.begin, cuts.of_word = &begin_of[0], &of_word[0]

    walk.slices, walk.slice_features = slices, cycles_of.shape[1] - 1
    walk.piece_edges, walk.ring = cycles_of.shape[0] - 1, int(np.max(cycles_of)) + 1
    walk.groups, walk.passes = groups, -(-row_words // engine.banks)
    walk.num_lanes = engine.lanes
    walk.window_edges = min(walk.num_lanes * walk.piece_edges, 2**31 - 1)
    walk.cycles_of, walk.wanted, walk.selected = &cycles_of[0, 0], &wanted[0, 0], &selected[0]
    cdef uint8_t[::1] positions = np.empty(chunks * sizeof(Position), dtype=np.uint8)
    cdef int32_t[::1] reads = np.empty(chunks * groups, dtype=np.int32)
    cdef uint8_t[::1] lanes = np.empty(chunks * slices * sizeof(Lanes), dtype=np.uint8)
    cdef int32_t[::1] free_at = np.empty(chunks * slices * walk.ring, dtype=np.int32)
    cdef int32_t[:, ::1] segments = np.empty((2, chunks), dtype=np.int32)
    cdef int32_t[::1] window_of = np.zeros(num_src, dtype=np.int32)
    walk.positions, walk.reads = <Position*> &positions[0], &reads[0]
    walk.lanes, walk.free_at = <Lanes*> &lanes[0], &free_at[0]
    walk.segment_chunk, walk.segment_end = &segments[0, 0], &segments[1, 0]
    walk.window_of, walk.window = &window_of[0], 0

    with nogil:
        for tile in range(first.shape[0] - 1):
            step, chunks = first[tile], first[tile + 1] - first[tile]
            if not chunks:
                continue
            v = tile * tile_rows
            last = min(v + tile_rows, num_dst)
            set_cuts(&cuts, &begin[step], chunks, num_src)
            open_tile(&walk, chunks, indptr[last] - indptr[v], num_src)
            walk_tile(
                &walk, &cuts, &indptr[0], &indices[0], v, last, <Step*> &numbers[step, 0]
            )
            close_tile(&walk, chunks, <Step*> &numbers[step, 0], &lane_cycles[step, 0])
    return result, cycles


def count_reads(const int32_t[::1] indices, int64_t num_src):
    """How many edges read each source, int32."""
    counts = np.zeros(num_src, dtype=np.int32)
    cdef int32_t[::1] counted = counts
    if indices.shape[0]:
        count_reads_c(&indices[0], indices.shape[0], &counted[0])
    return counts


def overlap_steps(
    const int64_t[::1] loads, const int64_t[::1] computes, const int64_t[::1] writes,
    int64_t byte_ticks, int64_t cycle_ticks
):
    """See ``reference.spmm.overlap_steps``."""
    cdef uint64_t end[2]
    if not loads.shape[0]:
        return 0
    overlap_steps_c(
        &loads[0], &computes[0], &writes[0], loads.shape[0], byte_ticks, cycle_ticks, end
    )
    return (int(end[1]) << 64) | int(end[0])
