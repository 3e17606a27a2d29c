/* The inner loops of movement.pyx: one slot's part in a round. See
 * gnnbench/kernels/reference/movement.py for what they compute. */
#ifndef GNNBENCH_MOVEMENT_H
#define GNNBENCH_MOVEMENT_H

#include "bitmaps.h"
#ifdef _OPENMP
#include <omp.h>
#endif

/* ------------------------------------------------------------------ the sets of a fetch */

typedef struct {
    const int64_t *ids;
    int64_t n;
} Rows;

/* Who stands where in a buffer, whose places are taken from below. */
typedef struct {
    int32_t *place;   /* by vertex; -1 where it does not stand here */
    int64_t *at;      /* by place, the vertex; 0 where none does */
    uint64_t *taken;  /* a bit for each place, and 64 or more beyond the last */
    int64_t room;
    int64_t extent;   /* one more than the last place taken */
    uint64_t *chosen; /* what settle works in: bits of all vertices, or of more places than these, */
    int32_t *movers;  /* and two lists of as many as there are vertices, and SLACK more */
    int32_t *seats;
} Places;

/* Rows that a unit reads of some transition buffer: those that are copied now, those that stay
 * from the round before, and of both those that do not stay for the next round. */
enum { COMES, STAYS, SOURCE_LISTS, GOES = SOURCE_LISTS, SOURCE_MARKS };

struct Fetched;
typedef struct {
    const struct Fetched *owner; /* the fetch of the slot that has them, NULL where there is none */
    const Places *there;         /* and its transition buffer */
    int64_t copied, pushed;      /* how many come, and how many go */
} Source;

enum { NEEDED, REUSED, TRANSITION, READ, KEPT, LISTED, LEAVING = LISTED, FETCH_MARKS };

/* A fetch as lists, and as bitmaps of `words` words each: FETCH_MARKS of its own and SOURCE_MARKS of
 * every source. Where buffers are separate, the first source is the own transition buffer, which no
 * list names; the others are peers. */
typedef struct Fetched {
    Rows needed, from_host, reused;
    Rows *peers; /* what comes and what stays, of each peer */
    Source *sources;
    int64_t num_peers, num_sources;
    uint64_t *marks;
    int64_t words;
    int marked;
} Fetched;

enum { SOUND, OUTSIDE, INCOMPLETE, ABSENT, NAMELESS };

INLINE uint64_t *marks_of(const Fetched *f, int64_t which) { return f->marks + which * f->words; }

INLINE uint64_t *source_marks(const Fetched *f, int64_t source, int which) {
    return marks_of(f, FETCH_MARKS + source * SOURCE_MARKS + which);
}

INLINE void clear_marks(uint64_t *marks, int64_t words) {
    memset(marks, 0, (size_t) words * sizeof *marks);
}

INLINE void add_marks(uint64_t *restrict to, const uint64_t *from, int64_t words) {
    for (int64_t k = 0; k < words; k++) to[k] |= from[k];
}

/* Fills the bitmaps that the lists alone decide; returns 0 where an id is outside. */
static int mark_fetch(Fetched *f, int64_t universe) {
    const int64_t own = f->num_sources - f->num_peers, words = f->words;
    if (f->marked) return 1;
    clear_marks(f->marks, LISTED * words);
    for (int64_t p = 0; p < f->num_peers; p++)
        clear_marks(source_marks(f, own + p, COMES), SOURCE_LISTS * words);
    int sound = mark_wide(f->needed.ids, f->needed.n, universe, marks_of(f, NEEDED))
                && mark_wide(f->from_host.ids, f->from_host.n, universe, marks_of(f, TRANSITION))
                && mark_wide(f->reused.ids, f->reused.n, universe, marks_of(f, REUSED));
    add_marks(marks_of(f, TRANSITION), marks_of(f, REUSED), words);
    for (int64_t p = 0; sound && p < f->num_peers; p++)
        for (int which = COMES; which <= STAYS; which++) {
            const Rows *const rows = f->peers + 2 * p + which;
            uint64_t *const marks = source_marks(f, own + p, which);
            if (!rows->n) continue;
            sound = sound && mark_wide(rows->ids, rows->n, universe, marks);
            if (which == STAYS) add_marks(marks_of(f, KEPT), marks, words);
            add_marks(marks_of(f, READ), marks, words);
        }
    f->marked = sound;
    return sound;
}

/* ------------------------------------------------------------------ a slot in a round */

