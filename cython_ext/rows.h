/* The inner loops of rows.pyx: rows copied, widened, moved and added by id. See
 * gnnbench/kernels/reference/rows.py for what they compute. */
#ifndef GNNBENCH_ROWS_H
#define GNNBENCH_ROWS_H

#include "rows_simd.h"

/* What an element is. */
enum { FLOAT32, FLOAT64, FLOAT16, BFLOAT16 };

INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

INLINE int64_t read_id(const void *ids, int wide, int64_t i) {
    return wide ? ((const int64_t *) ids)[i] : ((const int32_t *) ids)[i];
}

/* ------------------------------------------------------------------ 16-bit floats */

INLINE float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

INLINE uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

INLINE float widen_bfloat(uint16_t h) { return float_of((uint32_t) h << 16); }

/* To nearest, ties to even; a NaN stays one. */
INLINE uint16_t narrow_bfloat(float x) {
    const uint32_t bits = bits_of(x);
    const uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
    return (uint16_t) ((bits & 0x7FFFFFFF) > 0x7F800000 ? bits >> 16 | 0x40 : rounded);
}

/* The exponent is moved by a multiplication; a half without one is the fraction of a float whose
 * last bit is worth 2^-24. */
INLINE float widen_half(uint16_t h) {
    const uint32_t magnitude = (uint32_t) h << 17, sign = (uint32_t) (h & 0x8000) << 16;
    const float normal = float_of((magnitude >> 4) + 0x70000000) * 0x1p-112f;
    const float subnormal = float_of(magnitude >> 17 | 0x3F000000) - 0.5f;
    return float_of(sign | bits_of(magnitude < 0x08000000 ? subnormal : normal));
}

/* To nearest, ties to even: adding a power of two as large as 2^13 last places of the half cuts the
 * fraction where the half's ends. */
INLINE uint16_t narrow_half(float x) {
    const uint32_t bits = bits_of(x), magnitude = bits + bits;
    uint32_t bias = magnitude & 0xFF000000, base;
    if (bias < 0x71000000) bias = 0x71000000;
    base = bits_of(float_of((bias >> 1) + 0x07800000)
                   + float_of(bits & 0x7FFFFFFF) * 0x1p112f * 0x1p-110f);
    base = (base >> 13 & 0x7C00) + (base & 0x0FFF);
    return (uint16_t) ((bits >> 16 & 0x8000) | (magnitude > 0xFF000000 ? 0x7E00 : base));
}

/* ------------------------------------------------------------------ gathering */

typedef struct {
    const uint8_t *source;
    int64_t rows, width; /* of the source */
    const void *ids;
    int64_t count;
    int wide; /* ids are 64 bits */
    int element; /* FLOAT16 or BFLOAT16 to widen; else rows are copied as they are */
    int64_t row_bytes, out_bytes; /* of a row of the source and of the output */
    uint8_t *out;
    /* Set by gather: */
    int64_t ahead; /* so many rows later is fetched meanwhile */
    int stream; /* past the caches */
    int level;
} Gather;

/* Outputs from this size on, in bytes, would only push other things out of the caches. */
#define STREAMED (1LL << 25)

/* A run's rows are read together, so that one thread writes them one after the other. */
enum { LINE = 64, RUN = 512, FETCHED = 2048, MOST_AHEAD = 64, PIECE = 512 };

INLINE void fetch_row(const uint8_t *row, int64_t bytes) {
    for (int64_t k = 0; k < bytes; k += LINE) PREFETCH(row + k);
    PREFETCH(row + bytes - 1);
}

#define DEFINE_WIDEN(name, attribute)                                                             \
    attribute static void name(const uint16_t *restrict from, int64_t n, float *restrict to) {    \
        for (int64_t k = 0; k < n; k++) to[k] = WIDEN(from[k]);                                   \
    }
