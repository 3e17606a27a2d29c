"""OGB and PyG: the conversions on small graphs, and what is said when a library is missing."""

import collections
import fcntl
import os
import pickle
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import scipy.sparse as sp
import torch
import torch_geometric.datasets
from torch_geometric.data import Data, HeteroData, InMemoryDataset

from gnnbench.datasets import from_pyg, load
from gnnbench.datasets.pickles import arrays_only
from gnnbench.errors import DatasetError, MissingDependencyError

EDGES = np.array([[0, 1, 2, 2], [1, 2, 3, 2]])
ROWS = [[1], [0, 2], [1, 3], [2]]


def small_data(**changes):
    fields = {
        "edge_index": torch.tensor(EDGES),
        "x": torch.arange(8, dtype=torch.float32).reshape(4, 2),
        "y": torch.tensor([0, 1, 2, 0]),
        "train_mask": torch.tensor([True, True, False, False]),
        "val_mask": torch.tensor([False, False, True, False]),
        "test_mask": torch.tensor([False, False, False, True]),
    }
    return Data(**{k: v for k, v in (fields | changes).items() if v is not None})


def test_from_pyg_sparse_features():
    x = torch.tensor([[0.0, 1.0], [0.0, 0.0], [2.0, 0.0], [0.0, 3.0]])
    for sparse in (x.to_sparse_coo(), x.to_sparse_csr()):
        dataset = from_pyg(small_data(x=sparse), "small")
        assert not isinstance(dataset.features, np.ndarray)
        np.testing.assert_array_equal(dataset.rows(np.arange(4)), x.numpy())


def test_from_pyg_takes_the_first_of_several_splits():
    masks = {
        name: torch.stack((small_data()[name], small_data()["test_mask"]), dim=1)
        for name in ("train_mask", "val_mask", "test_mask")
    }
    dataset = from_pyg(small_data(**masks), "small")
    np.testing.assert_array_equal(dataset.train_ids, [0, 1])
    assert "the first of several splits is used" in dataset.notes


def test_from_pyg_without_content_is_a_topology():
    dataset = from_pyg(Data(edge_index=torch.tensor(EDGES), num_nodes=6), "bare")
    assert dataset.graph.num_vertices == 6
    assert any("made up at random" in note for note in dataset.notes)
    partial = from_pyg(small_data(val_mask=None), "small")
    assert "the incomplete split of the source is not used" in partial.notes


def test_from_pyg_refuses_other_data():
    with pytest.raises(DatasetError, match="edge_index"):
        from_pyg(HeteroData(), "mixed")
    with pytest.raises(DatasetError, match="several labels"):
        from_pyg(small_data(y=torch.zeros(4, 3)), "multi")


class SmallPyG(InMemoryDataset):
    """A dataset class as PyG has them, with ``count`` graphs and no download."""

    count = 1

    def __init__(self, root, name="one"):
        if name == "broken":
            raise OSError("no route to host")
        print("Downloading...")
        super().__init__(root)
        self.data, self.slices = self.collate([small_data()] * self.count)


def test_load_pyg(monkeypatch, capsys, cache):
    monkeypatch.setattr(torch_geometric.datasets, "SmallPyG", SmallPyG, raising=False)
    dataset = load("pyg:SmallPyG/one")
    assert dataset.name == "pyg:SmallPyG/one"
    assert dataset.graph.num_edges == 6
    assert capsys.readouterr().out == ""
    for name, said in (("SmallPyG/broken", "no route to host"), ("Planetoid/No", "could not load")):
        with pytest.raises(DatasetError, match=said):
            load(f"pyg:{name}")
    # Nothing is left of a failed download.
    assert [path.name for path in (cache / "pyg").iterdir()] == ["SmallPyG-one"]
    monkeypatch.setattr(SmallPyG, "count", 3)
    with pytest.raises(DatasetError, match="3 graphs"):
        load("pyg:SmallPyG")


def test_load_pyg_names_close_matches():
    with pytest.raises(DatasetError, match="pyg:Planetoid"):
        load("pyg:Planetoids/Cora")
    with pytest.raises(DatasetError, match="these options"):
        load("pyg:Reddit/name")


def test_load_pyg_without_the_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch_geometric.datasets", None)
    with pytest.raises(MissingDependencyError, match="pip install torch-geometric"):
        load("pyg:Reddit")


class SmallOGB:
    """Stands where ``ogb.nodeproppred.NodePropPredDataset`` does, with its interface."""

    roots: list[str] = []  # noqa: RUF012 - what the tests look at

    def __init__(self, name, root):
        print("Extracting...")
        self.roots.append(root)
        if name == "ogbn-papers100M":
            raise SystemExit(-1)  # what OGB does when a download is declined

    def __getitem__(self, index):
        x = np.arange(8, dtype=np.float32).reshape(4, 2)
        graph = {"edge_index": EDGES, "edge_feat": None, "node_feat": x, "num_nodes": 4}
        return graph, np.array([[0.0], [1.0], [np.nan], [1.0]])

    def get_idx_split(self):
        return {"train": np.array([0]), "valid": np.array([1]), "test": np.array([3])}


@pytest.fixture
def fake_ogb(monkeypatch):
    package, module = ModuleType("ogb"), ModuleType("ogb.nodeproppred")
    module.NodePropPredDataset = SmallOGB
    monkeypatch.setitem(sys.modules, "ogb", package)
    monkeypatch.setitem(sys.modules, "ogb.nodeproppred", module)
    monkeypatch.setattr(SmallOGB, "roots", [])
    return SmallOGB


