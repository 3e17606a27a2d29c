"""Data sets as folders: what is written in pieces is what is made in memory, and is checked."""

import ctypes
import dataclasses
import errno
import hashlib
import itertools
import json
import mmap
import os
import shutil
import time
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import gnnbench.parts.base
from gnnbench import comparison, datasets, mapped, plugins
from gnnbench.comparison import Request, compare
from gnnbench.comparison.dataset_guard import DatasetGuard
from gnnbench.conformance.graphs import make_platform
from gnnbench.datasets import conversion, folder, npy, sorting, streaming, texts
from gnnbench.datasets.folder import MANIFEST, load_folder
from gnnbench.datasets.sorting import KeyFiles, sort_edges
from gnnbench.errors import DatasetError, UsageError
from gnnbench.kernels.slabs import SMALLEST_BYTES
from gnnbench.mapped import ReadAhead, count_written
from gnnbench.price.model_clock import ModelClock
from gnnbench.records import Block, Workload
from gnnbench.run import Evidence, Training, features, input_movement
from gnnbench.run.host_movement import HostMovement

ARRAYS = ("labels", "train_mask", "val_mask", "test_mask")
RMAT = "rmat:vertices=500,edges=3000,features=7,classes=4"
SBM = "sbm:vertices=300,edges=1500,features=9,classes=3"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


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
    [(RMAT, "auto"), (SBM, "rows"), (SBM, "columns"), (SBM, "none"), ("cora", "auto")],
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
        indptr, repairs = sort_edges(scratch / "keys", 13, read, scratch / "indices.npy")
    graph, expected = datasets.construct.symmetrise(ends[0].copy(), ends[1].copy(), 13)
    np.testing.assert_array_equal(indptr, graph.indptr)
    np.testing.assert_array_equal(np.load(scratch / "indices.npy"), graph.indices)
    assert repairs == expected


def test_files_of_keys_are_even(tmp_path):
    keys = np.random.default_rng(5).permutation(10_000).astype(np.uint64)
    bounds = sorting.place_bounds(np.sort(keys), np.ones(10_000, dtype=np.int64))
    files = KeyFiles(tmp_path, bounds)
    for begin in range(0, 10_000, 999):
        files.add(keys[begin : begin + 999])
    sizes = [len(part) for part in files.read()]
    assert len(sizes) == 10_000 // 300 + 1
    assert max(sizes) <= 310
    np.testing.assert_array_equal(np.concatenate(list(files.read())), np.arange(10_000))


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
        patch.setattr(conversion, "EDGES_AT_A_TIME", 1 << 12)
        measure(9_000)  # what is imported and compiled on the way
        small, large = measure(20_000), measure(160_000)
    assert large < 1.3 * small


def test_a_line_that_is_no_edge_is_named_in_a_later_piece(tmp_path):
    file = tmp_path / "edges.txt"
    file.write_text("# head\n" + "1 2\n" * 500 + "1 x\n")
    with pytest.raises(DatasetError, match=r"line 502: '1 x' is not an edge"):
        datasets.import_folder(file, tmp_path / "made")
    assert os.listdir(tmp_path) == ["edges.txt"]


@pytest.fixture
def made(tmp_path):
    datasets.make_folder(SBM, tmp_path / "made", scaling="none")
    return tmp_path / "made"


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
    with pytest.raises(DatasetError, match=r"stay on disk.*--scale-features rows"):
        datasets.scale_features(dataset, "rows")


def test_arrays_are_mapped_and_what_is_written_to_them_is_seen_and_undone(made):
    dataset = datasets.load(str(made))
    digest = hashlib.sha256((made / "x.npy").read_bytes()).hexdigest()
    right = dataset.features.copy()
    guard = DatasetGuard(dataset)
    assert guard.restore() == ""
    assert count_written(dataset.features) == 0
    dataset.features[4, 2] += 1
    assert count_written(dataset.features) > 0
    assert count_written(dataset.graph.indices) == 0
    assert "features; they were restored" in guard.restore()
    np.testing.assert_array_equal(dataset.features, right)
    assert guard.restore() == ""
    assert hashlib.sha256((made / "x.npy").read_bytes()).hexdigest() == digest


