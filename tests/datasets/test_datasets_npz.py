"""The ``.npz`` format: what is read, what is refused and how, and what is written."""

import numpy as np
import pytest
import scipy.sparse as sp

from gnnbench.datasets import build, load_npz, save_npz
from gnnbench.errors import DatasetError

# A path 0 - 1 - 2 - 3 and an isolated vertex 4.
INDPTR = np.array([0, 1, 3, 5, 6, 6], dtype=np.int64)
INDICES = np.array([1, 0, 2, 1, 3, 2], dtype=np.int32)


def dense():
    return {
        "indptr": INDPTR.copy(),
        "indices": INDICES.copy(),
        "x": np.arange(10, dtype=np.float32).reshape(5, 2),
        "y": np.array([0, 1, 0, 1, -1]),
        "train_mask": np.array([1, 1, 0, 0, 0], dtype=bool),
        "val_mask": np.array([0, 0, 1, 0, 0], dtype=bool),
        "test_mask": np.array([0, 0, 0, 1, 0], dtype=bool),
    }


def sparse():
    arrays = dense()
    del arrays["x"]
    return arrays | {
        "x_data": np.array([1, 2, 3], dtype=np.float32),
        "x_indices": np.array([0, 2, 1], dtype=np.int32),
        "x_indptr": np.array([0, 2, 2, 3, 3, 3], dtype=np.int64),
        "x_shape": np.array([5, 3]),
    }


def write(folder, arrays, name="small.npz"):
    path = folder / name
    np.savez(path, **arrays)
    return path


def replaced(**arrays):
    return lambda base: base | {key: np.asarray(value) for key, value in arrays.items()}


def without(*names):
    return lambda base: {key: value for key, value in base.items() if key not in names}


