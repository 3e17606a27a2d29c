"""What HP-GNN trains besides neighbour samples and bundled models: subgraphs, layer-wise samples,
functions of one's own, and HyScale-GNN's boards by its cycle model."""

import itertools
import textwrap
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from gnnbench import datasets, plugins
from gnnbench.check.faults import find_unit_fault
from gnnbench.comparison import Request, Variant, compare
from gnnbench.errors import IncompatiblePartsError, UsageError
from gnnbench.machines import load_platform
from gnnbench.models import build
from gnnbench.parts import LayerShape, Setting
from gnnbench.plugins import Registry
from gnnbench.records import RunResult, Unit, Workload
from gnnbench_plugins.hpgnn import kernel as hpgnn_kernel
from gnnbench_plugins.hpgnn.boards import load_board
from gnnbench_plugins.hpgnn.cycles import Datapath, run_backward, run_forward
from gnnbench_plugins.hpgnn.operators import reduce_edges
from gnnbench_plugins.hpgnn.program import (
    GNN,
    OFF_THE_SHELF,
    Density,
    Operators,
    Program,
    Sampler,
    layer_of,
    plan_training,
)
from gnnbench_plugins.hpgnn.resources import Design, activation_words
from gnnbench_plugins.hpgnn.sampler import HpgnnLayerwiseSampler, HpgnnSaintSampler, HpgnnSampler

SMALL = "sbm:vertices=1500,edges=12000,features=32,classes=4"
FPGAS = "epyc7763x2-4xu250"
DIMS = (32, 16, 4)


@cache
def registry() -> Registry:
    return plugins.load(["gnnbench_plugins.hpgnn"])


def make_workload(**changes) -> Workload:
    values = {"model": "gcn", "dims": DIMS, "epochs": 2, "batch_size": 128, "fanouts": (10, 5)}
    return Workload(**{**values, "seed": 3, "dtype": "float64", **changes})


def run(strategy, known: Registry | None = None, **changes) -> RunResult:
    options, swaps = changes.pop("options", {}), changes.pop("swaps", ())
    request = Request(
        strategies=(Variant(strategy, swaps),),
        dataset=datasets.load(SMALL),
        workload=make_workload(**changes),
        platform=load_platform(FPGAS),
        options=options,
    )
    (result,) = compare(request, known or registry()).runs
    assert result.status == "done", result.reason
    assert result.equivalence is not None
    assert result.equivalence.holds
    if changes.get("dtype", "float64") == "float64":
        assert result.equivalence.max_relative_loss_error < 1e-9
    return result


@pytest.mark.parametrize(
    ("sampler", "options", "strategy"),
    [
        ("hpgnn-saint", {"method": "node"}, "hpgnn"),
        ("hpgnn-saint", {"method": "edge", "budget": "60"}, "hyscale"),
        ("hpgnn-saint", {"method": "walk", "budget": "40", "steps": "3"}, "hpgnn"),
        ("hpgnn-layerwise", {"method": "ladies", "budgets": "200,100"}, "hyscale"),
        ("hpgnn-layerwise", {"method": "fastgcn"}, "hpgnn"),
    ],
)
def test_any_sampler_trains_as_the_reference_does(strategy, sampler, options):
    swaps = (("sampler", sampler),)
    swaps += (("kernel", "hpgnn"),) if strategy == "hyscale" else ()
    known = plugins.load(["gnnbench_plugins.hpgnn", "gnnbench_plugins.hyscale"])
    result = run(strategy, known, swaps=swaps, options={"sampler": options})
    assert result.parts.sampler == sampler
    assert result.metrics["epoch_time"].provenance == "modelled"


@pytest.mark.parametrize(
    ("program", "sizes"),
    [
        (Sampler("SubgraphSampler", 2, [300], 100, Density(1, -0.5), "node"), (300, 300, 100)),
        (Sampler("LayerwiseSampler", 2, [260, 180, 100], density=Density(1, -0.5)), None),
        (Sampler("NeighborSampler", 2, [5, 10], 100), None),
    ],
)
def test_programs_train_with_their_samplers(program, sizes):
    training = plan_training(Program(program, GNN("SAGE", DIMS)), Design(2, 64), seed=3)
    assert training.workload.batch_size == 100
    request = Request(
        strategies=(Variant("hpgnn", training.swaps),),
        dataset=datasets.load(SMALL),
        workload=training.workload,
        platform=load_platform(FPGAS),
        options=training.options,
    )
    (result,) = compare(request, registry()).runs
    assert result.status == "done", result.reason
    assert result.equivalence is not None
    assert result.equivalence.holds
    assert any("u250: n = 2, m = 64 a die (given" in note for note in result.notes)
    name = dict(training.swaps).get("sampler", "hpgnn")
    blocks = make_sampler(name, training.workload, training.options.get("sampler"))
    batch = Unit(0, blocks.sample(blocks.rounds(0)[0], 0, 1)).vertices
    if program.name == "LayerwiseSampler":
        assert batch == (260, 180, 100)
    if sizes is not None:
        # Drawn with replacement, and beside the seeds: at most the budget.
        assert all(0.8 * due <= there <= due for there, due in zip(batch, sizes, strict=True))


