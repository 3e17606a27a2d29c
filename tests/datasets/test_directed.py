"""Graphs whose edges have a direction: the same by every way in, and trained as such."""

from __future__ import annotations

import dataclasses
import json
from functools import cache

import networkx as nx
import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

from gnnbench import datasets, plugins
from gnnbench.comparison import Request, compare
from gnnbench.conformance.graphs import make_dataset, make_platforms, make_workload
from gnnbench.datasets.dgl_library import load_dgl
from gnnbench.errors import DatasetError, IncompatibleParts
from gnnbench.models import BoundBlock, Degrees, build
from gnnbench.partitioning.metis import partition_metis
from gnnbench.parts import Setting
from gnnbench.price.model_clock import ModelClock
from gnnbench.records import Graph
from gnnbench.run import train
from gnnbench.run.evaluate import whole_graph_block
from tests.models.dense_training import train_on

pytestmark = pytest.mark.usefixtures("one_thread")

#: A path with a branch, an edge in both directions, one that comes twice, and a loop.
EDGES = np.array([[0, 1, 2, 3, 4, 0, 3], [1, 2, 1, 1, 4, 1, 0]])
#: Who aggregates whom.
IN_NEIGHBOURS = [[3], [0, 2, 3], [1], [], []]
COUNT = len(IN_NEIGHBOURS)


def rows_of(graph):
    return [row.tolist() for row in np.split(graph.indices, graph.indptr[1:-1])]


# --------------------------------------------------------------------------- every way in


def of_arrays(_):
    return datasets.from_arrays(EDGES, num_vertices=COUNT, directed=True)


def of_matrix(_):
    matrix = sp.coo_matrix((np.ones(EDGES.shape[1]), tuple(EDGES)), shape=(COUNT, COUNT))
    return datasets.from_arrays(matrix, directed=True)


def of_pyg(_):
    edges = torch.from_numpy(EDGES)
    return datasets.from_pyg(Data(edge_index=edges, num_nodes=COUNT), directed=True)


def of_dgl(_):
    graph = load_dgl().graph(tuple(map(torch.from_numpy, EDGES)), num_nodes=COUNT)
    return datasets.from_dgl(graph, directed=True)


def of_networkx(_):
    graph = nx.DiGraph()
    graph.add_nodes_from(range(COUNT))
    graph.add_edges_from(EDGES.T.tolist())
    return datasets.from_networkx(graph, directed=True)


def of_edge_list(folder):
    file = folder / "edges.txt"
    np.savetxt(file, EDGES.T, fmt="%d")
    return datasets.import_graph(file, datasets.Extras(directed=True)).dataset


def of_edge_index(folder):
    file = folder / "edges.npy"
    np.save(file, EDGES)
    return datasets.import_graph(file, datasets.Extras(directed=True)).dataset


def of_matrix_market(folder):
    file = folder / "edges.mtx"
    matrix = sp.coo_matrix((np.ones(EDGES.shape[1]), tuple(EDGES)), shape=(COUNT, COUNT))
    scipy.io.mmwrite(file, sp.coo_matrix(matrix.tocsr()), field="pattern")
    return datasets.import_graph(file, datasets.Extras(directed=True)).dataset


def of_raw_npz(folder):
    file = folder / "raw.npz"
    np.savez(file, indptr=[0, 2, 6, 7, 7, 8], indices=[3, 3, 3, 2, 0, 0, 1, 4])
    return datasets.import_graph(file, datasets.Extras(directed=True)).dataset


def of_own_npz(folder):
    datasets.save_npz(of_arrays(folder), folder / "own.npz")
    return datasets.load_npz(folder / "own.npz")


def of_folder_of_pairs(folder):
    file = folder / "edges.npy"
    np.save(file, EDGES)
    extras = datasets.Extras(directed=True)
    return datasets.import_folder(file, folder / "kept", extras, scaling="none").dataset


def of_folder_of_npz(folder):
    datasets.save_npz(of_arrays(folder), folder / "own.npz")
    return datasets.import_folder(folder / "own.npz", folder / "kept", scaling="none").dataset


def of_folder_read_again(folder):
    of_folder_of_pairs(folder)
    return datasets.load_folder(folder / "kept", folder / "verified")


