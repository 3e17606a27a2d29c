/* Products of a CSR matrix with dense rows, and what belongs to them: aggregation.pyx calls these.
 *
 * The loops are written once, in aggregation_rows.h, and compiled for each instruction set and
 * element type; the functions at the end choose among them at run time. Matrices and shapes are
 * trusted here: gnnbench.kernels.dispatch.aggregation has validated them. */

#ifndef GNNBENCH_AGGREGATION_H
#define GNNBENCH_AGGREGATION_H

#if !defined(__GNUC__)
#error "these loops need GCC or Clang; without them the NumPy twins run"
#endif

#include <math.h>
#include <stdint.h>
#include <string.h>

#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define PREFETCH(address) __builtin_prefetch((address), 0, 3)
/* Before a loop over vectors: unrolled early, so that none of them lives in memory. */
#define UNROLL _Pragma("GCC unroll 20")

/* How far before its use a source's row is prefetched: so many bytes of such rows, a third of a first
 * cache, and no more than so many edges. */
#define AHEAD_BYTES 16384
#define MOST_AHEAD 128
/* How many rows before their use what describes them is prefetched. */
#define ROWS_AHEAD 32
/* And where rows are passed over, before how many the beginning of its list of sources is. */
#define LISTS_AHEAD 8
/* Bytes of a row that are packed at a time: four lines, the most rows that a cache of one or two
 * megabytes can hold without paying for half-used pairs of lines. */
#define PACKED_BYTES 256

/* out = diag(dst_scale) (A o weight) diag(src_scale) h + diag(own) h; rows are divided by their
 * number of edges where `mean`, and zero where the mask has no bit, which is so of whole rows where
 * `sparse`. With `add` all that is added to what stands in out. Null pointers leave a factor out.
 * `heavy` lists rows whose edges are taken a block of sources at a time, block b of the i-th being
 * edges cuts[b * num_heavy + i] to cuts[(b + 1) * num_heavy + i]. */
#define PRODUCT_OF(T)                                                                              \
    {                                                                                              \
        const int64_t *indptr;                                                                     \
        const int32_t *indices;                                                                    \
        int64_t num_dst, num_src, num_edges, width;                                                \
        const T *weight, *src_scale, *dst_scale, *own, *h;                                         \
        const uint8_t *mask;                                                                       \
        T *out;                                                                                    \
        int64_t h_stride, out_stride, mask_stride;                                                 \
        const int32_t *heavy;                                                                      \
        const int64_t *cuts;                                                                       \
        int64_t num_heavy, num_blocks, heavy_edges;                                                \
        int mean, sparse, stream, add, is_double;                                                  \
    }

/* Columns that are summed at a time, `lanes` of them in the last vector. After these, those at `next`
 * are read: of the same row where `again`; no edge from `last` on is. */
#define TILE_OF(T)                                                                                 \
    {                                                                                              \
        const T *h, *next;                                                                         \
        int64_t stride, column, ahead, last;                                                       \
        int vectors, lanes, again, stream;                                                         \
    }

typedef struct PRODUCT_OF(void) product;
typedef struct PRODUCT_OF(float) product_f32_;
typedef struct PRODUCT_OF(double) product_f64_;
typedef struct TILE_OF(float) tile_f32_;
typedef struct TILE_OF(double) tile_f64_;

/* Whether a row is summed by blocks, not with the others. */
#define is_heavy(p, v) ((p)->num_heavy && (p)->indptr[(v) + 1] - (p)->indptr[v] >= (p)->heavy_edges)

/* Runs of rows that threads take as they become free: enough to even out, not too small. */
static int64_t count_runs(int64_t work, int threads)
{
    const int64_t fewest = threads > 1 ? 8 * threads : 1;
    const int64_t small = work / 1024 + 1, runs = work / 65536 + 1;
    return runs > fewest ? runs : small < fewest ? small : fewest;
}

