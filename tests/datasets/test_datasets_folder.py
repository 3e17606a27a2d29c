"""Data sets as folders: what is written in pieces is what is made in memory, and is checked."""

import errno
import hashlib
import json
import os
import shutil
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from gnnbench import datasets
from gnnbench.datasets import conversion, folder, npy, sorting, streaming, texts
from gnnbench.datasets.folder import MANIFEST, load_folder
from gnnbench.datasets.sorting import KeyFiles, sort_edges
from gnnbench.errors import DatasetError, GnnbenchError
from tests.datasets.conftest import SBM

ARRAYS = ("labels", "train_mask", "val_mask", "test_mask")
RMAT = "rmat:vertices=500,edges=3000,features=7,classes=4"
#: Half of all pairs of 40 vertices: many candidates are drawn again and again.
REPEATING = "rmat:vertices=40,edges=300,features=3,classes=2"


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """So that small graphs take many files and pieces, none of which ends where a row does."""
    monkeypatch.setattr(npy, "PIECE_BYTES", 1000)
    monkeypatch.setattr("gnnbench.datasets.archive.PIECE_BYTES", 1000)
    monkeypatch.setattr(sorting, "KEYS_PER_FILE", 300)
    monkeypatch.setattr(texts, "_PIECE_BYTES", 777)


def parts(features):
    return [features] if isinstance(features, np.ndarray) else [
        features.data, features.indices, features.indptr,
    ]  # fmt: skip


def assert_same(one, other):
    for mine, yours in (
        (one.graph.indptr, other.graph.indptr),
        (one.graph.indices, other.graph.indices),
        *((getattr(one, name), getattr(other, name)) for name in ARRAYS),
        *zip(parts(one.features), parts(other.features), strict=True),
    ):
        assert mine.dtype == yours.dtype
        np.testing.assert_array_equal(mine, yours)
    assert one.digest() == other.digest()
    assert one.num_classes == other.num_classes
    assert one.feature_scaling == other.feature_scaling
    assert one.notes == other.notes


@pytest.mark.parametrize(
    ("spec", "scaling"),
    [
        (RMAT, "auto"),
        (SBM, "rows"),
        (SBM, "columns"),
        (SBM, "none"),
        ("cora", "auto"),
        (REPEATING, "none"),
    ],
)
def test_a_folder_is_the_data_set_that_is_made_in_memory(tmp_path, spec, scaling):
    made = datasets.make_folder(spec, tmp_path / "made", seed=3, scaling=scaling)
    assert_same(made, datasets.scale_features(datasets.load(spec, seed=3), scaling))
    assert made.folder == made.origin == str(tmp_path / "made")


def test_columns_of_sparse_features_are_not_scaled(tmp_path):
    with pytest.raises(DatasetError, match="sparse, and scaling their columns"):
        datasets.make_folder("cora", tmp_path / "other", scaling="columns")
    assert not (tmp_path / "other").exists()


def write_long(path, rng, columns=2, separator=" "):
    """Some hundred lines, with loops, edges twice and edges both ways; ids are spread."""
    rows = rng.integers(-40, 40, (900, columns)) * 7
    lines = [separator.join(map(str, row)) for row in rows.tolist()]
    path.write_text("% ids\n" + "\n".join(lines) + "\n")


@pytest.mark.parametrize(("columns", "separator"), [(2, ","), (2, "\t"), (3, " ")])
def test_an_edge_list_is_imported_as_in_memory(tmp_path, columns, separator):
    file = tmp_path / "edges.txt"
    write_long(file, np.random.default_rng(1), columns, separator)
    made = datasets.import_folder(file, tmp_path / "made", scaling="none")
    plain = datasets.import_graph(file)
    assert_same(made.dataset, plain.dataset)
    np.testing.assert_array_equal(made.ids, plain.ids)
    assert any("self loops removed" in note for note in made.dataset.notes)


