"""Modelled epochs of runs that a hand can count: two devices, two layers, one round.

Each formula is written from what the system's paper says it does, in the order in which it must:
critical path, out of the platform's rates. Durations follow HyScale-GNN's Equations 7 to 13:
bytes over a bandwidth after a latency, |E| f s over a memory's bandwidth and two FLOP a
multiply-accumulate after a launch. The graphs are such that both devices do the same: ten vertices
that all know each other, and two groups of five that are joined by one edge.
"""

import dataclasses

import pytest

from gnnbench import plugins
from gnnbench.machines.machine import (
    Device,
    Hardware,
    Link,
    MemoryRates,
    Platform,
    RateCurve,
    TrainerRates,
)
from gnnbench.models import build
from gnnbench.parts import Setting
from gnnbench.price.folds import busy_by_stage, digest, energy
from gnnbench.price.model_clock import ModelClock
from gnnbench.records import Parts, Workload
from gnnbench.run import train
from tests.pins.recording import load_registry
from tests.price.by_hand import F0, F1, F2, MODEL, N, S, V, dataset

pytestmark = pytest.mark.usefixtures("one_thread")

#: Rates and times such that no two terms of a formula are alike.
MEMORY, FLOPS, LAUNCH_S = 7e5, 1.3e6, 3e-4
PCIE, PCIE_S = 1.1e5, 1.7e-3
NVLINK, NVLINK_S = 4.3e5, 1.9e-4
HOST_MEMORY, SAMPLED, CORES = 2.3e5, 1.01e4, 4
GPU_W, HOST_W = 41.0, 97.0


def curve(rate):
    """A rate that is known of all of a step, which Equations 11 and 12 then price."""
    return RateCurve((1,), (rate,), (rate,))


def make_platform(count=2, kind="gpu", faster=()):
    """``faster`` has by how much each device, and its link to the host, is faster than ``one``."""
    times = faster or (1,) * count
    host = Device(
        "host",
        "cpu",
        "a host",
        Hardware(
            flops_per_s=9e5,
            memory_bandwidth_bytes_per_s=HOST_MEMORY,
            memory_bytes=10**9,
            launch_s=2e-4,
            power_w=HOST_W,
        ),
        cores=CORES,
        memory=MemoryRates(core_bandwidth_bytes_per_s=HOST_MEMORY),
        rates=TrainerRates(
            sampled_edges_per_s=SAMPLED,
            gather=curve(HOST_MEMORY),
            aggregate=curve(HOST_MEMORY),
            update=curve(9e5),
        ),
    )
    accelerators = tuple(
        Device(
            f"gpu{number}",
            kind,
            "one",
            Hardware(
                flops_per_s=FLOPS * by,
                memory_bandwidth_bytes_per_s=MEMORY * by,
                memory_bytes=10**9,
                launch_s=LAUNCH_S / by,
                power_w=GPU_W,
            ),
            rates=TrainerRates(aggregate=curve(MEMORY * by), update=curve(FLOPS * by)),
        )
        for number, by in enumerate(times)
    )
    links = [
        Link(f"pcie{number}", ("host", f"gpu{number}"), PCIE * by, PCIE_S)
        for number, by in enumerate(times)
    ]
    if count == 2:
        links.append(Link("nvlink", ("gpu0", "gpu1"), NVLINK, NVLINK_S))
    return Platform("by hand", "made by hand", host, accelerators, tuple(links))


def run(
    parts, graph="complete", *, devices=2, kind="gpu", epochs=1, batch=V, options=None, faster=()
):
    workload = Workload(
        model="gcn", dims=(F0, F1, F2), epochs=epochs, batch_size=batch, fanouts=(V, V), seed=0
    )
    platform = make_platform(devices, kind, faster)
    setting = Setting(dataset(graph), platform, workload, build(workload).shapes)
    bundle = plugins.assemble(load_registry(), parts, options or {})
    trace = train(bundle, setting, ModelClock(setting.platform, bundle.kernel))
    result = digest(trace.epochs[-1], "modelled")
    assert result.stages == busy_by_stage(trace.epochs[-1].spans)
    return result, energy(result.timeline, setting.platform.devices), trace.epochs[-1].bytes