#define WIDEN widen_bfloat
DEFINE_WIDEN(widen_bfloats, )
#undef WIDEN
#define WIDEN widen_half
DEFINE_WIDEN(widen_halves, )
#undef WIDEN

#ifdef X86
#define WIDEN widen_bfloat
DEFINE_WIDEN(widen_bfloats_avx2, FOR_AVX2)
#undef WIDEN

FOR_AVX2 static void widen_halves_avx2(const uint16_t *from, int64_t n, float *to) {
    int64_t k = 0;
    for (; k + 8 <= n; k += 8)
        _mm256_storeu_ps(to + k, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *) (from + k))));
    for (; k < n; k++) to[k] = _cvtsh_ss(from[k]);
}
#endif

static void widen(const Gather *g, const uint16_t *from, int64_t n, float *to) {
#ifdef X86
    if (g->level >= AVX2) {
        (g->element == FLOAT16 ? widen_halves_avx2 : widen_bfloats_avx2)(from, n, to);
        return;
    }
#endif
    (g->element == FLOAT16 ? widen_halves : widen_bfloats)(from, n, to);
}

#ifdef X86
/* Bytes written one after the other, past the caches, in whole lines. A line at either end of the
 * run belongs to others too: of these, only the run's own bytes are written. */
typedef struct {
    uint8_t *to; /* the line being filled */
    int64_t first, fill; /* our bytes in it */
    uint8_t line[LINE];
} Stream;

INLINE void stream_line(uint8_t *to, const uint8_t *from) {
    for (int k = 0; k < LINE; k += 16)
        _mm_stream_si128((__m128i *) (to + k), _mm_loadu_si128((const __m128i *) (from + k)));
}

INLINE void end_line(Stream *s) {
    if (s->first || s->fill < LINE)
        memcpy(s->to + s->first, s->line + s->first, (size_t) (s->fill - s->first));
    else
        stream_line(s->to, s->line);
    s->to += LINE;
    s->first = s->fill = 0;
}

INLINE void append(Stream *s, const uint8_t *from, int64_t n) {
    int64_t k = 0;
    if (s->fill) {
        k = smaller(LINE - s->fill, n);
        memcpy(s->line + s->fill, from, (size_t) k);
        s->fill += k;
        if (s->fill < LINE) return;
        end_line(s);
    }
    for (; k + LINE <= n; k += LINE, s->to += LINE) stream_line(s->to, from + k);
    memcpy(s->line, from + k, (size_t) (n - k));
    s->fill = n - k;
}

static void stream_run(const Gather *g, int64_t begin, int64_t n, const int64_t *at) {
    uint8_t *const to = g->out + begin * g->out_bytes;
    float piece[PIECE];
    Stream s;
    s.first = s.fill = (int64_t) ((uintptr_t) to % LINE);
    s.to = to - s.fill;
    for (int64_t i = 0; i < n; i++) {
        const uint8_t *row = g->source + at[i];
        fetch_row(g->source + at[i + g->ahead], g->row_bytes);
        if (g->element < FLOAT16) {
            append(&s, row, g->row_bytes);
        } else {
            for (int64_t k = 0; k < g->width; k += PIECE) {
                const int64_t some = smaller(PIECE, g->width - k);
                widen(g, (const uint16_t *) row + k, some, piece);
                append(&s, (const uint8_t *) piece, some * 4);
            }
        }
    }
    if (s.fill) end_line(&s);
    _mm_sfence();
}

/* The same, with the line in a register: masks let it take any part of a row without reading what
 * stands beside. */
typedef struct {
    uint8_t *to;
    int64_t first, fill;
    __m512i line;
} WideStream;

