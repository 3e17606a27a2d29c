# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Compiled loops behind ``gnnbench.kernels.dispatch.sampling``; their twin is
``gnnbench.kernels.reference.sampling``, their inner loops stand in ``sampling.h``.

Arguments are validated by the dispatcher. What it cannot check without reading the whole graph (row
bounds, neighbour ids, weights) is checked here for the rows that are read, so a malformed graph
raises ``ValueError`` instead of reading foreign memory.

``scratch`` is int32 ``(2, V + 1)``. Its first row maps vertices to their numbers plus a base, which
stands in the last column; every entry from earlier calls is below the base, so that a call clears
nothing. The second row lists the vertices numbered.
"""

from cython.parallel cimport prange
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint64_t

import numpy as np

from gnnbench.kernels.dispatch.checks import check_distinct
from gnnbench.kernels.reference.sampling import MALFORMED_IDS, MALFORMED_ROWS, MALFORMED_WEIGHTS

cdef enum:
    # Neighbours that are read one after the other before a row is searched.
    NEAR = 16

cdef extern from "sampling.h" nogil:
    uint64_t GOLDEN
    uint64_t mix(uint64_t z)

    ctypedef struct Row:
        int64_t begin
        int64_t degree

    ctypedef struct Layer:
        const int32_t* indices
        const float* weights32
        const double* weights64
        double* room
        int64_t longest
        const int32_t* vertices
        const Row* bounds
        int64_t rows
        int64_t fanout
        int replace
        uint64_t key
        const int64_t* out_indptr
        int32_t* out

    ctypedef struct Numbering:
        int32_t* position
        int32_t* order
        int64_t num_vertices
        int32_t base
        int64_t count

    int64_t find_rows(
        const int64_t* indptr, int64_t num_indices, const int32_t* vertices, int64_t rows,
        int64_t fanout, int replace, Row* bounds, int64_t* out_indptr,
    )
    int64_t count_weighted(const Layer* layer, int64_t* out_indptr, int64_t* longest)
    int draw_layer(const Layer* layer, Numbering* numbering, int threads, unsigned char* ready)
    int keep_neighbours(
        const Numbering* numbering, const Row* bounds, const int32_t* indices, int64_t rows,
        int threads, int64_t* out_indptr, int32_t* out,
    )
    void race_vertices(
        uint64_t key, const int64_t* ids, const double* weights, int64_t length, double* keys
    )

# Fewer rows than this are not worth starting a thread for.
cdef int64_t ROWS_PER_THREAD = 256
# Ids of so large a share of the vertices are put in order by marks, not by sorting them.
cdef int64_t MARKED_SHARE = 64


cdef class Numbered:
    """Vertices numbered in the order in which they come, in a thread's scratch."""

    cdef Numbering state
    cdef int32_t[:, ::1] scratch

    def __cinit__(self, str name, const int64_t[::1] ids, int32_t[:, ::1] scratch):
        """Number ``ids`` from 0; ``ValueError`` where one is outside the graph or there twice."""
        cdef int64_t num_vertices = scratch.shape[1] - 1
        cdef int64_t i
        self.scratch = scratch
        if scratch[0, num_vertices] > INT32_MAX - num_vertices:
            scratch[0, :] = -1
            scratch[0, num_vertices] = 0
        self.state.position = &scratch[0, 0]
        self.state.order = &scratch[1, 0]
        self.state.num_vertices = num_vertices
        self.state.base = scratch[0, num_vertices]
        self.state.count = 0
        for i in range(ids.shape[0]):
            if not 0 <= ids[i] < num_vertices or scratch[0, ids[i]] >= self.state.base:
                self.end()
                check_distinct(name, np.asarray(ids), num_vertices)
                raise ValueError(f"{name} changed during the call.")
            scratch[0, ids[i]] = self.state.base + <int32_t> i
            scratch[1, i] = <int32_t> ids[i]
            self.state.count = i + 1

    cdef void end(self) noexcept:
        """Every call ends with this, also one that raises: it outdates the numbers given."""
        self.scratch[0, self.state.num_vertices] = self.state.base + <int32_t> self.state.count

    cdef ids(self, int64_t first):
        """The vertices with numbers from ``first`` on, int64."""
        cdef int64_t i
        cdef int64_t[::1] ids = np.empty(self.state.count - first, dtype=np.int64)
        for i in range(ids.shape[0]):
            ids[i] = self.state.order[first + i]
        return ids.base


cdef const int64_t* first64(const int64_t[::1] array) noexcept nogil:
    return &array[0] if array.shape[0] else NULL


cdef const int32_t* first32(const int32_t[::1] array) noexcept nogil:
    return &array[0] if array.shape[0] else NULL


