"""HP-GNN's claims: design space exploration, the cycle model beside the equations, layout, and the
same maths."""

import re
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from gnnbench import datasets, plugins
from gnnbench.comparison import Request, compare
from gnnbench.datasets.synthetic import RMAT_QUADRANTS
from gnnbench.errors import IncompatiblePartsError, UsageError
from gnnbench.kernels.dispatch import RmatStream, fpga
from gnnbench.kernels.reference.fpga import Channel, Machine
from gnnbench.machines import load_platform
from gnnbench.machines.tables import replace_fields
from gnnbench.models import MODELS, build
from gnnbench.parts import LayerShape, Setting
from gnnbench.plugins import Registry, assemble
from gnnbench.records import Block, RunResult, Workload
from gnnbench.reproduce.studies import PlanRequest
from gnnbench_plugins.hpgnn.boards import BUNDLED, find_board, load_board
from gnnbench_plugins.hpgnn.cycles import (
    Datapath,
    array_shape,
    make_machine,
    product_cycles,
    run_backward,
    run_forward,
    run_iteration,
    seconds_of,
)
from gnnbench_plugins.hpgnn.design import (
    Batch,
    choose_threads,
    evaluate,
    explore,
    forward_times,
    sampling_seconds,
)
from gnnbench_plugins.hpgnn.layout import EdgeStream, LaidOutBlock, lay_out
from gnnbench_plugins.hpgnn.program import (
    GNN,
    Density,
    Operators,
    Program,
    Sampler,
    fit_density,
    generate_design,
    parse,
)
from gnnbench_plugins.hpgnn.resources import Design, budget_of, count_words, find_excess, usage_of
from tests.systems.hpgnn.by_edges import alpha_of

U250 = load_board("u250")
#: The workloads of the authors' script: neighbour sampling, and subgraphs of 2,750 vertices.
NEIGHBOURS = Batch((102483, 9000, 1024), (137420, 8505), (128, 128, 128))
SUBGRAPH = Batch((2750, 2750, 2750), (54510, 54510), (128, 128, 128))
FPGAS = "epyc7763x2-4xu250"


@cache
def registry() -> Registry:
    return plugins.load(["gnnbench_plugins.hpgnn"])


def designs(points) -> list[tuple[int, int]]:
    return [(point.design.n, point.design.m) for point in points]


def test_resources_are_equations_10_and_11():
    used = usage_of(Design(8, 64), U250)
    assert used.dsp == 5 * 64 + 112 * 8
    assert used.lut == 470 * 64 + 21715 * 8 + 9220 * 8 * 0.5 * 3
    die = budget_of(U250, "die")
    assert (die.dsp, die.lut) == (3072, pytest.approx(345_600))
    assert find_excess(Design(8, 64), U250, "die") is None
    assert "LUTs, and a die of u250 has 345,600" in str(find_excess(Design(8, 256), U250, "die"))
    assert "DSPs" in str(find_excess(Design(1, 1024), U250, "die"))
    assert "powers of two" in str(find_excess(Design(3, 4), U250, "die"))


def test_layer_times_are_equations_8_and_9():
    first, second = forward_times(NEIGHBOURS, Design(4, 1024), U250, "script")
    assert first.load_s == pytest.approx(102483 * 128 * 4 / (77e9 * 0.3))
    assert first.compute_s == pytest.approx(137420 * 128 / (4 * 16 * 300e6))
    assert first.update_s == pytest.approx(9000 * 128 * 128 / (1024 * 300e6))
    assert second.load_s == pytest.approx(9000 * 128 * 4 / (77e9 * 0.9))
    assert first.total_s == first.load_s
    point = evaluate(NEIGHBOURS, Design(4, 1024), U250, "script")
    assert point.vertices_per_s == pytest.approx(
        4 * (102483 + 9000 + 1024) / (first.total_s + second.total_s)
    )


