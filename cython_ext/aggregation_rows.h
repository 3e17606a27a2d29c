/* Sparse products over runs of rows, for one instruction set and one element type.
 *
 * aggregation.h includes this file once for each pair, having defined
 *   T, I           an element, and an unsigned integer as wide
 *   ELEMENT        f32 or f64, the suffix of the records
 *   SET            the suffix of the instruction set
 *   VECTOR_BYTES   the width of its vectors
 *   REGISTERS      vectors of an output row that are kept in registers at a time, at most 20
 *   STREAM(p, v)   an aligned store that goes past the caches
 *   FENCE()        makes those before it visible to other threads
 *   TAIL, MAKE_TAIL(n), LOAD_TAIL(p, t), STORE_TAIL(p, v, t): the first n lanes, 1 <= n <= W
 *
 * While a row's edges go by, its tile, up to REGISTERS vectors, stays in registers. Every element
 * is summed in the order of its row's edges, whatever the tile, the mask or the number of threads.
 */

#define FN(name) JOIN(name, ELEMENT, SET)
#define PRODUCT JOIN(product, ELEMENT, )
#define TILE JOIN(tile, ELEMENT, )
#define W ((int)(VECTOR_BYTES / sizeof(T)))
#define LINE ((int)(64 / sizeof(T)))
/* Vectors of a packed row: four cache lines, or as many as sum_heavy knows. */
#define PACKED (PACKED_BYTES / VECTOR_BYTES < 8 ? PACKED_BYTES / VECTOR_BYTES : 8)
#define V FN(vector)
#define VI FN(integers)

typedef T V __attribute__((vector_size(VECTOR_BYTES)));
typedef I VI __attribute__((vector_size(VECTOR_BYTES)));

ALWAYS_INLINE V FN(load)(const T *p)
{
    V v;
    memcpy(&v, p, sizeof v);
    return v;
}

ALWAYS_INLINE void FN(store)(T *p, V v)
{
    memcpy(p, &v, sizeof v);
}

#ifdef PLAIN_TAILS
ALWAYS_INLINE V FN(load_some)(const T *p, int lanes)
{
    if (lanes == W)
        return FN(load)(p);
    V v = {0};
    for (int i = 0; i < lanes; i++)
        v[i] = p[i];
    return v;
}

ALWAYS_INLINE void FN(store_some)(T *p, V v, int lanes)
{
    for (int i = 0; i < lanes; i++)
        p[i] = v[i];
}
#endif

/* ------------------------------------------------------------------ edges */

ALWAYS_INLINE T FN(coefficient)(const PRODUCT *p, int64_t e, int64_t u)
{
    const T c = p->weight ? p->weight[e] : (T)1;
    return p->src_scale ? c * p->src_scale[u] : c;
}

/* Adds edge e to a tile of nv vectors; its last vector has the lanes of `tail`. */
ALWAYS_INLINE void FN(add_edge)(const PRODUCT *p, const TILE *a, int64_t e, V *sum, const int nv,
                                const int weighted, TAIL tail)
{
    const int64_t u = p->indices[e];
    const T *row = a->h + u * a->stride;
    if (weighted) {
        const T c = FN(coefficient)(p, e, u);
        UNROLL
        for (int k = 0; k < nv - 1; k++)
            sum[k] += c * FN(load)(row + k * W);
        sum[nv - 1] += c * LOAD_TAIL(row + (nv - 1) * W, tail);
    } else {
        UNROLL
        for (int k = 0; k < nv - 1; k++)
            sum[k] += FN(load)(row + k * W);
        sum[nv - 1] += LOAD_TAIL(row + (nv - 1) * W, tail);
    }
}

/* ------------------------------------------------------------------ masks */

/* Prefetches where rows further on begin and what is wanted of them: both are read too seldom for the
 * processor to foresee them. */
ALWAYS_INLINE void FN(expect_row)(const PRODUCT *p, int64_t v)
{
    PREFETCH(p->indptr + v + ROWS_AHEAD);
    if (p->mask)
        PREFETCH(p->mask + (v + ROWS_AHEAD) * p->mask_stride);
}

/* The first `lanes` of W mask bits from `column`, a multiple of W; bit i of a row is bit i % 8 of
 * its byte i / 8. */
