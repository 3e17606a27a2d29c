"""HongTu's epochs from counts: held against the engine's, and the paper's tables from them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest

from gnnbench.errors import UsageError
from gnnbench.lowering.host_plan import HostRows
from gnnbench.machines import load_platform
from gnnbench.machines.machine import RateCurve
from gnnbench.machines.tables import replace_fields
from gnnbench.models import build
from gnnbench.parts import Setting
from gnnbench.price.folds import Digest, digest
from gnnbench.price.model_clock import ModelClock
from gnnbench.records import AggregateWork, Parts, Table, Workload
from gnnbench.reproduce.agreement import describe_fits, measure_agreement
from gnnbench.run import train
from gnnbench_plugins.hongtu.counts import ChunkCounts, PartitionHomes
from gnnbench_plugins.hongtu.outlook import Outlook, foresee, make_setting
from gnnbench_plugins.studies.hongtu import server as servers
from gnnbench_plugins.studies.hongtu.breakdown import Breakdown
from gnnbench_plugins.studies.hongtu.engine import AttentionEngine
from gnnbench_plugins.studies.hongtu.quoted import (
    DEPTHS,
    FRIENDSTER,
    GCN_CPU,
    IT_2004,
    LARGE,
    PAPERS,
    PRODUCTS,
    TABLE_6,
    TABLE_7,
    TABLE_9,
)
from gnnbench_plugins.studies.hongtu.server import Case, fitted_server
from gnnbench_plugins.studies.hongtu.tables import Table7, Table9
from tests.systems.training import bundle_of, load_dense

PLATFORM = "epyc7543x4-4xa100"
CLUSTER = "epyc7763x4-8xa5000"


def count_chunks(rounds, owner, partitions):
    n, m = len(rounds), partitions
    each, pairs = (n, m), (n, m, m)
    vertices, edges, transition, loaded = (np.zeros(each) for _ in range(4))
    neighbours, kept = np.zeros(pairs), np.zeros(pairs)
    before_sets, before_union = [np.empty(0, np.int64)] * m, np.empty(0, np.int64)
    for j, round_ in enumerate(rounds):
        sets = [np.sort(unit.input_ids) for unit in round_.units]
        union = np.unique(np.concatenate(sets))
        transition[j] = np.bincount(owner[union], minlength=m)
        loaded[j] = np.bincount(owner[np.setdiff1d(union, before_union)], minlength=m)
        for i, unit in enumerate(round_.units):
            vertices[j, i] = unit.blocks[0].num_dst
            edges[j, i] = unit.blocks[0].num_edges
            neighbours[j, i] = np.bincount(owner[sets[i]], minlength=m)
            both = np.intersect1d(sets[i], before_sets[i])
            kept[j, i] = np.bincount(owner[both], minlength=m)
        before_sets, before_union = sets, union
    return ChunkCounts(vertices, edges, neighbours, transition, loaded, kept)


COMMUNICATIONS = {
    "vanilla": ("vanilla", {}),
    "+P2P": ("hongtu", {"reuse": "false"}),
    "+RU": ("hongtu", {}),
    "RU alone": ("hongtu", {"p2p": "false"}),
    "in turn": ("hongtu", {"interleaved": "false", "neighbour_reuse": "false"}),
}


@dataclass(frozen=True)
class Run:
    modelled: Digest
    peak_bytes: Mapping[str, int]
    outlook: Outlook


def follow_equations(device):
    """Return the device with its peak as AGGREGATE's rate, so that Equation 11 holds."""
    peak = device.hardware.memory_bandwidth_bytes_per_s
    return replace_fields(device, aggregate=RateCurve((1,), (peak,), (peak,)))


@cache
def run_epoch(
    model, layers, label, topology, memory="hongtu", *, name="ego_twitter", machine=PLATFORM,
    blind=False,
):  # fmt: skip
    """Train an epoch with n = 8; ``blind`` devices do not see how many rows a kernel reads."""
    communication, options = COMMUNICATIONS[label]
    data, platform = load_dense(name), load_platform(machine)
    if blind:
        devices = tuple(map(follow_equations, platform.accelerators))
        platform = replace(platform, accelerators=devices)
    dims = (data.num_features, *[16] * (layers - 1), data.num_classes)
    workload = Workload(model, dims, 1, 1024, (10,) * layers, 0)
    setting = Setting(data, platform, workload, build(workload).shapes)
    bundle = bundle_of(
        Parts("hongtu", "hongtu", communication, memory, "torch"),
        sampler={"chunks_per_partition": 8},
        communication=options,
        memory={"topology": topology},
    )
    epochs = []
    clock = ModelClock(platform, bundle.kernel)
    trace = train(bundle, setting, clock, lambda epoch, _: epochs.append(epoch), None)
    m = len(platform.accelerators)
    cut = bundle.sampler.chunks(setting, m)
    outlook = foresee(count_chunks(cut.rounds, cut.owner, m), bundle, setting)
    return Run(digest(epochs[0], "modelled", platform), trace.peak_bytes, outlook)


