"""MixGCN section 3.2.2: orders, Proposition 3.5, and the schedules of Figure 5 by the program."""

import dataclasses
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnbench import plugins
from gnnbench.datasets.topology import symmetrise
from gnnbench.errors import UsageError
from gnnbench.machines import load_platform
from gnnbench.machines.machine import Platform
from gnnbench.machines.tables import replace_fields
from gnnbench.models import build
from gnnbench.parts import Bundle, Setting
from gnnbench.records import AggregateWork, Graph, Workload
from gnnbench_plugins.mixgcn.ordering import (
    count_rounds,
    count_stages,
    cut_batches,
    keep_order,
    reorder,
)
from gnnbench_plugins.mixgcn.outlook import Outlook, describe_counted, foresee, share_out
from gnnbench_plugins.reference.kernel import TorchKernel

#: Six vertices, numbered from 0, that agree with what the text says of Figure 1a, whose drawing is
#: not in it: vertex 1 has the neighbours 2 and 6 (Figure 4c), vertices 1 and 2 read five of the six
#: (section 3.2.2), and in a better order the first two read four.
FIGURE_1A = [(0, 1), (0, 5), (1, 2), (1, 4), (2, 3), (4, 5)]


def make_graph(vertices: int, edges: list[tuple[int, int]]) -> Graph:
    ends = np.array(edges, dtype=np.int64).reshape(-1, 2)
    return symmetrise(ends[:, 0].copy(), ends[:, 1].copy(), vertices)[0]


@st.composite
def graphs(draw, most=24):
    vertices = draw(st.integers(1, most))
    ends = st.integers(0, vertices - 1)
    edges = draw(st.lists(st.tuples(ends, ends), max_size=40))
    return make_graph(vertices, [(u, v) for u, v in edges if u != v])


def test_the_text_s_figure_1a():
    graph = make_graph(6, FIGURE_1A)
    first = np.unique(np.concatenate([graph.indices[: graph.indptr[2]], [0, 1]]))
    assert len(first) == 5
    ordering = reorder(graph)
    assert ordering.bandwidth == 2
    assert count_stages(6, ordering.bandwidth) == 3
    # Of three batches of two, the first reads the first two: four vertices.
    assert [max(each.reads) for each in count_rounds(graph, ordering.order, 3)] == [1, 2, 2]
    numbered = count_rounds(graph, keep_order(graph).order, 3)
    assert [each.reads for each in numbered] == [(0, 1, 2), (0, 1), (0, 2)]