def make_sampler(name: str, workload: Workload, options=None) -> HpgnnSampler:
    kinds = (HpgnnSampler, HpgnnSaintSampler, HpgnnLayerwiseSampler)
    (kind,) = (kind for kind in kinds if kind.name == name)
    sampler = kind(**{key: int(v) if v.isdecimal() else v for key, v in (options or {}).items()})
    shapes = build(workload).shapes
    sampler.begin(Setting(datasets.load(SMALL), load_platform(FPGAS), workload, shapes))
    return sampler


@pytest.mark.parametrize("name", ["hpgnn-saint", "hpgnn-layerwise"])
def test_a_share_has_what_its_seeds_reach_of_the_rounds_batch(name):
    sampler = make_sampler(name, make_workload(dims=(32, 16, 16, 4), fanouts=(0, 0, 0)))
    graph = datasets.load(SMALL).graph
    rounds = sampler.rounds(1)
    due = np.sort(datasets.load(SMALL).train_ids)
    assert np.array_equal(np.sort(np.concatenate(rounds)), due)
    whole = Unit(0, sampler.sample(rounds[2], 1, 1))
    again = Unit(0, sampler.sample(rounds[2], 1, 1))
    assert np.array_equal(whole.input_ids, again.input_ids)
    # Another round draws others beside its seeds.
    drawn = [sampler.sample(rounds[i], 1, 1)[0].src_ids[len(rounds[i]) :] for i in (1, 2)]
    assert len(np.intersect1d(*drawn)) < 0.7 * min(map(len, drawn))
    parts = np.array_split(rounds[2], 4)
    shares = [Unit(slot, sampler.sample(part, 1, 1)) for slot, part in enumerate(parts)]
    for unit in (whole, *shares):
        assert find_unit_fault(unit, graph, None) is None
    assert np.array_equal(whole.output_ids, rounds[2])
    assert np.array_equal(np.concatenate([unit.output_ids for unit in shares]), rounds[2])
    for depth in range(3):
        rows = {
            int(v): set(whole.blocks[depth].src_ids[picks].tolist())
            for v, picks in rows_of(whole.blocks[depth])
        }
        for unit in shares:
            for v, picks in rows_of(unit.blocks[depth]):
                assert set(unit.blocks[depth].src_ids[picks].tolist()) == rows[int(v)]
    with pytest.raises(ValueError, match="seeds are of 2 rounds"):
        sampler.sample(np.concatenate((rounds[0][:3], rounds[1][:3])), 1, 1)


def rows_of(block):
    return zip(block.dst_ids, np.split(block.indices, block.indptr[1:-1]), strict=True)


ANEW = """
    from gnnbench.hookspecs import hookimpl
    from gnnbench_plugins.reference.sampler import NeighbourSampler

    class Anew(NeighbourSampler):
        '''Draws by the first of the seeds.'''

        name, summary, split_invariant = "anew", "draws anew for every share", False

    @hookimpl
    def gnnbench_sampler():
        return [Anew]
"""


def test_a_sampler_that_draws_anew_for_a_share_is_not_split(tmp_path):
    (tmp_path / "anew.py").write_text(textwrap.dedent(ANEW))
    known = plugins.load(["gnnbench_plugins.hyscale", str(tmp_path / "anew.py")])
    swaps = (("sampler", "anew"),)
    run("reference", known, swaps=swaps)
    with pytest.raises(IncompatiblePartsError, match="cannot split rounds over 5 devices"):
        run("hyscale", known, swaps=swaps)


def test_budgets_that_leave_nothing_to_draw_are_refused():
    sampler = Sampler("SubgraphSampler", 2, [1000], 1024, Density(1, -0.5))
    with pytest.raises(UsageError, match=r"SubgraphSampler has sizes 1000, 1024 .*larger than"):
        plan_training(Program(sampler, GNN("GCN", DIMS)))


