/* The inner loops of sets.pyx: ascending ids merged, and sets as bitmaps. See
 * gnnbench/kernels/reference/sets.py for what they compute. */
#ifndef GNNBENCH_SETS_H
#define GNNBENCH_SETS_H

#include "bitmaps.h"
#ifdef _OPENMP
#include <omp.h>
#endif

typedef const int32_t *Ids;
typedef const int64_t *WideIds;

INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Whether ids ascend without repeats from 0 or more. */
static int ascending(Ids ids, int64_t n) {
    int wrong = n > 0 && ids[0] < 0;
    for (int64_t i = 1; i < n; i++) wrong |= ids[i - 1] >= ids[i];
    return !wrong;
}

/* How many ids are below a bound. */
static int64_t count_below(Ids ids, int64_t n, int64_t bound) {
    int64_t low = 0;
    for (int64_t half; n; n -= half) {
        half = (n + 1) / 2;
        if (ids[low + half - 1] < bound) low += half;
    }
    return low;
}

/* ------------------------------------------------------------------ two sets */

/* Below so many elements two sets are merged in one go; a set so much larger than the other is
 * searched. */
enum { CHAINS = 4, FEW = 256, MUCH_LARGER = 32 };

enum { UNITE, INTERSECT, SUBTRACT };

typedef struct {
    Ids a, b, a_end, b_end;
    int32_t *out;
} Chain;

/* A step takes the smaller of the two next elements, or both where they are equal. Which it is
 * comes from the signs of their differences, as a branch could not be predicted. It waits for the
 * loads of the step before; therefore stretches between the same values of both sets are merged in
 * turn, a step of each. */
#define STEP(c, EMIT)                                                                             \
    {                                                                                             \
        const uint32_t x = (uint32_t) *a##c, y = (uint32_t) *b##c;                                \
        const int64_t less = (x - y) >> 31, more = (y - x) >> 31;                                 \
        EMIT(out##c)                                                                              \
        a##c += 1 - more;                                                                         \
        b##c += 1 - less;                                                                         \
    }
#define TAKE(c)                                                                                   \
    Ids a##c = chain[c].a, b##c = chain[c].b;                                                     \
    int32_t *out##c = chain[c].out;
#define GIVE(c) chain[c].a = a##c, chain[c].b = b##c, chain[c].out = out##c;

/* Merges until one of the sets of one stretch ends, or of a single stretch; returns the steps. */
#define DEFINE_MERGE(name, EMIT)                                                                  \
    static int64_t name(Chain *chain) {                                                           \
        int64_t sum = 0;                                                                          \
        for (;;) {                                                                                \
            int64_t steps = INT64_MAX;                                                            \
            for (int c = 0; c < CHAINS; c++) {                                                    \
                steps = least(steps, chain[c].a_end - chain[c].a);                                \
                steps = least(steps, chain[c].b_end - chain[c].b);                                \
            }                                                                                     \
            if (steps == 0) return sum;                                                           \
            sum += CHAINS * steps;                                                                \
            TAKE(0) TAKE(1) TAKE(2) TAKE(3)                                                       \
            for (; steps; steps--) {                                                              \
                STEP(0, EMIT) STEP(1, EMIT) STEP(2, EMIT) STEP(3, EMIT)                           \
            }                                                                                     \
            GIVE(0) GIVE(1) GIVE(2) GIVE(3)                                                       \
        }                                                                                         \
    }                                                                                             \
    static int64_t name##_one(Chain *chain) {                                                     \
        int64_t steps = 0;                                                                        \
        TAKE(0)                                                                                   \
        for (; a0 < chain->a_end && b0 < chain->b_end; steps++) STEP(0, EMIT)                     \
        GIVE(0)                                                                                   \
        return steps;                                                                             \
    }

#define EMIT_UNION(out) *out++ = (int32_t) (y + ((x - y) & (uint32_t) -less));
#define EMIT_INTERSECTION(out) *out = (int32_t) x, out += 1 - less - more;
#define EMIT_DIFFERENCE(out) *out = (int32_t) x, out += less;
#define EMIT_NOTHING(out)

DEFINE_MERGE(merge_union, EMIT_UNION)
DEFINE_MERGE(merge_intersection, EMIT_INTERSECTION)
DEFINE_MERGE(merge_difference, EMIT_DIFFERENCE)
DEFINE_MERGE(merge_nothing, EMIT_NOTHING)