@pytest.mark.parametrize("name", ["ogbn-arxiv", "ogbn-products"])
def test_load_ogb(name, fake_ogb, capsys, cache):
    dataset = load(name)
    graph = dataset.graph
    assert [r.tolist() for r in np.split(graph.indices, graph.indptr[1:-1])] == ROWS
    np.testing.assert_array_equal(dataset.labels, [0, 1, -1, 1])
    np.testing.assert_array_equal(dataset.train_ids, [0])
    np.testing.assert_array_equal(np.flatnonzero(dataset.test_mask), [3])
    assert fake_ogb.roots[-1] == str(cache / "ogb" / name)
    assert [path.name for path in (cache / "ogb").iterdir()] == [name]
    load(name)
    assert len(fake_ogb.roots) == 3  # once to download, and once for each time it is loaded
    assert capsys.readouterr().out == ""


def test_declined_download_is_an_error_not_an_exit(fake_ogb):
    with pytest.raises(DatasetError, match="could not load or download"):
        load("ogbn-papers100M")


def test_without_ogb(monkeypatch):
    monkeypatch.setitem(sys.modules, "ogb.nodeproppred", None)
    with pytest.raises(DatasetError, match=r"ogbn-products:0\.01, or install the package ogb"):
        load("ogbn-products")
    with pytest.raises(MissingDependencyError, match="pip install ogb"):
        load("ogbn-arxiv")


def test_what_a_killed_download_left_is_cleared_away(fake_ogb, cache):
    """But for what another process is still at work on, and what nobody here made."""
    folder = cache / "ogb"
    names = (".gnnbench-dead.tmp", ".gnnbench-alive.tmp", ".gnnbench-new.tmp", "theirs")
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / name / "part").write_text("x")
        if "new" not in name:
            os.utime(folder / name, (0, 0))
    alive = os.open(folder / names[1], os.O_RDONLY)
    fcntl.flock(alive, fcntl.LOCK_EX)
    load("ogbn-arxiv")
    os.close(alive)
    assert {path.name for path in folder.iterdir()} == {*names[1:], "ogbn-arxiv"}


class Runs:
    """Unpickled, it would make a folder."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


class CachedOGB(SmallOGB):
    """Keeps what it has parsed as OGB does, and reads it back when it is there."""

    content: object = None

    def __init__(self, name, root):
        self.roots.append(root)
        file = Path(root) / "data_processed"
        if not file.exists():
            torch.save(self.content, file, pickle_protocol=4)
        self.loaded = torch.load(file, weights_only=False)

    def __getitem__(self, index):
        return self.loaded["graph"], self.loaded["labels"]


def test_ogb_reads_its_own_arrays_back(fake_ogb, monkeypatch):
    graph, labels = SmallOGB("ogbn-arxiv", "")[0]
    years = {"node_year": np.array([["2010"]] * 4), "flags": np.ones(4, bool), "one": np.float32(1)}
    monkeypatch.setattr(CachedOGB, "content", {"graph": graph | years, "labels": labels})
    monkeypatch.setattr(sys.modules["ogb.nodeproppred"], "NodePropPredDataset", CachedOGB)
    assert load("ogbn-arxiv").digest() == load("ogbn-arxiv").digest()
    assert load("ogbn-arxiv").graph.num_edges == 6


def test_a_pickle_that_could_run_code_is_refused(fake_ogb, monkeypatch, tmp_path, cache):
    trap = tmp_path / "it ran"
    monkeypatch.setattr(CachedOGB, "content", {"graph": Runs(str(trap))})
    monkeypatch.setattr(sys.modules["ogb.nodeproppred"], "NodePropPredDataset", CachedOGB)
    with pytest.raises(DatasetError, match=r"holds a pickled posix\.mkdir, .* delete .* again, or"):
        load("ogbn-arxiv")
    assert not trap.exists()
    assert list((cache / "ogb").iterdir()) == []


@pytest.mark.parametrize("way", ["pickle.load", "pickle.loads", "numpy", "torch", "torch legacy"])
def test_no_way_of_unpickling_runs_code(tmp_path, way):
    trap, file = tmp_path / "it ran", tmp_path / "file"
    hostile = Runs(str(trap))
    if way == "numpy":
        with file.open("wb") as stream:
            np.save(stream, np.array([hostile], dtype=object))
    elif way.startswith("torch"):
        torch.save(hostile, file, _use_new_zipfile_serialization=way == "torch")
    else:
        file.write_bytes(pickle.dumps(hostile))
    call = {
        "pickle.load": lambda: pickle.load(file.open("rb")),
        "pickle.loads": lambda: pickle.loads(file.read_bytes()),
        "numpy": lambda: np.load(file, allow_pickle=True),
    }.get(way, lambda: torch.load(file, None, pickle, weights_only=False))
    with pytest.raises(pickle.UnpicklingError, match="mkdir"), arrays_only():
        call()
    assert not trap.exists()
    call()  # outside, as ever
    assert trap.is_dir()


def test_matrices_of_planetoid_are_arrays():
    """They are SciPy's, beside NumPy's arrays and a dictionary of lists; in every protocol."""
    matrix = sp.csr_matrix(np.eye(3))
    content = (matrix, np.arange(3), collections.defaultdict(list, {0: [1, 2]}))
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with arrays_only():
            read = pickle.loads(pickle.dumps(content, protocol))
        assert (read[0] != matrix).nnz == 0
        assert read[2] == content[2]
