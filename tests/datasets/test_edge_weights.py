"""Graphs whose edges have weights, and models that multiply by them."""

import dataclasses
from functools import cache

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from gnnbench import datasets, plugins
from gnnbench.check.graphs import make_platforms, make_workload
from gnnbench.comparison import Request, Variant, compare, make_request, make_setting
from gnnbench.comparison.dataset_guard import DatasetGuard
from gnnbench.comparison.planned import plan_run
from gnnbench.comparison.rows import plan_row
from gnnbench.errors import DatasetError, IncompatiblePartsError
from gnnbench.jobs.job import Job
from gnnbench.lowering.footprint import ChunkSize, adjacency_bytes, crossing_topology_bytes
from gnnbench.lowering.memory import host_graph_bytes
from gnnbench.models import build
from gnnbench.parts import Setting
from gnnbench.records import BlockSize
from tests.datasets.test_directed import (
    directed_dataset,
    hold_against_dense,
    hold_against_pyg,
    reference,
)
from tests.datasets.test_ways_in import EDGES, of_arrays, of_folder_of_a_list
from tests.models.dense_training import FORMULAS, dense_of

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize(
    ("text", "line"),
    [("0 1 0.5\n1 2\n", "2: '1 2'"), ("0 1 0.5\n# n\n1 2 heavy\n", "3: '1 2 heavy'")],
)
@pytest.mark.parametrize("string_ids", [False, True])
def test_a_line_without_a_weight_is_said(text, line, string_ids, tmp_path):
    (tmp_path / "edges.txt").write_text(text)
    extras = datasets.Extras(weighted=True, string_ids=string_ids)
    with pytest.raises(DatasetError, match=f"edges.txt, line {line} is not an edge of .* with a w"):
        datasets.import_graph(tmp_path / "edges.txt", extras)


def test_the_column_of_weights_is_found_by_its_name(tmp_path):
    file = tmp_path / "edges.csv"
    file.write_text("source,time,target,weight\n0,9,1,0.5\n1,8,2,2.5\n")
    graph = datasets.import_graph(file, datasets.Extras(weighted=True)).dataset.graph
    assert set(graph.weights.tolist()) == {0.5, 2.5}


def test_weights_that_are_asked_for_must_be_there(tmp_path):
    np.save(tmp_path / "edges.npy", EDGES)
    extras = datasets.Extras(weighted=True)
    with pytest.raises(DatasetError, match="its edges have no weights"):
        datasets.import_graph(tmp_path / "edges.npy", extras)
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
    of_folder_of_a_list(tmp_path, directed=True, weighted=True)
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
    facts = datasets.describe(of_arrays(None, weighted=True, directed=True))
    assert facts["edge_convention"] == "directed edges, no self loops, with weights"


def test_models_without_weights_say_so():
    dataset = of_arrays(None, weighted=True, directed=False)
    for model, used in (("gcn", True), ("sage", False)):
        request = make_request(Job("reference", dataset, model=model), plugins.load())
        assert request.workload.edge_weights is used
        note = "edge weights were not used: GraphSAGE takes none"
        assert (note in request.dataset.notes) is not used


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
def test_losses_are_those_of_dense_matrices(registry, projected):
    """With the product before and after the sum."""
    dataset = weighted_dataset()
    hidden = 5 if projected else 9
    workload = dataclasses.replace(weigh(make_workload(epochs=3)), dims=(7, hidden, 3))
    setting = Setting(dataset, make_platforms()[0], workload, build(workload).shapes)
    adjacent = dense_of(dataset.graph)
    adjacent[adjacent > 0] = torch.from_numpy(dataset.graph.weights).double()
    name = "native" if projected else "reference"
    bundle = plugins.assemble(registry, registry.strategy(name).bundles["full-graph"], {})
    assert any(bundle.kernel.projects_first(i, setting, "full-graph") for i in (0, 1)) == projected
    hold_against_dense(setting, bundle, FORMULAS["gcn"], adjacent)


def test_a_layer_is_pygs():
    dataset = weighted_dataset()
    weights = torch.from_numpy(dataset.graph.weights).double()
    hold_against_pyg(dataset, weigh(make_workload("gcn", num_layers=1)), weights)


@cache
def every_row():
    registry = plugins.load()
    return [(each.name, mode) for each in registry.strategies for mode in each.bundles]


@pytest.mark.parametrize(("name", "mode"), every_row(), ids="-".join)
def test_every_strategy_trains_equal_to_the_reference_and_is_planned_so(registry, name, mode):
    """GCN with weights on every kind of accelerators that a strategy trains on, or on nodes where
    that is none; GraphSAGE on the first machine, and attention on the last. All of a directed
    graph."""

    def train_on_machine(dataset, workload, platform):
        request = Request((name,), dataset, workload, platform, modes=(mode,))
        try:
            *_, run = compare(request, registry).runs
        except IncompatiblePartsError:
            return False
        assert run.status == "done", run.reason
        assert run.other_maths or run.equivalence.holds, run.equivalence
        if workload.edge_weights:
            row = plan_row(Variant(name), registry.strategy(name), mode, registry)
            planned = plan_run(request, row, make_setting(request), registry)
            for metric, value in planned.metrics.items():
                assert run.metrics[metric].value == pytest.approx(value.value, rel=1e-12), metric
        return True

    gpus, fpgas, nodes, sparse = make_platforms()
    weighted = weighted_dataset(), weigh(make_workload("gcn", 3))
    machines = [each for each in (gpus, fpgas, sparse) if train_on_machine(*weighted, each)]
    if not machines:
        assert train_on_machine(*weighted, nodes)
        machines = [nodes]
    for model, platform in (("sage", machines[0]), ("gat", machines[-1])):
        train_on_machine(directed_dataset(), make_workload(model, 3), platform)


def test_models_that_take_no_weights_train_as_if_there_were_none(registry):

    def losses(dataset, workload):
        platform = make_platforms()[0]
        asked = Request(
            ("hongtu",), dataset, workload, platform, modes=("full-graph",), check=False
        )
        return compare(asked, registry).runs[-1].loss

    plain, weighted = directed_dataset(), weighted_dataset()
    for model in ("sage", "gat"):
        workload = make_workload(model, epochs=1)
        assert losses(weighted, weigh(workload)) == losses(plain, workload)
    workload = make_workload(epochs=1)
    unweighted = losses(plain, workload)
    assert losses(weighted, weigh(workload)) != unweighted
    assert losses(weighted, workload) == unweighted


def test_weights_cross_with_the_edges(registry):
    """Four bytes an edge more over the link."""

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
    kept = {"directed": True, "weighted": True}
    for dataset in (of_arrays(None, **kept), of_folder_of_a_list(tmp_path, **kept)):
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
