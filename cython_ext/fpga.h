/* The inner loops of fpga.pyx. The machine, rule by rule, stands in
 * gnnbench/kernels/reference/fpga.py. */
#ifndef GNNBENCH_FPGA_H
#define GNNBENCH_FPGA_H

#include <stdint.h>

#include "rows_simd.h"

/* A message is rounded before it is added, as in the twin. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("fp-contract=off")
#endif

/* Edges are taken a stretch at a time: sorted by die, then a die's loads, then its updates. Whether
 * an edge's row is there already, and which die is next, is hard to foretell; so no branch asks. */
enum { STRETCH = 512 };
/* Edges come four to a word; one word may have begun in the stretch before. */
enum { EDGES_SHIFT = 2, WORDS = (STRETCH >> EDGES_SHIFT) + 2 };

typedef struct {
    int64_t dies, pes, adder_cycles, fifo_updates, cycle_ticks, burst_ticks, miss_ticks;
    int64_t latency_ticks, edge_ticks; /* the latter of a word of edges */
    int64_t page_shift, banks, row_words; /* 2^page_shift words a page */
    int64_t rows_kept; /* rows that a gather PE keeps; 0 where all of its rows find room */
    int64_t contended;
} Machine;

/* Whole cycles, and ticks from 0 to less than a cycle beyond them: to add times divides nothing. */
typedef struct {
    int64_t cycles, ticks;
} Time;

typedef struct {
    Time bursts, miss, latency; /* of a row, of a page that is opened, CAS */
    Time words[WORDS];          /* of so many words of edges */
} Delays;

typedef struct {
    int64_t address, ready;
} Load;

/* load: which one of the stretch brings its source; 0 is the row held when the stretch began. */
typedef struct {
    int32_t dst, load;
} Update;

typedef struct {
    int64_t first, held, turn; /* turn: where in taken the next update stands */
    int64_t edges;             /* of the word that the next edge is of, how many were taken */
    Time channel;
    int64_t cycles, loads, misses, spilled_rows, conflicts, hazards, starved;
    int64_t stretch_loads, stretch_updates;
    Load *load;            /* (STRETCH + 1,), from 1 */
    int64_t *first_edge;   /* (STRETCH + 2,) which of the stretch's edges asked for each load */
    Time *after_load;      /* (STRETCH + 1,) when the channel was free after each load */
    int64_t *row_there;    /* (STRETCH + 1,) when each load has come */
    int64_t *edge_there;   /* (WORDS,) when each word of edges has; the first may be had already */
    Update *update;        /* (STRETCH,) */
    int64_t *open_page;    /* (banks,) */
    int64_t *scatter_free; /* (pes,) */
    int64_t *link_free;    /* (stages, pes) */
    int64_t *gather_free;  /* (pes,) */
    int64_t *taken;        /* (fifo_updates, pes) */
    int64_t *kept;         /* (pes, rows_kept), -1 where empty */
} Die;

typedef struct {
    Die *dies;
    uint8_t *spilled; /* (num_dst,) */
    int64_t *last;    /* (num_dst,) when the last update was taken; -adder_cycles where none was */
} State;

INLINE int64_t later(int64_t a, int64_t b) { return a > b ? a : b; }

INLINE Time split(int64_t ticks, const Machine *m) {
    const Time time = {ticks / m->cycle_ticks, ticks % m->cycle_ticks};
    return time;
}

INLINE Time add(Time a, Time b, const Machine *m) {
    const int64_t beyond = a.ticks + b.ticks - m->cycle_ticks, carry = beyond >= 0;
    const Time sum = {a.cycles + b.cycles + carry, carry ? beyond : beyond + m->cycle_ticks};
    return sum;
}

INLINE int64_t round_up(Time time) { return time.cycles + (time.ticks > 0); }

static void sort_by_die(const Machine *m, const State *s, const int32_t *src, const int32_t *dst,
                        int64_t edges, const int64_t *address, const int64_t *ready) {
    for (int64_t d = 0; d < m->dies; d++) s->dies[d].stretch_loads = s->dies[d].stretch_updates = 0;
    for (int64_t e = 0; e < edges; e++) {
        const int64_t u = src[e], v = dst[e];
        int64_t d = 0;
        for (int64_t k = 1; k < m->dies; k++) d += v >= s->dies[k].first;
        Die *die = s->dies + d;
        const int64_t fresh = die->held != u;
        const Load load = {address[u], ready[u]};
        die->stretch_loads += fresh;
        die->held = u;
        die->load[die->stretch_loads] = load;
        die->first_edge[die->stretch_loads + !fresh] = die->stretch_updates;
        const Update update = {(int32_t) v, (int32_t) die->stretch_loads};
        die->update[die->stretch_updates++] = update;
    }
}