@pytest.mark.parametrize(
    ("batch", "convention", "macs", "ties"),
    [
        # Loading binds in both layers: every design that keeps up with it is as good.
        (NEIGHBOURS, "script", "power", [(4, 1024), (8, 1024), (4, 2048), (16, 1024), (8, 2048)]),
        (NEIGHBOURS, "script", "square", [(4, 1024), (8, 1024), (16, 1024)]),
        (SUBGRAPH, "script", "power", [(16, 1024)]),
        (NEIGHBOURS, "paper", "square", [(2, 256), (4, 256)]),
        (NEIGHBOURS, "paper", "power", [(2, 512)]),
        (SUBGRAPH, "paper", "square", [(4, 256)]),
    ],
)
def test_exploration_of_the_published_workloads(batch, convention, macs, ties):
    sweep = explore(batch, U250, convention=convention, macs=macs)
    assert designs(sweep.ties) == ties
    assert sweep.best is sweep.ties[0]
    scope = "die" if convention == "paper" else "board"
    # Exhaustive: nothing larger fits, and every point does.
    assert all(find_excess(point.design, U250, scope) is None for point in sweep.points)
    step = 4 if macs == "square" else 2
    for n in {point.design.n for point in sweep.points}:
        most = max(point.design.m for point in sweep.points if point.design.n == n)
        assert find_excess(Design(n, most * step), U250, scope) is not None
    largest = max(point.design.n for point in sweep.points)
    assert find_excess(Design(2 * largest, 1), U250, scope) is not None
    # Every other design is slower; ties stand by resources.
    assert all(
        point in sweep.ties or point.vertices_per_s < sweep.best.vertices_per_s
        for point in sweep.points
    )
    assert all(one.usage.lut <= other.usage.lut for one, other in pairwise(sweep.ties))


def test_host_threads_keep_sampling_shorter_than_propagation():
    """Section 5.1: the fewest threads with t_sampling < t_propagation."""
    for edges, seconds in ((145_925, 3e-3), (145_925, 1e-4), (100, 1.0)):
        threads = choose_threads(edges, 2e7, seconds, 128)
        assert edges / (2e7 * threads) < seconds
        assert threads == 1 or edges / (2e7 * (threads - 1)) >= seconds
    assert choose_threads(1e9, 2e7, 1e-3, 128) == 128
    assert sampling_seconds(1e9, 2e7, 128) == pytest.approx(1e9 / (2e7 * 128))
    slow = evaluate(NEIGHBOURS, Design(4, 256), U250, "paper", sample_s=1.0)
    assert (slow.iteration_s, slow.vertices_per_s) == (1.0, sum(NEIGHBOURS.vertices))


def test_a_host_too_small_to_hide_sampling_is_reported():
    sampler, model = Sampler("NeighborSampler", L=2, budgets=[10, 25]), GNN("GCN", [602, 128, 41])
    program = Program(sampler, model, host_threads=2, sampled_edges_per_s=1e6)
    generated = generate_design(program)
    assert (generated.sample_threads, generated.board_waits) == (2, True)
    assert generated.sample_s == pytest.approx(281_600 / 2e6)
    assert not generate_design(Program(sampler, model)).board_waits
    platform = load_platform(FPGAS)
    slow = replace(platform, host=replace_fields(platform.host, cores=2, sampled_edges_per_s=1e6))
    setting = make_setting(dataset=SMALL, dims=(64, 32, 8))
    for machine, waits in ((platform, False), (slow, True)):
        request = Request(("hpgnn",), setting.dataset, setting.workload, machine, check=False)
        (run,) = compare(request, registry()).runs
        (note,) = (note for note in run.notes if "u250: n = " in note)
        assert ("the host has no more, and the board waits" in note) == waits
        if waits:
            # Equation 4: rounds go at the pace of sampling.
            assert run.stages["sample"].value > 0.9 * run.metrics["epoch_time"].value


