"""Sizes without a run: by hand, and against what the engine's ledger says."""

import dataclasses

import pytest
import torch

from gnnbench import plugins
from gnnbench.check.graphs import make_dataset, make_workload
from gnnbench.lowering import footprint
from gnnbench.lowering.capacity import plan_rounds
from gnnbench.lowering.footprint import ChunkSize, HostTensor, choose_spilled
from gnnbench.lowering.movement import largest_buffers
from gnnbench.lowering.working_sets import WorkingSets
from gnnbench.models import MODELS, build
from gnnbench.parts import Bundle, EdgeValues, FactorCounts, Kernel, LayerShape, Setting
from gnnbench.price.model_clock import ModelClock
from gnnbench.records import BlockSize, Parts
from gnnbench.run import train
from gnnbench_plugins.hongtu.communication import HongTuCommunication
from gnnbench_plugins.hongtu.memory import CachingMemory, HongTuMemory, RecomputingMemory
from gnnbench_plugins.hongtu.placement import HongTuPlacement
from gnnbench_plugins.hongtu.sampler import HongTuSampler
from gnnbench_plugins.reference.kernel import TorchKernel
from tests.pins.recording import load_registry
from tests.uneven import make_uneven

pytestmark = pytest.mark.usefixtures("one_thread")

GCN = LayerShape(100, 16, 100, 1616, 1600, cacheable=True)
GAT = LayerShape(100, 16, 16, 1664, 0, cacheable=False, on_edges=EdgeValues(2, 2))
CHUNK = ChunkSize(num_src=50, num_dst=20, num_edges=200, relayed=5, transition=3)


class ApartKernel(TorchKernel):
    """As a library's that makes every product anew."""

    adds_in_place = False


class SendingKernel(TorchKernel):
    """As a library's that writes a message for each edge where its weight is trained."""

    aggregation = dataclasses.replace(TorchKernel.aggregation, trained_messages=True)


def make_sets(shape, memory, itemsize=4, kernel=None):
    """Of two equal layers of which the first has no gradients of its input rows."""
    parts = (HongTuSampler(), HongTuPlacement(), HongTuCommunication(), memory)
    return WorkingSets(Bundle(*parts, kernel or TorchKernel()), (shape, shape), itemsize)


def test_a_gcn_chunk_by_hand():
    """Rows of the buffer, then a^l and h^{l+1} of the destinations; backward their gradients, that
    of h^{l+1} before ReLU and behind it, and nobody's of a^1."""
    rows, made = (50 + 5 + 3) * 100, 20 * (100 + 16)
    gradients = {True: 20 * 2 * 16, False: 20 * (2 * 16 + 100)}
    for memory, buffers in ((HongTuMemory(), (0, 1)), (RecomputingMemory(), (1, 2))):
        sizes = [
            4 * (made + gradients[first] + count * rows)
            for first, count in zip((True, False), buffers, strict=True)
        ]
        forward = 4 * (rows + made)
        found = list(make_sets(GCN, memory).follow(CHUNK))
        assert found == [forward, sizes[0], forward, sizes[1]]
        apart = list(make_sets(GCN, memory, kernel=ApartKernel()).follow(CHUNK))
        assert apart == [*found[:3], found[3] + 4 * 55 * 100]
        sets = make_sets(GCN, memory)
        parameters = 2 * 1616 * 4
        kept = 2 * parameters + 3 * footprint.adjacency_bytes([GCN], CHUNK, 4, TorchKernel())
        assert (
            sets.device_bytes([CHUNK] * 3) == kept + max(found) == kept + sets.most_bytes([CHUNK])
        )
    alone = dataclasses.replace(CHUNK, buffered=False)
    assert not footprint.adds_apart(GCN, alone, ApartKernel())


def test_what_is_between_the_products_of_update_counts_too():
    gin = dataclasses.replace(GCN, hidden_features=16)
    for measure in (
        lambda shape: footprint.intermediate_bytes(shape, CHUNK, 4),
        lambda shape: footprint.gradient_bytes(shape, CHUNK, 4, first=True),
    ):
        assert measure(gin) == measure(GCN) + 4 * 20 * 16


def test_rows_cross_a_mebibyte_or_an_eighth_of_a_buffer_at_a_time():
    assert footprint.staged_rows(80, 400) == 10
    assert footprint.staged_rows(10**6, 400) == 2**20 // 400
    assert footprint.staged_rows(3, 2**21) == 1
    assert footprint.staging_bytes(55, 400) == 7 * 400
    assert footprint.staging_bytes(0, 400) == 0
    # Where next to nothing is made of many rows, those that cross are the most beside a buffer.
    wide = dataclasses.replace(CHUNK, num_dst=0, num_edges=0)
    forward, *_ = make_sets(GCN, HongTuMemory()).follow(wide)
    assert forward == 400 * (50 + 5 + 3 + 7)


