/* The inner loops of spmm.pyx. The machine, rule by rule, stands in
 * gnnbench/kernels/reference/spmm.py. */
#ifndef GNNBENCH_SPMM_H
#define GNNBENCH_SPMM_H

#include <stdint.h>
#include <string.h>

#include "bits.h"

typedef struct {
    int64_t edges, segments, loaded_rows, bank_cycles;
} Step;

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
        const int64_t found = count_bits(rest);
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

/* A slice's lanes within a chunk: how many become free at each cycle from ``now`` on, which is place
 * ``place``. */
typedef struct {
    int32_t *free_at; /* a ring */
    int64_t now, place;
} Lanes;

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

/* Where a chunk's edges have got to: the window they are in, and how many it still takes. */
typedef struct {
    int32_t window, left;
} Position;

/* A tile's chunks side by side, since no source is in two of them: edges are taken as they are
 * stored, and each counts for its own chunk. */
typedef struct {
    const int32_t *wanted; /* (rows, slices) */
    const uint8_t *selected;
    int64_t slices, slice_features, num_lanes, piece_edges, ring, groups, passes, window_edges;
    const int32_t *cycles_of; /* (piece_edges + 1, slice_features + 1) */
    Position *positions;      /* (chunks) */
    int32_t *reads;           /* (chunks, groups), of the banks */
    Lanes *lanes;             /* (chunks, slices) */
    int32_t *free_at;         /* (chunks, slices, ring), of several lanes */
    int32_t *segment_chunk, *segment_end; /* (chunks), of one destination */
    int32_t *window_of;       /* (sources), in which each was read last */
    int32_t window;           /* the last one of the tiles before */
} Walk;

static void open_tile(Walk *walk, int64_t chunks, int64_t edges, int64_t num_src) {
    if (walk->window > INT32_MAX - 2 - edges / walk->window_edges) {
        memset(walk->window_of, 0, (size_t)num_src * sizeof(int32_t));
        walk->window = 0;
    }
    memset(walk->reads, 0, (size_t)(chunks * walk->groups) * sizeof(int32_t));
    memset(walk->free_at, 0, (size_t)(chunks * walk->slices * walk->ring) * sizeof(int32_t));
    for (int64_t c = 0; c < chunks; c++) {
        walk->positions[c].window = walk->window + 1;
        walk->positions[c].left = (int32_t)walk->window_edges;
    }
    for (int64_t k = 0; k < chunks * walk->slices; k++) {
        Lanes *lanes = walk->lanes + k;
        lanes->free_at = walk->free_at + k * walk->ring;
        lanes->free_at[0] = (int32_t)walk->num_lanes;
        lanes->now = lanes->place = 0;
    }
}

static void close_tile(Walk *walk, int64_t chunks, Step *steps, int64_t *lane_cycles) {
    for (int64_t c = 0; c < chunks; c++) {
        for (int64_t g = 0; g < walk->groups; g++) {
            const int64_t cycles = walk->reads[c * walk->groups + g] * walk->passes;
            if (cycles > steps[c].bank_cycles) steps[c].bank_cycles = cycles;
        }
        if (walk->positions[c].window > walk->window) walk->window = walk->positions[c].window;
    }
    for (int64_t k = 0; k < chunks * walk->slices; k++)
        lane_cycles[k] = end_of(walk->lanes + k, walk->ring);
}

/* One more edge of a chunk. */
static inline void advance(Position *position, int64_t window_edges) {
    const int32_t full = position->left == 1;
    position->window += full;
    position->left = full ? (int32_t)window_edges : position->left - 1;
}

/* Reads the sources of one destination; how many segments they are, each within a chunk. */
static int64_t read_row(Walk *walk, const Cuts *cuts, const int32_t *sources, int64_t edges,
                        Step *steps) {
    const int32_t opened = walk->window + 1, mask = (int32_t)walk->groups - 1;
    int32_t *restrict window_of = walk->window_of, *restrict reads = walk->reads;
    int64_t before = -1, segments = 0;
    /* Without branches on where segments end: they are short, and nobody can foretell. */
    for (int64_t e = 0; e < edges; e++) {
        const int32_t u = sources[e], seen = window_of[u];
        const int64_t c = chunk_of(cuts, u);
        const int32_t window = walk->positions[c].window;
        steps[c].loaded_rows += seen < opened;
        reads[c * walk->groups + (u & mask)] += seen != window;
        window_of[u] = window;
        advance(walk->positions + c, walk->window_edges);
        segments += c != before;
        walk->segment_chunk[segments - 1] = (int32_t)c;
        walk->segment_end[segments - 1] = (int32_t)(e + 1);
        before = c;
    }
    return segments;
}

/* A segment of a destination on a chunk's lanes. */
static inline void share_segment(const Walk *walk, int64_t c, const int32_t *wanted,
                                 int64_t edges) {
    const int64_t whole = (uint32_t)edges / (uint32_t)walk->piece_edges;
    const int64_t rest = edges - whole * walk->piece_edges;
    const int64_t columns = walk->slice_features + 1;
    const int32_t *whole_cycles = walk->cycles_of + walk->piece_edges * columns;
    const int32_t *rest_cycles = walk->cycles_of + rest * columns;
    Lanes *lanes = walk->lanes + c * walk->slices;
    if (walk->num_lanes == 1) { /* one piece after the other; none takes no time */
        for (int64_t s = 0; s < walk->slices; s++)
            lanes[s].now += whole * whole_cycles[wanted[s]] + rest_cycles[wanted[s]];
        return;
    }
    for (int64_t s = 0; s < walk->slices; s++) {
        if (whole) assign(lanes + s, walk->ring, whole, whole_cycles[wanted[s]]);
        if (rest) assign(lanes + s, walk->ring, 1, rest_cycles[wanted[s]]);
    }
}

static void walk_tile(Walk *walk, const Cuts *cuts, const int64_t *indptr, const int32_t *indices,
                      int64_t first, int64_t last, Step *steps) {
    for (int64_t v = first; v < last; v++) {
        const int32_t *sources = indices + indptr[v];
        const int64_t edges = indptr[v + 1] - indptr[v];
        if (!walk->selected[v]) { /* handed out, and passed over */
            for (int64_t e = 0; e < edges; e++)
                advance(walk->positions + chunk_of(cuts, sources[e]), walk->window_edges);
            continue;
        }
        const int64_t segments = read_row(walk, cuts, sources, edges, steps);
        int64_t begin = 0;
        for (int64_t k = 0; k < segments; k++) {
            const int64_t c = walk->segment_chunk[k], end = walk->segment_end[k];
            steps[c].edges += end - begin;
            steps[c].segments++;
            share_segment(walk, c, walk->wanted + v * walk->slices, end - begin);
            begin = end;
        }
    }
}

static void count_reads(const int32_t *indices, int64_t edges, int32_t *counts) {
    for (int64_t e = 0; e < edges; e++) counts[indices[e]]++;
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

#endif
