"""MixGCN's partition parallelism (sections 2.2, 3.1.1, 5.1).

m workers, worker i with the vertices V_i; R are the remote neighbours of all of them.
"""

import numpy as np
import pytest

from gnnbench.datasets.partitioning import deal_out
from tests.systems import training
from tests.systems.training import losses, registry, sent

ITEM = 8


def setting_for(devices, model="gcn", num_layers=3):
    return training.setting_for(model, devices, num_layers, epochs=4)


def run(name, setting):
    return training.run(setting, name)


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


@pytest.mark.parametrize("name", ["partition", "cagnet"])
def test_rows_of_peers_cross_at_every_layer_and_gradients_above_the_first(name):
    """Proposition 3.2: a partition reads |R| rows, and a CAGNET worker those of all others."""
    setting = setting_for(3)
    rows = remote_rows(setting, metis_owner(setting, 3), hops=1)
    if name == "cagnet":
        rows = 2 * setting.dataset.graph.num_vertices
    first, *hidden, _ = setting.workload.dims
    assert sent(run(name, setting)) == [rows * (first + 2 * sum(hidden)) * ITEM] * 4
