"""R-MAT edges by their numbers, and neighbour sets as bits: kernels, twins, Python's own sets."""

import mmap
from collections import Counter
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnbench import datasets
from gnnbench.datasets.synthetic import RMAT_QUADRANTS
from gnnbench.kernels.dispatch import streams
from gnnbench.kernels.native import load
from gnnbench.kernels.reference.streams import ChunkMarks, RmatStream, _shuffle, draw_edges
from gnnbench.records import Graph
from tests.kernels.conftest import LEVELS


def make_stream(vertices, edges, seed=0):
    return RmatStream(vertices, edges, RMAT_QUADRANTS, seed)


def draw_labels(vertices, pieces, seed=0):
    return np.random.default_rng(seed).integers(0, pieces, vertices).astype(np.uint16)


def neighbours_by_piece(edges, labels, pieces):
    """The in-neighbours of each piece, as Python's sets."""
    found = [set() for _ in range(pieces)]
    for u, v in edges:
        found[labels[v]].add(u)
        found[labels[u]].add(v)
    return found


def edges_of(stream):
    ends = draw_edges(stream, 0, stream.edges)
    return list(zip(*(side.tolist() for side in ends), strict=True))


def bits_of(lines, pieces):
    """Lines as the sets of vertices that each piece has marked."""
    return [
        set(np.flatnonzero(lines[:, p // 64] >> np.uint64(p % 64) & np.uint64(1)).tolist())
        for p in range(pieces)
    ]


def test_the_memory_of_counting_is_that_of_degrees_or_of_lines_and_labels():
    vertices, pieces = 1000, 130
    lines = streams.mark_neighbours(
        make_stream(vertices, 50), draw_labels(vertices, pieces), pieces
    )
    assert lines.nbytes == vertices * 24
    labels_and_degrees = vertices * (2 + 4)
    assert streams.counting_bytes(vertices, pieces, 2) == lines.nbytes + labels_and_degrees
    counters = min(40, streams.MOST_COUNTERS)
    assert streams.counting_bytes(vertices, 2, 40) == vertices * 4 * (counters + 1)


#: Ids of 1 to 29 bits, in 1 to 8 words: powers of two, and sizes beyond which attempts fail.
SIZES = [2, 3, 5, 8, 100, 4096, 65_537, 2**28 + 1]


@pytest.mark.skipif(load("streams") is None, reason="needs the compiled kernels")
@pytest.mark.parametrize("vertices", SIZES)
@pytest.mark.parametrize("level", LEVELS)
def test_the_twin_draws_the_same(vertices, level, monkeypatch):
    """From any edge on, as many as a block of 128 has, fewer and more: by what each edge counts."""
    monkeypatch.setenv("GNNBENCH_SIMD", level)
    compiled = load("streams")
    stream = make_stream(vertices, 3000, seed=vertices)
    # Only pages that are written take memory.
    room = mmap.mmap(-1, 4 * vertices, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    degrees = np.frombuffer(room, dtype=np.int32).reshape(1, vertices)
    for first, count in ((0, 3), (1, 128), (127, 300)):
        rows, columns = draw_edges(stream, first, count)
        assert rows.dtype == columns.dtype == np.int32
        assert (rows != columns).all()
        compiled.add_degrees(stream, first, count, degrees)
        ends, times = np.unique((rows, columns), return_counts=True)
        assert 0 <= ends[0] <= ends[-1] < vertices
        assert degrees[0, ends].tolist() == times.tolist()
        degrees[0, ends] = 0


def test_seeds_draw_different_edges():
    one, other = (edges_of(make_stream(1024, 500, seed)) for seed in (1, 2))
    assert len(set(one) & set(other)) < 50


@pytest.mark.parametrize("vertices", [8, 13])
def test_quadrants_are_as_probable_as_asked(vertices):
    """The shuffle taken back, every pair comes as often as in a product of quadrants."""
    edges = 50_000
    stream = make_stream(vertices, edges)
    order = _shuffle(stream, np.arange(vertices))
    assert sorted(order.tolist()) == list(range(vertices))
    back = np.argsort(order)
    seen = Counter(zip(*(back[side] for side in draw_edges(stream, 0, edges)), strict=True))
    a, b, c = RMAT_QUADRANTS
    quadrant = np.array([[a, b], [c, 1 - a - b - c]])
    chance = np.ones((1, 1))
    for _ in range(stream.levels):
        chance = np.kron(chance, quadrant)
    chance = chance[:vertices, :vertices] * (1 - np.eye(vertices))
    chance /= chance.sum()
    counts = np.array([[seen[i, j] for j in range(vertices)] for i in range(vertices)])
    expected = edges * chance
    off = ~np.eye(vertices, dtype=bool)
    deviations = (counts - expected)[off] / np.sqrt(expected[off])
    assert abs(deviations).max() < 5
    assert counts[~off].sum() == 0


@pytest.mark.usefixtures("anywhere")
def test_degrees_count_both_ends(monkeypatch):
    """By any number of threads, and in stretches of any length."""
    stream = make_stream(300, 70_000)
    expected = Counter(end for edge in edges_of(stream) for end in edge)
    for threads, stretch in ((1, 1 << 23), (3, 1 << 23), (2, 1000), (20, 33_333)):
        monkeypatch.setattr(streams, "_STRETCH", stretch)
        told = []
        degrees = streams.count_degrees(stream, threads=threads, advance=told.append)
        assert degrees.dtype == np.int32
        assert degrees.tolist() == [expected[v] for v in range(300)]
        assert sum(told) == stream.edges


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize("pieces", [1, 63, 64, 65, 512])
@pytest.mark.parametrize("stored", [False, True])
def test_marks_are_neighbour_sets(pieces, stored, monkeypatch):
    """Both ends of a stream's edges are neighbours; a stored graph has every direction itself."""
    stream, labels = make_stream(700, 4000), draw_labels(700, pieces)
    source = stream
    expected = neighbours_by_piece(edges_of(stream), labels, pieces)
    count = stream.edges
    if stored:
        source = datasets.load("rmat:vertices=700,edges=3000,features=2,classes=2").graph
        rows = np.repeat(np.arange(700), source.degrees)
        expected, count = [set() for _ in range(pieces)], source.num_edges
        for u, v in zip(source.indices.tolist(), rows.tolist(), strict=True):
            expected[labels[v]].add(u)
    for threads, stretch in ((1, 1 << 23), (3, 1 << 23), (2, 777)):
        monkeypatch.setattr(streams, "_STRETCH", stretch)
        told = []
        lines = streams.mark_neighbours(
            source, labels, pieces, threads=threads, advance=told.append
        )
        assert lines.shape == (700, -(-pieces // 64))
        assert bits_of(lines, pieces) == expected
        assert sum(told) == count


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize("pieces", [2, 64, 128])
def test_replicas_are_sizes_of_joined_sets(pieces):
    stream = make_stream(900, 5000)
    labels = np.sort(draw_labels(900, pieces))
    sets = neighbours_by_piece(edges_of(stream), labels, pieces)
    own = [set(np.flatnonzero(labels == p).tolist()) for p in range(pieces)]
    lines = streams.mark_neighbours(stream, labels, pieces)
    expected = []
    while len(sets) > 1:
        expected.append(
            [sum(map(len, sets)), sum(len(a | b) for a, b in zip(sets, own, strict=True))]
        )
        sets = [a | b for a, b in zip(sets[::2], sets[1::2], strict=True)]
        own = [a | b for a, b in zip(own[::2], own[1::2], strict=True)]
    for threads in (1, 3):
        counts = streams.count_replicas(lines, labels, pieces, threads=threads)
        assert counts.T.tolist() == expected


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize(
    ("partitions", "chunks", "each"),
    [(1, 1, 1), (1, 5, 1), (4, 1, 2), (2, 3, 1), (3, 2, 4), (4, 32, 4), (2, 70, 1)],
)
def test_chunks_are_sets(partitions, chunks, each):
    """Every count of section 5.3, by Python's sets."""
    pieces = partitions * chunks * each
    stream = make_stream(600, 1500, seed=chunks)
    labels = draw_labels(600, pieces, seed=3)
    fine = neighbours_by_piece(edges_of(stream), labels, pieces)
    for v, label in enumerate(labels.tolist()):
        fine[label].add(v)
    owned = [
        set(np.flatnonzero(labels // (chunks * each) == k).tolist()) for k in range(partitions)
    ]

    def needed(i, j):
        first = (i * chunks + j) * each
        return set().union(*fine[first : first + each])

    lines = streams.mark_neighbours(stream, labels, pieces)
    for threads in (1, 3):
        marks = streams.count_chunks(
            lines, labels, partitions, chunks, pieces=pieces, threads=threads
        )
        before = set()
        for j in range(chunks):
            union = set().union(*(needed(i, j) for i in range(partitions)))
            for k, mine in enumerate(owned):
                assert marks.transition[j, k] == len(union & mine)
                assert marks.loaded[j, k] == len((union - before) & mine)
                for i in range(partitions):
                    reads = needed(i, j) & mine
                    assert marks.neighbours[j, i, k] == len(reads)
                    stays = reads & needed(i, j - 1) if j else set()
                    assert marks.kept[j, i, k] == len(stays)
            before = union


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vertices": 1}, r"vertices is 1; it must be from 2 to 2\^31 - 1\."),
        ({"vertices": 2**31}, "vertices is 2147483648"),
        ({"edges": 0}, r"edges is 0; it must be from 1 to 2\^31 - 1\."),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**64}, "seed is 18446744073709551616"),
        ({"quadrants": (0.5, 0.5, 0.1)}, r"quadrants are \(0\.5, 0\.5, 0\.1\)"),
        ({"quadrants": (0.5, 0.0, 0.1)}, "at least 0.01 each"),
        ({"quadrants": (float("nan"), 0.1, 0.1)}, "at least 0.01 each"),
        ({"quadrants": (0.5, 0.2)}, "three of at least"),
    ],
)
def test_what_is_no_stream(change, message):
    facts = {"vertices": 8, "edges": 9, "quadrants": RMAT_QUADRANTS, "seed": 0}
    with pytest.raises(ValueError, match=message):
        RmatStream(**(facts | change))


@pytest.mark.parametrize("pieces", [2, 63, 65])
def test_bits_of_no_piece_are_refused(pieces):
    lines = np.zeros((3, -(-pieces // 64)), dtype=np.uint64)
    labels = np.zeros(3, dtype=np.uint16)
    lines[1, -1] = 1 << (pieces - 1) % 64
    streams.count_chunks(lines, labels, 1, pieces)
    lines[1, -1] <<= np.uint64(1)
    with pytest.raises(ValueError, match=f"lines have bits beyond {pieces} pieces"):
        streams.count_chunks(lines, labels, 1, pieces)


@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_any_arguments_are_counted_or_refused(data):
    """Wrong shapes, types, orders, labels, rows and ids: what the twin counts, or its error."""
    vertices = data.draw(st.integers(2, 40))
    stream = make_stream(vertices, data.draw(st.integers(1, 300)))
    small = st.integers(-2, 10)
    pieces = data.draw(st.one_of(small, st.sampled_from([64, 65, 1 << 16, (1 << 16) + 1])))
    rng = np.random.default_rng(data.draw(st.integers(0, 5)))
    drawn = rng.integers(0, max(1, pieces + data.draw(st.integers(-1, 1))), vertices)
    narrow = drawn.astype(np.uint16)
    labels = data.draw(st.sampled_from([narrow, narrow[::-1], narrow[1:], drawn, drawn.tolist()]))
    graph = draw_graph(data, vertices, rng)
    options = {"threads": data.draw(st.integers(-1, 3))}
    lines = rng.integers(0, 2**63, (vertices, max(1, -(-pieces // 64)))).astype(np.uint64)
    if data.draw(st.booleans()):
        lines[:, -1] >>= np.uint64(-pieces % 64)  # bits of no piece are refused
    lines = data.draw(
        st.sampled_from([lines, lines[:-1], lines[:0], lines.T, lines.astype(np.int64), lines[0]])
    )
    partitions, chunks = data.draw(st.tuples(small, small))
    calls = [
        partial(streams.mark_neighbours, stream, labels, pieces, **options),
        partial(streams.mark_neighbours, graph, labels, pieces, **options),
        partial(streams.count_replicas, lines, labels, pieces, **options),
        partial(streams.count_chunks, lines, labels, partitions, chunks, pieces=pieces, **options),
    ]
    ours = [outcome(call) for call in calls]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "load", lambda topic: None)
        assert [outcome(call) for call in calls] == ours


def outcome(call):
    """What a call counts, or the error that it raises."""
    try:
        counted = call()
    except ValueError as error:
        return str(error)
    if isinstance(counted, ChunkMarks):
        counts = (counted.neighbours, counted.kept, counted.transition, counted.loaded)
        return [array.tolist() for array in counts]
    found = counted.tolist()
    return found


def draw_graph(data, vertices, rng):
    """Rows that may descend or point anywhere, ids that may be outside."""
    degrees = rng.integers(0, 4, vertices)
    indptr = np.concatenate(([0], np.cumsum(degrees))).astype(np.int64)
    slack = data.draw(st.sampled_from([0, 0, 1]))
    indices = rng.integers(-slack, vertices + slack, indptr[-1]).astype(np.int32)
    for _ in range(data.draw(st.integers(0, 2))):
        indptr[data.draw(st.integers(0, vertices))] = data.draw(st.integers(-(2**40), 2**40))
    return Graph(indptr, indices)
