"""Edges scaled by how likely they were drawn: GraphSAINT's normalisation of aggregators."""

import dataclasses
from collections import Counter

import numpy as np
import pytest
import torch

from gnnbench import plugins
from gnnbench.check.graphs import make_dataset, make_platforms, make_workload
from gnnbench.comparison import Request, Variant, compare
from gnnbench.errors import PluginError
from gnnbench.machines import load_platform
from gnnbench.models import BoundBlock, Degrees, EdgeValues, build, list_scales
from gnnbench.parts import UNIFORM, Setting
from gnnbench.plugins import assemble
from gnnbench.price.model_clock import ModelClock
from gnnbench.records import Unit
from gnnbench.run import train
from gnnbench.run.audit import find_unit_fault
from gnnbench_plugins.reference.sampler import NeighbourSampler
from gnnbench_plugins.reference.subgraph import FIRST_PRESAMPLED, LayerwiseSampler, SaintSampler

pytestmark = pytest.mark.usefixtures("one_thread")

CPU = torch.device("cpu")
PRESAMPLE = 6
SAMPLERS = [
    SaintSampler(presampled=PRESAMPLE, budget=20),
    SaintSampler(presampled=PRESAMPLE, budget=20, method="edge"),
    SaintSampler(presampled=PRESAMPLE, budget=8, method="walk"),
    LayerwiseSampler(presampled=PRESAMPLE, budgets="12,20"),
]


def setting_of(model="gcn", **workload):
    dataset = make_dataset()
    workload = dataclasses.replace(make_workload(model), **workload)
    return Setting(dataset, make_platforms()[0], workload, build(workload).shapes)


def begun(sampler, **workload):
    sampler = dataclasses.replace(sampler)
    sampler.begin(setting_of(batch_size=8, **workload))
    return sampler


def edges_of(block):
    """(destination, source) of each edge, by their names in the graph."""
    rows = np.repeat(block.dst_ids, np.diff(block.indptr))
    return list(zip(rows.tolist(), block.src_ids[block.indices].tolist(), strict=True))


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_scales_are_counts_of_epochs_drawn_before(sampler):
    sampler = begun(sampler)
    graph = make_dataset().graph
    rows = np.repeat(np.arange(graph.num_vertices), graph.degrees).tolist()
    for layer in range(2):
        vertices, edges = Counter(), Counter()
        for epoch in range(FIRST_PRESAMPLED, FIRST_PRESAMPLED + PRESAMPLE):
            for seeds in sampler.rounds(epoch):
                block = sampler.sample(seeds, epoch, 1)[layer]
                vertices.update(block.dst_ids.tolist())
                edges.update(edges_of(block))
        assert len(edges) > 50
        expected = [
            max(vertices[v], 1) / max(edges[v, u], 1)
            for v, u in zip(rows, graph.indices.tolist(), strict=True)
        ]
        assert sampler.edge_scales(layer) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_scaled_sums_are_on_average_those_of_the_graph(sampler):
    """Over draws that were not counted. Without scales they are less."""
    sampler = begun(dataclasses.replace(sampler, presampled=400))
    graph = make_dataset().graph
    value = np.random.default_rng(3).uniform(1, 2, graph.num_vertices)
    rows = np.repeat(np.arange(graph.num_vertices), graph.degrees)
    whole = np.bincount(rows, value[graph.indices], minlength=graph.num_vertices)
    for layer, scales in enumerate(list_scales(sampler, setting_of())):
        sums, plain, times = (np.zeros(graph.num_vertices) for _ in range(3))
        for epoch in range(400):
            for seeds in sampler.rounds(epoch):
                block = sampler.sample(seeds, epoch, 1)[layer]
                at = np.repeat(block.dst_ids, np.diff(block.indptr))
                values = value[block.src_ids[block.indices]]
                np.add.at(sums, at, scales.of(block) * values)
                np.add.at(plain, at, values)
                times[block.dst_ids] += 1
        often = (times > 300) & (graph.degrees > 0)
        assert often.sum() > 10
        ratios = sums[often] / (times * whole)[often]
        assert np.median(ratios) == pytest.approx(1, abs=0.02)
        assert ratios == pytest.approx(np.ones(often.sum()), abs=0.25)
        assert (plain[often] / (times * whole)[often]).mean() < 0.9