ALWAYS_INLINE uint32_t FN(mask_bits)(const uint8_t *row, int64_t column, int lanes)
{
    const uint8_t *byte = row + (column >> 3);
    uint16_t two;
    if (W < 8)
        return (uint32_t)byte[0] >> (column & 7);
    if (W == 8 || lanes <= 8)
        return byte[0];
    memcpy(&two, byte, sizeof two);
    return two;
}

ALWAYS_INLINE V FN(keep_lanes)(V v, uint32_t bits)
{
#ifdef KEEP
    return (V)KEEP(v, bits);
#else
    static const I one_bit[16] = {
        1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 4, 1 << 5, 1 << 6, 1 << 7,
        1 << 8, 1 << 9, 1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15,
    };
    VI lane;
    memcpy(&lane, one_bit, sizeof lane);
    return (V)((VI)v & (VI)((((VI){0} + (I)bits) & lane) != 0));
#endif
}

/* ------------------------------------------------------------------ one row's tile */

ALWAYS_INLINE void FN(store_tile)(const TILE *a, T *to, const V *sum, const int nv, TAIL tail)
{
    if (a->stream) {
        UNROLL
        for (int k = 0; k < nv; k++)
            STREAM(to + k * W, sum[k]);
        return;
    }
    UNROLL
    for (int k = 0; k < nv - 1; k++)
        FN(store)(to + k * W, sum[k]);
    STORE_TAIL(to + (nv - 1) * W, sum[nv - 1], tail);
}

/* Scales the sums of `count` edges, adds row v's own term, drops what is masked, and stores, or adds to
 * what is there. */
ALWAYS_INLINE void FN(finish)(const PRODUCT *p, const TILE *a, int64_t v, int64_t count, V *sum,
                              T *to, const int nv, TAIL tail)
{
    if (p->dst_scale || p->mean) {
        T c = p->dst_scale ? p->dst_scale[v] : (T)1;
        if (p->mean && count)
            c /= (T)count;
        UNROLL
        for (int k = 0; k < nv; k++)
            sum[k] *= c;
    }
    if (p->own) {
        const T *row = a->h + v * a->stride;
        UNROLL
        for (int k = 0; k < nv - 1; k++)
            sum[k] += p->own[v] * FN(load)(row + k * W);
        sum[nv - 1] += p->own[v] * LOAD_TAIL(row + (nv - 1) * W, tail);
    }
    if (p->mask) {
        const uint8_t *row = p->mask + v * p->mask_stride;
        UNROLL
        for (int k = 0; k < nv; k++)
            sum[k] = FN(keep_lanes)(
                sum[k], FN(mask_bits)(row, a->column + k * W, k < nv - 1 ? W : a->lanes));
    }
    if (p->add) {
        UNROLL
        for (int k = 0; k < nv - 1; k++)
            sum[k] += FN(load)(to + k * W);
        sum[nv - 1] += LOAD_TAIL(to + (nv - 1) * W, tail);
    }
    FN(store_tile)(a, to, sum, nv, tail);
}

/* Sums a row's edges, each while the tile of an edge further on is on its way to the cache. With
 * several tiles those after this one's last are the next tile's, at `next`: the same row's first
 * ones, or after its last tile those of the rows after it. Rows up to edge `plain` have one tile of
 * whole lines, and always an edge that much further on. */
ALWAYS_INLINE void FN(sum_tile)(const PRODUCT *p, const TILE *a, int64_t v, T *out, int64_t step,
                                const int nv, const int weighted, int64_t plain)
{
    const TAIL tail = MAKE_TAIL(a->lanes);
    T *const to = out + v * step;
    const int64_t first = p->indptr[v], stop = p->indptr[v + 1], count = stop - first;
    V sum[REGISTERS];
    FN(expect_row)(p, v);
    UNROLL
    for (int k = 0; k < nv; k++)
        sum[k] = (V){0};
    if (stop <= plain) {
        for (int64_t e = first; e < stop; e++) {
            const char *row = (const char *)(a->h + p->indices[e + a->ahead] * a->stride);
            UNROLL
            for (int k = 0; k < nv * VECTOR_BYTES; k += 64)
                PREFETCH(row + k);
            FN(add_edge)(p, a, e, sum, nv, weighted, tail);
        }
        FN(finish)(p, a, v, count, sum, to, nv, tail);
        return;
    }
    const int64_t ahead = a->next == a->h || a->ahead < count ? a->ahead : count;
    const int64_t turn = a->next == a->h ? stop : stop - ahead;
    const int64_t beyond = a->again ? ahead - count : ahead;
    const int reach = ((nv - 1) * W + a->lanes) * (int)sizeof(T) - 1;
    for (int64_t e = first; e < stop; e++) {
        const int64_t then = e < turn ? e + ahead : e + beyond;
        const int32_t u = p->indices[then < a->last ? then : e];
        const char *row = (const char *)((e < turn ? a->h : a->next) + u * a->stride);
        UNROLL
        for (int k = 0; k < nv * VECTOR_BYTES; k += 64)
            PREFETCH(row + k);
        PREFETCH(row + reach);
        FN(add_edge)(p, a, e, sum, nv, weighted, tail);
    }
    FN(finish)(p, a, v, count, sum, to, nv, tail);
}

