"""MixGCN's Figure 7: epochs on four nodes, by sizes alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gnnbench.platforms import load_platform
from gnnbench_plugins.studies.mixgcn import throughput
from gnnbench_plugins.studies.mixgcn.throughput import (
    CLUSTER,
    GRAPHS,
    Figure7,
    Scene,
    Sized,
    ask,
    lay_out,
    price_peer,
    stages_of,
    take_cores,
)

pytestmark = pytest.mark.usefixtures("one_thread")

REDDIT = GRAPHS[0]


def test_graphs_are_those_of_table_2() -> None:
    """Thousands of vertices and millions of stored entries; Orkut's, Twitter's, Friendster's and
    papers100M's edges are printed once and are stored in both directions."""
    sizes = [(round(graph.vertices, -3), round(graph.edges, -6)) for graph in GRAPHS]
    assert sizes[0] == (233_000, 115_000_000)
    assert sizes[1] == (3_072_000, 2 * 117_000_000)
    assert [graph.dims[0] for graph in GRAPHS] == [602, 320, 52, 128, 128]
    assert [graph.dims[-1] for graph in GRAPHS] == [41, 20, 16, 64, 172]


def test_eight_slices_make_a_node_and_every_gpu_has_one_beside_it() -> None:
    host = load_platform(CLUSTER).host
    cores = take_cores(host, 8)
    assert 8 * cores.memory_bandwidth_bytes_per_s == pytest.approx(614.4e9)
    assert (cores.kind, cores.cores) == ("cpu", 8)
    platform, placement = lay_out("MixGCN-CPU")
    gpus, slices = placement.updaters(platform), placement.aggregators(platform)
    assert (len(gpus), len(slices)) == (32, 32)
    assert {each.kind for each in slices} == {"cpu"}
    rates = [platform.link(slices[9].name, gpu.name).bandwidth_bytes_per_s / 1e9 for gpu in gpus]
    assert rates == [50.0] * 8 + [64.0] * 8 + [50.0] * 16


def test_an_spu_reads_a_row_for_every_edge_of_its_share_of_the_features() -> None:
    """Equation 11 by hand: 602 features are 18.8 a worker, 19 at most, and 128 are 4; forward at
    the widths 602, 128, 128 and backward at 128, 128, each begun once (5 us)."""
    _, spu = stages_of("MixGCN-SPU", REDDIT)
    rows_s = 114_615_892 * 4 * (19 + 4 * 4) / 1024e9
    assert spu["aggregate"] == pytest.approx(rows_s + 5 * 5e-6, rel=1e-6)


def test_a_peer_sends_what_its_partitions_read() -> None:
    """CAGNET's workers get all rows of 31 others, 24 of them over InfiniBand, at every layer and
    above the first their gradients' as well, however small the share that is gone through."""
    crossing = 602 + 4 * 128
    over_network_s = REDDIT.vertices * 24 / 32 * crossing * 4 / 50e9
    epoch_s = price_peer("CAGNET", REDDIT)
    assert epoch_s is not None
    assert over_network_s < epoch_s < 4 * over_network_s
    whole = Sized(REDDIT.spec, "reddit", 2 * REDDIT.vertices, 2 * REDDIT.edges, REDDIT.dims)
    twice = price_peer("CAGNET", whole)
    assert twice == pytest.approx(2 * epoch_s, rel=0.1)


def test_what_a_gpu_cannot_hold_has_no_time() -> None:
    """Sancus keeps a copy of all rows of Friendster: 65.6 M of 128 + 2 x 128 values are 101 GB."""
    friendster = next(graph for graph in GRAPHS if graph.name == "friendster")
    assert price_peer("Sancus", friendster) is None


def test_what_does_not_come_out_says_what_would_have_to_be_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Half of the paper's ratio over PipeGCN and all of the others': cores twice as fast would mend
    it, up to where they aggregate as fast as GPUs update."""
    peers = {"DistDGL": 4.2, "CAGNET": 10.4, "PipeGCN": 0.95, "Sancus": 5.5}
    stages = {"MixGCN-CPU": (1.1, {"aggregate": 1.0, "update": 0.1, "transfer": 0.05})}
    stages["MixGCN-SPU"] = (0.5, {"aggregate": 1 / 3.8, "update": 0.1, "transfer": 0.05})
    monkeypatch.setattr(throughput, "GRAPHS", (REDDIT,))
    monkeypatch.setattr(throughput, "price_peer", lambda name, graph: peers[name])
    monkeypatch.setattr(throughput, "stages_of", lambda variant, graph: stages[variant])
    (table,) = Figure7().run()
    most = {row.label: row.cells[-1].value for row in table.rows}
    assert most["MixGCN-CPU over CAGNET"] == pytest.approx(10.4)
    assert most["MixGCN-SPU over MixGCN-CPU"] == pytest.approx(3.8)
    (told,) = table.contradictions
    assert told[:3] == ("MixGCN-CPU over PipeGCN, at most", "0.95x", "1.90x")
    assert told.remedy.startswith("what a worker's eight cores aggregate 2 times as large")
    assert ask("CAGNET").predict(replace(Scene(), cores=100.0)) == pytest.approx(104)