SETTINGS = [
    (model, layers, label, "device")
    for model, layers in (("gcn", 3), ("gat", 2))
    for label in COMMUNICATIONS
]
SETTINGS += [("gcn", 3, "vanilla", "host"), ("gcn", 2, "+RU", "host"), ("gat", 2, "+RU", "host")]
SETTINGS += [("gat", 2, "+RU", "device", "hongtu-cache")]


@pytest.mark.long
@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: "-".join(map(str, setting)))
def test_an_outlook_is_the_epoch_of_training(setting):
    """Equal to the last digits, except where a kernel also reads free rows of a buffer."""
    run = run_epoch(*setting)
    outlook = run.outlook
    error = outlook.epoch_s / run.modelled.epoch_s - 1
    assert sum(outlook.stages_s.values()) == pytest.approx(outlook.epoch_s, rel=1e-12)
    model, _, label, topology, *memory = setting
    exact = label == "vanilla" or (model == "gcn" and topology == "device")
    assert abs(error) <= (1e-12 if exact else 2e-3)
    for name, size in outlook.peak_bytes.items():
        assert size == pytest.approx(run.peak_bytes[name], rel=1e-2 if memory else 0)


@pytest.mark.parametrize("label", ["vanilla", "+RU"])
def test_an_outlook_knows_the_rows_of_other_nodes(label):
    """Equal where AGGREGATE's price ignores the buffer's rows; otherwise slightly longer."""
    where = dict(name="cora", machine=CLUSTER)
    blind = run_epoch("gcn", 2, label, "device", **where, blind=True)
    assert blind.outlook.epoch_s == pytest.approx(blind.modelled.epoch_s, rel=1e-12)
    assert blind.outlook.peak_bytes == blind.peak_bytes
    run = run_epoch("gcn", 2, label, "device", **where)
    error = run.outlook.epoch_s / run.modelled.epoch_s - 1
    assert -1e-12 <= error <= (1e-12 if label == "vanilla" else 1e-4)
    assert run.outlook.peak_bytes == run.peak_bytes


KNOWN = dict(partitions=4, chunks=5, original=320.0, with_p2p=250.0)


def test_even_counts_have_the_volumes_they_were_made_of():
    counts = ChunkCounts.even(100.0, 900.0, **KNOWN, with_reuse=140.0)
    shared = ChunkCounts.even(100.0, 900.0, **KNOWN, with_reuse=140.0, of_peers=120.0)
    for found, of_peers in ((counts, 320 - 250), (shared, 120)):
        assert (found.vertices.sum(), found.edges.sum()) == pytest.approx((100, 900))
        rows = (found.neighbours.sum(), found.transition.sum(), found.loaded.sum())
        assert rows == pytest.approx((320, 250, 140))
        own = np.einsum("jii->", found.neighbours)
        assert found.neighbours.sum() - own == pytest.approx(of_peers)
    with pytest.raises(ValueError, match="each must be at least the one before"):
        ChunkCounts.even(100.0, 900.0, **KNOWN, with_reuse=260.0)
    for impossible in (69.0, 221.0):
        with pytest.raises(ValueError, match="cannot be those of peers"):
            ChunkCounts.even(100.0, 900.0, **KNOWN, with_reuse=140.0, of_peers=impossible)
    setting = make_setting(100, 900, load_platform(CLUSTER), servers.make_workload((8, 4)))
    many = ChunkCounts.even(
        100.0, 900.0, partitions=9, chunks=1, original=200.0, with_p2p=100.0, with_reuse=100.0
    )
    with pytest.raises(UsageError, match="8 accelerators for 9 partitions"):
        foresee(many, servers.assemble(), setting)


def test_rows_at_all_sockets_are_remote_but_for_a_share_each():
    """Four sockets: three of four rows, whoever asks."""
    homes = PartitionHomes(load_platform(PLATFORM), [0, 1], spread=True)
    assert homes.place(np.array([300, 100]), 1) == HostRows((400,), 300)
    near = PartitionHomes(load_platform(PLATFORM), [0, 1])
    assert near.place(np.array([300, 100]), 1) == HostRows((400,), 300)
    assert near.place(np.array([300, 100]), 0) == HostRows((400,), 100)


def test_the_papers_tables_agree_with_each_other():
    """Tables 6 and 7 share HongTu's GCN epochs, and Table 9 has 100 of those with 2 layers."""
    for (depth, system), seconds in TABLE_6.items():
        if system == "HongTu":
            layers = DEPTHS[depth][1]
            assert seconds[2:] == tuple(TABLE_7[layers, graph.label][1] for graph in LARGE)
    for graph, total in zip(LARGE, TABLE_9["HongTu w/ CD"], strict=True):
        assert total / 100 == pytest.approx(TABLE_7[2, graph.label][1], rel=0.01)