@pytest.mark.parametrize(
    "way",
    [
        of_arrays,
        of_matrix,
        of_pyg,
        of_dgl,
        of_networkx,
        of_edge_list,
        of_edge_index,
        of_matrix_market,
        of_raw_npz,
        of_own_npz,
        of_folder_of_pairs,
        of_folder_of_npz,
        of_folder_read_again,
    ],
    ids=lambda way: way.__name__,
)
def test_a_vertex_has_the_sources_of_its_edges_by_every_way_in(way, tmp_path):
    dataset = way(tmp_path)
    assert dataset.graph.directed
    assert rows_of(dataset.graph) == IN_NEIGHBOURS
    assert dataset.digest() == of_arrays(tmp_path).digest()
    assert not any("reverse" in note for note in dataset.notes)


def test_a_graph_that_is_symmetric_anyway_is_another_where_it_is_directed():
    both = np.concatenate((EDGES, EDGES[::-1]), axis=1)
    directed, plain = (
        datasets.from_arrays(both, num_vertices=COUNT, directed=keep) for keep in (True, False)
    )
    assert rows_of(directed.graph) == rows_of(plain.graph)
    assert directed.digest() != plain.digest()


def test_names_of_vertices_keep_directions(tmp_path):
    file = tmp_path / "names.txt"
    file.write_text("b a\nc b\n")
    extras = datasets.Extras(directed=True, string_ids=True)
    assert rows_of(datasets.import_graph(file, extras).dataset.graph) == [[1], [2], []]


def test_what_is_directed_and_does_not_say_so_is_refused(tmp_path):
    file = tmp_path / "graph.npz"
    np.savez(file, indptr=[0, 1, 1], indices=[1])
    with pytest.raises(DatasetError, match=r"is directed: .*or keeps it, with --directed"):
        datasets.load_npz(file)
    np.savez(file, indptr=[0, 1, 1], indices=[1], directed=[True, False])
    with pytest.raises(DatasetError, match=r"directed has shape \(2,\); store one flag"):
        datasets.load_npz(file)
    np.savez(file, indptr=[0, 2, 2], indices=[1, 1], directed=True)
    with pytest.raises(DatasetError, match="has duplicate edges in row 0"):
        datasets.load_npz(file)


def test_a_folder_that_lies_about_directions_is_refused(tmp_path):
    of_folder_of_pairs(tmp_path)
    manifest = tmp_path / "kept" / "manifest.json"
    said = json.loads(manifest.read_text())
    for lie, words in (
        (False, "is directed: some edges"),
        ("yes", "directed is 'yes' and no flag"),
    ):
        manifest.write_text(json.dumps({**said, "directed": lie}))
        with pytest.raises(DatasetError, match=words):
            datasets.load_folder(tmp_path / "kept", tmp_path / "verified")


def test_an_undirected_networkx_graph_has_no_directions():
    with pytest.raises(DatasetError, match="the graph is undirected"):
        datasets.from_networkx(nx.path_graph(3), directed=True)


def test_its_facts_count_directed_edges():
    facts = datasets.describe(of_arrays(None))
    assert "undirected_edges" not in facts
    assert facts["num_edges"] == 5
    assert facts["edge_convention"] == "directed edges, no self loops"
    assert facts["isolated_vertices"] == 1  # the fourth has edges to others, and none from them
    assert of_arrays(None).graph.out_degrees.tolist() == [1, 1, 1, 2, 0]


def test_metis_gets_edges_in_both_directions():
    count = 40
    path = np.stack((np.arange(count - 1), np.arange(1, count)))
    directed, plain = (
        datasets.from_arrays(path, num_vertices=count, directed=keep).graph
        for keep in (True, False)
    )
    parts = [partition_metis(graph, 4, seed=3) for graph in (directed, plain)]
    np.testing.assert_array_equal(*parts)


def test_pagraph_keeps_the_rows_that_most_vertices_aggregate():
    star = np.stack((np.full(6, 4), np.array([0, 1, 2, 3, 5, 6])))  # one edge to each from 4
    heard = np.array([[0, 1], [6, 6]])  # whose in-degree is the highest
    dataset = datasets.from_arrays(np.hstack((star, heard)), num_vertices=7, directed=True)
    setting = Setting(dataset, make_platforms()[0], make_workload(), ())
    memory = plugins.load().part("memory", "pagraph")()
    assert memory.open(setting, {0: 1}).kept[0].tolist() == [4]


# --------------------------------------------------------------------------- training


@cache
def directed_dataset():
    """The graph of the conformance checks, of whose edges every third has lost a direction."""
    whole = make_dataset()
    rows = np.repeat(np.arange(whole.graph.num_vertices), whole.graph.degrees)
    kept = (rows < whole.graph.indices) | ((rows + whole.graph.indices) % 3 > 0)
    indptr = np.concatenate(([0], np.cumsum(np.bincount(rows[kept], minlength=len(whole.labels)))))
    graph = Graph(indptr.astype(np.int64), whole.graph.indices[kept], directed=True)
    assert (graph.degrees != graph.out_degrees).sum() > 20
    return dataclasses.replace(whole, name="directed", graph=graph)


