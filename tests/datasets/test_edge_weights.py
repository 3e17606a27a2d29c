"""Graphs whose edges have weights, and models that multiply by them."""

from __future__ import annotations

import dataclasses
from functools import cache

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch_geometric.data import Data

from gnnbench import datasets, plugins
from gnnbench.comparison import Request, Variant, compare, make_setting
from gnnbench.comparison.dataset_guard import DatasetGuard
from gnnbench.comparison.planned import plan_run
from gnnbench.comparison.rows import plan_row
from gnnbench.conformance.graphs import make_platforms, make_workload
from gnnbench.datasets.dgl_library import load_dgl
from gnnbench.datasets.edge_lists import read_weighted
from gnnbench.errors import DatasetError, IncompatibleParts
from gnnbench.footprint import ChunkSize, adjacency_bytes, crossing_topology_bytes
from gnnbench.lowering.memory import host_graph_bytes
from gnnbench.models import build
from gnnbench.parts import Setting
from gnnbench.preparation import Job, make_request
from gnnbench.price.model_clock import ModelClock
from gnnbench.records import BlockSize
from gnnbench.run import train
from tests.datasets.test_directed import (
    dense_of,
    directed_dataset,
    every_row,
    hold_against_pyg,
    reference,
)
from tests.models.dense_training import train_on

pytestmark = pytest.mark.usefixtures("one_thread")

#: A path with an edge that comes twice, one in both directions, and a loop.
EDGES = np.array([[0, 1, 2, 3, 0, 3], [1, 2, 1, 3, 1, 0]])
WEIGHTS = np.array([1.0, 2.0, 4.0, 9.0, 0.5, 0.0])
#: By destination its sources and their weights: with reverses, and without.
SYMMETRIC = [{1: 1.5, 3: 0.0}, {0: 1.5, 2: 4.0}, {1: 2.0}, {0: 0.0}]
DIRECTED = [{3: 0.0}, {0: 1.5, 2: 4.0}, {1: 2.0}, {}]
COUNT = len(DIRECTED)


def rows_of(graph):
    ends = graph.indptr[1:-1]
    pairs = zip(np.split(graph.indices, ends), np.split(graph.weights, ends), strict=True)
    return [dict(zip(ids.tolist(), each.tolist(), strict=True)) for ids, each in pairs]


# --------------------------------------------------------------------------- every way in


def of_arrays(_, directed):
    return datasets.from_arrays(
        EDGES, num_vertices=COUNT, edge_weights=WEIGHTS, directed=directed, weighted=True
    )


def of_matrix(_, directed):
    matrix = sp.coo_matrix((WEIGHTS, tuple(EDGES)), shape=(COUNT, COUNT))
    return datasets.from_arrays(matrix, directed=directed, weighted=True)


def of_pyg(_, directed):
    data = Data(edge_index=torch.from_numpy(EDGES), num_nodes=COUNT)
    data.edge_weight = torch.from_numpy(WEIGHTS)
    return datasets.from_pyg(data, directed=directed, weighted=True)


def of_pygs_attributes(_, directed):
    edges, values = torch.from_numpy(EDGES), torch.from_numpy(WEIGHTS)
    data = Data(edge_index=edges, edge_attr=values, num_nodes=COUNT)
    return datasets.from_pyg(data, directed=directed, weighted=True)


def of_dgl(_, directed):
    graph = load_dgl().graph(tuple(map(torch.from_numpy, EDGES)), num_nodes=COUNT)
    graph.edata["distance"] = torch.ones(len(WEIGHTS), 1)
    graph.edata["w"] = torch.from_numpy(WEIGHTS)[:, None]
    return datasets.from_dgl(graph, directed=directed, weighted=True)


def of_networkx(_, directed):
    graph = nx.MultiDiGraph()
    graph.add_nodes_from(range(COUNT))
    graph.add_weighted_edges_from(zip(*EDGES.tolist(), WEIGHTS.tolist(), strict=True))
    return datasets.from_networkx(graph, directed=directed, weighted=True)


def write_list(folder, words=str):
    file = folder / "edges.txt"
    lines = [f"{words(a)} {words(b)} {w}" for a, b, w in zip(*EDGES, WEIGHTS, strict=True)]
    file.write_text("# a heading\n" + "\n".join(lines))
    return file


def of_edge_list(folder, directed):
    extras = datasets.Extras(directed=directed, weighted=True)
    return datasets.import_graph(write_list(folder), extras).dataset


def of_names(folder, directed):
    extras = datasets.Extras(directed=directed, weighted=True, string_ids=True)
    return datasets.import_graph(write_list(folder, "v{}".format), extras).dataset


