"""Data sets of arrays and of PyG's, DGL's and NetworkX's graphs: the same graph is the same data,
and what is lost on the way is said alike."""

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch_geometric.data import Data

from gnnbench.datasets import from_arrays, from_dgl, from_networkx, from_pyg, load
from gnnbench.datasets.dgl_library import load_dgl
from gnnbench.errors import DatasetError

EDGES = np.array([[0, 1, 2, 4], [1, 2, 3, 4]])
X = np.arange(10, dtype=np.float32).reshape(5, 2)
Y = np.array([0, 1, 2, 0, 1])
SPLIT = {"train": np.array([0, 1]), "val": np.array([2]), "test": np.array([3])}
MASKS = {name: np.isin(np.arange(5), ids) for name, ids in SPLIT.items()}


def of_arrays(weights=None, labels=Y):
    return from_arrays(EDGES, X, labels, SPLIT, edge_weights=weights)


def of_matrix(weights=None, labels=Y):
    entries = np.ones(4) if weights is None else weights
    matrix = sp.coo_matrix((entries, tuple(EDGES)), shape=(5, 5))
    return from_arrays(matrix, torch.from_numpy(X), torch.as_tensor(labels), MASKS)


def of_pyg(weights=None, labels=Y):
    masks = {f"{name}_mask": torch.from_numpy(mask) for name, mask in MASKS.items()}
    data = Data(torch.from_numpy(X), torch.from_numpy(EDGES), y=torch.as_tensor(labels), **masks)
    if weights is not None:
        data.edge_weight = torch.as_tensor(weights)
    return from_pyg(data)


def of_dgl(weights=None, labels=Y):
    graph = load_dgl().graph(tuple(map(torch.from_numpy, EDGES)), num_nodes=5)
    graph.ndata.update(feat=torch.from_numpy(X), label=torch.as_tensor(labels))
    graph.ndata.update({f"{name}_mask": torch.from_numpy(mask) for name, mask in MASKS.items()})
    if weights is not None:
        graph.edata["w"] = torch.as_tensor(weights)
    return from_dgl(graph)


def of_networkx(weights=None, labels=Y):
    graph = nx.DiGraph()
    shares = {int(i): name for name, ids in SPLIT.items() for i in ids}
    for vertex in range(5):
        graph.add_node(f"v{vertex}", x=X[vertex], y=labels[vertex])
        if vertex in shares:
            graph.nodes[f"v{vertex}"]["split"] = shares[vertex]
    for number, (one, other) in enumerate(EDGES.T):
        extra = {} if weights is None else {"weight": float(weights[number])}
        graph.add_edge(f"v{one}", f"v{other}", **extra)
    return from_networkx(graph)


WAYS = [of_arrays, of_matrix, of_pyg, of_dgl, of_networkx]
every_way = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)


@every_way
def test_the_same_graph_is_the_same_data(way):
    dataset = way()
    rows = np.split(dataset.graph.indices, dataset.graph.indptr[1:-1])
    assert [row.tolist() for row in rows] == [[1], [0, 2], [1, 3], [2], []]
    np.testing.assert_array_equal(dataset.features, X)
    np.testing.assert_array_equal(dataset.labels, Y)
    np.testing.assert_array_equal(dataset.train_ids, [0, 1])
    np.testing.assert_array_equal(np.flatnonzero(dataset.val_mask), [2])
    np.testing.assert_array_equal(np.flatnonzero(dataset.test_mask), [3])
    assert dataset.notes == ("self loops removed: 1", "missing reverse edges added: 3")
    assert dataset.digest() == of_arrays().digest()


@every_way
def test_edge_weights_that_are_lost_are_said_alike(way):
    assert "edge weights were ignored" in way(np.array([1.0, 0.5, 1.0, 1.0])).notes
    assert "edge weights were ignored" not in way(np.ones(4)).notes


@every_way
def test_labels_stored_as_floats_are_classes_or_refused(way):
    dataset = way(labels=np.array([0.0, 1.0, 2.0, np.nan, 1.0]))
    np.testing.assert_array_equal(dataset.labels, [0, 1, 2, -1, 1])
    assert "labels stored as float64 were read as classes" in dataset.notes
    assert "1 of 5 vertices have no label (NaN)" in dataset.notes
    with pytest.raises(DatasetError, match=r"y has 0\.5, which is no class"):
        way(labels=np.array([0.5, 1.0, 2.0, 0.0, 1.0]))


def test_edge_features_that_are_lost_are_said():
    pyg = Data(edge_index=torch.from_numpy(EDGES), edge_attr=torch.rand(4, 3))
    assert "edge features were ignored" in from_pyg(pyg).notes
    graph = load_dgl().graph(tuple(map(torch.from_numpy, EDGES)))
    graph.edata["e"] = torch.rand(4, 3)
    assert "edge features were ignored" in from_dgl(graph).notes