@given(
    rows=st.lists(st.integers(0, 9_999), max_size=40),
    width=st.sampled_from([1, 3, 700, 1024, 3000]),
)
def test_ranges_are_the_pages_of_the_rows(rows, width):
    array = np.lib.stride_tricks.as_strided(
        np.zeros(1, dtype=np.float32), (10_000, width), (4 * width, 4)
    )
    begin = array.ctypes.data
    wanted = {
        (begin + at) // mmap.PAGESIZE
        for row in rows
        for at in range(row * 4 * width, (row + 1) * 4 * width, 4)
    }
    found = mapped.find_ranges(array, np.array(rows, dtype=np.int32))
    asked = [
        set(range(int(start) // mmap.PAGESIZE, int(start + size) // mmap.PAGESIZE))
        for start, size in found
    ]
    assert (found % mmap.PAGESIZE == 0).all()
    assert wanted <= set().union(*asked)
    for one in asked:
        assert {min(one), max(one)} <= wanted
        near = sorted(one & wanted)
        assert all(b - a <= mapped._GAP_PAGES + 1 for a, b in itertools.pairwise(near))
    for one, other in itertools.pairwise(asked):
        assert min(other) - max(one) > mapped._GAP_PAGES + 1


def test_what_is_asked_for_is_read(tmp_path):
    """More ranges than one call takes, of of a file of which nothing is in memory."""
    pages, apart = 1100, mapped._GAP_PAGES + 3
    with (tmp_path / "many").open("w+b") as file:
        file.write(os.urandom(mmap.PAGESIZE) * pages * apart)
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        array = mapped.map_array(file, 0, np.dtype(np.uint8), (pages * apart, mmap.PAGESIZE))

    def find_there():
        there = np.zeros(len(array), dtype=np.uint8)
        ctypes.CDLL(None).mincore(
            ctypes.c_void_p(array.ctypes.data),
            ctypes.c_size_t(array.nbytes),
            ctypes.c_void_p(there.ctypes.data),
        )
        return np.flatnonzero(there & 1)

    wanted = np.arange(0, len(array), apart)
    if len(find_there()):
        assert len(find_there()) == len(array), "a file system in memory has all or nothing"
        return
    mapped.ask_for(array, wanted)
    for _ in range(5000):
        if len(find_there()) >= len(wanted):
            break
        time.sleep(0.01)
    np.testing.assert_array_equal(find_there(), wanted)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(
    ("strategy", "mode", "scattered"), [("hyscale", "mini-batch", 1), ("hongtu", "full-graph", 0)]
)
def test_rows_of_mini_batches_are_scattered(made, monkeypatch, strategy, mode, scattered):
    advised = []
    monkeypatch.setattr(mapped, "_advise", lambda array, advice: advised.append(advice))
    run_once(datasets.load(str(made)), strategy, mode)
    random = [each for each in advised if each in (mmap.MADV_RANDOM, mmap.MADV_NORMAL)]
    assert random == [mmap.MADV_RANDOM, mmap.MADV_NORMAL] * scattered


class Asked(ReadAhead):
    """What is asked for, and what has been walked through, in this order."""

    def __init__(self, array):
        super().__init__(array)
        self.said = []

    def _ask(self, rows):
        self.said.append(("asked", rows.tolist()))

    def walk(self, rows):
        for window in super().walk(rows):
            self.said.append(("walked", rows[window].tolist()))
            yield window


def test_windows_are_asked_for_one_ahead(monkeypatch):
    monkeypatch.setattr(mapped, "WINDOW_BYTES", 2 * mmap.PAGESIZE)
    ahead = Asked(np.zeros((100, mmap.PAGESIZE // 8), dtype=np.float32))  # two rows a page
    first, second = np.array([0, 1, 2, 9, 11, 12, 13, 20]), np.array([5, 90])
    list(ahead.walk(first))
    ahead.begin(second)
    list(ahead.walk(second))
    windows = [[0, 1, 2], [9, 11], [12, 13, 20]]
    assert ahead.said == [
        ("asked", windows[0]), ("asked", windows[1]), ("walked", windows[0]),
        ("asked", windows[2]), ("walked", windows[1]), ("walked", windows[2]),
        ("asked", [5, 90]), ("walked", [5, 90]),
    ]  # fmt: skip


@pytest.mark.parametrize("width", [1, 700, 1024, 5000])
def test_windows_are_all_rows_once(monkeypatch, width):
    monkeypatch.setattr(mapped, "WINDOW_BYTES", 3 * mmap.PAGESIZE)
    ahead = Asked(np.zeros((600, width), dtype=np.float32))
    rows = np.random.default_rng(0).permutation(600)[:400]
    assert np.concatenate([rows[window] for window in ahead.walk(rows)]).tolist() == rows.tolist()
    assert list(ahead.walk(rows[:0])) == [slice(0, 0)]


@pytest.mark.usefixtures("one_thread")
def test_rows_are_asked_for_a_round_before(made, monkeypatch):
    monkeypatch.setattr("gnnbench.run.base.ReadAhead", Asked)
    bring, ends, aheads = HostMovement._bring_rows, [], set()

    def note(engine, number, round_index, slot):
        move, said = engine._moves[round_index, slot], engine._ahead.said
        aheads.add(engine._ahead)
        before = ("asked", move.host_ids.tolist()) in said
        bring(engine, number, round_index, slot)
        if number == 0:
            assert before == (round_index > 0)
            assert ("walked", move.host_ids.tolist()) in said
            ends.append(move.host_ids.tolist())

    monkeypatch.setattr(HostMovement, "_bring_rows", note)
    run_once(datasets.load(str(made)), "hongtu", "full-graph")
    (ahead,) = aheads
    assert len(ends) == 2 * 4  # devices, and the rounds of each
    for what in ("asked", "walked"):
        assert sorted(rows for each, rows in ahead.said if each == what) == sorted(ends)


@pytest.mark.usefixtures("one_thread")
def test_rows_of_a_mini_batch_are_asked_for(made, monkeypatch):
    """All of them, a page at a time, and none is looked at that has not been asked for."""
    monkeypatch.setattr(mapped, "WINDOW_BYTES", mmap.PAGESIZE)
    asked, used = [], []
    feature_rows = input_movement.feature_rows

    def note(setting, ids, **options):
        assert ids.tolist() in asked
        used.append(ids.tolist())
        return feature_rows(setting, ids, **options)

    monkeypatch.setattr(ReadAhead, "_ask", lambda self, rows: asked.append(rows.tolist()))
    monkeypatch.setattr(input_movement, "feature_rows", note)
    dataset = datasets.load(str(made))
    run_once(dataset, "hyscale", "mini-batch")
    assert used
    assert sorted(used) == sorted(asked)
    row_bytes = dataset.features.nbytes // len(dataset.features)
    assert max(map(len, used)) <= 1 + mmap.PAGESIZE // row_bytes


def test_nothing_is_asked_of_arrays_in_memory():
    ahead = Asked(features.mapped_features(make_setting(datasets.load(SBM), disk=True)))
    ahead.begin(np.arange(3))
    assert list(ahead.walk(np.arange(3))) == [slice(0, 3)]
    assert ahead.said == [("walked", [0, 1, 2])]


def test_an_empty_array_is_mapped(tmp_path):
    np.save(tmp_path / "none.npy", np.empty((0, 3), dtype=np.float32))
    assert npy.ArrayFile.find(tmp_path / "none.npy").map().shape == (0, 3)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(
    ("spec", "names"),
    [(SBM, ("reference", "hongtu", "mixgcn", "p3")), ("cora", ("hyscale", "partition"))],
)
def test_strategies_train_as_in_memory(tmp_path, spec, names):
    held = datasets.scale_features(datasets.load(spec))
    stored = datasets.make_folder(spec, tmp_path / "made")

    def train(dataset):
        workload = make_workload(dataset, epochs=2)
        request = Request(names, dataset, workload, make_platform(2), check=False)
        found = compare(request, plugins.load())
        assert all(run.status == "done" for run in found.runs)
        return [(run.strategy, run.loss) for run in found.runs], found.dataset["digest"]

    assert train(stored) == train(held)


def make_workload(dataset, epochs=1):
    return Workload(
        model="gcn",
        dims=(dataset.num_features, 8, dataset.num_classes),
        epochs=epochs,
        batch_size=100,
        fanouts=(4, 3),
        seed=0,
    )


def make_setting(dataset, disk):
    platform = make_platform(2)
    rate = 1e9 if disk else None
    host = dataclasses.replace(platform.host, disk_bandwidth_bytes_per_s=rate)
    platform = dataclasses.replace(platform, host=host)
    return comparison.make_setting(Request((), dataset, make_workload(dataset), platform))


def run_once(dataset, strategy, mode, disk=True):
    setting = make_setting(dataset, disk)
    registry = plugins.load()
    bundle = plugins.assemble(registry, registry.strategy(strategy).bundles[mode], {})
    clock = ModelClock(setting.platform, bundle.kernel, bundle.sampler)
    training = Training(bundle, setting, clock, Evidence(setting, 0))
    epoch = training.run_epoch(0)
    return epoch, training.finish([epoch])


def pages_of(ids, row_bytes):
    """Counted one byte at a time."""
    return len({
        (vertex * row_bytes + byte) // mmap.PAGESIZE for vertex in ids for byte in range(row_bytes)
    })  # fmt: skip


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(
    ("strategy", "mode"), [("hongtu", "full-graph"), ("hyscale", "mini-batch")]
)
def test_features_on_disk_are_read_a_page_at_a_time(made, strategy, mode):
    stored, held = datasets.load(str(made)), datasets.load(SBM)
    epoch, training = run_once(stored, strategy, mode)
    plain, other = run_once(held, strategy, mode)
    assert epoch.round_losses == plain.round_losses
    read = [span for span in epoch.spans if span.label == "read from disk"]
    before = {after for span in epoch.spans for after in span.after}
    assert read
    assert {span.id for span in read} <= before
    assert not [span for span in plain.spans if span.label == "read from disk"]
    whole = pages_of(range(300), 4 * 9) * mmap.PAGESIZE
    for span in read:
        assert span.work.bytes % mmap.PAGESIZE == 0
        assert 0 < span.work.bytes <= 2 * whole
        assert span.seconds >= span.work.bytes / 1e9
    host = make_platform(2).host.name
    stays = 300 * 9 * 4 + 2 * 1500 * 4  # features and the ends of edges
    more = other.peak_bytes[host] - training.peak_bytes[host]
    assert more == stays
    assert any("stay on disk" in note for note in training.notes)


def test_a_machine_whose_disk_is_not_known_has_a_folder_in_memory(made):
    epoch, training = run_once(datasets.load(str(made)), "hongtu", "full-graph", disk=False)
    plain, other = run_once(datasets.load(SBM), "hongtu", "full-graph", disk=False)
    assert [span.label for span in epoch.spans] == [span.label for span in plain.spans]
    assert training.peak_bytes == other.peak_bytes
    (said,) = (note for note in training.notes if "is a folder" in note)
    assert "does not say how fast its disk is" in said


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("strategy", ["hongtu", "hongtu-im"])
def test_what_is_made_of_a_folder_s_edges_is_on_disk_and_the_same(made, monkeypatch, strategy):
    plain, _ = run_once(datasets.load(SBM), strategy, "full-graph")
    monkeypatch.setattr("gnnbench.parts.base.SHELVED_BYTES", 0)
    kept = []
    shelve = gnnbench.parts.base.shelve

    def count(array):
        kept.append(array.nbytes)
        return shelve(array)

    monkeypatch.setattr("gnnbench.parts.base.shelve", count)
    epoch, _ = run_once(datasets.load(str(made)), strategy, "full-graph")
    assert epoch.round_losses == plain.round_losses
    # Every edge, at least as it was cut and as a device's buffer has it.
    assert sum(kept) > 2 * 4 * 3000


def test_a_record_is_kept_with_its_arrays(made, monkeypatch):
    monkeypatch.setattr("gnnbench.parts.base.SHELVED_BYTES", 100)
    large, small = np.arange(50, dtype=np.int64), np.arange(5, dtype=np.int64)[1:3]
    block = Block(large, 2, small, large.astype(np.int32))
    held = make_setting(datasets.load(SBM), True).keep((block,))
    assert held == (block,)
    (kept,) = make_setting(datasets.load(str(made)), True).keep((block,))
    for name in ("src_ids", "indptr", "indices"):
        np.testing.assert_array_equal(getattr(kept, name), getattr(block, name))
    assert (kept.num_dst, kept.own) == (2, None)
    assert isinstance(kept.src_ids.base.base, memoryview | mmap.mmap)
    assert kept.indptr.base is None  # it does not keep the array that it was cut from


def test_a_full_disk_is_one_sentence(made, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr("gnnbench.parts.base.shelve", refuse)
    monkeypatch.setattr("gnnbench.parts.base.SHELVED_BYTES", 0)
    with pytest.raises(UsageError, match=r"takes no more .* the disk is full; .* TMPDIR"):
        run_once(datasets.load(str(made)), "hongtu", "full-graph")


@pytest.mark.usefixtures("one_thread")
def test_planning_takes_no_more_memory_for_more_edges(tmp_path, monkeypatch):
    monkeypatch.setattr("gnnbench.parts.base.SHELVED_BYTES", 1000)
    # Pieces of slabs double up to 16 MB each, however many edges there are.
    monkeypatch.setattr("gnnbench.kernels.slabs.LARGEST_BYTES", SMALLEST_BYTES)

    def measure(edges):
        spec = f"rmat:vertices=2000,edges={edges},features=4,classes=2"
        dataset = datasets.make_folder(spec, tmp_path / str(edges), scaling="none")
        setting = make_setting(dataset, True)
        registry = plugins.load()
        parts = registry.strategy("hongtu").bundles["full-graph"]
        chunks = {"sampler": {"chunks_per_partition": "12", "search": "none"}}
        bundle = plugins.assemble(registry, parts, chunks)
        clock = ModelClock(setting.platform, bundle.kernel, bundle.sampler)
        tracemalloc.start()
        training = Training(bundle, setting, clock, Evidence(setting, 0))
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        del training
        return held

    measure(5_000)
    small, large = measure(10_000), measure(60_000)
    assert large < small + 4 * 60_000