typedef struct {
    Fetched *now;
    const Fetched *before; /* the round before's and the next one's; NULL where there is none */
    Fetched *after;
    Places *transition, *neighbour; /* the same where buffers are merged */
    Rows inputs;                    /* the sources of the unit's block, in its order */
    const int32_t *labels;          /* its edges, as positions in them */
    int64_t num_labels, num_dst;
    int64_t leaving;    /* how many rows go to the host */
    int32_t *positions; /* see write_slot; it has room for SLACK more */
    int64_t *vertices;
    int32_t *indices;
    int in_front; /* whether the destinations stand at the first places, in their order */
    int verdict;
} Slot;

/* Whether b has every bit of a; NULL has none. */
static int within(const uint64_t *a, const uint64_t *b, int64_t words) {
    uint64_t missing = 0;
    for (int64_t k = 0; k < words; k++) missing |= a[k] & ~(b ? b[k] : 0);
    return !missing;
}

/* As many rows as the unit reads are needed and brought, and all that are needed are brought. */
static int covers(const Slot *s, int level) {
    const Fetched *const f = s->now;
    const uint64_t *const needed = marks_of(f, NEEDED), *const transition = marks_of(f, TRANSITION);
    const uint64_t *const read = marks_of(f, READ);
    int64_t brought = count_common(needed, transition, f->words, level);
    uint64_t missing = 0;
    for (int64_t p = 0; p < 2 * f->num_peers; p++) brought += f->peers[p].n;
    for (int64_t k = 0; k < f->words; k++) missing |= needed[k] & ~(transition[k] | read[k]);
    return !missing && s->inputs.n == brought
           && count_common(needed, needed, f->words, level) == brought
           && count_common(transition, transition, f->words, level)
                  == f->from_host.n + f->reused.n;
}

/* What is kept was there in the round before, and what is read of a peer is there now. */
static int are_there(const Slot *s) {
    const Fetched *const f = s->now, *const before = s->before;
    const int64_t own = f->num_sources - f->num_peers, words = f->words;
    int sound = within(marks_of(f, REUSED), before ? marks_of(before, TRANSITION) : NULL, words)
                && within(marks_of(f, KEPT), before ? marks_of(before, READ) : NULL, words);
    for (int64_t p = 0; sound && p < f->num_peers; p++) {
        const Fetched *const owner = f->sources[own + p].owner;
        const uint64_t *const there = owner ? marks_of(owner, TRANSITION) : NULL;
        sound = within(source_marks(f, own + p, COMES), there, words)
                && within(source_marks(f, own + p, STAYS), there, words);
    }
    return sound;
}

/* The vertices that are in set `one` or `other` of the fetch and not of its rival, ascending; returns
 * how many. A rival that is NULL has none. */
static int64_t list_movers(Places *p, const Fetched *f, const Fetched *rival, int one, int other,
                           int level) {
    if (!f) return 0;
    const int64_t words = f->words;
    const uint64_t *const a = marks_of(f, one), *const b = marks_of(f, other);
    uint64_t *restrict const chosen = p->chosen;
    if (rival) {
        const uint64_t *const c = marks_of(rival, one), *const d = marks_of(rival, other);
        for (int64_t k = 0; k < words; k++) chosen[k] = (a[k] | b[k]) & ~(c[k] | d[k]);
    } else {
        for (int64_t k = 0; k < words; k++) chosen[k] = a[k] | b[k];
    }
    list_bits(chosen, words, p->movers, level);
    return count_common(chosen, chosen, words, level);
}

/* Takes the lowest free places, ascending; returns 0 where there are not so many. */
static int take_seats(Places *p, int64_t wanted, int level) {
    int64_t w = 0;
    for (int64_t left = wanted; left > 0; w++) {
        if (w * WORD_BITS >= p->room) return 0;
        uint64_t free = ~p->taken[w], lowest = free;
        if (count_bits(free) > left)
            for (lowest = 0; left > 0; left--, free &= free - 1) lowest |= free & (~free + 1);
        else
            left -= count_bits(free);
        p->chosen[w] = lowest;
        p->taken[w] |= lowest;
    }
    list_bits(p->chosen, w, p->seats, level);
    return wanted == 0 || p->seats[wanted - 1] < p->room;
}

/* Frees the places of whoever had one and has none now, and gives the lowest free ones to those who
 * come, ascending. Returns 0 where there is no room. */
static int settle(Places *p, const Fetched *before, const Fetched *now, int one, int other,
                  int level) {
    int32_t *const place = p->place;
    int64_t *const at = p->at;
    const int32_t *const movers = p->movers, *const seats = p->seats;
    const int64_t leaving = list_movers(p, before, now, one, other, level);
    for (int64_t i = 0; i < leaving; i++) {
        const int32_t seat = place[movers[i]];
        place[movers[i]] = -1;
        at[seat] = 0;
        p->taken[seat / WORD_BITS] &= ~bit(seat);
    }
    const int64_t coming = list_movers(p, now, before, one, other, level);
    if (!take_seats(p, coming, level)) return 0;
    for (int64_t i = 0; i < coming; i++) {
        place[movers[i]] = seats[i];
        at[seats[i]] = movers[i];
    }
    if (coming && seats[coming - 1] >= p->extent) p->extent = seats[coming - 1] + 1;
    while (p->extent && !(p->taken[(p->extent - 1) / WORD_BITS] & bit(p->extent - 1))) p->extent--;
    return 1;
}

