/* The inner loops of streams.pyx: R-MAT edges drawn by their numbers, and the bit sets of who is whose
 * neighbour. See gnnbench/kernels/reference/streams.py for what they compute. */
#ifndef GNNBENCH_STREAMS_H
#define GNNBENCH_STREAMS_H

#include "bits.h"
#ifdef _OPENMP
#include <omp.h>
#define THREAD omp_get_thread_num()
#else
#define THREAD 0
#endif

#define GOLDEN 0x9E3779B97F4A7C15ULL /* 2^64 over the golden ratio */

INLINE uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
}

INLINE int64_t lesser(int64_t a, int64_t b) { return a < b ? a : b; }

/* ------------------------------------------------------------------ edges */

/* A random word has four lanes of 15 bits and one to spare, so that adding 2^15 - t to a lane sets
 * its highest bit where the lane is t or more. */
#define LANES 0x0001000100010001ULL
#define LANE_VALUES (0x7FFF * LANES)
enum { ROUNDS = 3, BLOCK = 128, RUN = 1 << 15 };

typedef struct {
    int64_t vertices;
    int levels, words; /* bits of an id, and random words for one */
    uint64_t seed_key; /* of the attempts at an edge */
    uint64_t to_b, to_c, to_d; /* 2^15 less where quadrants b, c and d begin, in every lane */
    uint32_t factors[ROUNDS], shift, mask, offset; /* of the shuffle */
} Rmat;

/* A permutation of [0, 2^levels). */
INLINE uint32_t shuffle_once(const Rmat *r, uint32_t id) {
    id += r->offset;
    for (int k = 0; k < ROUNDS; k++) {
        id = id * r->factors[k] & r->mask;
        id ^= id >> r->shift;
    }
    return id;
}

/* A permutation of the vertices: what lands outside them goes on. */
INLINE uint32_t shuffle(const Rmat *r, uint32_t id) {
    do id = shuffle_once(r, id);
    while ((int64_t) id >= r->vertices);
    return id;
}

/* One word's four bits of the row and of the column, the lowest of each lane. */
#define DESCEND(r, word, row, column)                                                             \
    {                                                                                             \
        const uint64_t lanes = (word) & LANE_VALUES;                                              \
        const uint64_t b = lanes + (r)->to_b, c = lanes + (r)->to_c, d = lanes + (r)->to_d;       \
        row = row << 1 | (c >> 15 & LANES);                                                       \
        column = column << 1 | ((b ^ c ^ d) >> 15 & LANES);                                       \
    }

/* The id whose bits stand in four lanes. */
INLINE uint32_t join_lanes(const Rmat *r, uint64_t lanes) {
    const int n = r->words;
    uint64_t id = lanes & 0xFFFF;
    id |= (lanes >> 16 & 0xFFFF) << n;
    id |= (lanes >> 32 & 0xFFFF) << 2 * n;
    id |= lanes >> 48 << 3 * n;
    return (uint32_t) id & r->mask;
}

INLINE int is_edge(const Rmat *r, uint32_t row, uint32_t column) {
    return (int64_t) row < r->vertices && (int64_t) column < r->vertices && row != column;
}

/* The attempts at an edge from the second on, until one is an edge. */
static void draw_again(const Rmat *r, uint64_t number, uint32_t *ends) {
    for (uint64_t attempt = 1;; attempt++) {
        const uint64_t first = number * (uint64_t) r->words;
        const uint64_t key = mix(r->seed_key + attempt * GOLDEN);
        uint64_t row = 0, column = 0;
        for (int w = 0; w < r->words; w++)
            DESCEND(r, mix(key + (first + (uint64_t) w + 1) * GOLDEN), row, column)
        ends[0] = join_lanes(r, row);
        ends[1] = join_lanes(r, column);
        if (is_edge(r, ends[0], ends[1])) return;
    }
}

