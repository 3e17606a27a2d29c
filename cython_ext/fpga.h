/* The inner loops of fpga.pyx. The machine, rule by rule, stands in
 * gnnbench/kernels/reference/fpga.py. */
#ifndef GNNBENCH_FPGA_H
#define GNNBENCH_FPGA_H

#include <stdint.h>

/* A message is rounded before it is added, as in the twin. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("fp-contract=off")
#endif

typedef struct {
    int64_t dies, pes, adder_cycles, fifo_updates, cycle_ticks, burst_ticks, miss_ticks;
    int64_t latency_ticks, page_shift, banks, row_words; /* 2^page_shift words a page */
    int64_t rows_kept; /* rows that a gather PE keeps; 0 where all of its rows find room */
    int64_t contended;
} Machine;

typedef struct {
    int64_t channel, held, row_there, pe, slot, first; /* pe and slot: of the next edge */
    int64_t cycles, loads, channel_ticks, misses, spilled_rows, conflicts, hazards, starved;
} Die;

typedef struct {
    Die *dies;
    int64_t *open_page;    /* (dies, banks) */
    int64_t *scatter_free; /* (dies, pes) */
    int64_t *link_free;    /* (dies, stages, pes) */
    int64_t *gather_free;  /* (dies, pes) */
    int64_t *taken;        /* (dies, fifo_updates, pes) */
    int64_t *kept;         /* (dies, pes, rows_kept), -1 where empty */
    uint8_t *spilled;      /* (num_dst,) */
    int64_t *last;         /* (num_dst,) */
    int64_t *complete;     /* (num_dst,) */
} State;

static inline int64_t later(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

static void load_row(const Machine *m, Die *die, int64_t *open_page, int64_t address,
                     int64_t ready) {
    const int64_t first = address * m->row_words;
    const int64_t end = (first + m->row_words - 1) >> m->page_shift;
    int64_t opened = 0;
    for (int64_t page = first >> m->page_shift; page <= end; page++) {
        int64_t *bank = open_page + page % m->banks;
        opened += *bank != page;
        *bank = page;
    }
    const int64_t ticks = opened * m->miss_ticks + m->row_words * m->burst_ticks;
    die->channel = later(die->channel, ready * m->cycle_ticks) + ticks;
    const int64_t arrival = divide_up(die->channel + m->latency_ticks, m->cycle_ticks) + 1;
    die->row_there = later(arrival, die->row_there + m->row_words);
    die->loads++;
    die->misses += opened;
    die->channel_ticks += ticks;
}

/* Makes room for a row of a gather PE; returns when it is there. */
static int64_t make_room(const Machine *m, Die *die, int64_t *kept, uint8_t *spilled, int64_t v,
                         int64_t t) {
    const int64_t other = *kept;
    *kept = v;
    if (other < 0 || other == v) return t;
    const int64_t moved = 1 + spilled[v];
    spilled[other] = 1;
    die->spilled_rows += moved;
    die->channel += moved * (m->miss_ticks + m->row_words * m->burst_ticks);
    return later(t, divide_up(die->channel, m->cycle_ticks));
}

static void simulate_edges(const Machine *machine, const State *state, const int32_t *src,
                           const int32_t *dst, int64_t edges, const int64_t *address,
                           const int64_t *ready) {
    const Machine m = *machine;
    const State s = *state;
    const int64_t n = m.pes, width = m.row_words, adder = m.adder_cycles;
    int stages = 0;
    while (n >> (stages + 1)) stages++;
    for (int64_t e = 0; e < edges; e++) {
        const int64_t u = src[e], v = dst[e];
        int64_t d = 0;
        for (int64_t k = 1; k < m.dies; k++) d += v >= s.dies[k].first;
        Die *die = s.dies + d;
        if (die->held != u) {
            die->held = u;
            load_row(&m, die, s.open_page + d * m.banks, address[u], ready[u]);
        }
        const int64_t pe = die->pe;
        int64_t *taken = s.taken + (d * m.fifo_updates + die->slot) * n + pe;
        int64_t *scatter_free = s.scatter_free + d * n + pe;
        die->pe = (pe + 1) & (n - 1);
        if (die->pe == 0 && ++die->slot == m.fifo_updates) die->slot = 0;
        const int64_t free_at = later(*scatter_free, *taken);
        int64_t t = later(free_at, die->row_there);
        die->starved += t - free_at;
        *scatter_free = t + width;
        t++;

        const int64_t local = v - die->first, gather = local & (n - 1);
        const int64_t unhindered = t + stages;
        int64_t *gather_free = s.gather_free + d * n + gather;
        if (m.contended) {
            int64_t place = pe, *links = s.link_free + d * stages * n;
            for (int64_t bit = n >> 1; bit; bit >>= 1, links += n) {
                place = (place & ~bit) | (gather & bit);
                t = later(t, links[place]);
                links[place] = t + width;
                t++;
            }
            t = later(t, *gather_free);
        } else {
            t = unhindered;
        }
        die->conflicts += t - unhindered;
        if (m.rows_kept) {
            const int64_t place = (d * n + gather) * m.rows_kept + local / n % m.rows_kept;
            t = make_room(&m, die, s.kept + place, s.spilled, v, t);
        }
        const int64_t safe = later(t, s.last[v] + adder);
        die->hazards += safe - t;
        t = safe;
        s.last[v] = t;
        *gather_free = *taken = t + width;
        s.complete[v] = t + width - 1 + adder;
        die->cycles = later(die->cycles, s.complete[v]);
    }
}

static void add_updates(const int32_t *src, const int32_t *dst, const float *weight, int64_t edges,
                        const float *rows, int64_t width, float *out) {
    for (int64_t e = 0; e < edges; e++) {
        const float *row = rows + src[e] * width, w = weight[e];
        float *sum = out + dst[e] * width;
        for (int64_t k = 0; k < width; k++) {
            const float message = w * row[k];
            sum[k] += message;
        }
    }
}

#endif
