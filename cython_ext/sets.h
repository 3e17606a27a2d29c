/* The inner loops of sets.pyx: sets as bitmaps. gnnbench/kernels/reference/sets.py says what they
 * compute. */
#ifndef GNNBENCH_SETS_H
#define GNNBENCH_SETS_H

#include "bitmaps.h"
#ifdef _OPENMP
#include <omp.h>
#endif

typedef const int32_t *Ids;
typedef const int64_t *WideIds;

INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Marks ids in any order; returns 0 where one is outside the universe. */
static int mark(Ids ids, int64_t n, int64_t universe, uint64_t *words) {
    for (int64_t i = 0; i < n; i++) {
        const uint32_t id = (uint32_t) ids[i];
        if ((int64_t) id >= universe) return 0;
        words[id / WORD_BITS] |= bit(id);
    }
    return 1;
}

/* ------------------------------------------------------------------ bitmaps of many sets */

DEFINE_LIST(list_wide_baseline, int64_t)
#ifdef X86
#define WIDEN_8(from) _mm512_cvtepu8_epi64(_mm_loadl_epi64((const __m128i *) (from)))
DEFINE_LIST_VBMI2(list_wide_vbmi2, int64_t, 8, _mm512_set1_epi64, _mm512_add_epi64, WIDEN_8)
#endif

static void list_common(const uint64_t *a, const uint64_t *b, int64_t words, int64_t *out,
                        int level) {
#ifdef X86
    if (packs_bytes(level)) {
        list_wide_vbmi2(a, b, words, out);
        return;
    }
#endif
    (void) level;
    list_wide_baseline(a, b, words, out);
}

/* What two bitmaps have in common: how many ids, and where in the output these begin. */
typedef struct {
    const uint64_t *a, *b;
    int64_t count, begin;
} Shared;

static void count_lists(Shared *lists, int64_t n, int64_t words, int level, int threads) {
#ifdef _OPENMP
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
#endif
    for (int64_t l = 0; l < n; l++)
        lists[l].count = count_common(lists[l].a, lists[l].b, words, level);
    (void) threads;
}

/* The ids of each list from out[begin] on, up to SLACK before the next begins. */
static void write_lists(const Shared *lists, int64_t n, int64_t words, int64_t *out, int level,
                        int threads) {
#ifdef _OPENMP
#pragma omp parallel for num_threads(threads) schedule(dynamic) if (threads > 1)
#endif
    for (int64_t l = 0; l < n; l++)
        if (lists[l].count) list_common(lists[l].a, lists[l].b, words, out + lists[l].begin, level);
    (void) threads;
}

/* The bitmaps of a round, of `slots` rows each; see the twin's list_fetches. */
typedef struct {
    const uint64_t *needed, *transition, *held, *read;
    int64_t slots, words;
} Needs;

/* Of each slot, what crosses from the host, what the slot reuses of its own, and of what it misses
 * what is new and what was read before. */
enum { CROSSES, REUSES, COPIES, KEEPS, SPLITS };

static void split_needs(const Needs *all, uint64_t *out, int threads) {
    const int64_t words = all->words;
#ifdef _OPENMP
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
#endif
    for (int64_t i = 0; i < all->slots; i++) {
        const uint64_t *const needed = all->needed + i * words, *const held = all->held + i * words;
        const uint64_t *const transition = all->transition + i * words;
        const uint64_t *const read = all->read + i * words;
        uint64_t *restrict const splits = out + i * SPLITS * words;
        for (int64_t k = 0; k < words; k++) {
            const uint64_t missing = needed[k] & ~transition[k];
            splits[CROSSES * words + k] = transition[k] & ~held[k];
            splits[REUSES * words + k] = transition[k] & held[k];
            splits[COPIES * words + k] = missing & ~read[k];
            splits[KEEPS * words + k] = missing & read[k];
        }
    }
    (void) threads;
}

/* Marks every set in a row of its own; returns 0 where an id is outside. */
static int mark_rows(const WideIds *sets, const int64_t *lengths, int64_t count,
                     int64_t universe, uint64_t *marks, int64_t words, int threads) {
    int sound = 1;
#ifdef _OPENMP
#pragma omp parallel for num_threads(threads) schedule(dynamic) reduction(&& : sound) if (threads > 1)
#endif
    for (int64_t s = 0; s < count; s++)
        sound = mark_wide(sets[s], lengths[s], universe, marks + s * words) && sound;
    (void) threads;
    return sound;
}

/* What a bitmap has in common with four others, which are `words` apart. */
#define DEFINE_COUNT_FOUR(name, attribute, COUNT)                                                 \
    attribute static void name(const uint64_t *a, const uint64_t *b, int64_t apart,               \
                               int64_t words, int64_t *counts) {                                  \
        const uint64_t *b1 = b + apart, *b2 = b1 + apart, *b3 = b2 + apart;                       \
        int64_t sum = 0, sum1 = 0, sum2 = 0, sum3 = 0;                                            \
        for (int64_t k = 0; k < words; k++) {                                                     \
            sum += COUNT(a[k] & b[k]);                                                            \
            sum1 += COUNT(a[k] & b1[k]);                                                          \
            sum2 += COUNT(a[k] & b2[k]);                                                          \
            sum3 += COUNT(a[k] & b3[k]);                                                          \
        }                                                                                         \
        counts[0] += sum, counts[1] += sum1, counts[2] += sum2, counts[3] += sum3;                \
    }
DEFINE_COUNT_FOUR(count_four_baseline, , count_bits)
#ifdef X86
DEFINE_COUNT_FOUR(count_four_avx2, FOR_AVX2, __builtin_popcountll)
DEFINE_COUNT_FOUR(count_four_avx512, FOR_AVX512, __builtin_popcountll)
#endif

static void count_four(const uint64_t *a, const uint64_t *b, int64_t apart, int64_t words,
                       int64_t *counts, int level) {
#ifdef X86
    if (level == AVX512) {
        count_four_avx512(a, b, apart, words, counts);
        return;
    }
    if (level == AVX2) {
        count_four_avx2(a, b, apart, words, counts);
        return;
    }
#endif
    (void) level;
    count_four_baseline(a, b, apart, words, counts);
}

/* Adds to counts[i * num_b + j] how many bits rows i of a and j of b have in common, a tile of both
 * at a time, which stays in a core's second-level cache. */
static void count_rows(const uint64_t *a, int64_t num_a, const uint64_t *b, int64_t num_b,
                       int64_t words, int64_t tile, int64_t *counts, int level, int threads) {
    for (int64_t from = 0; from < words; from += tile) {
        const int64_t n = least(tile, words - from);
#ifdef _OPENMP
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
#endif
        for (int64_t i = 0; i < num_a; i++) {
            const uint64_t *const row = a + i * words + from;
            int64_t j = 0;
            for (; j + 4 <= num_b; j += 4)
                count_four(row, b + j * words + from, words, n, counts + i * num_b + j, level);
            for (; j < num_b; j++)
                counts[i * num_b + j] += count_common(row, b + j * words + from, n, level);
        }
    }
    (void) threads;
}

#endif