def aggregated(edges, width):
    """Equation 11."""
    return LAUNCH_S + edges * width * S / MEMORY


def updated(rows, width_in, width_out, products=1):
    """Equation 12: so many products with the weights or their transpose."""
    return LAUNCH_S + 2 * rows * width_in * width_out * products / FLOPS


def moved(rows, width):
    return rows * width * S / MEMORY


def over_pcie(rows, width):
    return PCIE_S + rows * width * S / PCIE


def over_nvlink(rows, width):
    return NVLINK_S + rows * width * S / NVLINK


def on_host(rows, width):
    return rows * width * S / HOST_MEMORY


#: A ring of two: each sends 2 (m - 1) / m of the model to the other, both at once.
RING = NVLINK_S + MODEL / NVLINK
#: Adam reads the gradients, the parameters and two moments, and writes all but the gradients.
STEP = 7 * MODEL / MEMORY
#: The loss reads and writes the logits.
LOSS = 2 * moved(N, F2)
#: Edges into a device's five vertices; rows that it reads of the other.
WITHIN_COMPLETE, HALO_COMPLETE = N * (V - 1), N
WITHIN_PAIR, HALO_PAIR = N * (N - 1) + 1, 1


def partition_epoch(edges, halo):
    """At every layer: own rows and then the halo, AGGREGATE, UPDATE; backward UPDATE (two products,
    for the weights and for its input), AGGREGATE, and the halo's gradients go back to rows that
    have been cleared. Nobody wants the features' gradient."""
    forward = sum(
        moved(N, width) + over_nvlink(halo, width) + aggregated(edges, width)
        + updated(N, width, after)
        for width, after in ((F0, F1), (F1, F2))
    )  # fmt: skip
    backward = (
        moved(N, F1)  # cleared
        + updated(N, F1, F2, products=2)
        + aggregated(edges, F1)
        + moved(N, F1)
        + over_nvlink(halo, F1)
        + updated(N, F0, F1)
    )
    return forward + LOSS + backward + RING + STEP


@pytest.mark.parametrize(
    ("graph", "edges", "halo"),
    [("complete", WITHIN_COMPLETE, HALO_COMPLETE), ("pair", WITHIN_PAIR, HALO_PAIR)],
)
def test_partition_parallelism(graph, edges, halo):
    parts = Parts("hongtu-im", "hongtu", "halo", "resident", "torch")
    result, joules, counted = run(parts, graph)
    assert result.epoch_s == pytest.approx(partition_epoch(edges, halo), rel=1e-12)
    links_s = sum(over_nvlink(halo, width) for width in (F0, F1, F1)) + RING
    computing_s = partition_epoch(edges, halo) - links_s - STEP
    assert joules == pytest.approx(GPU_W * (2 * computing_s + STEP), rel=1e-12)
    assert result.stages == pytest.approx(
        {
            "transfer": max(
                sum(over_nvlink(halo, width) for width in (F0, F1, F1)),
                sum(moved(N, width) for width in (F0, F1, F1)),
            ),
            "aggregate": sum(aggregated(edges, width) for width in (F0, F1, F1)) + moved(N, F1),
            "update": LOSS + updated(N, F0, F1) + updated(N, F1, F2)
            + updated(N, F1, F2, products=2) + updated(N, F0, F1),
            "synchronize": max(RING, STEP),
        },
        rel=1e-12,
    )  # fmt: skip
    assert counted["device_to_device"] == 2 * halo * (F0 + F1 + F1) * S
    assert counted["all_reduce"] == 2 * MODEL


