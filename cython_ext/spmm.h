/* The inner loops of spmm.pyx. The machine, rule by rule, stands in
 * gnnbench/kernels/reference/spmm.py. */
#ifndef GNNBENCH_SPMM_H
#define GNNBENCH_SPMM_H

#include <stdint.h>
#include <string.h>

#include "rows_simd.h"

typedef struct {
    int64_t edges, segments, loaded_rows, bank_cycles;
} Step;

/* A slice's lanes: how many become free at each cycle from ``now`` on, which is place ``place``. */
typedef struct {
    int32_t *free_at; /* a ring */
    int64_t now, place;
} Lanes;

/* The first set bit at or behind place ``from``; ``size`` where there is none. */
static int64_t next_bit(const uint64_t *bits, int64_t from, int64_t size) {
    if (from >= size) return size;
    int64_t word = from >> 6;
    uint64_t rest = bits[word] >> (from & 63);
    if (rest) return from + __builtin_ctzll(rest);
    const int64_t words = (size + 63) >> 6;
    while (++word < words)
        if (bits[word]) return (word << 6) + __builtin_ctzll(bits[word]);
    return size;
}

/* The last set bit before place ``end``, of which one is known to be set. */
static int64_t last_bit(const uint64_t *bits, int64_t end) {
    int64_t word = (end - 1) >> 6;
    const int64_t unused = 63 - ((end - 1) & 63);
    uint64_t rest = bits[word] << unused;
    if (rest) return end - 1 - __builtin_clzll(rest);
    while (!bits[--word]) {}
    return (word << 6) + 63 - __builtin_clzll(bits[word]);
}

static void mark_sources(const int32_t *indices, int64_t edges, uint64_t *bits) {
    for (int64_t e = 0; e < edges; e++) bits[indices[e] >> 6] |= 1ull << (indices[e] & 63);
}

/* The same for windows of one row: all rows that are read, and no others. */
static int64_t cut_rows(const uint64_t *bits, int64_t num_src, int64_t begin, int64_t chunk_rows,
                        int64_t *rows) {
    const int64_t words = (num_src + 63) >> 6;
    int64_t word = begin >> 6;
    uint64_t rest = bits[word] & (~0ull << (begin & 63));
    *rows = 0;
    for (;;) {
        const int64_t found = rest ? __builtin_popcountll(rest) : 0;
        if (*rows + found > chunk_rows) {
            for (; *rows < chunk_rows; ++*rows) rest &= rest - 1;
            return (word << 6) + __builtin_ctzll(rest);
        }
        *rows += found;
        if (++word == words) return num_src;
        rest = bits[word];
    }
}

/* One chunk of a tile, from source ``begin``; returns where the next one begins. */
static int64_t cut_chunk(const uint64_t *bits, int64_t num_src, int64_t begin, int64_t chunk_rows,
                         int64_t window_rows, int64_t *rows) {
    if (window_rows == 1) return cut_rows(bits, num_src, begin, chunk_rows, rows);
    *rows = 0;
    int64_t u = next_bit(bits, begin, num_src);
    while (u < num_src) {
        const int64_t end = u + window_rows < num_src ? u + window_rows : num_src;
        const int64_t span = last_bit(bits, end) - u + 1;
        if (*rows + span > chunk_rows) return u;
        *rows += span;
        u = next_bit(bits, end, num_src);
    }
    return num_src;
}

/* Where a tile's chunks begin: chunk c has the sources ``begin[c]`` to ``begin[c + 1]``, and word
 * w of 64 sources begins in chunk ``of_word[w]``. */
typedef struct {
    int64_t *begin; /* (chunks + 1) */
    int32_t *of_word;
    int64_t chunks;
} Cuts;

/* Takes over a tile's chunks; ``begin`` and ``of_word`` have room for all of them. */
static void set_cuts(Cuts *cuts, const int64_t *begin, int64_t chunks, int64_t num_src) {
    cuts->chunks = chunks;
    memcpy(cuts->begin, begin, (size_t)chunks * sizeof(int64_t));
    cuts->begin[chunks] = num_src;
    for (int64_t c = 0; c < chunks; c++)
        for (int64_t w = (cuts->begin[c] + 63) >> 6; w < (cuts->begin[c + 1] + 63) >> 6; w++)
            cuts->of_word[w] = (int32_t)c;
}

static inline int64_t chunk_of(const Cuts *cuts, int32_t u) {
    int64_t c = cuts->of_word[u >> 6];
    while (u >= cuts->begin[c + 1]) c++;
    return c;
}