FOR_AVX512 INLINE void append_wide(WideStream *s, const uint8_t *from, int64_t n) {
    int64_t k = LINE - s->fill;
    const __mmask64 room = ~0ULL << s->fill;
    if (n < k) {
        s->line = _mm512_mask_loadu_epi8(s->line, room & ~(~0ULL << (s->fill + n)), from - s->fill);
        s->fill += n;
        return;
    }
    s->line = _mm512_mask_loadu_epi8(s->line, room, from - s->fill);
    if (s->first) _mm512_mask_storeu_epi8(s->to, ~0ULL << s->first, s->line);
    else _mm512_stream_si512((__m512i *) s->to, s->line);
    s->first = 0;
    for (s->to += LINE; k + LINE <= n; k += LINE, s->to += LINE)
        _mm512_stream_si512((__m512i *) s->to, _mm512_loadu_si512(from + k));
    s->fill = n - k;
    s->line = _mm512_maskz_loadu_epi8(~(~0ULL << s->fill), from + k);
}

FOR_AVX512 static void stream_run_avx512(const Gather *g, int64_t begin, int64_t n,
                                         const int64_t *at) {
    uint8_t *const to = g->out + begin * g->out_bytes;
    float piece[PIECE];
    WideStream s;
    s.first = s.fill = (int64_t) ((uintptr_t) to % LINE);
    s.to = to - s.fill;
    s.line = _mm512_setzero_si512();
    for (int64_t i = 0; i < n; i++) {
        const uint8_t *row = g->source + at[i];
        fetch_row(g->source + at[i + g->ahead], g->row_bytes);
        if (g->element < FLOAT16) {
            append_wide(&s, row, g->row_bytes);
        } else {
            for (int64_t k = 0; k < g->width; k += PIECE) {
                const int64_t some = smaller(PIECE, g->width - k);
                widen(g, (const uint16_t *) row + k, some, piece);
                append_wide(&s, (const uint8_t *) piece, some * 4);
            }
        }
    }
    _mm512_mask_storeu_epi8(s.to, ~0ULL << s.first & ~(~0ULL << s.fill), s.line);
    _mm_sfence();
}
#endif

/* Line after line while the row `next` is fetched; the last line may write some of the one before
 * it again. */
INLINE void copy_row(uint8_t *restrict to, const uint8_t *restrict from, const uint8_t *next,
                     int64_t bytes) {
    for (int64_t k = 0; k + LINE <= bytes; k += LINE) {
        PREFETCH(next + k);
        memcpy(to + k, from + k, LINE);
    }
    PREFETCH(next + bytes - 1);
    if (bytes < LINE) memcpy(to, from, (size_t) bytes);
    else if (bytes % LINE) memcpy(to + bytes - LINE, from + bytes - LINE, LINE);
}

/* Sizes known when compiled are a few moves, where a call would take longer. */
#define COPY_ROWS(bytes)                                                                          \
    for (int64_t i = 0; i < n; i++, to += (bytes))                                                \
        copy_row(to, g->source + at[i], g->source + at[i + g->ahead], (bytes));                   \
    break;

static void copy_run(const Gather *g, int64_t begin, int64_t n, const int64_t *at) {
    uint8_t *to = g->out + begin * g->out_bytes;
    if (g->element >= FLOAT16) {
        for (int64_t i = 0; i < n; i++, to += g->out_bytes) {
            fetch_row(g->source + at[i + g->ahead], g->row_bytes);
            widen(g, (const uint16_t *) (g->source + at[i]), g->width, (float *) to);
        }
        return;
    }
    switch (g->row_bytes) {
    case 2: COPY_ROWS(2)
    case 4: COPY_ROWS(4)
    case 8: COPY_ROWS(8)
    case 16: COPY_ROWS(16)
    case 32: COPY_ROWS(32)
    case 64: COPY_ROWS(64)
    default: COPY_ROWS(g->row_bytes)
    }
}

/* Rows [begin, end) of the output; returns 0, having read nothing, where an id is outside. The ids
 * are read once, so that even one that changes meanwhile leads nowhere else. */
