"""Graphs whose edges have weights, and models that multiply by them."""

from __future__ import annotations

import dataclasses
from functools import cache

import numpy as np
import pytest
import torch
from torch_geometric.nn import GCNConv

from gnnbench import plugins
from gnnbench.comparison import Request, compare
from gnnbench.conformance.graphs import make_platforms, make_workload
from gnnbench.errors import IncompatibleParts
from gnnbench.models import BoundBlock, Degrees, build
from gnnbench.parts import Setting
from gnnbench.price.model_clock import ModelClock
from gnnbench.run import train
from gnnbench.run.evaluate import whole_graph_block
from tests.paper.dense_training import train_on
from tests.unit.test_directed import dense_of, directed_dataset, every_row

pytestmark = pytest.mark.usefixtures("one_thread")


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


def reference():
    registry = plugins.load()
    return plugins.assemble(registry, registry.strategy("reference").bundles["full-graph"], {})


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
    graph = dataset.graph
    workload = weigh(make_workload("gcn", num_layers=1))
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
    sources = torch.from_numpy(graph.indices).long()
    destinations = torch.repeat_interleave(torch.from_numpy(graph.degrees))
    weights = torch.from_numpy(graph.weights).double()
    torch.testing.assert_close(ours, theirs(h, torch.stack((sources, destinations)), weights))


@pytest.mark.parametrize(("name", "mode"), every_row(), ids="-".join)
def test_every_strategy_trains_equal_to_the_reference(name, mode):
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


def test_weights_cross_with_the_edges_and_are_read_with_them():
    """Mini-batches: four bytes an edge more over the link, and a value an edge more to read."""
    registry = plugins.load()

    def found(workload):
        platform = make_platforms()[0]
        asked = Request(("pyg",), weighted_dataset(), workload, platform, modes=("mini-batch",))
        *_, run = compare(asked, registry).runs
        return run

    plain, weighted = (found(each) for each in (make_workload(), weigh(make_workload())))
    more = (
        weighted.metrics["host_to_device_bytes"].value - plain.metrics["host_to_device_bytes"].value
    )
    assert more == pytest.approx(4 * plain.work.edges, abs=2)  # of two epochs the mean is rounded
    assert weighted.stages["aggregate"].value > plain.stages["aggregate"].value