/* Adds a tile's edges and segments, by chunk. */
static void count_tile(const Cuts *cuts, const int64_t *indptr, const int32_t *indices,
                       int64_t first, int64_t last, int64_t *edges, int64_t *segments) {
    for (int64_t v = first; v < last; v++) {
        int64_t before = -1;
        for (int64_t e = indptr[v]; e < indptr[v + 1]; e++) {
            const int64_t c = chunk_of(cuts, indices[e]);
            edges[c]++;
            segments[c] += c != before;
            before = c;
        }
    }
}

/* A tile's edges, chunk by chunk: their sources, and so many of each destination (a segment).
 * ``next_edge`` and ``next_segment`` are where each chunk's begin, and afterwards end. Edges of
 * destinations of which nothing is wanted have the source ``nobody``. */
typedef struct {
    int32_t *sources, *rows, *edges;
    int64_t *next_edge, *next_segment;
    int32_t nobody;
} Sorted;

static void sort_tile(const Cuts *cuts, const int64_t *indptr, const int32_t *indices,
                      int64_t first, int64_t last, const uint8_t *selected, Sorted *sorted) {
    int32_t *restrict sources = sorted->sources, *restrict rows = sorted->rows;
    int32_t *restrict edges = sorted->edges;
    int64_t *restrict next_edge = sorted->next_edge, *restrict next_segment = sorted->next_segment;
    for (int64_t v = first; v < last; v++) {
        const int32_t nobody = selected[v] ? 0 : sorted->nobody;
        int64_t before = -1;
        for (int64_t e = indptr[v]; e < indptr[v + 1]; e++) {
            /* Without branches on where segments end: they are short, and nobody can foretell. */
            const int64_t c = chunk_of(cuts, indices[e]), begins = c != before;
            sources[next_edge[c]++] = nobody ? nobody : indices[e];
            const int64_t segment = (next_segment[c] += begins) - 1;
            rows[segment] = (int32_t)v;
            edges[segment] = begins ? 1 : edges[segment] + 1;
            before = c;
        }
    }
}

/* Gives ``pieces`` of ``cycles`` each, fewer than the ring's, to the lanes that are free first. */
static inline void assign(Lanes *lanes, int64_t ring, int64_t pieces, int64_t cycles) {
    int32_t *free_at = lanes->free_at;
    int64_t place = lanes->place;
    while (pieces) {
        while (!free_at[place]) {
            lanes->now++;
            if (++place == ring) place = 0;
        }
        const int64_t some = free_at[place] < pieces ? free_at[place] : pieces;
        const int64_t later = place + cycles;
        free_at[place] -= some;
        free_at[later < ring ? later : later - ring] += some;
        pieces -= some;
    }
    lanes->place = place;
}

/* When the last lane is free. */
static int64_t end_of(const Lanes *lanes, int64_t ring) {
    for (int64_t after = ring - 1; after > 0; after--)
        if (lanes->free_at[(lanes->place + after) % ring]) return lanes->now + after;
    return lanes->now;
}

/* The same for one piece, as most segments are. */
static inline void assign_one(Lanes *lanes, int64_t ring, int64_t cycles) {
    int32_t *free_at = lanes->free_at;
    int64_t place = lanes->place;
    while (!free_at[place]) {
        lanes->now++;
        if (++place == ring) place = 0;
    }
    const int64_t later = place + cycles;
    free_at[place]--;
    free_at[later < ring ? later : later - ring]++;
    lanes->place = place;
}

/* Few lanes of SIDE slices side by side, int32 (lanes, SIDE): when each is free, ascending. A piece
 * of each slice goes to the first lane, which then moves up to its place. */
enum { SIDE = 16 };

typedef void (*HandOut)(int32_t *free_at, int64_t lanes, const int32_t *cycles);

static void hand_out_plain(int32_t *free_at, int64_t lanes, const int32_t *cycles) {
    for (int64_t s = 0; s < SIDE; s++) {
        int32_t until = free_at[s] + cycles[s];
        for (int64_t lane = 1; lane < lanes; lane++) {
            const int32_t next = free_at[lane * SIDE + s];
            free_at[(lane - 1) * SIDE + s] = next < until ? next : until;
            until = next < until ? until : next;
        }
        free_at[(lanes - 1) * SIDE + s] = until;
    }
}