INLINE int64_t *bank_of(const Machine *m, const Die *die, int64_t page) {
    const int64_t mask = m->banks - 1;
    return die->open_page + (m->banks & mask ? page % m->banks : page & mask);
}

/* How many words hold the stretch's edges up to one, and what is left of the word before. */
INLINE int64_t words_to(const Die *die, int64_t edge) {
    return ((die->edges + edge) >> EDGES_SHIFT) + 1;
}

/* Where the channel is free at `free` before the words from `read` on, when one of them comes. */
INLINE int64_t read_word(const Machine *m, const Delays *delays, Time free, int64_t read,
                         int64_t word) {
    const Time there = add(free, delays->words[word + 1 - read], m);
    return round_up(add(there, delays->latency, m)) + 1;
}

INLINE void load_row(const Machine *m, const Delays *delays, Die *die, int64_t k) {
    const Load load = die->load[k];
    const int64_t first = load.address * m->row_words;
    const int64_t end = (first + m->row_words - 1) >> m->page_shift;
    const int64_t late = die->channel.cycles < load.ready;
    Time channel = {late ? load.ready : die->channel.cycles, late ? 0 : die->channel.ticks};
    for (int64_t page = first >> m->page_shift; page <= end; page++) {
        int64_t *bank = bank_of(m, die, page);
        const int64_t opened = *bank != page;
        const Time miss = {delays->miss.cycles & -opened, delays->miss.ticks & -opened};
        *bank = page;
        channel = add(channel, miss, m);
        die->misses += opened;
    }
    die->channel = channel = add(channel, delays->bursts, m);
    const int64_t arrival = round_up(add(channel, delays->latency, m)) + 1;
    die->row_there[k] = later(arrival, die->row_there[k - 1] + m->row_words);
}

/* A stretch's words of edges and loads, where nothing else is on the channel: a word before the
 * loads of its edges. */
INLINE void load_stretch(const Machine *m, const Delays *delays, Die *die) {
    const int64_t first = die->edges > 0;
    int64_t read = first;
    die->after_load[0] = die->channel;
    for (int64_t k = 1; k <= die->stretch_loads; k++) {
        const int64_t words = words_to(die, die->first_edge[k]);
        die->channel = add(die->channel, delays->words[words - read], m);
        read = words;
        load_row(m, delays, die, k);
        die->after_load[k] = die->channel;
    }
    const int64_t all = die->stretch_updates ? words_to(die, die->stretch_updates - 1) : first;
    for (int64_t word = first; word < all; word++) {
        const int64_t edge = (word << EDGES_SHIFT) - die->edges;
        const int64_t k = edge ? die->update[edge - 1].load : 0;
        const int64_t had = k ? words_to(die, die->first_edge[k]) : first;
        die->edge_there[word] = read_word(m, delays, die->after_load[k], had, word);
    }
    die->channel = add(die->channel, delays->words[all - read], m);
}

/* Makes room for a row of a gather PE; returns when it is there. */
static int64_t make_room(const Machine *m, const Delays *delays, Die *die, int64_t *kept,
                         uint8_t *spilled, int64_t v, int64_t t) {
    const int64_t other = *kept;
    *kept = v;
    if (other < 0 || other == v) return t;
    const Time move = add(delays->miss, delays->bursts, m);
    die->channel = add(die->channel, move, m);
    if (spilled[v]) die->channel = add(die->channel, move, m);
    die->spilled_rows += 1 + spilled[v];
    spilled[other] = 1;
    return later(t, round_up(die->channel));
}