def test_broadcasts_move_the_whole_partition():
    """CAGNET's 1D algorithm: of two groups joined by one edge, five rows cross and not one. Which
    vertices a device has is drawn, so that the edges are those of the complete graph."""
    parts = Parts("random", "hongtu", "cagnet", "resident", "torch")
    result, _, counted = run(parts, "complete")
    expected = partition_epoch(WITHIN_COMPLETE, N)
    assert result.epoch_s == pytest.approx(expected, rel=1e-12)
    parts = dataclasses.replace(parts, sampler="hongtu-im")
    result, _, counted = run(parts, "pair")
    assert result.epoch_s == pytest.approx(partition_epoch(WITHIN_PAIR, N), rel=1e-12)
    assert counted["device_to_device"] == 2 * N * (F0 + F1 + F1) * S


@pytest.mark.parametrize(("smoothing", "averaged"), [("none", False), ("both", True)])
def test_pipegcn_waits_for_no_halo(smoothing, averaged):
    """From the second epoch on rows of peers are there: they are taken into the input rows, and
    gradients that have come are added (two reads and a write), which nothing crosses for. To
    average them with those before takes two reads and a write of each as well."""
    parts = Parts("hongtu-im", "hongtu", "pipegcn", "resident", "torch")
    options = {"communication": {"smoothing": smoothing}}
    result, _, _ = run(parts, "pair", epochs=3, options=options)
    taken, added = (3, 6) if averaged else (1, 3)
    forward = sum(
        moved(N, width) + taken * moved(HALO_PAIR, width) + aggregated(WITHIN_PAIR, width)
        + updated(N, width, after)
        for width, after in ((F0, F1), (F1, F2))
    )  # fmt: skip
    backward = (
        moved(N, F1)
        + updated(N, F1, F2, products=2)
        + aggregated(WITHIN_PAIR, F1)
        + moved(N, F1)
        + added * moved(HALO_PAIR, F1)
        + updated(N, F0, F1)
    )
    assert result.epoch_s == pytest.approx(forward + LOSS + backward + RING + STEP, rel=1e-12)


@pytest.mark.parametrize(("rate", "halo"), [(0, 0), (0.9999, HALO_PAIR)])
def test_a_drawn_halo_costs_a_pass_over_the_topology_and_saves_its_rows_and_edges(rate, halo):
    """A device reads its CSR of 32-bit positions and writes the one that is left; all go on when
    every one has. Of two groups joined by one edge, the one row of the halo is drawn or not."""
    parts = Parts("hongtu-im", "hongtu", "bnsgcn", "resident", "torch")
    options = {"communication": {"rate": str(rate)}}
    result, _, counted = run(parts, "pair", options=options)
    edges = WITHIN_PAIR - HALO_PAIR + halo
    drawing = 4 * (N + 1 + WITHIN_PAIR + N + 1 + edges) / MEMORY
    crossing = sum(over_nvlink(1, width) for width in (F0, F1, F1)) if not halo else 0.0
    expected = drawing + partition_epoch(edges, 1) - crossing
    assert result.epoch_s == pytest.approx(expected, rel=1e-12)
    assert result.stages["sample"] == pytest.approx(drawing, rel=1e-12)
    assert counted["device_to_device"] == 2 * halo * (F0 + F1 + F1) * S


def test_all_hops_of_a_part_cost_work_twice_and_no_rows_between_layers():
    """DistDGL, full graph: a device computes layer 1 of all ten vertices, out of features that
    cross once, and no gradient goes back."""
    parts = Parts("multi-hop", "hongtu", "halo", "resident", "torch")
    result, _, counted = run(parts)
    expected = (
        moved(N, F0) + over_nvlink(N, F0)
        + aggregated(V * (V - 1), F0) + updated(V, F0, F1)
        + aggregated(WITHIN_COMPLETE, F1) + updated(N, F1, F2)
        + LOSS
        + updated(N, F1, F2, products=2) + aggregated(WITHIN_COMPLETE, F1)
        + updated(V, F0, F1)
        + RING + STEP
    )  # fmt: skip
    assert result.epoch_s == pytest.approx(expected, rel=1e-12)
    assert counted["device_to_device"] == 2 * N * F0 * S