#ifdef X86
FOR_AVX2 static void hand_out_avx2(int32_t *free_at, int64_t lanes, const int32_t *cycles) {
    __m256i *at = (__m256i *)free_at;
    const __m256i *taken = (const __m256i *)cycles;
    __m256i one = _mm256_add_epi32(_mm256_loadu_si256(at), _mm256_loadu_si256(taken));
    __m256i two = _mm256_add_epi32(_mm256_loadu_si256(at + 1), _mm256_loadu_si256(taken + 1));
    for (int64_t lane = 1; lane < lanes; lane++, at += 2) {
        const __m256i next_one = _mm256_loadu_si256(at + 2), next_two = _mm256_loadu_si256(at + 3);
        _mm256_storeu_si256(at, _mm256_min_epi32(next_one, one));
        _mm256_storeu_si256(at + 1, _mm256_min_epi32(next_two, two));
        one = _mm256_max_epi32(next_one, one);
        two = _mm256_max_epi32(next_two, two);
    }
    _mm256_storeu_si256(at, one);
    _mm256_storeu_si256(at + 1, two);
}

FOR_AVX512 static void hand_out_avx512(int32_t *free_at, int64_t lanes, const int32_t *cycles) {
    __m512i until = _mm512_add_epi32(_mm512_loadu_si512(free_at), _mm512_loadu_si512(cycles));
    for (int64_t lane = 1; lane < lanes; lane++, free_at += SIDE) {
        const __m512i next = _mm512_loadu_si512(free_at + SIDE);
        _mm512_storeu_si512(free_at, _mm512_min_epi32(next, until));
        until = _mm512_max_epi32(next, until);
    }
    _mm512_storeu_si512(free_at, until);
}
#endif

/* How lanes are handed out side by side, and up to how many of them that is the faster way. */
static HandOut choose_hand_out(int64_t *most_lanes) {
    const int level = simd_level();
    *most_lanes = level == AVX512 ? 64 : level == AVX2 ? 32 : 8;
#ifdef X86
    if (level == AVX512) return hand_out_avx512;
    if (level == AVX2) return hand_out_avx2;
#endif
    return hand_out_plain;
}

typedef struct {
    const int32_t *wanted; /* (rows, slices) */
    const uint8_t *selected;
    int64_t slices, ring, piece_edges, groups, passes, window_edges, num_lanes;
    const int32_t *cycles_of; /* (piece_edges + 1, slice features + 1) */
    int64_t slice_features;
    HandOut hand_out;  /* where lanes stand side by side, else NULL */
    int32_t *free_at;  /* (slices / SIDE rounded up, lanes, SIDE) */
    Lanes *lanes;
    int32_t *window_of, *reads;
    int32_t window; /* the last one that was opened */
} Walk;

static void free_lanes(Walk *walk) {
    const int64_t blocks = (walk->slices + SIDE - 1) / SIDE;
    if (walk->hand_out) {
        memset(walk->free_at, 0, (size_t)(blocks * walk->num_lanes * SIDE) * sizeof(int32_t));
        return;
    }
    for (int64_t s = 0; s < walk->slices; s++) {
        Lanes *lanes = walk->lanes + s;
        memset(lanes->free_at, 0, (size_t)walk->ring * sizeof(int32_t));
        lanes->free_at[0] = (int32_t)walk->num_lanes;
        lanes->now = lanes->place = 0;
    }
}

static void end_lanes(const Walk *walk, int64_t *lane_cycles) {
    for (int64_t s = 0; s < walk->slices; s++) {
        const int64_t last = (s / SIDE + 1) * walk->num_lanes - 1;
        lane_cycles[s] = walk->hand_out ? walk->free_at[last * SIDE + s % SIDE]
                                        : end_of(walk->lanes + s, walk->ring);
    }
}

static void share_side_by_side(Walk *walk, const int32_t *wanted, int64_t whole,
                               const int32_t *whole_cycles, int64_t rest,
                               const int32_t *rest_cycles) {
    int32_t *free_at = walk->free_at;
    for (int64_t s = 0; s < walk->slices; s += SIDE, free_at += walk->num_lanes * SIDE) {
        const int64_t some = walk->slices - s < SIDE ? walk->slices - s : SIDE;
        int32_t cycles[SIDE] = {0};
        if (whole) {
            for (int64_t k = 0; k < some; k++) cycles[k] = whole_cycles[wanted[s + k]];
            for (int64_t piece = 0; piece < whole; piece++)
                walk->hand_out(free_at, walk->num_lanes, cycles);
        }
        if (rest) {
            for (int64_t k = 0; k < some; k++) cycles[k] = rest_cycles[wanted[s + k]];
            walk->hand_out(free_at, walk->num_lanes, cycles);
        }
    }
}

