# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Compiled loops behind ``gnnbench.kernels.dispatch.layout``; their twin is
``gnnbench.kernels.reference.layout``, their inner loops stand in ``layout.h``.

The dispatcher checks dtypes, shapes and the ends of ``indptr``. Whether rows ascend and ids are in
range is checked here, in one pass before anything else reads them.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

import numpy as np

from gnnbench.kernels.reference.layout import MALFORMED_COLUMNS, MALFORMED_ORDER
from gnnbench.kernels.reference.sampling import MALFORMED_IDS, MALFORMED_ROWS

cdef extern from "layout.h" nogil:
    ctypedef struct Transposition:
        const int64_t* indptr
        const int32_t* indices
        int64_t rows
        int64_t columns
        int32_t* cursors
        int64_t* out_indptr
        int32_t* out_rows
        int32_t* out_edges

    bint sound_rows(const int64_t* indptr, int64_t rows, int threads)
    bint sound_ids(const int32_t* ids, int64_t length, int32_t limit, int threads)
    void transpose_rows(const Transposition* transposition, int pieces)
    bint invert(const int32_t* ids, int64_t length, int32_t* out)
    int64_t measure_bandwidth(
        const int64_t* indptr, const int32_t* indices, int64_t rows, const int32_t* position,
        int threads,
    )
    int64_t count_cut(
        const int64_t* indptr, const int32_t* indices, int64_t rows, const int32_t* part,
        int threads,
    )
    void count_times(
        const int32_t* indices, int64_t length, int64_t* last, int64_t* counts
    )
    int32_t* sort_by_degree(
        const int64_t* indptr, int64_t rows, int32_t* order, int32_t* other
    )
    uint64_t* sort_by_bits(
        uint64_t* keys, uint64_t* other, int64_t length, int low, int high
    )

    ctypedef struct Ranked:
        const int64_t* indptr
        const int32_t* indices
        int64_t vertices
        const int32_t* rank
        const int32_t* by_rank

    ctypedef struct Ordering:
        const int32_t* starts
        int64_t step
        uint64_t* seen
        uint32_t* room
        int32_t* order
        int32_t* begins
        int32_t* widths

    void order_vertices(
        const Ranked* ranked, Ordering* orderings, bint twice, int32_t* home, int threads
    )

    ctypedef struct Stream:
        const int64_t* indptr
        const int32_t* indices
        int64_t vertices
        const int32_t* order
        int32_t parts
        int64_t capacity
        bint fennel
        bint by_work
        double weight
        double scale
        int32_t* part
        int64_t* size
        double* fullness
        int64_t* count

    void stream_once(Stream* stream)

# Fewer edges than this are not worth starting a thread for.
cdef int64_t EDGES_PER_THREAD = 1 << 16

cdef const int32_t* first32(const int32_t[::1] array) noexcept nogil:
    return &array[0] if array.shape[0] else NULL