#define ROWS(n, weighted)                                                                          \
    for (int64_t v = begin; v < end; v++)                                                          \
        FN(sum_tile)(p, a, v, out, step, n, weighted, plain);
#define ROW(n)                                                                                     \
    case n:                                                                                        \
        if (p->weight || p->src_scale) {                                                           \
            ROWS(n, 1)                                                                             \
        } else {                                                                                   \
            ROWS(n, 0)                                                                             \
        }                                                                                          \
        break;

/* A tile of rows [begin, end), row v of the output at `out` and v times `step`. */
static void FN(sum_tiles)(const PRODUCT *p, const TILE *a, int64_t begin, int64_t end, T *out,
                          int64_t step)
{
    const int lines = (uintptr_t)a->h % 64 == 0 && a->stride % LINE == 0;
    const int64_t plain = lines && a->next == a->h ? a->last - a->ahead : -1;
    switch (a->vectors) {
        ROW(1) ROW(2) ROW(3) ROW(4) ROW(5) ROW(6) ROW(7) ROW(8) ROW(9) ROW(10) ROW(11) ROW(12)
#if REGISTERS > 12
        ROW(13) ROW(14) ROW(15) ROW(16) ROW(17) ROW(18) ROW(19) ROW(20)
#endif
    }
}
#undef ROWS
#undef ROW

/* ------------------------------------------------------------------ wanted rows */

ALWAYS_INLINE int FN(is_wanted)(const PRODUCT *p, int64_t v)
{
    return has_bits(p->mask + v * p->mask_stride, p->mask_stride);
}

/* Goes on to the next row before `end` that is wanted and has edges. After the last one, to edge e,
 * without an end: whoever takes an edge from there for each that is summed stays behind those. */
ALWAYS_INLINE void FN(look_ahead)(const PRODUCT *p, lookahead *next, int64_t end, int64_t e)
{
    while (next->row < end) {
        const int64_t v = next->row++;
        FN(expect_row)(p, v);
        if (v + LISTS_AHEAD < end) {
            const int32_t *sources = p->indices + p->indptr[v + LISTS_AHEAD];
            PREFETCH(sources);
            PREFETCH(sources + 16);
        }
        if (p->indptr[v] < p->indptr[v + 1] && FN(is_wanted)(p, v)) {
            next->edge = p->indptr[v];
            next->stop = p->indptr[v + 1];
            return;
        }
    }
    next->edge = e;
    next->stop = INT64_MAX;
}

/* Where a loop over rows [begin, end) begins to prefetch: so many edges ahead of it. */
static lookahead FN(begin_ahead)(const PRODUCT *p, int64_t begin, int64_t end, int64_t ahead)
{
    lookahead next = {.row = begin};
    while (ahead > 0) {
        FN(look_ahead)(p, &next, end, p->indptr[begin]);
        if (next.stop == INT64_MAX)
            break;
        const int64_t count = next.stop - next.edge < ahead ? next.stop - next.edge : ahead;
        next.edge += count;
        ahead -= count;
    }
    return next;
}

/* A tile of rows [begin, end), of which only wanted ones are read and prefetched. Weights that are
 * left out are 1 here, which changes no sum. */