def epoch_s(case):
    return fitted_server().epoch_s(case)


def test_rows_of_other_sockets_cost_what_lies_there():
    """Without deduplication 1 - 1/alpha of the rows cross between sockets, each at that link's rate
    instead of the host link's: by hand, of GCN's two passes over rows and its gradients."""
    server = fitted_server()
    graph, case = PAPERS, Case(PAPERS, method="baseline")
    free = replace(server, platform=servers.scale_sockets(server.platform, 1000.0))
    rows = (
        graph.vertices
        * graph.original
        * (1 - 1 / graph.replication(servers.PARTITIONS))
        / servers.PARTITIONS
    )
    moved = rows * 4 * (graph.features + 2 * graph.hidden)
    between = server.platform.host.memory.socket_bandwidth_bytes_per_s
    expected_s = moved / between - moved / server.link_bytes_per_s
    assert server.epoch_s(case) - free.epoch_s(case) == pytest.approx(expected_s, rel=1e-3)
    # With rows shared each comes from the memory of its own device's socket.
    shared = Case(PAPERS, method="+P2P")
    assert free.epoch_s(shared) == server.epoch_s(shared)


def test_gradients_are_added_at_the_rate_of_rows_that_lie_apart():
    """Two reads and a write of V_+ru rows at every layer but the first, beside what goes in order:
    the loss, which reads and writes outputs, and clearing."""
    server = fitted_server()
    graph = FRIENDSTER
    rows = graph.vertices * (graph.original - graph.between - graph.reused)
    added_s = rows * graph.hidden * 4 * 3 / servers.added_rate(server)
    nominal = server.platform.host.hardware.memory_bandwidth_bytes_per_s
    in_order_s = graph.vertices * 4 * (2 * graph.classes + graph.hidden) / nominal
    found = server.stages_s(Case(graph))[servers.HOST_STAGE]
    assert found == pytest.approx(added_s + in_order_s, rel=1e-3)


def test_the_path_is_priced_as_the_program_is():
    for case in (Case(IT_2004), Case(IT_2004, "gat", 2, "baseline"), Case(PRODUCTS, gpus=1)):
        found = servers.foresee_case(case)
        nominal = servers.Server(load_platform(PLATFORM))
        if case.gpus > servers.FEW_GPUS:
            assert nominal.epoch_s(case) == pytest.approx(found.epoch_s, rel=1e-9)
        # And on one where the host is as slow as fitted, the same steps decide.
        platform = fitted_server().platform
        workload = servers.make_workload(case.graph.dims(case.layers), case.model)
        again = foresee(
            servers.count_chunks(case.graph, case.model, case.gpus),
            servers.assemble_case(case),
            servers.place_graph(case.graph, workload, platform),
        )
        if case.gpus > servers.FEW_GPUS:
            assert epoch_s(case) == pytest.approx(again.epoch_s, rel=1e-9)


def test_one_constant_is_fitted_on_the_shares_of_the_cpu():
    server = fitted_server()
    assert servers.share_of_host(server) == pytest.approx(GCN_CPU, rel=2e-3)
    assert GCN_CPU == 28.5
    assert (
        0 < servers.added_rate(server) < server.platform.host.hardware.memory_bandwidth_bytes_per_s
    )


def test_attention_moves_the_rows_of_both_ends():
    """By hand: seven rows of the output's width and ten values for each edge."""
    device = load_platform(PLATFORM).accelerators[0]
    work = AggregateWork(edges=1000, rows=10, features=64)
    seconds = AttentionEngine().seconds(work, device) - device.hardware.launch_s
    assert seconds == pytest.approx(1000 * (7 * 64 + 10) * 4 / 2039e9)
    twice = AttentionEngine(edge_traffic=2.0).seconds(work, device) - device.hardware.launch_s
    assert twice == pytest.approx(2 * seconds)


def test_no_epoch_of_the_paper_counts_twice():
    """Peers count in the ledger, and large graphs in Table 7; constants are named where fitted."""
    (table,) = Table9().run()
    again = {row.label: [cell.uncounted for cell in row.cells] for row in table.rows}
    assert again["HongTu w/ CD"] == ["counted in hongtu-table7"] * 3
    assert again["HongTu w/o CD"] == [""] * 3
    rows, _ = Table7.predict()
    epochs = Table(name="t7", title="", columns=("a", "b", "c", "d"), rows=rows)
    found = measure_agreement(epochs.cells)
    assert (found.numbers, found.fitted, found.uncounted) == (18, 1, {"counted in validation": 8})
    (fit,) = describe_fits(epochs)
    assert fit.endswith("fitted on 2 FDS, a")
    shares = Breakdown()._tabulate_shares()
    fitted = {
        (row.label[:3], at) for row in shares.rows for at in range(3) if row.cells[at].fitted_on
    }
    assert fitted == {("GCN", 2)}
    assert any(note.startswith("fitted on hongtu-breakdown") for note in shares.notes)