@pytest.mark.parametrize(("split", "computed", "read"), [("cached", 1, 0), ("auto", 0, 1)])
def test_a_hybrid_computes_the_halo_or_reads_it(split, computed, read):
    """NeutronStar: of two groups joined by one edge, the row of the halo has five in-edges. To
    compute it takes 5 F0 S / MEMORY and two products, 0.25 ms, and to read it and return its
    gradient 2 F1 S / NVLINK, 0.07 ms. Features of others are there, and nothing is copied for the
    first layer."""
    parts = Parts("neutronstar", "hongtu", "halo", "resident", "torch")
    result, _, counted = run(parts, "pair", options={"sampler": {"split": split}})
    crossing = read * (moved(N, F1) + over_nvlink(1, F1))
    expected = (
        aggregated(WITHIN_PAIR + N * computed, F0) + updated(N + computed, F0, F1)
        + crossing + aggregated(WITHIN_PAIR, F1) + updated(N, F1, F2)
        + LOSS
        + read * moved(N, F1) + updated(N, F1, F2, products=2) + aggregated(WITHIN_PAIR, F1)
        + crossing + updated(N + computed, F0, F1)
        + RING + STEP
    )  # fmt: skip
    assert result.epoch_s == pytest.approx(expected, rel=1e-12)
    assert counted["device_to_device"] == 2 * read * 2 * F1 * S


def test_a_hybrid_with_room_for_two_rows_reads_the_other_three():
    """A row of layer 1 has 9 in-edges: it takes 4 bytes for each and for itself, and its aggregate
    and output. What a device has of a layer, two rows of others among it, is copied beside the
    three that it reads; gradients of all are cleared, and theirs added."""
    parts = Parts("neutronstar", "hongtu", "halo", "resident", "torch")
    room = N * F0 * S + 2 * (V * S + (F0 + F1) * S)
    options = {"sampler": {"split": "cached", "spare_bytes": str(room)}}
    result, _, counted = run(parts, options=options)
    computed, crossing = N + 2, moved(N + 2, F1) + over_nvlink(3, F1)
    expected = (
        aggregated(computed * (V - 1), F0) + updated(computed, F0, F1)
        + crossing + aggregated(WITHIN_COMPLETE, F1) + updated(N, F1, F2)
        + LOSS
        + moved(computed, F1) + updated(N, F1, F2, products=2) + aggregated(WITHIN_COMPLETE, F1)
        + crossing + updated(computed, F0, F1)
        + RING + STEP
    )  # fmt: skip
    assert result.epoch_s == pytest.approx(expected, rel=1e-12)
    assert counted["device_to_device"] == 2 * 3 * 2 * F1 * S


def test_one_device_with_the_whole_graph_copies_nothing():
    parts = Parts("full-graph", "single", "none", "resident", "torch")
    result, joules, counted = run(parts, devices=1)
    edges = V * (V - 1)
    expected = (
        aggregated(edges, F0) + updated(V, F0, F1) + aggregated(edges, F1) + updated(V, F1, F2)
        + 2 * moved(V, F2)
        + updated(V, F1, F2, products=2) + aggregated(edges, F1) + updated(V, F0, F1)
        + STEP
    )  # fmt: skip
    assert result.epoch_s == pytest.approx(expected, rel=1e-12)
    assert joules == pytest.approx(GPU_W * expected, rel=1e-12)
    assert not any(counted.values())


