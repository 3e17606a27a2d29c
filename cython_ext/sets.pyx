# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Compiled loops behind ``gnnbench.kernels.dispatch.sets``; their twin is
``gnnbench.kernels.reference.sets``, their inner loops stand in ``sets.h``.

The dispatcher checks dtypes and layouts. That ids are in the universe is checked here.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free, malloc

import numpy as np

cdef extern from "sets.h" nogil:
    ctypedef const int32_t* Ids
    ctypedef const int64_t* WideIds
    int WORD_BITS
    int SLACK

    int simd_level()
    bint mark(Ids ids, int64_t n, int64_t universe, uint64_t* words)
    int64_t count_common(const uint64_t* a, const uint64_t* b, int64_t words, int level)
    void list_bits(const uint64_t* words, int64_t n, int32_t* out, int level)

    ctypedef struct Shared:
        const uint64_t* a
        const uint64_t* b
        int64_t count
        int64_t begin

    ctypedef struct Needs:
        const uint64_t* needed
        const uint64_t* transition
        const uint64_t* held
        const uint64_t* read
        int64_t slots
        int64_t words

    int CROSSES
    int REUSES
    int COPIES
    int KEEPS
    int SPLITS

    bint mark_rows(
        const WideIds* sets, const int64_t* lengths, int64_t count, int64_t universe,
        uint64_t* marks, int64_t words, int threads
    )
    void count_lists(Shared* lists, int64_t n, int64_t words, int level, int threads)
    void write_lists(
        const Shared* lists, int64_t n, int64_t words, int64_t* out, int level, int threads
    )
    void split_needs(const Needs* all, uint64_t* out, int threads)
    void count_rows(
        const uint64_t* a, int64_t num_a, const uint64_t* b, int64_t num_b, int64_t words,
        int64_t tile, int64_t* counts, int level, int threads
    )

# The bitmaps of a tile stay in a core's second-level cache.
cdef int64_t TILE_WORDS = 1 << 17
# Fewer ids to mark, words to list from or pairs of words to count are not worth another thread.
cdef int64_t IDS_PER_THREAD = 1 << 16
cdef int64_t WORDS_PER_THREAD = 1 << 14
cdef int64_t PAIRS_PER_THREAD = 1 << 20