@pytest.mark.parametrize(
    ("model", "weighted"),
    [("gcn", False), ("gcn", True), ("sage", False), ("commnet", False), ("gin", False)],
)
@pytest.mark.parametrize("kernel", ["torch", "native", "pyg"])
def test_layers_are_those_of_dense_matrices(model, weighted, kernel):
    """Forward, and the backward pass without its forward, which adds where it is told to."""
    setting = setting_of(model)
    graph = setting.dataset.graph
    sampler = begun(SAMPLERS[0], model=model)
    block = sampler.sample(sampler.rounds(0)[0], 0, 1)[0]
    scales, counts = list_scales(sampler, setting)[0], graph.degrees
    weights = np.random.default_rng(5).uniform(0.5, 2, graph.num_edges).astype(np.float32)
    graph = dataclasses.replace(graph, weights=weights, directed=True) if weighted else graph
    bound = BoundBlock(
        block,
        plugins.load().part("kernel", kernel)(),
        Degrees(counts, graph if weighted else None),
        torch.float64,
        CPU,
        scales=scales,
    )
    layer = build(setting.workload).stack[0].double()
    h = torch.from_numpy(setting.dataset.features[block.src_ids]).double().requires_grad_()
    here = {vertex: place for place, vertex in enumerate(block.src_ids.tolist())}
    adjacent = torch.zeros(block.num_dst, block.num_src, dtype=torch.float64)
    factors = scales.of(block)
    if weighted:
        factors = factors * EdgeValues(graph, weights).of(block)
        rows = np.repeat(np.arange(graph.num_vertices), counts)
        counts = np.bincount(rows, weights, minlength=graph.num_vertices)
    for (v, u), factor in zip(edges_of(block), factors.tolist(), strict=True):
        adjacent[here[v], here[u]] = factor
    own = torch.eye(block.num_dst, block.num_src, dtype=torch.float64)
    degrees = torch.from_numpy(counts[block.src_ids]).double()
    of_rows = degrees[: block.num_dst, None]
    if model == "gcn":
        norm = (degrees + 1).rsqrt()
        expected = (norm[: block.num_dst, None] * (adjacent + own) * norm) @ h
    elif model == "gin":
        expected = (adjacent + own) @ h
    else:
        expected = torch.cat((own @ h, (adjacent / of_rows.clamp(min=1)) @ h), dim=1)
    found = layer.aggregate(bound, h)
    torch.testing.assert_close(found, expected)
    gradient = torch.linspace(-1, 1, expected.numel(), dtype=torch.float64).view_as(expected)
    (by_hand,) = torch.autograd.grad(expected, h, gradient)
    (by_autograd,) = torch.autograd.grad(found, h, gradient)
    torch.testing.assert_close(by_autograd, by_hand)
    torch.testing.assert_close(layer.aggregate_backward(bound, gradient), by_hand)
    into = torch.ones_like(by_hand)
    torch.testing.assert_close(layer.aggregate_backward(bound, gradient, into), by_hand + 1)


@pytest.mark.parametrize(
    ("strategy", "model"),
    [
        ("reference", "gin"),
        ("hyscale", "gcn"),
        ("p3", "sage"),
        ("hpgnn", "gcn"),
        ("salient", "sage"),
    ],
)
def test_rows_are_equal_to_the_reference(strategy, model):
    name = "hpgnn-saint" if strategy == "hpgnn" else "saint"
    setting = setting_of(model, batch_size=8)
    platform = load_platform("epyc7763x2-4xu250") if strategy == "hpgnn" else setting.platform
    request = Request(
        strategies=(Variant(strategy, (("sampler", name),)),),
        dataset=setting.dataset,
        workload=setting.workload,
        platform=platform,
        options={"sampler": {"presampled": "3"}},
        modes=("mini-batch",),
    )
    (run,) = compare(request, plugins.load()).runs
    assert run.equivalence is not None, run
    assert run.equivalence.holds, run.equivalence
    assert "edges normalised over 3 epochs" in run.work.sampling