@pytest.mark.parametrize(
    "kind", ["rows", "columns", "directed npz", "own npz", "sparse npz", "mtx"]
)
def test_arrays_are_imported_as_in_memory(tmp_path, kind):
    rng = np.random.default_rng(2)
    ends = rng.integers(0, 60, (2, 700))
    file = tmp_path / f"graph.{kind.split()[-1] if ' ' in kind or kind == 'mtx' else 'npy'}"
    if kind == "mtx":
        import scipy.io

        scipy.io.mmwrite(file, sp.coo_matrix((np.ones(700), ends), shape=(60, 60)))
    elif kind in ("rows", "columns"):
        np.save(file, ends if kind == "rows" else ends.T)
    elif kind == "directed npz":
        indptr = np.concatenate(([0], np.cumsum(np.bincount(ends[0], minlength=60))))
        indices = ends[1][np.argsort(ends[0], kind="stable")]
        x = rng.random((60, 3))
        np.savez_compressed(file, indptr=indptr, indices=indices, x=x, y=np.arange(60) % 3)
    else:
        own = datasets.load(SBM if kind == "own npz" else "cora")
        datasets.save_npz(own, file)
    made = datasets.import_folder(file, tmp_path / "made", scaling="none")
    assert_same(made.dataset, datasets.import_graph(file).dataset)


def test_files_beside_the_graph_are_imported_as_in_memory(tmp_path):
    rng = np.random.default_rng(4)
    file = tmp_path / "edges.txt"
    file.write_text("\n".join(f"{a} {b}" for a, b in rng.integers(0, 50, (200, 2)).tolist()))
    np.save(tmp_path / "x.npy", rng.random((50, 5)))
    np.save(tmp_path / "y.npy", np.arange(50) % 4)
    np.savez(tmp_path / "split.npz", train=np.arange(9), val=np.arange(9, 20), test=[30])
    for kept in (False, True):
        extras = datasets.Extras(
            tmp_path / "x.npy", tmp_path / "y.npy", tmp_path / "split.npz", keep_isolated=kept
        )
        made = datasets.import_folder(file, tmp_path / f"made{kept}", extras, scaling="rows")
        plain = datasets.import_graph(file, extras).dataset
        assert_same(made.dataset, datasets.scale_features(plain, "rows"))
        assert "features were rounded to float32" in made.dataset.notes


@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=60),
    st.integers(1, 9),
)
def test_edges_sorted_in_files_are_those_sorted_in_memory(tmp_path_factory, pairs, step):
    scratch = tmp_path_factory.mktemp("keys")
    ends = np.array(pairs, dtype=np.int64).T
    (scratch / "keys").mkdir()

    def read():
        for begin in range(0, ends.shape[1], step):
            yield ends[0, begin : begin + step], ends[1, begin : begin + step]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorting, "KEYS_PER_FILE", 5)
        indptr, repairs = sort_edges(
            scratch / "keys", 13, len(pairs), read(), scratch / "indices.npy"
        )
    graph, expected = datasets.construct.symmetrise(ends[0].copy(), ends[1].copy(), 13)
    np.testing.assert_array_equal(indptr, graph.indptr)
    np.testing.assert_array_equal(np.load(scratch / "indices.npy"), graph.indices)
    assert repairs == expected


@pytest.mark.parametrize("least", [0, 2**39 - 9_000])
def test_keys_that_are_alike_are_divided_once_more(tmp_path, monkeypatch, least):
    """However many begin with the same bits, few are in memory at a time."""
    rng = np.random.default_rng(5)
    keys = least + rng.integers(0, 9_000, 20_000).astype(np.uint64)
    files = KeyFiles(tmp_path, 39, 20_000)
    assert (
        files.add(
            lambda part: keys[part].copy(),
            map(slice, range(0, 20_000, 999), range(999, 20_999, 999)),
        )
        == 20_000
    )
    for last in (False, True):
        found = list(files.read(np.copy, last=last))
        assert max(map(len, found)) <= 8 * 300
        np.testing.assert_array_equal(np.concatenate(found), np.sort(keys))
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_ids_of_all_kinds_are_numbered_together(tmp_path):
    """Small ones with gaps, and later ones that are too large for an array of as many."""
    file = tmp_path / "edges.csv"
    lines = [*(f"{n},{2 * n}" for n in range(1, 300)), "5,-3", f"{2**60},1", f"{2**40},{2**60}"]
    for count in (299, 302):
        file.write_text("\n".join(lines[:count]))
        made = datasets.import_folder(file, tmp_path / str(count), scaling="none")
        plain = datasets.import_graph(file)
        assert_same(made.dataset, plain.dataset)
        ids = {int(each) for line in lines[:count] for each in line.split(",")}
        assert made.ids.tolist() == plain.ids.tolist() == sorted(ids)


def test_features_that_are_made_up_are_scaled_as_others(tmp_path):
    """A few random rows are far from mean 0 and deviation 1; many are not."""
    file = tmp_path / "edges.csv"
    for count, scaling in ((2, "columns"), (1200, "none")):
        file.write_text("\n".join(f"{n},{n + 1}" for n in range(count)))
        made = datasets.import_folder(file, tmp_path / str(count))
        assert_same(made.dataset, datasets.scale_features(datasets.import_graph(file).dataset))
        assert made.dataset.feature_scaling == scaling
        load_folder(tmp_path / str(count), tmp_path / "never")