cdef int share(int threads, int64_t work, int64_t least) noexcept nogil:
    """How many threads so much work is for."""
    return <int> max(<int64_t> 1, min(<int64_t> threads, work // least))


cdef Ids first32(const int32_t[::1] array) noexcept nogil:
    return &array[0] if array.shape[0] else NULL


def unique_ids(const int32_t[::1] ids, int64_t universe):
    """The distinct ids, ascending; None where an id is outside."""
    cdef uint64_t[::1] words = np.zeros(universe // WORD_BITS + 1, dtype=np.uint64)
    cdef int32_t[::1] out
    cdef int64_t count
    cdef int level = simd_level()
    cdef bint sound
    with nogil:
        sound = mark(first32(ids), ids.shape[0], universe, &words[0])
        count = count_common(&words[0], &words[0], words.shape[0], level)
    if not sound:
        return None
    result = np.empty(count + SLACK, dtype=np.int32)
    out = result
    with nogil:
        list_bits(&words[0], words.shape[0], &out[0], level)
    out = None
    result.resize(count, refcheck=False)
    return result


cdef WideIds first64(const int64_t[::1] array) noexcept nogil:
    return &array[0] if array.shape[0] else NULL


def mark_sets(tuple sets, int64_t universe, int64_t words, int threads):
    """The bitmaps of wide ids, ``(len(sets), words)``; None where an id is outside."""
    cdef uint64_t[:, ::1] out
    cdef const int64_t[::1] ids
    cdef int64_t s, count = len(sets), work = 0
    cdef bint sound = True
    cdef WideIds* addresses = <WideIds*> malloc((count + 1) * sizeof(WideIds))
    cdef int64_t* lengths = <int64_t*> malloc((count + 1) * sizeof(int64_t))
    try:
        if not addresses or not lengths:
            raise MemoryError
        result = np.zeros((count, words), dtype=np.uint64)
        for s, ids in enumerate(sets):
            addresses[s], lengths[s] = first64(ids), ids.shape[0]
            work += ids.shape[0]
        if work:
            out = result
            with nogil:
                sound = mark_rows(
                    addresses, lengths, count, universe, &out[0, 0], words,
                    share(threads, work, IDS_PER_THREAD)
                )
        return result if sound else None
    finally:
        free(addresses)
        free(lengths)


def count_shared_marks(const uint64_t[:, ::1] a, const uint64_t[:, ::1] b, int threads):
    """How many bits every row of the one shares with every row of the other, int64."""
    cdef int64_t[:, ::1] counts
    cdef int64_t tile, work = a.shape[0] * b.shape[0] * a.shape[1]
    result = np.zeros((a.shape[0], b.shape[0]), dtype=np.int64)
    if work:
        counts = result
        tile = max(64, TILE_WORDS // 2 // (a.shape[0] + b.shape[0]) // 8 * 8)
        with nogil:
            count_rows(
                &a[0, 0], a.shape[0], &b[0, 0], b.shape[0], a.shape[1], tile, &counts[0, 0],
                simd_level(), share(threads, work, PAIRS_PER_THREAD)
            )
    return result


def count_marks_of(const uint64_t[:, ::1] bitmaps):
    """How many bits every row has, int64."""
    cdef int64_t[::1] counts
    cdef int64_t i
    cdef int level = simd_level()
    result = np.zeros(bitmaps.shape[0], dtype=np.int64)
    counts = result
    if bitmaps.shape[1]:
        for i in range(bitmaps.shape[0]):
            counts[i] = count_common(&bitmaps[i, 0], &bitmaps[i, 0], bitmaps.shape[1], level)
    return result


cdef list list_all(Shared* lists, int64_t n, int64_t words, slab, int threads):
    """The ids that each pair of bitmaps shares, all in one piece of memory."""
    cdef int64_t l, begin = 0
    cdef int64_t[::1] out
    cdef int level = simd_level()
    threads = share(threads, n * words, WORDS_PER_THREAD)
    with nogil:
        count_lists(lists, n, words, level, threads)
    for l in range(n):
        lists[l].begin = begin
        begin += lists[l].count + SLACK
    room = np.empty(begin + 1, np.int64) if slab is None else slab.take(begin + 1, np.int64)
    out = room
    with nogil:
        write_lists(lists, n, words, &out[0], level, threads)
    return [room[lists[l].begin : lists[l].begin + lists[l].count] for l in range(n)]


def list_marks(const uint64_t[:, ::1] bitmaps, slab, int threads):
    """The ids of every row, ascending int64."""
    cdef int64_t l, n = bitmaps.shape[0], words = bitmaps.shape[1]
    cdef Shared* lists = <Shared*> calloc(n + 1, sizeof(Shared))
    try:
        if not lists:
            raise MemoryError
        if words:
            for l in range(n):
                lists[l].a = lists[l].b = &bitmaps[l, 0]
        return list_all(lists, n, words, slab, threads)
    finally:
        free(lists)


def list_fetches(
    const uint64_t[:, ::1] needed, const uint64_t[:, ::1] transition,
    const uint64_t[:, ::1] held, const uint64_t[:, ::1] read, slab, int threads
):
    """By slot, the lists of ``gnnbench.kernels.reference.sets.list_fetches``."""
    cdef Needs all
    cdef uint64_t[::1] splits
    cdef const uint64_t* split
    cdef int64_t i, k, slots = needed.shape[0], words = needed.shape[1], width = 3 + 2 * slots
    cdef Shared* lists = <Shared*> calloc(slots * width + 1, sizeof(Shared))
    cdef Shared* own
    cdef list found
    try:
        if not lists:
            raise MemoryError
        if slots and words:
            splits = np.empty(slots * SPLITS * words, dtype=np.uint64)
            all.needed, all.transition = &needed[0, 0], &transition[0, 0]
            all.held, all.read = &held[0, 0], &read[0, 0]
            all.slots, all.words = slots, words
            with nogil:
                split_needs(&all, &splits[0], share(threads, slots * words, WORDS_PER_THREAD))
            for i in range(slots):
                own, split = lists + i * width, &splits[i * SPLITS * words]
                own[0].a = own[0].b = all.needed + i * words
                own[1].a = own[1].b = split + CROSSES * words
                own[2].a = own[2].b = split + REUSES * words
                for k in range(slots):
                    own[3 + k].a = split + COPIES * words
                    own[3 + slots + k].a = split + KEEPS * words
                    own[3 + k].b = own[3 + slots + k].b = all.transition + k * words
        found = list_all(lists, slots * width, words, slab, threads)
        return [found[i * width : (i + 1) * width] for i in range(slots)]
    finally:
        free(lists)