def test_an_attention_chunk_by_hand():
    """W h of every row besides, and two values an edge, self loops included; backward the gradients
    of a projected row's uses are added up."""
    rows, values, made = 58 * 100, 2 * 220, 20 * (16 + 16) + 55 * 16 + 2 * 220
    assert footprint.intermediate_bytes(GAT, CHUNK, 8) == 8 * made
    assert footprint.saved_bytes(GAT, CHUNK, 8) == 8 * (made + (55 + 20) * 100)
    gradients = 20 * 3 * 16 + values + (2 * 55 - 20) * 16
    assert footprint.gradient_bytes(GAT, CHUNK, 8, first=False) == 8 * gradients
    *_, offloaded = make_sets(GAT, CachingMemory(), itemsize=8).follow(CHUNK)
    # The restored rows, the gradients' buffers, and one of autograd's to be added to them.
    assert offloaded == 8 * (made + gradients + 2 * 55 * 100 + rows)


def test_messages_of_attention_by_hand():
    """A row of 16 for each of 200 edges and 20 self loops: kept, weighted once more while they are
    added up, and going back three times more."""
    sends = dataclasses.replace(GAT, on_edges=EdgeValues(2, 2, messages=16))
    rows = 8 * 220 * 16
    assert footprint.message_bytes(GAT, CHUNK, 8) == 0
    assert footprint.message_bytes(sends, CHUNK, 8) == rows
    for more, measure in (
        (1, lambda shape: footprint.intermediate_bytes(shape, CHUNK, 8)),
        (3, lambda shape: footprint.gradient_bytes(shape, CHUNK, 8, first=False)),
        (1, lambda shape: flight_of(shape, backward=False)),
        (3, lambda shape: flight_of(shape, backward=True)),
        (4, lambda shape: sum(footprint.layer_bytes(shape, CHUNK, 8, first=True))),
    ):
        assert measure(sends) == measure(GAT) + more * rows
    fused, sent = (
        [*make_sets(sends, HongTuMemory(), 8, kernel).follow(CHUNK)][-2:]
        for kernel in (TorchKernel(), SendingKernel())
    )
    assert [after - before for before, after in zip(fused, sent, strict=True)] == [
        2 * rows,
        4 * rows,
    ]


def flight_of(shape, *, backward):
    return footprint.in_flight_bytes(
        shape, CHUNK, (20, 50), 8, backward=backward, first=True, copied=False
    )


def test_adjacencies_are_the_kernels_and_shared_by_layers():
    """GCN's values are its coefficients; attention has an edge more for every destination, and the
    ends of each edge in 64 bits."""
    chunk = dataclasses.replace(CHUNK, buffered=False)
    base = 4 * (21 + 56 + 2 * 200)
    assert Kernel.adjacency_bytes(TorchKernel(), BlockSize(55, 20, 200), GCN, 4) == base
    gcn = dataclasses.replace(GCN, factors=FactorCounts(1, 2))
    torch_bytes = base + 8 * 200 + 4 * 20
    assert footprint.adjacency_bytes([GCN], chunk, 4, TorchKernel()) == torch_bytes
    factors = 4 * (55 + 2 * 20)
    assert footprint.adjacency_bytes([GCN, gcn], chunk, 4, TorchKernel()) == torch_bytes + factors
    assert footprint.adjacency_bytes([GCN], CHUNK, 4, TorchKernel()) == torch_bytes + 4 * 20
    attention = base + 8 * 20 + 8 * 220 + 4 * 20 + 16 * 220 + 8 * 21
    assert footprint.adjacency_bytes([GAT], chunk, 4, TorchKernel()) == attention


def test_values_on_edges_are_on_self_loops_where_a_layer_adds_them():
    """GAT attends to the destination itself; GGCN multiplies it by a matrix of its own."""
    shapes = {
        name: TorchKernel().shape_of(
            MODELS[name](8, 4, activation=True, generator=torch.Generator()).shape
        )
        for name in ("gat", "ggcn")
    }
    edges = {name: shape.on_edges.kept for name, shape in shapes.items()}
    loops = {name: shape.on_edges.of_loops for name, shape in shapes.items()}
    assert (edges, loops) == ({"gat": 2, "ggcn": 8}, {"gat": 2, "ggcn": 0})
    for name, shape in shapes.items():
        without = dataclasses.replace(shape, on_edges=EdgeValues(messages=shape.on_edges.messages))
        more = footprint.intermediate_bytes(shape, CHUNK, 4) - footprint.intermediate_bytes(
            without, CHUNK, 4
        )
        assert more == 4 * (200 * edges[name] + 20 * loops[name])


