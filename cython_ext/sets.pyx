# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Compiled loops behind ``gnnbench.kernels.dispatch.sets``; their twin is
``gnnbench.kernels.reference.sets``, their inner loops stand in ``sets.h``.

The dispatcher checks dtypes and layouts. That ids ascend, or are in the universe, is checked here.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free, malloc

import numpy as np

cdef extern from "sets.h" nogil:
    ctypedef const int32_t* Ids
    ctypedef const int64_t* WideIds
    int _UNITE "UNITE"
    int _INTERSECT "INTERSECT"
    int _SUBTRACT "SUBTRACT"
    int WORD_BITS
    int SLACK

    ctypedef struct Pairs:
        const Ids* a
        const Ids* b
        const int64_t* a_lengths
        const int64_t* b_lengths
        int64_t num_a
        int64_t num_b
        int64_t universe
        int64_t words
        uint64_t* bitmaps
        Ids* slices
        int64_t* counts
        int level

    int simd_level()
    bint ascending(Ids ids, int64_t n)
    int64_t combine_sets "combine"(
        int op, Ids a, int64_t na, Ids b, int64_t nb, int32_t* out
    )
    int64_t count_shared "count_intersection"(Ids a, int64_t na, Ids b, int64_t nb)
    bint mark(Ids ids, int64_t n, int64_t universe, uint64_t* words)
    int64_t count_common(const uint64_t* a, const uint64_t* b, int64_t words, int level)
    void list_bits(const uint64_t* words, int64_t n, int32_t* out, int level)
    void count_pairs(const Pairs* pairs, int threads)

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

UNITE, INTERSECT, SUBTRACT = _UNITE, _INTERSECT, _SUBTRACT

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


cdef bint both_ascend(const int32_t[::1] a, const int32_t[::1] b) noexcept nogil:
    return ascending(first32(a), a.shape[0]) and ascending(first32(b), b.shape[0])


def combine(int op, const int32_t[::1] a, const int32_t[::1] b):
    """The union, intersection or difference; None where one of the two does not ascend."""
    cdef int64_t length
    cdef int32_t[::1] out
    cdef bint sound
    if op == _INTERSECT and a.shape[0] > b.shape[0]:
        a, b = b, a
    result = np.empty(max(1, a.shape[0] + (b.shape[0] if op == _UNITE else 0)), dtype=np.int32)
    out = result
    with nogil:
        sound = both_ascend(a, b)
        if sound:
            length = combine_sets(
                op, first32(a), a.shape[0], first32(b), b.shape[0], &out[0]
            )
    if not sound:
        return None
    out = None
    result.resize(length, refcheck=False)
    return result


def count_intersection(const int32_t[::1] a, const int32_t[::1] b):
    """How many ids both have; -1 where one of the two does not ascend."""
    cdef int64_t count = -1
    if a.shape[0] > b.shape[0]:
        a, b = b, a
    with nogil:
        if both_ascend(a, b):
            count = count_shared(first32(a), a.shape[0], first32(b), b.shape[0])
    return count


cdef uint64_t[::1] mark_all(tuple sets, int64_t universe):
    """The bitmap of every id of the sets; None where one is outside."""
    cdef uint64_t[::1] words = np.zeros(universe // WORD_BITS + 1, dtype=np.uint64)
    cdef const int32_t[::1] ids
    cdef bint sound
    for ids in sets:
        with nogil:
            sound = mark(first32(ids), ids.shape[0], universe, &words[0])
        if not sound:
            return None
    return words


cdef int64_t count_marks(const uint64_t[::1] words) noexcept nogil:
    return count_common(&words[0], &words[0], words.shape[0], simd_level())


def unite_all(tuple sets, int64_t universe):
    """Ascending, what any of the sets has; None where an id is outside."""
    cdef uint64_t[::1] words = mark_all(sets, universe)
    cdef int32_t[::1] out
    cdef int64_t count
    if words is None:
        return None
    with nogil:
        count = count_marks(words)
    result = np.empty(count + SLACK, dtype=np.int32)
    out = result
    with nogil:
        list_bits(&words[0], words.shape[0], &out[0], simd_level())
    out = None
    result.resize(count, refcheck=False)
    return result


def count_distinct(tuple sets, int64_t universe):
    """How many ids the sets have, each once; -1 where one is outside."""
    cdef uint64_t[::1] words = mark_all(sets, universe)
    cdef int64_t count
    if words is None:
        return -1
    with nogil:
        count = count_marks(words)
    return count


cdef class Pointers:
    """Where sets lie, and how long they are; they stay where they are as long as this is there."""

    cdef list views
    cdef uint64_t[::1] addresses
    cdef int64_t[::1] lengths
    cdef readonly bint sound

    def __cinit__(self, tuple sets, int64_t universe):
        cdef const int32_t[::1] ids
        cdef int64_t s, n
        self.views = []
        self.sound = True
        self.addresses = np.zeros(len(sets) + 1, dtype=np.uint64)
        self.lengths = np.zeros(len(sets) + 1, dtype=np.int64)
        for s, ids in enumerate(sets):
            n = ids.shape[0]
            self.views.append(ids)
            self.addresses[s] = <uint64_t> first32(ids)
            self.lengths[s] = n
            with nogil:
                if not ascending(first32(ids), n) or (n and ids[n - 1] >= universe):
                    self.sound = False


def count_intersections(tuple sets_a, sets_b, int64_t universe, int threads):
    """How many ids every two sets share, int64; None where a set does not ascend in the universe.

    Where ``sets_b`` is None, the upper triangle of the sets' own matrix.
    """
    cdef Pointers a = Pointers(sets_a, universe)
    cdef Pointers b = a if sets_b is None else Pointers(sets_b, universe)
    cdef Pairs p
    cdef uint64_t[::1] bitmaps, slices
    cdef int64_t[:, ::1] counts
    cdef int64_t num_sets, tiles
    if not (a.sound and b.sound):
        return None
    p.num_a, p.num_b = len(sets_a), len(sets_a if sets_b is None else sets_b)
    result = np.zeros((p.num_a, p.num_b), dtype=np.int64)
    if result.size == 0 or universe == 0:
        return result
    counts = result
    num_sets = p.num_a + (0 if sets_b is None else p.num_b)
    p.words = max(8, min(TILE_WORDS // num_sets, 4096, universe // WORD_BITS + 1) // 8 * 8)
    tiles = (universe - 1) // (p.words * WORD_BITS) + 1
    threads = <int> max(<int64_t> 1, min(<int64_t> threads, tiles))
    bitmaps = np.empty(threads * num_sets * p.words, dtype=np.uint64)
    slices = np.empty(threads * num_sets * 2, dtype=np.uint64)
    p.a, p.a_lengths = <const Ids*> &a.addresses[0], &a.lengths[0]
    p.b, p.b_lengths = NULL if sets_b is None else <const Ids*> &b.addresses[0], &b.lengths[0]
    p.universe, p.bitmaps, p.slices = universe, &bitmaps[0], <Ids*> &slices[0]
    p.counts, p.level = &counts[0, 0], simd_level()
    with nogil:
        count_pairs(&p, threads)
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
