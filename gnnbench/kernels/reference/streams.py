"""R-MAT edges by their numbers, and neighbour sets as bits, in NumPy.

Random numbers are counter-based (splitmix64). An edge follows from (seed, its number) alone, so any
thread can draw any block of a stream, any number of times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gnnbench.kernels.reference.sampling import GOLDEN, WORD, derive_key, mix
from gnnbench.records import BoolArray, Graph, IndexArray, IntArray

WordArray = npt.NDArray[np.uint64]
LabelArray = npt.NDArray[np.uint16]

#: A word has four lanes of 15 random bits; each decides one bit of both ends.
LANES = 4
LANE_BITS = 15
ROUNDS = 3
WORD_BITS = 64

MOST_EDGES = 2**31 - 1
MOST_VERTICES = 2**31 - 1
MALFORMED = "the graph's rows or ids are malformed; store it as CSR with ids in [0, V)."


@dataclass(frozen=True, slots=True)
class RmatStream:
    """``edges`` undirected R-MAT edges (Chakrabarti et al. 2004) that are stored nowhere.

    Each edge descends ceil(log2 V) times into a quadrant of the adjacency matrix: a, b or c with
    probability ``quadrants`` (rounded to 2^-15), else d. Self loops are drawn again, and so are
    edges outside the graph if V is no power of two. Ids are then shuffled. An edge may occur more
    than once.
    """

    vertices: int
    edges: int
    quadrants: tuple[float, float, float]
    seed: int = 0

    def __post_init__(self) -> None:
        if not 2 <= self.vertices <= MOST_VERTICES:
            raise ValueError(f"vertices is {self.vertices}; it must be from 2 to 2^31 - 1.")
        if not 1 <= self.edges <= MOST_EDGES:
            raise ValueError(f"edges is {self.edges}; it must be from 1 to 2^31 - 1.")
        if not 0 <= self.seed <= WORD:
            raise ValueError(f"seed is {self.seed}; it must be from 0 to 2^64 - 1.")
        shares = (*self.quadrants, 1.0 - sum(self.quadrants))
        if len(shares) != 4 or not min(shares) >= 0.01:
            raise ValueError(
                f"quadrants are {self.quadrants}; they must be three of at least 0.01 each that "
                f"leave as much for the fourth."
            )

    @property
    def levels(self) -> int:
        """The number of bits of an id."""
        return (self.vertices - 1).bit_length()

    @property
    def words(self) -> int:
        """The number of random words that an edge takes."""
        return -(-self.levels // LANES)

    @property
    def steps(self) -> tuple[int, int, int]:
        """2^15 minus the first numbers, among 2^15, of quadrants b, c and d, in every lane."""
        a, b, c = self.quadrants
        whole = 1 << LANE_BITS
        begins = (round(whole * part) for part in (a, a + b, a + b + c))
        b_step, c_step, d_step = (in_lanes(whole - begin) for begin in begins)
        return b_step, c_step, d_step

    @property
    def seed_key(self) -> int:
        """The key derived from the seed."""
        return int(derive_key(self.seed)[0])

    @property
    def factors(self) -> tuple[int, ...]:
        """The factors of the shuffle's rounds: odd, so that each round is a permutation."""
        return tuple(int(derive_key(self.seed, k)[0]) & 0xFFFFFFFF | 1 for k in range(ROUNDS))

    @property
    def shift(self) -> int:
        """The bits by which a round of the shuffle shifts an id to the right."""
        return (self.levels + 1) // 2

    @property
    def mask(self) -> int:
        """The mask of an id's bits."""
        return (1 << self.levels) - 1

    @property
    def offset(self) -> int:
        """The number that the shuffle adds to every id, below 2^32."""
        return int(derive_key(self.seed, ROUNDS)[0]) & 0xFFFFFFFF


@dataclass(frozen=True, slots=True, eq=False)
class ChunkMarks:
    """Counts of the rows that m partitions of n chunks each need and load; int64.

    N_ij are the rows that chunk j of partition i needs, including its own. T_kj is the part of the
    union of all N_ij, over i, that belongs to partition k. ``neighbours`` and ``kept`` are
    ``(n, m, m)``. At [j, i, k] they count the rows of N_ij that belong to k, and the ones among
    them that are also in N_i,j-1. ``transition`` and ``loaded`` are ``(n, m)``. At [j, k] they
    count the rows of T_kj, and the ones not in T_k,j-1.
    """

    neighbours: IntArray
    kept: IntArray
    transition: IntArray
    loaded: IntArray


def in_lanes(value: int) -> int:
    """Repeat a value of 16 bits in every lane of a word."""
    return sum(value << (16 * lane) for lane in range(LANES))


# --------------------------------------------------------------------------- edges


def draw_edges(stream: RmatStream, first: int, count: int) -> tuple[IndexArray, IndexArray]:
    """Return both ends of ``count`` edges from number ``first`` on, int32 ``(count,)`` each."""
    numbers = np.arange(first, first + count, dtype=np.uint64)
    rows, columns = _attempt(stream, numbers, 0)
    attempt = 0
    while True:
        wrong = (rows >= stream.vertices) | (columns >= stream.vertices) | (rows == columns)
        if not wrong.any():
            break
        attempt += 1
        rows[wrong], columns[wrong] = _attempt(stream, numbers[wrong], attempt)
    return _shuffle(stream, rows), _shuffle(stream, columns)


