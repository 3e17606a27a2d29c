"""HongTu's planning: Algorithm 4 and the local search after it, chunks that fit, NUMA.

Real graphs are those of the shared data folder.
"""

import dataclasses
import itertools
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnbench import datasets
from gnnbench.check.graphs import make_dataset, make_workload
from gnnbench.datasets.partitioning import edge_cut as partitioning
from gnnbench.datasets.partitioning import partition
from gnnbench.errors import DeviceOutOfMemoryError
from gnnbench.kernels.dispatch import edge_cut, partition_stream
from gnnbench.machines import load_platform
from gnnbench.machines.tables import replace_fields
from gnnbench.models import build
from gnnbench.parts import Setting
from gnnbench.records import Parts, Workload
from gnnbench.units import format_si
from gnnbench_plugins.hongtu import search
from gnnbench_plugins.hongtu import volumes as counting
from gnnbench_plugins.hongtu.communication import DeduplicatedTraffic
from gnnbench_plugins.hongtu.placement import HongTuPlacement
from gnnbench_plugins.hongtu.sampler import HongTuSampler, read_sets, throughputs
from gnnbench_plugins.hongtu.search import bound_sweeps, descend
from gnnbench_plugins.hongtu.volumes import Throughputs, cost_s, mark_chunks, regroup
from tests.systems.hongtu.by_sets import arrange, count_volumes, improve, reorganise
from tests.systems.training import losses
from tests.systems.training import run as run_parts
from tests.uneven import make_uneven

A100_SERVER = "epyc7543x4-4xa100"


@cache
def dataset(name):
    return datasets.load(name)


@cache
def setting_on(name, hidden=16):
    data = dataset(name)
    dims = (data.num_features, hidden, data.num_classes)
    workload = Workload("gcn", dims, 1, 64, (25, 10), 0)
    return Setting(data, load_platform(A100_SERVER), workload, build(workload).shapes)


@cache
def small_setting(accelerators=3, **host):
    workload, platform = make_workload("gcn", epochs=1), make_uneven(accelerators)
    platform = dataclasses.replace(platform, host=replace_fields(platform.host, **host))
    return Setting(make_dataset(), platform, workload, build(workload).shapes)


def run(setting, moved_by="hongtu", **options):
    return run_parts(setting, Parts("hongtu", "hongtu", moved_by, "hongtu", "torch"), **options)


def sets_of(rounds):
    return read_sets([[r.units[i].blocks[0] for r in rounds] for i in range(len(rounds[0].units))])


@st.composite
def neighbour_sets(draw):
    """Up to four partitions of up to six chunks, and any three throughputs."""
    m, n, vertices = draw(st.integers(1, 4)), draw(st.integers(1, 6)), draw(st.integers(1, 70))
    one = st.sets(st.integers(0, vertices - 1), max_size=12)
    sets = [[np.array(sorted(draw(one)), dtype=np.int64) for _ in range(n)] for _ in range(m)]
    rate = st.sampled_from([1.0, 2.0, 6.25, 40.0])
    return sets, vertices, Throughputs(draw(rate), draw(rate), draw(rate))


def algorithm_4(sets):
    """Algorithm 4, line by line, on Python's sets; line 13 read from i = 0, as line 8 is."""
    m, n = len(sets), len(sets[0])
    neighbours = [[set(ids.tolist()) for ids in row] for row in sets]

    def find(left, shared):
        return next(k for k in left if all(shared(k) >= shared(a) for a in left))

    grouped = [[0] * n for _ in range(m)]
    union = [set() for _ in range(n)]
    for j in range(n):  # lines 1 and 2
        grouped[0][j] = j
        union[j] = set(neighbours[0][j])
    for i in range(1, m):  # line 3
        left = list(range(n))  # line 4
        for j in range(n):  # lines 5 to 7
            k = find(left, lambda a, i=i, j=j: len(neighbours[i][a] & union[j]))
            grouped[i][j] = k
            union[j] = union[j] | neighbours[i][k]
            left.remove(k)
    order = [[grouped[i][0]] for i in range(m)]  # lines 8 and 9
    left, current = list(range(1, n)), 0  # line 10
    for _ in range(1, n):  # line 11
        current = find(left, lambda a, now=current: len(union[a] & union[now]))  # line 12
        for i in range(m):  # lines 13 and 14
            order[i].append(grouped[i][current])
        left.remove(current)  # line 15
    return order