def offloaded_epoch(brought, cleared, returned, all_reduce):
    """HongTu's Algorithm 1 with cached aggregates, a chunk a device: ``brought`` is what a layer's
    rows of a width take to come, ``cleared`` and ``returned`` the gradients of the rows below."""
    forward = sum(
        brought(width) + aggregated(WITHIN_COMPLETE, width) + updated(N, width, after)
        + over_pcie(N, after) + over_pcie(N, width)
        for width, after in ((F0, F1), (F1, F2))
    )  # fmt: skip
    loss = 2 * on_host(V, F2)
    upper = (
        on_host(V, F1)  # cleared on the host
        + cleared(F1)
        + over_pcie(N, F2) + over_pcie(N, F1)
        + updated(N, F1, F2) + updated(N, F1, F2, products=2)
        + aggregated(WITHIN_COMPLETE, F1)
        + returned(F1)
    )  # fmt: skip
    lower = over_pcie(N, F1) + over_pcie(N, F0) + 2 * updated(N, F0, F1)
    return forward + loss + upper + lower + all_reduce + STEP


def test_hongtu_deduplicated():
    """Algorithms 2 and 3: a device brings the rows of its partition and copies the others from its
    peer; gradients go the same ways, and the CPU adds them, one device's after the other's."""
    parts = Parts("hongtu", "hongtu", "hongtu", "hongtu", "torch")
    options = {"sampler": {"chunks_per_partition": "1"}, "memory": {"topology": "device"}}
    result, joules, counted = run(parts, options=options)
    expected = offloaded_epoch(
        brought=lambda f: over_pcie(N, f) + over_nvlink(N, f),
        cleared=lambda f: moved(V, f),
        # Pushed, gathered in the device's memory, sent, and added: two reads and a write each.
        returned=lambda f: (
            over_nvlink(N, f) + moved(N, f) + over_pcie(N, f) + 2 * 3 * on_host(N, f)
        ),
        all_reduce=RING,
    )
    assert result.epoch_s == pytest.approx(expected, rel=1e-12)
    assert counted["host_to_device"] == 2 * N * (F0 + F1 + F2 + F1 + F1 + F0) * S
    assert counted["device_to_host"] == 2 * N * (F1 + F0 + F2 + F1 + F1) * S
    host_s = 2 * on_host(V, F2) + on_host(V, F1) + 2 * 3 * on_host(N, F1)
    device_s = (
        sum(
            aggregated(WITHIN_COMPLETE, width) + updated(N, width, after)
            for width, after in ((F0, F1), (F1, F2))
        )
        + moved(V, F1) + updated(N, F1, F2) + updated(N, F1, F2, products=2)
        + aggregated(WITHIN_COMPLETE, F1) + moved(N, F1)
        + 2 * updated(N, F0, F1)
    )  # fmt: skip
    expected_j = HOST_W * host_s + GPU_W * (2 * device_s + STEP)
    assert joules == pytest.approx(expected_j, rel=1e-12)
    recomputed = updated(N, F1, F2) + updated(N, F0, F1)
    assert result.stages["recompute"] == pytest.approx(recomputed, rel=1e-12)
    out = (F1, F0, F2, F1, F1)
    assert result.stages["offload"] == pytest.approx(
        max(sum(over_pcie(N, width) for width in out), on_host(V, F1) + 6 * on_host(N, F1)),
        rel=1e-12,
    )
    assert counted["device_to_device"] == 2 * N * (F0 + F1 + F1) * S


def test_hongtu_without_deduplication():
    """Every device brings all that it reads over its own link, and returns gradients of as much;
    gradients of the weights meet on the host."""
    parts = Parts("hongtu", "hongtu", "vanilla", "hongtu", "torch")
    options = {"sampler": {"chunks_per_partition": "1"}, "memory": {"topology": "device"}}
    result, _, counted = run(parts, options=options)
    expected = offloaded_epoch(
        brought=lambda f: over_pcie(V, f),
        cleared=lambda f: 0.0,
        returned=lambda f: over_pcie(V, f) + 2 * 3 * on_host(V, f),
        all_reduce=PCIE_S + 2 * MODEL / PCIE,
    )
    assert result.epoch_s == pytest.approx(expected, rel=1e-12)
    assert counted["device_to_device"] == 0
    # A topology on the host crosses for each pass that aggregates: a CSR, with a factor of each
    # source and two of each destination; backward also its transpose and its edges' positions.
    options = {"sampler": {"chunks_per_partition": "1"}, "memory": {"topology": "host"}}
    _, _, crossing = run(parts, options=options)
    csr = 4 * (N + 1 + WITHIN_COMPLETE) + (V + 2 * N) * S
    transpose = 4 * (V + 1) + 2 * 4 * WITHIN_COMPLETE
    more = crossing["host_to_device"] - counted["host_to_device"]
    assert more == 2 * (3 * csr + transpose)