def test_memory_does_not_grow_with_the_edges(tmp_path):
    def measure(edges):
        rng = np.random.default_rng(0)
        file = tmp_path / f"{edges}.npy"
        np.save(file, rng.integers(0, 4000, (edges, 2)))
        tracemalloc.start()
        datasets.import_folder(file, tmp_path / f"made{edges}", scaling="none")
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return peak

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(npy, "PIECE_BYTES", 1 << 15)
        patch.setattr(sorting, "KEYS_PER_FILE", 1 << 12)
        measure(9_000)  # what is imported and compiled on the way
        small, large = measure(20_000), measure(160_000)
    assert large < 1.3 * small


@pytest.mark.parametrize(
    ("lines", "wrong"),
    [
        ("1 2\n", "1 x"),
        ("1,2\n", "1,2,3"),
        ("1,2\n", "1,"),
        (" 1 , 2 \n\n  \n", "1,2.0"),
        ("1 2 a\n", "1 2 a\tb"),
        ("1,2\n", '"1,2"'),
    ],
)
def test_a_line_that_is_no_edge_is_named_in_a_later_piece(tmp_path, lines, wrong):
    file = tmp_path / "edges.txt"
    file.write_text("# head\n" + lines * 500 + wrong + "\n" + lines * 500)
    number = 2 + 500 * lines.count("\n")
    with pytest.raises(DatasetError, match=rf"line {number}: .* is not an edge"):
        datasets.import_folder(file, tmp_path / "made")
    assert os.listdir(tmp_path) == ["edges.txt"]


def test_a_disk_that_is_full_while_features_are_drawn_is_one_sentence(tmp_path, monkeypatch):
    def draw(counts, width):
        yield np.zeros((next(iter(counts)), width), dtype=np.float32)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(conversion, "draw_random_features", draw)
    file = tmp_path / "edges.csv"
    file.write_text("1,2\n" * 500)
    with pytest.raises(GnnbenchError, match="could not be written: the disk is full"):
        datasets.import_folder(file, tmp_path / "made")
    assert os.listdir(tmp_path) == ["edges.csv"]


@pytest.fixture
def fresh(tmp_path):
    """Where no folder is known to have been checked."""
    return tmp_path / "never"


def alter(made, change):
    """The manifest with something else in it."""
    document = json.loads((made / MANIFEST).read_text())
    change(document)
    (made / MANIFEST).write_text(json.dumps(document))


def replace_array(made, name, array):
    """Another array, of which the manifest knows all."""
    np.save(made / f"{name}.npy", array)

    def change(document):
        document["arrays"][name] = {
            "dtype": np.lib.format.dtype_to_descr(array.dtype),
            "shape": list(array.shape),
            "sha256": hashlib.sha256(array.tobytes()).hexdigest(),
        }

    alter(made, change)


NAMES = ("indptr", "indices", "x", "y", "train_mask", "val_mask", "test_mask")


@pytest.mark.parametrize("way", ["cut", "longer", "missing", "empty", "a folder", "a bit"])
def test_a_file_that_is_not_as_it_was_is_named(made, way):
    """One bit of an array is found by what it means, if not by its checksum."""
    for name in NAMES if way in ("cut", "a bit") else ("x",):
        file = made / f"{name}.npy"
        content = file.read_bytes()
        flipped = bytearray(content)
        flipped[128 + (len(content) - 128) // 3] ^= 1
        if way in ("missing", "a folder"):
            file.unlink()
            if way == "a folder":
                file.mkdir()
        else:
            others = {
                "cut": content[:-1],
                "longer": content + b"\0",
                "empty": b"",
                "a bit": flipped,
            }
            file.write_bytes(others[way])
        with pytest.raises(DatasetError, match=None if way == "a bit" else rf"{name}\.npy"):
            datasets.load(str(made))
        if way in ("cut", "a bit"):
            file.write_bytes(content)


def test_of_features_it_is_the_checksum_that_finds_it(made):
    content = bytearray((made / "x.npy").read_bytes())
    content[-4] ^= 1
    (made / "x.npy").write_bytes(content)
    with pytest.raises(DatasetError, match=r"x\.npy: its bytes are not those"):
        datasets.load(str(made))


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("format", "other", "'other', version 1"),
        ("version", 2, "version 2"),
        ("name", 7, "no text"),
        ("notes", [1], "no text"),
        ("num_features", 8, "9 features and 3 classes"),
        ("num_classes", 4, "9 features and 3 classes"),
        ("num_classes", 0, "no numbers of features"),
        ("num_classes", True, "no numbers of features"),
        ("feature_scaling", "some", "no scaling"),
        ("digest", "0" * 16, "says that the digest is 0000"),
        ("arrays", {}, "lacks indptr"),
        ("arrays", {"z": {}}, "no array 'z'"),
        ("arrays", [], "not the manifest"),
    ],
)
def test_a_manifest_that_lies_is_found(made, field, value, said):
    alter(made, lambda document: document.update({field: value}))
    with pytest.raises(DatasetError, match=said) as error:
        datasets.load(str(made))
    assert str(error.value).count(". ") == 0