/* Edges `first` to `first + BLOCK`, all rows and then all columns. */
#define DEFINE_DRAW(name, attribute)                                                              \
    attribute static void name(const Rmat *r, int64_t first, uint32_t *ends) {                    \
        uint64_t rows[BLOCK] = {0}, columns[BLOCK] = {0};                                         \
        const uint64_t key = mix(r->seed_key), step = (uint64_t) r->words * GOLDEN;               \
        int sound = 1;                                                                            \
        for (int w = 0; w < r->words; w++) {                                                      \
            uint64_t counter = key + (uint64_t) first * step + ((uint64_t) w + 1) * GOLDEN;       \
            for (int i = 0; i < BLOCK; i++, counter += step)                                      \
                DESCEND(r, mix(counter), rows[i], columns[i])                                     \
        }                                                                                         \
        for (int i = 0; i < BLOCK; i++) {                                                         \
            ends[i] = join_lanes(r, rows[i]);                                                     \
            ends[BLOCK + i] = join_lanes(r, columns[i]);                                          \
            sound &= is_edge(r, ends[i], ends[BLOCK + i]);                                        \
        }                                                                                         \
        if (!sound)                                                                               \
            for (int i = 0; i < BLOCK; i++)                                                       \
                if (!is_edge(r, ends[i], ends[BLOCK + i])) {                                      \
                    uint32_t again[2];                                                            \
                    draw_again(r, (uint64_t) (first + i), again);                                 \
                    ends[i] = again[0];                                                           \
                    ends[BLOCK + i] = again[1];                                                   \
                }                                                                                 \
        sound = 1;                                                                                \
        for (int i = 0; i < 2 * BLOCK; i++) {                                                     \
            ends[i] = shuffle_once(r, ends[i]);                                                   \
            sound &= (int64_t) ends[i] < r->vertices;                                             \
        }                                                                                         \
        if (!sound)                                                                               \
            for (int i = 0; i < 2 * BLOCK; i++)                                                   \
                if ((int64_t) ends[i] >= r->vertices) ends[i] = shuffle(r, ends[i]);              \
    }
DEFINE_DRAW(draw_block_baseline, )

typedef void (*DrawBlock)(const Rmat *, int64_t, uint32_t *);

#ifdef X86
DEFINE_DRAW(draw_block_avx2, FOR_AVX2)
DEFINE_DRAW(draw_block_avx512, __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))))
#endif

static DrawBlock choose_draw(void) {
#ifdef X86
    const int level = simd_level();
    if (level == AVX512 && __builtin_cpu_supports("avx512dq")) return draw_block_avx512;
    if (level >= AVX2) return draw_block_avx2;
#endif
    return draw_block_baseline;
}

/* ------------------------------------------------------------------ degrees */

/* Adds one to the degrees of both ends of edges `first` to `first + count`; each thread has degrees of
 * its own, `vertices` of them. What a block adds to is fetched while the next one is drawn. */
static void add_degrees(const Rmat *r, int64_t first, int64_t count, int32_t *degrees,
                        int threads) {
    const DrawBlock draw = choose_draw();
    const int64_t runs = (count + RUN - 1) / RUN;
#ifdef _OPENMP
#pragma omp parallel for num_threads(threads) schedule(dynamic)
#endif
    for (int64_t run = 0; run < runs; run++) {
        const int64_t begin = first + run * RUN, end = lesser(begin + RUN, first + count);
        int32_t *const own = degrees + THREAD * r->vertices;
        uint32_t ends[2][2 * BLOCK];
        int64_t drawn = 0;
        for (int64_t at = begin; at < end || drawn; at += BLOCK) {
            const int64_t now = (at - begin) / BLOCK % 2, length = lesser(BLOCK, end - at);
            if (at < end) {
                draw(r, at, ends[now]);
                for (int64_t i = 0; i < length; i++) {
                    PREFETCH_TO_WRITE(own + ends[now][i]);
                    PREFETCH_TO_WRITE(own + ends[now][BLOCK + i]);
                }
            }
            for (int64_t i = 0; i < drawn; i++) {
                own[ends[1 - now][i]]++;
                own[ends[1 - now][BLOCK + i]]++;
            }
            drawn = at < end ? length : 0;
        }
    }
    (void) threads;
}

/* ------------------------------------------------------------------ neighbour sets */

enum { AHEAD = 32 };

/* lines[u] has a bit for each piece: whether u is an in-neighbour of a vertex in it. */
typedef struct {
    uint64_t *lines;
    const uint16_t *labels; /* the piece of each vertex */
    int64_t vertices, words; /* of a line */
} Marks;

/* Most bits are set already, by far so those of the busiest lines. */
INLINE void set_bit(uint64_t *word, uint64_t bit, int shared) {
    if (shared) {
        uint64_t seen;
#ifdef _OPENMP
#pragma omp atomic read
#endif
        seen = *word;
        if (seen & bit) return;
#ifdef _OPENMP
#pragma omp atomic
#endif
        *word |= bit;
    } else {
        *word |= bit;
    }
}