INLINE void take_updates(const Machine *m, const Delays *delays, const State *s, Die *die,
                         int stages, int64_t contended, int64_t rows_kept) {
    const int64_t n = (int64_t) 1 << stages, width = m->row_words, turns = n * m->fifo_updates;
    int64_t turn = die->turn, starved = 0, conflicts = 0, hazards = 0;
    const int64_t had = die->edges;
    int64_t loaded = 0, read = had > 0;
    /* Rows that are spilled pass between the loads, which then go one by one. */
    if (!rows_kept) load_stretch(m, delays, die);
    for (int64_t i = 0; i < die->stretch_updates; i++) {
        const int64_t v = die->update[i].dst, local = v - die->first, load = die->update[i].load;
        const int64_t word = (had + i) >> EDGES_SHIFT;
        const int64_t pe = turn & (n - 1), gather = local & (n - 1);
        if (rows_kept && word == read) {
            die->edge_there[read] = read_word(m, delays, die->channel, read, read);
            die->channel = add(die->channel, delays->words[1], m);
            read++;
        }
        if (rows_kept && load > loaded) load_row(m, delays, die, loaded = load);
        const int64_t free_at = later(die->scatter_free[pe], die->taken[turn]);
        int64_t t = later(free_at, die->row_there[load]);
        t = later(t, die->edge_there[word]);
        starved += t - free_at;
        die->scatter_free[pe] = t + width;
        t++;

        const int64_t unhindered = t + stages;
        if (contended) {
            int64_t *links = die->link_free;
            for (int64_t bit = n >> 1; bit; bit >>= 1, links += n) {
                int64_t *link = links + ((gather & -bit) | (pe & (bit - 1)));
                t = later(t, *link);
                *link = t + width;
                t++;
            }
            t = later(t, die->gather_free[gather]);
        } else {
            t = unhindered;
        }
        conflicts += t - unhindered;
        if (rows_kept) {
            int64_t *kept = die->kept + gather * rows_kept + (local >> stages) % rows_kept;
            t = make_room(m, delays, die, kept, s->spilled, v, t);
        }
        const int64_t safe = later(t, s->last[v] + m->adder_cycles);
        hazards += safe - t;
        s->last[v] = safe;
        die->gather_free[gather] = die->taken[turn] = safe + width;
        turn = turn + 1 == turns ? 0 : turn + 1;
    }
    die->turn = turn;
    die->loads += die->stretch_loads;
    die->row_there[0] = die->row_there[die->stretch_loads];
    die->edges += die->stretch_updates;
    die->edge_there[0] = die->edge_there[later(die->edges - 1, 0) >> EDGES_SHIFT];
    die->edges &= (1 << EDGES_SHIFT) - 1;
    die->starved += starved;
    die->conflicts += conflicts;
    die->hazards += hazards;
}

/* A network of each usual size is a loop of its own. */
static void take_stretch(const Machine *m, const Delays *delays, const State *s, Die *die,
                         int stages) {
    switch (m->contended && !m->rows_kept ? stages : -1) {
    case 0: take_updates(m, delays, s, die, 0, 1, 0); break;
    case 1: take_updates(m, delays, s, die, 1, 1, 0); break;
    case 2: take_updates(m, delays, s, die, 2, 1, 0); break;
    case 3: take_updates(m, delays, s, die, 3, 1, 0); break;
    case 4: take_updates(m, delays, s, die, 4, 1, 0); break;
    default: take_updates(m, delays, s, die, stages, m->contended, m->rows_kept);
    }
}

static void simulate_edges(const Machine *m, const State *s, const int32_t *src,
                           const int32_t *dst, int64_t edges, const int64_t *address,
                           const int64_t *ready) {
    Delays delays = {split(m->row_words * m->burst_ticks, m), split(m->miss_ticks, m),
                     split(m->latency_ticks, m), {{0, 0}}};
    for (int64_t w = 0; w < WORDS; w++) delays.words[w] = split(w * m->edge_ticks, m);
    int stages = 0;
    while (m->pes >> (stages + 1)) stages++;
    for (int64_t e = 0; e < edges; e += STRETCH) {
        const int64_t count = edges - e < STRETCH ? edges - e : STRETCH;
        sort_by_die(m, s, src + e, dst + e, count, address, ready);
        for (int64_t d = 0; d < m->dies; d++) {
            take_stretch(m, &delays, s, s->dies + d, stages);
        }
    }
}

/* When the sums are complete, in the place of when their last updates were taken, 0 without one;
 * and the last of each die. */
static void complete_sums(const Machine *m, const State *s, int64_t num_dst) {
    for (int64_t d = 0; d < m->dies; d++) {
        Die *die = s->dies + d;
        const int64_t end = d + 1 < m->dies ? die[1].first : num_dst;
        for (int64_t v = die->first; v < end; v++) {
            int64_t *last = s->last + v;
            *last = *last < 0 ? 0 : *last + m->row_words - 1 + m->adder_cycles;
            die->cycles = later(die->cycles, *last);
        }
    }
}

#endif