def test_mixgcn_in_one_round():
    """Algorithm 2: half of the columns of all rows are aggregated on each device, and all columns
    of half of the rows updated; of what is exchanged a device keeps half. The ring has two steps
    of half of the model."""
    parts = Parts("mixgcn", "mixgcn", "mixgcn", "resident", "torch")
    result, _, counted = run(parts, options={"sampler": {"schedule": "naive"}})
    edges = V * (V - 1)
    expected = (
        aggregated(edges, F0 / 2) + over_nvlink(N, F0 / 2) + updated(N, F0, F1)
        + over_nvlink(N, F1 / 2)
        + aggregated(edges, F1 / 2) + over_nvlink(N, F1 / 2) + updated(N, F1, F2)
        + LOSS
        + updated(N, F1, F2, products=2) + over_nvlink(N, F1 / 2) + aggregated(edges, F1 / 2)
        + over_nvlink(N, F1 / 2)
        + updated(N, F0, F1)
        + 2 * (NVLINK_S + (MODEL / 2 + 2) / NVLINK)  # 43 numbers: 22 and 21
        + STEP
    )  # fmt: skip
    assert result.epoch_s == pytest.approx(expected, rel=1e-12)
    assert counted["all_to_all"] == 2 * N * (F0 + 4 * F1) / 2 * S
    assert counted["all_reduce"] == 2 * MODEL


def drawn(seeds):
    """Edges of both layers: every vertex has nine neighbours, all of which are drawn."""
    return seeds * (V - 1) + V * (V - 1)


def topology_bytes(rows):
    """Of a layer's CSR with 32-bit offsets and columns."""
    return 4 * (rows + 1) + 4 * rows * (V - 1)


def trained(seeds):
    """A trainer's forward and backward pass: layer 1 has all ten vertices, layer 2 the seeds."""
    return (
        aggregated(V * (V - 1), F0) + updated(V, F0, F1)
        + aggregated(seeds * (V - 1), F1) + updated(seeds, F1, F2)
        + LAUNCH_S + 2 * seeds * F2 / FLOPS
        + updated(seeds, F1, F2, products=2) + aggregated(seeds * (V - 1), F1)
        + updated(V, F0, F1)
    )  # fmt: skip


def test_a_mini_batch_on_one_device():
    """Equations 7, 8, 11 and 12, one after the other: draw, load, transfer, train, step."""
    parts = Parts("neighbour", "single", "vanilla", "host", "torch")
    result, _, _ = run(parts, devices=1)
    expected = (
        drawn(V) / (SAMPLED * CORES)
        + on_host(V, F0)
        + PCIE_S + (V * F0 * S + 2 * topology_bytes(V)) / PCIE
        + trained(V)
        + STEP
    )  # fmt: skip
    assert result.epoch_s == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("faster", [(1, 1), (2, 1), (1, 3)])
def test_a_mini_batch_on_two_devices(faster):
    """The host draws both mini-batches and loads for both; links and devices work at once, and the
    slower of these is waited for; the synchroniser gathers over the links, averages two gradients
    into one, takes a step, and sends the average back (Equation 13)."""
    parts = Parts("neighbour", "data-parallel", "vanilla", "host", "torch")
    result, joules, counted = run(parts, faster=faster)
    crossing = V * F0 * S + topology_bytes(V) + topology_bytes(N)
    expected = (
        2 * drawn(N) / (SAMPLED * CORES)
        + 2 * on_host(V, F0)
        + PCIE_S + crossing / PCIE
        + trained(N)
        + PCIE_S + MODEL / PCIE
        + (2 + 1 + 7) * MODEL / HOST_MEMORY
        + PCIE_S + MODEL / PCIE
    )  # fmt: skip
    assert result.epoch_s == pytest.approx(expected, rel=1e-12)
    host_s = 2 * drawn(N) / (SAMPLED * CORES) + 2 * on_host(V, F0) + 10 * MODEL / HOST_MEMORY
    devices_s = sum(trained(N) / by for by in faster)
    assert joules == pytest.approx(HOST_W * host_s + GPU_W * devices_s, rel=1e-12)
    assert counted["host_to_device"] == 2 * crossing
    assert counted["all_reduce"] == 4 * MODEL