static int gather_run(const Gather *g, int64_t begin, int64_t end) {
    int64_t at[RUN + MOST_AHEAD];
    const int64_t n = end - begin, known = smaller(n + g->ahead, g->count - begin);
    int sound = 1;
    for (int64_t i = 0; i < known; i++) {
        const int64_t id = read_id(g->ids, g->wide, begin + i);
        const int inside = (uint64_t) id < (uint64_t) g->rows;
        sound &= inside | (i >= n);
        at[i] = inside ? id * g->row_bytes : 0;
    }
    for (int64_t i = known; i < n + g->ahead; i++) at[i] = at[n - 1];
    if (!sound) return 0;
#ifdef X86
    if (g->stream) {
        (g->level == AVX512 ? stream_run_avx512 : stream_run)(g, begin, n, at);
        return 1;
    }
#endif
    copy_run(g, begin, n, at);
    return 1;
}

/* Returns 0 where an id is outside the source. */
static int gather(Gather *g, int threads) {
    const int64_t run = smaller(RUN, (1 << 18) / g->out_bytes + 1);
    const int64_t runs = (g->count + run - 1) / run;
    int sound = 1;
    g->level = simd_level();
    g->ahead = smaller(MOST_AHEAD, FETCHED / g->row_bytes + 1);
    g->stream = g->count * g->out_bytes >= STREAMED && g->out_bytes >= LINE;
#ifdef _OPENMP
#pragma omp parallel for num_threads(threads) schedule(dynamic) reduction(&& : sound)
#endif
    for (int64_t r = 0; r < runs; r++)
        sound = gather_run(g, r * run, smaller((r + 1) * run, g->count)) && sound;
    (void) threads;
    return sound;
}

/* ------------------------------------------------------------------ adding */

typedef struct {
    uint8_t *target;
    int64_t rows, width; /* of the target */
    const void *ids;
    int64_t count;
    int wide; /* ids are 64 bits */
    int element;
    const uint8_t *values;
    /* Where set, which of `value_rows` values each is; else they are taken in order. */
    const void *from;
    int64_t value_rows;
    int from_wide;
    int copy; /* in place of adding */
} Scatter;

#define DEFINE_ADD(name, attribute, T, SUM)                                                       \
    attribute static void name(void *to, const void *from, int64_t n) {                           \
        T *restrict t = to;                                                                       \
        const T *restrict v = from;                                                               \
        for (int64_t k = 0; k < n; k++) t[k] = SUM(t[k], v[k]);                                   \
    }
#define SUM(a, b) ((a) + (b))
#define SUM_HALF(a, b) narrow_half(widen_half(a) + widen_half(b))
#define SUM_BFLOAT(a, b) narrow_bfloat(widen_bfloat(a) + widen_bfloat(b))

DEFINE_ADD(add_float, , float, SUM)
DEFINE_ADD(add_double, , double, SUM)
DEFINE_ADD(add_half, , uint16_t, SUM_HALF)
DEFINE_ADD(add_bfloat, , uint16_t, SUM_BFLOAT)

#ifdef X86
DEFINE_ADD(add_float_avx2, FOR_AVX2, float, SUM)
DEFINE_ADD(add_double_avx2, FOR_AVX2, double, SUM)
DEFINE_ADD(add_bfloat_avx2, FOR_AVX2, uint16_t, SUM_BFLOAT)

FOR_AVX2 static void add_half_avx2(void *to, const void *from, int64_t n) {
    uint16_t *t = to;
    const uint16_t *v = from;
    int64_t k = 0;
    for (; k + 8 <= n; k += 8) {
        const __m256 a = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *) (t + k)));
        const __m256 b = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *) (v + k)));
        _mm_storeu_si128((__m128i *) (t + k),
                         _mm256_cvtps_ph(_mm256_add_ps(a, b), _MM_FROUND_TO_NEAREST_INT));
    }
    add_half(t + k, v + k, n - k);
}
#endif

/* Adds n elements, or copies them. */
typedef void (*Put)(void *to, const void *from, int64_t n);