def of_matrix_market(folder, directed):
    file = folder / "edges.mtx"
    lines = [f"{a + 1} {b + 1} {w}" for a, b, w in zip(*EDGES, WEIGHTS, strict=True)]
    head = f"%%MatrixMarket matrix coordinate real general\n{COUNT} {COUNT} {len(lines)}\n"
    file.write_text(head + "\n".join(lines))
    extras = datasets.Extras(directed=directed, weighted=True)
    return datasets.import_graph(file, extras).dataset


def of_raw_npz(folder, directed):
    order = np.argsort(EDGES[1], kind="stable")
    counts = np.bincount(EDGES[1], minlength=COUNT)
    np.savez(
        folder / "raw.npz",
        indptr=np.concatenate(([0], np.cumsum(counts))),
        indices=EDGES[0][order],
        weights=WEIGHTS[order],
    )
    extras = datasets.Extras(directed=directed)
    return datasets.import_graph(folder / "raw.npz", extras).dataset


def of_own_npz(folder, directed):
    datasets.save_npz(of_arrays(folder, directed), folder / "own.npz")
    return datasets.load_npz(folder / "own.npz")


def of_folder_of_npz(folder, directed):
    datasets.save_npz(of_arrays(folder, directed), folder / "own.npz")
    return datasets.import_folder(folder / "own.npz", folder / "kept", scaling="none").dataset


def of_folder_of_a_list(folder, directed):
    extras = datasets.Extras(directed=directed, weighted=True)
    file = write_list(folder)
    return datasets.import_folder(file, folder / "kept", extras, scaling="none").dataset


def of_folder_read_again(folder, directed):
    of_folder_of_a_list(folder, directed)
    return datasets.load_folder(folder / "kept", folder / "verified")


WAYS = [
    of_arrays,
    of_matrix,
    of_pyg,
    of_pygs_attributes,
    of_dgl,
    of_networkx,
    of_edge_list,
    of_names,
    of_matrix_market,
    of_raw_npz,
    of_own_npz,
    of_folder_of_npz,
    of_folder_of_a_list,
    of_folder_read_again,
]


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_weights_are_the_same_by_every_way_in(way, directed, tmp_path):
    """Those of an edge that comes twice are added up, and a missing reverse has its edge's."""
    dataset = way(tmp_path, directed)
    assert rows_of(dataset.graph) == (DIRECTED if directed else SYMMETRIC)
    assert dataset.graph.weights.dtype == np.float32
    assert dataset.digest() == of_arrays(None, directed).digest()
    assert "edge weights were ignored" not in dataset.notes
    if way not in (of_own_npz, of_folder_of_npz, of_matrix):
        assert "duplicate edges added up: 1" in dataset.notes


def test_weights_make_another_data_set():
    plain = datasets.from_arrays(EDGES, num_vertices=COUNT, edge_weights=WEIGHTS)
    assert plain.graph.weights is None
    assert plain.notes[0] == "edge weights were ignored"
    assert plain.digest() != of_arrays(None, directed=False).digest()


@pytest.mark.parametrize(
    ("text", "line"),
    [("0 1 0.5\n1 2\n", "2: '1 2'"), ("0 1 0.5\n# n\n1 2 heavy\n", "3: '1 2 heavy'")],
)
@pytest.mark.parametrize("string_ids", [False, True])
def test_a_line_without_a_weight_is_said(text, line, string_ids, tmp_path):
    (tmp_path / "edges.txt").write_text(text)
    extras = datasets.Extras(weighted=True, string_ids=string_ids)
    with pytest.raises(DatasetError, match=f"line {line} is not an edge with a weight"):
        datasets.import_graph(tmp_path / "edges.txt", extras)


@pytest.mark.parametrize("odd", ["1_0 2 0.25", "% 1 2 3", "10,2,0.25", ""])
def test_weights_are_read_alike_by_pieces_and_by_lines(odd, tmp_path, monkeypatch):
    """NumPy's reader stumbles over the odd line, or not; pieces are of a few lines."""
    monkeypatch.setattr("gnnbench.datasets.texts._PIECE_BYTES", 64)
    lines = [f"{number} {number + 1} {number / 8}" for number in range(40)]
    file = tmp_path / "edges.txt"
    file.write_text("\n".join([*lines[:20], odd, *lines[20:]]))
    ends, weights = zip(*read_weighted(file), strict=True)
    assert len(ends) > 5
    expected = [[number, number + 1] for number in range(40)]
    more = [[10, 2]] if odd.startswith("1") else []
    assert np.concatenate(ends).tolist() == [*expected[:20], *more, *expected[20:]]
    given = [number / 8 for number in range(40)]
    assert np.concatenate(weights).tolist() == [*given[:20], *[0.25] * len(more), *given[20:]]


