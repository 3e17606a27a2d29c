"""MixGCN's partition parallelism (sections 2.2, 3.1.1, 5.1), and its Figures 9 to 11.

m workers, worker i with the vertices V_i; R are the remote neighbours of all of them.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from gnnbench.datasets import load
from gnnbench.partitioning import deal_out
from gnnbench.platforms import load_platform
from gnnbench.price.folds import imbalance
from gnnbench.records import Workload
from gnnbench_plugins.studies.mixgcn import figures
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


# --------------------------------------------------------------------------- the maths


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


# --------------------------------------------------------------------------- what crosses


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


# --------------------------------------------------------------------------- counts


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
    """Memory, volume and balance, to the byte, in epochs in which everything is under way."""
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


# --------------------------------------------------------------------------- the figures


def test_mop_s_memory_volume_and_balance_scale_and_those_of_others_do_not():
    """Figures 9 to 11 on a stand-in for Orkut."""
    workload = Workload("gcn", (128, 128, 128, 32), 1, 1, (0, 0, 0), 0)
    job, workers = Job(load("orkut:0.001").graph, workload), (1, 2, 4, 8, 16, 32)
    used = {name: [use(job, m) for m in workers] for name, use in SYSTEMS.items()}
    mixed = used.pop("mixgcn")
    # "MixGCN exhibits linear memory scaling"; baselines "only minimal memory savings".
    held = [each.feature_bytes * m for each, m in zip(mixed, workers, strict=True)]
    assert held == pytest.approx([held[0]] * 6, rel=0.01)
    # Its volume is constant up to (m - 1) / m: rows of both shardings on a worker do not cross.
    whole = [
        each.volume_bytes * m / (m - 1) for each, m in zip(mixed[1:], workers[1:], strict=True)
    ]
    assert whole == pytest.approx([whole[0]] * 5, rel=1e-3)
    assert mixed[-1].imbalance == pytest.approx(1.0, abs=0.005)
    volumes = {name: [each.volume_bytes for each in found[1:]] for name, found in used.items()}
    for name, found in used.items():
        assert found[-1].feature_bytes > 1.5 * found[3].feature_bytes / 4, name
        assert found[-1].feature_bytes > 2 * mixed[-1].feature_bytes, name
        assert volumes[name] == sorted(volumes[name]), name
        assert volumes[name][-1] > 1.5 * volumes[name][0], name
    assert volumes["cagnet"][-1] == pytest.approx(31 * volumes["cagnet"][0])
    assert volumes["cagnet"][-1] > volumes["partition"][-1]
    assert volumes["pipegcn"] == volumes["partition"]
    ratio = {name: found[-1].imbalance for name, found in used.items()}
    assert ratio["cagnet"] == ratio["sancus"] < ratio["partition"] == ratio["pipegcn"]
    assert ratio["partition"] > 1.1


def test_the_tables_name_what_they_are_measured_against_and_what_is_not_here(monkeypatch):
    monkeypatch.setattr(figures, "DATASETS", ("orkut:0.0003", "not-here"))
    monkeypatch.setattr(figures, "load_jobs", cache(figures.load_jobs.__wrapped__))
    monkeypatch.setattr(figures, "usage_of", cache(figures.usage_of.__wrapped__))
    for name in ("mixgcn-figure9", "mixgcn-figure10", "mixgcn-figure11"):
        tables = registry().reproduction(name)().run()
        assert len(tables) == (2 if name == "mixgcn-figure9" else 1)
        for table in tables:
            assert [row.label for row in table.rows] == list(SYSTEMS)
            assert (table.axis, table.columns[-1]) == ("workers", "32")
            assert any("not-here is left out" in note for note in table.notes)
            if name != "mixgcn-figure11":
                assert any("1 is DistDGL on a node of 8 workers" in note for note in table.notes)
                distdgl = dict(zip([row.label for row in table.rows], table.rows, strict=True))
                assert distdgl["distdgl-full-graph"].cells[3].value == 1.0


def test_workers_of_a_node_are_nearer_to_each_other_than_to_those_of_others():
    """Section 4.1: four nodes of eight H100, connected with InfiniBand."""
    platform = load_platform("xeon8462x4-32xh100")
    first, second, *_, last = platform.accelerators
    inside, between = platform.link(first.name, second.name), platform.link(first.name, last.name)
    # NVLink's 900 GB/s for both directions, and a port of 400 Gbit/s.
    assert inside.bandwidth_bytes_per_s == 900e9 / 2
    assert between.bandwidth_bytes_per_s == 400e9 / 8
    assert inside.latency_s < between.latency_s
    # A GPU has one port to the network, which all its peers on other nodes share.
    lanes = {platform.route(first, peer).lanes[0] for peer in platform.accelerators[8:]}
    assert len(lanes) == 1
