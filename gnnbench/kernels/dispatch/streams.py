"""Counts on graphs too large to store: R-MAT edges by their numbers, and neighbour sets.

A stream is read several times: first for degrees, then, with the vertices divided into pieces, for
neighbour sets. A neighbour set is a line of bits for each vertex. Bit p says whether the vertex is
an in-neighbour of any vertex in piece p. Neither threads nor the division of a stream change a
result.

``threads`` is 0 for every core; ``advance`` is called with the number of edges read since the last
call.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gnnbench.kernels.dispatch.checks import check_graph
from gnnbench.kernels.native import load, resolve_threads
from gnnbench.kernels.reference import streams as reference
from gnnbench.kernels.reference.streams import (
    MALFORMED,
    WORD_BITS,
    ChunkMarks,
    LabelArray,
    RmatStream,
    WordArray,
)
from gnnbench.records import Graph, IndexArray, IntArray

Advance = Callable[[int], None]

MOST_PIECES = 1 << 16
#: The most counts of one partition's rows in another's chunks.
MOST_COUNTS = 1 << 24

#: Threads with private degree counters: together no larger than the lines of 512 pieces.
MOST_COUNTERS = 16

# Edges between two calls of ``advance``: a fraction of a second.
_STRETCH = 1 << 23


def count_degrees(
    stream: RmatStream, *, threads: int = 0, advance: Advance | None = None
) -> IndexArray:
    """Return the degree of every vertex, int32 ``(V,)``; repeated edges count each time.

    It takes 4 V bytes for each thread and uses at most 16 threads.
    """
    workers = min(resolve_threads(threads), MOST_COUNTERS)
    add = reference.add_degrees if (compiled := load("streams")) is None else compiled.add_degrees
    degrees = np.zeros((workers, stream.vertices), dtype=np.int32)
    for first in range(0, stream.edges, _STRETCH):
        count = min(_STRETCH, stream.edges - first)
        add(stream, first, count, degrees)
        if advance is not None:
            advance(count)
    total: IndexArray = degrees[0]
    for own in degrees[1:]:
        total += own
    return total.copy()


def mark_neighbours(
    source: RmatStream | Graph,
    labels: LabelArray,
    pieces: int,
    *,
    threads: int = 0,
    advance: Advance | None = None,
) -> WordArray:
    """Return the pieces that each vertex is an in-neighbour of: uint64 ``(V, ceil(pieces / 64))``.

    Bit p of line u is set if u has an edge to a vertex with the label p. Bit 0 is the lowest of the
    first word. ``labels`` is a contiguous uint16 ``(V,)`` of values below ``pieces``, which is at
    most 65,536. An undirected edge of a graph is two edges. Raises ``ValueError`` for other labels,
    and for a malformed graph.
    """
    count = source.vertices if isinstance(source, RmatStream) else source.num_vertices
    _check_labels(labels, pieces, count)
    workers = resolve_threads(threads)
    lines = np.zeros((count, words_of_line(pieces)), dtype=np.uint64)
    if isinstance(source, RmatStream):
        _mark_stream(source, labels, lines, workers, advance)
    else:
        _mark_graph(source, labels, lines, workers, advance)
    return lines


def words_of_line(pieces: int) -> int:
    """Return the number of 64-bit words in a line of :func:`mark_neighbours`."""
    return -(-pieces // WORD_BITS)


def counting_bytes(vertices: int, pieces: int, threads: int = 0) -> int:
    """Return the peak memory of counting a stream [bytes]: its degrees, or its lines and labels."""
    counters = min(resolve_threads(threads), MOST_COUNTERS)
    degree, label = 4, 2
    line = 8 * words_of_line(pieces)
    return vertices * max((counters + 1) * degree, degree + label + line)


def count_replicas(
    lines: WordArray, labels: LabelArray, pieces: int, *, threads: int = 0
) -> IntArray:
    """Return the replicas of all vertices together: int64 ``(2, log2(pieces))``.

    ``lines`` and ``labels`` are as in :func:`mark_neighbours`, ``pieces`` a power of two from 2 on.
    Column k is for ``pieces / 2^k`` partitions, of 2^k pieces with adjacent labels each. Row 0 sums
    the partitions' in-neighbours; row 1 also counts their own vertices. Divided by V, this is
    HongTu's neighbour replication factor (Wang et al. 2023, section 3). Raises ``ValueError`` for
    other arguments.
    """
    _check_lines(lines, labels, pieces)
    if pieces < 2 or pieces & (pieces - 1):
        raise ValueError(f"pieces is {pieces}; it must be a power of two from 2 on.")
    workers = resolve_threads(threads)
    compiled = load("streams")
    if compiled is None:
        return reference.count_replicas(lines, labels, pieces)
    counts: IntArray = compiled.count_replicas(lines, labels, pieces.bit_length() - 1, workers)
    return counts


def count_chunks(
    lines: WordArray,
    labels: LabelArray,
    partitions: int,
    chunks: int,
    *,
    pieces: int | None = None,
    threads: int = 0,
) -> ChunkMarks:
    """Count the rows that each of ``partitions`` times ``chunks`` chunks needs and loads.

    ``lines`` and ``labels`` are as in :func:`mark_neighbours`, with ``pieces`` (by default one a
    chunk) a multiple of the chunks. The first pieces make chunk 0 of partition 0, the next ones its
    chunk 1, and so on. Raises ``ValueError`` if they are not, and if the counts would not fit.
    """
    whole = partitions * chunks
    total = whole if pieces is None else pieces
    _check_lines(lines, labels, total)
    if partitions < 1 or chunks < 1 or total % whole:
        raise ValueError(
            f"{total} pieces cannot be divided into {partitions} partitions of {chunks} chunks; "
            f"pass a multiple of them."
        )
    if whole * partitions > MOST_COUNTS:
        raise ValueError(
            f"{partitions} partitions of {chunks} chunks have more than {MOST_COUNTS:,} counts; "
            f"ask for fewer."
        )
    workers = resolve_threads(threads)
    compiled = load("streams")
    if compiled is None:
        return reference.count_chunks(lines, labels, partitions, chunks, total)
    each = np.arange(whole, dtype=np.uint16)
    neighbours, kept, transition, loaded = compiled.count_chunks(
        lines,
        labels,
        np.repeat(each, total // whole),
        np.repeat(np.arange(partitions, dtype=np.uint16), chunks),
        np.tile(np.arange(chunks, dtype=np.uint16), partitions),
        partitions,
        chunks,
        workers,
    )
    square = (chunks, partitions, partitions)
    return ChunkMarks(
        neighbours.reshape(square),
        kept.reshape(square),
        transition.reshape(square[:2]),
        loaded.reshape(square[:2]),
    )


def _mark_stream(
    stream: RmatStream,
    labels: LabelArray,
    lines: WordArray,
    workers: int,
    advance: Advance | None,
) -> None:
    compiled = load("streams")
    for first in range(0, stream.edges, _STRETCH):
        count = min(_STRETCH, stream.edges - first)
        if compiled is None:
            reference.mark_edges(stream, first, count, labels, lines)
        else:
            compiled.mark_edges(stream, first, count, labels, lines, workers)
        if advance is not None:
            advance(count)


def _mark_graph(
    graph: Graph, labels: LabelArray, lines: WordArray, workers: int, advance: Advance | None
) -> None:
    check_graph(graph.indptr, graph.indices)
    compiled = load("streams")
    rows = max(1, graph.num_vertices * _STRETCH // max(1, graph.num_edges))
    for first in range(0, graph.num_vertices, rows):
        last = min(first + rows, graph.num_vertices)
        if compiled is None:
            reference.mark_rows(graph, first, last, labels, lines)
        elif not compiled.mark_rows(
            graph.indptr, graph.indices, first, last, labels, lines, workers
        ):
            raise ValueError(MALFORMED)
        if advance is not None:
            advance(int(graph.indptr[last] - graph.indptr[first]))


def _check_labels(labels: LabelArray, pieces: int, vertices: int) -> None:
    if not 1 <= pieces <= MOST_PIECES:
        raise ValueError(f"pieces is {pieces}; it must be from 1 to {MOST_PIECES:,}.")
    if (
        not isinstance(labels, np.ndarray)
        or labels.shape != (vertices,)
        or labels.dtype != np.uint16
        or not labels.flags.c_contiguous
        or not labels.flags.aligned
    ):
        raise ValueError(f"labels must be a contiguous uint16 array, one for {vertices} vertices.")
    if vertices and int(labels.max()) >= pieces:
        raise ValueError(f"labels go up to {labels.max()}; they must be below {pieces}.")


def _check_lines(lines: WordArray, labels: LabelArray, pieces: int) -> None:
    if (
        not isinstance(lines, np.ndarray)
        or lines.ndim != 2
        or lines.dtype != np.uint64
        or not lines.flags.c_contiguous
        or not lines.flags.aligned
        or lines.shape[1] != words_of_line(pieces)
        or not len(lines)
    ):
        raise ValueError(f"lines must be what mark_neighbours returns for {pieces} pieces.")
    _check_labels(labels, pieces, len(lines))
    spare = -pieces % WORD_BITS
    if spare and int(np.bitwise_or.reduce(lines[:, -1])) >> (WORD_BITS - spare):
        raise ValueError(f"lines have bits beyond {pieces} pieces.")