def test_every_number_of_a_board_has_a_source():
    for path in BUNDLED.glob("*.toml"):
        board = load_board(path.stem)
        assert find_board(board.model) == board
        for number in re.findall(r"= (\{.*\})", path.read_text()):
            assert re.search(r'source = ".+"', number), number
    # 512-bit words in UltraRAM: eight blocks side by side, 4,096 deep.
    words = {name: load_board(name).resources.uram_bytes // 64 for name in ("u250", "u200")}
    assert words == {"u250": 1280 // 8 * 4096, "u200": 960 // 8 * 4096}
    for name in ("u250", "u200"):
        assert load_board(name).memory.bandwidth_bytes_per_s == pytest.approx(
            4 * 2400e6 * 8, rel=0.01
        )
    u200 = load_board("u200")
    assert (u200.dies, u200.resources.dsp, u200.resources.lut) == (3, 6840, 1_182_000)
    assert explore(SUBGRAPH, u200).best.design == Design(4, 256)


def test_a_board_of_ones_own(tmp_path: Path):
    text = (BUNDLED / "u250.toml").read_text()
    mine = tmp_path / "mine.toml"
    mine.write_text(text.replace("value = 300,", "value = 150,"))
    assert load_board(str(mine)).clock_hz == 150e6
    half = explore(SUBGRAPH, load_board(str(mine))).best.vertices_per_s
    assert half == pytest.approx(explore(SUBGRAPH, U250).best.vertices_per_s / 2)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("dsp =", "dps =", "unknown key 'dps' in the file; did you mean 'dsp'"),
        ("dsp =", "# dsp =", "the file has no dsp; add dsp = "),
        ("value = 12288", 'value = "many"', "dsp of the file is 'many'; it must be a whole number"),
        ('unit = "MHz"', 'unit = "Mhz"', "is not one of hertz"),
        ("value = 8192", "value = 8000", "page_bytes is 8000"),
        ("channels = { value = 4", "channels = { value = 2", "4 dies and 2 channels"),
        ("dsp = {", "dsp = [", "cannot be read: it is not valid TOML"),
    ],
)
def test_a_wrong_board_file_is_refused(tmp_path, old, new, message):
    text = (BUNDLED / "u250.toml").read_text()
    assert old in text
    path = tmp_path / "wrong.toml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(UsageError, match=message) as caught:
        load_board(str(path))
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


def test_unknown_boards_are_refused():
    with pytest.raises(UsageError, match="no board called 'u251'; did you mean 'u250'"):
        load_board("u251")
    with pytest.raises(UsageError, match="there is no such file"):
        load_board("nowhere/board.toml")


def test_a_batch_that_does_not_fit_the_board_is_refused():
    with pytest.raises(UsageError, match=r"features take .* u250 has 64,000,000,000"):
        explore(replace(NEIGHBOURS, vertices=(10**9, 9000, 1024)), U250)
    with pytest.raises(UsageError, match="no design fits a die of u250"):
        explore(NEIGHBOURS, replace_fields(U250, lut=1000))


@pytest.mark.parametrize(
    ("uram", "given", "message"),
    [
        (512, {}, "buffer of a die of u250 has 2 words, too few for a row of 16 at each of 1"),
        (
            8192,
            {"n": "4", "m": "16"},
            "has 32 words, too few for a row of .* at each of 4 gather PEs",
        ),
    ],
)
def test_a_board_too_small_is_refused_before_anything_runs(tmp_path, uram, given, message):
    text, old = (BUNDLED / "u250.toml").read_text(), "uram_bytes = { value = 41943040"
    assert old in text
    path = tmp_path / "small.toml"
    path.write_text(text.replace(old, f"uram_bytes = {{ value = {uram}"))
    options = {"placement": {"board": str(path), **given}}
    with pytest.raises(IncompatiblePartsError, match=message):
        run_compare("hpgnn", dataset=SMALL, dims=(64, 256, 8), options=options)


def test_a_small_result_buffer_bounds_the_exploration():
    """Room for two rows of 128 floats a die: designs of one and two PEs are left."""
    board = replace_fields(U250, uram_bytes=4 * 2 * 128 * 4)
    assert {point.design.n for point in explore(SUBGRAPH, board).points} == {1, 2}