/* Both directions of edges `first` to `first + count`. A block's labels are fetched while the next
 * one is drawn, and its words while the one after that is. */
static void mark_edges(const Rmat *r, int64_t first, int64_t count, const Marks *marks,
                       int threads) {
    const DrawBlock draw = choose_draw();
    const int64_t runs = (count + RUN - 1) / RUN;
#ifdef _OPENMP
#pragma omp parallel for num_threads(threads) schedule(dynamic)
#endif
    for (int64_t run = 0; run < runs; run++) {
        const int64_t begin = first + run * RUN, end = lesser(begin + RUN, first + count);
        uint32_t ends[2][2 * BLOCK];
        uint64_t *words[2][2 * BLOCK], bits[2][2 * BLOCK];
        int64_t drawn = 0, found = 0;
        for (int64_t at = begin; at < end || drawn || found; at += BLOCK) {
            const int64_t now = (at - begin) / BLOCK % 2, length = lesser(BLOCK, end - at);
            uint32_t *const rows = ends[now], *const columns = rows + BLOCK;
            const uint32_t *const old_rows = ends[1 - now], *const old_columns = old_rows + BLOCK;
            if (at < end) {
                draw(r, at, rows);
                for (int64_t i = 0; i < length; i++) {
                    PREFETCH(marks->labels + rows[i]);
                    PREFETCH(marks->labels + columns[i]);
                }
            }
            for (int64_t i = 0; i < drawn; i++) {
                const int64_t u = old_rows[i], v = old_columns[i];
                const uint16_t of_u = marks->labels[u], of_v = marks->labels[v];
                words[now][2 * i] = marks->lines + u * marks->words + of_v / WORD_BITS;
                words[now][2 * i + 1] = marks->lines + v * marks->words + of_u / WORD_BITS;
                PREFETCH_TO_WRITE(words[now][2 * i]);
                PREFETCH_TO_WRITE(words[now][2 * i + 1]);
                bits[now][2 * i] = 1ULL << (of_v % WORD_BITS);
                bits[now][2 * i + 1] = 1ULL << (of_u % WORD_BITS);
            }
            for (int64_t i = 0; i < 2 * found; i++)
                set_bit(words[1 - now][i], bits[1 - now][i], threads > 1);
            found = drawn;
            drawn = at < end ? length : 0;
        }
    }
    (void) threads;
}

/* Rows `first` to `last` of a graph's in-neighbours; returns 0 at an id outside it. */
static int mark_rows(const int64_t *indptr, const int32_t *indices, int64_t first, int64_t last,
                     const Marks *marks, int threads) {
    int sound = 1;
#ifdef _OPENMP
#pragma omp parallel for num_threads(threads) schedule(dynamic, 256) reduction(&& : sound)
#endif
    for (int64_t v = first; v < last; v++) {
        const int64_t label = marks->labels[v], end = indptr[v + 1];
        uint64_t *const column = marks->lines + label / WORD_BITS;
        for (int64_t e = indptr[v]; e < end; e++) {
            const uint32_t u = (uint32_t) indices[e];
            if ((int64_t) u >= marks->vertices) {
                sound = 0;
                break;
            }
            if (e + AHEAD < end)
                PREFETCH_TO_WRITE(column + (int64_t) (uint32_t) indices[e + AHEAD] * marks->words);
            set_bit(column + (int64_t) u * marks->words, 1ULL << (label % WORD_BITS), threads > 1);
        }
    }
    (void) threads;
    return sound;
}

/* ------------------------------------------------------------------ counting */

enum { MOST_WORDS = 1024, MOST_DEPTH = 16 };

/* For 2^depth pieces, for half as many, each two in one, and so on down to two: in how many pieces a
 * vertex is an in-neighbour, summed over the vertices (others); and the same where each counts in its
 * own piece as well (all). */
