/* Products of dense float32 matrices on AVX-512: products.pyx calls these. See
 * gnnbench/kernels/reference/products.py for what they compute. Shapes are trusted here:
 * gnnbench.kernels.dispatch.products has validated them. */

#ifndef GNNBENCH_PRODUCTS_H
#define GNNBENCH_PRODUCTS_H

#if !defined(__GNUC__)
#error "these loops need GCC or Clang; without them the NumPy twins run"
#endif

#include <stdint.h>
#include <string.h>

/* A tile of a result is summed in registers: so many rows of two vectors, 28 of the 32 registers.
 * A panel has a matrix's columns of two vectors, row after row, filled up with zeros; so many of its
 * rows stay in a first cache, and so many rows of the left matrix in a second. */
enum { LANES = 16, PANEL = 2 * LANES, TILE_ROWS = 14, PANEL_DEPTH = 256, BLOCK_ROWS = 9 * TILE_ROWS };
/* Elements between the rows of a block that is copied: lines of a column then go to different sets. */
enum { GAP = LANES };

/* out = a w + bias, and max(0, .) of it; no bias where it is null. */
typedef struct {
    const float *a, *w, *bias;
    float *out;
    int64_t rows, depth, width;       /* of a and out, of w's rows, of w's columns */
    int64_t a_stride, w_row, w_column; /* elements from row to row, and from column to column */
    int relu;
    float *space; /* product_space elements */
} Product;

/* The gradients of a product, given its output's: grad_a = g w^T, grad_w = a^T g, grad_bias the sum
 * of g's rows; where `output` is given, g counts only where that is above zero. Null pointers leave
 * a gradient out. */
typedef struct {
    const float *g, *output, *a, *w;
    float *grad_a, *grad_w, *grad_bias;
    int64_t rows, depth, width;
    int64_t g_stride, output_stride, a_stride, w_row, w_column;
    float *space; /* gradient_space elements */
} Gradient;

static int64_t pad(int64_t width) { return (width + PANEL - 1) / PANEL * PANEL; }

static int64_t product_space(int64_t depth, int64_t width) { return depth * pad(width); }

/* Of a thread: a block of g, and its sums of grad_w and of grad_bias. */
static int64_t gradient_share(int64_t depth, int64_t width) {
    return BLOCK_ROWS * (pad(width) + GAP) + (depth + 1) * pad(width);
}

static int64_t gradient_space(int64_t depth, int64_t width, int threads) {
    return width * pad(depth) + threads * gradient_share(depth, width);
}

#if defined(__x86_64__)
#include <immintrin.h>
#define FOR_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,fma")))
#define TILE FOR_AVX512 static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 14")

static int products_run(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")
           && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

static int made_by_intel(void) {
    __builtin_cpu_init();
    return __builtin_cpu_is("intel");
}

/* What becomes of a tile's sums. */
typedef struct {
    float *c;
    int64_t stride;
    int add;                 /* to what is there */
    int relu;
    const float *bias;
    __mmask16 mask[2];
} Target;

TILE void put_row(const Target *t, float *c, __m512 sum, int v) {
    if (t->add) sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(t->mask[v], c));
    if (t->bias) sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(t->mask[v], t->bias + v * LANES));
    if (t->relu) sum = _mm512_max_ps(_mm512_setzero_ps(), sum); /* of NaN it is NaN */
    _mm512_mask_storeu_ps(c, t->mask[v], sum);
}

/* sum[r] += a[r * a_row + k * a_step] b[k * b_step], over k; `rows` and `vectors` are constants. */
TILE void sum_tile(const int rows, const int vectors, const float *a, int64_t a_row, int64_t a_step,
                   const float *b, int64_t b_step, int64_t depth, const Target *t) {
    __m512 sum[TILE_ROWS][2];
    UNROLL for (int r = 0; r < rows; r++)
        sum[r][0] = sum[r][1] = _mm512_setzero_ps();
    /* Four rows from each pointer, so that addresses need few registers. */
    const float *a4 = a + 4 * a_row, *a8 = a + 8 * a_row, *a12 = a + 12 * a_row;
    const int64_t three = 3 * a_row;
    for (int64_t k = 0; k < depth; k++) {
        const __m512 b0 = _mm512_loadu_ps(b), b1 = vectors > 1 ? _mm512_loadu_ps(b + LANES) : b0;
        UNROLL for (int r = 0; r < rows; r++) {
            const float *from = r < 4 ? a : r < 8 ? a4 : r < 12 ? a8 : a12;
            const __m512 x = _mm512_set1_ps(from[r % 4 == 3 ? three : r % 4 * a_row]);
            sum[r][0] = _mm512_fmadd_ps(x, b0, sum[r][0]);
            if (vectors > 1) sum[r][1] = _mm512_fmadd_ps(x, b1, sum[r][1]);
        }
        a += a_step, a4 += a_step, a8 += a_step, a12 += a_step, b += b_step;
    }
    UNROLL for (int r = 0; r < rows; r++) {
        put_row(t, t->c + r * t->stride, sum[r][0], 0);
        if (vectors > 1) put_row(t, t->c + r * t->stride + LANES, sum[r][1], 1);
    }
}