def losses_of(sampler, model="gcn"):
    registry = plugins.load()
    parts = registry.strategy("reference").bundles["mini-batch"]
    bundle = dataclasses.replace(assemble(registry, parts, {}), sampler=sampler)
    setting = setting_of(model, batch_size=8)
    trace = train(bundle, setting, ModelClock(setting.platform, bundle.kernel))
    return [epoch.loss for epoch in trace.epochs]


def test_scales_change_what_is_trained():
    plain = losses_of(SaintSampler(budget=20))
    assert losses_of(SaintSampler(budget=20, presampled=3)) != pytest.approx(plain, rel=1e-3)


def test_a_scale_crosses_with_each_edge(registry):
    parts = registry.strategy("data-parallel").bundles["mini-batch"]
    setting = setting_of(batch_size=8)
    plain, scaled = (
        train(
            dataclasses.replace(
                assemble(registry, parts, {}), sampler=SaintSampler(budget=20, presampled=count)
            ),
            setting,
            ModelClock(setting.platform, assemble(registry, parts, {}).kernel),
        ).epochs[0]
        for count in (0, 2)
    )
    assert scaled.edges == plain.edges > 100
    more = scaled.bytes["host_to_device"] - plain.bytes["host_to_device"]
    assert more == 4 * plain.edges


@dataclasses.dataclass
class Scaling(NeighbourSampler):
    """What a stranger may write: all edges twice as heavy."""

    name = "scaling"
    values: str = "twos"
    scales: bool = True

    @property
    def scales_edges(self):
        return self.scales

    def edge_scales(self, layer):
        edges = self._setting.dataset.graph.num_edges
        return {
            "twos": np.full(edges, 2.0),
            "short": np.full(edges - 1, 2.0),
            "endless": np.full(edges, np.inf),
            "none": None,
        }[self.values]


@pytest.mark.parametrize(
    ("values", "words"), [("short", "it has 365, 0 of"), ("endless", "366 of them not")]
)
def test_scales_that_are_not_a_number_an_edge_are_refused(values, words):
    with pytest.raises(PluginError, match=f"edge_scales.0. of sampler 'scaling'.*{words}"):
        losses_of(Scaling(values=values))


@pytest.mark.parametrize(("values", "scales"), [("none", True), ("twos", False)])
def test_a_sampler_that_gives_other_scales_than_it_says_is_refused(values, scales):
    words = f"says that scales_edges is {scales}; edge_scales.0. has {'no' if scales else 'so'}"
    with pytest.raises(PluginError, match=words):
        losses_of(Scaling(values=values, scales=scales))


def test_a_sampler_of_the_uniform_law_scales_nothing():
    sampler, setting = begun(Scaling()), setting_of(batch_size=8)
    seeds = sampler.rounds(0)[0]
    unit = Unit(0, sampler.sample(seeds, 0, 1))
    fault = find_unit_fault(unit, seeds, sampler, setting, edges=True)
    assert fault == f"sampler 'scaling' says that it draws {UNIFORM}, and scales edges"


def test_a_block_has_the_values_of_its_edges():
    dataset = make_dataset()
    values = np.arange(dataset.graph.num_edges, dtype=np.float32)
    block = begun(NeighbourSampler()).sample(dataset.train_ids[:5], 0, 1)[-1]
    graph = dataset.graph
    expected = [
        graph.indptr[v] + graph.indices[graph.indptr[v] : graph.indptr[v + 1]].tolist().index(u)
        for v, u in edges_of(block)
    ]
    assert EdgeValues(graph, values).of(block).tolist() == expected