@given(drawn=neighbour_sets())
@settings(deadline=None, derandomize=True, max_examples=150)
def test_algorithm_4_is_what_its_lines_say(drawn):
    sets, vertices, _ = drawn
    assert reorganise(sets, vertices) == algorithm_4(sets)


def moves(order):
    """Every order that one reversal of batches or one exchange of chunks makes of ``order``."""
    n = len(order[0])
    for a, b in itertools.combinations(range(n), 2):
        yield [row[:a] + row[a : b + 1][::-1] + row[b + 1 :] for row in order]
        for i in range(len(order)):
            moved = [list(row) for row in order]
            moved[i][a], moved[i][b] = moved[i][b], moved[i][a]
            yield moved


def price(sets, order, vertices, rates):
    return cost_s(count_volumes(arrange(sets, order), vertices), rates)


@pytest.mark.parametrize("seed", range(4))
def test_local_search_ends_where_no_move_helps_in_dense_graphs(seed):
    """From each of these starts many moves help; a gain that is counted wrongly leaves one."""
    random = np.random.default_rng(seed)
    sets = [[np.flatnonzero(random.random(60) < 0.25) for _ in range(7)] for _ in range(3)]
    rates = (Throughputs(1.0, 6.0, 60.0), Throughputs(1.0, 40.0, 2.0))[seed % 2]
    start = [random.permutation(7).tolist() for _ in range(3)]
    found = improve(sets, start, 60, rates)
    cost = price(sets, found, 60, rates)
    assert cost < price(sets, start, 60, rates) * 0.99
    assert min(price(sets, moved, 60, rates) for moved in moves(found)) >= cost * (1 - 1e-9)


@given(drawn=neighbour_sets())
@settings(deadline=None, derandomize=True, max_examples=150)
def test_local_search_ends_where_no_move_helps_in_any_graph(drawn):
    """It permutes each partition, costs no more than its start, and no single move costs less."""
    sets, vertices, rates = drawn
    start = reorganise(sets, vertices)
    found = improve(sets, start, vertices, rates)
    assert [sorted(row) for row in found] == [list(range(len(sets[0])))] * len(sets)
    cost = price(sets, found, vertices, rates)
    slack = 1e-9 * max(cost, 1.0)
    assert cost <= price(sets, start, vertices, rates) + slack
    for moved in moves(found):
        assert price(sets, moved, vertices, rates) >= cost - slack
    assert improve(sets, start, vertices, rates) == found


def test_the_search_stops_after_the_sweeps_it_was_given():
    random = np.random.default_rng(3)
    sets = [[np.flatnonzero(random.random(200) < 0.2) for _ in range(12)] for _ in range(3)]
    start = [list(range(12))] * 3
    rates = Throughputs(1.0, 6.0, 60.0)
    costs = [price(sets, improve(sets, start, 200, rates, n), 200, rates) for n in (0, 1, 2, 60)]
    assert costs == sorted(costs, reverse=True)
    assert costs[0] == price(sets, start, 200, rates)
    assert costs[-1] < costs[0]