/* The first row of a run; rows are cut where edges and rows together come to equal shares. */
static int64_t find_row(const int64_t *indptr, int64_t num_dst, int64_t work, int64_t run,
                        int64_t runs)
{
    const int64_t share = (int64_t)((double)work * (double)run / (double)runs);
    int64_t low = 0, high = num_dst;
    if (run == runs)
        return num_dst;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (indptr[middle] + middle < share)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Begins a loop over every row v of p, whose runs `threads` threads share. */
#define EACH_ROW(v)                                                                                \
    const int64_t work = p->num_edges + p->num_dst, runs = count_runs(work, threads);              \
    _Pragma("omp parallel for schedule(dynamic, 1) num_threads(threads) if (threads > 1)")         \
    for (int64_t run = 0; run < runs; run++)                                                       \
        for (int64_t v = find_row(p->indptr, p->num_dst, work, run, runs),                         \
                     end = find_row(p->indptr, p->num_dst, work, run + 1, runs); v < end; v++)

/* e^x for x <= 0, to 2 units in the last place, without a branch, so that it vectorises: e^x =
 * 2^n e^r with |r| <= ln 2 / 2, e^r by its Taylor series. Below the normal numbers it is 0. */
ALWAYS_INLINE float exponential_f32_(float x)
{
    const float bounded = x > -87.0f ? x : -87.0f; /* of NaN too, which has no integer */
    const float n = floorf(bounded * 1.44269504f + 0.5f);
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float y = 1.0f / 720.0f;
    y = y * r + 1.0f / 120.0f;
    y = y * r + 1.0f / 24.0f;
    y = y * r + 1.0f / 6.0f;
    y = y * r + 0.5f;
    y = y * r + 1.0f;
    y = y * r + 1.0f;
    const uint32_t power = (uint32_t)((int32_t)n + 127) << 23;
    float scale;
    memcpy(&scale, &power, sizeof scale);
    return x < -87.0f ? 0.0f : y * scale;
}

ALWAYS_INLINE double exponential_f64_(double x)
{
    return exp(x);
}

/* The edge to prefetch next, in a row that ends at `stop`, and the row to look at after it. */
typedef struct {
    int64_t row, edge, stop;
} lookahead;

/* Whether a row of a mask, of so many bytes, has any bit. */
ALWAYS_INLINE int has_bits(const uint8_t *bits, int64_t bytes)
{
    uint64_t word, any = 0;
    int64_t i = 0;
    for (; i + 8 <= bytes; i += 8) {
        memcpy(&word, bits + i, 8);
        any |= word;
    }
    for (; i < bytes; i++)
        any |= bits[i];
    return any != 0;
}

/* ------------------------------------------------------------------ instruction sets */

#define JOIN_(name, element, set) name##_##element##_##set
#define JOIN(name, element, set) JOIN_(name, element, set)

/* Every set has a block of this shape: what its vectors are, then the rows for both types. */

#define SET baseline
#define VECTOR_BYTES 16
#define REGISTERS 12
#define STREAM(p, v) FN(store)(p, v)
#define FENCE() ((void)0)
#define TAIL int
#define MAKE_TAIL(n) (n)
#define LOAD_TAIL(p, t) FN(load_some)(p, t)
#define STORE_TAIL(p, v, t) FN(store_some)(p, v, t)
#define PLAIN_TAILS
#define T float
#define I uint32_t
#define ELEMENT f32
#include "aggregation_rows.h"
#define T double
#define I uint64_t
#define ELEMENT f64
#include "aggregation_rows.h"
#undef PLAIN_TAILS
#undef SET
#undef VECTOR_BYTES
#undef REGISTERS
#undef STREAM
#undef FENCE
#undef TAIL
#undef MAKE_TAIL
#undef LOAD_TAIL
#undef STORE_TAIL

/* Clang does not know the pragmas. */
#if defined(__x86_64__) && !defined(__clang__)
#define VECTOR_SETS
#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx2,fma,bmi,bmi2")
#define SET avx2
#define VECTOR_BYTES 32
#define REGISTERS 12
#define STREAM(p, v) _mm256_stream_si256((__m256i *)(p), (__m256i)(v))
#define FENCE() _mm_sfence()
#define TAIL __m256i
#define T float
#define I uint32_t
#define ELEMENT f32
#define MAKE_TAIL(n)                                                                               \
    _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))
