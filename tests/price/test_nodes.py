"""A machine of two nodes with a host each: what crosses the network between them, by hand.

Ten vertices that all know each other, a GPU and five vertices a node, two layers. HongTu's rows lie
with the GPU of their partition; of mini-batches every second vertex is at home at the first node.
"""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from gnnbench import plugins
from gnnbench.comparison import PlannedRow, Request, make_setting
from gnnbench.comparison.planned import plan_run
from gnnbench.errors import DeviceOutOfMemoryError, PlatformError
from gnnbench.lowering.homes import Homes
from gnnbench.machines import load_platform, to_toml
from gnnbench.machines.machine import Device, Hardware, Link, MemoryRates, Platform, TrainerRates
from gnnbench.machines.tables import replace_fields
from gnnbench.models import build
from gnnbench.parts import SeedSession, Setting
from gnnbench.price.dry_run import DryRun
from gnnbench.price.folds import digest
from gnnbench.price.metrics import summarise
from gnnbench.price.model_clock import ModelClock
from gnnbench.records import Parts, Trace, Workload
from gnnbench.run import train
from tests.pins.recording import load_registry
from tests.price.by_hand import F0, F1, F2, MODEL, N, S, V, dataset

pytestmark = pytest.mark.usefixtures("one_thread")

CLUSTER = "epyc7763x4-8xa5000"
PCIE, NETWORK, NETWORK_S = 1.1e5, 3.1e4, 2.3e-3
HOST_MEMORY, CORES = 2.3e5, 4
CARDS = ("card0", "card1")


def make_nodes(memory_bytes=(10**9, 10**9)):
    hosts = tuple(
        Device(
            f"node{number}",
            "cpu",
            "a host",
            Hardware(
                flops_per_s=9e5,
                memory_bytes=size,
                memory_bandwidth_bytes_per_s=HOST_MEMORY,
                launch_s=2e-4,
            ),
            cores=CORES,
            memory=MemoryRates(core_bandwidth_bytes_per_s=HOST_MEMORY),
            rates=TrainerRates(sampled_edges_per_s=1.01e4),
        )
        for number, size in enumerate(memory_bytes)
    )
    gpus = tuple(
        Device(
            f"gpu{number}",
            "gpu",
            "a GPU",
            Hardware(
                flops_per_s=1.3e6,
                memory_bandwidth_bytes_per_s=7e5,
                memory_bytes=10**9,
                launch_s=3e-4,
            ),
        )
        for number in range(2)
    )
    links = (
        *(Link(f"pcie{i}", (f"node{i}", f"gpu{i}"), PCIE, 1.7e-3) for i in range(2)),
        Link("network", ("node0", "node1"), NETWORK, NETWORK_S, CARDS, shared=True),
        Link("rdma", ("gpu0", "gpu1"), NETWORK, NETWORK_S, CARDS, shared=True),
    )
    return Platform("nodes", "made by hand", hosts[0], gpus, links, other_hosts=hosts[1:])


def run(parts, *, platform=None, options=None) -> Trace:
    """An epoch of training, to which a dry run is equal in all that it has."""
    workload = Workload(
        model="gcn", dims=(F0, F1, F2), epochs=1, batch_size=V, fanouts=(V, V), seed=0
    )
    platform = platform or make_nodes()
    setting = Setting(
        dataset=dataset("complete"),
        platform=platform,
        workload=workload,
        layers=build(workload).shapes,
    )
    bundle = plugins.assemble(load_registry(), parts, options or {})
    trace = train(bundle, setting, ModelClock(platform, bundle.kernel))
    dry = DryRun(plugins.assemble(load_registry(), parts, options or {}), setting)
    planned = dry.finish([dry.run_epoch(0)])
    assert planned.peak_bytes == trace.peak_bytes
    (here,), (there,) = trace.epochs, planned.epochs
    assert there.bytes == here.bytes
    shared = platform.shared_lanes
    assert digest(there, "modelled", platform).epoch_s == digest(here, "modelled", platform).epoch_s
    assert {lane for span in here.spans for lane in span.resources} & shared
    return trace


def spans_between(trace, stage=None):
    """Of the transfers between the hosts: from where, and how many bytes."""
    return sorted(
        (span.resources[0].split(">")[0], span.work.bytes)
        for span in trace.epochs[0].spans
        if span.place == "network" and stage in (None, span.stage)
    )


