"""MixGCN's plans and tables: sizes beside trained epochs, Table 4, and Figure 7."""

import dataclasses

import numpy as np
import pytest

from gnnbench import datasets, plugins
from gnnbench.comparison import Request, compare
from gnnbench.datasets.partitioning import choose_partitioner, partition
from gnnbench.kernels.dispatch import RmatStream
from gnnbench.machines import load_platform
from gnnbench.machines.machine import Platform
from gnnbench.models import MODELS, build
from gnnbench.parts import Setting
from gnnbench.records import Dataset, Table, Workload
from gnnbench.reproduce.studies import PlanRequest
from gnnbench_plugins.mixgcn.outlook import describe_counted, foresee
from gnnbench_plugins.mixgcn.placement import MixGCNPlacement
from gnnbench_plugins.studies.mixgcn import tables, throughput
from gnnbench_plugins.studies.mixgcn.throughput import (
    CLUSTER,
    GRAPHS,
    Figure7,
    Scene,
    ask,
    lay_out,
    price_peer,
    stages_of,
    take_cores,
)
from tests.systems.training import registry

NODE = "xeon8462-8xh100-8xspu"
GPUS = "epyc7763x2-4xa5000"


def make_workload(dims: tuple[int, ...], model: str = "gcn") -> Workload:
    return Workload(model, dims, 1, 1024, (0,) * (len(dims) - 1), 0, threads=1)


@pytest.fixture(scope="module")
def small() -> Dataset:
    return datasets.load("sbm:vertices=301,edges=1500,features=37,classes=5")


def plan(
    graph: Dataset | RmatStream,
    workload: Workload,
    platform: Platform,
    options: dict[str, dict[str, str]],
) -> dict[str, Table]:
    parts = registry().strategy("mixgcn").bundles["full-graph"]
    bundle = plugins.assemble(registry(), parts, options)
    request = PlanRequest(graph, workload, platform, MODELS[workload.model])
    return {table.name: table for table in registry().planner("mixgcn")().plan(bundle, request)}


def values(table: Table) -> dict[str, list[float | None]]:
    return {row.label: [cell.value for cell in row.cells] for row in table.rows}


@pytest.mark.parametrize(
    ("platform", "model", "placement", "schedule", "stages"),
    [
        (NODE, "gcn", {}, "reordered", 4),
        (NODE, "sage", {"accelerators": "3", "sparse_devices": "5"}, "pipelined", 5),
        (GPUS, "sage", {}, "naive", 0),
        (GPUS, "gin", {"sparse": "apart", "sparse_devices": "1"}, "reordered", 4),
        # Two kinds of links.
        ("xeon8462x4-32xh100", "gcn", {"accelerators": "10"}, "pipelined", 5),
    ],
)
def test_sizes_alone_give_what_training_gives(small, platform, model, placement, schedule, stages):
    machine = load_platform(platform)
    workload = make_workload((37, 11, 6, 5), model)
    sampler = {"schedule": schedule, "stages": str(stages)}
    options = {"sampler": sampler, "placement": placement}
    request = Request(("mixgcn",), small, workload, machine, options=options, check=False)
    (run,) = compare(request, registry()).runs
    assert run.status == "done", run.reason
    parts = registry().strategy("mixgcn").bundles["full-graph"]
    bundle = plugins.assemble(registry(), parts, options)
    counted = describe_counted(workload.dims, 301)
    setting = Setting(counted, machine, workload, build(workload).shapes)
    outlook = foresee(bundle, setting, bundle.sampler.count_rounds(small.graph))
    assert outlook.rounds == max(1, stages)
    assert outlook.epoch_s == run.metrics["epoch_time"].value
    assert outlook.epoch.bytes["all_to_all"] == run.metrics["all_to_all_bytes"].value
    devices = [device.name for device in bundle.placement.trainers(machine)]
    peak = max(outlook.peak_bytes[name] for name in devices)
    assert peak == run.metrics["peak_device_bytes"].value


def test_a_plan_over_a_dataset_has_its_orders(small):
    planned = plan(small, make_workload((37, 11, 5)), load_platform(NODE), {})
    rows = values(planned["orders"])
    assert planned.keys() == {"orders"}
    for label, ordering in (
        ("pipelined", tables.keep_order(small.graph)),
        ("reordered", tables.reorder(small.graph)),
    ):
        asked = tables.count_stages(301, ordering.bandwidth)
        stages = min(asked or 301, 64)
        assert rows[label] == [ordering.bandwidth, ordering.granularity, asked, stages]


def test_a_stream_is_planned_from_its_size():
    machine = load_platform(NODE)
    stream = RmatStream(100_000, 800_000, (0.57, 0.19, 0.19), 0)
    planned = plan(stream, make_workload((16, 8, 4)), machine, {})
    rows = values(planned["schedules"])
    assert [rows[name][0] for name in ("naive", "staged")] == [1, 64]
    # Proposition 3.4: n rows of f^0, f^1 and f^1 forward, 2 f^1 backward.
    assert values(planned["exchange"])["epoch"] == [4e5 * 32, 4e5 * 16, 4e5 * 48]
    asked = {"sampler": {"schedule": "naive"}}
    alone = plan(stream, make_workload((16, 8, 4)), machine, asked)
    assert values(alone["schedules"]) == {"naive": rows["naive"]}