@pytest.mark.parametrize("search", ["none", "greedy", "local", "full"])
def test_the_notes_say_what_each_stage_costs(search):
    setting, rates = small_setting(), throughputs(small_setting())
    graph, as_cut = setting.dataset.graph, [list(range(5))] * 3
    count = graph.num_vertices
    made = HongTuSampler(chunks_per_partition=5, search=search).chunks(setting, 3)
    ranges = HongTuSampler(chunks_per_partition=5, search="none").chunks(setting, 3)
    sets, notes = sets_of(ranges.rounds), " ".join(made.notes)
    cut = edge_cut(graph.indptr, graph.indices, made.owner.astype(np.int32))
    assert f"metis partitions cut {100 * cut / graph.num_edges:.2g} % of the edges" in notes
    factor = count_volumes(sets, count).original / count
    assert f"with 5 chunks each the replication factor is {factor:.2f}" in notes

    stages = {"range order": as_cut, "Algorithm 4": reorganise(sets, count)}
    best = min(stages.values(), key=lambda order: price(sets, order, count, rates))
    if search in ("local", "full"):
        stages["local search"] = improve(sets, best, count, rates)
    costs = {name: price(sets, order, count, rates) for name, order in stages.items()}
    assert len(set(costs.values())) == len(costs)
    told = ", ".join(f"{name} {format_si(cost, 's')}" for name, cost in costs.items())
    kept = min(costs, key=costs.__getitem__)
    assert (f"Equation 4: {told} a layer; kept: {kept}" in notes) == (search != "none")


@pytest.mark.parametrize("partitioner", ["metis", "ldg", "fennel", "range"])
def test_every_partitioner_makes_partitions_to_train_on(partitioner):
    setting = small_setting()
    owner = partition(setting.dataset.graph, 3, partitioner, 0)
    assert (owner.dtype, len(owner)) == (np.int64, 60)
    assert np.bincount(owner, minlength=3).min() >= 12
    trace = run(setting, sampler={"partitioner": partitioner})
    assert f"{partitioner} partitions cut" in trace.notes[0]
    assert losses(trace) == pytest.approx(losses(run(setting)), rel=1e-12)


@pytest.mark.parametrize("partitioner", ["ldg", "fennel", "range"])
def test_partitions_of_a_skewed_graph_have_as_much_to_do(partitioner):
    """R-MAT's hubs know each other: by vertices alone a part has up to thrice the edges."""
    graph = datasets.load("rmat:vertices=4k,edges=40k,features=1,classes=2").graph
    owner = partition(graph, 4, partitioner, 0)
    work = np.bincount(owner, weights=graph.degrees + 1, minlength=4)
    # A streaming part is closed once it is a tenth above the mean; its last vertex may be a hub.
    assert work.max() <= 1.1 * work.mean() + graph.degrees.max() + 1
    assert work.max() < 1.3 * work.mean()
    if partitioner != "range":
        stream = (graph.indptr, graph.indices, 4)
        uneven = partition_stream(*stream, method=partitioner, passes=3)
        assert work.max() < 0.8 * np.bincount(uneven, weights=graph.degrees + 1).max()


def test_metis_is_spared_large_graphs_and_those_with_little_to_find(monkeypatch):
    """METIS takes up to ``METIS_EDGES`` stored edges; from ``TRIED_EDGES`` on a graph is tried."""
    setting = small_setting()
    edges = setting.dataset.graph.num_edges
    for limit, name in ((edges, "metis"), (edges - 1, "ldg")):
        monkeypatch.setattr(partitioning, "METIS_EDGES", limit)
        assert HongTuSampler().chunks(setting, 3).notes[0].startswith(f"{name} partitions")
    monkeypatch.undo()
    for name, chosen in (
        ("rmat:vertices=4k,edges=40k,features=1,classes=2", "ldg"),
        ("coauthor_physics", "metis"),
    ):
        graph = datasets.load(name).graph
        for less, partitioner in ((0, "metis"), (1, chosen)):
            monkeypatch.setattr(partitioning, "TRIED_EDGES", graph.num_edges - less)
            assert partitioning.choose_partitioner(graph) == partitioner


def test_graphs_without_edges_and_with_fewer_vertices_than_chunks_are_planned():
    setting, sampler = small_setting(), HongTuSampler(chunks_per_partition=40)
    graph = setting.dataset.graph
    rounds = sampler.chunks(setting, 3).rounds
    outputs = np.concatenate([u.output_ids for r in rounds for u in r.units])
    assert np.array_equal(np.sort(outputs), np.arange(graph.num_vertices))
    alone = dataclasses.replace(
        graph, indptr=np.zeros_like(graph.indptr), indices=graph.indices[:0]
    )
    bare = dataclasses.replace(setting.dataset, graph=alone)
    cut = sampler.chunks(dataclasses.replace(setting, dataset=bare), 3)
    assert "replication factor is 1.00" in cut.notes[0]