static int32_t *append_ids(int32_t *out, Ids from, Ids end) {
    if (end > from) memmove(out, from, (size_t) (end - from) * sizeof *out);
    return end > from ? out + (end - from) : out;
}

static int32_t *merge_chain(int op, Chain *chain) {
    (op == UNITE       ? merge_union_one
     : op == INTERSECT ? merge_intersection_one
                       : merge_difference_one)(chain);
    if (op != INTERSECT) chain->out = append_ids(chain->out, chain->a, chain->a_end);
    if (op == UNITE) chain->out = append_ids(chain->out, chain->b, chain->b_end);
    return chain->out;
}

/* The first place from `at` on whose id is not below x, by steps that double. */
INLINE Ids gallop(Ids at, Ids end, int32_t x) {
    int64_t reach = 1;
    while (reach < end - at && at[reach - 1] < x) {
        at += reach;
        reach *= 2;
    }
    return at + count_below(at, least(reach, end - at), x);
}

/* The elements of a small set that are in a much larger one, or those that are not. */
static int32_t *search_each(Ids small, Ids small_end, Ids large, Ids large_end, int found,
                            int32_t *out) {
    for (; small < small_end; small++) {
        large = gallop(large, large_end, *small);
        *out = *small;
        out += (large < large_end && *large == *small) == found;
    }
    return out;
}

/* A much larger set with the elements of a small one, or without them. */
static int32_t *copy_between(Ids small, Ids small_end, Ids large, Ids large_end, int with,
                             int32_t *out) {
    for (; small < small_end; small++) {
        const Ids next = gallop(large, large_end, *small);
        out = append_ids(out, large, next);
        if (with) *out++ = *small;
        large = next + (next < large_end && *next == *small);
    }
    return append_ids(out, large, large_end);
}

/* Cuts both sets between the same values; each stretch writes where all before it at most end. */
static void split(int op, Ids a, int64_t na, Ids b, int64_t nb, int32_t *out, Chain *chain) {
    Ids a_from = a, b_from = b;
    for (int c = 0; c < CHAINS; c++) {
        const Ids a_to = a + na * (c + 1) / CHAINS;
        const Ids b_to = b + (c + 1 < CHAINS ? count_below(b, nb, *a_to) : nb);
        chain[c] = (Chain) {a_from, b_from, a_to, b_to, out};
        if (out) out += (a_to - a_from) + (op == UNITE ? b_to - b_from : 0);
        a_from = a_to;
        b_from = b_to;
    }
}

/* Returns how many ids were written; the output has room for na + nb, na or na. */
static int64_t combine(int op, Ids a, int64_t na, Ids b, int64_t nb, int32_t *out) {
    const Ids a_end = a + na, b_end = b + nb;
    if (nb / MUCH_LARGER >= na)
        return (op == UNITE ? copy_between(a, a_end, b, b_end, 1, out)
                            : search_each(a, a_end, b, b_end, op == INTERSECT, out)) - out;
    if (na / MUCH_LARGER >= nb && op != INTERSECT)
        return copy_between(b, b_end, a, a_end, op == UNITE, out) - out;
    Chain chain[CHAINS];
    if (na < FEW) {
        chain[0] = (Chain) {a, b, a_end, b_end, out};
        return merge_chain(op, chain) - out;
    }
    split(op, a, na, b, nb, out, chain);
    int32_t *const starts[CHAINS] = {chain[0].out, chain[1].out, chain[2].out, chain[3].out};
    (op == UNITE ? merge_union : op == INTERSECT ? merge_intersection : merge_difference)(chain);
    int32_t *end = out;
    for (int c = 0; c < CHAINS; c++) end = append_ids(end, starts[c], merge_chain(op, chain + c));
    return end - out;
}

/* How many ids of the smaller set a are in b. */
static int64_t count_intersection(Ids a, int64_t na, Ids b, int64_t nb) {
    int64_t count = 0;
    Chain chain[CHAINS];
    if (nb / MUCH_LARGER >= na) {
        Ids at = b;
        for (int64_t i = 0; i < na; i++) {
            at = gallop(at, b + nb, a[i]);
            count += at < b + nb && *at == a[i];
        }
        return count;
    }
    /* Every step takes one element, or two where they are equal. */
    split(INTERSECT, a, na, b, nb, NULL, chain);
    count = na + nb - merge_nothing(chain);
    for (int c = 0; c < CHAINS; c++) {
        count -= merge_nothing_one(chain + c);
        count -= (chain[c].a_end - chain[c].a) + (chain[c].b_end - chain[c].b);
    }
    return count;
}