/* Rows of the own transition set that are read from a separate buffer: one stays if it stays there
 * and was read in the round before. */
static void mark_own(Fetched *f, const Fetched *before) {
    uint64_t *restrict const comes = source_marks(f, 0, COMES);
    uint64_t *restrict const stays = source_marks(f, 0, STAYS);
    const uint64_t *const needed = marks_of(f, NEEDED), *const transition = marks_of(f, TRANSITION);
    const uint64_t *const reused = marks_of(f, REUSED);
    const uint64_t *const read = before ? marks_of(before, NEEDED) : NULL;
    const int64_t words = f->words;
    for (int64_t k = 0; k < words; k++) {
        const uint64_t own = needed[k] & transition[k];
        stays[k] = read ? own & reused[k] & read[k] : 0;
        comes[k] = own & ~stays[k];
    }
}

/* Marks and counts what leaves for the host and for the owners after the round. */
static void mark_departures(Slot *s, int level) {
    Fetched *const f = s->now;
    const Fetched *const after = s->after;
    const int64_t words = f->words, own = f->num_sources - f->num_peers;
    uint64_t *restrict const leaving = marks_of(f, LEAVING);
    memcpy(leaving, marks_of(f, TRANSITION), (size_t) words * sizeof *leaving);
    if (after) {
        const uint64_t *const reused = marks_of(after, REUSED);
        for (int64_t k = 0; k < words; k++) leaving[k] &= ~reused[k];
    }
    s->leaving = count_common(leaving, leaving, words, level);
    for (int64_t i = 0; i < f->num_sources; i++) {
        const uint64_t *const comes = source_marks(f, i, COMES), *const stays = source_marks(f, i, STAYS);
        uint64_t *restrict const goes = source_marks(f, i, GOES);
        for (int64_t k = 0; k < words; k++) goes[k] = comes[k] | stays[k];
        if (after) {
            const uint64_t *const kept = marks_of(after, KEPT);
            for (int64_t k = 0; k < words; k++) goes[k] &= ~kept[k];
        }
        if (after && own) {
            const uint64_t *const reused = marks_of(after, REUSED);
            const uint64_t *const then = marks_of(after, NEEDED), *const now = marks_of(f, NEEDED);
            for (int64_t k = 0; k < words; k++) goes[k] &= ~(reused[k] & then[k] & now[k]);
        }
        f->sources[i].copied = i < own ? count_common(comes, comes, words, level)
                                       : f->peers[2 * (i - own) + COMES].n;
        f->sources[i].pushed = count_common(goes, goes, words, level);
    }
}

/* All of a slot that needs no other slot's places. */
static void open_slot(Slot *s, int64_t universe, int level) {
    const int separate = s->transition != s->neighbour;
    s->verdict = SOUND;
    if (!covers(s, level))
        s->verdict = INCOMPLETE;
    else if (!are_there(s))
        s->verdict = ABSENT;
    else if (s->after && !mark_fetch(s->after, universe))
        s->verdict = OUTSIDE;
    if (s->verdict != SOUND) return;
    if (separate) mark_own(s->now, s->before);
    if (!settle(s->transition, s->before, s->now, TRANSITION, separate ? TRANSITION : NEEDED,
                level)
        || (separate && !settle(s->neighbour, s->before, s->now, NEEDED, NEEDED, level)))
        s->verdict = INCOMPLETE;
    else
        mark_departures(s, level);
}

enum { STRETCH = 1024 };

/* Where rows stand that are known to be in the graph; the ids may be where the places go. */
static int32_t *find_listed(const int32_t *ids, int64_t n, const Places *places, int32_t *out) {
    const int32_t *const place = places->place;
    for (int64_t i = 0; i < n; i++) out[i] = place[ids[i]];
    return out + n;
}

