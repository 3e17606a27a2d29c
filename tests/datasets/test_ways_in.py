"""Graphs with directions, with weights and with both are the same by every way in."""

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch_geometric.data import Data

from gnnbench import datasets
from gnnbench.datasets.dgl_library import load_dgl

#: A path with an edge that comes twice, one in both directions, and a loop.
EDGES = np.array([[0, 1, 2, 3, 0, 3], [1, 2, 1, 3, 1, 0]])
WEIGHTS = np.array([1.0, 2.0, 4.0, 9.0, 0.5, 0.0])
#: By destination its sources and their weights: with reverses, and without.
SYMMETRIC = [{1: 1.5, 3: 0.0}, {0: 1.5, 2: 4.0}, {1: 2.0}, {0: 0.0}]
DIRECTED = [{3: 0.0}, {0: 1.5, 2: 4.0}, {1: 2.0}, {}]
COUNT = len(DIRECTED)


def rows_of(graph):
    """By destination its sources and their weights, which are 1 where there are none."""
    ends = graph.indptr[1:-1]
    weights = np.ones(graph.num_edges) if graph.weights is None else graph.weights
    pairs = zip(np.split(graph.indices, ends), np.split(weights, ends), strict=True)
    return [dict(zip(ids.tolist(), each.tolist(), strict=True)) for ids, each in pairs]


def of_arrays(_, **kept):
    return datasets.from_arrays(EDGES, num_vertices=COUNT, edge_weights=WEIGHTS, **kept)


def of_matrix(_, **kept):
    matrix = sp.coo_matrix((WEIGHTS, tuple(EDGES)), shape=(COUNT, COUNT))
    return datasets.from_arrays(matrix, **kept)


def of_pyg(_, **kept):
    data = Data(edge_index=torch.from_numpy(EDGES), num_nodes=COUNT)
    data.edge_weight = torch.from_numpy(WEIGHTS)
    return datasets.from_pyg(data, **kept)


def of_pygs_attributes(_, **kept):
    edges, values = torch.from_numpy(EDGES), torch.from_numpy(WEIGHTS)
    data = Data(edge_index=edges, edge_attr=values, num_nodes=COUNT)
    return datasets.from_pyg(data, **kept)


def of_dgl(_, **kept):
    graph = load_dgl().graph(tuple(map(torch.from_numpy, EDGES)), num_nodes=COUNT)
    graph.edata["distance"] = torch.ones(len(WEIGHTS), 1)
    graph.edata["w"] = torch.from_numpy(WEIGHTS)[:, None]
    return datasets.from_dgl(graph, **kept)


def of_networkx(_, **kept):
    graph = nx.MultiDiGraph()
    graph.add_nodes_from(range(COUNT))
    graph.add_weighted_edges_from(zip(*EDGES.tolist(), WEIGHTS.tolist(), strict=True))
    return datasets.from_networkx(graph, **kept)


def import_graph(file, **kept):
    return datasets.import_graph(file, datasets.Extras(**kept)).dataset


def import_folder(file, **kept):
    extras = datasets.Extras(**kept)
    return datasets.import_folder(file, file.parent / "kept", extras, scaling="none").dataset


def write_list(folder, words=str):
    file = folder / "edges.txt"
    lines = [f"{words(a)} {words(b)} {w}" for a, b, w in zip(*EDGES, WEIGHTS, strict=True)]
    file.write_text("# a heading\n" + "\n".join(lines))
    return file


def of_edge_list(folder, **kept):
    return import_graph(write_list(folder), **kept)


def of_names(folder, **kept):
    return import_graph(write_list(folder, "v{}".format), string_ids=True, **kept)


def of_edge_index(folder, **kept):
    np.save(folder / "edges.npy", EDGES)
    return import_graph(folder / "edges.npy", **kept)


def of_matrix_market(folder, **kept):
    lines = [f"{a + 1} {b + 1} {w}" for a, b, w in zip(*EDGES, WEIGHTS, strict=True)]
    head = f"%%MatrixMarket matrix coordinate real general\n{COUNT} {COUNT} {len(lines)}\n"
    (folder / "edges.mtx").write_text(head + "\n".join(lines))
    return import_graph(folder / "edges.mtx", **kept)


