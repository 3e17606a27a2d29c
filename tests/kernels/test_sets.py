"""Set algebra over ascending ids: compiled kernels, their twins, Python's own sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnbench.kernels.dispatch import sets
from gnnbench.kernels.native import load
from gnnbench.kernels.reference import sets as reference
from gnnbench.kernels.slabs import Slab
from gnnbench.records import IndexArray, IntArray

LEVELS = ["baseline", "avx2", "avx512"]
OPERATIONS: list[tuple[Callable[..., Any], Callable[..., int], Callable[..., set[int]]]] = [
    (sets.unite, sets.count_union, set.union),
    (sets.intersect, sets.count_intersection, set.intersection),
    (sets.subtract, sets.count_difference, set.difference),
]


@pytest.fixture(params=["pure", *LEVELS])
def anywhere(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every instruction set of the compiled loops, and the twins."""
    if request.param == "pure":
        monkeypatch.setattr(sets, "load", lambda topic: None)
    else:
        monkeypatch.setenv("GNNBENCH_SIMD", request.param)


def ids_of(*ids: int) -> IndexArray:
    return np.array(ids, dtype=np.int32)


def draw_set(size: int, universe: int, seed: int) -> IndexArray:
    chosen = np.random.default_rng(seed).choice(universe, size, replace=False)
    return np.sort(chosen).astype(np.int32)


def assert_set(ids: IndexArray, expected: set[int]) -> None:
    assert ids.dtype == np.int32
    assert ids.flags.owndata
    assert ids.tolist() == sorted(expected)


SIZES = [0, 1, 2, 31, 33, 255, 256, 257, 1000, 5000]