@given(graph=graphs())
@settings(max_examples=40, deadline=None)
def test_the_bandwidth_is_the_longest_edge_and_batches_read_what_their_vertices_read(graph):
    ordering = reorder(graph)
    n = graph.num_vertices
    assert sorted(ordering.order) == list(range(n))
    place = np.argsort(ordering.order)
    rows = np.repeat(np.arange(n), graph.degrees)
    lengths = place[rows] - place[graph.indices]
    assert ordering.bandwidth == max(lengths, default=0)
    assert ordering.granularity == (n - ordering.bandwidth) / (2 * n)
    for stages in {1, (n + 1) // 2, n}:
        bounds = cut_batches(n, stages)
        batch = np.searchsorted(bounds, place, side="right") - 1
        for k, piece in enumerate(count_rounds(graph, ordering.order, stages)):
            members = np.flatnonzero(batch == k)
            sources = [members, *(graph.indices[rows == v] for v in members)]
            read = np.unique(np.concatenate(sources))
            assert piece.reads == tuple(np.unique(batch[read]))
            assert piece.size[:3] == (len(read), len(members), graph.degrees[members].sum())


def test_components_one_after_the_other_widen_nothing():
    path = [(0, 1), (1, 2), (2, 3)]
    graph = make_graph(11, path + [(u + 5, v + 5) for u, v in path])
    assert reorder(graph).bandwidth == 1
    # 11 vertices of bandwidth 1: 2 n / (n - b) = 2.2.
    assert count_stages(11, 1) == 3


@pytest.mark.parametrize(
    ("vertices", "width", "stages"),
    [(6, 2, 3), (10, 8, 10), (1000, 800, 10), (1000, 801, 11), (100, 0, 2), (10, 9, None)],
)
def test_stages_are_the_fewest_of_proposition_3_5(vertices, width, stages):
    assert count_stages(vertices, width) == stages
    enough = [s for s in range(1, vertices + 1) if s * (vertices - width) >= 2 * vertices]
    assert (enough[0] if enough else None) == stages


def test_one_vertex_has_no_stages_and_a_complete_graph_neither():
    assert count_stages(1, reorder(make_graph(1, [])).bandwidth) is None
    complete = make_graph(5, [(u, v) for u in range(5) for v in range(u)])
    assert count_stages(5, reorder(complete).bandwidth) is None
    # Whatever s, the first batch reads the last.
    order = reorder(complete).order
    assert all(count_rounds(complete, order, s)[0].reads[-1] == s - 1 for s in (2, 5))


def test_what_cannot_be_cut_is_refused():
    for width in (-1, 6):
        with pytest.raises(ValueError, match="bandwidth"):
            count_stages(6, width)
    for stages in (0, 7):
        with pytest.raises(UsageError, match="6 vertices cannot be cut"):
            cut_batches(6, stages)


@dataclasses.dataclass
class EvenKernel(TorchKernel):
    """Every call takes as long as its operation says, whatever its size."""

    aggregate_s: float = 1.0
    update_s: float = 1.0

    def seconds(self, work, device):
        return self.aggregate_s if isinstance(work, AggregateWork) else self.update_s


@cache
def prepare() -> tuple[Bundle, Platform]:
    """MixGCN's parts, and a platform of an SPU and a GPU between which nothing takes any time."""
    platform = load_platform("xeon8462-8xh100-8xspu")
    links = tuple(
        dataclasses.replace(link, bandwidth_bytes_per_s=1e30, latency_s=0.0)
        for link in platform.links
    )
    devices = tuple(
        replace_fields(device, memory_bandwidth_bytes_per_s=1e30)
        for device in platform.accelerators
        if device.name in ("gpu0", "spu0")
    )
    registry = plugins.load()
    bundle = plugins.assemble(registry, registry.strategy("mixgcn").bundles["full-graph"], {})
    return bundle, dataclasses.replace(platform, accelerators=devices, links=links)


def run_schedule(graph: Graph, order: np.ndarray, stages: int, layers=2, **seconds) -> Outlook:
    """An epoch on an SPU and a GPU between which nothing takes any time."""
    bundle, platform = prepare()
    workload = Workload("gcn", (4,) * (layers + 1), 1, 1, (0,) * layers, 0)
    counted = describe_counted(workload.dims, graph.num_vertices)
    setting = Setting(counted, platform, workload, build(workload).shapes)
    bundle = dataclasses.replace(bundle, kernel=EvenKernel(**seconds))
    return foresee(bundle, setting, count_rounds(graph, order, stages))


def starts_of(outlook: Outlook, label: str, layer: int) -> list[float]:
    return [
        pytest.approx(each.start_s, abs=1e-9)
        for each in outlook.timeline
        if each.span.label == label and each.span.layer == layer
    ]


def test_figure_5_by_hand():
    """Two layers; a batch takes a second on either side and nothing on the way."""
    graph = make_graph(6, FIGURE_1A)
    naive = run_schedule(graph, keep_order(graph).order, 1, aggregate_s=3, update_s=3)
    # Aggregate 0 to 3, update 3 to 6, and again; the loss is nothing, and UPDATE runs backward
    # twice, with an aggregation between.
    assert starts_of(naive, "aggregate forward", 1) == [6]
    assert starts_of(naive, "update backward", 1) == [12]
    assert naive.epoch_s == pytest.approx(21)
    assert naive.idle_s == pytest.approx(3 + 6)
    pipelined = run_schedule(graph, keep_order(graph).order, 3)
    # Vertex 1 waits for vertex 6, which is updated from 3 to 4; the second batch, which reads the
    # first two alone, goes before.
    assert starts_of(pipelined, "aggregate forward", 1) == [4, 3, 5]
    reordered = run_schedule(graph, reorder(graph).order, 3)
    assert starts_of(reordered, "aggregate forward", 1) == [3, 4, 5]
    complete = make_graph(6, [(u, v) for u in range(6) for v in range(u)])
    waiting = run_schedule(complete, keep_order(complete).order, 3)
    assert starts_of(waiting, "aggregate forward", 1) == [4, 5, 6]
    assert waiting.epoch_s > reordered.epoch_s


def forward_gaps(outlook: Outlook) -> list[float]:
    steps = sorted(
        (each.start_s, each.end_s)
        for each in outlook.timeline
        if each.span.label == "aggregate forward"
    )
    return [after[0] - before[1] for before, after in pairwise(steps)]


@given(graph=graphs(), data=st.data())
@settings(max_examples=25, deadline=None)
def test_with_enough_stages_no_sparse_step_waits(graph, data):
    """For any s at or above the least, with updates no longer than a sparse step."""
    ordering = data.draw(st.sampled_from([keep_order, reorder]))(graph)
    least = count_stages(graph.num_vertices, ordering.bandwidth)
    if least is None:
        return
    stages = data.draw(st.integers(least, graph.num_vertices))
    rounds = count_rounds(graph, ordering.order, stages)
    assert max(rounds[0].reads) <= stages - 2
    update_s = data.draw(st.sampled_from([0.25, 1.0]))
    outlook = run_schedule(graph, ordering.order, stages, layers=3, update_s=update_s)
    assert max(forward_gaps(outlook)) < 1e-9


def test_updates_that_are_slower_than_aggregation_leave_sparse_devices_waiting():
    """The condition that the proposition is silent on: 'significant latency imbalances' (4.4.2)."""
    graph = make_graph(12, [(v, v + 1) for v in range(11)])
    ordering = reorder(graph)
    stages = count_stages(12, ordering.bandwidth)
    assert stages == 3
    assert max(forward_gaps(run_schedule(graph, ordering.order, stages))) < 1e-9
    slow = run_schedule(graph, ordering.order, stages, update_s=1.5)
    assert max(forward_gaps(slow)) > 0.1


@pytest.mark.parametrize("total", [2, 3, 16, 33])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_devices_are_shared_out_by_the_price(total, share):
    best, tried = 1 + round(share * (total - 2)), []

    def price(count):
        tried.append(count)
        return 7.0 + abs(count - best)

    assert share_out(total, price) == (best, 7.0)
    assert len(tried) == len(set(tried)) <= 4 + total / 3
    assert all(0 < count < total for count in tried)


def test_of_equal_prices_the_smaller_number_is_taken():
    assert share_out(8, lambda count: 1.0) == (1, 1.0)


@pytest.mark.parametrize(("accelerators", "alone"), [(1, True), (0, True), (2, False)])
def test_one_device_is_given_no_pipeline(registry, accelerators, alone):
    machine = load_platform("epyc7543x4-4xa100")
    machine = dataclasses.replace(machine, accelerators=machine.accelerators[:accelerators])
    # A path, whose rows are read by their neighbours alone: several stages are soon back.
    dataset = dataclasses.replace(
        describe_counted((8, 16, 4), 400), graph=make_graph(400, [(v, v + 1) for v in range(399)])
    )
    workload = Workload("gcn", (8, 16, 4), 1, 16, (5, 5), 0)
    setting = Setting(dataset, machine, workload, build(workload).shapes)
    parts = registry.strategy("mixgcn").bundles["full-graph"]
    settled = plugins.assemble(registry, parts, {}).settle(setting)
    (why, *_) = settled.chosen["sampler"]
    assert ("one device" in why) == alone
    if alone:
        assert settled.sampler.schedule == "naive"


@pytest.mark.parametrize(("vertices", "stages"), [(10, 3), (11, 4), (7, 7), (5, 1), (29, 8)])
def test_the_first_batch_is_never_the_larger_of_two_sizes(vertices, stages):
    sizes = np.diff(cut_batches(vertices, stages)).tolist()
    assert (len(sizes), sum(sizes)) == (stages, vertices)
    assert max(sizes) - min(sizes) <= 1
    assert sizes[0] == min(sizes)