def test_weights_that_are_asked_for_must_be_there(tmp_path):
    np.save(tmp_path / "edges.npy", EDGES)
    (tmp_path / "edges.txt").write_text("0 1 2.5\n1 2\n")
    extras = datasets.Extras(weighted=True)
    with pytest.raises(DatasetError, match="its edges have no weights"):
        datasets.import_graph(tmp_path / "edges.npy", extras)
    with pytest.raises(DatasetError, match=r"edges.txt, line 2: '1 2' is not an edge with a weigh"):
        datasets.import_graph(tmp_path / "edges.txt", extras)
    with pytest.raises(DatasetError, match="its edges have no weights"):
        datasets.from_pyg(Data(edge_index=torch.from_numpy(EDGES)), weighted=True)


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (np.array([1, 1, 1, 1, 1, -0.5]), "contain -0.5; give finite ones that are not negative"),
        (np.array([1, 1, np.nan, 1, 1, 1]), "contain nan"),
        (np.array([1, 1, 1, 1, 1e39, 1]), "contain inf"),
        (np.zeros(6), "are all zero"),
        (np.ones(5), r"have shape \(5,\) and dtype float64; give one number for each of 6 edges"),
        (np.array(list("abcdef")), "have shape"),
    ],
)
def test_weights_that_are_none_are_refused(weights, words, tmp_path):
    with pytest.raises(DatasetError, match=words):
        datasets.from_arrays(EDGES, edge_weights=weights, weighted=True)


def test_weights_of_a_folder_are_checked(tmp_path):
    of_folder_of_a_list(tmp_path, directed=True)
    file = tmp_path / "kept" / "weights.npy"
    weights = np.load(file)
    for broken, words in (
        (weights[:-1], "weights"),
        (-weights, "weights contains -4"),
        (weights * np.float32(np.nan), "weights contains NaN"),
        (weights + 1, "its bytes are not those"),
    ):
        np.save(file, broken)
        with pytest.raises(DatasetError, match=words):
            datasets.load_folder(tmp_path / "kept", tmp_path / "verified")


def test_facts_say_that_there_are_weights():
    facts = datasets.describe(of_arrays(None, directed=True))
    assert facts["edge_convention"] == "directed edges, no self loops, with weights"


def test_models_without_weights_say_so():
    dataset = of_arrays(None, directed=False)
    for model, used in (("gcn", True), ("sage", False)):
        request = make_request(
            Job([("reference", ())], dataset=dataset, model=model), plugins.load()
        )
        assert request.workload.edge_weights is used
        note = "edge weights were not used: GraphSAGE takes none"
        assert (note in request.dataset.notes) is not used


# --------------------------------------------------------------------------- training


@cache
def weighted_dataset():
    """The directed graph of those tests, a tenth of whose edges weigh nothing."""
    plain = directed_dataset()
    random = np.random.default_rng(5)
    weights = random.exponential(size=plain.graph.num_edges).astype(np.float32)
    weights[random.random(len(weights)) < 0.1] = 0
    graph = dataclasses.replace(plain.graph, weights=weights)
    return dataclasses.replace(plain, name="weighted", graph=graph)


def weigh(workload):
    return dataclasses.replace(workload, edge_weights=True)


@pytest.mark.parametrize("projected", [False, True])
def test_losses_are_those_of_dense_matrices(projected):
    """With the product before and after the sum."""
    dataset = weighted_dataset()
    hidden = 5 if projected else 9
    workload = dataclasses.replace(weigh(make_workload(epochs=3)), dims=(7, hidden, 3))
    setting = Setting(dataset, make_platforms()[0], workload, build(workload).shapes)
    adjacent = dense_of(dataset.graph)
    adjacent[adjacent > 0] = torch.from_numpy(dataset.graph.weights).double()
    looped = adjacent + torch.eye(len(adjacent))
    norm = looped.sum(1).rsqrt()

    def forward(layers, _):
        h = torch.from_numpy(dataset.features).double()
        for layer in layers:
            h = (norm[:, None] * looped * norm) @ h @ layer.weight + layer.bias
            h = torch.relu(h) if layer.activation else h
        return h

    name = "native" if projected else "reference"
    registry = plugins.load()
    bundle = plugins.assemble(registry, registry.strategy(name).bundles["full-graph"], {})
    assert any(bundle.kernel.projects_first(i, setting, "full-graph") for i in (0, 1)) == projected
    trace = train(bundle, setting, ModelClock(setting.platform, bundle.kernel))
    found = [epoch.loss for epoch in trace.epochs]
    assert found == pytest.approx(train_on(setting, forward), rel=1e-9, abs=0)


