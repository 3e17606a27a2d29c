"""Sets of ids as bitmaps, and distinct ids: compiled kernels, their twins, Python's own sets."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnbench.kernels.dispatch import sets
from gnnbench.kernels.native import load
from gnnbench.kernels.reference import sets as reference
from gnnbench.kernels.slabs import Slab


def ids_of(*ids):
    return np.array(ids, dtype=np.int32)


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize("universe", [1, 63, 64, 65, 1000, 100_000])
def test_unique_ids(universe):
    ids = np.random.default_rng(3).integers(0, universe, 3000).astype(np.int32)
    ids[7] = universe - 1
    for drawn in (ids, np.arange(universe, dtype=np.int32), ids[:0]):
        drawn.flags.writeable = False
        unique = sets.unique_ids(drawn, universe)
        assert unique.dtype == np.int32
        assert unique.flags.owndata
        assert unique.tolist() == sorted(set(drawn.tolist()))


@pytest.mark.skipif(load("sets") is None, reason="needs the compiled kernels")
def test_results_keep_no_spare_memory():
    ids = np.repeat(np.arange(100, dtype=np.int32), 100)
    assert sets.unique_ids(ids, 10_000).nbytes == 400


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize(
    ("ids", "universe", "message"),
    [
        (ids_of(2, 5), 5, "^ids holds 2 to 5, outside a universe of 5"),
        (ids_of(0, -1), 5, "^ids holds -1 to 0"),
        (ids_of(0), 0, "outside a universe of 0"),
        (ids_of(), -1, "universe is -1"),
        (np.array([1, 2], dtype=np.int64), 5, "is int64"),
        (ids_of(1, 2, 3, 4)[::2], 5, "contiguous"),
        ([1, 2], 5, "is a list"),
    ],
)
def test_bad_ids_raise(ids, universe, message):
    with pytest.raises(ValueError, match=message):
        sets.unique_ids(ids, universe)


def wide(*ids):
    return np.array(ids, dtype=np.int64)


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize("universe", [1, 63, 64, 65, 512, 513, 3000])
def test_bitmaps_are_sets(universe):
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


def lists_of(listed):
    return [[ids.tolist() for ids in row] for row in listed]


@st.composite
def rounds_of_sets(draw):
    """By kind and slot: what is needed, transition sets, what is held and what was read."""
    slots, universe = draw(st.integers(0, 4)), draw(st.integers(1, 600))
    one = st.sets(st.integers(0, universe - 1), max_size=40)
    return [[draw(one) for _ in range(slots)] for _ in range(4)], universe


@pytest.mark.usefixtures("anywhere")
@given(drawn=rounds_of_sets())
@settings(max_examples=40, deadline=None)
def test_fetches_are_the_differences_that_the_paper_names(drawn):
    kinds, universe = drawn
    bitmaps = [sets.mark_sets([wide(*ids) for ids in kind], universe) for kind in kinds]
    expected = []
    for mine, own, held, read in zip(*kinds, strict=True):
        lists = [mine, own - held, own & held]
        lists += [(mine - own - read) & there for there in kinds[1]]
        lists += [(mine - own) & read & there for there in kinds[1]]
        expected.append([sorted(ids) for ids in lists])
    assert lists_of(sets.list_fetches(*bitmaps)) == expected
    assert lists_of(sets.list_fetches(*bitmaps, Slab(), threads=2)) == expected


@pytest.mark.parametrize("level", ["baseline", "avx512"])
def test_bitmaps_that_are_worth_several_threads(level, monkeypatch):
    """Lists that lie side by side, some of them dense, are each thread's own."""
    monkeypatch.setenv("GNNBENCH_SIMD", level)
    random = np.random.default_rng(2)
    universe = 100_000
    # More ids, words and pairs of words than three threads are woken for.
    arrays = [random.integers(0, universe, 5000) for _ in range(39)]
    arrays.append(np.arange(0, universe, 2))
    one, several = (sets.mark_sets(arrays, universe, threads=threads) for threads in (1, 3))
    np.testing.assert_array_equal(one, several)
    for array, ids in zip(arrays, sets.list_marks(several, threads=3), strict=True):
        np.testing.assert_array_equal(ids, np.unique(array))
    for threads in (1, 3):  # more words than a tile has
        counts = sets.count_shared_marks(one, one, threads=threads)
        for number in range(40):
            assert counts[number].tolist() == sets.count_marks(one[number] & one).tolist()
    round_ = (one[:9], one[9:18], one[18:27], one[27:36])
    assert lists_of(sets.list_fetches(*round_, Slab(), threads=3)) == lists_of(
        reference.list_fetches(*round_)
    )


@pytest.mark.usefixtures("anywhere")
def test_no_bitmaps_at_all():
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
def test_bad_bitmaps_raise():
    for outside in (wide(2, 5), wide(-1)):
        with pytest.raises(ValueError, match=r"sets\[1\] holds"):
            sets.mark_sets([wide(0), outside], 5)
    with pytest.raises(ValueError, match="is int32"):
        sets.mark_sets([ids_of(1)], 5)
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