/* For every number of rows, and one vector or two. */
#define CASE(r)                                                                                    \
    case r:                                                                                        \
        if (t->mask[1]) sum_tile(r, 2, a, a_row, a_step, b, b_step, depth, t);                     \
        else sum_tile(r, 1, a, a_row, a_step, b, b_step, depth, t);                                \
        break;
#define CASES                                                                                      \
    switch (rows) {                                                                                \
        CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8) CASE(9) CASE(10) CASE(11)  \
        CASE(12) CASE(13) CASE(14)                                                                 \
    }

/* Of a's rows, times a panel. */
FOR_AVX512 static void sum_rows(int rows, const float *a, int64_t a_row, const float *b,
                                int64_t depth, const Target *t) {
    const int64_t a_step = 1, b_step = PANEL;
    CASES
}

/* Of a's columns, which are the rows of a^T. */
FOR_AVX512 static void sum_columns(int rows, const float *a, int64_t a_step, const float *b,
                                   int64_t b_step, int64_t depth, const Target *t) {
    const int64_t a_row = 1;
    CASES
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

TILE void set_masks(Target *t, int64_t columns) {
    t->mask[0] = columns >= LANES ? 0xFFFF : (1u << columns) - 1;
    columns -= LANES;
    t->mask[1] = columns >= LANES ? 0xFFFF : columns > 0 ? (1u << columns) - 1 : 0;
}

/* Element (k, j) of w is w[k * row + j * column]; its panels stand one after the other. The threads
 * of a team share the work. */
static void pack_panels(const float *w, int64_t row, int64_t column, int64_t depth, int64_t width,
                        float *packed) {
    const int64_t panels = pad(width) / PANEL;
#pragma omp for schedule(static)
    for (int64_t p = 0; p < panels; p++) {
        const int64_t columns = least(PANEL, width - p * PANEL);
        float *to = packed + p * depth * PANEL;
        const float *from = w + p * PANEL * column;
        if (columns < PANEL) memset(to, 0, sizeof(float) * depth * PANEL);
        if (column == 1)
            for (int64_t k = 0; k < depth; k++)
                memcpy(to + k * PANEL, from + k * row, sizeof(float) * columns);
        else
            for (int64_t k = 0; k < depth; k += LANES)
                for (int64_t j = 0; j < columns; j++)
                    for (int64_t i = k; i < least(k + LANES, depth); i++)
                        to[i * PANEL + j] = from[i * row + j * column];
    }
}

/* So many rows of a, times packed panels. */
FOR_AVX512 static void multiply_block(const float *a, int64_t a_stride, int64_t rows, int64_t depth,
                                      const float *packed, int64_t width, const float *bias,
                                      int relu, float *out, int64_t out_stride) {
    for (int64_t k = 0; k == 0 || k < depth; k += PANEL_DEPTH) {
        const int64_t deep = least(PANEL_DEPTH, depth - k);
        const int last = k + PANEL_DEPTH >= depth;
        for (int64_t j = 0; j < width; j += PANEL) {
            Target t = {0, out_stride, k > 0, last && relu, last && bias ? bias + j : 0, {0, 0}};
            set_masks(&t, width - j);
            for (int64_t i = 0; i < rows; i += TILE_ROWS) {
                t.c = out + i * out_stride + j;
                sum_rows((int)least(TILE_ROWS, rows - i), a + i * a_stride + k, a_stride,
                         packed + j * depth + k * PANEL, deep, &t);
            }
        }
    }
}

/* The first row of a thread's: all have as many tiles, or one more. */
static int64_t first_row(int64_t rows, int thread, int threads) {
    const int64_t tiles = (rows + TILE_ROWS - 1) / TILE_ROWS;
    return least(rows, tiles * thread / threads * TILE_ROWS);
}

static void multiply(const Product *p, int threads) {
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        pack_panels(p->w, p->w_row, p->w_column, p->depth, p->width, p->space);
#pragma omp for schedule(static, 1)
        for (int thread = 0; thread < threads; thread++) {
            const int64_t end = first_row(p->rows, thread + 1, threads);
            for (int64_t i = first_row(p->rows, thread, threads); i < end; i += BLOCK_ROWS)
                multiply_block(p->a + i * p->a_stride, p->a_stride, least(BLOCK_ROWS, end - i),
                               p->depth, p->space, p->width, p->bias, p->relu,
                               p->out + i * p->width, p->width);
        }
    }
}

