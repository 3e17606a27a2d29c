# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Typed entries to ``aggregation.h`` for ``gnnbench.kernels.dispatch.aggregation``.

Everything is validated there: matrices are well formed, shapes agree, inner strides are one element.
``level`` is an instruction set as :func:`newest_level` counts them. Arguments that are None leave a
factor out.
"""

from cython cimport floating
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memset

cdef extern from "aggregation.h" nogil:
    ctypedef struct product:
        const int64_t* indptr
        const int32_t* indices
        int64_t num_dst, num_src, num_edges, width
        const void* weight
        const void* src_scale
        const void* dst_scale
        const void* own
        const void* h
        const uint8_t* mask
        void* out
        int64_t h_stride, out_stride, mask_stride
        const int32_t* heavy
        const int64_t* cuts
        int64_t num_heavy, num_blocks, heavy_edges
        int mean, sparse, stream, add, is_double

    const int PACKED_BYTES
    int c_newest_level "newest_level"()
    void c_multiply "multiply"(const product* p, void* packed, int threads, int level)
    void c_dot_edges "dot_edges"(
        const product* p, const void* g, int64_t g_stride, void* products, int threads, int level)
    void c_soften "soften"(
        const product* p, const void* scores, void* out, int threads, int level)
    void c_soften_back "soften_back"(
        const product* p, const void* q, const void* g, void* out, int threads, int level)


def newest_level():
    """0, 1 or 2: plain code, AVX2 with FMA, or AVX-512; the newest that this processor has."""
    return c_newest_level()


def packed_row_bytes():
    """Bytes of a row of the scratch that :func:`multiply` packs columns into."""
    return PACKED_BYTES


cdef product of_matrix(
    const int64_t[::1] indptr, const int32_t[::1] indices, int64_t num_src, bint is_double
) noexcept:
    cdef product p
    memset(&p, 0, sizeof(p))
    p.indptr = &indptr[0]
    p.indices = &indices[0] if indices.shape[0] else NULL
    p.num_dst = indptr.shape[0] - 1
    p.num_src = num_src
    p.num_edges = indices.shape[0]
    p.is_double = is_double
    return p


cdef inline const floating* start(const floating[::1] values) noexcept nogil:
    return &values[0] if values is not None and values.shape[0] else NULL


cdef inline int64_t row_stride(const floating[:, :] rows) noexcept nogil:
    return rows.strides[0] // <int64_t> sizeof(floating)


def multiply(
    const int64_t[::1] indptr, const int32_t[::1] indices, const floating[:, :] h,
    floating[:, :] out, const floating[::1] weight, const floating[::1] src_scale,
    const floating[::1] dst_scale, const floating[::1] own, const uint8_t[:, ::1] mask,
    bint sparse, bint mean, bint add, bint stream, floating[::1] packed, const int32_t[::1] heavy,
    const int64_t[:, ::1] cuts, int64_t heavy_edges, int threads, int level,
):
    """out = diag(dst_scale) (A o weight) diag(src_scale) h + diag(own) h, where the mask has bits.

    ``add``: to what stands in ``out``; it is not streamed then.
    ``sparse``: the mask has none for many rows, which are then passed over.
    ``packed``, aligned to 64 bytes, has room for PACKED_BYTES for every source and heavy row.
    """
    cdef product p = of_matrix(indptr, indices, h.shape[0], floating is double)
    cdef void* scratch = &packed[0] if packed is not None else NULL
    p.width = out.shape[1]
    p.weight, p.src_scale = start(weight), start(src_scale)
    p.dst_scale, p.own = start(dst_scale), start(own)
    p.h, p.h_stride = &h[0, 0], row_stride(h)
    p.out, p.out_stride = &out[0, 0], row_stride(out)
    p.mean, p.add, p.stream = mean, add, stream
    if mask is not None:
        p.mask, p.mask_stride, p.sparse = &mask[0, 0], mask.shape[1], sparse
    if heavy is not None:
        p.heavy, p.num_heavy, p.heavy_edges = &heavy[0], heavy.shape[0], heavy_edges
        p.cuts, p.num_blocks = &cuts[0, 0], cuts.shape[0] - 1
    with nogil:
        c_multiply(&p, scratch, threads, level)


def dot_edges(
    const int64_t[::1] indptr, const int32_t[::1] indices, const floating[:, :] g,
    const floating[:, :] h, floating[::1] products, int threads, int level,
):
    """products[e] = <g[v], h[u]> for every edge e = (u, v)."""
    cdef product p = of_matrix(indptr, indices, h.shape[0], floating is double)
    p.width = h.shape[1]
    p.h, p.h_stride = &h[0, 0], row_stride(h)
    with nogil:
        c_dot_edges(&p, &g[0, 0], row_stride(g), &products[0], threads, level)


def soften(
    const int64_t[::1] indptr, const int32_t[::1] indices, const floating[::1] scores,
    floating[::1] out, int threads, int level,
):
    """The softmax of each row's scores."""
    cdef product p = of_matrix(indptr, indices, 0, floating is double)
    with nogil:
        c_soften(&p, &scores[0], &out[0], threads, level)


def soften_back(
    const int64_t[::1] indptr, const int32_t[::1] indices, const floating[::1] q,
    const floating[::1] gradient, floating[::1] out, int threads, int level,
):
    """The gradient of the scores, from the softmax ``q`` and its gradient."""
    cdef product p = of_matrix(indptr, indices, 0, floating is double)
    with nogil:
        c_soften_back(&p, &q[0], &gradient[0], &out[0], threads, level)


def check_matrix(const int64_t[::1] indptr, const int32_t[::1] indices, int64_t num_src):
    """0; 1 if rows descend or end past the indices; 2 if an index is outside [0, num_src)."""
    cdef int64_t v, e
    cdef uint32_t limit = <uint32_t> min(num_src, <int64_t> 1 << 31)
    cdef bint wrong = False
    with nogil:
        for v in range(indptr.shape[0] - 1):
            wrong |= indptr[v + 1] < indptr[v]
        if wrong or indptr[0] != 0 or indptr[indptr.shape[0] - 1] != indices.shape[0]:
            with gil:
                return 1
        for e in range(indices.shape[0]):
            wrong |= <uint32_t> indices[e] >= limit
    return 2 if wrong else 0


def cut_blocks(
    const int64_t[::1] indptr, const int32_t[::1] indices, const int32_t[::1] rows,
    int64_t block_sources, int64_t[:, ::1] cuts,
):
    """cuts[b, i]: the first edge of rows[i] whose source is at least b * block_sources.

    Returns False, with ``cuts`` in any state, if the sources of one of the rows do not ascend.
    """
    cdef int64_t i, b, e, stop
    cdef bint ascending = True
    with nogil:
        for i in range(rows.shape[0]):
            e, stop, b = indptr[rows[i]], indptr[rows[i] + 1], 0
            while e < stop:
                while b * block_sources <= indices[e]:
                    cuts[b, i] = e
                    b += 1
                e += 1
                ascending &= e == stop or indices[e - 1] <= indices[e]
            while b < cuts.shape[0]:
                cuts[b, i] = stop
                b += 1
    return ascending