def fitting_run(setting, size, **sampler):
    return run(setting, sampler=sampler, memory={"device_bytes": size, "topology": "host"})


@pytest.mark.parametrize(("accelerators", "small"), [(1, 0), (3, 0), (3, 2)])
def test_the_least_number_of_chunks_that_fits_is_found(accelerators, small):
    """With the memory that n chunks took, 0 finds a number that fits; one less does not fit. One of
    the devices has that memory, and the others have more than they need."""
    setting = small_setting(accelerators)
    platform = setting.platform
    name = platform.accelerators[small].name

    @cache
    def peak(n):
        sampler = {"chunks_per_partition": n, "search": "none"}
        return run(setting, sampler=sampler, memory={"topology": "host"}).peak_bytes[name]

    def run_in(size, **sampler):
        devices = list(platform.accelerators)
        devices[small] = replace_fields(devices[small], memory_bytes=size)
        tight = dataclasses.replace(platform, accelerators=tuple(devices))
        tight = dataclasses.replace(setting, platform=tight)
        return run(tight, sampler=sampler, memory={"topology": "host"})

    found = []
    for size in sorted({peak(n) for n in (1, 2, 3, 5, 8, 12)}, reverse=True):
        trace = run_in(size, chunks_per_partition=0)
        assert trace.peak_bytes[name] <= size
        (note,) = [note for note in trace.notes if "the least that fit" in note]
        assert f"the least that fit {format_si(size, 'B')} a device" in note
        n = int(note.split(" of ")[1].split()[0])
        assert peak(n) <= size
        assert n == 1 or peak(n - 1) > size
        found.append(n)
    with pytest.raises(DeviceOutOfMemoryError):
        run_in(size, chunks_per_partition=n - 1, search="none")
    assert found[0] == 1
    assert found == sorted(found)
    assert len(set(found)) >= 4


@dataclasses.dataclass
class Room:
    """Devices that hold what ``fits`` says of the first vertices of each partition's chunks."""

    fits: object
    device_bytes: int = 3000

    def holds(self, rounds, owner):
        units = [[round_.units[i] for round_ in rounds] for i in range(3)]
        return self.fits([[u.output_ids.min() for u in row if len(u.output_ids)] for row in units])


def test_where_a_single_vertex_does_not_fit_the_ledger_says_which_tensor():
    setting = small_setting()
    with pytest.raises(DeviceOutOfMemoryError) as caught:
        fitting_run(setting, 3000, chunks_per_partition=0)
    assert " bytes are needed for chunk intermediates, " in str(caught.value)
    assert "of 3,000 are in use" in str(caught.value)
    with pytest.raises(DeviceOutOfMemoryError, match="topologies, unless memory"):
        run(setting, memory={"device_bytes": 3000, "topology": "device"})
    sampler = HongTuSampler(chunks_per_partition=0)
    cut = sampler.chunks(setting, 3, Room(lambda first: False))
    assert len(cut.rounds) == np.bincount(cut.owner).max()
    assert "do not fit 3.00 kB a device, and are the most" in " ".join(cut.notes)


def test_a_cheaper_order_that_does_not_fit_is_not_taken():
    """Rows that are brought in for peers depend on the order, and take memory."""

    def fits(first):
        """Four chunks or more, each partition's in ascending order."""
        return max(map(len, first)) >= 4 and all(row == sorted(row) for row in first)

    room = Room(fits)
    cut = HongTuSampler(chunks_per_partition=0).chunks(small_setting(), 3, room)
    assert len(cut.rounds) == 4
    assert room.holds(cut.rounds, cut.owner)
    assert "kept: range order" not in " ".join(cut.notes)
    assert "so the range order was kept" in cut.notes[-1]


def host_transfers(trace):
    return [s for s in trace.epochs[0].spans if s.place.startswith(("pcie", "host-"))]


