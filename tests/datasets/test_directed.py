"""Graphs whose edges have a direction: the same by every way in, and trained as such."""

import dataclasses
import json
from functools import cache

import networkx as nx
import numpy as np
import pytest
import torch
from torch_geometric.nn import GCNConv

from gnnbench import datasets, plugins
from gnnbench.check.graphs import make_dataset, make_platforms, make_workload
from gnnbench.datasets.partitioning.metis import partition_metis
from gnnbench.errors import DatasetError
from gnnbench.models import BoundBlock, Degrees, build
from gnnbench.parts import Setting
from gnnbench.price.model_clock import ModelClock
from gnnbench.records import Graph
from gnnbench.run import train
from gnnbench.run.evaluate import whole_graph_block
from tests.datasets import test_ways_in as ways
from tests.models.dense_training import FORMULAS, dense_of, train_dense
from tests.systems.training import losses

pytestmark = pytest.mark.usefixtures("one_thread")

#: A path with a branch, an edge in both directions, one that comes twice, and a loop.
EDGES = np.array([[0, 1, 2, 3, 4, 0, 3], [1, 2, 1, 1, 4, 1, 0]])


def test_names_of_vertices_keep_directions(tmp_path):
    file = tmp_path / "names.txt"
    file.write_text("b a\nc b\n")
    extras = datasets.Extras(directed=True, string_ids=True)
    graph = datasets.import_graph(file, extras).dataset.graph
    assert (graph.indptr.tolist(), graph.indices.tolist()) == ([0, 1, 2, 2], [1, 2])


def test_what_is_directed_and_does_not_say_so_is_refused(tmp_path):
    file = tmp_path / "graph.npz"
    np.savez(file, indptr=[0, 1, 1], indices=[1])
    with pytest.raises(DatasetError, match=r"is directed: .*or keeps it, with --directed"):
        datasets.load_npz(file)
    np.savez(file, indptr=[0, 1, 1], indices=[1], directed=[True, False])
    with pytest.raises(DatasetError, match=r"directed has shape \(2,\) and dtype bool"):
        datasets.load_npz(file)
    np.savez(file, indptr=[0, 2, 2], indices=[1, 1], directed=True)
    with pytest.raises(DatasetError, match="has duplicate edges in row 0"):
        datasets.load_npz(file)


def test_a_folder_that_lies_about_directions_is_refused(tmp_path):
    ways.of_folder_of_pairs(tmp_path, directed=True)
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
    facts = datasets.describe(datasets.from_arrays(EDGES, num_vertices=5, directed=True))
    assert "undirected_edges" not in facts
    assert facts["num_edges"] == 5
    assert facts["edge_convention"] == "directed edges, no self loops"
    assert facts["isolated_vertices"] == 1  # the fourth has edges to others, and none from them
    assert datasets.from_arrays(
        EDGES, num_vertices=5, directed=True
    ).graph.out_degrees.tolist() == [1, 1, 1, 2, 0]


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


def hold_against_dense(setting, bundle, maths, adjacent):
    """The losses of training are those of dense matrices."""
    trace = train(bundle, setting, ModelClock(setting.platform, bundle.kernel))
    expected, _ = train_dense(setting, maths, adjacent)
    assert losses(trace) == pytest.approx(expected, rel=1e-9, abs=0)


@pytest.mark.parametrize("model", ["gcn", "sage", "gin", "gat"])
def test_losses_are_those_of_dense_matrices(model):
    dataset = directed_dataset()
    workload = make_workload(model, epochs=3)
    setting = Setting(dataset, make_platforms()[0], workload, build(workload).shapes)
    hold_against_dense(setting, reference(), FORMULAS[model], dense_of(dataset.graph))


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
