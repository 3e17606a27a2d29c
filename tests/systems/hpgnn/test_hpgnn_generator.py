"""HP-GNN's generators: a design's C simulation beside the reference and the cycle model."""

import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from gnnbench import datasets
from gnnbench.errors import UsageError
from gnnbench.kernels import dispatch
from gnnbench.kernels.dispatch import fpga
from gnnbench.kernels.reference.fpga import first_rows
from gnnbench.machines import load_platform
from gnnbench.machines.tables import replace_fields
from gnnbench.models import BoundBlock, Degrees, build
from gnnbench.parts import Setting
from gnnbench.records import Dataset, RunResult, Workload
from gnnbench_plugins.hpgnn.boards import load_board
from gnnbench_plugins.hpgnn.cycles import make_machine
from gnnbench_plugins.hpgnn.design import Sweep, evaluate
from gnnbench_plugins.hpgnn.expressions import differentiate, translate, without_sigma
from gnnbench_plugins.hpgnn.generator import rows_per_launch
from gnnbench_plugins.hpgnn.host_files import (
    LayerInput,
    prepare_layer,
    read_gradients,
    read_results,
    read_training,
    write_batch,
    write_features,
    write_graph,
    write_weights,
)
from gnnbench_plugins.hpgnn.layout import EdgeStream, LaidOutBlock, lay_out
from gnnbench_plugins.hpgnn.program import (
    GNN,
    OFF_THE_SHELF,
    Density,
    Generated,
    Operators,
    Program,
    Sampler,
    generate_design,
)
from gnnbench_plugins.hpgnn.resources import Design, count_words
from gnnbench_plugins.hpgnn.sampler import HpgnnSampler
from gnnbench_plugins.reference.kernel import TorchKernel
from tests.systems.hpgnn.by_edges import run_layer

U250 = load_board("u250")
WIDTHS = (40, 32, 7)
PAGE = Path(__file__).parents[3] / "docs" / "fpga.md"
LINEAR = Operators(
    scatter=lambda h, w: (h - 1.0) * w * 2.0,
    gather=lambda a, b: b + a,
    update=lambda a, own, weight, bias: torch.relu(
        0.5 - (torch.cat((a / 4 - own, own), 1) @ weight) * 3.0 + bias / 2
    ),
    update_widths=2,
)


def generate(model: str = "GCN", design: Design | None = None, **changes) -> Generated:
    """Return a two-layer model's generated design, or ``design``; ``changes`` are of the board."""
    sampler = Sampler("NeighborSampler", L=2, budgets=[5, 10], targets=64)
    operators, law = changes.pop("operators", None), changes.pop("edge_weight", "one")
    generated = generate_design(Program(sampler, GNN(model, WIDTHS, operators, law)))
    board = replace_fields(generated.board, **changes)
    if design is not None:
        point = evaluate(generated.abstraction.batch, design, board, "paper")
        generated = replace(generated, sweep=Sweep(board.name, "paper", (point,), point, (point,)))
    return replace(generated, board=board)


@cache
def dataset() -> Dataset:
    return datasets.load("ego_twitter")


@cache
def sample() -> tuple[LaidOutBlock, ...]:
    """64 seeds of ego_twitter, (10, 5), laid out with RMT and RRA."""
    data = dataset()
    workload = Workload("gcn", WIDTHS, 1, 64, (10, 5), 0)
    sampler = HpgnnSampler()
    platform = load_platform("epyc7763x2-4xu250")
    sampler.begin(Setting(data, platform, workload, build(workload).shapes))
    return sampler.sample(sampler.rounds(0)[0], 0, 1)


@cache
def features() -> np.ndarray:
    shape = (dataset().graph.num_vertices, WIDTHS[0])
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def draw_parameters(pieces: int) -> list[tuple[np.ndarray, np.ndarray]]:
    random = np.random.default_rng(1)
    return [
        (
            random.standard_normal((pieces * f_in, f_out), dtype=np.float32) / f_in**0.5,
            random.standard_normal(f_out, dtype=np.float32),
        )
        for f_in, f_out in pairwise(WIDTHS)
    ]


