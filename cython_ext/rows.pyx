# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Compiled loops behind ``gnnbench.kernels.dispatch.rows``; their twin is
``gnnbench.kernels.reference.rows``, their inner loops stand in ``rows.h``.

Arrays arrive as their bytes, checked by the dispatcher except for the values of the ids.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

cdef extern from "rows.h" nogil:
    int FLOAT32, FLOAT64, FLOAT16, BFLOAT16

    ctypedef struct Gather:
        const uint8_t* source
        int64_t rows
        int64_t width
        const void* ids
        int64_t count
        bint wide
        int element
        int64_t row_bytes
        int64_t out_bytes
        uint8_t* out

    ctypedef struct Scatter:
        uint8_t* target
        int64_t rows
        int64_t width
        const void* ids
        int64_t count
        bint wide
        int element
        const uint8_t* values
        const void* from_ "from"
        int64_t value_rows
        bint from_wide
        bint copy

    bint gather(Gather* g, int threads)
    bint scatter(const Scatter* s, int threads)

ctypedef fused id_t:
    int32_t
    int64_t

ctypedef fused from_t:
    int32_t
    int64_t

ELEMENTS = {"float32": FLOAT32, "float64": FLOAT64, "float16": FLOAT16, "bfloat16": BFLOAT16}

# Less than this is not worth starting a thread for.
cdef int64_t BYTES_PER_THREAD = 1 << 17


cdef int crew(int threads, int64_t size) noexcept:
    return <int> max(<int64_t> 1, min(<int64_t> threads, size // BYTES_PER_THREAD))


def gather_rows(
    const uint8_t[::1] source, int64_t rows, int64_t width, const id_t[::1] ids,
    uint8_t[::1] out, str widen, int threads,
):
    """Whether all ids were inside; no array may be empty.

    ``widen`` names the elements to make float32 of; where it is empty, rows are copied as they are.
    """
    cdef Gather g
    cdef bint sound
    cdef int workers = crew(threads, out.shape[0])
    g.source, g.rows, g.width = &source[0], rows, width
    g.ids, g.count, g.wide = &ids[0], ids.shape[0], id_t is int64_t
    g.element = ELEMENTS[widen] if widen else FLOAT32
    g.row_bytes, g.out_bytes = source.shape[0] // rows, out.shape[0] // ids.shape[0]
    g.out = &out[0]
    with nogil:
        sound = gather(&g, workers)
    return sound


def scatter_add_rows(
    uint8_t[::1] target, int64_t rows, int64_t width, const id_t[::1] ids,
    const uint8_t[::1] values, str element, int threads,
):
    """Whether all ids were inside, without which nothing is added; no array may be empty."""
    cdef Scatter s
    cdef bint sound
    cdef int workers = crew(threads, values.shape[0])
    s.target, s.rows, s.width = &target[0], rows, width
    s.ids, s.count, s.wide = &ids[0], ids.shape[0], id_t is int64_t
    s.element, s.values = ELEMENTS[element], &values[0]
    s.from_, s.value_rows, s.from_wide, s.copy = NULL, ids.shape[0], False, False
    with nogil:
        sound = scatter(&s, workers)
    return sound


def move_rows(
    const uint8_t[::1] source, int64_t source_rows, const from_t[::1] source_ids,
    uint8_t[::1] target, int64_t rows, int64_t width, const id_t[::1] ids,
    str element, bint add, int threads,
):
    """Whether all ids were inside, without which nothing is written; no array may be empty."""
    cdef Scatter s
    cdef bint sound
    cdef int workers = crew(threads, ids.shape[0] * (target.shape[0] // rows))
    s.target, s.rows, s.width = &target[0], rows, width
    s.ids, s.count, s.wide = &ids[0], ids.shape[0], id_t is int64_t
    s.element, s.values = ELEMENTS[element], &source[0]
    s.from_, s.from_wide = &source_ids[0], from_t is int64_t
    s.value_rows, s.copy = source_rows, not add
    with nogil:
        sound = scatter(&s, workers)
    return sound
