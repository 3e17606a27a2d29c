"""Rows gathered and added by id: compiled kernels and their twins."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnbench.kernels.dispatch import rows
from gnnbench.kernels.reference import rows as reference
from tests.kernels.conftest import LEVELS

KINDS = ["float32", "float64", "float16", "uint16", "bfloat16"]


def make_rows(kind, shape, seed=0):
    """Random bits: numbers of every size, of both signs, NaN and infinities among them."""
    dtype = np.dtype(np.uint16 if kind == "bfloat16" else kind)
    words = np.random.default_rng(seed).bytes(shape[0] * shape[1] * dtype.itemsize)
    return np.frombuffer(words, dtype=dtype).reshape(shape).copy()


def with_one_nan(values, bfloat16):
    """Which bits a NaN has is left to the processor."""
    if bfloat16 and values.dtype == np.uint16:
        values = reference.widen_bfloat(values)
    if values.dtype.kind != "f":
        return values
    return np.where(np.isnan(values), np.array(np.nan, values.dtype), values)


def same(ours, theirs, bfloat16):
    return with_one_nan(ours, bfloat16).tobytes() == with_one_nan(theirs, bfloat16).tobytes()


def widened(values, bfloat16):
    with np.errstate(invalid="ignore"):
        return reference.widen_bfloat(values) if bfloat16 else values.astype(np.float32)


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize("kind", KINDS)
def test_gathers_rows(kind):
    """Of few bytes, of a line and around it, and of more than is prefetched."""
    bfloat16 = kind == "bfloat16"
    for width in (1, 3, 7, 8, 16, 17, 32, 33, 100, 1100):
        source = make_rows(kind, (50, width))
        ids = np.random.default_rng(1).integers(0, 50, 1300)
        ids[-1] = 49
        ids = ids.astype(np.int32 if width % 2 else np.int64)
        source.flags.writeable = ids.flags.writeable = False
        ours = rows.gather_rows(source, ids, bfloat16=bfloat16, threads=3)
        assert ours.dtype == source.dtype
        assert ours.tobytes() == source[ids].tobytes()
        if kind in ("float16", "bfloat16"):
            out = np.empty((1300, width), dtype=np.float32)
            assert rows.gather_rows(source, ids, out=out, bfloat16=bfloat16, threads=2) is out
            np.testing.assert_array_equal(out, widened(source[ids], bfloat16))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("kind", "width", "offset"),
    [
        ("float32", 16, 0),
        ("float32", 603, 1),
        ("float16", 17, 3),
        ("float16", 1100, 0),
        ("bfloat16", 100, 15),
    ],
)
def test_large_outputs(kind, width, offset, level, monkeypatch):
    """They are written past the caches in whole lines, from any address, and nothing beside."""
    monkeypatch.setenv("GNNBENCH_SIMD", level)
    count = (1 << 23) // width + 9
    source = make_rows(kind, (300, width))
    ids = np.random.default_rng(1).integers(0, 300, count)
    room = np.full(count * width + 64, 7, dtype=np.float32)
    out = room[offset : offset + count * width].reshape(count, width)
    bfloat16 = kind == "bfloat16"
    rows.gather_rows(source, ids, out=out, bfloat16=bfloat16, threads=2)
    np.testing.assert_array_equal(out, widened(source, bfloat16)[ids])
    assert (room[:offset] == 7).all()
    assert (room[offset + count * width :] == 7).all()


@pytest.mark.usefixtures("anywhere")
def test_every_narrow_value_is_widened():
    bits = np.arange(2**16, dtype=np.uint16).reshape(-1, 64)
    ids, out = np.arange(1024), np.empty((1024, 64), dtype=np.float32)
    halves = bits.view(np.float16)
    np.testing.assert_array_equal(rows.gather_rows(halves, ids, out=out), widened(halves, False))
    # Compared bit by bit, so that the sign of zero counts.
    rows.gather_rows(bits, ids, out=out, bfloat16=True)
    assert np.array_equal(out.view(np.uint32)[~np.isnan(out)] >> 16, bits[~np.isnan(out)])


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize("kind", ["float32", "float64", "float16", "bfloat16"])
def test_adds_rows_in_order(kind):
    """Every addition rounds, so that another order or a wider sum would show."""
    bfloat16 = kind == "bfloat16"
    for width in (1, 7, 8, 33, 100):
        target, values = make_rows(kind, (40, width)), make_rows(kind, (1200, width), seed=1)
        ids = np.random.default_rng(2).integers(0, 40, 1200)
        ids = ids.astype(np.int32 if width % 2 else np.int64)
        expected = target.copy()
        reference.scatter_add_rows(expected, ids, values, bfloat16)
        for threads in (1, 5):
            ours = target.copy()
            rows.scatter_add_rows(ours, ids, values, bfloat16=bfloat16, threads=threads)
            assert same(ours, expected, bfloat16)


@pytest.mark.usefixtures("anywhere")
def test_sums_of_small_numbers_round_every_time():
    """In float16 2048 + 1 is 2048, and in bfloat16 256 + 1 is 256: ties go to the even one."""
    ids = np.zeros(3000, dtype=np.int64)
    halves = np.zeros((1, 9), dtype=np.float16)
    rows.scatter_add_rows(halves, ids, np.ones((3000, 9), dtype=np.float16))
    assert (halves == 2048).all()
    bits = np.zeros((1, 9), dtype=np.uint16)
    rows.scatter_add_rows(bits, ids, np.full((3000, 9), 0x3F80, dtype=np.uint16), bfloat16=True)
    assert (reference.widen_bfloat(bits) == 256).all()


def test_narrowing_takes_the_nearest_bfloat():
    values = np.array([1.0, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-7, -0.0, 3.4e38, np.inf, np.nan])
    nearest = reference.widen_bfloat(reference.narrow_bfloat(values.astype(np.float32)))
    expected = [1.0, 1.0, 1 + 2**-6, 1 + 2**-7, -0.0, np.inf, np.inf, np.nan]
    np.testing.assert_array_equal(nearest, np.array(expected, dtype=np.float32))
    assert np.signbit(nearest[4])


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_no_array_is_read_outside(data):
    """Any ids and shapes: the compiled kernels and the twins raise alike or agree."""
    kind = data.draw(st.sampled_from(KINDS))
    shape = (data.draw(st.integers(0, 6)), data.draw(st.integers(0, 40)))
    id_type = data.draw(st.sampled_from([np.int32, np.int64]))
    limits = np.iinfo(np.dtype(id_type).name)
    wild = st.sampled_from([-1, shape[0], limits.min, limits.max])
    inside = st.integers(0, max(shape[0] - 1, 0))
    some = data.draw(st.lists(st.one_of(inside, inside, inside, wild), max_size=9))
    ids = np.array(some, dtype=id_type)
    wild_places = st.sampled_from([-1, 5, limits.min, limits.max])
    place = st.one_of(st.integers(0, 4), st.integers(0, 4), st.integers(0, 4), wild_places)
    places = np.array(
        data.draw(st.lists(place, min_size=len(ids), max_size=len(ids))), dtype=id_type
    )
    table, values = make_rows(kind, shape), make_rows(kind, (len(ids), shape[1]), seed=1)
    bfloat16 = kind == "bfloat16"
    widen = kind in ("float16", "bfloat16") and data.draw(st.booleans())

    def outcomes():
        found = []
        out = np.zeros((len(ids), shape[1]), dtype=np.float32 if widen else table.dtype)
        target = table.copy()
        try:
            rows.gather_rows(table, ids, out=out, bfloat16=bfloat16)
            found.append(with_one_nan(out, bfloat16).tobytes())
        except ValueError as error:
            found.append(str(error))
        try:
            rows.scatter_add_rows(target, ids, values, bfloat16=bfloat16)
        except ValueError as error:
            found.append(str(error))
        found.append(with_one_nan(target, bfloat16).tobytes())
        if kind == "bfloat16":
            return found
        for add in (False, True):
            target = make_rows(kind, (5, shape[1]), seed=2)
            try:
                rows.move_rows(table, ids, target, places, add=add, threads=2)
            except ValueError as error:
                found.append(str(error))
            found.append(with_one_nan(target, bfloat16).tobytes())
        return found

    ours = outcomes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "load", lambda topic: None)
        assert outcomes() == ours


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize("kind", ["float32", "float64", "float16"])
@pytest.mark.parametrize("id_types", [(np.int32, np.int32), (np.int64, np.int32)])
def test_moves_rows_in_order(kind, id_types):
    """Places are written more than once, so that another order would show."""
    generator = np.random.default_rng(2)
    for width, add in itertools.product((1, 7, 33, 100), (False, True)):
        source, target = make_rows(kind, (500, width)), make_rows(kind, (40, width), seed=1)
        source.flags.writeable = False
        ids = generator.integers(0, 500, 600).astype(id_types[0])
        places = generator.integers(0, 40, 600).astype(id_types[1])
        expected = target.copy()
        with np.errstate(over="ignore", invalid="ignore"):
            for u, v in zip(ids, places, strict=True):
                expected[v] = expected[v] + source[u] if add else source[u]
        for threads in (1, 5):
            ours = target.copy()
            rows.move_rows(source, ids, ours, places, add=add, threads=threads)
            assert same(ours, expected, False)


TABLE = np.zeros((4, 3), dtype=np.float32)
READ_ONLY = TABLE.copy()
READ_ONLY.flags.writeable = False
IDS = np.array([0, 1], dtype=np.int64)
#: Correct arguments by function, and the message for each wrong one.
RIGHT = {
    "gather_rows": {"source": TABLE, "ids": IDS},
    "scatter_add_rows": {"target": TABLE, "ids": IDS, "values": TABLE[:2].copy()},
    "move_rows": {"source": TABLE, "source_ids": IDS, "target_ids": IDS},
}
WRONG = {
    "gather_rows": [
        ({"source": TABLE[:, :2]}, "source must be a contiguous two-dimensional"),
        ({"source": TABLE.astype(np.int32)}, "source must be a contiguous two-dimensional"),
        ({"bfloat16": True}, "source is float32; bfloat16 is carried as uint16"),
        ({"ids": IDS.astype(np.int16)}, "ids is int16"),
        ({"ids": np.array([-1, 2])}, "ids hold -1 to 2; every one must be a row of source"),
        ({"out": np.empty((2, 4), dtype=np.float32)}, "out must be a contiguous writeable"),
        ({"out": np.empty((2, 6), dtype=np.float32)[:, ::2]}, "out must be a contiguous writeable"),
        ({"out": TABLE[2:]}, "out shares memory with source"),
        ({"threads": -1}, "threads is -1"),
        ({"source": TABLE.astype(np.uint16), "out": TABLE[:2]}, "contiguous writeable uint16"),
    ],
    "scatter_add_rows": [
        ({"target": TABLE.astype(np.uint16)}, "target is uint16; pass bfloat16=True"),
        ({"target": READ_ONLY}, "target must be a contiguous writeable"),
        ({"target": TABLE.astype(np.float64)}, "values are float32 with shape"),
        ({"values": TABLE}, r"pass float32 with shape \(2, 3\)"),
        ({"values": TABLE[:2, :2]}, "values must be a contiguous"),
        ({"values": TABLE[:2]}, "target shares memory with values"),
        ({"ids": np.array([0, 4])}, "ids hold 0 to 4; every one must be a row of target"),
        ({"threads": -1}, "threads is -1"),
    ],
    "move_rows": [
        ({"source": TABLE[:, :2]}, "source must be a contiguous two-dimensional"),
        ({"target": TABLE[:, :2]}, "target must be a contiguous two-dimensional"),
        ({"target": TABLE.astype(np.float64)}, "source is float32 and target float64"),
        ({"target": TABLE[2:]}, "target shares memory with source"),
        ({"target": np.broadcast_to(TABLE[:1], (4, 3))}, "target must be a contiguous"),
        ({"source_ids": IDS[:1]}, "there are 1 source_ids and 2 target_ids"),
        ({"target_ids": IDS.astype(np.int8)}, "target_ids is int8"),
        ({"source_ids": np.array([0, 4])}, "source_ids hold 0 to 4; every one must be a row of so"),
        ({"target_ids": np.array([-1, 0])}, "target_ids hold -1 to 0; every one must be a row of"),
        ({"threads": -1}, "threads is -1"),
    ],
}


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize(
    ("name", "change", "message"), [(name, *row) for name, each in WRONG.items() for row in each]
)
def test_bad_arguments_raise_and_nothing_is_moved(name, change, message):
    target = np.full((4, 3), 7, dtype=np.float32)
    moved = {"target": target} if name == "move_rows" else {}
    with pytest.raises(ValueError, match=message):
        getattr(rows, name)(**{**RIGHT[name], **moved, **change})
    assert (target == 7).all()
