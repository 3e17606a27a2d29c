"""``gnnbench datasets import`` with features, labels, a split, names and isolated vertices."""

import gzip
import pickle
import struct

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from gnnbench.datasets import load_npz
from tests.commands import one_sentence, read_document
from tests.datasets.test_datasets_imports import rows

#: The edges of vertices 0 to 4, of which 3 has none; a row of features and a class each.
EDGES = [(0, 1), (1, 2), (2, 4)]
X = np.arange(10, dtype=np.float32).reshape(5, 2)
Y = np.array([0, 1, 2, 1, 0])
NAMES = ["ann", "bob", "cy", "dora", "eve"]
#: The beginning of a ``.npy`` file whose header never closes its brackets.
OPEN = b"{'shape': " + b"(" * 900 + b"}\n"
BRACKETS = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(OPEN)) + OPEN

#: A compressed text without its end; with no time in it, which would be in the test's name.
CUT_GZIP = gzip.compress(b"0 1.5\n" * 99, mtime=0)[:-9]


@pytest.fixture
def edges(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_text("".join(f"{one} {other}\n" for one, other in EDGES))
    return path


@pytest.fixture
def save(tmp_path):
    """Writes an array, a mapping, a sparse matrix or a text to a file of its kind."""

    def save_file(name, content):
        path = tmp_path / name
        if isinstance(content, (str, bytes)):
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        elif sp.issparse(content):
            sp.save_npz(path, content)
        elif path.suffix == ".pt":
            made = content if isinstance(content, dict) else {"only": content}
            tensors = {key: torch.as_tensor(value) for key, value in made.items()}
            torch.save(tensors if isinstance(content, dict) else tensors["only"], path)
        elif path.suffix == ".npz":
            np.savez(path, **content)
        else:
            np.save(path, content)
        return path

    return save_file


@pytest.fixture
def imported(run, tmp_path):
    """Imports a file and returns the data set and what was said."""

    def import_file(*words):
        out = tmp_path / "out.npz"
        words += ("--out", out, "--overwrite", "--json", "-")
        said = read_document(run("datasets", "import", *words))
        return load_npz(out), said

    return import_file


MASKS = {
    "train_mask": np.array([1, 1, 0, 0, 0], bool),
    "val_mask": np.array([0, 0, 1, 1, 0], bool),
    "test_mask": np.array([0, 0, 0, 0, 1], bool),
}
TEXT_X = "id,a,b\n" + "".join(f"{v},{x[0]},{x[1]}\n" for v, x in enumerate(X))
WAYS = {
    "npy": ("x.npy", X, "y.npy", Y, "s.npz", MASKS),
    "pt": ("x.pt", X, "y.pt", Y, "s.pt", {"train": [0, 1], "valid": [2, 3], "test": [4]}),
    "sparse": ("x.npz", sp.csr_matrix(X), "y.npy", Y.reshape(5, 1), "s.npz", MASKS),
    "text": ("x.csv", TEXT_X, "y.txt", "".join(f"{v} {y}\n" for v, y in enumerate(Y)), "s.txt",
             "0 train\n1 train\n2 val\n3 val\n4 test\n"),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("keep", [False, True])
def test_features_labels_and_split_are_of_their_vertices(imported, edges, save, way, keep):
    x, features, y, labels, s, split = WAYS[way]
    words = ("--features", save(x, features), "--labels", save(y, labels))
    words += ("--split", save(s, split), *(("--keep-isolated",) if keep else ()))
    dataset, said = imported(edges, *words)
    ids = [0, 1, 2, 3, 4] if keep else [0, 1, 2, 4]
    assert rows(dataset) == ([[1], [0, 2], [1, 4], [], [2]] if keep else [[1], [0, 2], [1, 3], [2]])
    stored = dataset.features.toarray() if sp.issparse(dataset.features) else dataset.features
    np.testing.assert_array_equal(stored, X[ids])
    np.testing.assert_array_equal(dataset.labels, Y[ids])
    for name, mask in MASKS.items():
        np.testing.assert_array_equal(getattr(dataset, name), mask[ids])
    left_out = "vertices without an edge were left out: 1 (--keep-isolated keeps them)"
    assert (left_out in said["notes"]) == (not keep)
    assert not any("made up" in note for note in said["notes"])
    assert ("ids" in said) == (not keep)


def test_vertices_may_have_names(imported, save, tmp_path):
    pairs = "".join(f"{NAMES[a]},{NAMES[b]},0.5\n" for a, b in EDGES)
    features = "".join(f"{name} {x[0]} {x[1]}\n" for name, x in zip(NAMES, X, strict=True))
    labels = "".join(f"{name} {'rgb'[y]}\n" for name, y in zip(NAMES, Y, strict=True))
    dataset, said = imported(
        save("mine.csv", pairs), "--string-ids", "--keep-isolated",
        "--features", save("x.txt", features), "--labels", save("y.txt", labels),
    )  # fmt: skip
    np.testing.assert_array_equal(dataset.features, X)
    np.testing.assert_array_equal(dataset.labels, [2 if y == 0 else {1: 1, 2: 0}[y] for y in Y])
    assert "classes were numbered in the order of their names: 0 b, 1 g, 2 r" in said["notes"]
    assert any(note.startswith("edge weights were ignored") for note in said["notes"])
    assert said["ids"] == str(tmp_path / "out.ids.txt")
    assert (tmp_path / "out.ids.txt").read_text().split() == NAMES


def test_numbers_that_change_are_kept_beside_the_data(imported, run, save, tmp_path):
    file = save("far.txt", "1000 7\n7 -3\n")
    dataset, _ = imported(file)
    assert rows(dataset) == [[1], [0, 2], [1]]
    ids = tmp_path / "out.ids.txt"
    assert ids.read_text().split() == ["-3", "7", "1000"]
    # Ids that stay leave no map, least of all another graph's.
    imported(save("near.txt", "0 1\n1 2\n"))
    assert not ids.exists()
    ids.write_text("mine\n")
    refused = run("datasets", "import", file, "--out", tmp_path / "new.npz")
    assert refused.exit_code == 0
    (tmp_path / "again.ids.txt").write_text("mine\n")
    assert "--overwrite" in one_sentence(
        run("datasets", "import", file, "--out", tmp_path / "again.npz")
    )
    assert not (tmp_path / "again.npz").exists()


@pytest.mark.parametrize("name", ["e.npy", "e.pt", "turned.npy"])
def test_an_edge_index_is_a_graph(imported, save, name):
    pairs = np.array(EDGES).T
    file = save(name, np.ascontiguousarray(pairs.T) if name == "turned.npy" else pairs)
    assert rows(imported(file)[0]) == [[1], [0, 2], [1, 3], [2]]
    kept, _ = imported(file, "--keep-isolated")
    assert rows(kept) == [[1], [0, 2], [1, 4], [], [2]]


@pytest.mark.parametrize(
    ("name", "content", "option", "words"),
    [
        ("x.npy", X[:3], "--features", "3 rows, for vertices 0 to 2, but vertices go from 0 to 4"),
        ("x.txt", "0 1\n1 1\n2 1\n", "--features", "1 of 4 vertices have no features"),
        ("x.txt", "0 1\n1 1 2\n", "--features", "line 2: '1 1 2' is not an id and numbers"),
        ("x.txt", "0 1\n1 a\n", "--features", "it has 'a', which is no number in column 2"),
        ("x.npy", X[:, 0], "--features", "give numbers of shape (vertices, width)"),
        ("x.npy", "no array", "--features", "this is no array of numbers"),
        ("x.pt", "no tensor", "--features", "no tensors that can be read"),
        ("x.npz", {"a": X}, "--features", "it has no data, format, shape"),
        ("y.npy", Y + 0.5, "--labels", "which is no class"),
        ("y.txt", "0 1\n0 1\n", "--labels", "vertex 0 has two lines"),
        ("y.txt", "0 1 2\n", "--labels", "it has 2 columns of values; give an id and a class"),
        ("y.npy", np.ones((5, 3)), "--labels", "several labels a vertex"),
        ("s.txt", "0 trian\n", "--split", "'trian' is no share of a split"),
        ("s.npz", {"train": [0]}, "--split", "the split has no 'val'"),
        ("s.npz", {**MASKS, "val_mask": [True]}, "--split", "val_mask is a mask of 1 flags"),
        ("s.pt", X, "--split", "it holds no mapping"),
        ("none.npy", None, "--features", "there is no such file"),
        ("y.txt", b"0 caf\xe9\n1 bar\n", "--labels", "it is not text in UTF-8"),
        ("y.bin", pickle.dumps([0, 1]), "--labels", "give .npy, .pt, .parquet, or text in UTF-8"),
        ("y.txt", "0 a\n\u00b2 b\n", "--labels", "line 2: '\u00b2 b' is not an id and a class"),
        ("y.txt", "0 99999999999999999999999\n", "--labels", "1e+23, which is no class"),
        ("y.csv.gz", "0 a\n1 b\n", "--labels", "Not a gzipped file"),
        ("x.csv.gz", CUT_GZIP, "--features", "may be truncated"),
        ("x.npy", BRACKETS, "--features", "this is no array of numbers"),
        ("s.npy", X, "--split", "give .npz, .pt, .parquet, or text in UTF-8"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(run, edges, save, tmp_path, name, content, option, words):
    path = tmp_path / name if content is None else save(name, content)
    assert words in one_sentence(
        run("datasets", "import", edges, option, path, "--out", tmp_path / "out.npz")
    )
    assert not (tmp_path / "out.npz").exists()


def test_names_need_texts_and_a_flag(run, save, tmp_path):
    file = save("mine.txt", "ann bob\nbob cy\n")
    words = ("--out", tmp_path / "out.npz")
    assert "--string-ids" in run("datasets", "import", file, *words).stderr
    assert "a name at the beginning of each line" in one_sentence(
        run("datasets", "import", file, "--string-ids", "--features", save("x.npy", X), *words)
    )
    result = run("datasets", "import", save("alone.txt", "ann\n"), "--string-ids", *words)
    assert "line 1: 'ann' is not an edge" in result.stderr


def test_pickles_are_not_run(run, edges, tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.array([{}], dtype=object), allow_pickle=True)
    assert "holds pickled Python objects, which are never loaded" in one_sentence(
        run("datasets", "import", edges, "--features", path, "--out", tmp_path / "o.npz")
    )


def test_own_graph_to_a_first_comparison(run, edges, save, tmp_path):
    out = tmp_path / "mine.npz"
    words = ("--features", save("x.npy", X), "--labels", save("y.npy", Y), "--keep-isolated")
    assert run("datasets", "import", edges, *words, "--out", out).exit_code == 0
    result = run("compare", "--plugins", "reference", "--dataset", out, "--epochs", 1)
    assert result.exit_code == 0, result.output
    assert "reference" in result.stdout