def test_a_program_is_parsed_and_explored():
    sampler = Sampler("NeighborSampler", L=2, budgets=[10, 25])
    parsed = parse(Program(sampler, GNN("SAGE", [602, 128, 41])))
    assert parsed.batch.vertices == (256_000, 25_600, 1024)
    assert parsed.batch.edges == (256_000, 25_600)
    assert parsed.batch.update_widths == (1204, 256)
    generated = generate_design(Program(sampler, GNN("GCN", [602, 128, 41])))
    assert generated.sweep.best.design == Design(4, 256)
    assert generated.sample_threads == 1


def test_subgraph_and_layerwise_sizes_use_kappa():
    density = Density(2.0, -0.5)
    subgraph = Sampler("SubgraphSampler", L=2, budgets=[2500], density=density)
    assert subgraph.vertices == (2500, 2500, 2500)
    assert subgraph.edges == (pytest.approx(2500 * 2500 * 0.04),) * 2
    layers = Sampler("LayerwiseSampler", L=2, budgets=[400, 256, 100], density=density)
    assert layers.vertices == (400, 256, 100)
    assert layers.edges == (pytest.approx(400 * 256 * 0.125), pytest.approx(256 * 100 * 0.2))


def test_kappa_is_fitted_to_sampled_subgraphs():
    graph = datasets.load("ego_twitter").graph
    density = fit_density(graph, [500, 2000], seed=0)
    held_out = fit_density(graph, [750, 1500], seed=7)
    for size in (750, 1500):
        assert density(size) == pytest.approx(held_out(size), rel=0.25)
    with pytest.raises(UsageError, match="kappa cannot be fitted"):
        fit_density(graph, [500])


def test_wrong_programs_are_refused():
    sampler = Sampler("NeighborSampler", L=2, budgets=[10, 25])
    for make, message in (
        (lambda: Sampler("NeighbourSampler", 2, [10, 25]), "did you mean 'NeighborSampler'"),  # type: ignore[arg-type]
        (lambda: Sampler("NeighborSampler", 2, [10]), "has 1 budgets; give 2"),
        (lambda: Sampler("NeighborSampler", 2, [10, 0]), "all must be 1 or more"),
        (lambda: Sampler("SubgraphSampler", 2, [2750]), "needs a density"),
        (lambda: GNN("GCM", [4, 2]), "did you mean 'GCN'"),
        (lambda: GNN("GCN", [4]), "give f\\^0 .. f\\^L"),
        (lambda: parse(Program(sampler, GNN("GCN", [4, 2]))), "has 1 layers and the sampler 2"),
    ):
        with pytest.raises(UsageError, match=message) as caught:
            make()
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("gather", "law"),
    [
        (lambda a, b: (a + b) / 2, "associative"),
        (lambda a, b: a, "commutative"),
        (lambda a, b: a - b, "associative"),
    ],
)
def test_a_gather_that_depends_on_the_order_is_refused(gather, law):
    mine = Operators(lambda h, w: h, gather, lambda a, own, weight, bias: a @ weight)
    program = Program(Sampler("NeighborSampler", 1, [5]), GNN("mine", [8, 4], mine))
    with pytest.raises(UsageError, match=f"gather of model mine is not {law}"):
        parse(program)


def make_setting(model: str = "gcn", dataset: str = "ego_twitter", **changes) -> Setting:
    data = datasets.load(dataset)
    workload = Workload(
        model=model, dims=(256, 256, 8), epochs=1, batch_size=1024, fanouts=(25, 10), seed=0
    )
    workload = replace(workload, **changes)
    return Setting(data, load_platform(FPGAS), workload, build(workload).shapes)


def sample(setting: Setting, *, rmt: bool = True, rra: bool = True) -> tuple[LaidOutBlock, ...]:
    texts = {"sampler": {"rmt": str(rmt).lower(), "rra": str(rra).lower()}}
    bundle = assemble(registry(), registry().strategy("hpgnn").bundles["mini-batch"], texts)
    assert bundle.refusal(setting) is None
    bundle.sampler.begin(setting)
    blocks = bundle.sampler.sample(bundle.sampler.rounds(0)[0], 0, 1)
    assert all(isinstance(block, LaidOutBlock) for block in blocks)
    return blocks