def test_a_manifest_that_lies_of_an_array_is_found(made):
    right = (made / MANIFEST).read_text()
    lies = {"dtype": "<f8", "shape": [5], "sha256": "0"}
    for name in NAMES:
        for field in lies if name == "y" else ("sha256",):
            lie = {field: lies[field]}
            alter(made, lambda document, name=name, lie=lie: document["arrays"][name].update(lie))
            with pytest.raises(DatasetError, match=name):
                datasets.load(str(made))
            (made / MANIFEST).write_text(right)


@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 100_000, "{}", "nonsense", '{"format": 1}'])
def test_what_is_no_manifest_is_refused(made, text):
    (made / MANIFEST).write_text(text)
    with pytest.raises(DatasetError, match="not the manifest of a data set"):
        datasets.load(str(made))


def wrong_graphs():
    """A canonical graph of four vertices, made wrong in one way each; rows 0: 1 2, 1: 0, 2: 0 3,
    3: 2."""
    right = [0, 2, 3, 5, 6], [1, 2, 0, 0, 3, 2]
    yield "is directed", right[0], [1, 2, 0, 0, 3, 1]
    yield "is not sorted in row 0", right[0], [2, 1, 0, 0, 3, 2]
    yield "entry twice in row 2", right[0], [1, 2, 0, 3, 3, 2]
    yield "self loop at vertex 3", right[0], [1, 2, 0, 0, 3, 3]
    yield "contains 4, outside 0 to 3", right[0], [1, 2, 0, 0, 4, 2]
    yield "contains -1", right[0], [1, 2, 0, -1, 3, 2]
    yield "decreases after row 1", [0, 2, 1, 5, 6], right[1]
    yield "starts at 1", [1, 2, 3, 5, 6], right[1]
    yield "ends at 5", [0, 2, 3, 5, 5], right[1]


@pytest.mark.parametrize(("said", "indptr", "indices"), list(wrong_graphs()))
def test_a_graph_that_is_not_canonical_is_refused(tmp_path, monkeypatch, said, indptr, indices):
    """Whatever piece of it is read at a time."""
    file = tmp_path / "four.npz"
    np.savez(file, indptr=[0, 2, 3, 5, 6], indices=[1, 2, 0, 0, 3, 2], x=np.ones((4, 2)))
    made = tmp_path / "made"
    imported = datasets.import_folder(file, made, scaling="none").dataset
    assert_same(imported, datasets.load(str(file)))
    replace_array(made, "indptr", np.array(indptr, dtype=np.int64))
    replace_array(made, "indices", np.array(indices, dtype=np.int32))
    for piece_bytes in (4, 8, 1000):
        monkeypatch.setattr(npy, "PIECE_BYTES", piece_bytes)
        with pytest.raises(DatasetError, match=said):
            datasets.load(str(made))


@pytest.mark.parametrize(
    ("name", "place", "value", "said"),
    [
        ("x", (299, 8), np.nan, "x contains NaN or infinite"),
        ("x", (0, 0), np.inf, "x contains NaN or infinite"),
        ("y", 5, -2, "y contains -2"),
        ("y", 5, 3, "4 classes"),
    ],
)
def test_content_that_cannot_be_is_refused(made, name, place, value, said):
    array = np.load(made / f"{name}.npy")
    array[place] = value
    replace_array(made, name, array)
    with pytest.raises(DatasetError, match=said):
        datasets.load(str(made))