/* A block of g with zeros where the output has them and beyond its width, and the sums of its
 * columns. */
FOR_AVX512 static void copy_block(const Gradient *d, int64_t first, int64_t rows, float *block,
                                  float *sums) {
    const int64_t stride = pad(d->width) + GAP;
    for (int64_t j = 0; j < pad(d->width); j += LANES) {
        const int64_t columns = d->width - j;
        const __mmask16 mask = columns >= LANES ? 0xFFFF : columns > 0 ? (1u << columns) - 1 : 0;
        __m512 sum = _mm512_setzero_ps();
        for (int64_t i = 0; i < rows; i++) {
            __mmask16 wanted = mask;
            if (d->output)
                wanted = _mm512_mask_cmp_ps_mask(
                    mask, _mm512_maskz_loadu_ps(mask, d->output + (first + i) * d->output_stride + j),
                    _mm512_setzero_ps(), _CMP_NLE_UQ);
            const __m512 x = _mm512_maskz_loadu_ps(wanted, d->g + (first + i) * d->g_stride + j);
            sum = _mm512_add_ps(sum, x);
            _mm512_storeu_ps(block + i * stride + j, x);
        }
        _mm512_storeu_ps(sums + j, _mm512_add_ps(sum, _mm512_loadu_ps(sums + j)));
    }
}

FOR_AVX512 static void differentiate_rows(const Gradient *d, int64_t first, int64_t end,
                                          float *share) {
    const int64_t padded = pad(d->width), stride = padded + GAP;
    float *sums = share, *bias_sums = sums + d->depth * padded, *block = bias_sums + padded;
    memset(bias_sums, 0, sizeof(float) * padded);
    if (d->grad_w) memset(sums, 0, sizeof(float) * d->depth * padded);
    for (int64_t i = first; i < end; i += BLOCK_ROWS) {
        const int64_t rows = least(BLOCK_ROWS, end - i);
        copy_block(d, i, rows, block, bias_sums);
        if (d->grad_a)
            multiply_block(block, stride, rows, d->width, d->space, d->depth, 0, 0,
                           d->grad_a + i * d->depth, d->depth);
        for (int64_t j = 0; d->grad_w && j < padded; j += PANEL) {
            Target t = {0, padded, 1, 0, 0, {0xFFFF, d->width - j > LANES ? 0xFFFF : 0}};
            for (int64_t k = 0; k < d->depth; k += TILE_ROWS) {
                t.c = sums + k * padded + j;
                sum_columns((int)least(TILE_ROWS, d->depth - k), d->a + i * d->a_stride + k,
                            d->a_stride, block + j, stride, rows, &t);
            }
        }
    }
}

/* Every thread sums its own rows; the sums of all are added in their order. */
static void differentiate(const Gradient *d, int threads) {
    const int64_t share = gradient_share(d->depth, d->width), padded = pad(d->width);
    float *shares = d->space + d->width * pad(d->depth);
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        if (d->grad_a) pack_panels(d->w, d->w_column, d->w_row, d->width, d->depth, d->space);
#pragma omp for schedule(static, 1)
        for (int thread = 0; thread < threads; thread++)
            differentiate_rows(d, first_row(d->rows, thread, threads),
                               first_row(d->rows, thread + 1, threads), shares + thread * share);
#pragma omp for schedule(static)
        for (int64_t k = 0; k <= d->depth; k++) {
            float *to = k < d->depth ? d->grad_w + k * d->width : d->grad_bias;
            if (k < d->depth && !d->grad_w) continue;
            for (int64_t j = 0; j < d->width; j++) {
                float sum = 0;
                for (int thread = 0; thread < threads; thread++)
                    sum += shares[thread * share + k * padded + j];
                to[j] = sum;
            }
        }
    }
}
#else
/* Whoever finds that they do not run calls none of them. */
static int products_run(void) { return 0; }
static int made_by_intel(void) { return 0; }
#define multiply(p, threads) ((void) (p), (void) (threads))
#define differentiate(d, threads) ((void) (d), (void) (threads))
#endif

#endif