HONGTU = {"sampler": {"chunks_per_partition": "1"}, "memory": {"topology": "device"}}
VANILLA = Parts("hongtu", "hongtu", "vanilla", "hongtu", "torch")
BATCHES = Parts("neighbour", "data-parallel", "vanilla", "host", "torch")


def test_rows_of_the_other_node_cross_the_network_in_every_layer():
    """Without deduplication a device brings all ten rows of a layer, five of them from the other
    host; backward it returns as many gradients of the first layer's outputs. Outputs and cached
    aggregates are of vertices at home."""
    trace = run(VANILLA, options=HONGTU)
    counted = trace.epochs[0].bytes
    assert counted["host_to_host"] == 2 * N * (F0 + F1 + F1) * S
    brought = [N * F0 * S, N * F1 * S]
    assert spans_between(trace, "transfer") == sorted(
        (node, size) for node in ("node0", "node1") for size in brought
    )
    assert spans_between(trace, "offload") == [("node0", N * F1 * S), ("node1", N * F1 * S)]
    # All that a device brings goes over its own link, wherever it lay.
    assert counted["host_to_device"] == 2 * (V * (F0 + F1) + N * (F2 + F1 + F1 + F0)) * S
    assert {span.work.bytes for span in trace.epochs[0].spans if span.label == "loss"} == {
        2 * N * F2 * S
    }


def test_shared_rows_cross_between_devices_alone():
    trace = run(Parts("hongtu", "hongtu", "hongtu", "hongtu", "torch"), options=HONGTU)
    assert trace.epochs[0].bytes["host_to_host"] == 0
    assert trace.epochs[0].bytes["device_to_device"] == 2 * N * (F0 + F1 + F1) * S


def test_each_host_has_its_vertices_rows_and_its_own_account():
    """Besides the topology: features, their 11 bytes of labels and masks, two layers' outputs, two
    buffers of gradients and the cached aggregates; and rows of the other host meanwhile."""
    trace = run(VANILLA, options=HONGTU)
    topology = 8 * (V + 1) + 4 * V * (V - 1)
    data = N * (F0 * S + 11) + N * (F1 + F2 + F2 + F1 + F0 + F1) * S
    abroad = N * F0 * S
    assert trace.peak_bytes["node1"] == topology + data + abroad
    assert trace.peak_bytes["node0"] == topology + data + abroad + 3 * MODEL
    metrics, _ = summarise(
        trace, [digest(trace.epochs[0], "modelled")], "modelled", ["node0", "node1"], None
    )
    assert metrics["peak_host_bytes"].value == trace.peak_bytes["node0"]
    assert metrics["host_to_host_bytes"].value == 2 * N * (F0 + F1 + F1) * S


def test_a_plan_counts_the_hosts_of_all_nodes_as_hosts():
    platform, trained = make_nodes((10**9, 10**8)), run(VANILLA, options=HONGTU)
    workload = Workload("gcn", (F0, F1, F2), 1, V, (V, V), seed=0)
    request = Request((), dataset("complete"), workload, platform, options=HONGTU)
    row = PlannedRow("hongtu", "hongtu", "full-graph", VANILLA)
    metrics = plan_run(request, row, make_setting(request), load_registry()).metrics
    assert metrics["host_to_host_bytes"].value == 2 * N * (F0 + F1 + F1) * S
    peaks = trained.peak_bytes
    assert metrics["peak_device_bytes"].value == max(peaks["gpu0"], peaks["gpu1"])
    assert metrics["peak_host_bytes"].value == max(peaks["node0"], peaks["node1"])


def test_the_host_that_is_too_small_is_named():
    with pytest.raises(DeviceOutOfMemoryError, match="node1 is out of memory"):
        run(VANILLA, platform=make_nodes((10**9, 900)), options=HONGTU)