@pytest.mark.parametrize("universe", [5000, 40000, 2**31 - 1])
@pytest.mark.parametrize("num_a", SIZES)
@pytest.mark.parametrize("num_b", SIZES)
def test_two_sets(num_a: int, num_b: int, universe: int) -> None:
    """Merged in one go, in four stretches, or one searched for the other's."""
    if universe > 40000:  # ids up to the largest, most of both sets apart
        a, b = draw_set(num_a, 5000, 1), draw_set(num_b, 5000, 2)
        a[num_a // 2 :] += universe - 5000
        b[num_b // 3 :] += universe - 5000
    else:
        a, b = draw_set(num_a, universe, 1), draw_set(num_b, universe, 2)
    a.flags.writeable = b.flags.writeable = False
    for combine, count, truth in OPERATIONS:
        expected = truth(set(a.tolist()), set(b.tolist()))
        assert_set(combine(a, b), expected)
        assert count(a, b) == len(expected)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_two_sets_of_any_kind(data: st.DataObject) -> None:
    """Sets in clusters, so that stretches end early; and arrays that are no sets."""
    arrays = []
    for _ in range(2):
        starts = data.draw(st.lists(st.integers(-1, 3000), max_size=4))
        runs = [np.arange(start, start + data.draw(st.integers(1, 400))) for start in starts]
        step = data.draw(st.sampled_from([1, 1, 2, 3]))
        ids = np.concatenate([np.empty(0, dtype=np.int64), *runs])
        if data.draw(st.integers(0, 9)):
            ids = np.unique(np.maximum(ids, 0))
        arrays.append((ids[::step]).astype(np.int32))

    def outcomes() -> list[object]:
        found: list[object] = []
        for combine, count, _ in OPERATIONS:
            try:
                found.append(combine(*arrays).tolist())
            except ValueError as error:
                found.append(str(error))
            try:
                found.append(count(*arrays))
            except ValueError as error:
                found.append(str(error))
        return found

    ours = outcomes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sets, "load", lambda topic: None)
        assert outcomes() == ours


@pytest.mark.usefixtures("anywhere")
@settings(max_examples=50, deadline=None)
@given(st.data())
def test_many_sets(data: st.DataObject) -> None:
    universe = data.draw(st.integers(0, 1500))
    member = st.lists(st.integers(-(data.draw(st.integers(0, 20)) == 20), universe), max_size=40)
    arrays = [ids_of(*ids) for ids in data.draw(st.lists(member, max_size=5))]
    everything = set().union(*(ids.tolist() for ids in arrays))
    if not everything <= set(range(universe)):
        for run in (sets.unite_all, sets.count_distinct):
            with pytest.raises(ValueError, match=r"sets\[\d\] holds"):
                run(arrays, universe)
        return
    assert_set(sets.unite_all(arrays, universe), everything)
    assert sets.count_distinct(arrays, universe) == len(everything)


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize("universe", [1, 63, 64, 65, 1000, 100_000])
def test_unique_ids(universe: int) -> None:
    ids = np.random.default_rng(3).integers(0, universe, 3000).astype(np.int32)
    ids[7] = universe - 1
    assert_set(sets.unique_ids(ids, universe), set(ids.tolist()))
    assert_set(sets.unique_ids(np.arange(universe, dtype=np.int32), universe), set(range(universe)))


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize("universe", [300, 5000, 700_000])
def test_all_pairs(universe: int) -> None:
    """Sets of all densities, empty ones and equal ones, over one tile of the universe and many."""
    sizes = [0, 1, 5, 50, 300, 300, 250, 4, universe // 2]
    first = [draw_set(min(size, universe), universe, size) for size in sizes]
    second = [*first[::2], draw_set(universe // 3, universe, 7)]
    expected = [[len(set(a.tolist()) & set(b.tolist())) for b in second] for a in first]
    for threads in (1, 3):
        counts = sets.count_intersections(first, second, universe, threads=threads)
        assert counts.dtype == np.int64
        assert counts.tolist() == expected
        own = sets.count_intersections(first, None, universe, threads=threads)
        np.testing.assert_array_equal(own, sets.count_intersections(first, first, universe))


@pytest.mark.usefixtures("anywhere")
def test_more_sets_than_a_tile_has_lines() -> None:
    """Each still has one line of the bitmaps."""
    many = [ids_of(i % 1000, 1000 + i % 7, 2000) for i in range(900)]
    counts = sets.count_intersections(many, many[:3], 2001)
    expected = [[len({*a.tolist()} & {*b.tolist()}) for b in many[:3]] for a in many]
    assert counts.tolist() == expected


@pytest.mark.usefixtures("anywhere")
def test_no_sets_at_all() -> None:
    empty = ids_of()
    assert sets.unite_all([], 9).tolist() == []
    assert sets.count_distinct([empty], 0) == 0
    assert sets.count_intersections([], [empty], 5).shape == (0, 1)
    assert sets.count_intersections([empty], None, 0).tolist() == [[0]]


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize(
    "bad", [ids_of(3, 3), ids_of(3, 2), ids_of(-1, 2), ids_of(*range(300), 299), ids_of(-(2**31))]
)
def test_what_is_no_set_raises(bad: IndexArray) -> None:
    good = ids_of(*range(0, 600, 2))
    for combine, count, _ in OPERATIONS:
        for run in (combine, count):
            with pytest.raises(ValueError, match=r"^a must ascend"):
                run(bad, good)
            with pytest.raises(ValueError, match=r"^b must ascend"):
                run(good, bad)
    with pytest.raises(ValueError, match=r"^sets_b\[1\] must ascend"):
        sets.count_intersections([good], [good, bad], 1000)
    with pytest.raises(ValueError, match=r"^sets_a\[0\] must ascend"):
        sets.count_intersections([bad], None, 1000)


@pytest.mark.usefixtures("anywhere")
def test_ids_outside_the_universe_raise() -> None:
    good, bad = ids_of(0, 4), ids_of(2, 5)
    assert sets.unite_all([good], 5).tolist() == [0, 4]
    for outside in (bad, ids_of(-1), ids_of(2**31 - 1)):
        for run in (sets.unite_all, sets.count_distinct):
            with pytest.raises(ValueError, match=r"sets\[1\] holds"):
                run([good, outside], 5)
        with pytest.raises(ValueError, match=r"sets\[0\] holds"):
            sets.unique_ids(outside, 5)
    with pytest.raises(ValueError, match=r"sets_b\[0\] holds 2 to 5, outside a universe of 5"):
        sets.count_intersections([good], [bad], 5)


BAD_ARRAYS: list[tuple[Any, str]] = [
    (np.array([1, 2], dtype=np.int64), "is int64"),
    (ids_of(1, 2, 3, 4)[::2], "contiguous"),
    (ids_of(1, 2).reshape(1, 2), "one-dimensional"),
    (ids_of(1, 2).astype(">i4"), "int32"),
    ([1, 2], "is a list"),
]


@pytest.mark.parametrize(("bad", "message"), BAD_ARRAYS)
def test_bad_arrays_raise(bad: npt.NDArray[Any], message: str) -> None:
    good = ids_of(1, 2)
    for combine, count, _ in OPERATIONS:
        for run in (combine, count):
            with pytest.raises(ValueError, match=message):
                run(good, bad)
            with pytest.raises(ValueError, match=message):
                run(bad, good)
    with pytest.raises(ValueError, match=message):
        sets.unite_all([good, bad], 5)
    with pytest.raises(ValueError, match=message):
        sets.count_distinct([bad], 5)
    with pytest.raises(ValueError, match=message):
        sets.count_intersections([good], [bad], 5)


@pytest.mark.parametrize("universe", [-1, 2**31])
def test_bad_universes_raise(universe: int) -> None:
    for run in (sets.unite_all, sets.count_distinct):
        with pytest.raises(ValueError, match="universe is"):
            run([], universe)
    with pytest.raises(ValueError, match="universe is"):
        sets.count_intersections([], None, universe)


def test_negative_threads_raise() -> None:
    with pytest.raises(ValueError, match="threads is -1"):
        sets.count_intersections([], None, 5, threads=-1)


def test_deduplicated_volumes() -> None:
    """Batches with the unions of HongTu's figure 6: chunks need 19 rows, 11 distinct."""
    batches = [
        [ids_of(0, 1, 2, 3), ids_of(1, 2, 3, 4, 7), ids_of(0, 4)],
        [ids_of(2, 3, 5), ids_of(3, 4, 5, 6), ids_of(6)],
    ]
    unions = [sets.unite_all(batch, 8) for batch in batches]
    assert sum(len(ids) for batch in batches for ids in batch) == 19
    assert sum(sets.count_distinct(batch, 8) for batch in batches) == 11
    assert len(unions[0]) + sets.count_difference(unions[1], unions[0]) == 8


# --------------------------------------------------------------------------- bitmaps


def wide(*ids: int) -> IntArray:
    return np.array(ids, dtype=np.int64)


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize("universe", [1, 63, 64, 65, 512, 513, 3000])
def test_bitmaps_are_sets(universe: int) -> None:
    """Sets of all densities, empty and full, against Python's own; ids in any order and twice."""
    random = np.random.default_rng(universe)
    arrays = [random.integers(0, universe, size) for size in (0, 1, universe // 3, universe)]
    arrays.append(np.arange(universe)[::-1].copy())
    truth = [set(ids.tolist()) for ids in arrays]
    bitmaps = sets.mark_sets(arrays, universe)
    assert bitmaps.shape == (5, -(-universe // 512) * 8)
    assert [ids.tolist() for ids in sets.list_marks(bitmaps)] == [sorted(each) for each in truth]
    assert sets.count_marks(bitmaps).tolist() == [len(each) for each in truth]
    counts = sets.count_shared_marks(bitmaps, bitmaps[1:])
    assert counts.tolist() == [[len(a & b) for b in truth[1:]] for a in truth]


def lists_of(listed: list[list[IntArray]]) -> list[list[list[int]]]:
    return [[ids.tolist() for ids in row] for row in listed]


@st.composite
def rounds_of_sets(draw: st.DrawFn) -> tuple[list[list[set[int]]], int]:
    """By kind and slot: what is needed, transition sets, what is held and what was read."""
    slots, universe = draw(st.integers(0, 4)), draw(st.integers(1, 600))
    one = st.sets(st.integers(0, universe - 1), max_size=40)
    return [[draw(one) for _ in range(slots)] for _ in range(4)], universe


@pytest.mark.usefixtures("anywhere")
@given(drawn=rounds_of_sets())
@settings(deadline=None)
def test_fetches_are_the_differences_that_the_paper_names(
    drawn: tuple[list[list[set[int]]], int],
) -> None:
    kinds, universe = drawn
    bitmaps = [sets.mark_sets([wide(*ids) for ids in kind], universe) for kind in kinds]
    expected = []
    for mine, own, held, read in zip(*kinds, strict=True):
        lists = [mine, own - held, own & held]
        lists += [(mine - own - read) & there for there in kinds[1]]
        lists += [(mine - own) & read & there for there in kinds[1]]
        expected.append([sorted(ids) for ids in lists])
    assert lists_of(sets.list_fetches(*bitmaps)) == expected
    assert lists_of(reference.list_fetches(*bitmaps)) == expected
    assert lists_of(sets.list_fetches(*bitmaps, Slab(), threads=2)) == expected


@pytest.mark.usefixtures("anywhere")
def test_bitmaps_of_more_words_than_a_tile_has() -> None:
    random = np.random.default_rng(1)
    bitmaps = random.integers(0, 2**63, (40, 4000), dtype=np.uint64)
    counts = sets.count_shared_marks(bitmaps[:3], bitmaps)
    for i in range(3):
        assert counts[i].tolist() == sets.count_marks(bitmaps[i] & bitmaps).tolist()


@pytest.mark.usefixtures("anywhere")
def test_bitmaps_that_are_worth_several_threads() -> None:
    """Lists that lie side by side, some of them dense, are each thread's own."""
    random = np.random.default_rng(2)
    universe = 200_000
    arrays = [random.integers(0, universe, 8000) for _ in range(39)]
    arrays.append(np.arange(0, universe, 2))
    one, several = (sets.mark_sets(arrays, universe, threads=threads) for threads in (1, 3))
    np.testing.assert_array_equal(one, several)
    for array, ids in zip(arrays, sets.list_marks(several, threads=3), strict=True):
        np.testing.assert_array_equal(ids, np.unique(array))
    counts = sets.count_shared_marks(one, one, threads=3)
    np.testing.assert_array_equal(counts, sets.count_shared_marks(one, one, threads=1))
    round_ = (one[:9], one[9:18], one[18:27], one[27:36])
    assert lists_of(sets.list_fetches(*round_, Slab(), threads=3)) == lists_of(
        reference.list_fetches(*round_)
    )


@pytest.mark.usefixtures("anywhere")
def test_no_bitmaps_at_all() -> None:
    none = sets.mark_sets([], 100)
    empty = sets.mark_sets([wide()], 0)
    assert (none.shape, empty.shape) == ((0, 8), (1, 0))
    assert sets.list_marks(none) == []
    assert sets.list_marks(empty)[0].tolist() == []
    assert sets.list_fetches(none, none, none, none) == []
    assert lists_of(sets.list_fetches(empty, empty, empty, empty)) == [[[]] * 5]
    assert sets.count_shared_marks(empty, empty).tolist() == [[0]]
    assert sets.count_shared_marks(none, none).shape == (0, 0)
    assert sets.count_marks(empty).tolist() == [0]


@pytest.mark.usefixtures("anywhere")
def test_bad_bitmaps_raise() -> None:
    for outside in (wide(2, 5), wide(-1)):
        with pytest.raises(ValueError, match=r"sets\[1\] holds"):
            sets.mark_sets([wide(0), outside], 5)
    with pytest.raises(ValueError, match="is int32"):
        sets.mark_sets([ids_of(1)], 5)  # type: ignore[list-item]
    with pytest.raises(ValueError, match="universe is -1"):
        sets.mark_sets([], -1)
    small, large = sets.mark_sets([wide(1)], 512), sets.mark_sets([wide(1)], 513)
    with pytest.raises(ValueError, match="two universes"):
        sets.count_shared_marks(small, large)
    with pytest.raises(ValueError, match="two universes"):
        sets.list_fetches(small, small, small, large)
    with pytest.raises(ValueError, match="1 and 2 bitmaps"):
        sets.list_fetches(small, small, np.vstack((small, small)), small)
    for bad in (small[0], small.astype(np.int64), np.asfortranarray(np.vstack((small, small)))):
        with pytest.raises(ValueError, match="bitmaps are"):
            sets.count_marks(bad)


@pytest.mark.skipif(load("sets") is None, reason="needs the compiled kernels")
def test_results_keep_no_spare_memory() -> None:
    ids = ids_of(*range(10_000))
    assert sets.intersect(ids, ids_of(*range(9_999, 20_000))).nbytes == 4
    assert sets.unite_all([ids], 10_000).nbytes == 40_000