NONE = np.empty(0, int)
INVALID = [
    (dense, without("indptr"), "indptr", "missing"),
    (dense, without("indices"), "indices", "missing"),
    (dense, replaced(indptr=INDPTR + 0.5), "indptr", "not whole"),
    (dense, replaced(indices=INDICES.astype(str)), "indices", "not whole"),
    (dense, replaced(indices=np.full(6, 2**63 + 5, dtype=np.uint64)), "indices", "not whole"),
    (dense, replaced(indptr=INDPTR[None]), "indptr", "2 dimensions"),
    (dense, replaced(indptr=[0]), "indptr", "no vertices"),
    (dense, replaced(indptr=INDPTR + 1), "indptr", "starts at 1"),
    (dense, replaced(indptr=[0, 3, 1, 5, 6, 6]), "indptr", "decreases after row 1"),
    (dense, replaced(indptr=[0, 1, 3, 5, 5, 5]), "indptr", "ends at 5 but indices has 6"),
    (dense, replaced(indptr=[0] * 6, indices=np.empty(0, np.int32)), "indices", "no edges"),
    (dense, replaced(indices=[1, 0, 2, 1, 5, 2]), "indices", "contains 5, outside 0 to 4"),
    (dense, replaced(indices=[1, 0, 2, 1, -3, 2]), "indices", "contains -3"),
    (dense, replaced(indices=[1, 2, 0, 1, 3, 2]), "indices", "not sorted in row 1"),
    (dense, replaced(indices=[1, 0, 0, 1, 3, 2]), "indices", "duplicate edges in row 1"),
    (dense, replaced(indices=[0, 0, 2, 1, 3, 2]), "indices", "loops (1, the first at vertex 0)"),
    (dense, replaced(indices=[2, 0, 2, 1, 3, 2]), "indices", "directed: row 0 lists 2"),
    (dense, replaced(x=np.ones((4, 2), np.float32)), "x", "4 rows but indptr 5"),
    (dense, replaced(x=np.ones((5, 0), np.float32)), "x", "width 0"),
    (dense, replaced(x=np.ones(5, np.float32)), "x", "1 dimensions"),
    (dense, replaced(x=np.full((5, 2), np.nan, np.float32)), "x", "NaN"),
    (dense, replaced(x=np.full((5, 2), np.inf)), "x", "infinite"),
    (dense, replaced(x=np.full((5, 2), 1e300)), "x", "too large"),
    (dense, replaced(x=np.full((5, 2), "a")), "x", "not numbers"),
    (dense, replaced(x=np.full((5, 2), 1j)), "x", "not numbers"),
    (sparse, replaced(x=np.ones((5, 2))), "x_data", "both x and x_data"),
    (sparse, without("x_indptr", "x_shape"), "x_indptr, x_shape", "lack"),
    (
        sparse,
        replaced(x_shape=[4, 3]),
        "x_indptr",
        "pointer size 6 should be 5",
    ),
    (sparse, replaced(x_shape=[4, 3], x_indptr=[0, 2, 2, 3, 3]), "x_shape", "4 rows but indptr 5"),
    (sparse, replaced(x_shape=[5]), "x_shape", "no sparse matrix"),
    (sparse, replaced(x_shape=[5, 0], x_indptr=[0] * 6, x_indices=NONE, x_data=[]), "x_shape", "0"),
    (sparse, replaced(x_indices=[0, 3, 1]), "x_indices", "indices must be < 3"),
    (sparse, replaced(x_indices=[0, 0, 1]), "x_indices", "twice"),
    (sparse, replaced(x_indices=[0, 1]), "x_data", "should have the same size"),
    (sparse, replaced(x_indptr=[0, 2, 1, 3, 3, 3]), "x_indptr", "non-decreasing"),
    (sparse, replaced(x_data=[1, np.nan, 3]), "x_data", "NaN"),
    (sparse, replaced(x_data=["a", "b", "c"]), "x_data", "not numbers"),
    (dense, replaced(y=[0, 1, 0]), "y", "5 vertices"),
    (dense, replaced(y=np.zeros((5, 3), int)), "y", "several labels a vertex"),
    (dense, replaced(y=[0, 1, 0, 1, 0.5]), "y", "is no class"),
    (dense, replaced(y=[0, 1, 0, 1, -2]), "y", "contains -2"),
    (dense, replaced(y=[-1] * 5), "y", "no label at all"),
    (dense, replaced(y=[0, 1, 0, 1, 10**9]), "y", "class 1,000,000,000"),
    (dense, without("val_mask"), "val_mask", "all three"),
    (dense, replaced(train_mask=[True]), "train_mask", "vertices go from 0 to 4"),
    (dense, replaced(val_mask=[0, 0, 2, 0, 0]), "val_mask", "names a vertex twice"),
    (dense, replaced(train_mask=np.zeros(5, bool)), "train_mask", "no labelled vertex"),
    (dense, replaced(train_mask=[0, 0, 0, 0, 1]), "train_mask", "no labelled vertex"),
    (dense, replaced(test_mask=[1, 0, 0, 1, 0]), "train_mask and test_mask", "overlap in 1"),
    (dense, replaced(test_mask=[0, 0, 1, 1, 0]), "val_mask and test_mask", "overlap in 1"),
]