ALWAYS_INLINE void FN(sum_wanted_tiles)(const PRODUCT *p, const TILE *a, int64_t begin, int64_t end,
                                        const int nv)
{
    const TAIL tail = MAKE_TAIL(a->lanes);
    const int reach = ((nv - 1) * W + a->lanes) * (int)sizeof(T) - 1;
    lookahead next = FN(begin_ahead)(p, begin, end, a->ahead);
    for (int64_t v = begin; v < end; v++) {
        T *const to = p->out + v * p->out_stride + a->column;
        const int64_t first = p->indptr[v], stop = p->indptr[v + 1];
        V sum[REGISTERS];
        UNROLL
        for (int k = 0; k < nv; k++)
            sum[k] = (V){0};
        if (!FN(is_wanted)(p, v)) {
            if (!p->add)
                FN(store_tile)(a, to, sum, nv, tail);
            continue;
        }
        for (int64_t e = first; e < stop;) {
            if (next.edge == next.stop)
                FN(look_ahead)(p, &next, end, e);
            const int64_t left = next.stop - next.edge, until = left < stop - e ? e + left : stop;
            for (; e < until; e++) {
                const char *row = (const char *)(a->h + p->indices[next.edge++] * a->stride);
                UNROLL
                for (int k = 0; k < nv * VECTOR_BYTES; k += 64)
                    PREFETCH(row + k);
                PREFETCH(row + reach);
                FN(add_edge)(p, a, e, sum, nv, 1, tail);
            }
        }
        FN(finish)(p, a, v, stop - first, sum, to, nv, tail);
    }
}

#define ROW(n)                                                                                     \
    case n:                                                                                        \
        FN(sum_wanted_tiles)(p, a, begin, end, n);                                                 \
        break;

/* A tile of rows [begin, end). */
static void FN(sum_wanted)(const PRODUCT *p, const TILE *a, int64_t begin, int64_t end)
{
    if (!p->sparse || !p->num_edges) {
        FN(sum_tiles)(p, a, begin, end, p->out + a->column, p->out_stride);
        return;
    }
    switch (a->vectors) {
        ROW(1) ROW(2) ROW(3) ROW(4) ROW(5) ROW(6) ROW(7) ROW(8) ROW(9) ROW(10) ROW(11) ROW(12)
#if REGISTERS > 12
        ROW(13) ROW(14) ROW(15) ROW(16) ROW(17) ROW(18) ROW(19) ROW(20)
#endif
    }
}
#undef ROW

/* ------------------------------------------------------------------ tiles */

/* The columns of one of a row's `tiles` tiles of about equal width. */
ALWAYS_INLINE TILE FN(cut_tile)(const PRODUCT *p, int64_t tile, int64_t tiles)
{
    const int64_t vectors = (p->width + W - 1) / W;
    const int64_t from = vectors * tile / tiles, to = vectors * (tile + 1) / tiles;
    const int64_t ahead = AHEAD_BYTES / ((to - from) * VECTOR_BYTES);
    return (TILE){
        .h = p->h + from * W, .next = p->h + from * W, .stride = p->h_stride, .column = from * W,
        .ahead = ahead < MOST_AHEAD ? ahead : MOST_AHEAD, .vectors = (int)(to - from),
        .lanes = to == vectors ? (int)(p->width - (vectors - 1) * W) : W,
    };
}

/* Whether every row of the output begins and ends at a line, so that tiles can be streamed. */
ALWAYS_INLINE int FN(in_lines)(const PRODUCT *p)
{
    return (uintptr_t)p->out % 64 == 0 && p->out_stride % LINE == 0 && p->width % LINE == 0;
}

/* ------------------------------------------------------------------ rows read where they are */

/* Whole rows [begin, end): each tile of all of them where one tile is a row or a mask leaves few rows,
 * otherwise tile after tile of a row. */
static void FN(sum_in_place)(const PRODUCT *p, int64_t begin, int64_t end)
{
    const int64_t vectors = (p->width + W - 1) / W;
    const int64_t tiles = (vectors + REGISTERS - 1) / REGISTERS;
    const int streamed = p->stream && FN(in_lines)(p);
    if (p->sparse || tiles == 1) {
        for (int64_t tile = 0; tile < tiles; tile++) {
            TILE a = FN(cut_tile)(p, tile, tiles);
            a.last = p->indptr[end];
            a.stream = streamed;
            FN(sum_wanted)(p, &a, begin, end);
        }
        FENCE();
        return;
    }
    for (int64_t v = begin; v < end; v++) {
        T *to = p->out + v * p->out_stride;
        for (int64_t tile = 0; tile < tiles; tile++) {
            TILE a = FN(cut_tile)(p, tile, tiles);
            a.last = p->indptr[end];
            a.stream = streamed;
            a.again = tile + 1 < tiles;
            a.next = a.again ? a.h + a.vectors * W : p->h;
            FN(sum_tiles)(p, &a, v, v + 1, to + a.column, 0);
        }
    }
    FENCE();
}