def host_tensors(policies, own_features=False):
    shapes = [dataclasses.replace(GCN, in_features=8, out_features=8)] * (len(policies) - 1)
    shapes.append(dataclasses.replace(GCN, in_features=8, out_features=3))
    return footprint.host_tensors(
        shapes, policies, num_vertices=10, num_sources=25, num_edges=40, itemsize=4,
        own_features=own_features,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("layers", "gradients"),
    [
        (1, {"gradients of layer 1": 3}),
        (2, {"gradients of layer 2": 3, "gradients of layer 1": 8}),
        (3, {"gradients of layers 1, 3": 8, "gradients of layer 2": 8}),
        (4, {"gradients of layers 2, 4": 8, "gradients of layers 1, 3": 8}),
    ],
)
def test_two_gradient_buffers_serve_all_layers(layers, gradients):
    found = host_tensors(["recompute"] * layers)
    widths = {each.name: each.size_bytes // 40 for each in found if each.kind == "gradients"}
    assert widths == gradients
    assert HostTensor("features", "representations", (0,), 8).name == "representations of layer 0"


def test_what_is_touched_least_often_is_spilled_first():
    tensors = host_tensors(["cache", "cache", "cache"], own_features=True)
    total = sum(each.size_bytes for each in tensors)
    order = []
    for budget in range(total, -1, -1):
        for each in choose_spilled(tensors, budget):
            if each.kind not in order:
                order.append(each.kind)
    assert order == ["intermediates", "representations", "gradients", "features"]


@pytest.mark.parametrize("budget_bytes", [0, 1, 320, 1000, 2000, 10**6])
def test_what_is_not_spilled_fits_and_nothing_is_spilled_for_nothing(budget_bytes):
    tensors = host_tensors(["cache", "recompute", "cache"])
    spilled = choose_spilled(tensors, budget_bytes)
    kept_bytes = sum(each.size_bytes for each in tensors if each not in spilled)
    assert kept_bytes <= budget_bytes
    assert all(kept_bytes + each.size_bytes > budget_bytes for each in spilled)


MEMORIES = ("hongtu", "hongtu-recompute", "hongtu-cache")


@pytest.mark.parametrize(
    ("model", "communication", "in_place", "topology"),
    [
        *((model, "hongtu", True, "device") for model in ("gcn", "gat")),
        *((model, "hongtu", False, "host") for model in ("gcn", "gat")),
        *((model, "vanilla", True, "host") for model in ("gcn", "gat")),
        *((model, "hongtu", True, "host") for model in ("sage", "gin", "ggcn")),
    ],
)
@pytest.mark.parametrize("memory", MEMORIES)
def test_a_run_holds_what_its_plan_says(
    model, memory, communication, in_place, topology, monkeypatch
):
    monkeypatch.setattr(TorchKernel, "adds_in_place", in_place)
    workload = make_workload(model, num_layers=3, epochs=1)
    layers = build(workload).shapes
    setting = Setting(make_dataset(), make_uneven(3), workload, layers)
    bundle = plugins.assemble(
        load_registry(),
        Parts("hongtu", "hongtu", communication, memory, "torch"),
        {"sampler": {"chunks_per_partition": "4"}, "memory": {"topology": topology}},
    )
    trace = train(bundle, setting, ModelClock(setting.platform, bundle.kernel))

    bundle = bundle.begin(setting)
    cut = bundle.sampler.chunks(setting, 3)
    rounds, traffic = cut.rounds, plan_rounds(bundle.communication.open(cut.owner), cut.rounds)
    rows = largest_buffers(traffic) if bundle.shares_rows else {}
    policies = [bundle.memory.intermediates(shape) for shape in layers]
    units = [unit for round_ in rounds for unit in round_.units]
    for slot in range(3):
        chunks = [
            footprint.size_of(unit.blocks[0], rows.get(slot)) for unit in units if unit.slot == slot
        ]
        sets = WorkingSets(bundle, layers, workload.itemsize)
        assert trace.peak_bytes[f"gpu{slot}"] == sets.device_bytes(chunks)

    sizes = [footprint.size_of(unit.blocks[0], rows.get(unit.slot)) for unit in units]
    tensors = footprint.host_tensors(
        layers, policies, num_vertices=60, num_sources=sum(chunk.rows for chunk in sizes),
        num_edges=sum(chunk.num_edges for chunk in sizes), itemsize=workload.itemsize,
        own_features=True,
    )  # fmt: skip
    graph = setting.dataset.graph
    fixed = graph.indptr.nbytes + graph.indices.nbytes + 60 * (7 * 8 + 11)
    fixed += 3 * setting.parameter_bytes
    planned = fixed + sum(each.size_bytes for each in tensors)
    held = trace.peak_bytes["host"]
    # Saved intermediates are planned at the most that they can be.
    assert held == planned if "offload" not in policies else held <= planned