def edges_of(src, dst) -> list[tuple[int, int]]:
    return sorted(zip(src.tolist(), dst.tolist(), strict=True))


@pytest.mark.parametrize("rmt", [True, False])
@pytest.mark.parametrize("rra", [True, False])
@pytest.mark.parametrize("resident", [True, False])
def test_layouts_hold_every_edge_once(rmt, rra, resident):
    random = np.random.default_rng(1)
    degrees = random.integers(0, 6, 20)
    indptr = np.concatenate(([0], np.cumsum(degrees)))
    block = Block(
        random.permutation(200)[:50].astype(np.int64),
        20,
        indptr,
        random.integers(0, 50, indptr[-1]).astype(np.int32),
    )
    rows = np.repeat(np.arange(20), degrees)
    for layer in (0, 1):
        laid = lay_out(block, layer, (20, 20), rmt=rmt, rra=rra, resident=resident)
        assert edges_of(laid.forward.src, laid.forward.dst) == edges_of(block.indices, rows)
        if layer == 0:
            assert laid.backward is None
            order = np.argsort(laid.forward.address, kind="stable")
            assert np.array_equal(order, np.argsort(block.src_ids))
        else:
            assert edges_of(laid.backward.src, laid.backward.dst) == edges_of(rows, block.indices)
        runs = 1 + np.count_nonzero(np.diff(laid.forward.src))
        by_source = rmt or (rra and layer == 1)
        assert (runs == len(np.unique(block.indices))) == by_source
        if layer == 1 and rra:
            assert (np.diff(laid.forward.src) >= 0).all()
            assert (np.diff(laid.backward.src) >= 0).all()


def test_systolic_array_fills_and_drains():
    """m = 64 is 8 x 8: two blocks of rows, three of columns, 100 cycles each, 15 more."""
    assert array_shape(64) == (8, 8)
    assert array_shape(32) == (8, 4)
    assert product_cycles(16, 100, 24, 64) == 6 * 100 + 15
    assert product_cycles(9, 100, 17, 64) == 6 * 100 + 15
    # As large as the array is small: Equation 9 within 1 %.
    assert product_cycles(1024, 256, 256, 64) == pytest.approx(1024 * 256 * 256 / 64, rel=0.01)


ONE_PE = Machine(
    dies=1,
    pes=1,
    adder_cycles=4,
    fifo_updates=2,
    buffer_words=100,
    cycle_ticks=1,
    channel=Channel(
        burst_ticks=1, miss_ticks=3, latency_ticks=0, edge_ticks=0, page_words=4, banks=2
    ),
)
ONE_EDGE = EdgeStream(np.zeros(1, np.int32), np.zeros(1, np.int32), np.zeros(1, np.int64), 1)


def test_a_layer_by_hand():
    """One edge as in test_fpga, after 2 words of weights; a 1 x 1 array; then write-back.

    Weights until 2, the row opens its page and comes until 7, is there at 8, taken at 9, summed at
    14 (two words, 4 of the adder). 1 output of 32 products: until 46, and 1 more.
    """
    machine, stream, shape = ONE_PE, ONE_EDGE, LayerShape(32, 1, 32, 33, 32, True)
    seen = run_forward(stream, shape, machine, 1)
    assert (seen.aggregate_cycles, seen.cycles) == (14, 47)
    # The edge's word comes after the weights and before the row, which is one cycle later then.
    reading = replace_fields(machine, edge_ticks=1)
    seen = run_forward(stream, shape, reading, 1)
    assert (seen.aggregate_cycles, seen.cycles) == (15, 48)
    # Two words of sums and one of results are written from 14 on: that is hidden behind the update.
    wide = run_forward(stream, replace(shape, out_features=1), machine, 4)
    assert wide.cycles == 14 + 32 + 3