MINE = """
    import torch
    from gnnbench.hookspecs import hookimpl
    from gnnbench_plugins.hpgnn.program import GNN, Operators, layer_of

    def scatter(h, weight):
        return h * weight - 0.5

    def update(a, own, weight, bias):
        return torch.relu(torch.cat((a / 2, own), dim=1) @ weight + bias)

    mine = Operators(scatter, torch.maximum, update, update_widths=2)

    @hookimpl
    def gnnbench_model():
        return [layer_of(GNN("mine", [32, 16, 4], mine, edge_weight="gcn"))]
"""


@pytest.fixture
def with_mine(tmp_path: Path) -> Registry:
    path = tmp_path / "mine.py"
    path.write_text(textwrap.dedent(MINE))
    return plugins.load(["gnnbench_plugins.hpgnn", str(path)])


def train_plainly(sampler: HpgnnSampler, workload: Workload, epochs: int) -> list[float]:
    """The same model as ``MINE``, written with torch's own reduction: the loss of each epoch."""
    data = datasets.load(SMALL)
    x = torch.from_numpy(data.features).double()
    labels = torch.from_numpy(data.labels)
    norm = torch.from_numpy(data.graph.degrees + 1.0).rsqrt()
    initial = build(workload, model=layer_of(GNN("mine", DIMS, own_maximum(), edge_weight="gcn")))
    parameters = [p.detach().clone().requires_grad_() for p in initial.parameters()]
    optimiser = torch.optim.Adam(
        parameters, lr=workload.learning_rate, weight_decay=workload.weight_decay
    )
    losses = []
    for epoch in range(epochs):
        total, count = 0.0, 0
        for seeds in sampler.rounds(epoch):
            blocks = sampler.sample(seeds, epoch, 1)
            h = x[blocks[0].src_ids]
            for layer, block in enumerate(blocks):
                src = torch.from_numpy(block.indices.astype(np.int64))
                dst = torch.repeat_interleave(torch.from_numpy(np.diff(block.indptr)))
                ids = torch.from_numpy(block.src_ids)
                messages = h[src] * (norm[ids[src]] * norm[ids[dst]]).unsqueeze(1) - 0.5
                a = torch.zeros(block.num_dst, h.shape[1], dtype=torch.float64).scatter_reduce(
                    0, dst.unsqueeze(1).expand_as(messages), messages, "amax", include_self=False
                )
                w, b = parameters[2 * layer : 2 * layer + 2]
                h = torch.cat((a / 2, h[: block.num_dst]), dim=1) @ w + b
                h = torch.relu(h) if layer == 0 else h
            loss = torch.nn.functional.cross_entropy(h, labels[seeds], reduction="sum")
            optimiser.zero_grad()
            (loss / len(seeds)).backward()
            optimiser.step()
            total, count = total + float(loss.detach()), count + len(seeds)
        losses.append(total / count)
    return losses


def own_maximum() -> Operators:
    return Operators(
        lambda h, weight: h * weight - 0.5,
        torch.maximum,
        lambda a, own, weight, bias: torch.relu(torch.cat((a / 2, own), 1) @ weight + bias),
        update_widths=2,
    )


def test_functions_of_ones_own_train_as_plain_torch_does(with_mine):
    options = {"kernel": {"clock": "equations"}}
    result = run("hpgnn", with_mine, model="mine", options=options)
    sampler = make_sampler("hpgnn", make_workload())
    plain = train_plainly(sampler, make_workload(model="mine"), 2)
    assert result.loss == pytest.approx(plain, rel=1e-9)


@pytest.mark.parametrize("gather", [torch.add, torch.mul, torch.minimum])
def test_edges_are_combined_as_one_after_the_other(gather):
    generator = torch.Generator().manual_seed(0)
    degrees = torch.tensor([0, 3, 1, 0, 17, 2])
    messages = torch.randn(23, 5, generator=generator, dtype=torch.float64)
    out = reduce_edges(messages, degrees, gather)
    at = 0
    for row, degree in zip(out, degrees.tolist(), strict=True):
        due = torch.zeros(5, dtype=torch.float64)
        for k in range(degree):
            due = messages[at] if k == 0 else gather(due, messages[at + k])
        at += degree
        torch.testing.assert_close(row, due, rtol=1e-12, atol=1e-12)
    assert reduce_edges(messages[:0], torch.zeros(3, dtype=torch.int64), gather).shape == (3, 5)


def test_models_that_cannot_be_offered_say_why():
    mean = replace(OFF_THE_SHELF["GCN"], gather=lambda a, b: (a + b) / 2)
    with pytest.raises(UsageError, match="gather of model mine is not associative"):
        layer_of(GNN("mine", DIMS, mean))
    with pytest.raises(UsageError, match="off the shelf, and trains as --model gcn"):
        layer_of(GNN("GCN", DIMS))


