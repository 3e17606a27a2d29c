/* Loops over rows in CSR: checks, transposition, orders and streaming partition.
 *
 * Rows and ids are checked by sound_rows and sound_ids before any other loop sees them. Work is cut
 * into pieces by "omp for", never by the number of threads that happen to run, so that a runtime
 * that grants fewer, or none, changes nothing.
 */
#ifndef GNNBENCH_LAYOUT_H
#define GNNBENCH_LAYOUT_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__GNUC__)
#define PREFETCH(address) __builtin_prefetch(address)
#else
#define PREFETCH(address) ((void)0)
#endif

/* Whether no row ends before it begins; the ends of indptr are known to be 0 and E. */
static int sound_rows(const int64_t* indptr, int64_t rows, int threads) {
    int64_t bad = 0;
    (void)threads;
#pragma omp parallel for num_threads(threads) reduction(| : bad) if (threads > 1)
    for (int64_t i = 0; i < rows; i++) bad |= indptr[i] > indptr[i + 1];
    return !bad;
}

/* Whether every id is in [0, limit). The sign of v | (limit - 1 - v) says so of one, without a
 * branch and with what every processor's vector unit has. */
static int sound_ids(const int32_t* ids, int64_t length, int32_t limit, int threads) {
    uint32_t bad = 0;
    (void)threads;
#pragma omp parallel for num_threads(threads) reduction(| : bad) if (threads > 1)
    for (int64_t i = 0; i < length; i++)
        bad |= (uint32_t)ids[i] | ((uint32_t)limit - 1u - (uint32_t)ids[i]);
    return !(bad >> 31) && (limit > 0 || length == 0);
}

/* The row that holds an edge: the last that begins at or before it. */
static int64_t row_of(const int64_t* indptr, int64_t rows, int64_t edge) {
    int64_t low = 0, high = rows;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (indptr[middle] <= edge) low = middle;
        else high = middle;
    }
    return low;
}

typedef struct {
    const int64_t* indptr;
    const int32_t* indices;
    int64_t rows, columns;
    int32_t* cursors;      /* (pieces, columns), zero */
    int64_t* out_indptr;
    int32_t* out_rows;
    int32_t* out_edges;
} Transposition;

/* A stable counting sort by column. Each piece of the edges counts its own columns, so that it also
 * places them by itself: a column's entries from the first piece come first. */
static void transpose_rows(const Transposition* t, int pieces) {
    const int64_t edges = t->indptr[t->rows], columns = t->columns;
#pragma omp parallel num_threads(pieces) if (pieces > 1)
    {
#pragma omp for schedule(static, 1)
        for (int piece = 0; piece < pieces; piece++) {
            int32_t* count = t->cursors + piece * columns;
            for (int64_t e = edges * piece / pieces; e < edges * (piece + 1) / pieces; e++)
                count[t->indices[e]]++;
        }
#pragma omp single
        {
            int32_t begin = 0;
            t->out_indptr[0] = 0;
            for (int64_t c = 0; c < columns; c++) {
                for (int piece = 0; piece < pieces; piece++) {
                    int32_t count = t->cursors[piece * columns + c];
                    t->cursors[piece * columns + c] = begin;
                    begin += count;
                }
                t->out_indptr[c + 1] = begin;
            }
        }
#pragma omp for schedule(static, 1)
        for (int piece = 0; piece < pieces; piece++) {
            int32_t* cursor = t->cursors + piece * columns;
            int64_t e = edges * piece / pieces, last = edges * (piece + 1) / pieces;
            for (int64_t row = row_of(t->indptr, t->rows, e); e < last; row++) {
                int64_t end = t->indptr[row + 1] < last ? t->indptr[row + 1] : last;
                for (; e < end; e++) {
                    int32_t at = cursor[t->indices[e]]++;
                    t->out_rows[at] = (int32_t)row;
                    t->out_edges[at] = (int32_t)e;
                }
            }
        }
    }
}

/* Fill out with where each id stands; 0 unless the ids are a permutation of [0, length). */
static int invert(const int32_t* ids, int64_t length, int32_t* out) {
    for (int64_t i = 0; i < length; i++) out[i] = -1;
    for (int64_t i = 0; i < length; i++) {
        if (ids[i] < 0 || ids[i] >= length || out[ids[i]] >= 0) return 0;
        out[ids[i]] = (int32_t)i;
    }
    return 1;
}