def test_rows_that_stay_on_the_chip_by_hand():
    """The same edge, of a memory that takes 50 cycles a word: weights until 100, the row from
    memory until 203, summed at 210; on the chip it is there at 101, and summed at 107.

    Backward the array has the gradient's products at 132 and hands them on at 133; W's own product
    is done at 165.
    """
    machine, shape = replace_fields(ONE_PE, burst_ticks=50), LayerShape(32, 1, 32, 33, 32, True)

    def count(run, **path) -> tuple[int, int]:
        seen = run(ONE_EDGE, shape, machine, 1, path=Datapath(**path))
        return seen.aggregate_cycles, seen.cycles

    # Two words of sums and one of results are written, or one, or none: 33 cycles of the array.
    assert count(run_forward) == (210, 210 + 150)
    assert count(run_forward, sums=False) == (210, 210 + 50)
    assert count(run_forward, sums=False, results=False) == (210, 210 + 33)
    assert count(run_forward, loads=False, sums=False, results=False) == (107, 107 + 33)
    assert count(run_backward) == (243, 243 + 100)
    assert count(run_backward, loads=False) == (140, 140 + 100)
    assert count(run_backward, loads=False, results=False) == (140, 165)


def test_w_in_tiles_is_read_again_by_hand():
    """The same edge, and W of two words in two tiles, of a memory that takes 200 cycles a word.

    The first tile is there at 200, the row at 603, its sum at 610. Four groups of rows share a
    reading of both tiles: a group takes 100 cycles and not the 32 of its products, and 1 more.
    """
    machine, shape = replace_fields(ONE_PE, burst_ticks=200), LayerShape(32, 1, 32, 33, 32, True)
    path = Datapath(sums=False, results=False)
    seen = run_forward(ONE_EDGE, shape, machine, 1, path=path, tile=16)
    assert (seen.aggregate_cycles, seen.cycles) == (610, 711)
    whole = run_forward(ONE_EDGE, shape, machine, 1, path=path)
    assert (whole.aggregate_cycles, whole.cycles) == (810, 843)
    assert run_forward(ONE_EDGE, shape, machine, 1, path=path, tile=32).cycles == 843


def test_alpha_comes_out():
    """Random rows of 256 bytes, and rows in sequence: about the published 0.3 and 0.9."""
    machine = replace(make_machine(U250, Design(4, 256)), dies=1)
    random = np.random.default_rng(0)
    count = 20_000
    src = np.arange(count, dtype=np.int32)
    dst = random.integers(0, 1000, count).astype(np.int32)
    alphas = {}
    for name, address in (
        ("random", np.sort(random.choice(10**7, count, replace=False))),
        ("sequential", np.arange(count)),
    ):
        for width in (64, 128, 256, 512):
            words = count_words(width, 4)
            seen = fpga.simulate_aggregation(src, dst, address, 1000, words, machine)
            alphas[name, width] = alpha_of(seen, machine, words)
    assert alphas["random", 64] == pytest.approx(U250.coefficients.alpha_first, abs=0.05)
    assert all(
        alphas["sequential", width] == pytest.approx(U250.coefficients.alpha_later, abs=0.05)
        for width in (64, 128, 256, 512)
    )
    # Longer bursts waste less.
    random_ones = [alphas["random", width] for width in (64, 128, 256, 512)]
    assert random_ones == sorted(random_ones)


def run_compare(
    *names: str, platform: str = FPGAS, options: dict | None = None, swaps=(), **changes
) -> tuple[RunResult, ...]:
    setting = make_setting(**{"epochs": 2, "dims": (64, 32, 8), **changes})
    request = Request(
        strategies=names,
        dataset=setting.dataset,
        workload=setting.workload,
        platform=load_platform(platform),
        options=options or {},
        swaps=swaps,
    )
    return compare(request, registry()).runs


SMALL = "sbm:vertices=3000,edges=30000,features=64,classes=8"