cdef int crew(int threads, int64_t edges) noexcept nogil:
    return <int> max(1, min(threads, edges // EDGES_PER_THREAD))


cdef check(
    const int64_t[::1] indptr, const int32_t[::1] indices, int32_t columns, int threads, message,
):
    """``ValueError`` for rows that descend, or, with this message, for ids outside."""
    cdef bint sound
    # It costs so little for each edge that waking a thread takes longer, up to a million.
    cdef int workers = crew(threads, indices.shape[0] >> 4)
    with nogil:
        sound = sound_rows(&indptr[0], indptr.shape[0] - 1, workers)
    if not sound:
        raise ValueError(MALFORMED_ROWS)
    with nogil:
        sound = sound_ids(first32(indices), indices.shape[0], columns, workers)
    if not sound:
        raise ValueError(message)


cdef transpose_checked(
    const int64_t[::1] indptr, const int32_t[::1] indices, int64_t columns, int threads
):
    cdef int64_t edges = indices.shape[0]
    # A piece counts every column, which is not worth it for less than an edge to each.
    cdef int pieces = <int> max(1, min(crew(threads, edges), edges // max(columns, 1)))
    cdef Transposition t
    cdef int32_t[::1] cursors = np.zeros(pieces * columns, dtype=np.int32)
    cdef int64_t[::1] out_indptr = np.zeros(columns + 1, dtype=np.int64)
    cdef int32_t[::1] out_rows = np.empty(edges, dtype=np.int32)
    cdef int32_t[::1] out_edges = np.empty(edges, dtype=np.int32)
    if edges:
        t.indptr, t.indices = &indptr[0], &indices[0]
        t.rows, t.columns = indptr.shape[0] - 1, columns
        t.cursors, t.out_indptr = &cursors[0], &out_indptr[0]
        t.out_rows, t.out_edges = &out_rows[0], &out_edges[0]
        with nogil:
            transpose_rows(&t, pieces)
    return out_indptr.base, out_rows.base, out_edges.base


def transpose(
    const int64_t[::1] indptr, const int32_t[::1] indices, int32_t num_columns, int threads
):
    """``(indptr, rows, edges)`` of the transpose."""
    check(indptr, indices, num_columns, threads, MALFORMED_COLUMNS)
    return transpose_checked(indptr, indices, num_columns, threads)


def sort_edges_by_source(
    const int64_t[::1] indptr, const int32_t[::1] indices, int32_t num_columns, int threads
):
    """``(src, dst, edges)``, int32 ``(E,)`` each."""
    cdef int64_t source, e
    cdef const int64_t[::1] bounds
    cdef int32_t[::1] src = np.empty(indices.shape[0], dtype=np.int32)
    out_indptr, dst, edges = transpose(indptr, indices, num_columns, threads)
    bounds = out_indptr
    with nogil:
        for source in range(bounds.shape[0] - 1):
            for e in range(bounds[source], bounds[source + 1]):
                src[e] = <int32_t> source
    return src.base, dst, edges


cdef const int32_t[::1] order_by_degree(const int64_t[::1] indptr):
    """Vertices by degree, equal ones by id; there is at least one."""
    cdef int64_t rows = indptr.shape[0] - 1
    cdef int32_t[:, ::1] orders = np.empty((2, rows), dtype=np.int32)
    cdef int32_t* sorted
    with nogil:
        sorted = sort_by_degree(&indptr[0], rows, &orders[0, 0], &orders[1, 0])
    return orders[0] if sorted == &orders[0, 0] else orders[1]


cdef int32_t[::1] inverse(const int32_t[::1] order):
    """Where each vertex stands in ``order``."""
    cdef int32_t[::1] position = np.empty(order.shape[0], dtype=np.int32)
    cdef bint sound = True
    if order.shape[0]:
        with nogil:
            sound = invert(&order[0], order.shape[0], &position[0])
    if not sound:
        raise ValueError(MALFORMED_ORDER)
    return position


def bandwidth(
    const int64_t[::1] indptr, const int32_t[::1] indices, const int32_t[::1] order, int threads
):
    """The largest distance between neighbours, in ``order`` or, for None, as they are."""
    cdef int64_t rows = indptr.shape[0] - 1
    cdef int64_t widest
    cdef int workers = crew(threads, indices.shape[0])
    cdef int32_t[::1] position
    cdef int32_t* places = NULL
    check(indptr, indices, <int32_t> rows, threads, MALFORMED_IDS)
    if rows == 0:
        return 0
    if order is not None:
        position = inverse(order)
        places = &position[0]
    with nogil:
        widest = measure_bandwidth(&indptr[0], first32(indices), rows, places, workers)
    return widest


def edge_cut(
    const int64_t[::1] indptr, const int32_t[::1] indices, const int32_t[::1] part, int threads
):
    """How many entries lead from one part to another."""
    cdef int64_t cut, rows = indptr.shape[0] - 1
    cdef int workers = crew(threads, indices.shape[0])
    check(indptr, indices, <int32_t> rows, threads, MALFORMED_IDS)
    with nogil:
        cut = count_cut(&indptr[0], first32(indices), rows, first32(part), workers)
    return cut


def count_reuse_times(const int32_t[::1] indices, int32_t num_columns, int64_t bins):
    """Entries by how soon they come again, in bins of ``reuse_bin``."""
    cdef bint sound
    cdef int64_t[::1] last = np.full(max(1, num_columns), -1, dtype=np.int64)
    cdef int64_t[::1] counts = np.zeros(bins, dtype=np.int64)
    with nogil:
        sound = sound_ids(first32(indices), indices.shape[0], num_columns, 1)
    if not sound:
        raise ValueError(MALFORMED_COLUMNS)
    with nogil:
        count_times(first32(indices), indices.shape[0], &last[0], &counts[0])
    return counts.base


def sort_keys(uint64_t[::1] keys, int low, int high):
    """The keys by their bits from ``low`` on below ``high``, in their own memory or in another."""
    cdef int64_t length = keys.shape[0]
    cdef uint64_t[::1] other = np.empty(length, dtype=np.uint64)
    cdef uint64_t* sorted
    if length == 0:
        return keys.base
    with nogil:
        sorted = sort_by_bits(&keys[0], &other[0], length, low, high)
    return keys.base if sorted == &keys[0] else other.base


def reverse_cuthill_mckee(
    const int64_t[::1] indptr, const int32_t[::1] indices, const int32_t[::1] starts,
    bint from_hubs, int threads
):
    """The permutation whose components are searched from ``starts``, or better from a hub."""
    cdef int64_t rows = indptr.shape[0] - 1
    cdef int64_t words = (rows + 63) // 64
    cdef int64_t i
    cdef int searches = 2 if from_hubs else 1
    cdef Ranked ranked
    cdef Ordering orderings[2]
    cdef const int32_t[::1] by_rank
    cdef int32_t[::1] rank, home
    cdef uint64_t[:, ::1] seen
    cdef uint32_t[:, ::1] room
    cdef int32_t[:, ::1] orders, begins, widths
    check(indptr, indices, <int32_t> rows, threads, MALFORMED_IDS)
    if rows == 0:
        return np.empty(0, dtype=np.int32)
    by_rank = order_by_degree(indptr)
    rank = np.empty(rows, dtype=np.int32)
    for i in range(rows):
        rank[by_rank[i]] = <int32_t> i
    home = np.empty(rows, dtype=np.int32)
    seen = np.zeros((searches, words), dtype=np.uint64)
    room = np.empty((searches, 2 * rows), dtype=np.uint32)
    orders = np.empty((searches, rows), dtype=np.int32)
    begins = np.empty((searches, rows + 1), dtype=np.int32)
    widths = np.empty((searches, rows), dtype=np.int32)
    ranked.indptr, ranked.indices, ranked.vertices = &indptr[0], first32(indices), rows
    ranked.rank, ranked.by_rank = &rank[0], &by_rank[0]
    for i in range(searches):
        orderings[i].starts = &by_rank[0] if i else &starts[0]
        orderings[i].step = -1 if i else 1
        orderings[i].seen, orderings[i].room = &seen[i, 0], &room[i, 0]
        orderings[i].order, orderings[i].begins = &orders[i, 0], &begins[i, 0]
        orderings[i].widths = &widths[i, 0]
    with nogil:
        order_vertices(
            &ranked, orderings, from_hubs, &home[0], crew(threads, indices.shape[0])
        )
    return orders.base[0, ::-1].copy()


def partition_stream(
    const int64_t[::1] indptr, const int32_t[::1] indices, const int32_t[::1] order, int32_t parts,
    int64_t capacity, bint fennel, bint by_work, double weight, int64_t passes,
):
    """The part of every vertex, when they arrive in this order."""
    cdef int64_t rows = indptr.shape[0] - 1
    cdef int64_t number
    cdef Stream stream
    cdef int32_t[::1] part = np.full(rows, -1, dtype=np.int32)
    cdef int64_t[:, ::1] counts = np.zeros((2, parts), dtype=np.int64)
    cdef double[::1] fullness = np.empty(parts)
    check(indptr, indices, <int32_t> rows, 1, MALFORMED_IDS)
    inverse(order)
    if rows == 0:
        return part.base
    stream.indptr, stream.indices, stream.vertices = &indptr[0], first32(indices), rows
    stream.order, stream.parts, stream.capacity = &order[0], parts, capacity
    stream.fennel, stream.weight, stream.part = fennel, weight, &part[0]
    stream.by_work = by_work
    stream.scale = <double> rows / (rows + indices.shape[0]) if by_work else 1.0
    stream.count, stream.size, stream.fullness = &counts[0, 0], &counts[1, 0], &fullness[0]
    with nogil:
        for number in range(passes):
            stream_once(&stream)
    return part.base