@pytest.mark.parametrize(("stages", "under_way"), [(0, 1), (1, 3), (2, 4)])
def test_five_rounds_in_the_pipeline(stages, under_way):
    """HyScale-GNN, Figure 7: a stage begins a round when it is done with the one before and the
    stage before it with this one. A round is let in when the one ``under_way`` before it has been
    trained on, and rows go to one of two buffers; with one stage, loading and transfer are one."""
    parts = Parts("neighbour", "data-parallel", "hyscale", "host", "torch")
    options = {"communication": {"stages": str(stages)}}
    result, _, _ = run(parts, devices=1, batch=2, options=options)
    sample_s = drawn(2) / (SAMPLED * CORES)
    load_s = on_host(V, F0)
    transfer_s = PCIE_S + (V * F0 * S + topology_bytes(V) + topology_bytes(2)) / PCIE
    train_s = trained(2) + STEP
    sampled, loaded, sent, trained_at = [0.0], [0.0], [0.0], [0.0] * under_way
    for number in range(5):
        begin_s = max(sampled[-1], trained_at[number])
        sampled.append(begin_s + sample_s)
        begin_s = max(sampled[-1], loaded[-1], sent[-1] if stages == 1 else 0.0)
        loaded.append(begin_s + load_s)
        free_s = trained_at[-2] if stages else 0.0
        begin_s = max(loaded[-1], sent[-1], free_s)
        sent.append(begin_s + transfer_s)
        trained_at.append(max(sent[-1], trained_at[-1]) + train_s)
    assert result.epoch_s == pytest.approx(trained_at[-1], rel=1e-12)
    alone_s = 5 * (sample_s + load_s + transfer_s + train_s)
    assert (result.epoch_s < 0.8 * alone_s) == (stages > 0)


SALIENT = Parts("salient", "data-parallel", "salient", "salient", "torch")


@pytest.mark.parametrize(("workers", "pipelined"), [(1, True), (2, False), (4, True)])
def test_threads_that_prepare_a_whole_mini_batch_each(workers, pipelined):
    """SALIENT: a thread draws and loads a round while others do so for the rounds after, all out
    of one memory. One mini-batch crosses while the one before is trained on, or none does; as many
    rounds as threads are let in beside these."""
    options = {
        "sampler": {"workers": str(workers)},
        "communication": {"pipelined": str(pipelined).lower()},
    }
    result, _, _ = run(SALIENT, devices=1, batch=2, options=options)
    prepare_s = drawn(2) / SAMPLED + workers * on_host(V, F0)
    transfer_s = PCIE_S + (V * F0 * S + topology_bytes(V) + topology_bytes(2)) / PCIE
    train_s = trained(2) + STEP
    buffers = 2 if pipelined else 1
    done, sent, trained_at = [0.0] * workers, 0.0, [0.0] * (workers + buffers)
    for number in range(5):
        done[number % workers] = max(done[number % workers], trained_at[number]) + prepare_s
        sent = max(done[number % workers], sent, trained_at[-buffers]) + transfer_s
        trained_at.append(max(sent, trained_at[-1]) + train_s)
    assert result.epoch_s == pytest.approx(trained_at[-1], rel=1e-12)
    alone_s = 5 * (prepare_s + transfer_s + train_s)
    assert result.epoch_s < 0.8 * alone_s