def test_the_host_has_the_loss_and_the_weights_update():
    """Section 5.1: logits cross to the host, gradients come back, then the new weights."""
    platform = load_platform(FPGAS)
    host, board = platform.host.name, platform.accelerators[0].name
    result = run("hpgnn")
    spans = [entry.span for entry in result.timeline]
    on = {span.label: span.place for span in spans}
    assert on["loss"] == on["average and step"] == host
    assert on["update forward"] == on["update backward"] == board
    assert result.work.devices == (board,)
    seeds, classes = 128, DIMS[-1]
    logits = [
        s.work.bytes for s in spans if s.label in ("logits to the host", "gradients of logits")
    ]
    assert logits[:2] == [8 * seeds * classes] * 2
    parameters = sum(f * g + g for f, g in itertools.pairwise(DIMS))
    for label in ("gather gradients", "scatter gradients"):
        assert {s.work.bytes for s in spans if s.label == label} == {8 * parameters}
    hybrid = on_boards()
    boards = {e.span.place for e in hybrid.timeline if e.span.label == "loss"}
    assert board in boards


@cache
def on_boards(**kernel: str) -> RunResult:
    known = plugins.load(["gnnbench_plugins.hpgnn", "gnnbench_plugins.hyscale"])
    swaps = (("kernel", "hpgnn"), ("sampler", "hpgnn"))
    return run("hyscale", known, swaps=swaps, options={"kernel": kernel})


run_hyscale = on_boards.__wrapped__


def test_hyscales_boards_by_cycles_and_by_equations():
    """Table IV's design, n = 8 and m = 2048 a board, is the default; the CPU trains beside."""
    cycles, equations = on_boards(), on_boards(clock="equations")
    named = on_boards(n="8", m="2048")
    assert cycles.loss == pytest.approx(equations.loss, rel=1e-9)
    assert cycles.metrics["epoch_time"] == named.metrics["epoch_time"]
    assert cycles.metrics["epoch_time"] != equations.metrics["epoch_time"]
    host = load_platform(FPGAS).host.name
    places = {entry.span.place for entry in cycles.timeline if entry.span.stage == "aggregate"}
    assert host in places
    assert len(places) == 5
    # The CPU is priced by Equation 11, and not by cycles.
    aggregate = [
        entry.span
        for entry in cycles.timeline
        if entry.span.place == host and entry.span.label == "aggregate forward"
    ]
    device = load_platform(FPGAS).host
    for span in aggregate:
        work = span.work
        rate = device.aggregate_bytes_per_s(work.features, work.threads)
        traffic = work.edges * work.features * work.itemsize
        assert span.seconds == pytest.approx(device.hardware.launch_s + traffic / rate)


def test_what_goes_through_memory_beside_the_chip(monkeypatch):
    seen = set()

    def watch(run):
        def run_and_note(stream, shape, *args, path, **rest):
            seen.add((run.__name__, shape.in_features, path))
            return run(stream, shape, *args, path=path, **rest)

        return run_and_note

    for run_pass in (run_forward, run_backward):
        monkeypatch.setattr(hpgnn_kernel, run_pass.__name__, watch(run_pass))
    run_hyscale(datapath="chip")
    x, hidden, _ = DIMS
    assert seen == {
        ("run_forward", x, Datapath(loads=True, sums=False, results=False)),
        ("run_forward", hidden, Datapath(loads=False, sums=False, results=True)),
        ("run_backward", hidden, Datapath(loads=False, sums=False, results=False)),
    }


def test_activations_without_room_go_through_memory(monkeypatch):
    """A mini-batch in whole: of |B^1| = 100 and |B^2| = 9 rows, 17 words each but the results."""
    layers = tuple(LayerShape(32, 16, each, 1, 1, True) for each in (256, 32))
    # 25 rows a die are 7 for each of 4 gather PEs, 3 are one; 16 + 1 words, and 2.
    words = activation_words((100, 9), layers, 4, load_board("u250"), 4)
    assert words == 4 * 7 * 17 + 4 * 1 * 2
    through = on_boards()
    monkeypatch.setattr(hpgnn_kernel, "buffer_words", lambda board: 1)
    stays = run_hyscale(datapath="chip")
    assert stays.metrics["epoch_time"] == through.metrics["epoch_time"]
    assert any("find no room on the chip and go through memory" in note for note in stays.notes)
    assert stays.idle == ("activations on the chip (those of no mini-batch fit)",)


def test_another_placement_may_train_on_a_board():
    swaps = (("placement", "single"),)
    board = load_platform(FPGAS).accelerators[0].name
    alone = run("hpgnn", swaps=swaps, options={"placement": {"device": board}})
    assert {entry.span.place for entry in alone.timeline if entry.span.stage == "aggregate"} == {
        board
    }