def of_raw_npz(folder, directed, weighted):
    order = np.argsort(EDGES[1], kind="stable")
    counts = np.bincount(EDGES[1], minlength=COUNT)
    arrays = {"indptr": np.concatenate(([0], np.cumsum(counts))), "indices": EDGES[0][order]}
    weights = {"weights": WEIGHTS[order]} if weighted else {}
    np.savez(folder / "raw.npz", **arrays, **weights)
    return import_graph(folder / "raw.npz", directed=directed)


def of_own_npz(folder, **kept):
    datasets.save_npz(of_arrays(folder, **kept), folder / "own.npz")
    return datasets.load_npz(folder / "own.npz")


def of_folder_of_npz(folder, **kept):
    of_own_npz(folder, **kept)
    return import_folder(folder / "own.npz")


def of_folder_of_pairs(folder, **kept):
    np.save(folder / "edges.npy", EDGES)
    return import_folder(folder / "edges.npy", **kept)


def of_folder_of_a_list(folder, **kept):
    return import_folder(write_list(folder), **kept)


def of_folder_read_again(folder, **kept):
    of_folder_of_a_list(folder, **kept)
    return datasets.load_folder(folder / "kept", folder / "verified")


#: Ways that keep weights.
WAYS = [
    of_arrays, of_matrix, of_pyg, of_pygs_attributes, of_dgl, of_networkx, of_edge_list, of_names,
    of_matrix_market, of_raw_npz, of_own_npz, of_folder_of_npz, of_folder_of_a_list,
    of_folder_read_again,
]  # fmt: skip
#: Directions, and weights.
KINDS = [(True, True), (True, False), (False, True)]
#: Files of pairs have no weights.
CASES = [(way, *kind) for way in WAYS for kind in KINDS]
CASES += [(way, True, False) for way in (of_edge_index, of_folder_of_pairs)]


@pytest.mark.parametrize(("way", "directed", "weighted"), CASES)
def test_a_graph_is_the_same_by_every_way_in(way, directed, weighted, tmp_path):
    """A vertex has the sources of its edges. Weights of an edge that comes twice are added up, and
    a missing reverse has its edge's."""
    dataset = way(tmp_path, directed=directed, weighted=weighted)
    graph, notes = dataset.graph, dataset.notes
    rows = DIRECTED if directed else SYMMETRIC
    assert graph.directed == directed
    assert rows_of(graph) == (rows if weighted else [dict.fromkeys(row, 1.0) for row in rows])
    plain = of_arrays(None, directed=directed, weighted=weighted)
    assert dataset.digest() == plain.digest()
    assert graph.weights is None or graph.weights.dtype == np.float32
    assert not directed or not any("reverse" in note for note in notes)
    if weighted:
        assert "edge weights were ignored" not in notes
        if way not in (of_own_npz, of_folder_of_npz, of_matrix):
            assert "duplicate edges added up: 1" in notes


def test_each_kind_is_another_data_set():
    """Directions count where every edge has its reverse, too, and weights where all are 1."""
    both = np.array([[0, 1, 1, 2], [1, 0, 2, 1]])
    made = [
        datasets.from_arrays(both, edge_weights=np.ones(4), directed=directed, weighted=weighted)
        for directed, weighted in [*KINDS, (False, False)]
    ]
    assert all(rows_of(each.graph) == [{1: 1.0}, {0: 1.0, 2: 1.0}, {1: 1.0}] for each in made)
    assert len({each.digest() for each in made}) == 4
    assert made[-1].graph.weights is None


def test_an_array_of_two_by_two_has_an_edge_in_each_column(tmp_path):
    """Edges 0 to 2 and 1 to 0. By its rows the edges would be 0 to 1 and 2 to 0."""
    edges = np.array([[0, 1], [2, 0]])
    np.save(tmp_path / "edges.npy", edges)
    made = [
        datasets.from_arrays(edges, directed=True),
        import_graph(tmp_path / "edges.npy", directed=True),
        import_folder(tmp_path / "edges.npy", directed=True),
    ]
    for dataset in made:
        assert rows_of(dataset.graph) == [{1: 1.0}, {}, {0: 1.0}]