/* ------------------------------------------------------------------ rows packed before */

/* Copies a tile's columns of rows [begin, end) next to each other, padded with zeros. */
static void FN(pack)(const PRODUCT *p, const TILE *a, T *packed, int64_t begin, int64_t end)
{
    const TAIL tail = MAKE_TAIL(a->lanes);
    for (int64_t u = begin; u < end; u++) {
        const T *row = p->h + u * p->h_stride + a->column;
        T *to = packed + u * (a->vectors * W);
        for (int k = 0; k < a->vectors - 1; k++)
            STREAM(to + k * W, FN(load)(row + k * W));
        STREAM(to + (a->vectors - 1) * W, LOAD_TAIL(row + (a->vectors - 1) * W, tail));
    }
    FENCE();
}

/* Heavy rows [begin, end), a block of sources after the other: what they share stays cached. */
ALWAYS_INLINE void FN(sum_blocks)(const PRODUCT *p, const TILE *a, T *sums, int64_t begin,
                                  int64_t end, const int nv)
{
    const TAIL whole = MAKE_TAIL(W), tail = MAKE_TAIL(a->lanes);
    const int weighted = p->weight || p->src_scale;
    for (int64_t block = 0; block < p->num_blocks; block++) {
        const int64_t *from = p->cuts + block * p->num_heavy, *to = from + p->num_heavy;
        for (int64_t i = begin; i < end; i++) {
            V sum[REGISTERS];
            T *so_far = sums + i * (nv * W);
            UNROLL
            for (int k = 0; k < nv; k++)
                sum[k] = block ? FN(load)(so_far + k * W) : (V){0};
            if (weighted)
                for (int64_t e = from[i]; e < to[i]; e++)
                    FN(add_edge)(p, a, e, sum, nv, 1, whole);
            else
                for (int64_t e = from[i]; e < to[i]; e++)
                    FN(add_edge)(p, a, e, sum, nv, 0, whole);
            UNROLL
            for (int k = 0; k < nv; k++)
                FN(store)(so_far + k * W, sum[k]);
        }
    }
    for (int64_t i = begin; i < end; i++) {
        const int64_t v = p->heavy[i];
        V sum[REGISTERS];
        UNROLL
        for (int k = 0; k < nv; k++)
            sum[k] = FN(load)(sums + i * (nv * W) + k * W);
        FN(finish)(p, a, v, p->indptr[v + 1] - p->indptr[v], sum,
                   p->out + v * p->out_stride + a->column, nv, tail);
    }
}

static void FN(sum_heavy)(const PRODUCT *p, const TILE *a, T *sums, int64_t begin, int64_t end)
{
    switch (a->vectors) {
    case 1: FN(sum_blocks)(p, a, sums, begin, end, 1); break;
    case 2: FN(sum_blocks)(p, a, sums, begin, end, 2); break;
    case 3: FN(sum_blocks)(p, a, sums, begin, end, 3); break;
    case 4: FN(sum_blocks)(p, a, sums, begin, end, 4); break;
#if PACKED_BYTES > 4 * VECTOR_BYTES
    case 5: FN(sum_blocks)(p, a, sums, begin, end, 5); break;
    case 6: FN(sum_blocks)(p, a, sums, begin, end, 6); break;
    case 7: FN(sum_blocks)(p, a, sums, begin, end, 7); break;
    case 8: FN(sum_blocks)(p, a, sums, begin, end, 8); break;
#endif
    }
}

/* One packed tile of rows [begin, end), but for heavy ones. */
static void FN(sum_packed)(const PRODUCT *p, const TILE *a, int64_t begin, int64_t end)
{
    int64_t v = begin;
    while (v < end) {
        int64_t stop = v;
        while (stop < end && !is_heavy(p, stop))
            stop++;
        FN(sum_wanted)(p, a, v, stop);
        v = stop + 1;
    }
    FENCE();
}

/* ------------------------------------------------------------------ whole products */