def reference():
    registry = plugins.load()
    return plugins.assemble(registry, registry.strategy("reference").bundles["full-graph"], {})


def dense_of(graph):
    """``(V, V)``: one where the column has an edge to the row."""
    adjacent = torch.zeros(graph.num_vertices, graph.num_vertices, dtype=torch.float64)
    adjacent[np.repeat(np.arange(graph.num_vertices), graph.degrees), graph.indices] = 1
    return adjacent


def gcn(layer, adjacent, h):
    looped = adjacent + torch.eye(len(adjacent))
    norm = looped.sum(1).rsqrt()
    return (norm[:, None] * looped * norm) @ h @ layer.weight + layer.bias


def sage(layer, adjacent, h):
    mean = adjacent / adjacent.sum(1, keepdim=True).clamp(min=1)
    return torch.cat((h, mean @ h), dim=1) @ layer.weight + layer.bias


def gin(layer, adjacent, h):
    hidden = torch.relu((h + adjacent @ h) @ layer.weight_1 + layer.bias_1)
    return hidden @ layer.weight_2 + layer.bias_2


def gat(layer, adjacent, h):
    projected = h @ layer.weight
    scores = projected @ layer.attend_dst + (projected @ layer.attend_src).T
    scores = torch.nn.functional.leaky_relu(scores, 0.2)
    looped = adjacent + torch.eye(len(adjacent))
    shares = torch.softmax(scores.masked_fill(looped == 0, -torch.inf), dim=1)
    return shares @ projected + layer.bias


@pytest.mark.parametrize("maths", [gcn, sage, gin, gat], ids=lambda maths: maths.__name__)
def test_losses_are_those_of_dense_matrices(maths):
    dataset = directed_dataset()
    workload = make_workload(maths.__name__, epochs=3)
    setting = Setting(dataset, make_platforms()[0], workload, build(workload).shapes)
    adjacent = dense_of(dataset.graph)

    def forward(layers, _):
        h = torch.from_numpy(dataset.features).double()
        for layer in layers:
            h = maths(layer, adjacent, h)
            h = torch.relu(h) if layer.activation else h
        return h

    bundle = reference()
    trace = train(bundle, setting, ModelClock(setting.platform, bundle.kernel))
    found = [epoch.loss for epoch in trace.epochs]
    assert found == pytest.approx(train_on(setting, forward), rel=1e-9, abs=0)


def hold_against_pyg(dataset, workload, weights=None):
    """A layer on the whole graph gives what PyG's own gives of the same edges."""
    layer = build(workload).stack[0]
    bound = BoundBlock(
        whole_graph_block(dataset),
        reference().kernel,
        Degrees.of(dataset, workload),
        torch.float64,
        torch.device("cpu"),
    )
    h = torch.from_numpy(dataset.features).double()
    ours = layer.update(bound, layer.aggregate(bound, h))
    theirs = GCNConv(layer.in_features, layer.out_features).double()
    theirs.lin.weight.data = layer.weight.T
    theirs.bias.data = layer.bias.data
    sources = torch.from_numpy(dataset.graph.indices).long()
    destinations = torch.repeat_interleave(torch.from_numpy(dataset.graph.degrees))
    torch.testing.assert_close(ours, theirs(h, torch.stack((sources, destinations)), weights))


def test_a_layer_is_pygs():
    """Which normalises a directed graph by in-degrees at both ends."""
    hold_against_pyg(directed_dataset(), make_workload("gcn", num_layers=1))


@cache
def every_row():
    registry = plugins.load()
    return [(each.name, mode) for each in registry.strategies for mode in each.bundles]


@pytest.mark.parametrize(("name", "mode"), every_row(), ids="-".join)
def test_every_strategy_trains_equal_to_the_reference(name, mode):
    registry = plugins.load()
    done = 0
    for platform in make_platforms():
        for model in ("gcn", "sage", "gat"):
            request = Request(
                strategies=(name,),
                dataset=directed_dataset(),
                workload=make_workload(model, 3),
                platform=platform,
                modes=(mode,),
            )
            try:
                *_, run = compare(request, registry).runs
            except IncompatibleParts:
                continue
            assert run.status == "done", run.reason
            assert run.other_maths or run.equivalence.holds, run.equivalence
            done += 1
    assert done
