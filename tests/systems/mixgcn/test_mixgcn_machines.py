"""MixGCN's sparse accelerator, its rivals, Figure 12 and Table 3."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnbench import plugins
from gnnbench.comparison import PlannedRow, Request, compare
from gnnbench.datasets import standins
from gnnbench.datasets.synthetic import make_sbm
from gnnbench.kernels.dispatch import SparseMatrix, induce_block, pack_mask, spmm, transpose
from gnnbench.kernels.dispatch.checks import MaskArray
from gnnbench.kernels.reference.spmm import ReductionEngine
from gnnbench.machines import load_platform
from gnnbench.machines.tables import replace_fields
from gnnbench.records import AggregateWork, Block, Parts, RunResult, Workload
from gnnbench.reproduce.agreement import find_error, measure_agreement
from gnnbench_plugins.mixgcn.kernel import SpuKernel, make_spu
from gnnbench_plugins.mixgcn.machines import (
    Machine,
    Spu,
    Sram,
    choose_slice,
    list_tiles,
    order_steps,
    plan_slice,
)
from gnnbench_plugins.studies.mixgcn import accelerators
from gnnbench_plugins.studies.mixgcn.leads import Epoch
from gnnbench_plugins.studies.mixgcn.rivals import AwbGcn, Cpu, HyGcn, tune_columns

#: 1 byte a cycle, and buffers of whose halves hold 32 features.
SLOW = 10**9
SMALL = Sram(256, 256, 256, 256)
ENGINE = ReductionEngine(lanes=2, lane_adders=4, fill_words=1, local_words=2, banks=4)
SPU = Spu(
    clock_hz=SLOW,
    bandwidth_bytes_per_s=SLOW,
    sram=SMALL,
    engine=ENGINE,
    decoded_edges=100,
    latency_cycles=3,
)
HYGCN = HyGcn(clock_hz=SLOW, bandwidth_bytes_per_s=SLOW, sram=SMALL, cores=2, simd_lanes=4)
AWB = AwbGcn(clock_hz=SLOW, bandwidth_bytes_per_s=SLOW, sram=SMALL, elements=2, hops=0)


def make_matrix(rows: list[list[int]], num_src: int) -> SparseMatrix:
    indptr = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum([len(row) for row in rows], out=indptr[1:])
    indices = np.array([u for row in rows for u in row], dtype=np.int32)
    return SparseMatrix(indptr, indices, num_src)


def cycles_of(machine: Machine, matrix: SparseMatrix, width: int, mask: MaskArray | None) -> float:
    return machine.run(matrix, width, mask).seconds * SLOW


def test_steps_go_tile_by_tile_and_slice_by_slice():
    matrix = make_matrix([[0, 1], [1, 2], [], [0]], 3)
    order = order_steps(spmm.cut_chunks(matrix, 1, 1), 2)
    assert order.tile.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 3]
    assert order.slice.tolist() == [0, 0, 1, 1, 0, 0, 1, 1, 0, 1, 0, 1]
    assert order.chunk.tolist() == [0, 1, 0, 1, 2, 3, 2, 3, -1, -1, 4, 4]
    assert order.opens.tolist() == [True, False] * 4 + [True] * 4
    assert order.closes.tolist() == [False, True] * 4 + [True] * 4


def test_spu_by_hand():
    """Two destinations of 8 features read three rows: one tile, one chunk, one slice.

    Loads 3 rows of 32 bytes, 4 edges and 3 pointers of 4, and 2 bytes of mask: 126 cycles. Pieces
    of 2 edges: with 8 and 4 wanted, 16 / 4 = 4 and 8 / 4 = 2 cycles side by side. Writes 12
    values, 48 cycles. The way through the machine: 3.
    """
    matrix = make_matrix([[0, 1], [1, 2]], 3)
    wanted = np.ones((2, 8), dtype=np.bool_)
    wanted[1, ::2] = False
    result = SPU.run(matrix, 8, pack_mask(wanted))
    assert result.bytes == {"features": 96, "adjacency": 28, "mask": 2, "outputs": 48}
    assert result.seconds * SLOW == pytest.approx(126 + 4 + 48 + 3, rel=1e-12)
    assert result.adds == 2 * 8 + 2 * 4
    assert result.occupancy == pytest.approx(24 / (8 * 181))
    # 24 additions, each with 4 bytes of a buffer, and 174 bytes through the memory and a buffer.
    joules = 24 * 0.9e-12 + (24 * 4 + 174) * 12.5e-12 + 174 * 162.5e-12
    assert result.energy_j == pytest.approx(joules)
    # Everything wanted: no mask to read, 4 more values to write, both pieces 4 cycles.
    assert cycles_of(SPU, matrix, 8, None) == pytest.approx(124 + 4 + 64 + 3)


def test_spu_in_two_chunks():
    """Half of the node buffer holds 4 rows of 32 bytes; the destination reads six."""
    matrix = make_matrix([[0, 1, 2, 3, 4, 5]], 6)
    result = SPU.run(matrix, 8)
    # Chunks of 4 and 2 rows: 128 + 16 + 8 and 64 + 8 + 8 bytes; 2 pieces of 2 edges on two lanes
    # take 4 cycles beside the second load, and 1 piece 4 more; 32 bytes of outputs.
    assert result.bytes["features"] == 192
    assert result.bytes["adjacency"] == 40
    assert result.seconds * SLOW == pytest.approx(152 + 80 + 4 + 32 + 3)


def test_spu_passes_over_what_is_not_wanted():
    matrix = make_matrix([[0, 1], [1, 2]], 3)
    result = SPU.run(matrix, 8, pack_mask(np.zeros((2, 8), dtype=np.bool_)))
    assert result.bytes == {"features": 0, "adjacency": 0, "mask": 2, "outputs": 0}
    assert result.adds == 0
    assert result.seconds * SLOW == pytest.approx(2 + 3)


def test_hygcn_by_hand():
    """The same rows without a mask: 4 edges of 8 / 4 core-cycles on two cores."""
    matrix = make_matrix([[0, 1], [1, 2]], 3)
    result = HYGCN.run(matrix, 8, pack_mask(np.zeros((2, 8), dtype=np.bool_)))
    assert result.bytes == {"features": 96, "adjacency": 28, "outputs": 64}
    assert result.seconds * SLOW == pytest.approx(124 + 4 + 64)
    # A window of three rows loads the row between two that are read.
    apart = make_matrix([[0, 2]], 3)
    assert HYGCN.run(apart, 8).bytes["features"] == 64
    assert replace(HYGCN, window_rows=3).run(apart, 8).bytes["features"] == 96


def test_awb_gcn_by_hand():
    """Columns stream one after the other; 3 and 1 edges on two units, no smoothing."""
    # The first column takes 3 cycles; then both units have 2.
    assert tune_columns(np.array([3, 1]), 2, 0, 4).tolist() == [3, 2, 2, 2]
    # Smoothing over a ring of three evens it out at once.
    assert tune_columns(np.array([3, 2, 1]), 3, 1, 2).tolist() == [2, 2]
    # Rows go round the units: 1 + 4 and 2 + 0.
    assert tune_columns(np.array([1, 2, 4, 0]), 2, 0, 1).tolist() == [5]
    matrix = make_matrix([[0, 1, 2], [1]], 3)
    result = replace(AWB, tiled=False).run(matrix, 2)
    # Column by column: 3 rows of 4 bytes each; 4 edges and 4 pointers, which stay for the second.
    # The columns take 3 and 2 cycles beside the loads, and 8 bytes are written behind for each.
    assert result.bytes == {"features": 24, "adjacency": 32, "outputs": 16}
    assert result.seconds * SLOW == pytest.approx(12 + 32 + 12 + 8 + 8)


def test_smoothing_keeps_all_work():
    random = np.random.default_rng(0)
    degrees = random.integers(0, 50, 200)
    cycles = tune_columns(degrees, 16, 2, 40)
    assert (np.diff(cycles) <= 0).all()
    # Never less than an even share, and close to it once tuned.
    assert -(-degrees.sum() // 16) <= cycles[-1] <= 1.1 * degrees.sum() / 16


def test_cpu_by_hand():
    """HyScale-GNN's Equation 11 and the passes around it."""
    host = replace_fields(
        load_platform(accelerators.PLATFORM).host, memory_bandwidth_bytes_per_s=1e9, power_w=100.0
    )
    matrix = make_matrix([[0, 1], [1, 2]], 3)
    plain = Cpu(host).run(matrix, 8)
    assert plain.bytes == {"features": 128, "adjacency": 40, "mask": 0, "outputs": 64}
    assert plain.seconds == pytest.approx(232e-9)
    assert plain.energy_j == pytest.approx(232e-7)
    masked = Cpu(host).run(matrix, 8, np.zeros((2, 1), dtype=np.uint8))
    assert masked.total_bytes == 232 + 2 + 64 + 64
    with pytest.raises(ValueError, match="has no stated power"):
        Cpu(replace_fields(host, power_w=None)).run(matrix, 8)