def test_only_mini_batches_cross_pcie():
    """Sections 3 and 5.1: the topology crosses, and a gradient for each logit of a seed."""
    (run,) = run_compare("hpgnn", dataset=SMALL, epochs=1, batch_size=256)
    blocks = sample(make_setting(dataset=SMALL, dims=(64, 32, 8), batch_size=256))
    sent = [
        entry.span
        for entry in run.timeline
        if entry.span.stage == "transfer" and entry.span.label == "mini-batch topology"
    ]
    # Edges of the first layer once, of the second for the way back too: 16 bytes each.
    due = 16 * (blocks[0].num_edges + 2 * blocks[1].num_edges)
    assert len(sent) > 1
    assert next(span for span in sent if span.round == 0).work.bytes == due
    crossed = run.metrics["host_to_device_bytes"].samples[-1]
    logits = len(datasets.load(SMALL).train_ids) * 8
    assert crossed == sum(span.work.bytes for span in sent) + 4 * logits


def test_times_are_those_of_the_blocks_that_are_trained():
    given = {"placement": {"n": "2", "m": "64"}}
    (run,) = run_compare("hpgnn", dataset=SMALL, epochs=1, options=given)
    setting = make_setting(dataset=SMALL, dims=(64, 32, 8))
    machine = make_machine(U250, Design(2, 64))
    launch_s = setting.platform.accelerators[0].hardware.launch_s
    passes, _ = run_iteration(sample(setting), setting.layers, machine, 64)
    spans = {
        (entry.span.label, entry.span.layer): entry.span.seconds
        for entry in run.timeline
        if entry.span.round == 0
    }
    for layer in (0, 1):
        forward = passes[layer]
        assert spans["aggregate forward", layer] == pytest.approx(
            launch_s + seconds_of(forward.aggregate_cycles, machine)
        )
        assert spans["update forward", layer] == pytest.approx(
            launch_s + seconds_of(forward.cycles, machine)
        )
    assert spans["aggregate backward", 1] == pytest.approx(
        launch_s + seconds_of(passes[2].cycles, machine)
    )


def test_a_graph_that_does_not_fit_the_board_is_out_of_memory():
    options = {"memory": {"device_bytes": "100kB"}}
    (run,) = run_compare("hpgnn", dataset=SMALL, options=options)
    assert run.status == "out-of-memory"
    assert "vertex features on the device" in run.reason


@pytest.mark.parametrize("stored", [True, False])
def test_plan_prints_the_sweep(stored):
    setting = make_setting(dataset=SMALL, dims=(64, 32, 8))
    graph = setting.dataset if stored else RmatStream(10**8, 10**9, RMAT_QUADRANTS, 0)
    bundle = assemble(registry(), registry().strategy("hpgnn").bundles["mini-batch"], {})
    request = PlanRequest(graph, setting.workload, setting.platform, MODELS["gcn"])
    (table,) = registry().planner("hpgnn")().plan(bundle, request)
    assert len(table.rows) == 19
    assert sum("best" in row.label for row in table.rows) == 1
    swapped = replace(registry().strategy("hpgnn").bundles["mini-batch"], sampler="hpgnn-layerwise")
    other = assemble(registry(), swapped, {})
    if stored:
        assert len(registry().planner("hpgnn")().plan(other, request)) == 1
    else:
        with pytest.raises(UsageError, match="sampler 'hpgnn-layerwise' has none"):
            registry().planner("hpgnn")().plan(other, request)
        assert "|B| 256,000, 25,600, 1,024; |E| 256,000, 25,600" in table.notes
        # 10^8 vertices of 64 features of 4 bytes; the board has 64 GB.
        assert "the features, 25.6 GB, fit u250's memory" in table.notes
        capped = {"memory": {"device_bytes": "25.5GB"}}
        bundle = assemble(registry(), registry().strategy("hpgnn").bundles["mini-batch"], capped)
        (table,) = registry().planner("hpgnn")().plan(bundle, request)
        assert "the features, 25.6 GB, do not fit u250's memory" in table.notes