def test_each_host_gathers_its_own_rows_and_sends_what_the_other_needs():
    """Both mini-batches read all ten rows. A host gathers its five for either, on its own lane, and
    five go each way; gradients of the model are added up a node before they cross."""
    trace = run(BATCHES)
    spans = trace.epochs[0].spans
    assert {(s.place, s.resources, s.work.rows) for s in spans if s.stage == "load"} == {
        ("node0", ("node0.load",), 2 * N),
        ("node1", ("node1.load",), 2 * N),
        ("network", ("node0>card0", "card0>card1", "card1>node1"), 0),
        ("network", ("node1>card1", "card1>card0", "card0>node0"), 0),
    }
    assert {s.place for s in spans if s.stage == "sample"} == {"node0", "node1"}
    counted = trace.epochs[0].bytes
    assert counted["host_to_host"] == 2 * N * F0 * S
    assert spans_between(trace, "load") == [("node0", N * F0 * S), ("node1", N * F0 * S)]
    assert spans_between(trace, "synchronize") == [("node0", MODEL), ("node1", MODEL)]
    assert counted["all_reduce"] == (2 * 2 + 2) * MODEL


def test_both_directions_of_the_network_are_used_at_once():
    trace = run(BATCHES)
    timeline = digest(trace.epochs[0], "modelled", make_nodes()).timeline
    sent = [s for s in timeline if s.span.label == "rows of another host"]
    took = NETWORK_S + N * F0 * S / NETWORK
    assert len({item.start_s for item in sent}) == 1
    assert [item.end_s - item.start_s for item in sent] == pytest.approx([took] * 2, rel=1e-12)
    # The rows have been gathered before, and are transferred after.
    assert max(s.end_s for s in timeline if s.span.label == "load features") <= sent[0].start_s
    assert min(s.start_s for s in timeline if s.span.label == "host to device") >= sent[0].end_s


@pytest.mark.parametrize("slow", [0, 1])
def test_rows_cross_when_both_hosts_have_gathered(slow):
    hosts = list(make_nodes().hosts)
    hosts[slow] = replace_fields(hosts[slow], memory_bandwidth_bytes_per_s=HOST_MEMORY / 100)
    platform = dataclasses.replace(make_nodes(), host=hosts[0], other_hosts=(hosts[1],))
    trace = run(BATCHES, platform=platform)
    timeline = digest(trace.epochs[0], "modelled", platform).timeline
    gathered = {s.span.place: s.end_s for s in timeline if s.span.label == "load features"}
    assert gathered[f"node{slow}"] > gathered[f"node{1 - slow}"]
    sent = [s.start_s for s in timeline if s.span.label == "rows of another host"]
    assert min(sent) == gathered[f"node{slow}"]


def test_a_placement_observes_the_slowest_gathering_and_then_the_slowest_crossing(monkeypatch):
    observed = []
    monkeypatch.setattr(SeedSession, "observe", lambda self, times: observed.append(times.load))
    hosts = list(make_nodes().hosts)
    hosts[0] = replace_fields(hosts[0], memory_bandwidth_bytes_per_s=HOST_MEMORY / 3)
    platform = dataclasses.replace(make_nodes(), host=hosts[0], other_hosts=(hosts[1],))
    trace = run(BATCHES, platform=platform)
    loads = [span for span in trace.epochs[0].spans if span.stage == "load"]
    gathered_s = [span.seconds for span in loads if span.place != "network"]
    crossed_s = [span.seconds for span in loads if span.place == "network"]
    assert (len(gathered_s), len(crossed_s)) == (2, 2)
    assert observed == [pytest.approx(max(gathered_s) + max(crossed_s))] * 2  # trained and planned


def test_an_average_is_taken_of_both_nodes_and_sent_to_both():
    """HyScale-GNN Equation 13 over two hosts: what each step of it waits for, by its end points."""
    trace = run(BATCHES)
    (epoch,) = trace.epochs
    steps = {}
    for place, span in enumerate(epoch.spans):
        ends = tuple(dict.fromkeys(lane for lane in span.resources if ">" in lane))
        where = (ends[0].split(">")[0], ends[-1].split(">")[1]) if ends else span.place
        if span.stage == "synchronize":
            assert (span.label, where) not in steps  # a single round
            steps[span.label, where] = place
    gathered, scattered = "gather gradients", "scatter gradients"
    average = steps["average and step", "node0"]
    node, network = steps["add up gradients", "node1"], steps[gathered, ("node1", "node0")]
    there = steps[scattered, ("node0", "node1")]
    waits = {
        node: {steps[gathered, ("gpu1", "node1")]},
        network: {node},
        average: {steps[gathered, ("gpu0", "node0")], network},
        there: {average},
        steps[scattered, ("node0", "gpu0")]: {average},
        steps[scattered, ("node1", "gpu1")]: {there},
    }
    assert len(steps) == 8
    by_id = {span.id: place for place, span in enumerate(epoch.spans)}
    for step, before in waits.items():
        assert {by_id[each] for each in epoch.spans[step].after} == before, epoch.spans[step].label