def test_slices_are_chosen_for_the_fewest_bytes():
    """No other width of a slice moves fewer, on a graph whose edges are spread evenly."""
    graph = make_sbm("sbm:vertices=4000,edges=80000,features=1,classes=2").graph
    matrix = SparseMatrix(graph.indptr, graph.indices, graph.num_vertices)
    spu = Spu().scale(64)
    plan = choose_slice(matrix, 128, spu.sram)
    chosen = spu.run(matrix, 128).total_bytes
    assert plan == plan_slice(plan.features, spu.sram)
    for features in (8, 32, 128):
        with pytest.MonkeyPatch.context() as patch:
            other = plan_slice(features, spu.sram)
            patch.setattr(
                "gnnbench_plugins.mixgcn.machines.choose_slice", lambda *_, other=other: other
            )
            assert chosen <= 1.02 * spu.run(matrix, 128).total_bytes, features


def test_what_fits_on_the_chip_is_loaded_once():
    graph = make_sbm("sbm:vertices=2000,edges=20000,features=1,classes=2").graph
    matrix = SparseMatrix(graph.indptr, graph.indices, graph.num_vertices)
    for machine in accelerators.make_machines():
        moved = machine.run(matrix, 128).bytes
        assert moved["features"] == moved["outputs"] == 2000 * 128 * 4
        assert moved["adjacency"] <= 4 * (graph.num_edges + 2001)