def test_sparse_features_are_checked(tmp_path):
    made = tmp_path / "made"
    features = datasets.make_folder("cora", made, scaling="none").features
    twice = features.indices.copy()
    twice[1] = twice[0]
    for name, array, said in (
        ("x_indices", twice, "entry twice in row 0"),
        ("x_indices", features.indices + 1433, "outside 0 to 1,432"),
        ("x_indptr", features.indptr[:-1], "x_indptr is not of 2,708 rows"),
        ("x_data", features.data * np.float32(np.nan), "x_data contains NaN"),
    ):
        shutil.copytree(made, tmp_path / "wrong")
        replace_array(tmp_path / "wrong", name, array)
        with pytest.raises(DatasetError, match=said):
            datasets.load(str(tmp_path / "wrong"))
        shutil.rmtree(tmp_path / "wrong")


@pytest.fixture
def checks(monkeypatch):
    """How often a folder's files have been read whole."""
    count = []
    monkeypatch.setattr(
        folder, "check_stored", lambda *given: (count.append(1), streaming.check_stored(*given))[1]
    )
    return count


def test_a_folder_is_checked_once(made, fresh, checks):
    first = load_folder(made, fresh)
    assert len(checks) == 1
    again = load_folder(made, fresh)
    assert len(checks) == 1
    assert_same(first, again)
    content = (made / "x.npy").read_bytes()
    (made / "x.npy").write_bytes(content)
    load_folder(made, fresh)
    assert len(checks) == 2
    alter(made, lambda document: document.update(name="other"))
    load_folder(made, fresh)
    assert len(checks) == 3


def test_what_was_written_here_is_known(made, checks):
    datasets.load(str(made))
    assert not checks


def test_another_folder_of_the_name_is_checked(made, fresh, tmp_path, checks):
    load_folder(made, fresh)
    shutil.move(made, tmp_path / "old")
    shutil.copytree(tmp_path / "old", made)
    load_folder(made, fresh)
    assert len(checks) == 2


def test_where_nothing_can_be_kept_it_is_checked_each_time(made, tmp_path, checks):
    (tmp_path / "file").write_text("")
    for _ in range(2):
        load_folder(made, tmp_path / "file" / "below")
    assert len(checks) == 2


def test_nothing_is_overwritten_unasked(made):
    before = sorted(made.iterdir())
    with pytest.raises(DatasetError, match="exists; choose another name or allow"):
        datasets.make_folder(RMAT, made)
    assert sorted(made.iterdir()) == before
    assert datasets.make_folder(RMAT, made, overwrite=True).graph.num_vertices == 500
    assert len(list(made.parent.iterdir())) == 2  # and the cache


def test_a_folder_of_other_things_is_never_overwritten(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("")
    with pytest.raises(DatasetError, match="not the folder of a data set"):
        datasets.make_folder(RMAT, tmp_path / "mine", overwrite=True)
    assert os.listdir(tmp_path / "mine") == ["thesis.tex"]


def test_it_is_found_by_name_and_listed(made, monkeypatch):
    monkeypatch.setenv("GNNBENCH_DATA", str(made.parent))
    assert_same(datasets.load("made"), datasets.load(str(made)))
    (entry,) = (each for each in datasets.list_datasets() if each.name == "made")
    assert (entry.vertices, entry.edges, entry.features, entry.classes) == (300, 1500, 9, 3)
    (made / MANIFEST).write_text("")
    (entry,) = (each for each in datasets.list_datasets() if each.name == "made")
    assert "cannot be used" in entry.where


def test_its_scaling_is_that_of_its_files(made):
    dataset = datasets.load(str(made))
    assert datasets.scale_features(dataset, "auto") is dataset
    assert datasets.scale_features(dataset, "none") is dataset
    with pytest.raises(DatasetError, match=r"on disk have the scaling.*--scale-features rows"):
        datasets.scale_features(dataset, "rows")


@pytest.mark.parametrize("way", ["memory", "folder"])
def test_a_npz_takes_no_delimiter_and_no_rows_of_other_vertices(tmp_path, way):
    file = tmp_path / "g.npz"
    np.savez(file, indptr=np.array([0, 1, 2]), indices=np.array([1, 0], np.int32))
    np.save(tmp_path / "x.npy", np.ones((3, 2), np.float32))

    def read(**extras):
        chosen = datasets.Extras(**extras)
        if way == "folder":
            return datasets.import_folder(file, tmp_path / "made", chosen, overwrite=True)
        return datasets.import_graph(file, chosen)

    assert read().dataset.graph.num_vertices == 2
    with pytest.raises(DatasetError, match="leave out --delimiter"):
        read(delimiter=",")
    with pytest.raises(DatasetError, match="it has 3 rows"):
        read(features=tmp_path / "x.npy")