/* ------------------------------------------------------------------ bitmaps */

enum { MUCH_SPARSER = 8 };

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

/* ------------------------------------------------------------------ all pairs of sets */

/* Sets, ascending, and the room for bitmaps of a tile of the universe: `words` for each set and
 * thread, first those of a, then those of b. Where b is NULL, the pairs are a's own, and only those
 * whose first is not behind the second are counted. */
typedef struct {
    const Ids *a, *b;
    const int64_t *a_lengths, *b_lengths;
    int64_t num_a, num_b;
    int64_t universe, words;
    uint64_t *bitmaps;
    Ids *slices; /* for each set and thread, where the tile's ids begin and end */
    int64_t *counts;
    int level;
} Pairs;

/* The ids of a tile, and their bitmap. */
static void fill_tile(const Pairs *p, const Ids *sets, const int64_t *lengths, int64_t count,
                      int64_t begin, uint64_t *bitmaps, Ids *slices) {
    for (int64_t s = 0; s < count; s++, bitmaps += p->words, slices += 2) {
        const int64_t from = count_below(sets[s], lengths[s], begin);
        slices[0] = sets[s] + from;
        slices[1] = slices[0]
                    + count_below(slices[0], lengths[s] - from, begin + p->words * WORD_BITS);
        memset(bitmaps, 0, (size_t) p->words * sizeof *bitmaps);
        for (Ids id = slices[0]; id < slices[1]; id++)
            bitmaps[(*id - begin) / WORD_BITS] |= bit(*id - begin);
    }
}

/* Few ids are looked up one by one in the other's bitmap. */
INLINE int64_t count_marked(Ids id, Ids end, int64_t begin, const uint64_t *words) {
    int64_t sum = 0;
    for (; id < end; id++)
        sum += words[(*id - begin) / WORD_BITS] >> ((*id - begin) % WORD_BITS) & 1;
    return sum;
}

static void count_tile(const Pairs *p, int64_t begin, int thread) {
    const int64_t sets = p->num_a + (p->b ? p->num_b : 0);
    uint64_t *const a_words = p->bitmaps + thread * sets * p->words;
    Ids *const a_slices = p->slices + thread * sets * 2;
    uint64_t *const b_words = p->b ? a_words + p->num_a * p->words : a_words;
    Ids *const b_slices = p->b ? a_slices + p->num_a * 2 : a_slices;
    fill_tile(p, p->a, p->a_lengths, p->num_a, begin, a_words, a_slices);
    if (p->b) fill_tile(p, p->b, p->b_lengths, p->num_b, begin, b_words, b_slices);
    for (int64_t i = 0; i < p->num_a; i++) {
        const Ids *const a = a_slices + 2 * i;
        const uint64_t *const a_bits = a_words + i * p->words;
        if (a[0] == a[1]) continue;
        for (int64_t j = p->b ? 0 : i; j < p->num_b; j++) {
            const Ids *const b = b_slices + 2 * j;
            const uint64_t *const b_bits = b_words + j * p->words;
            int64_t sum;
            if (a[1] - a[0] < p->words / MUCH_SPARSER)
                sum = count_marked(a[0], a[1], begin, b_bits);
            else if (b[1] - b[0] < p->words / MUCH_SPARSER)
                sum = count_marked(b[0], b[1], begin, a_bits);
            else
                sum = count_common(a_bits, b_bits, p->words, p->level);
            if (!sum) continue;
#ifdef _OPENMP
#pragma omp atomic
#endif
            p->counts[i * p->num_b + j] += sum;
        }
    }
}

static void count_pairs(const Pairs *p, int threads) {
    const int64_t span = p->words * WORD_BITS;
#ifdef _OPENMP
#pragma omp parallel for num_threads(threads) schedule(dynamic)
#endif
    for (int64_t begin = 0; begin < p->universe; begin += span) {
#ifdef _OPENMP
        count_tile(p, begin, omp_get_thread_num());
#else
        count_tile(p, begin, 0);
#endif
    }
    (void) threads;
}

#endif