@pytest.mark.parametrize(("precision", "size"), [("full", S), ("half", 2)])
def test_salient_on_two_devices(precision, size):
    """Each has two of the four cores, which share the host's memory with the other two. In half
    precision rows are read, and cross, in half of the bytes, and are made whole on the device. The
    gradients go round a ring, and each device takes its own step."""
    result, _, counted = run(SALIENT, options={"communication": {"precision": precision}})
    crossing = V * F0 * size + topology_bytes(V) + topology_bytes(N)
    expected = (
        drawn(N) / SAMPLED
        + CORES * on_host(V, F0) * size / S
        + PCIE_S + crossing / PCIE
        + (moved(V, F0) if precision == "half" else 0)
        + trained(N)
        + RING
        + STEP
    )  # fmt: skip
    assert result.epoch_s == pytest.approx(expected, rel=1e-12)
    assert counted["host_to_device"] == 2 * crossing
    assert counted["all_reduce"] == 2 * MODEL


def test_a_mini_batch_whose_features_are_on_the_device():
    parts = Parts("neighbour", "single", "none", "resident", "torch")
    result, _, counted = run(parts, devices=1)
    expected = (
        drawn(V) / (SAMPLED * CORES)
        + PCIE_S + 2 * topology_bytes(V) / PCIE
        + moved(V, F0)
        + trained(V)
        + STEP
    )  # fmt: skip
    assert result.epoch_s == pytest.approx(expected, rel=1e-12)
    assert result.stages["load"] == pytest.approx(moved(V, F0))
    assert counted["host_to_device"] == 2 * topology_bytes(V)


def test_p3_pushes_and_pulls():
    """Each device picks and aggregates half of the columns for both mini-batches and multiplies
    them by its rows of W; products of the hidden width cross, are summed, and training goes on from
    there. Backward, their gradient goes to both, each of which has that of its rows of W. A step is
    of the other layers' parameters and of one device's rows of W."""
    parts = Parts("neighbour", "p3", "p3", "resident", "torch")
    result, _, counted = run(parts)
    blocks = 2 * topology_bytes(V) + topology_bytes(N)  # its own two, and the other's first
    product = LAUNCH_S + 2 * V * (F0 / 2) * F1 / FLOPS
    crossing = over_nvlink(V, F1)
    columns = moved(V, F0 / 2) + aggregated(V * (V - 1), F0 / 2) + product
    rest = LAUNCH_S  # ReLU and bias have no products
    # Device 0 sums the first mini-batch's products before its product for the second, which then
    # crosses and is summed by device 1; its gradient crosses back.
    summed = moved(V, 3 * F1)  # two are read, one is written
    pushed = 2 * columns + summed + crossing + summed
    pulled = (
        rest
        + aggregated(N * (V - 1), F1) + updated(N, F1, F2)
        + LAUNCH_S + 2 * N * F2 / FLOPS
        + updated(N, F1, F2, products=2) + aggregated(N * (V - 1), F1)
        + rest
    )  # fmt: skip
    averaged = MODEL - F0 * F1 * S
    stepped = averaged + F0 * F1 * S / 2
    step = 2 * (PCIE_S + averaged / PCIE) + (3 * averaged + 7 * stepped) / HOST_MEMORY
    drawing = 2 * drawn(N) / (SAMPLED * CORES)
    before = drawing + PCIE_S + blocks / PCIE
    expected = before + pushed + pulled + crossing + product + step
    assert result.epoch_s == pytest.approx(expected, rel=1e-12)
    assert counted["all_to_all"] == 2 * 2 * V * F1 * S
    assert counted["all_reduce"] == 4 * averaged
    assert counted["host_to_device"] == 2 * blocks
    assert result.stages["load"] == pytest.approx(2 * moved(V, F0 / 2))
    # An FPGA reads its columns where they lie.
    on_fpga, _, _ = run(parts, kind="fpga")
    assert on_fpga.stages["load"] == 0.0