@pytest.mark.parametrize(("base", "spoil", "array", "reason"), INVALID)
def test_invalid_file_is_refused_in_one_sentence(tmp_path, base, spoil, array, reason):
    path = write(tmp_path, spoil(base()))
    with pytest.raises(DatasetError) as caught:
        load_npz(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert array in message
    assert reason in message
    assert message.endswith(".")
    assert "\n" not in message


@pytest.mark.parametrize(
    ("index_dtype", "feature_dtype"),
    [
        (np.int32, np.float32),
        (np.uint8, np.float64),
        (np.int64, np.float16),
        (np.uint64, np.int64),
        (np.float64, np.bool_),
    ],
)
def test_lossless_dtypes_give_the_same_dataset(tmp_path, index_dtype, feature_dtype):
    arrays = dense() | {"x": (np.arange(10) % 2).reshape(5, 2).astype(feature_dtype)}
    arrays |= {name: arrays[name].astype(index_dtype) for name in ("indptr", "indices")}
    dataset = load_npz(write(tmp_path, arrays))
    assert dataset.graph.indptr.dtype == np.int64
    assert dataset.graph.indices.dtype == np.int32
    assert isinstance(dataset.features, np.ndarray)
    assert dataset.features.dtype == np.float32
    np.testing.assert_array_equal(dataset.features, (np.arange(10) % 2).reshape(5, 2))
    np.testing.assert_array_equal(dataset.graph.indices, INDICES)
    assert dataset.notes == ()


def test_float64_features_that_do_not_fit_are_rounded_and_noted(tmp_path):
    dataset = load_npz(write(tmp_path, dense() | {"x": np.full((5, 2), 0.1)}))
    assert dataset.notes == ("features were rounded to float32",)


def test_sparse_features_stay_sparse(tmp_path):
    dataset = load_npz(write(tmp_path, sparse()))
    assert sp.issparse(dataset.features)
    assert dataset.num_features == 3
    expected = np.zeros((5, 3))
    expected[0, 0], expected[0, 2], expected[2, 1] = 1, 2, 3
    np.testing.assert_array_equal(dataset.rows(np.arange(5)), expected)


def test_topology_alone_gets_random_content_and_says_so(tmp_path):
    path = write(tmp_path, {"indptr": INDPTR, "indices": INDICES})
    dataset = load_npz(path)
    assert dataset.num_features == 128
    assert dataset.notes == (
        "made up at random (seed 0): features (128 wide), labels (5 classes), "
        "split 25/50/25 (train/val/test)",
    )
    assert dataset.digest() == load_npz(path).digest()
    assert load_npz(path, random_features=7, random_classes=3).num_features == 7
    assert load_npz(path, random_features=7, random_classes=3).num_classes == 3
    with pytest.raises(DatasetError, match="at least 1"):
        load_npz(path, random_features=0)
    with pytest.raises(DatasetError, match="at least 1"):
        load_npz(path, random_classes=0)


def test_labels_without_masks_get_a_split_of_the_labelled(tmp_path):
    ring = np.arange(200)
    y = np.where(ring < 160, ring % 4, -1)
    stored = build("ring", np.stack((ring, (ring + 1) % 200)), labels=y, features=np.ones((200, 1)))
    topology = {"indptr": stored.graph.indptr, "indices": stored.graph.indices}
    dataset = load_npz(write(tmp_path, topology | {"x": np.ones((200, 1)), "y": y}))
    sizes = [int(m.sum()) for m in (dataset.train_mask, dataset.val_mask, dataset.test_mask)]
    assert sizes == [40, 80, 40]
    assert not (dataset.train_mask | dataset.val_mask | dataset.test_mask)[160:].any()
    assert dataset.notes == ("made up at random (seed 0): split 25/50/25 (train/val/test)",)


@pytest.mark.parametrize("arrays", [dense, sparse])
def test_round_trip(tmp_path, arrays):
    dataset = load_npz(write(tmp_path, arrays()))
    save_npz(dataset, tmp_path / "new" / "copy.npz")
    again = load_npz(tmp_path / "new" / "copy.npz")
    assert again.digest() == dataset.digest()
    assert again.num_classes == dataset.num_classes
    assert sp.issparse(again.features) == sp.issparse(dataset.features)
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["copy.npz"]


def test_round_trip_of_a_topology_stays_a_topology(tmp_path):
    dataset = load_npz(write(tmp_path, {"indptr": INDPTR, "indices": INDICES}))
    save_npz(dataset, tmp_path / "copy.npz")
    with np.load(tmp_path / "copy.npz") as stored:
        assert set(stored.files) == {"indptr", "indices", "notes"}
    again = load_npz(tmp_path / "copy.npz")
    assert again.digest() == dataset.digest()
    assert again.notes == dataset.notes


def test_nothing_is_written_over_unless_asked(tmp_path):
    dataset = load_npz(write(tmp_path, dense()))
    target = tmp_path / "kept.npz"
    target.write_bytes(b"precious")
    with pytest.raises(DatasetError, match="exists"):
        save_npz(dataset, target)
    assert target.read_bytes() == b"precious"
    save_npz(dataset, target, overwrite=True)
    assert load_npz(target).digest() == dataset.digest()


def test_unwritable_targets_are_refused(tmp_path):
    dataset = load_npz(write(tmp_path, dense()))
    with pytest.raises(DatasetError, match=r"stored as \.npz"):
        save_npz(dataset, tmp_path / "graph.txt")
    (tmp_path / "file").write_text("")
    with pytest.raises(DatasetError, match="cannot be written"):
        save_npz(dataset, tmp_path / "file" / "graph.npz")