/* The largest distance between the places of two neighbours; position may be NULL. */
static int64_t measure_bandwidth(const int64_t* indptr, const int32_t* indices, int64_t rows,
                                 const int32_t* position, int threads) {
    int64_t widest = 0;
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1024) reduction(max : widest) \
    if (threads > 1)
    for (int64_t row = 0; row < rows; row++) {
        int64_t at = position ? position[row] : row;
        for (int64_t e = indptr[row]; e < indptr[row + 1]; e++) {
            int64_t apart = at - (position ? position[indices[e]] : indices[e]);
            if (apart < 0) apart = -apart;
            if (apart > widest) widest = apart;
        }
    }
    return widest;
}

/* How many edges lead from one part to another. */
static int64_t count_cut(const int64_t* indptr, const int32_t* indices, int64_t rows,
                         const int32_t* part, int threads) {
    int64_t cut = 0;
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1024) reduction(+ : cut) \
    if (threads > 1)
    for (int64_t row = 0; row < rows; row++)
        for (int64_t e = indptr[row]; e < indptr[row + 1]; e++)
            cut += part[indices[e]] != part[row];
    return cut;
}

/* The bin of a reuse time: one for each time below 8, and then a quarter of an octave each. */
static int64_t reuse_bin(uint64_t time) {
    int octave = 0;
    if (time < 8) return (int64_t)time;
    while (time >> octave >= 8) octave++;
    return 4 * octave + (int64_t)(time >> octave);
}

/* How many entries come again so many entries after their last time, by bin; those that come for
 * the first time are in bin 0. last (columns,) is -1. */
static void count_times(const int32_t* indices, int64_t length, int64_t* last, int64_t* counts) {
    for (int64_t i = 0; i < length; i++) {
        int64_t* before = last + indices[i];
        counts[*before < 0 ? 0 : reuse_bin((uint64_t)(i - *before))]++;
        *before = i;
    }
}

/* Vertices by degree, equal ones by id: a stable radix sort by 11 bits, since degrees may be far
 * too large to count each. Returns the one of order and other (both (V,)) that has the result. */
static int32_t* sort_by_degree(const int64_t* indptr, int64_t rows, int32_t* order,
                               int32_t* other) {
    int64_t largest = 0;
    for (int64_t v = 0; v < rows; v++) {
        int64_t degree = indptr[v + 1] - indptr[v];
        if (degree > largest) largest = degree;
        order[v] = (int32_t)v;
    }
    for (int shift = 0; shift < 63 && largest >> shift; shift += 11) {
        int64_t count[2049] = {0};
        int32_t* swapped = order;
        for (int64_t v = 0; v < rows; v++) {
            int64_t degree = indptr[v + 1] - indptr[v];
            count[(degree >> shift & 2047) + 1]++;
        }
        for (int digit = 0; digit < 2048; digit++) count[digit + 1] += count[digit];
        for (int64_t i = 0; i < rows; i++) {
            int32_t v = order[i];
            int64_t degree = indptr[v + 1] - indptr[v];
            other[count[degree >> shift & 2047]++] = v;
        }
        order = other, other = swapped;
    }
    return order;
}

/* Sort by bytes, leaving out those in which no two keys differ; returns keys or other, whichever
 * has the result. Few keys are sorted by insertion, in place. */
static uint32_t* sort_keys(uint32_t* keys, uint32_t* other, int64_t length) {
    uint32_t differ = 0;
    if (length <= 48) {
        for (int64_t i = 1; i < length; i++) {
            uint32_t key = keys[i];
            int64_t j = i;
            for (; j > 0 && keys[j - 1] > key; j--) keys[j] = keys[j - 1];
            keys[j] = key;
        }
        return keys;
    }
    for (int64_t i = 1; i < length; i++) differ |= keys[i] ^ keys[0];
    for (int shift = 0; shift < 32; shift += 8) {
        int64_t count[257] = {0};
        uint32_t* swapped = keys;
        if (!(differ >> shift & 255)) continue;
        for (int64_t i = 0; i < length; i++) count[(keys[i] >> shift & 255) + 1]++;
        for (int digit = 0; digit < 256; digit++) count[digit + 1] += count[digit];
        for (int64_t i = 0; i < length; i++) other[count[keys[i] >> shift & 255]++] = keys[i];
        keys = other, other = swapped;
    }
    return keys;
}