def test_deduplicated_transfers_are_local_and_vanilla_ones_are_not():
    """§7.3: inter-GPU sharing "eliminates the remote neighbor access across CPUs"."""
    setting = small_setting(sockets=3, socket_bandwidth_bytes_per_s=4e9)
    deduplicated, vanilla = run(setting), run(setting, "vanilla")
    assert sum(s.work.bytes for s in host_transfers(deduplicated))
    assert all(s.work.remote_bytes == 0 for s in host_transfers(deduplicated))
    # Device i is at socket i, so a unit's rows of the other partitions are remote.
    cut = HongTuSampler().chunks(setting, 3)
    far = sum(int((cut.owner[u.input_ids] != u.slot).sum()) for r in cut.rounds for u in r.units)
    for number, width in enumerate(setting.workload.dims[:-1]):
        rows = [
            s for s in host_transfers(vanilla) if (s.label, s.layer) == ("host to device", number)
        ]
        assert sum(s.work.remote_bytes for s in rows) == far * width * 8
    # Outputs, aggregates and their gradients belong to the partition, so they are local.
    labels = {s.label for s in host_transfers(vanilla) if s.work.remote_bytes}
    assert labels == {"host to device", "gradients to host"}


def test_devices_are_spread_evenly_over_sockets():
    for accelerators, sockets, expected in (
        (4, 4, [0, 1, 2, 3]),
        (4, 2, [0, 0, 1, 1]),  # Figure 1: every two GPUs are connected to a single CPU
        (3, 2, [0, 0, 1]),
        (2, 4, [0, 2]),
    ):
        setting = small_setting(accelerators, sockets=sockets)
        platform = setting.platform
        found = [platform.socket(device) for device in platform.accelerators]
        assert found == expected
        owner = np.arange(accelerators, dtype=np.int64)
        assert HongTuPlacement().sockets(setting, owner).tolist() == expected
        spread = HongTuPlacement(numa_aware=False).sockets(setting, np.zeros(9, dtype=np.int64))
        assert spread.tolist() == [v % sockets for v in range(9)]


@pytest.mark.parametrize("chunks", [2, 8, 48])
def test_work_of_preprocessing_does_not_grow_with_the_graph(monkeypatch, chunks):
    """Algorithm 4 intersects m n^2 pairs of sets, a sweep n^2 (5 m + 1); sweeps are bounded."""
    pairs, shared = [0], counting.count_shared_marks

    def count(one, other, **how):
        pairs[0] += len(one) * len(other)
        return shared(one, other, **how)

    def count_pairs(work):
        before = pairs[0]
        return work(), pairs[0] - before

    for module in (counting, search):
        monkeypatch.setattr(module, "count_shared_marks", count)
    m, setting = 4, setting_on("cora")
    cut = HongTuSampler(chunks_per_partition=chunks, search="none").chunks(setting, m)
    marks, rates = mark_chunks(sets_of(cut.rounds), len(cut.owner)), throughputs(setting)
    order, taken = count_pairs(lambda: regroup(marks))
    assert taken == m * chunks**2
    sweep = (5 * m + 1) * chunks**2
    assert count_pairs(lambda: descend(marks, order, rates, 1))[1] == sweep
    sweeps = bound_sweeps(marks)
    assert sweeps == min(60, max(1, 4096 // (m * chunks**2)))
    assert sweep <= count_pairs(lambda: descend(marks, order, rates, sweeps))[1] <= sweeps * sweep


def test_chunks_are_ordered_and_traffic_is_planned_once_for_all_epochs(monkeypatch):
    calls = {"order": 0, "plan": 0}
    plan, make = DeduplicatedTraffic.plan, HongTuSampler.chunks

    def count_plans(*given):
        calls["plan"] += 1
        return plan(*given)

    def count_orders(*given):
        calls["order"] += 1
        return make(*given)

    monkeypatch.setattr(DeduplicatedTraffic, "plan", count_plans)
    monkeypatch.setattr(HongTuSampler, "chunks", count_orders)
    setting = small_setting()
    workload = dataclasses.replace(setting.workload, epochs=3)
    setting = dataclasses.replace(setting, workload=workload)
    trace = run(setting, sampler={"chunks_per_partition": 4})
    assert len(trace.epochs) == 3
    assert calls == {"order": 1, "plan": 4}