def test_a_graph_without_stages_is_cut_by_price():
    vertices = 40
    ends = np.triu_indices(vertices, 1)
    graph, _ = datasets.construct.symmetrise(
        ends[0].astype(np.int64), ends[1].astype(np.int64), vertices
    )
    case = tables.Case("complete", graph, (8, 8, 8), 1e6, tables.QUOTED["orkut:0.01"])
    ordering = tables.reorder(graph)
    ordered = tables.Ordered(case, ordering, ordering, None)
    rest = MixGCNPlacement(accelerators=2, sparse_devices=2), load_platform(NODE)
    chosen = ordered.choose_stages(*rest)
    epochs = {s: ordered.foresee(ordering, s, *rest).epoch_s for s in (2, 4, 8, 16, 32)}
    assert epochs[chosen] == min(epochs.values())


def test_rows_of_others_are_those_that_partitions_read(monkeypatch):
    """By hand, of METIS's partitions: pairs of a worker and a vertex that it reads and has not."""
    small = datasets.load("sbm:vertices=400,edges=1600,features=4,classes=2")
    monkeypatch.setattr(datasets, "load", lambda spec: small)
    graph = small.graph
    owner = partition(graph, throughput.WORKERS, choose_partitioner(graph), 0)
    targets = np.repeat(owner, np.diff(graph.indptr)).tolist()
    read = {*zip(targets, graph.indices.tolist(), strict=True)}
    others = sum(owner[vertex] != worker for worker, vertex in read)
    assert throughput.halo_share(dataclasses.replace(REDDIT, spec="small")) == others / 400


REDDIT = GRAPHS[0]


def test_graphs_are_those_of_table_2():
    """Thousands of vertices and millions of stored entries; Orkut's, Twitter's, Friendster's and
    papers100M's edges are printed once and are stored in both directions."""
    sizes = [(round(graph.vertices, -3), round(graph.edges, -6)) for graph in GRAPHS]
    assert sizes[0] == (233_000, 115_000_000)
    assert sizes[1] == (3_072_000, 2 * 117_000_000)
    assert [graph.dims[0] for graph in GRAPHS] == [602, 320, 52, 128, 128]
    assert [graph.dims[-1] for graph in GRAPHS] == [41, 20, 16, 64, 172]


def test_eight_slices_make_a_node_and_every_gpu_has_one_beside_it():
    host = load_platform(CLUSTER).host
    cores = take_cores(host, 8)
    assert 8 * cores.hardware.memory_bandwidth_bytes_per_s == pytest.approx(614.4e9)
    assert (cores.kind, cores.cores) == ("cpu", 8)
    platform, placement = lay_out("MixGCN-CPU")
    gpus, slices = placement.updaters(platform), placement.aggregators(platform)
    assert (len(gpus), len(slices)) == (32, 32)
    assert {each.kind for each in slices} == {"cpu"}
    rates = [platform.link(slices[9].name, gpu.name).bandwidth_bytes_per_s / 1e9 for gpu in gpus]
    assert rates == [50.0] * 8 + [64.0] * 8 + [50.0] * 16


def test_an_spu_reads_a_row_for_every_edge_of_its_share_of_the_features():
    """Equation 11 by hand: 602 features are 18.8 a worker, 19 at most, and 128 are 4; forward at
    the widths 602, 128, 128 and backward at 128, 128, each begun once (5 us)."""
    _, spu = stages_of("MixGCN-SPU", REDDIT)
    rows_s = 114_615_892 * 4 * (19 + 4 * 4) / 1024e9
    assert spu["aggregate"] == pytest.approx(rows_s + 5 * 5e-6, rel=1e-6)


def test_a_peer_sends_what_its_partitions_read():
    """CAGNET's workers get all rows of 31 others, 24 of them over InfiniBand, at every layer and
    above the first their gradients' as well, however small the share that is gone through."""
    crossing = 602 + 4 * 128
    over_network_s = REDDIT.vertices * 24 / 32 * crossing * 4 / 50e9
    epoch_s = price_peer("CAGNET", REDDIT)
    assert epoch_s is not None
    assert over_network_s < epoch_s < 4 * over_network_s
    # Sancus keeps a copy of all rows of Friendster: 65.6 M of 128 + 2 x 128 values are 101 GB.
    friendster = next(graph for graph in GRAPHS if graph.name == "friendster")
    assert price_peer("Sancus", friendster) is None


def test_what_does_not_come_out_says_what_would_have_to_be_otherwise(monkeypatch):
    """Cores twice as fast mend half of the ratio, until the GPUs' updates take longer."""
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
    assert ask("CAGNET").predict(dataclasses.replace(Scene(), cores=100.0)) == pytest.approx(104)
