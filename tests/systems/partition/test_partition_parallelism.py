"""MixGCN's partition parallelism (sections 2.2, 3.1.1, 5.1), and its Figures 9 to 11.

m workers, worker i with the vertices V_i; R are the remote neighbours of all of them.
"""

from __future__ import annotations

import numpy as np
import pytest

from gnnbench.partitioning import deal_out
from gnnbench.price.folds import imbalance
from gnnbench_plugins.studies.mixgcn.figures import SYSTEMS, Job, cut_graph
from tests.systems import training
from tests.systems.training import losses, registry, sent

ITEM = 8

pytestmark = pytest.mark.usefixtures("one_thread")


def setting_for(devices, model="gcn", num_layers=3):
    return training.setting_for(model, devices, num_layers, epochs=4)


def run(name, setting):
    # MoP is without the pipeline of its section 3.2.2, which the figures leave out too.
    options = {"sampler": {"schedule": "naive"}} if name == "mixgcn" else {}
    return training.run(setting, name, **options)


@pytest.mark.parametrize(
    ("model", "num_layers", "devices"),
    [("gcn", 3, 3), ("sage", 2, 8), ("gin", 4, 2), ("gat", 2, 3), ("gat", 2, 1)],
)
@pytest.mark.parametrize("name", ["partition", "distdgl-full-graph", "cagnet"])
def test_it_equals_full_graph_training(name, model, num_layers, devices):
    setting = setting_for(devices, model, num_layers)
    assert losses(run(name, setting)) == pytest.approx(
        losses(run("reference", setting)), rel=1e-9, abs=0
    )


def test_distdgl_sends_features_of_l_hops_before_an_iteration_and_computes_the_rest():
    setting = setting_for(3)
    remote = remote_rows(setting, metis_owner(setting, 3), hops=3)
    redundant, plain = (run(name, setting) for name in ("distdgl-full-graph", "partition"))
    for epoch in redundant.epochs:
        crossing = [span for span in epoch.spans if span.label == "device to device"]
        assert {span.layer for span in crossing} == {0}
    assert sent(redundant) == [remote * setting.workload.dims[0] * ITEM] * 4
    # Edges that others compute too are counted, and priced.
    assert redundant.epochs[0].edges > 1.2 * plain.epochs[0].edges
    for trace in (redundant, plain):
        epoch = trace.epochs[0]
        priced = [span.work.edges for span in epoch.spans if span.label == "aggregate forward"]
        assert sum(priced) == epoch.edges
    # Rows of the last layer are its own alone; the layers below compute one and two hops more.
    owner, count = metis_owner(setting, 3), setting.dataset.graph.num_vertices
    rows = count * 3 + sum(remote_rows(setting, owner, hops=hops) for hops in (1, 2))
    (note,) = (note for note in redundant.notes if "times the rows of the graph" in note)
    assert f"compute {rows / (3 * count):.2f} times" in note


@pytest.mark.parametrize("parts", [1, 3, 8, 60])
def test_a_random_partition_has_as_many_vertices_in_every_part(parts):
    sizes = np.bincount(deal_out(60, parts, seed=4), minlength=parts)
    assert sizes.sum() == 60
    assert sizes.max() - sizes.min() <= 1
    assert (deal_out(60, parts, seed=4) == deal_out(60, parts, seed=4)).all()


def metis_owner(setting, parts):
    sampler = registry().part("sampler", "multi-hop")()
    return sampler.chunks(setting, parts).owner


def within(graph, members, hops):
    """The vertices within some hops of others, one neighbour after the other."""
    found = set(members)
    for _ in range(hops):
        for vertex in tuple(found):
            found.update(graph.indices[graph.indptr[vertex] : graph.indptr[vertex + 1]].tolist())
    return found


def remote_rows(setting, owner, hops):
    graph = setting.dataset.graph
    parts = [np.flatnonzero(owner == part).tolist() for part in range(owner.max() + 1)]
    return sum(len(within(graph, members, hops)) - len(members) for members in parts)


def test_a_cut_counts_what_its_parts_reach_and_read():
    setting = setting_for(4)
    graph, owner = setting.dataset.graph, deal_out(60, 4, seed=1)
    cut = cut_graph(graph, owner, 4, 3)
    for part in range(4):
        members = np.flatnonzero(owner == part).tolist()
        for hops in range(4):
            reached = within(graph, members, hops)
            assert cut.rows[hops, part] == len(reached)
            assert cut.edges[hops, part] == graph.degrees[list(reached)].sum()
        others = [np.flatnonzero(owner == other) for other in range(4) if other != part]
        asked = [within(graph, each.tolist(), 1) & set(members) for each in others]
        assert cut.read_by_peers[part] == sum(map(len, asked))


@pytest.mark.parametrize("devices", [1, 3, 4])
@pytest.mark.parametrize("name", SYSTEMS)
def test_the_figures_count_what_the_engine_counts(name, devices):
    setting = setting_for(devices)
    workload = setting.workload
    job = Job(setting.dataset.graph, workload)
    usage, trace = SYSTEMS[name](job, devices), run(name, setting)
    peaks = [trace.peak_bytes[device.name] for device in setting.platform.accelerators]
    assert usage.worker_bytes == max(peaks)
    assert 0 < usage.feature_bytes < usage.worker_bytes
    crossed = [
        epoch.bytes["device_to_device"] + epoch.bytes["all_to_all"] for epoch in trace.epochs
    ]
    assert usage.volume_bytes == np.mean(crossed[-2:])
    assert usage.imbalance == pytest.approx(imbalance(trace.epochs[-1].work_by_device))