def test_a_share_of_the_machine_takes_as_long_for_a_share_of_the_graph():
    times = {}
    for divisor in (256, 512):
        graph = standins.draw_stand_in(f"orkut:{1 / divisor}")
        times[divisor] = [
            accelerators.run_epoch(machine, graph, 128).seconds
            for machine in accelerators.make_machines(divisor)
        ]
    assert times[256] == pytest.approx(times[512], rel=0.08)
    with pytest.raises(ValueError, match="cannot be divided by 3"):
        Spu().scale(3)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_more_bandwidth_and_faster_clocks_are_never_slower(data):
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    size = data.draw(st.integers(1, 40))
    rows = [np.flatnonzero(row).tolist() for row in random.random((size, size)) < random.random()]
    matrix = make_matrix(rows, size)
    width = data.draw(st.integers(1, 40))
    mask = pack_mask(random.random((size, width)) < 0.5)
    for machine in (SPU, HYGCN, AWB):
        base = machine.run(matrix, width, mask)
        factor = data.draw(st.integers(101, 400))
        wider = replace(machine, bandwidth_bytes_per_s=SLOW * factor // 100)
        faster = replace(machine, clock_hz=SLOW * factor // 100)
        for other in (wider, faster):
            seen = other.run(matrix, width, mask)
            assert seen.seconds <= base.seconds, machine.name
            assert seen.bytes == base.bytes
    fewer = mask & np.frombuffer(random.bytes(mask.size), dtype=np.uint8).reshape(mask.shape)
    fewer[random.random(size) < 0.3] = 0
    less, base = SPU.run(matrix, width, fewer), SPU.run(matrix, width, mask)
    assert less.seconds <= base.seconds
    assert all(less.bytes[kind] <= base.bytes[kind] for kind in base.bytes)


def test_all_machines_load_the_same_rows_in_the_same_slices():
    """A product wider than the buffers is sliced alike by all machines, to the byte."""
    matrix = draw_matrix()
    spu, hygcn, awb = (machine.run(matrix, 96) for machine in (SPU, HYGCN, AWB))
    assert choose_slice(matrix, 96, SPU.sram).features < 96
    for rival in (hygcn, awb):
        for kind in ("features", "adjacency"):
            assert rival.bytes[kind] == spu.bytes[kind]
        assert rival.bytes["outputs"] == spu.bytes["outputs"]
        assert rival.adds == spu.adds == matrix.num_edges * 96
    # What only they would have: HyGCN's wide rows, and AWB-GCN's streams of all sources.
    assert replace(HYGCN, sliced=False).run(matrix, 96).total_bytes > hygcn.total_bytes
    assert replace(AWB, tiled=False).run(matrix, 96).bytes["features"] > awb.bytes["features"]


def test_awb_gcn_takes_its_columns_cycles_in_any_tiling():
    """A tile's cycles go to its chunks by their edges, so that none is lost but to rounding."""
    matrix = draw_matrix()
    steps = AWB.plan(matrix, 32)
    plan = choose_slice(matrix, 32, AWB.sram)
    first, rows = list_tiles(matrix.num_dst, plan.tile_rows)
    degrees = np.diff(matrix.indptr)
    spent = sum(
        int(tune_columns(degrees[v : v + count], AWB.elements, AWB.hops, 32).sum())
        for v, count in zip(first.tolist(), rows.tolist(), strict=True)
    )
    assert spent <= int(steps.compute_cycles.sum()) < spent + len(steps.compute_cycles)


def draw_matrix() -> SparseMatrix:
    random = np.random.default_rng(0)
    rows = [sorted(random.choice(60, random.integers(1, 9), replace=False)) for _ in range(40)]
    return make_matrix([[int(u) for u in row] for row in rows], 60)


@pytest.fixture(scope="module")
def compared() -> dict[str, Epoch]:
    graph = make_sbm("sbm:vertices=4096,edges=60000,features=1,classes=2").graph
    return accelerators.compare_machines(graph, 320, 256)


def scale(epochs: dict[str, Epoch], factor: float, hygcn: float) -> dict[str, Epoch]:
    """Return epochs of ``factor`` times the additions and bytes, HyGCN's of ``hygcn`` times."""

    def change(name: str, epoch: Epoch) -> Epoch:
        times = factor * (hygcn if name == "HyGCN" else 1.0)
        return replace(epoch, energy_j=times * epoch.energy_j, bytes=times * epoch.bytes)

    return {name: change(name, epoch) for name, epoch in epochs.items()}


def test_table3_quotes_the_papers_joules(compared, monkeypatch):
    factors = (4.0, 0.5, 1.0, 2.0, 8.0)
    graphs = tuple(
        scale(compared, factor, 0.01 if place == 1 else 1.0) for place, factor in enumerate(factors)
    )
    titles = [original.title for original in accelerators.ORIGINALS]
    monkeypatch.setattr(accelerators, "compare_originals", lambda: graphs)
    (table,) = accelerators.Table3().run()
    rows = {row.label: row.cells for row in table.rows}
    assert [cell.quoted for cell in rows["SPU"]] == [7.6, 9.5, 605.5, 1135, 1269]
    assert rows["HyGCN over SPU"][1].quoted == pytest.approx(43.9 / 9.5)
    base_j = {name: epoch.energy_j for name, epoch in compared.items()}
    assert [cell.value for cell in rows["SPU"]] == [each * base_j["SPU"] for each in factors]
    ratio = base_j["HyGCN"] / base_j["SPU"]
    assert [cell.value for cell in rows["HyGCN over SPU"]] == pytest.approx(
        [ratio, 0.01 * ratio, ratio, ratio, ratio]
    )
    # Quotients of the paper's joules, which count in the rows above.
    found = measure_agreement(table.cells)
    assert (found.numbers, found.uncounted) == (20, {"quotients of the rows above": 15})
    (winners,) = (note for note in table.notes if "least energy" in note)
    assert f"{titles[1]} (paper SPU, here HyGCN)" in winners
    assert "Twitter (paper HyGCN, here SPU)" in winners


def test_a_lead_that_vanishes_does_not_agree(compared):
    """What is compared is what exceeds 1: 1.02x where the paper has 1.05x to 1.66x is far off."""
    spu = compared["SPU"]
    slower = replace(spu, seconds=1.02 * spu.seconds)
    rows = accelerators.time_rows([{**compared, "AWB-GCN": slower}])
    (cell,) = next(row.cells for row in rows if row.label == "SPU's lead over AWB-GCN")
    assert cell.value == pytest.approx(2)
    assert find_error(cell) == pytest.approx(2 / 5 - 1)
    assert sum(find_error(cell) is not None for row in rows for cell in row.cells) == 3


def test_figures_that_contradict_each_other_are_held_against_each_other(compared, monkeypatch):
    """Figure 7 has the SPU 1,200 times ahead of the CPU on Orkut, and here it is twice as fast."""
    spu = compared["SPU"]
    monkeypatch.setattr(accelerators, "list_ratios", lambda *_: (None, 1200.0, 4.0, None, 10.0))
    here = {"SPU": spu, "CPU": replace(spu, seconds=2 * spu.seconds)}
    said = accelerators.contradict_figure7([here] * len(accelerators.ORIGINALS))
    assert "up to 600 times further ahead" in said
    assert "(Orkut)" in said


def train(*, check: bool = False, **changes: object) -> RunResult:
    parts = Parts("mixgcn", "mixgcn", "mixgcn", "resident", "spu")
    fields: dict[str, object] = {
        "strategies": ("mixgcn",),
        "dataset": make_sbm("sbm:vertices=60,edges=200,features=12,classes=3"),
        "workload": Workload("gcn", (12, 8, 3), 2, 20, (0, 0), 0, dtype="float64"),
        "platform": load_platform(accelerators.PLATFORM),
        "options": {"placement": {"sparse_devices": "2", "accelerators": "2"}},
        "check": check,
        "rows": (PlannedRow("mixgcn", "mixgcn", "full-graph", parts),),
    }
    request = Request(**(fields | changes))  # type: ignore[arg-type]
    return compare(request, plugins.load()).runs[0]


def test_spu_aggregates_and_others_update():
    run = train(check=True)
    assert (run.status, run.reason) == ("done", "")
    assert run.equivalence is not None
    assert run.equivalence.holds
    spans = [item.span for item in run.timeline]
    assert {span.place for span in spans if span.stage == "aggregate"} == {"spu0", "spu1"}
    assert {span.place for span in spans if span.stage == "update"} == {"gpu0", "gpu1"}
    assert run.metrics["energy"].value > 0


def test_spu_prices_the_block_it_aggregated():
    """By the cycle model, forward and backward; a mask changes no loss and makes it no slower."""
    run = train()
    spu = load_platform(accelerators.PLATFORM).device("spu0")
    seconds = [item.span.seconds for item in run.timeline if item.span.stage == "aggregate"]
    assert all(each > spu.hardware.launch_s for each in seconds)
    assert len(set(seconds)) > 1
    options = {
        "placement": {"sparse_devices": "2", "accelerators": "2"},
        "kernel": {"wanted": "0.5"},
    }
    masked = train(options=options)
    assert masked.loss == run.loss
    assert masked.stages["aggregate"].value < run.stages["aggregate"].value


def make_flat_block() -> Block:
    sources = np.arange(1000, dtype=np.int32) + 20
    return Block(np.arange(1020), 20, np.arange(0, 1001, 50), sources)


def test_spu_prices_the_direction_that_it_is_told_of():
    """Forward 20 rows read 1,020, backward 1,020 rows read 20."""
    block = make_flat_block()
    device = load_platform(accelerators.PLATFORM).device("spu0")
    kernel, work = SpuKernel(), AggregateWork(edges=1000, rows=20, features=4)
    spu = make_spu(device)
    there = SparseMatrix(block.indptr, block.indices, 1020)
    indptr, indices, _ = transpose(block.indptr, block.indices, 1020)
    back = SparseMatrix(indptr, indices, 20)
    assert spu.run(there, 4).seconds != spu.run(back, 4).seconds
    for backward, matrix in ((False, there), (True, back), (False, there)):
        kernel.expect(block, backward=backward)
        expected = device.hardware.launch_s + spu.run(matrix, 4).seconds
        assert kernel.seconds(work, device) == expected


def test_spu_forgets_a_mask_when_other_work_is_due():
    block = make_flat_block()
    device = load_platform(accelerators.PLATFORM).device("spu0")
    kernel, work = SpuKernel(), AggregateWork(edges=1000, rows=20, features=8)
    adjacency = kernel.adjacency(block, torch.float32, torch.device("cpu"))
    kernel.expect(block, backward=True)
    whole_s = kernel.seconds(work, device)
    adjacency.masked(pack_mask(np.zeros((1020, 8), dtype=bool)))
    assert kernel.seconds(work, device) < whole_s
    kernel.expect(block, backward=True)
    assert kernel.seconds(work, device) == whole_s


def test_work_done_elsewhere_is_priced_by_its_size():
    """1,000 edges of 4 features into 100 rows: each edge's row from HBM, as far as is known."""
    device = load_platform(accelerators.PLATFORM).device("spu0")
    work = AggregateWork(edges=1000, rows=100, features=4)
    kernel = SpuKernel()

    def moved_s(read: int) -> float:
        return device.hardware.launch_s + 4 * (4 * (read + 100) + 1000) / 1024e9

    assert kernel.seconds(work, device) == pytest.approx(moved_s(1000))
    spu = make_spu(device)
    assert spu == Spu()
    # Of a graph of 600 vertices no more than 600 rows, although the piece has 100 of them.
    kernel.limit_sources(600)
    assert kernel.seconds(work, device) == pytest.approx(moved_s(600))
    # They do not fit in the node buffer.
    kernel.limit_sources(10**7)
    assert kernel.seconds(work, device) == pytest.approx(moved_s(1000))
    # Additions decide where rows are reused: 10^9 edges of 8 features into 10^5 rows.
    kernel.limit_sources(10**5)
    dense = AggregateWork(edges=10**9, rows=10**5, features=8)
    assert kernel.estimate_seconds(dense, spu) == pytest.approx(
        max(8e9 / 8.192e12, (4e9 + 6.4e6) / 1024e9)
    )


def test_an_estimate_is_near_what_the_machine_takes():
    """Of a stage of a pipeline, which reads far more rows than it has."""
    graph = make_sbm("sbm:vertices=20000,edges=200000,features=1,classes=2").graph
    block = induce_block(graph.indptr, graph.indices, np.arange(500))
    matrix = spmm.sort_sources(SparseMatrix(block.indptr, block.indices, block.num_src))
    kernel, spu = SpuKernel(), Spu()
    kernel.limit_sources(graph.num_vertices)
    work = AggregateWork(edges=block.num_edges, rows=block.num_dst, features=64)
    assert kernel.estimate_seconds(work, spu) == pytest.approx(spu.run(matrix, 64).seconds, rel=0.3)