/* Sort by the bits from low on below high: a stable radix sort of at most 11 bits at a time, which
 * leaves out those that are the same in all keys. Returns keys or other, whichever has the result. */
static uint64_t* sort_by_bits(uint64_t* keys, uint64_t* other, int64_t length, int low, int high) {
    const int passes = (high - low + 10) / 11;
    for (int pass = 0; pass < passes; pass++) {
        const int shift = low + (high - low) * pass / passes;
        const int end = low + (high - low) * (pass + 1) / passes;
        const uint64_t mask = ((uint64_t)1 << (end - shift)) - 1;
        int64_t count[2049] = {0};
        uint64_t* swapped = keys;
        for (int64_t i = 0; i < length; i++) count[(keys[i] >> shift & mask) + 1]++;
        if (length == 0 || count[(keys[0] >> shift & mask) + 1] == length) continue;
        for (int digit = 0; digit < 2048; digit++) count[digit + 1] += count[digit];
        for (int64_t i = 0; i < length; i++) other[count[keys[i] >> shift & mask]++] = keys[i];
        keys = other, other = swapped;
    }
    return keys;
}

/* What breadth-first searches share: rank[v] is the place of v when vertices are sorted by degree,
 * equal ones by id. */
typedef struct {
    const int64_t* indptr;
    const int32_t* indices;
    int64_t vertices;
    const int32_t* rank;
    const int32_t* by_rank;
} Ranked;

/* The Cuthill-McKee order of a whole graph, component after component, and the searches' own
 * room. */
typedef struct {
    const int32_t* starts; /* where a component is met first, there its search begins */
    int64_t step;          /* 1, or -1 to read starts from the end */
    uint64_t* seen;        /* (V + 63) / 64 words of 0, a bit a vertex */
    uint32_t* room;        /* (2, V) */
    int32_t* order;        /* (V,) */
    int32_t* begins;       /* (V + 1,), the first of each component in order */
    int32_t* widths;       /* (V,), the bandwidth of each component */
    int64_t components;
} Ordering;

/* Breadth-first from the vertex at order[at], each vertex's new neighbours by rank (Cuthill and
 * McKee 1969); returns where the component ends. In a symmetric graph the neighbour furthest before
 * a vertex is the one that it was reached from, so the bandwidth comes for free. */
static int64_t search(const Ranked* g, Ordering* o, int64_t at, int32_t* bandwidth) {
    int64_t count = at + 1, widest = 0;
    int32_t* order = o->order;
    o->seen[order[at] >> 6] |= 1ull << (order[at] & 63);
    for (; at < count && count < g->vertices; at++) { /* with all found, rows have nothing new */
        int64_t v = order[at], found = 0;
        uint32_t* keys = o->room;
        if (at + 4 < count) PREFETCH(&g->indptr[order[at + 4]]);
        if (at + 2 < count) PREFETCH(&g->indices[g->indptr[order[at + 2]]]);
        for (int64_t e = g->indptr[v]; e < g->indptr[v + 1]; e++) {
            int32_t u = g->indices[e];
            uint64_t bit = 1ull << (u & 63);
            if (o->seen[u >> 6] & bit) continue;
            o->seen[u >> 6] |= bit;
            keys[found++] = (uint32_t)u;
        }
        if (found == 0) continue;
        if (found == 1) {
            order[count] = (int32_t)keys[0];
        } else {
            for (int64_t i = 0; i < found; i++) keys[i] = (uint32_t)g->rank[keys[i]];
            keys = sort_keys(keys, keys + found, found);
            for (int64_t i = 0; i < found; i++) order[count + i] = g->by_rank[keys[i]];
        }
        count += found;
        if (count - 1 - at > widest) widest = count - 1 - at;
    }
    *bandwidth = (int32_t)widest;
    return count;
}

static void order_components(const Ranked* g, Ordering* o) {
    int64_t placed = 0;
    o->components = 0;
    for (int64_t i = 0; placed < g->vertices; i++) {
        int32_t v = o->starts[o->step > 0 ? i : g->vertices - 1 - i];
        if (o->seen[v >> 6] >> (v & 63) & 1) continue;
        o->begins[o->components] = (int32_t)placed;
        o->order[placed] = v;
        placed = search(g, o, placed, &o->widths[o->components++]);
    }
    o->begins[o->components] = (int32_t)placed;
}

