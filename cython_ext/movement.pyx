# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Compiled loops behind ``gnnbench.kernels.dispatch.movement``; their twin is
``gnnbench.kernels.reference.movement``, their inner loops stand in ``movement.h``.
"""

from cpython.buffer cimport (
    PyBUF_C_CONTIGUOUS,
    PyBUF_FORMAT,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free

import numpy as np

from gnnbench.kernels.reference.movement import (
    SlotPositions,
    absent,
    incomplete,
    nameless,
    outside,
)
from gnnbench.kernels.slabs import Slab

cdef extern from "movement.h" nogil:
    int WORD_BITS
    int SLACK
    int FETCH_MARKS
    int SOURCE_MARKS
    int SOUND
    int OUTSIDE
    int INCOMPLETE
    int ABSENT
    int NAMELESS

    ctypedef struct Rows:
        const int64_t* ids
        int64_t n

    ctypedef struct Places:
        int32_t* place
        int64_t* at
        uint64_t* taken
        int64_t room
        int64_t extent
        uint64_t* chosen
        int32_t* movers
        int32_t* seats

    ctypedef struct Fetched

    ctypedef struct Source:
        const Fetched* owner
        const Places* there
        int64_t copied
        int64_t pushed

    ctypedef struct Fetched:
        Rows needed
        Rows from_host
        Rows reused
        Rows* peers
        Source* sources
        int64_t num_peers
        int64_t num_sources
        uint64_t* marks
        int64_t words
        bint marked

    ctypedef struct Slot:
        Fetched* now
        const Fetched* before
        Fetched* after
        Places* transition
        Places* neighbour
        Rows inputs
        const int32_t* labels
        int64_t num_labels
        int64_t num_dst
        int64_t leaving
        int32_t* positions
        int64_t* vertices
        int32_t* indices
        bint in_front
        int verdict

    void mark_fetches(Fetched** fetches, int64_t n, int64_t universe, int threads)
    void open_slots(Slot* slots, int64_t n, int64_t universe, int threads)
    void write_slots(Slot* slots, int64_t n, int64_t universe, int threads)

# Fewer rows than this are not worth another thread.
cdef int64_t ROWS_PER_THREAD = 1 << 12


cdef class Buffer:
    """The places of one buffer, and the memory they are in."""

    cdef Places c
    cdef int32_t[::1] place
    cdef int64_t[::1] at
    cdef uint64_t[::1] taken
    cdef uint64_t[::1] chosen
    cdef int32_t[:, ::1] lists

    def __init__(self, int64_t num_vertices):
        self.place = np.full(num_vertices + 1, -1, dtype=np.int32)
        self.lists = np.empty((2, num_vertices + SLACK), dtype=np.int32)
        self.c.place = &self.place[0]
        self.c.movers, self.c.seats = &self.lists[0, 0], &self.lists[1, 0]
        self.c.room = -1
        self.grow(0)

    cdef grow(self, int64_t room):
        """Make it at least as large; everybody stays."""
        if room <= self.c.room:
            return
        at = np.zeros(room + 1, dtype=np.int64)
        taken = np.zeros(room // WORD_BITS + 2, dtype=np.uint64)
        if self.c.room > 0:
            at[: self.at.shape[0]] = self.at
            taken[: self.taken.shape[0]] = self.taken
        self.at, self.taken = at, taken
        self.c.at, self.c.taken, self.c.room = &self.at[0], &self.taken[0], room
        self.chosen = np.empty(max(len(taken), self.place.shape[0] // WORD_BITS + 1), dtype=np.uint64)
        self.c.chosen = &self.chosen[0]


cdef class Sets:
    """The sets of a fetch, as lists and as bitmaps."""

    cdef Fetched c
    cdef readonly object fetch
    cdef Py_buffer* views
    cdef int num_views
    cdef uint64_t[::1] marks

    def __cinit__(self, fetch, int64_t num_vertices, bint merged, list idle):
        """``idle`` are bitmaps that nobody needs any more, of which the last is taken."""
        cdef int64_t p
        cdef tuple peers = fetch.from_peers
        self.fetch = fetch
        self.c.num_peers = len(peers)
        self.c.num_sources = len(peers) + (not merged)
        self.c.words = num_vertices // WORD_BITS + 1
        self.c.peers = <Rows*> calloc(2 * len(peers) + 1, sizeof(Rows))
        self.c.sources = <Source*> calloc(self.c.num_sources + 1, sizeof(Source))
        self.views = <Py_buffer*> calloc(2 * len(peers) + 3, sizeof(Py_buffer))
        if not (self.c.peers and self.c.sources and self.views):
            raise MemoryError
        size = self.c.words * (FETCH_MARKS + self.c.num_sources * SOURCE_MARKS)
        marks = idle.pop() if idle else None
        self.marks = marks if marks is not None and marks.size >= size else np.empty(
            size, dtype=np.uint64
        )
        self.c.marks = &self.marks[0]
        self.view(fetch.needed, &self.c.needed)
        self.view(fetch.from_host, &self.c.from_host)
        self.view(fetch.reused, &self.c.reused)
        for p in range(self.c.num_peers):
            peer = peers[p]
            self.view(peer.ids, self.c.peers + 2 * p)
            self.view(peer.kept, self.c.peers + 2 * p + 1)

    def __dealloc__(self):
        cdef int v
        for v in range(self.num_views):
            PyBuffer_Release(self.views + v)
        free(self.views)
        free(self.c.peers)
        free(self.c.sources)

    cdef int view(self, ids, Rows* rows) except -1:
        """Read the ids where they are: a memoryview for each list takes longer than the rest."""
        cdef Py_buffer* seen = self.views + self.num_views
        PyObject_GetBuffer(ids, seen, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)
        self.num_views += 1
        if seen.ndim != 1 or seen.itemsize != 8 or seen.format[0] not in (b"l", b"q"):
            raise ValueError(
                f"the plan has ids that are {ids.dtype} with shape {ids.shape}; a fetch's lists are "
                f"int64 of one dimension"
            )
        rows.ids, rows.n = <const int64_t*> seen.buf, seen.shape[0]
        return 0


cdef class SlotState:
    """What a slot holds between rounds."""

    cdef Buffer transition
    cdef Buffer neighbour
    cdef Sets before


cdef class RoundPositions:
    """See ``gnnbench.kernels.reference.movement.RoundPositions``."""

    cdef int64_t num_vertices
    cdef int threads
    cdef dict held
    cdef dict next
    cdef list idle
    cdef object slab

    def __init__(self, int64_t num_vertices, int threads):
        self.num_vertices = num_vertices
        self.threads = threads
        self.held = {}
        self.next = {}
        self.idle = []
        self.slab = Slab()

    def follow(self, tuple units, tuple fetches, tuple following, dict rows, bint merged):
        """The positions of a round's slots, in the order of its units."""
        cdef int64_t i, n = len(units), work = 0
        cdef list now = [], made
        cdef dict held
        cdef int threads
        cdef Slot* slots
        cdef Fetched** unmarked
        cdef Sets each
        for i in range(n):
            each = self.next.get(fetches[i].slot)
            if each is None or each.fetch is not fetches[i]:
                each = Sets(fetches[i], self.num_vertices, merged, self.idle)
            now.append(each)
            work += each.c.needed.n + each.c.from_host.n + len(units[i].blocks[0].indices) // 4
        self.next = {
            fetch.slot: Sets(fetch, self.num_vertices, merged, self.idle) for fetch in following
        }
        threads = <int> max(1, min(self.threads, n, work // ROWS_PER_THREAD))
        slots = <Slot*> calloc(n + 1, sizeof(Slot))
        unmarked = <Fetched**> calloc(n + 1, sizeof(Fetched*))
        try:
            if not slots or not unmarked:
                raise MemoryError
            self.mark(now, unmarked, threads)
            held = self.connect(slots, units, now, rows)
            with nogil:
                open_slots(slots, n, self.num_vertices, threads)
            self.refuse(slots, units)
            made = [self.make_room(slots + i, units[i], now[i]) for i in range(n)]
            with nogil:
                write_slots(slots, n, self.num_vertices, threads)
            self.refuse(slots, units)
            for each in now:
                self.keep(<SlotState> held[each.fetch.slot], each)
            self.held = held
            return [
                SlotPositions(*parts, bool(slots[i].in_front)) for i, parts in enumerate(made)
            ]
        finally:
            free(slots)
            free(unmarked)

    cdef keep(self, SlotState state, Sets now):
        """The round is over; the bitmaps of the one before it are free."""
        if state.before is not None:
            self.idle.append(state.before.marks.base)
        state.before = now

    cdef mark(self, list now, Fetched** unmarked, int threads):
        """The bitmaps of a round that was not the one to follow."""
        cdef int64_t count = 0
        cdef Sets each
        for each in now:
            if not each.c.marked:
                unmarked[count] = &each.c
                count += 1
        if count:
            with nogil:
                mark_fetches(unmarked, count, self.num_vertices, threads)
        for each in now:
            if not each.c.marked:
                raise outside(self.num_vertices)

    cdef dict connect(self, Slot* slots, tuple units, list now, dict rows):
        """Say who holds what, by slot; a slot that paused has lost what it held."""
        cdef dict by_slot = {}, held = {}
        cdef const int64_t[::1] inputs
        cdef const int32_t[::1] labels
        cdef SlotState state
        cdef Sets sets, owner
        cdef Source* source
        cdef int64_t i, p, own
        for i, sets in enumerate(now):
            slot = sets.fetch.slot
            room = rows[slot]
            state = self.held.get(slot)
            if state is None:
                state = SlotState()
                state.transition = state.neighbour = Buffer(self.num_vertices)
                if room.transition is not None:
                    state.neighbour = Buffer(self.num_vertices)
            else:
                slots[i].before = &state.before.c
            state.neighbour.grow(room.neighbour)
            if room.transition is not None:
                state.transition.grow(room.transition)
            held[slot], by_slot[slot] = state, sets
            slots[i].now = &sets.c
            slots[i].transition = &state.transition.c
            slots[i].neighbour = &state.neighbour.c
            sets_after = self.next.get(slot)
            if sets_after is not None:
                owner = sets_after
                slots[i].after = &owner.c
            block = units[i].blocks[0]
            inputs, labels = block.src_ids, block.indices
            slots[i].inputs.ids = &inputs[0] if inputs.shape[0] else NULL
            slots[i].inputs.n = inputs.shape[0]
            slots[i].labels = &labels[0] if labels.shape[0] else NULL
            slots[i].num_labels = labels.shape[0]
            slots[i].num_dst = min(block.num_dst, inputs.shape[0])
        for sets in now:
            own = sets.c.num_sources - sets.c.num_peers
            for p in range(sets.c.num_sources):
                slot = sets.fetch.slot if p < own else sets.fetch.from_peers[p - own].slot
                source = sets.c.sources + p
                source.owner, source.there = NULL, NULL
                if slot in by_slot:
                    owner, state = by_slot[slot], held[slot]
                    source.owner, source.there = &owner.c, &state.transition.c
        return held

    cdef refuse(self, Slot* slots, tuple units):
        """Raise what the first unsound slot deserves, holes before rows that are not there."""
        cdef int64_t i
        for verdict in (OUTSIDE, INCOMPLETE, ABSENT, NAMELESS):
            for i in range(len(units)):
                if slots[i].verdict == verdict:
                    if verdict == OUTSIDE:
                        raise outside(self.num_vertices)
                    if verdict == INCOMPLETE:
                        raise incomplete(units[i])
                    raise absent() if verdict == ABSENT else nameless(units[i])

    cdef tuple make_room(self, Slot* slot, unit, Sets sets):
        """Arrays for what a slot's positions are written to, cut by their lengths."""
        cdef int64_t p, own = sets.c.num_sources - sets.c.num_peers
        cdef int32_t[::1] positions, indices
        cdef int64_t[::1] vertices
        cdef list lengths = [
            sets.c.from_host.n, sets.c.from_host.n, slot.inputs.n, slot.inputs.n, slot.leaving,
            slot.leaving,
        ]
        cdef list copied = [], pushed = []
        peers = sets.fetch.from_peers
        for p in range(sets.c.num_sources):
            owner = sets.fetch.slot if p < own else peers[p - own].slot
            if sets.c.sources[p].copied:
                copied.append((owner, sets.c.sources[p].copied))
            if sets.c.sources[p].pushed:
                pushed.append((owner, sets.c.sources[p].pushed))
        for _, rows in (*copied, *pushed):
            lengths += (rows, rows)
        cdef int64_t total = sum(lengths), extent = slot.neighbour.extent
        room = self.slab.take(total + SLACK, np.int32)
        stand = self.slab.take(extent + 1, np.int64)
        renamed = self.slab.take(slot.num_labels + 1, np.int32)
        positions, vertices, indices = room, stand, renamed
        slot.positions, slot.vertices, slot.indices = &positions[0], &vertices[0], &indices[0]
        return (
            room[:total], lengths, [owner for owner, _ in copied], [owner for owner, _ in pushed],
            stand[:extent], renamed[: slot.num_labels],
        )