static void share_segment(Walk *walk, int64_t v, int64_t edges) {
    const int64_t whole = edges < walk->piece_edges ? 0 : edges / walk->piece_edges;
    const int64_t rest = edges - whole * walk->piece_edges;
    const int64_t columns = walk->slice_features + 1;
    const int32_t *whole_cycles = walk->cycles_of + walk->piece_edges * columns;
    const int32_t *rest_cycles = walk->cycles_of + rest * columns;
    const int32_t *wanted = walk->wanted + v * walk->slices;
    if (walk->hand_out) {
        share_side_by_side(walk, wanted, whole, whole_cycles, rest, rest_cycles);
        return;
    }
    if (whole)
        for (int64_t s = 0; s < walk->slices; s++)
            assign(walk->lanes + s, walk->ring, whole, whole_cycles[wanted[s]]);
    if (rest)
        for (int64_t s = 0; s < walk->slices; s++)
            assign_one(walk->lanes + s, walk->ring, rest_cycles[wanted[s]]);
}

/* Reads of ``edges`` sources within one window; how many of them are the chunk's first. */
static int64_t read_sources(Walk *walk, const int32_t *sources, int64_t edges, int32_t opened) {
    const int32_t window = walk->window, mask = (int32_t)walk->groups - 1;
    int32_t *restrict window_of = walk->window_of, *restrict reads = walk->reads;
    int64_t loaded = 0;
    for (int64_t e = 0; e < edges; e++) {
        const int32_t u = sources[e], seen = window_of[u];
        loaded += seen < opened;
        reads[u & mask] += seen != window;
        window_of[u] = window;
    }
    return loaded;
}

/* One chunk of a tile: its edges and its segments. */
static void walk_step(Walk *walk, const Sorted *sorted, int64_t edge, int64_t edges,
                      int64_t segment, int64_t segments, Step *step, int64_t *lane_cycles) {
    const int32_t opened = walk->window + 1;
    memset(walk->reads, 0, (size_t)walk->groups * sizeof(int32_t));
    while (edges) {
        const int64_t some = edges < walk->window_edges ? edges : walk->window_edges;
        walk->window++;
        walk->window_of[sorted->nobody] = walk->window; /* so that it is not read */
        step->loaded_rows += read_sources(walk, sorted->sources + edge, some, opened);
        edge += some;
        edges -= some;
    }
    for (int64_t g = 0; g < walk->groups; g++)
        if (walk->reads[g] * walk->passes > step->bank_cycles)
            step->bank_cycles = walk->reads[g] * walk->passes;
    free_lanes(walk);
    for (int64_t k = segment; k < segment + segments; k++) {
        const int64_t v = sorted->rows[k];
        if (!walk->selected[v]) continue;
        step->edges += sorted->edges[k];
        step->segments++;
        share_segment(walk, v, sorted->edges[k]);
    }
    end_lanes(walk, lane_cycles);
}

/* When the last of the steps is done, in two halves: see ``reference.spmm.overlap_steps``. */
static void overlap_steps(const int64_t *loads, const int64_t *computes, const int64_t *writes,
                          int64_t steps, int64_t byte_ticks, int64_t cycle_ticks, uint64_t *end) {
    __extension__ typedef unsigned __int128 Ticks;
    Ticks memory = 0, before = 0, last = 0, pending_before = 0, pending_last = 0;
    for (int64_t k = 0; k < steps; k++) {
        memory = (memory > before ? memory : before) + pending_before
                 + (Ticks)loads[k] * (Ticks)byte_ticks;
        const Ticks starts = last > memory ? last : memory;
        before = last;
        last = starts + (Ticks)computes[k] * (Ticks)cycle_ticks;
        pending_before = pending_last;
        pending_last = (Ticks)writes[k] * (Ticks)byte_ticks;
    }
    memory = (memory > before ? memory : before) + pending_before;
    memory = (memory > last ? memory : last) + pending_last;
    end[0] = (uint64_t)memory;
    end[1] = (uint64_t)(memory >> 64);
}

/* One chunk of one slice: columns[k] of each row v from start[v] on are added, source by source. */
static void add_step(const int64_t *indptr, const int32_t *indices, int64_t first, int64_t last,
                     int64_t *cursor, int64_t bound, const int32_t *columns, const int64_t *start,
                     const float *rows, float *out, int64_t width) {
    for (int64_t v = first; v < last; v++) {
        int64_t e = cursor[v - first];
        const int32_t *wanted = columns + start[v - first];
        const int64_t count = start[v - first + 1] - start[v - first];
        for (; e < indptr[v + 1] && indices[e] < bound; e++) {
            const float *row = rows + indices[e] * width;
            for (int64_t k = 0; k < count; k++) out[v * width + wanted[k]] += row[wanted[k]];
        }
        cursor[v - first] = e;
    }
}

#endif