cdef int workers(int threads, int64_t rows) noexcept:
    return <int> max(1, min(threads, rows // ROWS_PER_THREAD))


def sample_neighbours(
    const int64_t[::1] indptr, const int32_t[::1] indices, const int64_t[::1] seeds, fanouts,
    uint64_t seed, uint64_t epoch, bint replace, weights, int threads, int32_t[:, ::1] scratch,
    str name="seeds",
):
    """Sample every layer of a batch; errors call the seeds by ``name``.

    Returns ``(order, layers)``: ``order`` int64, all vertices in the order in which they appear,
    seeds first; ``layers`` from the seeds outwards, each ``(rows, indptr, indices)``, where
    ``order[:rows]`` are the layer's destinations and the next layer's ``rows`` ends its sources.
    """
    cdef Numbered numbered = Numbered(name, seeds, scratch)
    cdef Layer drawn
    cdef const float[::1] weights32
    cdef const double[::1] weights64
    cdef int64_t num_indices = indices.shape[0]
    cdef int64_t total, fanout, depth
    cdef int64_t[::1] out_indptr, bounds
    cdef int32_t[::1] neighbours
    cdef double[::1] room
    cdef unsigned char[::1] ready
    cdef bint sound, weighted = weights is not None
    cdef int crew
    layers = []
    try:
        drawn.indices = first32(indices)
        drawn.weights32, drawn.weights64, drawn.room = NULL, NULL, NULL
        drawn.vertices, drawn.replace = numbered.state.order, replace
        if weighted and len(weights):
            if weights.dtype == np.float32:
                weights32 = weights
                drawn.weights32 = &weights32[0]
            else:
                weights64 = weights
                drawn.weights64 = &weights64[0]
        for depth, fanout in enumerate(fanouts):
            drawn.key = mix(mix(mix(seed + GOLDEN) + epoch + GOLDEN) + <uint64_t> depth + GOLDEN)
            drawn.rows, drawn.fanout = numbered.state.count, fanout
            out_indptr = np.empty(drawn.rows + 1, dtype=np.int64)
            bounds = np.empty(2 * drawn.rows + 1, dtype=np.int64)
            drawn.bounds = <Row*> &bounds[0]
            with nogil:
                total = find_rows(
                    first64(indptr), num_indices, drawn.vertices, drawn.rows, fanout, replace,
                    <Row*> &bounds[0], &out_indptr[0],
                )
                if weighted and total > 0:
                    total = count_weighted(&drawn, &out_indptr[0], &drawn.longest)
            if total < 0:
                raise ValueError(MALFORMED_ROWS if total == -1 else MALFORMED_WEIGHTS)
            neighbours = np.empty(total, dtype=np.int32)
            layers.append((drawn.rows, out_indptr.base, neighbours.base))
            if total == 0:
                continue
            crew = workers(threads, drawn.rows)
            ready = np.empty(drawn.rows, dtype=np.uint8)
            if weighted:
                room = np.empty(drawn.longest * crew)
                drawn.room = &room[0]
            drawn.out_indptr, drawn.out = &out_indptr[0], &neighbours[0]
            with nogil:
                sound = draw_layer(&drawn, &numbered.state, crew, &ready[0])
            if not sound:
                raise ValueError(MALFORMED_IDS)
        return numbered.ids(0), layers
    finally:
        numbered.end()


def induce_block(
    const int64_t[::1] indptr, const int32_t[::1] indices, const int64_t[::1] dst_ids,
    int threads, int32_t[:, ::1] scratch,
):
    """All in-edges of ``dst_ids``, as ``(src_ids, indptr, indices)`` of their block."""
    cdef int64_t rows = dst_ids.shape[0]
    cdef int64_t e
    cdef int32_t[::1] neighbours, rank
    num_vertices = indptr.shape[0] - 1
    order, layers = sample_neighbours(
        indptr, indices, dst_ids, (0,), 0, 0, False, None, threads, scratch, "dst_ids"
    )
    _, out_indptr, drawn = layers[0]
    # First come, first numbered; renumbered now that the others are known.
    others = order[rows:]
    rank = np.empty(len(order), dtype=np.int32)
    rank.base[:rows] = np.arange(rows)
    if MARKED_SHARE * len(others) < num_vertices:
        ascending = np.argsort(others)
        rank.base[rows + ascending] = np.arange(rows, len(order))
        others = others[ascending]
    else:  # a pass over all vertices instead of a sort
        marks = np.zeros(num_vertices, dtype=bool)
        marks[others] = True
        ascending = np.flatnonzero(marks)
        place = np.empty(num_vertices, dtype=np.int32)
        place[ascending] = np.arange(rows, len(order), dtype=np.int32)
        rank.base[rows:] = place[others]
        others = ascending
    neighbours = drawn
    with nogil:
        for e in range(neighbours.shape[0]):
            neighbours[e] = rank[neighbours[e]]
    return np.concatenate((dst_ids, others)), out_indptr, drawn


def induce_subgraph(
    const int64_t[::1] indptr, const int32_t[::1] indices, const int64_t[::1] ids,
    int threads, int32_t[:, ::1] scratch,
):
    """The edges with both ends in ``ids``, as ``(indptr, indices)`` of their block."""
    cdef Numbered numbered = Numbered("ids", ids, scratch)
    cdef int64_t rows = ids.shape[0]
    cdef int crew = workers(threads, rows)
    cdef bint sound
    cdef int64_t[::1] out_indptr, bounds
    cdef int32_t[::1] neighbours
    try:
        out_indptr = np.empty(rows + 1, dtype=np.int64)
        bounds = np.empty(2 * rows + 1, dtype=np.int64)
        with nogil:
            # For its check of the rows; the counts are replaced below.
            sound = find_rows(
                first64(indptr), indices.shape[0], numbered.state.order, rows, 0, False,
                <Row*> &bounds[0], &out_indptr[0],
            ) >= 0
        if not sound:
            raise ValueError(MALFORMED_ROWS)
        with nogil:
            sound = keep_neighbours(
                &numbered.state, <Row*> &bounds[0], first32(indices), rows, crew, &out_indptr[0],
                NULL,
            )
        if not sound:
            raise ValueError(MALFORMED_IDS)
        np.cumsum(out_indptr, out=out_indptr.base)
        neighbours = np.empty(out_indptr[rows], dtype=np.int32)
        if neighbours.shape[0]:
            with nogil:
                keep_neighbours(
                    &numbered.state, <Row*> &bounds[0], first32(indices), rows, crew,
                    &out_indptr[0], &neighbours[0],
                )
        return out_indptr.base, neighbours.base
    finally:
        numbered.end()


cdef void find_row(
    const int64_t* indptr, const int32_t[::1] indices, int64_t vertex, const int64_t[::1] src_ids,
    const int32_t* columns, int64_t count, int64_t* places,
) noexcept nogil:
    """Where the edges of a vertex stand in ``indices``; places of others stay as they are."""
    cdef int64_t begin = indptr[vertex], end = indptr[vertex + 1]
    cdef int64_t e, low, high, middle, source, following = begin
    if not 0 <= begin <= end <= indices.shape[0]:
        return
    for e in range(count):
        if not 0 <= columns[e] < src_ids.shape[0]:
            continue
        source = src_ids[columns[e]]
        # A row that was kept or drawn in its order has the next edge soon behind this one.
        high = min(end, following + NEAR)
        while following < high and indices[following] < source:
            following += 1
        if following < end and indices[following] == source:
            places[e] = following
            following += 1
            continue
        low, high = begin, end
        while low < high:
            middle = low + (high - low) // 2
            if indices[middle] < source:
                low = middle + 1
            else:
                high = middle
        if low < end and indices[low] == source:
            places[e] = low
            following = low + 1


def find_edges(
    const int64_t[::1] indptr, const int32_t[::1] indices, const int64_t[::1] dst_ids,
    const int64_t[::1] rows, const int64_t[::1] src_ids, const int32_t[::1] columns, int threads,
):
    """Where each edge of a block stands in ``indices``, -1 where it does not."""
    cdef int64_t num_vertices = indptr.shape[0] - 1, row
    cdef int64_t[::1] places = np.full(columns.shape[0], -1, dtype=np.int64)
    cdef const int32_t* first = first32(columns)
    cdef int64_t* found = &places[0] if places.shape[0] else NULL
    cdef int crew = workers(threads, dst_ids.shape[0])
    for row in prange(dst_ids.shape[0], nogil=True, num_threads=crew, schedule="static"):
        if 0 <= dst_ids[row] < num_vertices and rows[row] < rows[row + 1]:
            find_row(
                &indptr[0], indices, dst_ids[row], src_ids, first + rows[row],
                rows[row + 1] - rows[row], found + rows[row],
            )
    return places.base


def race(uint64_t key, const int64_t[::1] ids, const double[::1] weights):
    """Exponential variables with rates ``weights``, one for each vertex of ``ids``."""
    cdef double[::1] keys = np.empty(ids.shape[0])
    if ids.shape[0]:
        with nogil:
            race_vertices(key, &ids[0], &weights[0], ids.shape[0], &keys[0])
    return keys.base