#define DEFINE_COPY(name, bytes)                                                                  \
    static void name(void *to, const void *from, int64_t n) { memcpy(to, from, (size_t) (n * (bytes))); }
DEFINE_COPY(copy_2, 2)
DEFINE_COPY(copy_4, 4)
DEFINE_COPY(copy_8, 8)

static Put choose_copy(int element) {
    return element == FLOAT64 ? copy_8 : element == FLOAT32 ? copy_4 : copy_2;
}

static Put choose_add(int element, int level) {
#ifdef X86
    static const Put wide[] = {add_float_avx2, add_double_avx2, add_half_avx2, add_bfloat_avx2};
    if (level >= AVX2) return wide[element];
#endif
    static const Put plain[] = {add_float, add_double, add_half, add_bfloat};
    (void) level;
    return plain[element];
}

/* Who writes to a target row: neighbours in blocks of 16, so that few lines have two writers, and the
 * blocks scattered, so that a stretch of popular rows is shared out. */
INLINE int64_t owner(int64_t id, int64_t owners) {
    return (int64_t) (((uint64_t) (uint32_t) ((uint64_t) (id >> 4) * 0x9E3779B97F4A7C15ULL >> 32)
                       * (uint64_t) owners) >> 32);
}

/* Writes what belongs to one owner, in the order of the values. Returns 0 where an id was outside. */
static int scatter_own(const Scatter *s, int64_t own, int64_t owners) {
    const int64_t element_bytes = s->element == FLOAT64 ? 8 : s->element == FLOAT32 ? 4 : 2;
    const int64_t bytes = s->width * element_bytes;
    const int64_t ahead = smaller(MOST_AHEAD, FETCHED / bytes + 1);
    const Put put = s->copy ? choose_copy(s->element) : choose_add(s->element, simd_level());
    int64_t to[RUN], from[RUN];
    int sound = 1;
    for (int64_t begin = 0; begin < s->count; begin += RUN) {
        const int64_t end = smaller(begin + RUN, s->count);
        int64_t n = 0;
        for (int64_t i = begin; i < end; i++) {
            const int64_t id = read_id(s->ids, s->wide, i);
            const int64_t value = s->from ? read_id(s->from, s->from_wide, i) : i;
            const int inside = (uint64_t) id < (uint64_t) s->rows
                               && (uint64_t) value < (uint64_t) s->value_rows;
            sound &= inside;
            to[n] = id;
            from[n] = value;
            n += inside & (owner(id, owners) == own);
        }
        for (int64_t i = 0; i < n; i++) {
            if (i + ahead < n) {
                const uint8_t *const row = s->target + to[i + ahead] * bytes;
                for (int64_t k = 0; k < bytes; k += LINE) PREFETCH_TO_WRITE(row + k);
                PREFETCH_TO_WRITE(row + bytes - 1);
                fetch_row(s->values + from[i + ahead] * bytes, bytes);
            }
            put(s->target + to[i] * bytes, s->values + from[i] * bytes, s->width);
        }
    }
    return sound;
}

/* Whether every id is inside: what is written in place is not undone. */
static int sound_ids(const void *ids, int wide, int64_t count, int64_t rows) {
    int sound = 1;
    for (int64_t i = 0; i < count; i++) sound &= (uint64_t) read_id(ids, wide, i) < (uint64_t) rows;
    return sound;
}

/* Returns 0, having written nothing, where an id is outside the target or the values. */
static int scatter(const Scatter *s, int threads) {
    int sound = sound_ids(s->ids, s->wide, s->count, s->rows)
                && (!s->from || sound_ids(s->from, s->from_wide, s->count, s->value_rows));
    if (!sound) return 0;
#ifdef _OPENMP
#pragma omp parallel for num_threads(threads) reduction(&& : sound)
#endif
    for (int own = 0; own < threads; own++) sound = scatter_own(s, own, threads) && sound;
    return sound;
}

#endif