def test_what_is_lacking_is_made_up():
    dataset = from_arrays(EDGES, num_vertices=7)
    assert dataset.graph.num_vertices == 7
    assert dataset.notes[-1].startswith("made up at random (seed 0): features (128 wide), labels")
    sparse = from_arrays(EDGES, sp.csr_matrix(X), Y)
    assert sp.issparse(sparse.features)
    np.testing.assert_array_equal(sparse.features.toarray(), X)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: from_arrays(sp.coo_matrix((2, 3))), "give a square one"),
        (lambda: from_arrays(EDGES, X, Y, {"train": [0]}), "the split has no 'val'"),
        (lambda: from_arrays(EDGES, X, Y, {**SPLIT, "test": [9]}), "test names vertices 9 to 9"),
        (lambda: from_arrays(EDGES, X, Y, {**SPLIT, "val": [True]}), "a mask of 1 flags"),
        (lambda: from_arrays(EDGES, split=SPLIT), "say num_vertices"),
        (lambda: from_arrays(EDGES, X, np.array([{}] * 5)), "not numbers; number the classes"),
        (lambda: from_arrays(EDGES, X[:3], Y), "outside 0 to 2"),
        (lambda: from_arrays(EDGES.T, X, Y), "give integers of shape"),
    ],
)
def test_what_does_not_fit_is_refused(make, words):
    with pytest.raises(DatasetError, match=words):
        make()


def test_a_networkx_graph_with_gaps_is_refused():
    graph = nx.path_graph(3)
    graph.nodes[0]["x"] = [1.0]
    with pytest.raises(DatasetError, match="2 of 3 vertices have no 'x'"):
        from_networkx(graph)
    karate = from_networkx(nx.karate_club_graph(), "karate")
    assert (karate.graph.num_vertices, karate.graph.num_edges) == (34, 156)


def test_dgl_datasets_go_by_name(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    karate = load("dgl:KarateClub")  # comes with DGL
    assert (karate.graph.num_vertices, karate.graph.num_edges) == (34, 156)
    assert karate.origin == "DGL, KarateClub"
    with pytest.raises(DatasetError, match=r"dgl\.data has no 'Karate'; try dgl:KarateClub"):
        load("dgl:Karate")

    class SmallGraphDataset:
        """Stands where a data set of DGL does, with its interface."""

        roots: list[str] = []  # noqa: RUF012 - what the test looks at
        count = 1

        def __init__(self, raw_dir=None):
            self.roots.append(raw_dir)
            if raw_dir is None:
                raise OSError("no route to host")

        def __len__(self):
            return self.count

        def __getitem__(self, index):
            graph = load_dgl().graph(tuple(map(torch.from_numpy, EDGES)), num_nodes=5)
            graph.ndata["feat"] = torch.from_numpy(X)
            return graph

    monkeypatch.setattr(load_dgl().data, "SmallGraphDataset", SmallGraphDataset, raising=False)
    for name in ("dgl:Small", "dgl:SmallGraphDataset"):
        np.testing.assert_array_equal(load(name).features, X)
    assert SmallGraphDataset.roots[-1] == str(tmp_path / "gnnbench" / "datasets" / "dgl" / "Small")
    monkeypatch.setattr(SmallGraphDataset, "count", 4)
    with pytest.raises(DatasetError, match="it holds 4 graphs"):
        load("dgl:Small")


def test_other_ways_to_say_the_same(tmp_path):
    """bfloat16, adj_t, sparse edges, weights of one column, masks of integers, classes as words."""
    edges, weights = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 1]]), torch.tensor([1.0, 2, 3, 4])
    x = torch.arange(8.0).reshape(4, 2)
    adjacency = torch.sparse_coo_tensor(edges, weights, (4, 4))
    plain = from_pyg(Data(x=x, edge_index=edges, edge_weight=weights), directed=True, weighted=True)
    for data in (
        Data(x=x.bfloat16(), edge_index=edges, edge_attr=weights[:, None]),
        Data(x=x, adj_t=adjacency.t().coalesce().to_sparse_csr()),
        Data(x=x, edge_index=adjacency),
    ):
        made = from_pyg(data, directed=True, weighted=True)
        assert np.array_equal(made.graph.indptr, plain.graph.indptr)
        assert np.array_equal(made.graph.indices, plain.graph.indices)
        assert np.array_equal(made.graph.weights, plain.graph.weights)
        assert np.array_equal(made.features, plain.features)
    labels = np.array(["b", "a", "b", "b"])
    split = {"training_mask": np.array([0, 1, 1, 0]), "val": [], "test": [0]}
    made = from_arrays(edges, x, labels, split)
    assert made.labels.tolist() == [1, 0, 1, 1]
    assert np.flatnonzero(made.train_mask).tolist() == [1, 2]
    assert not made.val_mask.any()
    with pytest.raises(DatasetError, match="training_mask names a vertex twice"):
        from_arrays(edges, x, labels, {**split, "training_mask": [1, 1]})
    with pytest.raises(DatasetError, match="rows have different lengths"):
        from_arrays(edges, [[1.0], [1.0, 2.0]])