static void count_replicas(const Marks *marks, int depth, int64_t *others, int64_t *all,
                           int threads) {
    /* Bits that are 2, 4, .. 64 apart. */
    static const uint64_t apart[] = {0x5555555555555555ULL, 0x1111111111111111ULL,
                                     0x0101010101010101ULL, 0x0001000100010001ULL,
                                     0x0000000100000001ULL, 1ULL};
#ifdef _OPENMP
#pragma omp parallel num_threads(threads)
#endif
    {
        int64_t counted[2][MOST_DEPTH] = {{0}};
        uint64_t line[MOST_WORDS];
#ifdef _OPENMP
#pragma omp for schedule(dynamic, 4096)
#endif
        for (int64_t v = 0; v < marks->vertices; v++) {
            const int64_t own = marks->labels[v];
            int64_t words = marks->words;
            memcpy(line, marks->lines + v * words, 8 * (size_t) words);
            for (int level = 0; level < depth; level++) {
                /* A piece's bit is the first of 2^level, or of a word that stands for several. */
                const int64_t at = own >> (level < 6 ? 6 : level);
                int64_t count = 0;
                for (int64_t k = 0; k < words; k++) count += count_bits(line[k]);
                counted[0][level] += count;
                counted[1][level] +=
                    count + !(line[at] >> (level < 6 ? own % WORD_BITS >> level << level : 0) & 1);
                if (level < 6) {
                    for (int64_t k = 0; k < words; k++)
                        line[k] = (line[k] | line[k] >> (1 << level)) & apart[level];
                } else {
                    words /= 2;
                    for (int64_t k = 0; k < words; k++) line[k] = line[2 * k] | line[2 * k + 1];
                }
            }
        }
#ifdef _OPENMP
#pragma omp critical
#endif
        for (int level = 0; level < depth; level++) {
            others[level] += counted[0][level];
            all[level] += counted[1][level];
        }
    }
    (void) threads;
}

/* How pieces make chunks, and where counts go; i is a partition, j a batch, k the partition that a
 * row belongs to. Each thread has `stride` counts of its own. */
typedef struct {
    const uint16_t *chunk; /* of a piece; they do not descend */
    const uint16_t *partition, *batch; /* of a chunk; a partition's are in the order they run */
    int64_t partitions, batches, stride;
    int64_t *neighbours, *kept; /* (j, i, k): rows of N_ij, and of those what N_i,j-1 has too */
    int64_t *transition, *loaded; /* (j, k): rows of T_kj, and of those what T_k,j-1 has not */
} Chunks;

static void count_chunks(const Marks *marks, const Chunks *chunks, int threads) {
    const int64_t m = chunks->partitions;
#ifdef _OPENMP
#pragma omp parallel num_threads(threads)
#endif
    {
        const int64_t start = THREAD * chunks->stride;
        int64_t *const neighbours = chunks->neighbours + start, *const kept = chunks->kept + start;
        int64_t *const transition = chunks->transition + start;
        int64_t *const loaded = chunks->loaded + start;
        uint64_t needed[MOST_WORDS] = {0}; /* the batches that need a row */
#ifdef _OPENMP
#pragma omp for schedule(dynamic, 4096)
#endif
        for (int64_t v = 0; v < marks->vertices; v++) {
            const int64_t own = marks->labels[v];
            const int64_t k = chunks->partition[chunks->chunk[own]];
            int64_t last = -1;
            for (int64_t word = 0; word < marks->words; word++) {
                uint64_t bits = marks->lines[v * marks->words + word];
                if (word == own / WORD_BITS) bits |= 1ULL << (own % WORD_BITS);
                for (; bits; bits &= bits - 1) {
                    const int64_t chunk = chunks->chunk[word * WORD_BITS + lowest_bit(bits)];
                    if (chunk == last) continue;
                    const int64_t j = chunks->batch[chunk];
                    const int64_t to = (j * m + chunks->partition[chunk]) * m + k;
                    neighbours[to]++;
                    kept[to] += j > 0 && chunk == last + 1 && last >= 0;
                    needed[j / WORD_BITS] |= 1ULL << (j % WORD_BITS);
                    last = chunk;
                }
            }
            uint64_t before = 0;
            for (int64_t word = 0; word * WORD_BITS < chunks->batches; word++) {
                const uint64_t bits = needed[word], fresh = bits & ~(bits << 1 | before);
                for (uint64_t left = bits; left; left &= left - 1) {
                    const int at = lowest_bit(left);
                    const int64_t to = (word * WORD_BITS + at) * m + k;
                    transition[to]++;
                    loaded[to] += fresh >> at & 1;
                }
                before = bits >> (WORD_BITS - 1);
                needed[word] = 0;
            }
        }
    }
    (void) threads;
}
#endif