/* Where rows stand that may be none of the graph's, or stand nowhere. */
static int32_t *find_rows(const Rows *rows, const Places *places, int64_t universe,
                          int32_t *restrict out, int *verdict) {
    const int32_t *const place = places->place;
    const int64_t *const ids = rows->ids, n = rows->n;
    const uint64_t last = (uint64_t) universe - 1;
    int32_t least = 0;
    for (int64_t begin = 0; begin < n; begin += STRETCH) {
        const int64_t end = n - begin < STRETCH ? n : begin + STRETCH;
        int64_t outside = 0;
        for (int64_t i = begin; i < end; i++) outside |= ids[i] | (int64_t) (last - (uint64_t) ids[i]);
        if (outside < 0) {
            *verdict = INCOMPLETE;
            break;
        }
        for (int64_t i = begin; i < end; i++) out[i] = place[ids[i]];
        for (int64_t i = begin; i < end; i++) least |= out[i];
    }
    if (least < 0) *verdict = INCOMPLETE;
    return out + n;
}

static int32_t *narrow(const Rows *rows, int32_t *restrict out) {
    const int64_t *const ids = rows->ids, n = rows->n;
    for (int64_t i = 0; i < n; i++) out[i] = (int32_t) ids[i];
    return out + n;
}

/* Renames edges, a stretch after the other is checked; returns 0 where one has no name. */
static int rename_edges(const int32_t *labels, int64_t n, const int32_t *names, int64_t num_names,
                        int32_t *restrict out) {
    const uint32_t last = (uint32_t) num_names - 1;
    for (int64_t begin = 0; begin < n; begin += STRETCH) {
        const int64_t end = n - begin < STRETCH ? n : begin + STRETCH;
        int32_t nameless = 0;
        for (int64_t e = begin; e < end; e++) nameless |= labels[e] | (int32_t) (last - (uint32_t) labels[e]);
        if (nameless < 0) return 0;
        for (int64_t e = begin; e < end; e++) out[e] = names[labels[e]];
    }
    return 1;
}

/* The slot's positions, one after the other: rows from the host and their places, the unit's inputs
 * and theirs, rows that leave for the host behind their places, then of every source what is
 * copied, here and there, and of every source what is pushed, here and there. And the block's edges,
 * renamed, and who stands in the buffer. */
static void write_slot(Slot *s, int64_t universe, int level) {
    const Fetched *const f = s->now;
    const int64_t own = f->num_sources - f->num_peers;
    int32_t *out = s->positions;
    out = narrow(&f->from_host, out);
    out = find_rows(&f->from_host, s->transition, universe, out, &s->verdict);
    out = narrow(&s->inputs, out);
    const int32_t *const places = out;
    out = find_rows(&s->inputs, s->neighbour, universe, out, &s->verdict);
    list_bits(marks_of(f, LEAVING), f->words, out + s->leaving, level);
    out = find_listed(out + s->leaving, s->leaving, s->transition, out) + s->leaving;
    for (int back = 0; back < 2; back++)
        for (int64_t i = 0; i < f->num_sources; i++) {
            const Source *const source = f->sources + i;
            const int64_t rows = back ? source->pushed : source->copied;
            if (!rows) continue;
            int32_t *const there = out + rows;
            if (back || i < own)
                list_bits(source_marks(f, i, back ? GOES : COMES), f->words, there, level);
            else
                narrow(&f->peers[2 * (i - own) + COMES], there);
            find_listed(there, rows, s->neighbour, out);
            out = find_listed(there, rows, source->there, there);
        }
    if (s->verdict != SOUND) return;
    s->in_front = 1;
    for (int64_t i = 0; i < s->num_dst; i++) s->in_front &= places[i] == i;
    memcpy(s->vertices, s->neighbour->at, (size_t) s->neighbour->extent * sizeof *s->vertices);
    if (!rename_edges(s->labels, s->num_labels, places, s->inputs.n, s->indices))
        s->verdict = NAMELESS;
}

/* ------------------------------------------------------------------ all slots of a round */

static void mark_fetches(Fetched **fetches, int64_t n, int64_t universe, int threads) {
#ifdef _OPENMP
#pragma omp parallel for num_threads(threads) schedule(dynamic) if (threads > 1)
#endif
    for (int64_t i = 0; i < n; i++) (void) mark_fetch(fetches[i], universe);
    (void) threads;
}

static void open_slots(Slot *slots, int64_t n, int64_t universe, int threads) {
    const int level = simd_level();
#ifdef _OPENMP
#pragma omp parallel for num_threads(threads) schedule(dynamic) if (threads > 1)
#endif
    for (int64_t i = 0; i < n; i++) open_slot(slots + i, universe, level);
    (void) threads;
}

static void write_slots(Slot *slots, int64_t n, int64_t universe, int threads) {
    const int level = simd_level();
#ifdef _OPENMP
#pragma omp parallel for num_threads(threads) schedule(dynamic) if (threads > 1)
#endif
    for (int64_t i = 0; i < n; i++) write_slot(slots + i, universe, level);
    (void) threads;
}

#endif