@dataclass(frozen=True)
class Simulated:
    layers: tuple[LayerInput, ...]
    parameters: list[tuple[np.ndarray, np.ndarray]]
    results: tuple[tuple[np.ndarray, np.ndarray], ...]
    counts: list[dict]
    gradients: tuple[tuple[np.ndarray, np.ndarray], ...] = ()


def make_csim(generated: Generated, folder: Path, *flags: str) -> Path:
    generated.write(folder)
    built = subprocess.run(["make", "csim", *flags], cwd=folder, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    assert "warning" not in built.stderr
    return folder


#: The Makefile's flags without optimisation: the compiler takes longer than the simulation.
QUICKLY = (
    "CSIM_FLAGS=-std=c++17 -O0 -ffp-contract=off -Wall -Wextra -Wno-unknown-pragmas "
    "-I standin -I .",
)


def simulate(
    generated: Generated,
    layers: tuple[LayerInput, ...],
    folder: Path,
    batches: int = 1,
    labels: np.ndarray | None = None,
) -> Simulated:
    parameters = draw_parameters(generated.abstraction.operators.update_widths)
    write_features(folder / "features.bin", features())
    write_weights(folder / "weights.bin", parameters)
    names = [f"batch_{i}.bin" for i in range(batches)]
    for name in names:
        write_batch(folder / name, layers, generated, labels)
    run = subprocess.run(
        ["./csim", "design.xclbin", "features.bin", "weights.bin", "results.bin", *names],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    size = (folder / "results.bin").stat().st_size
    stored = sum(
        64 * len(layer.own) * (count_words(f_in, 4) + count_words(f_out, 4))
        for layer, f_in, f_out in zip(layers, WIDTHS[:-1], WIDTHS[1:], strict=True)
    )
    gradients = ()
    if labels is not None:
        gradients = read_gradients(folder / "results.bin", layers, generated)
        pieces = generated.abstraction.operators.update_widths
        stored += sum(
            64 * (pieces * f_in + 1) * count_words(f_out, 4) for f_in, f_out in pairwise(WIDTHS)
        )
    assert size == batches * stored
    raw = (folder / "results.bin").read_bytes()
    assert all(raw[:stored] == raw[i * stored : (i + 1) * stored] for i in range(batches))
    (folder / "first.bin").write_bytes(raw[:stored])
    results = read_results(folder / "first.bin", layers, WIDTHS)
    counts = list(map(json.loads, run.stdout.splitlines()))
    return Simulated(layers, parameters, results, counts, gradients)


def prepare(model: str) -> tuple[LayerInput, ...]:
    degrees = dataset().graph.degrees
    return tuple(prepare_layer(model, block, degrees) for block in sample())


def source_rows(layer: int, results) -> np.ndarray:
    """What layer ``layer`` reads: X of its sources, or the rows that the layer below wrote."""
    return features()[sample()[0].src_ids] if layer == 0 else results[layer - 1][1]


def add_in_order(stream: EdgeStream, weight: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Add each edge's message in the order of the stream, rounding to float32 every time."""
    sums = np.zeros((stream.num_dst, rows.shape[1]), dtype=np.float32)
    for u, v, w in zip(stream.src, stream.dst, weight, strict=True):
        sums[v] += w * rows[u]
    return sums


def check_sums(simulated: Simulated, move: float = 0.0, factor: float = 1.0) -> None:
    """Sums equal those in stream order to the bit; a message is ``(h + move) * w * factor``."""
    for number, layer in enumerate(simulated.layers):
        stream, rows = layer.stream, source_rows(number, simulated.results) + np.float32(move)
        sums = add_in_order(stream, layer.edge_weight, rows) * np.float32(factor)
        assert np.array_equal(simulated.results[number][0].view(np.int32), sums.view(np.int32))


def check_sums_and_counts(simulated: Simulated, generated: Generated) -> None:
    check_sums(simulated)
    design = generated.sweep.best.design
    machine = make_machine(generated.board, design)
    n, dies = machine.pes, machine.dies
    counted = iter(simulated.counts)
    for number, layer in enumerate(simulated.layers):
        stream, words = layer.stream, count_words(WIDTHS[number], 4)
        cycles = fpga.simulate_aggregation(
            stream.src, stream.dst, stream.address, stream.num_dst, words, machine
        )
        first = first_rows(stream.num_dst, dies)
        for die in range(dies):
            counts = next(counted)
            assert counts["kernel"] == f"aggregate:{{aggregate_{die + 1}}}"
            assert counts["rows_loaded"] == cycles.loads[die]
            assert counts["words_loaded"] == cycles.loads[die] * words
            mine = stream.dst[(stream.dst >= first[die]) & (stream.dst < first[die + 1])]
            place, gather = np.arange(len(mine)) % n, (mine - first[die]) % n
            assert counts["edges"] == np.bincount(place, minlength=n).tolist()
            assert counts["updates"] == np.bincount(gather, minlength=n).tolist()
            # Stage k sets the k-th highest bit of an update's place to that of its gather PE.
            links = [np.bincount(place, minlength=n)]
            for stage in range(n.bit_length() - 1):
                bit = n >> (stage + 1)
                place = (place & ~bit) | (gather & bit)
                links.append(np.bincount(place, minlength=n))
            assert counts["link_words"] == (words * np.concatenate(links)).tolist()
    assert next(counted, None) is None


def check_update(simulated: Simulated, operators: Operators) -> None:
    for number, layer in enumerate(simulated.layers):
        rows = torch.from_numpy(source_rows(number, simulated.results))
        block = sample()[number]
        weight, bias = map(torch.from_numpy, simulated.parameters[number])
        own = rows[: block.num_dst]
        expected = run_layer(
            operators, layer.stream, torch.from_numpy(layer.edge_weight), rows, own, weight, bias
        )
        rows_there = torch.from_numpy(simulated.results[number][1])
        if number == len(WIDTHS) - 2:
            rows_there = torch.relu(rows_there)
        torch.testing.assert_close(rows_there, expected, rtol=1e-5, atol=1e-5)


@dataclass(frozen=True)
class Built:
    """A design, its compiled C simulation, and what it computed of a labelled mini-batch."""

    generated: Generated
    folder: Path
    simulated: Simulated
    labels: np.ndarray

    @property
    def forward(self) -> Simulated:
        launches = 2 * self.generated.board.dies
        return replace(self.simulated, counts=self.simulated.counts[:launches])


#: UltraRAM for twelve rows of 40 floats a die.
TIGHT = {"uram_bytes": 4 * 4 * 64 * 3 * 3}
#: By name: the law of the edge weights, the make flags, and how to generate the design.
DESIGNS: dict[str, tuple[str, tuple[str, ...], Callable[[], Generated]]] = {
    "GCN": ("GCN", QUICKLY, lambda: generate("GCN", Design(4, 64))),
    "linear": (
        "SAGE",
        QUICKLY,
        lambda: generate("linear", Design(4, 64), operators=LINEAR, edge_weight="mean", **TIGHT),
    ),
    "SAGE": ("SAGE", (), lambda: generate("SAGE")),
    "GIN": ("GIN", QUICKLY, lambda: generate("GIN", Design(8, 64))),
}


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Callable[[str], Built]:

    @cache
    def build_once(name: str) -> Built:
        law, flags, make = DESIGNS[name]
        generated = make()
        folder = make_csim(generated, tmp_path_factory.mktemp(name), *flags)
        labels = dataset().labels[sample()[-1].dst_ids] % WIDTHS[-1]
        simulated = simulate(generated, prepare(law), folder, labels=labels)
        return Built(generated, folder, simulated, labels)

    return build_once


LONG_MODELS = [pytest.param(name, marks=pytest.mark.long) for name in ("SAGE", "GIN")]


@pytest.mark.parametrize("model", ["GCN", LONG_MODELS[0]])
def test_it_computes_the_reference(model, built):
    simulated = built(model).forward
    check_sums_and_counts(simulated, built(model).generated)
    workload = Workload(model.lower(), WIDTHS, 1, 64, (10, 5), 0, dtype="float32")
    net = build(workload)
    with torch.no_grad():
        for layer, (weight, bias) in zip(net.stack, simulated.parameters, strict=True):
            layer.weight.copy_(torch.from_numpy(weight))
            layer.bias.copy_(torch.from_numpy(bias))
        h = torch.from_numpy(features()[sample()[0].src_ids])
        cpu, kernel = torch.device("cpu"), TorchKernel()
        degrees = dataset().graph.degrees
        for number, (layer, block) in enumerate(zip(net.stack, sample(), strict=True)):
            bound = BoundBlock(block, kernel, Degrees(degrees), torch.float32, cpu)
            h = layer.update(bound, layer.aggregate(bound, h))
            there = torch.from_numpy(simulated.results[number][1])
            torch.testing.assert_close(there, h, rtol=1e-5, atol=1e-5)


@pytest.mark.long
def test_more_pes_than_words_in_a_row(built):
    check_sums_and_counts(built("GIN").forward, built("GIN").generated)
    check_update(built("GIN").simulated, OFF_THE_SHELF["GIN"])


def test_destinations_that_the_gather_pes_cannot_keep_are_cut(built):
    """Sums stay equal to the bit: a destination's edges stay together, and in order."""
    cut = built("linear")
    assert rows_per_launch(cut.generated, WIDTHS[0]) == 12
    assert len(cut.simulated.counts) > 3 * U250.dies
    check_sums(cut.simulated, move=-1.0, factor=2.0)
    check_update(cut.simulated, LINEAR)


def test_a_maximum_of_subgraphs_runs_on_the_board(tmp_path):
    """Functions of one's own, without gradients; the host has no sampler of subgraphs."""
    mine = Operators(
        scatter=lambda h, w: w * h - 0.5,
        gather=torch.maximum,
        update=lambda a, own, weight, bias: (torch.cat((a / 2, own), 1) @ weight + bias).abs(),
        update_widths=2,
    )
    expressions = translate("mine", mine)
    assert expressions.gather == "fmaxf(a, b)"
    assert expressions.scatter == "(weight * h) - 0.5f"
    assert expressions.pieces == ("a / 2.0f", "own")
    assert expressions.finish == "fabsf((product + bias))"
    sampler = Sampler("SubgraphSampler", L=2, budgets=[2000], density=Density(0.01, 0.0))
    generated = generate_design(Program(sampler, GNN("mine", WIDTHS, mine)))
    assert "sampler.h" not in {path.name for path in generated.write(tmp_path)}
    readme = " ".join((tmp_path / "README.md").read_text().split())
    assert "since only a NeighborSampler is generated" in readme
    make_csim(generated, tmp_path, *QUICKLY)
    check_update(simulate(generated, prepare("GCN"), tmp_path), mine)


@pytest.mark.parametrize("model", ["GCN", "linear", *LONG_MODELS])
def test_gradients_are_those_of_autograd(model, built):
    """Both layers' W and bias, by the kernels on a labelled mini-batch and by torch."""
    simulated, labels = built(model).simulated, built(model).labels
    operators, layers = built(model).generated.abstraction.operators, simulated.layers
    parameters = [
        tuple(torch.from_numpy(each).double().requires_grad_() for each in pair)
        for pair in simulated.parameters
    ]
    h = torch.from_numpy(features()[sample()[0].src_ids]).double()
    for number, (layer, (weight, bias)) in enumerate(zip(layers, parameters, strict=True)):
        a = sum_messages(operators, layer, h)
        update = operators.update
        if number == len(layers) - 1:
            update = without_sigma(model, operators)
        h = update(a, h[: len(a)], weight, bias)
    torch.nn.functional.cross_entropy(h, torch.from_numpy(labels)).backward()
    for (weight, bias), due in zip(simulated.gradients, parameters, strict=True):
        for there, parameter in zip((weight, bias), due, strict=True):
            assert parameter.grad is not None
            expected = parameter.grad.float()
            assert float(expected.abs().max()) > 1e-3
            torch.testing.assert_close(torch.from_numpy(there), expected, rtol=1e-4, atol=2e-6)
    # Besides both layers, layer 2's transposed edges, and those to own rows, were aggregated.
    due = sum(len(layer.stream.src) for layer in (*layers, layers[1]))
    due += 0 if model == "GCN" else len(layers[1].own)
    assert sum(sum(counts["edges"]) for counts in simulated.counts) == due


def sum_messages(operators: Operators, layer: LayerInput, h: torch.Tensor) -> torch.Tensor:
    """Return AGGREGATE of a layer's stream, in float64, where ``gather`` is a sum."""
    stream, weights = layer.stream, torch.from_numpy(layer.edge_weight).double()
    messages = operators.scatter(h[stream.src], weights.unsqueeze(1))
    a = torch.zeros(stream.num_dst, h.shape[1], dtype=torch.float64)
    return a.index_add(0, torch.from_numpy(stream.dst.astype(np.int64)), messages)


@pytest.mark.parametrize("model", ["GCN", "linear", *LONG_MODELS])
def test_the_host_trains_as_torch_does(model, built):
    generated, folder = built(model).generated, built(model).folder
    data, steps, targets = dataset(), 3, 64
    parameters = built(model).simulated.parameters
    labels = data.labels % WIDTHS[-1]
    order = np.random.default_rng(5).permutation(data.graph.num_vertices)[: 2 * targets + 50]
    write_graph(folder / "graph.bin", data.graph, labels, order, seed=3, epoch=7)
    command = ["./csim", "design.xclbin", "features.bin", "weights.bin", "trained.bin"]
    run = subprocess.run(
        [*command, "--train", "graph.bin", str(steps)], cwd=folder, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    losses, trained = read_training(folder / "trained.bin", generated, steps)
    due_losses, due = train_by_torch(generated, parameters, labels, order, steps)
    assert losses == pytest.approx(due_losses, rel=1e-5)
    assert due_losses[0] != pytest.approx(due_losses[2], rel=1e-2)
    for layer, parameter in zip(trained, due, strict=True):
        for there, expected in zip(layer, parameter, strict=True):
            torch.testing.assert_close(
                torch.from_numpy(there).double(), expected, rtol=1e-5, atol=1e-5
            )
    moved = float(np.abs(trained[0][0] - parameters[0][0]).max())
    assert moved > 2 * generated.abstraction.learning_rate


def train_by_torch(generated, parameters, labels, order, steps):
    abstraction, graph = generated.abstraction, dataset().graph
    operators, targets = abstraction.operators, abstraction.sampler.targets
    weights = [
        tuple(torch.from_numpy(each).double().requires_grad_() for each in pair)
        for pair in parameters
    ]
    optimiser = torch.optim.Adam(
        [each for pair in weights for each in pair],
        lr=abstraction.learning_rate,
        weight_decay=abstraction.weight_decay,
    )
    losses = []
    for step in range(steps):
        seeds = order[step * targets : (step + 1) * targets]
        fanouts = tuple(abstraction.sampler.budgets[::-1])
        blocks = dispatch.sample_neighbours(
            graph.indptr, graph.indices, seeds, fanouts, seed=3, epoch=7
        )
        h = torch.from_numpy(features()[blocks[0].src_ids]).double()
        for number, (block, (weight, bias)) in enumerate(zip(blocks, weights, strict=True)):
            rows = tuple(each.num_dst for each in blocks)
            laid = lay_out(block, number, rows, rmt=True, rra=True, resident=True)
            law = {"gcn": "GCN", "mean": "SAGE", "one": "GIN"}[abstraction.edge_weight]
            layer = prepare_layer(law, laid, graph.degrees)
            a = sum_messages(operators, layer, h)
            last = number == len(blocks) - 1
            update = without_sigma(abstraction.model, operators) if last else operators.update
            h = update(a, h[: block.num_dst], weight, bias)
        loss = torch.nn.functional.cross_entropy(h, torch.from_numpy(labels[seeds]))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    return losses, [tuple(each.detach() for each in pair) for pair in weights]


def test_slopes_of_linear_functions():
    slopes = differentiate("mine", LINEAR)
    assert slopes.scatter.count("weight") == 1
    values = [eval(text.replace("f", "")) for text in (*slopes.gathered, *slopes.own)]
    assert values == [0.25, 0, -1, 1]
    assert eval(slopes.product.replace("f", "")) == -3
    assert eval(slopes.bias.replace("f", "")) == 0.5
    assert slopes.sigma == "sigma > 0.0f ? 1.0f : 0.0f"


@pytest.mark.parametrize(
    ("role", "function", "message"),
    [
        ("gather", torch.maximum, "gather of model mine is no sum"),
        ("scatter", lambda h, w: h * h * w, "scatter of model mine is not linear"),
        ("update", lambda a, own, w, b: (a @ w + b).abs(), "update of model mine is not linear"),
    ],
)
def test_functions_without_slopes_have_no_backward_kernel(role, function, message, tmp_path):
    mine = replace(OFF_THE_SHELF["GCN"], **{role: function})
    with pytest.raises(UsageError, match=message):
        differentiate("mine", mine)
    generated = generate("mine", operators=mine)
    generated.write(tmp_path)
    assert "HAS_GRADIENT = false" in (tmp_path / "types.h").read_text()
    assert "Forward propagation only" in (tmp_path / "README.md").read_text()
    with pytest.raises(UsageError, match=message):
        write_batch(tmp_path / "batch.bin", prepare("GCN"), generated, np.zeros(64, dtype=np.int64))


def test_the_files_of_a_design(tmp_path):
    generated = generate()
    written = generated.write(tmp_path / "design")
    files = {path.relative_to(tmp_path / "design").as_posix(): path for path in written}
    assert sorted(files) == sorted(
        path.relative_to(tmp_path / "design").as_posix()
        for path in (tmp_path / "design").rglob("*")
        if path.is_file()
    )
    best = generated.sweep.best
    types = files["types.h"].read_text()
    assert f"constexpr int N = {best.design.n};" in types
    assert "constexpr int WIDTHS[LAYERS + 1] = {40, 32, 7};" in types
    assert "return a + b;" in files["operators.h"].read_text()
    assert "slr=update_4:SLR3" in files["design.cfg"].read_text()
    readme = files["README.md"].read_text()
    assert f"| MACs a die, m | {best.design.m} | explored: Algorithm 4" in readme
    assert "modelled: Equation 11" in readme
    assert "Neither was run" in readme
    for path in written:
        text = path.read_text()
        assert max(map(len, text.splitlines())) < 120, path
        # Nothing is left to fill in; a Makefile's own variables are not of letters.
        assert not re.search(r"\$[A-Za-z{]", text), path


def test_the_pages_program(tmp_path, monkeypatch, capsys):
    """Two-layer GCN, neighbour sampler, U250: the design, its files, training on it; 15 lines."""
    examples = re.findall(r"```py\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    (example,) = [each for each in examples if "generate_design" in each]
    assert sum(map(bool, example.splitlines())) <= 15
    monkeypatch.chdir(tmp_path)
    defined: dict[str, object] = {}
    exec(example, defined)
    printed = capsys.readouterr().out
    assert "Design(n=" in printed
    assert "vertices/s" in printed
    for name in ("aggregate.cpp", "update.cpp", "host.cpp", "Makefile"):
        assert (tmp_path / "design" / name).is_file()
    run = defined["run"]
    assert isinstance(run, RunResult)
    assert (run.status, len(run.loss)) == ("done", 3)
    assert run.loss[2] < run.loss[0]
    assert run.equivalence is not None
    assert run.equivalence.holds
    # It trains on the very design that was generated.
    best = re.match(r"Design\(n=(\d+), m=(\d+), tile=0\)", printed)
    assert best is not None
    assert any(f"n = {best[1]}, m = {best[2]} a die (given" in note for note in run.notes)
    assert printed.splitlines()[0] in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("role", "function", "message"),
    [
        ("scatter", lambda h, w: h @ w, "scatter of model mine uses .*, which has no place"),
        ("scatter", lambda h, w: torch.cumsum(h, 0), "has no place in a kernel"),
        ("scatter", lambda h, w: torch.add(h, w, alpha=2), "has no place in a kernel"),
        ("scatter", lambda h, w: h if w > 0 else -h, "scatter of model mine cannot be translated"),
        (
            "scatter",
            lambda h: h,
            "scatter of model mine cannot be translated to C\\+\\+: .*argument",
        ),
        ("update", lambda a, own, w, b: a + b, "update of model mine does not multiply rows by W"),
        ("update", lambda a, own, w, b: (a @ w) @ w, "does not multiply rows by W once"),
        ("update", lambda a, own, w, b: (a @ w) * own, "uses .*, which has no place"),
        ("update", lambda a, own, w, b: torch.cat((a, own), 1) @ w, "update_widths says 1"),
    ],
)
def test_functions_without_a_place_in_a_kernel_are_refused(role, function, message):
    mine = replace(OFF_THE_SHELF["GCN"], **{role: function})
    with pytest.raises(UsageError, match=message) as caught:
        translate("mine", mine)
    assert len(str(caught.value).splitlines()) == 1


def test_a_design_over_the_resources_is_refused(tmp_path):
    with pytest.raises(UsageError, match="LUTs, and a die of u250 has 345,600 for it; use fewer"):
        generate("GCN", Design(16, 256)).write(tmp_path)
    narrow = replace_fields(U250, uram_bytes=4 * 64 * 8)
    with pytest.raises(UsageError, match="a gather PE of u250 keeps 2; use fewer PEs or narrower"):
        rows_per_launch(replace(generate("GCN", Design(4, 64)), board=narrow), 40)


def test_a_batch_of_other_layers_or_labels_is_refused(tmp_path):
    for labels in (np.zeros(3, dtype=np.int64), np.full(64, 7)):
        with pytest.raises(UsageError, match="labels for 64 targets of 7 classes"):
            write_batch(tmp_path / "batch.bin", prepare("GCN"), generate(), labels)
    with pytest.raises(UsageError, match="the batch has 1 layers and the design 2"):
        write_batch(tmp_path / "batch.bin", prepare("GCN")[:1], generate())
    with pytest.raises(UsageError, match="edge weights of its own"):
        prepare_layer("mine", sample()[0], dataset().graph.degrees)


def test_the_host_program_says_what_is_wrong(built):
    folder = built("GCN").folder
    (folder / "short.bin").write_bytes((folder / "batch_0.bin").read_bytes()[:-4])
    words = ["./csim", "design.xclbin", "features.bin", "weights.bin", "results.bin"]
    for last, message in (("none.bin", "none.bin cannot be read"), ("short.bin", "ends early")):
        run = subprocess.run([*words, last], cwd=folder, capture_output=True, text=True)
        assert run.returncode == 1
        assert message in run.stderr
    run = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    assert (run.returncode, "usage:" in run.stderr) == (2, True)