/* `packed` has room for num_src rows of PACKED_BYTES and for as many sums as there are heavy rows;
 * null: h is read where it is. */
static void FN(multiply)(const PRODUCT *p, T *packed, int threads)
{
    const int64_t work = p->num_edges + p->num_dst;
    const int64_t runs = count_runs(work, threads);
    if (!packed) {
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads) if (threads > 1)
        for (int64_t run = 0; run < runs; run++)
            FN(sum_in_place)(p, find_row(p->indptr, p->num_dst, work, run, runs),
                             find_row(p->indptr, p->num_dst, work, run + 1, runs));
        return;
    }
    const int64_t vectors = (p->width + W - 1) / W;
    const int64_t tiles = (vectors + PACKED - 1) / PACKED;
#pragma omp parallel num_threads(threads) if (threads > 1)
    for (int64_t tile = 0; tile < tiles; tile++) {
        TILE a = FN(cut_tile)(p, tile, tiles);
#pragma omp for schedule(static)
        for (int64_t run = 0; run < runs; run++)
            FN(pack)(p, &a, packed, p->num_src * run / runs, p->num_src * (run + 1) / runs);
        a.h = a.next = packed;
        a.stride = a.vectors * W;
        a.last = p->num_edges;
        a.stream = p->stream && FN(in_lines)(p);
#pragma omp for schedule(static) nowait
        for (int part = 0; part < threads; part++)
            FN(sum_heavy)(p, &a, packed + p->num_src * (PACKED * W),
                          p->num_heavy * part / threads, p->num_heavy * (part + 1) / threads);
#pragma omp for schedule(dynamic, 1)
        for (int64_t run = 0; run < runs; run++)
            FN(sum_packed)(p, &a, find_row(p->indptr, p->num_dst, work, run, runs),
                           find_row(p->indptr, p->num_dst, work, run + 1, runs));
    }
}

/* ------------------------------------------------------------------ one number an edge */

/* products[e] = <g[v], h[u]> for every edge e = (u, v). */
static void FN(dot_edges)(const PRODUCT *p, const T *g, int64_t g_stride, T *products, int threads)
{
    const int64_t whole = p->width / W * W;
    EACH_ROW(v)
        for (int64_t e = p->indptr[v]; e < p->indptr[v + 1]; e++) {
            const T *one = g + v * g_stride, *other = p->h + p->indices[e] * p->h_stride;
            if (e + 8 < p->num_edges)
                for (int64_t j = 0; j < p->width; j += LINE)
                    PREFETCH(p->h + p->indices[e + 8] * p->h_stride + j);
            V sum = {0};
            for (int64_t j = 0; j < whole; j += W)
                sum += FN(load)(one + j) * FN(load)(other + j);
            T total = 0;
            for (int i = 0; i < W; i++)
                total += sum[i];
            for (int64_t j = whole; j < p->width; j++)
                total += one[j] * other[j];
            products[e] = total;
        }
}

/* The softmax of the scores of every row's edges. */
static void FN(soften)(const PRODUCT *p, const T *scores, T *out, int threads)
{
    EACH_ROW(v) {
        const int64_t first = p->indptr[v], stop = p->indptr[v + 1];
        T largest = -INFINITY, total = 0;
        for (int64_t e = first; e < stop; e++)
            largest = scores[e] > largest ? scores[e] : largest;
        for (int64_t e = first; e < stop; e++)
            out[e] = JOIN(exponential, ELEMENT, )(scores[e] - largest);
        for (int64_t e = first; e < stop; e++)
            total += out[e];
        for (int64_t e = first; e < stop; e++)
            out[e] /= total;
    }
}

/* Backward: out_e = q_e (g_e - sum of q g over the edges of e's row), q the softmax. */
static void FN(soften_back)(const PRODUCT *p, const T *q, const T *g, T *out, int threads)
{
    EACH_ROW(v) {
        const int64_t first = p->indptr[v], stop = p->indptr[v + 1];
        T total = 0;
        for (int64_t e = first; e < stop; e++)
            total += q[e] * g[e];
        for (int64_t e = first; e < stop; e++)
            out[e] = q[e] * (g[e] - total);
    }
}

#undef FN
#undef PRODUCT
#undef TILE
#undef W
#undef LINE
#undef PACKED
#undef V
#undef VI
#undef T
#undef I
#undef ELEMENT