def test_a_layer_is_pygs():
    dataset = weighted_dataset()
    weights = torch.from_numpy(dataset.graph.weights).double()
    hold_against_pyg(dataset, weigh(make_workload("gcn", num_layers=1)), weights)


@pytest.mark.parametrize(("name", "mode"), every_row(), ids="-".join)
def test_every_strategy_trains_equal_to_the_reference_and_is_planned_so(name, mode):
    registry = plugins.load()
    done = 0
    for platform in make_platforms():
        request = Request(
            strategies=(name,),
            dataset=weighted_dataset(),
            workload=weigh(make_workload("gcn", 3)),
            platform=platform,
            modes=(mode,),
        )
        try:
            *_, run = compare(request, registry).runs
        except IncompatibleParts:
            continue
        assert run.status == "done", run.reason
        assert run.other_maths or run.equivalence.holds, run.equivalence
        planned_row = plan_row(Variant(name), registry.strategy(name), mode, registry)
        planned = plan_run(request, planned_row, make_setting(request), registry)
        for metric, value in planned.metrics.items():
            assert run.metrics[metric].value == pytest.approx(value.value, rel=1e-12), metric
        done += 1
    assert done


def test_models_that_take_no_weights_train_as_if_there_were_none():
    registry = plugins.load()

    def losses(dataset, workload):
        platform = make_platforms()[0]
        asked = Request(("hongtu",), dataset, workload, platform, modes=("full-graph",))
        return compare(asked, registry).runs[-1].loss

    plain, weighted = directed_dataset(), weighted_dataset()
    for model in ("sage", "gat"):
        workload = make_workload(model)
        assert losses(weighted, weigh(workload)) == losses(plain, workload)
    assert losses(weighted, weigh(make_workload())) != losses(plain, make_workload())
    assert losses(weighted, make_workload()) == losses(plain, make_workload())


def test_weights_cross_with_the_edges():
    """Four bytes an edge more over the link."""
    registry = plugins.load()

    def find(workload):
        platform = make_platforms()[0]
        asked = Request(("pyg",), weighted_dataset(), workload, platform, modes=("mini-batch",))
        *_, run = compare(asked, registry).runs
        return run.metrics["host_to_device_bytes"].value, run.work.edges

    (plain, edges), (weighted, _) = (
        find(each) for each in (make_workload(), weigh(make_workload()))
    )
    assert weighted - plain == pytest.approx(4 * edges, abs=2)  # of two epochs the mean is rounded


@pytest.mark.parametrize("projected", [False, True])
def test_a_weight_is_read_with_every_edge(projected):
    """Of a kernel that scales rows instead, which reads no value an edge otherwise."""
    device = make_platforms()[0].accelerators[0]
    kernel = plugins.load().part("kernel", "native")()
    numbers = (0, 1) if projected else ()

    def read(workload):
        layer = build(workload, numbers).stack[0]
        work = layer.aggregate_work(BlockSize(50, 20, 300), 4)
        return sum(each.read_bytes for each in kernel.operations(work, device))

    assert read(weigh(make_workload())) - read(make_workload()) == 4 * 300


def test_the_host_has_the_weights():
    plain, weighted = directed_dataset(), weighted_dataset()
    workload = make_workload()
    sizes = [
        host_graph_bytes(Setting(each, make_platforms()[0], workload, ()))["graph topology"]
        for each in (plain, weighted)
    ]
    assert sizes[1] - sizes[0] == 4 * plain.graph.num_edges


def test_a_part_that_writes_into_weights_is_noticed(tmp_path):
    for dataset in (of_arrays(None, directed=True), of_folder_of_a_list(tmp_path, directed=True)):
        guard = DatasetGuard(dataset)
        assert not guard.restore()
        weights = dataset.graph.weights
        before = weights.copy()
        weights[0] += 1
        assert "edge weights" in guard.restore()
        np.testing.assert_array_equal(weights, before)


def test_a_device_keeps_a_factor_of_every_edge():
    shapes = [build(each).shapes for each in (make_workload(), weigh(make_workload()))]
    chunk = ChunkSize(50, 20, 300)
    kernel = reference().kernel
    plain, weighted = (adjacency_bytes(each, chunk, 8, kernel) for each in shapes)
    assert weighted - plain == 8 * 300
    for backward in (False, True):
        plain, weighted = (
            crossing_topology_bytes(each[0], chunk, 8, backward=backward) for each in shapes
        )
        assert weighted - plain == 8 * 300