#define LOAD_TAIL(p, t) ((V)_mm256_maskload_ps(p, t))
#define STORE_TAIL(p, v, t) _mm256_maskstore_ps(p, t, (__m256)(v))
#include "aggregation_rows.h"
#undef MAKE_TAIL
#undef LOAD_TAIL
#undef STORE_TAIL
#define T double
#define I uint64_t
#define ELEMENT f64
#define MAKE_TAIL(n) _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_setr_epi64x(0, 1, 2, 3))
#define LOAD_TAIL(p, t) ((V)_mm256_maskload_pd(p, t))
#define STORE_TAIL(p, v, t) _mm256_maskstore_pd(p, t, (__m256d)(v))
#include "aggregation_rows.h"
#undef MAKE_TAIL
#undef LOAD_TAIL
#undef STORE_TAIL
#undef SET
#undef VECTOR_BYTES
#undef REGISTERS
#undef STREAM
#undef FENCE
#undef TAIL
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,bmi,bmi2")
#define SET avx512
#define VECTOR_BYTES 64
#define REGISTERS 20
#define STREAM(p, v) _mm512_stream_si512((__m512i *)(p), (__m512i)(v))
#define FENCE() _mm_sfence()
#define T float
#define I uint32_t
#define ELEMENT f32
#define TAIL __mmask16
#define MAKE_TAIL(n) ((__mmask16)((1u << (n)) - 1))
#define LOAD_TAIL(p, t) ((V)_mm512_maskz_loadu_ps(t, p))
#define STORE_TAIL(p, v, t) _mm512_mask_storeu_ps(p, t, (__m512)(v))
#define KEEP(v, bits) _mm512_maskz_mov_ps((__mmask16)(bits), (__m512)(v))
#include "aggregation_rows.h"
#undef TAIL
#undef LOAD_TAIL
#undef STORE_TAIL
#undef KEEP
#define T double
#define I uint64_t
#define ELEMENT f64
#define TAIL __mmask8
#define KEEP(v, bits) _mm512_maskz_mov_pd((__mmask8)(bits), (__m512d)(v))
#define LOAD_TAIL(p, t) ((V)_mm512_maskz_loadu_pd(t, p))
#define STORE_TAIL(p, v, t) _mm512_mask_storeu_pd(p, t, (__m512d)(v))
#include "aggregation_rows.h"
#pragma GCC pop_options
#endif

/* ------------------------------------------------------------------ the choice */

enum { LEVEL_BASELINE = 0, LEVEL_AVX2 = 1, LEVEL_AVX512 = 2 };

/* The newest instruction set that this processor, and the compiler that built this, have. */
static int newest_level(void)
{
#ifdef VECTOR_SETS
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
        !__builtin_cpu_supports("bmi") || !__builtin_cpu_supports("bmi2"))
        return LEVEL_BASELINE;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        return LEVEL_AVX512;
    return LEVEL_AVX2;
#else
    return LEVEL_BASELINE;
#endif
}

#ifdef VECTOR_SETS
#define CHOOSE_SET(name, element, arguments)                                                       \
    do {                                                                                           \
        if (level == LEVEL_AVX512)                                                                 \
            JOIN(name, element, avx512) arguments;                                                 \
        else if (level == LEVEL_AVX2)                                                              \
            JOIN(name, element, avx2) arguments;                                                   \
        else                                                                                       \
            JOIN(name, element, baseline) arguments;                                               \
    } while (0)
#else
#define CHOOSE_SET(name, element, arguments) ((void)level, JOIN(name, element, baseline) arguments)
#endif

/* Reads a product as one of floats or doubles, its members being the same, and calls `name`. */
#define CHOOSE(name, ...)                                                                          \
    do {                                                                                           \
        if (any->is_double) {                                                                      \
            product_f64_ p;                                                                        \
            memcpy(&p, any, sizeof p);                                                             \
            CHOOSE_SET(name, f64, (&p, __VA_ARGS__));                                              \
        } else {                                                                                   \
            product_f32_ p;                                                                        \
            memcpy(&p, any, sizeof p);                                                             \
            CHOOSE_SET(name, f32, (&p, __VA_ARGS__));                                              \
        }                                                                                          \
    } while (0)

static void multiply(const product *any, void *packed, int threads, int level)
{
    CHOOSE(multiply, packed, threads);
}

static void dot_edges(const product *any, const void *g, int64_t g_stride, void *products,
                      int threads, int level)
{
    CHOOSE(dot_edges, g, g_stride, products, threads);
}

static void soften(const product *any, const void *scores, void *out, int threads, int level)
{
    CHOOSE(soften, scores, out, threads);
}

static void soften_back(const product *any, const void *q, const void *g, void *out, int threads,
                        int level)
{
    CHOOSE(soften_back, q, g, out, threads);
}

#endif
