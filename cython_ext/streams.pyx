# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Compiled loops behind ``gnnbench.kernels.dispatch.streams``; their twin is
``gnnbench.kernels.reference.streams``, their inner loops stand in ``streams.h``.

The dispatcher checks everything but the ids and rows of a graph, which are checked here.
"""

from libc.stdint cimport int32_t, int64_t, uint16_t, uint32_t, uint64_t

import numpy as np

cdef extern from "streams.h" nogil:
    int _ROUNDS "ROUNDS"

    ctypedef struct Rmat:
        int64_t vertices
        int levels
        int words
        uint64_t seed_key
        uint64_t to_b
        uint64_t to_c
        uint64_t to_d
        uint32_t* factors
        uint32_t shift
        uint32_t mask
        uint32_t offset

    ctypedef struct Marks:
        uint64_t* lines
        const uint16_t* labels
        int64_t vertices
        int64_t words

    ctypedef struct Chunks:
        const uint16_t* chunk
        const uint16_t* partition
        const uint16_t* batch
        int64_t partitions
        int64_t batches
        int64_t stride
        int64_t* neighbours
        int64_t* kept
        int64_t* transition
        int64_t* loaded

    void _add_degrees "add_degrees"(
        const Rmat* r, int64_t first, int64_t count, int32_t* degrees, int threads
    )
    void _mark_edges "mark_edges"(
        const Rmat* r, int64_t first, int64_t count, const Marks* marks, int threads
    )
    int _mark_rows "mark_rows"(
        const int64_t* indptr, const int32_t* indices, int64_t first, int64_t last,
        const Marks* marks, int threads
    )
    void _count_replicas "count_replicas"(
        const Marks* marks, int depth, int64_t* others, int64_t* all, int threads
    )
    void _count_chunks "count_chunks"(const Marks* marks, const Chunks* chunks, int threads)


cdef Rmat read(stream):
    """A stream's numbers, as ``reference.RmatStream`` derives them."""
    cdef Rmat r
    cdef int k
    r.vertices, r.levels, r.words = stream.vertices, stream.levels, stream.words
    r.seed_key = stream.seed_key
    r.to_b, r.to_c, r.to_d = stream.steps
    factors = stream.factors
    for k in range(_ROUNDS):
        r.factors[k] = factors[k]
    r.shift, r.mask, r.offset = stream.shift, stream.mask, stream.offset
    return r


cdef Marks mark_of(uint64_t[:, ::1] lines, const uint16_t[::1] labels):
    cdef Marks marks
    marks.lines, marks.labels = &lines[0, 0], &labels[0]
    marks.vertices, marks.words = lines.shape[0], lines.shape[1]
    return marks


def add_degrees(stream, int64_t first, int64_t count, int32_t[:, ::1] degrees):
    """Add one for each end of ``count`` edges; each row of ``degrees`` has a thread."""
    cdef Rmat r = read(stream)
    cdef int threads = <int> degrees.shape[0]
    with nogil:
        _add_degrees(&r, first, count, &degrees[0, 0], threads)


def mark_edges(
    stream, int64_t first, int64_t count, const uint16_t[::1] labels, uint64_t[:, ::1] lines,
    int threads,
):
    """Set the bits of ``count`` edges, in both directions."""
    cdef Rmat r = read(stream)
    cdef Marks marks = mark_of(lines, labels)
    with nogil:
        _mark_edges(&r, first, count, &marks, threads)


def mark_rows(
    const int64_t[::1] indptr, const int32_t[::1] indices, int64_t first, int64_t last,
    const uint16_t[::1] labels, uint64_t[:, ::1] lines, int threads,
):
    """Set the bits of the rows ``first`` to ``last``; False where these are no part of a graph."""
    cdef Marks marks = mark_of(lines, labels)
    cdef int64_t v
    cdef bint sound = indptr[first] >= 0 and indptr[last] <= indices.shape[0]
    if indptr[first] == indptr[last]:
        sound = sound and not np.diff(indptr[first:last + 1]).any()
        return sound
    with nogil:
        for v in range(first, last):
            sound = sound and indptr[v] <= indptr[v + 1]
        if sound:
            sound = _mark_rows(&indptr[0], &indices[0], first, last, &marks, threads)
    return sound


def count_replicas(
    uint64_t[:, ::1] lines, const uint16_t[::1] labels, int depth, int threads
):
    """int64 ``(2, depth)``: without and with a vertex's own piece, for 2^depth pieces down to 2."""
    cdef Marks marks = mark_of(lines, labels)
    cdef int64_t[:, ::1] counts = np.zeros((2, depth), dtype=np.int64)
    with nogil:
        _count_replicas(&marks, depth, &counts[0, 0], &counts[1, 0], threads)
    return counts.base


def count_chunks(
    uint64_t[:, ::1] lines, const uint16_t[::1] labels, const uint16_t[::1] chunk,
    const uint16_t[::1] partition, const uint16_t[::1] batch, int64_t partitions, int64_t batches,
    int threads,
):
    """The four counts, flat, each int64: neighbours, kept, transition, loaded."""
    cdef Marks marks = mark_of(lines, labels)
    cdef Chunks chunks
    cdef int64_t wide = batches * partitions * partitions, narrow = batches * partitions
    cdef int64_t[:, ::1] counts = np.zeros((threads, 2 * (wide + narrow)), dtype=np.int64)
    chunks.chunk, chunks.partition, chunks.batch = &chunk[0], &partition[0], &batch[0]
    chunks.partitions, chunks.batches, chunks.stride = partitions, batches, counts.shape[1]
    chunks.neighbours = &counts[0, 0]
    chunks.kept = chunks.neighbours + wide
    chunks.transition = chunks.kept + wide
    chunks.loaded = chunks.transition + narrow
    with nogil:
        _count_chunks(&marks, &chunks, threads)
    total = counts.base.sum(axis=0)
    return np.split(total, [wide, 2 * wide, 2 * wide + narrow])
