"""Matrices and arguments that aggregation refuses, and odd strides that it takes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnbench.kernels.dispatch import aggregation
from gnnbench.kernels.dispatch.aggregation import SparseMatrix

SMALL = SparseMatrix(np.array([0, 2, 3]), np.array([0, 1, 2], dtype=np.int32), 3)
H = np.ones((3, 4), dtype=np.float32)
E = np.ones(3, dtype=np.float32)


@pytest.mark.parametrize("pure", [False, True])
@settings(max_examples=80)
@given(st.data())
def test_malformed_matrices_raise(pure, data):
    wild = st.one_of(
        st.integers(-3, 9), st.sampled_from([2**31, 2**62, -(2**63), 2**63 - 1, -(2**31)])
    )
    indices = np.array(data.draw(st.lists(st.integers(-2, 5), max_size=8)), dtype=np.int32)
    ends = [0, *data.draw(st.lists(wild, max_size=5)), len(indices)]
    indptr = np.array(ends, dtype=np.int64)
    num_src = data.draw(st.integers(0, 6))
    fine = ends == sorted(ends) and all(0 <= u < num_src for u in indices)
    with pytest.MonkeyPatch.context() as patch:
        if pure:
            patch.setattr(aggregation, "load", lambda topic: None)
        if fine:
            assert SparseMatrix(indptr, indices, num_src).num_dst == len(ends) - 1
        else:
            with pytest.raises(ValueError, match=r"ascend from 0|outside the \d sources"):
                SparseMatrix(indptr, indices, num_src)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"indptr": np.array([0, 2, 3], dtype=np.int32)}, "indptr is int32"),
        ({"indptr": np.array([0, 2, 4])}, "number of indices, 3"),
        ({"indices": np.zeros(3, dtype=np.int64)}, "indices is int64"),
        ({"indices": np.array([0, 3, 1], dtype=np.int32)}, "0 to 3, outside the 3 sources"),
        ({"num_src": -1}, "num_src is -1"),
        ({"num_src": 2**31}, "num_src is 2147483648"),
    ],
)
def test_bad_matrices_raise(change, message):
    fields = {"indptr": SMALL.indptr, "indices": SMALL.indices, "num_src": 3}
    with pytest.raises(ValueError, match=message):
        SparseMatrix(**{**fields, **change})


def unaligned(*shape):
    array = np.zeros(4 * np.prod(shape) + 1, dtype=np.uint8)[1:].view("f4").reshape(shape)
    assert not array.flags.aligned
    return array


def read_only(*shape):
    array = np.empty(shape, dtype=np.float32)
    array.flags.writeable = False
    return array


def bits(*shape):
    return np.ones(shape, dtype=np.uint8)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"h": H.astype(np.float16)}, "h is float16; pass a float32 or float64"),
        ({"h": H.astype(">f4")}, "h is >f4"),
        ({"h": E}, r"shape \(3,\); it must have 3 rows"),
        ({"h": np.ones((4, 4), dtype=np.float32)}, "must have 3 rows"),
        ({"h": np.ones((3, 8), dtype=np.float32)[:, ::2]}, "each row must be contiguous"),
        ({"h": unaligned(3, 4)}, "aligned"),
        ({"weight": np.ones(3)}, "weight is float64"),
        ({"weight": np.ones(6, dtype=np.float32)[::2]}, "pass a contiguous, aligned float32"),
        ({"weight": [1.0] * 3}, "weight must be a float32"),
        ({"src_scale": E[:2]}, "src_scale is .* of 3 values"),
        ({"dst_scale": E}, "dst_scale is .* of 2 values"),
        ({"own": E}, "own is .* of 2 values"),
        ({"mask": np.ones((2, 1), dtype=np.bool_)}, "make it with pack_mask"),
        ({"mask": bits(2, 2)}, r"shape \(2, 1\)"),
        ({"out": np.empty((2, 4))}, "out must be a float32"),
        ({"out": np.empty((2, 5), dtype=np.float32)}, r"of shape \(2, 4\)"),
        ({"out": np.empty((2, 8), dtype=np.float32)[:, ::2]}, "out has strides"),
        ({"out": np.lib.stride_tricks.as_strided(np.empty(8, "f4"), (2, 4), (4, 4))}, "overlap"),
        ({"out": read_only(2, 4)}, "out is read-only"),
        ({"add": True}, "add needs an out"),
        ({"threads": -1}, "threads is -1"),
    ],
)
def test_bad_arguments_raise(change, message):
    with pytest.raises(ValueError, match=message):
        aggregation.aggregate(SMALL, **{"h": H, **change})


def test_outputs_that_share_memory_raise():
    room = np.ones((3, 8), dtype=np.float32)
    with pytest.raises(ValueError, match="out shares memory with h"):
        aggregation.aggregate(SMALL, room[:, :4], out=room[:2, 2:6])
    for name, length in (("weight", 3), ("src_scale", 3), ("dst_scale", 2), ("own", 2)):
        vector = room.ravel()[:length]
        with pytest.raises(ValueError, match=f"out shares memory with {name}"):
            aggregation.aggregate(SMALL, H, **{name: vector}, out=room[:2, :4])
    indices = room.view(np.int32).ravel()[:3]
    indices[:] = 0
    with pytest.raises(ValueError, match="out shares memory with indices"):
        aggregation.aggregate(SparseMatrix(SMALL.indptr, indices, 3), H, out=room[:2, :4])
    mask = room.view(np.uint8).ravel()[:2].reshape(2, 1)
    with pytest.raises(ValueError, match="out shares memory with mask"):
        aggregation.aggregate(SMALL, H, mask=mask, out=room[:2, :4])


def test_a_mask_of_one_column_may_have_any_stride():
    mask = np.array([[0xFF, 0]], dtype=np.uint8).T
    assert aggregation.aggregate(SMALL, H, mask=mask).tolist() == [[2.0] * 4, [0.0] * 4]


def test_own_needs_the_destinations_among_the_sources():
    indptr = np.array([0, 1, 2, 2], dtype=np.int64)
    matrix = SparseMatrix(indptr, np.zeros(2, dtype=np.int32), 1)
    ones = np.ones((3, 1), dtype=np.float32)
    with pytest.raises(ValueError, match="3 destinations to be among the 1 sources"):
        aggregation.aggregate(matrix, ones[:1], own=ones[:, 0].copy())


def bad_calls():
    return [
        ("dot_edges", (SMALL, H, H), "g has shape .* 2 rows"),
        ("dot_edges", (SMALL, H[:2], H[:2]), "h has shape .* 3 rows"),
        ("dot_edges", (SMALL, H[:2], H.astype(np.float64)), "one dtype and width"),
        ("edge_softmax", (SMALL, E[:2]), "scores is .* of 3 values"),
        ("edge_softmax", (SMALL, H[:, 0]), "scores is .* contiguous"),
        ("edge_softmax_backward", (SMALL, E, E[:2]), "gradient is .* of 3 values"),
        ("edge_softmax_backward", (SMALL, E[:2], E), "softmax is .* of 3 values"),
        ("edge_softmax_backward", (SMALL, E, E.astype("f8")), "gradient is float64"),
        ("pack_mask", (H,), "two-dimensional boolean"),
    ]


def test_bad_calls_raise():
    for name, arguments, message in bad_calls():
        with pytest.raises(ValueError, match=message):
            getattr(aggregation, name)(*arguments)
    for name, arguments in (
        ("dot_edges", (SMALL, H[:2], H)),
        ("edge_softmax", (SMALL, E)),
        ("edge_softmax_backward", (SMALL, E, E)),
    ):
        with pytest.raises(ValueError, match="threads is -1"):
            getattr(aggregation, name)(*arguments, threads=-1)


def test_one_row_may_have_any_stride():
    """NumPy gives no meaning to the stride of an axis of one element."""
    matrix = SparseMatrix(np.array([0, 2]), np.zeros(2, dtype=np.int32), 1)
    as_strided = np.lib.stride_tricks.as_strided
    for width in (1, 5, 64):
        for step in (0, -4, 4, 3, 10**9):
            row, out = np.arange(1, width + 1, dtype=np.float32), np.zeros(width, np.float32)
            h = as_strided(row, (1, width), (step, 4))
            aggregation.aggregate(matrix, h, out=as_strided(out, (1, width), (step, 4)))
            np.testing.assert_array_equal(out, 2 * row)
    column = as_strided(np.arange(6, dtype=np.float32), (3, 1), (8, 12))
    np.testing.assert_array_equal(aggregation.aggregate(SMALL, column), [[2], [4]])