/* Compute the first ordering, or with `twice` both, of which it then keeps, for each component,
 * whichever is narrower; home is (V,). In a graph that is not symmetric a component of one may not be one of the other; it then
 * stays as it is. */
static void order_vertices(const Ranked* g, Ordering* o, int twice, int32_t* home, int threads) {
    (void)threads;
    if (!twice) {
        order_components(g, o);
        return;
    }
#pragma omp parallel for num_threads(2) schedule(static, 1) if (threads > 1)
    for (int i = 0; i < 2; i++) order_components(g, &o[i]);
    for (int64_t c = 0; c < o[0].components; c++)
        for (int64_t i = o[0].begins[c]; i < o[0].begins[c + 1]; i++)
            home[o[0].order[i]] = (int32_t)c;
    for (int64_t d = 0; d < o[1].components; d++) {
        int64_t begin = o[1].begins[d], end = o[1].begins[d + 1], same = begin;
        int32_t c = home[o[1].order[begin]];
        if (o[1].widths[d] >= o[0].widths[c]) continue;
        if (o[0].begins[c + 1] - o[0].begins[c] != end - begin) continue;
        while (same < end && home[o[1].order[same]] == c) same++;
        if (same == end)
            memcpy(o[0].order + o[0].begins[c], o[1].order + begin,
                   (size_t)(end - begin) * sizeof(int32_t));
    }
}

typedef struct {
    const int64_t* indptr;
    const int32_t* indices;
    int64_t vertices;
    const int32_t* order;
    int32_t parts;
    int64_t capacity;
    int fennel, by_work;
    double weight;   /* Fennel's alpha times gamma */
    double scale;    /* vertices for a unit of what parts are balanced by */
    int32_t* part;   /* (V,), -1 for a vertex not placed yet */
    int64_t* size;   /* (parts,) */
    double* fullness; /* (parts,) */
    int64_t* count;  /* (parts,), zero */
} Stream;

/* One pass: each vertex goes where most neighbours are, less what the part's size costs. A part
 * without neighbours cannot beat the smallest one, so only this and the neighbours' are weighed. A
 * vertex counts once, or as much as it costs to compute: once, and once for each in-edge. */
static void stream_once(Stream* s) {
    int32_t smallest = 0;
    for (int32_t p = 0; p < s->parts; p++) s->size[p] = 0, s->fullness[p] = s->fennel ? 0.0 : 1.0;
    for (int64_t i = 0; i < s->vertices; i++) {
        int32_t v = s->order[i], best = smallest;
        const int64_t load = s->by_work ? 1 + s->indptr[v + 1] - s->indptr[v] : 1;
        const double toll = (double)load * s->scale;
        double highest = s->fennel ? -toll * s->fullness[smallest] : 0.0;
        if (i + 16 < s->vertices) PREFETCH(&s->indptr[s->order[i + 16]]);
        if (i + 8 < s->vertices) PREFETCH(&s->indices[s->indptr[s->order[i + 8]]]);
        for (int64_t e = s->indptr[v]; e < s->indptr[v + 1]; e++) {
            int32_t p = s->part[s->indices[e]];
            if (p >= 0) s->count[p]++;
        }
        for (int64_t e = s->indptr[v]; e < s->indptr[v + 1]; e++) {
            int32_t p = s->part[s->indices[e]];
            double score;
            if (p < 0 || s->count[p] == 0) continue;
            score = (double)s->count[p];
            score = s->fennel ? score - toll * s->fullness[p] : score * s->fullness[p];
            s->count[p] = 0;
            if (s->size[p] >= s->capacity || score < highest) continue;
            if (score > highest || s->size[p] < s->size[best] ||
                (s->size[p] == s->size[best] && p < best))
                best = p, highest = score;
        }
        s->part[v] = best;
        s->size[best] += load;
        s->fullness[best] = s->fennel ? s->weight * sqrt((double)s->size[best] * s->scale)
                                      : 1.0 - (double)s->size[best] / (double)s->capacity;
        if (best == smallest)
            for (int32_t p = 0; p < s->parts; p++)
                if (s->size[p] < s->size[smallest] ||
                    (s->size[p] == s->size[smallest] && p < smallest))
                    smallest = p;
    }
}

#endif