def test_first_blocks_of_the_other_node_cross_once():
    """P3: no feature ever crosses, but the first blocks go to all devices."""
    trace = run(Parts("neighbour", "p3", "p3", "resident", "torch"))
    # Both units' first blocks have ten destinations and 90 edges, in 4 bytes each.
    block = 4 * (V + 1 + V * (V - 1))
    assert spans_between(trace, "transfer") == [("node0", block), ("node1", block)]
    # Every device has its own gradients of the first weight.
    model = MODEL - F0 * F1 * S
    assert spans_between(trace, "synchronize") == [("node0", model), ("node1", model)]
    assert trace.epochs[0].bytes["host_to_host"] == 2 * block


def test_a_size_is_divided_as_vertices_are():
    homes = Homes.at_sockets(make_nodes(), np.array([0, 1, 1, 1]))
    assert [(host.name, size) for host, size in homes.divide(41)] == [("node0", 10), ("node1", 31)]
    assert homes.count(np.array([1, 2])) == (0, 2)


def test_sockets_are_numbered_through_all_hosts():
    two = [replace_fields(host, sockets=2) for host in make_nodes().hosts]
    platform = dataclasses.replace(make_nodes(), host=two[0], other_hosts=(two[1],))
    assert [host.name for host in platform.sockets] == ["node0", "node0", "node1", "node1"]
    assert [platform.socket(device) for device in platform.accelerators] == [0, 2]


def read(text: str, tmp_path: Path) -> Platform:
    path = tmp_path / "nodes.toml"
    path.write_text(text, encoding="utf-8")
    return load_platform(str(path))


def test_nodes_are_read_back_as_written(tmp_path):
    platform = load_platform(CLUSTER)
    assert [host.name for host in platform.hosts] == ["node0", "node1"]
    assert [platform.host_of(d).name for d in platform.accelerators] == ["node0"] * 4 + [
        "node1"
    ] * 4
    assert read(to_toml(platform), tmp_path) == platform


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('name = "node1"\n', 'name = "node0"\n', "two hosts are called 'node0'"),
        (
            'from = "node0"\nto = "node1"\n',
            'from = "node0"\nto = "node1_gpu0"\n',
            "hosts node0 and node1 are not linked; add a [[links]] entry",
        ),
        ('from = "node1"\nto = "node1_gpu"\n', 'from = "node0"\nto = "node1_gpu"\n', None),
        (
            'to = "node1"\n',
            'to = "node1"\nspeed = 1\n',
            "unknown key 'speed' in [[links]] node0 to node1",
        ),
        ('name = "node1"\n', "", "[[hosts]] number 2 has no name"),
    ],
)
def test_nodes_that_do_not_fit_together_are_refused(old, new, sentence, tmp_path):
    text = to_toml(load_platform(CLUSTER))
    assert text.count(old) == 1
    if sentence is None:
        # Devices may belong to any of the hosts.
        platform = read(text.replace(old, new), tmp_path)
        assert {platform.host_of(device).name for device in platform.accelerators} == {"node0"}
        return
    with pytest.raises(PlatformError) as error:
        read(text.replace(old, new), tmp_path)
    assert sentence in str(error.value)


def test_a_device_of_two_hosts_is_refused(tmp_path):
    platform = load_platform(CLUSTER)
    links = [link for link in platform.links if set(link.ends) == {"node0", "node0_gpu0"}]
    twice = dataclasses.replace(links[0], name="node1-node0_gpu0", ends=("node1", "node0_gpu0"))
    sources = dict(platform.sources)
    for key in ("bandwidth", "latency"):
        sources[f"node1-node0_gpu0.{key}"] = "s"
    wrong = dataclasses.replace(platform, links=(*platform.links, twice), sources=sources)
    with pytest.raises(PlatformError, match="linked with hosts node0 and node1; it belongs to one"):
        read(to_toml(wrong), tmp_path)


def test_a_single_node_is_written_as_a_host(tmp_path):
    text = to_toml(load_platform("epyc7763x2-4xa5000"))
    assert "[host]\n" in text
    named = text.replace("[host]\n", '[[hosts]]\nname = "host"\n')
    with pytest.raises(PlatformError, match="write a single one as"):
        read(named, tmp_path)