def _attempt(stream: RmatStream, numbers: WordArray, attempt: int) -> tuple[IntArray, IntArray]:
    """Return both ends of edges before the shuffle; edges outside and self loops are included."""
    key = mix(np.array([(stream.seed_key + attempt * GOLDEN) & WORD], dtype=np.uint64))
    one, lanes = np.uint64(1), np.uint64(in_lanes(1))
    rows, columns = np.zeros((2, len(numbers)), dtype=np.uint64)
    for word in range(stream.words):
        counter = numbers * np.uint64(stream.words) + np.uint64(word + 1)
        drawn = mix(key + counter * np.uint64(GOLDEN)) & np.uint64(in_lanes(2**LANE_BITS - 1))
        # The highest bit of each lane says whether the number is in quadrant b or beyond, in c or
        # beyond, in d.
        b, c, d = ((drawn + np.uint64(step)) >> np.uint64(LANE_BITS) for step in stream.steps)
        rows = rows << one | (c & lanes)
        columns = columns << one | ((b ^ c ^ d) & lanes)
    return _join_lanes(stream, rows), _join_lanes(stream, columns)


def _join_lanes(stream: RmatStream, bits: WordArray) -> IntArray:
    """Return ids assembled from the bits in four lanes of each word."""
    ids = np.zeros(len(bits), dtype=np.uint64)
    for lane in range(LANES):
        ids |= (bits >> np.uint64(16 * lane) & np.uint64(0xFFFF)) << np.uint64(lane * stream.words)
    return (ids & np.uint64(stream.mask)).astype(np.int64)


def _shuffle(stream: RmatStream, ids: IntArray) -> IndexArray:
    """Apply a permutation of [0, 2^levels), repeatedly until the result is a vertex."""
    mask = np.uint64(stream.mask)
    left = np.arange(len(ids))
    shuffled = ids.astype(np.uint64)
    while len(left):
        x = shuffled[left] + np.uint64(stream.offset)
        for factor in stream.factors:
            x = x * np.uint64(factor) & mask
            x ^= x >> np.uint64(stream.shift)
        shuffled[left] = x
        left = left[x >= stream.vertices]
    return shuffled.astype(np.int32)


def add_degrees(stream: RmatStream, first: int, count: int, degrees: IndexArray) -> None:
    """Add one for each end of ``count`` edges, in any row of ``degrees``."""
    for ends in draw_edges(stream, first, count):
        degrees[0] += np.bincount(ends, minlength=stream.vertices).astype(np.int32)


# --------------------------------------------------------------------------- neighbour sets


def mark_edges(
    stream: RmatStream, first: int, count: int, labels: LabelArray, lines: WordArray
) -> None:
    """Set the bits of ``count`` edges, in both directions."""
    rows, columns = draw_edges(stream, first, count)
    _mark(rows, labels[columns], lines)
    _mark(columns, labels[rows], lines)


def mark_rows(graph: Graph, first: int, last: int, labels: LabelArray, lines: WordArray) -> None:
    """Set the bits of the rows ``first`` to ``last``; ``ValueError`` for a malformed graph."""
    bounds = graph.indptr[first : last + 1]
    lengths = np.diff(bounds)
    if bounds[0] < 0 or bounds[-1] > len(graph.indices) or (lengths < 0).any():
        raise ValueError(MALFORMED)
    sources = graph.indices[bounds[0] : bounds[-1]]
    if len(sources) and not 0 <= sources.min() <= sources.max() < len(lines):
        raise ValueError(MALFORMED)
    _mark(sources, np.repeat(labels[first:last], lengths), lines)


def _mark(vertices: IndexArray, pieces: LabelArray, lines: WordArray) -> None:
    bits = np.uint64(1) << (pieces % WORD_BITS).astype(np.uint64)
    np.bitwise_or.at(lines, (vertices, pieces // WORD_BITS), bits)


def _unpack(lines: WordArray) -> BoolArray:
    """Return lines as truth values, ``(V, 64 W)``."""
    octets = lines.astype("<u8").view(np.uint8)
    return np.unpackbits(octets, axis=1, bitorder="little").astype(np.bool_)


def count_replicas(lines: WordArray, labels: LabelArray, pieces: int) -> IntArray:
    """See :func:`gnnbench.kernels.dispatch.streams.count_replicas`."""
    marked = _unpack(lines)[:, :pieces]
    everybody = np.arange(len(labels))
    counts = np.zeros((2, int(math.log2(pieces))), dtype=np.int64)
    for level in range(counts.shape[1]):
        by_partition = marked.reshape(len(labels), pieces >> level, -1)
        joined: BoolArray = np.logical_or.reduce(by_partition, axis=2)
        counts[0, level] = joined.sum()
        joined[everybody, labels >> level] = True
        counts[1, level] = joined.sum()
    return counts


def count_chunks(
    lines: WordArray, labels: LabelArray, partitions: int, chunks: int, pieces: int
) -> ChunkMarks:
    """See :func:`gnnbench.kernels.dispatch.streams.count_chunks`."""
    marked = _unpack(lines)[:, :pieces]
    marked[np.arange(len(labels)), labels] = True
    # (V, m, n), and the partition of each vertex, (V, m).
    by_chunk = marked.reshape(len(labels), partitions, chunks, -1)
    needed: BoolArray = np.logical_or.reduce(by_chunk, axis=3)
    owned = (labels // (pieces // partitions))[:, None] == np.arange(partitions)
    kept = needed.copy()
    kept[:, :, 0] = False
    kept[:, :, 1:] &= needed[:, :, :-1]
    union: BoolArray = np.logical_or.reduce(needed, axis=1)
    fresh = union.copy()
    fresh[:, 1:] &= ~union[:, :-1]
    return ChunkMarks(
        *(np.einsum("vij,vk->jik", part.astype(np.int64), owned) for part in (needed, kept)),
        *(np.einsum("vj,vk->jk", part.astype(np.int64), owned) for part in (union, fresh)),
    )
