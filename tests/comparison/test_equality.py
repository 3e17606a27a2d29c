"""The check of equality: right rows pass where rounding is hard, and wrong ones are found."""

import dataclasses
import functools
import math
import threading
import time

import numpy as np
import psutil
import pytest
import torch

from gnnbench import datasets, plugins
from gnnbench.check.graphs import make_dataset, make_platform, make_workload
from gnnbench.cli.compare import exit_status
from gnnbench.comparison import PlannedRow, Request, compare, make_setting
from gnnbench.comparison.bends import Bends
from gnnbench.comparison.equality import Deviation, Judgement, Reference, Rows
from gnnbench.comparison.plain import PlainTraining, Shared
from gnnbench.machines.workers import make_workers, parse_cores
from gnnbench.parts import UNIFORM
from gnnbench.plugins import assemble, with_swap
from gnnbench.price.model_clock import ModelClock
from gnnbench.price.wall_clock import WallClock
from gnnbench.records import Block, Graph, Unit, Workload
from gnnbench.run import Evidence, Training
from gnnbench.run import evidence as evidence_module
from gnnbench.run.audit import find_unit_fault, has_edges
from suites import equality as suite
from suites.faults import FAULTS
from suites.faults.__main__ import shift_labels

#: Faults that ``compare`` must find, each in the first row that it may be put into.
FOUND = {name: fault for name, fault in FAULTS.items() if fault.hosts}


@pytest.fixture(scope="module")
def registry():
    return plugins.load(["suites.faults"])


@pytest.fixture(scope="module")
def dataset():
    """Small, with communities, and a few hubs that every community knows."""
    made = datasets.load("sbm:vertices=600,edges=5000,features=12,classes=4")
    graph = made.graph
    src = np.repeat(np.arange(graph.num_vertices), graph.degrees)
    ends = np.stack((src, graph.indices))
    hub = np.stack((np.zeros(200, dtype=np.int64), np.arange(1, 401, 2)))
    more = datasets.build(
        "with a hub", np.concatenate((ends, hub), axis=1), num_vertices=600, report_repairs=False
    )
    return dataclasses.replace(made, graph=more.graph)


def test_the_fault_that_is_told_is_off_by_most_of_what_it_may_be():
    off = [Deviation(what, error, allowed) for what, error, allowed in (
        ("a loss", 8.0, 4.0), ("a gradient", 2.0, 0.5), ("a logit", 0.1, 0.5),
    )]  # fmt: skip
    told = "a gradient is off by 2e+00, and rounding explains 5e-01"
    assert Judgement(0.0, tuple(off)).fault == told
    assert Judgement(0.0, tuple(off[2:])).fault == ""


def request(dataset, model="gcn", rows=(), *, depth=2, hidden=16, dtype="float32", **fields):
    workload = Workload(
        model=model,
        dims=(dataset.num_features, *[hidden] * (depth - 1), dataset.num_classes),
        epochs=3,
        batch_size=60,
        fanouts=(6, 4, 3)[:depth],
        seed=1,
        dtype=dtype,
    )
    return Request((), dataset, workload, make_platform(3), rows=rows, **fields)


def row(registry, strategy, mode=None, fault=None):
    offered = registry.strategy(strategy)
    mode = mode or ("full-graph" if "full-graph" in offered.bundles else offered.default_mode)
    parts = offered.bundles[mode]
    if fault is not None:
        parts = with_swap(registry, parts, [(FAULTS[fault].part.kind, fault)])
    return PlannedRow(strategy, fault or strategy, mode, parts)


@pytest.fixture(scope="module")
def wrong_runs(registry, dataset):
    """A run with each fault that ``compare`` must find, by name, of one comparison a model."""
    runs = {}
    for model, refused in {(fault.model, fault.refused) for fault in FOUND.values()}:
        rows = tuple(
            row(registry, *fault.hosts[0], name)
            for name, fault in FOUND.items()
            if (fault.model, fault.refused) == (model, refused)
        )
        comparison = compare(request(dataset, model, rows), registry)
        assert exit_status(comparison) == (3 if refused else 1)
        runs |= {run.label: run for run in comparison.runs}
    return runs


@pytest.mark.parametrize("fault", FOUND)
def test_a_wrong_row_is_found(wrong_runs, fault):
    run, wrong = wrong_runs[fault], FAULTS[fault]
    assert run.status == ("error" if wrong.refused else "done"), run.reason
    assert wrong.refused or not run.equivalence.holds
    assert wrong.says in (run.reason if wrong.refused else run.equivalence.fault)


def test_labels_of_the_neighbours_are_found(registry, dataset):
    parts = registry.strategy("hongtu").bundles["full-graph"]
    setting = suite.make_row(dataset, "sage", 16, 2)
    trained = suite.train_row(registry, setting, parts, tamper=shift_labels)
    (fault, *_) = (
        each.fault for each in suite.hold_row(registry, setting, parts, trained, Shared())
    )
    assert "the loss of" in fault or "gradient" in fault


@pytest.mark.parametrize("factor", [1, 10_000])
def test_the_last_bias_is_held_by_its_own_size(registry, factor):
    """However large features make the gradients of the weights, which attention that is nearly
    even makes hard to round."""
    made = suite.scale(datasets.load("sbm:vertices=1500,edges=15000,features=64,classes=8"), factor)
    whole = registry.strategy("hongtu").bundles["full-graph"]
    setting = suite.make_row(made, "gat", 16, 2, epochs=1)
    biases = {}
    for parts in (whole, with_swap(registry, whole, [("kernel", "unweighted")])):
        trained = suite.train_row(registry, setting, parts)
        (judged,) = suite.hold_row(registry, setting, parts, trained, Shared())
        (biases[parts.kernel],) = [
            each for each in judged.deviations if "gradient of layers.1.bias" in each.what
        ]
    assert biases[whole.kernel].holds
    assert biases["unweighted"].error > 100 * biases["unweighted"].allowed


@pytest.fixture(scope="module")
def hard():
    """Dense, with labels that nothing explains and sparse binary features."""
    import scipy.sparse as sp

    random = np.random.default_rng(3)
    features = sp.random(700, 200, 0.05, "csr", dtype=np.float32, random_state=5)
    features.data[:] = 1
    return datasets.build(
        "dense",
        random.integers(0, 700, (2, 15_000)),
        num_vertices=700,
        features=features,
        labels=random.integers(0, 5, 700),
        report_repairs=False,
    )


@pytest.mark.parametrize(
    ("model", "factor"),
    [
        *(("gcn", 10_000), ("sage", 1), ("gin", 10_000), ("commnet", 1)),
        *(("gat", 1), ("gat", 10_000), ("ggcn", 10_000)),
    ],
)
def test_right_rows_are_equal_where_rounding_is_hard(registry, hard, model, factor):
    scaled = dataclasses.replace(hard, features=hard.features * np.float32(factor))
    names = ["native", "hongtu-im", "pyg", "hyscale"]
    names += ["mixgcn"] if model not in ("gat", "ggcn") else []
    rows = tuple(row(registry, name) for name in names)
    for run in compare(request(scaled, model, rows, depth=3, hidden=32), registry).runs:
        assert run.status == "done", run.reason
        assert run.equivalence.holds, (run.label, run.equivalence.fault)


@pytest.mark.parametrize("close", [True, False])
def test_a_relu_may_be_on_its_other_side_only_next_to_zero(registry, dataset, close):
    """The gradients are those with one ReLU on its other side: one whose input is next to nothing,
    for which a bias is chosen, or one that is far from zero."""
    setting = make_setting(request(dataset))
    (update,) = train(registry, setting, "native", updates=1)[0].updates
    plain = plain_training(registry, setting)
    vertex, column = int(dataset.train_ids[5]), 3
    batches = plain.batches(update)
    (bend,) = plain.forward(update, batches, torch.float64).bends
    moved = {name: value.clone() for name, value in update.parameters.items()}
    if close:
        moved["layers.0.bias"][column] -= bend.input[vertex, column].float()
    update = dataclasses.replace(update, parameters=moved)
    right = plain.forward(update, batches, torch.float64)
    (bend,) = right.bends
    ids = batches[0].ids
    rows = Rows(
        labels=torch.from_numpy(dataset.labels[ids]),
        seeds=torch.from_numpy(np.flatnonzero(dataset.train_mask[ids])),
    )
    logits = right.logits.detach().float()
    loss, begins = rows.loss_gradient(logits.double())
    open_ = torch.nonzero(bend.input[vertex] > 0.1)[0, 0]
    place = vertex * bend.input.shape[1] + (column if close else int(open_))
    change = -1.0 if bend.input.flatten()[place] > 0 else 1.0
    turn = (torch.tensor([place]), torch.tensor([change], dtype=torch.float64))
    gradients = [part.float() for part in right.gradients(begins, [turn])]
    update = dataclasses.replace(update, logits=[(ids, logits)], gradients=gradients)
    judged = Reference(setting, plain).judge(update, float(loss))
    # The optimiser was given other gradients.
    wrong = [each.what for each in judged.deviations if not each.holds and "step" not in each.what]
    assert (wrong == []) is close
    if not close:
        assert "the gradient of layers.0" in wrong[0]


def train(registry, setting, strategy, updates=3, mode=None):
    parts = row(registry, strategy, mode).parts
    bundle = assemble(registry, parts, {})
    evidence = Evidence(setting, updates)
    training = Training(bundle, setting, ModelClock(setting.platform, bundle.kernel), evidence)
    epochs = [training.run_epoch(number) for number in range(setting.workload.epochs)]
    return evidence, [epoch.round_losses for epoch in epochs]


def test_checks_take_no_time_from_an_epoch_whose_stages_overlap(registry, dataset, monkeypatch):
    """The steps of the only trainer follow each other, so no epoch is shorter than their sum."""
    examining = []

    def examine_slowly(*unit, **how):
        examining.append(threading.current_thread())
        time.sleep(0.2)

    def is_trained(span):
        return span.stage in ("aggregate", "update")

    monkeypatch.setattr(evidence_module, "find_unit_fault", examine_slowly)
    platform = make_workers(parse_cores("cores:1"), "one core")
    setting = make_setting(dataclasses.replace(request(dataset, hidden=256), platform=platform))
    parts = row(registry, "hyscale").parts
    bundle = assemble(registry, parts, {"placement": {"cpu_trainer": "false"}})
    training = Training(bundle, setting, WallClock(), Evidence(setting, 3))
    recorder = training._engine._recorder
    for number in range(3):
        examining.clear()
        began_s = time.perf_counter()
        epoch = training.run_epoch(number)
        took_s = time.perf_counter() - began_s
        tracks = [track for track in recorder._tracks if any(map(is_trained, track.spans))]
        trained = [span for track in tracks for span in track.spans if is_trained(span)]
        assert len({span.place for span in trained}) == 1
        # Logits are copied in the steps, and in no epoch.
        copied_s = sum(lasted_s for track in tracks for _, lasted_s in track.excluded)
        assert sum(span.wall_s for span in trained) - copied_s <= epoch.wall_s + 1e-6
        assert len(examining) == len(epoch.round_losses)
        assert epoch.wall_s <= took_s - 0.2 * len(examining)
        assert set(examining) == {threading.main_thread()}


def plain_training(registry, setting, shared=None):
    kernel = assemble(registry, row(registry, "reference").parts, {}).kernel
    return PlainTraining(setting, kernel, shared=shared)


def test_rows_that_begin_alike_share_their_first_update(registry, dataset, monkeypatch):
    setting = make_setting(request(dataset))
    passes = []
    real = PlainTraining.forward

    def counting(self, update, batches, dtype, rounded=None):
        passes.append((update.epoch, dtype))
        return real(self, update, batches, dtype, rounded)

    monkeypatch.setattr(PlainTraining, "forward", counting)
    shared = Shared()
    for strategy in ("native", "hongtu"):
        evidence, losses = train(registry, setting, strategy)
        reference = Reference(setting, plain_training(registry, setting, shared))
        for update in evidence.updates:
            judgement = reference.judge(update, losses[update.epoch][update.round])
            assert not judgement.fault
    exact = [epoch for epoch, dtype in passes if dtype == torch.float64]
    assert exact == [0, 1, 2, 1, 2]


def test_a_row_that_begins_elsewhere_shares_nothing(registry, dataset):
    setting = make_setting(request(dataset))
    shared = Shared()
    evidence, losses = train(registry, setting, "native")
    first = evidence.updates[0]
    plain = plain_training(registry, setting, shared)
    one = plain.find_right(first, plain.batches(first))
    assert plain.find_right(first, plain.batches(first)) is one
    elsewhere = {name: value * 1.5 for name, value in first.parameters.items()}
    moved = dataclasses.replace(first, parameters=elsewhere)
    assert plain.find_right(moved, plain.batches(moved)) is not one
    assert Reference(setting, plain).judge(moved, losses[0][0]).fault


def test_vertices_of_others_are_taken_to_be_right(registry, dataset):
    """Of several processes one has its own vertices' logits alone, and all the gradients."""
    setting = make_setting(request(dataset))
    evidence, losses = train(registry, setting, "native", updates=1)
    (update,) = evidence.updates
    ((ids, rows),) = update.logits
    update.logits = [(ids[:250], rows[:250])]
    plain = plain_training(registry, setting)
    assert not Reference(setting, plain, partial=True).judge(update, losses[0][0]).fault
    whole = Reference(setting, plain).judge(update, losses[0][0])
    assert "are not what the reference computes" in whole.fault
    rows[7] += 0.1
    assert Reference(setting, plain, partial=True).judge(update, losses[0][0]).fault


def test_an_update_without_vertices_has_its_loss_and_gradients(registry, dataset):
    setting = make_setting(request(dataset))
    evidence, ((loss, *_), *_) = train(registry, setting, "native", updates=1)
    (update,) = evidence.updates
    whole = Reference(setting, plain_training(registry, setting))
    assert not whole.judge(update, loss).fault
    assert "the loss of" in whole.judge(update, loss * (1 + 1e-4)).fault
    assert "no numbers" in whole.judge(update, math.nan).fault
    update.logits = []
    held = Reference(setting, plain_training(registry, setting), partial=True)
    assert not held.judge(update, loss).fault
    assert held.judge(update, 1.01 * loss).fault
    update.gradients[0] *= 1.01
    assert held.judge(update, loss).fault


def test_what_does_not_fit_in_memory_is_not_held_and_says_so(registry, dataset, monkeypatch):
    memory = psutil.virtual_memory()
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory._replace(available=1000))
    (run,) = compare(request(dataset, rows=(row(registry, "hongtu"),)), registry).runs
    assert run.status == "done"
    assert run.equivalence is None
    (note,) = [note for note in run.notes if "not held equal" in note]
    assert "plain training in float64 needs about" in note
    assert "1.00 kB are free" in note


def test_bends_keep_the_inputs_of_relus_and_their_gradients():
    z = torch.tensor([[-1.0, 1e-9], [2.0, 0.0]], dtype=torch.float64, requires_grad=True)
    with Bends() as bends:
        out = torch.relu(z)
        leaky = torch.nn.functional.leaky_relu(z, 0.2)
    relu, slanted = bends.found
    assert torch.equal(out, z.clamp(min=0))
    assert torch.allclose(leaky, torch.where(z > 0, z, 0.2 * z))
    assert (relu.slope, slanted.slope) == (0.0, 0.2)
    # The input next to nothing is close; the one that is nothing is so by no rounding.
    close = relu.find_close(relu.relative_margins(1e-6))
    assert close.tolist() == [1]
    (plain,) = torch.autograd.grad(out.sum(), z, retain_graph=True)
    assert plain.tolist() == [[0, 1], [1, 0]]
    relu.turn = relu.differs(dataclasses.replace(relu, input=torch.tensor([[-1.0, -1.0], [2, 0]])))
    (turned,) = torch.autograd.grad(out.sum(), z)
    assert turned.tolist() == [[0, 0], [1, 0]]


@functools.cache
def small_setting():
    return make_setting(Request((), make_dataset(), make_workload(), make_platform()))


def list_kept(epochs, rounds, updates, seed=0, later=()):
    """The numbers of the updates that are kept, of one epoch more than the workload's."""
    workload = dataclasses.replace(make_workload(epochs=epochs), seed=seed)
    evidence = Evidence(dataclasses.replace(small_setting(), workload=workload), updates)
    for epoch in later:
        evidence.keep_later(epoch)
    return [
        epoch * rounds + round_
        for epoch in range(epochs + 1)
        for round_ in range(rounds)
        if evidence.wants(epoch, round_, rounds)
    ]


@pytest.mark.parametrize(
    ("epochs", "rounds", "updates", "kept"),
    [(10, 1, 2, [0, 9]), (1, 2, 3, [0, 1]), (3, 1, 3, [0, 1, 2]), (5, 1, 1, [0]), (5, 1, 0, [])],
)
def test_the_first_the_last_and_what_is_between_are_kept(epochs, rounds, updates, kept):
    assert list_kept(epochs, rounds, updates) == kept


@pytest.mark.parametrize("updates", [3, 7])
def test_what_is_between_is_drawn_by_the_seed(updates):
    """Each update between the first and the last is kept as often as any other, over many seeds."""
    seeds, total, counts = 400, 12, np.zeros(12, dtype=int)
    for seed in range(seeds):
        kept = list_kept(4, 3, updates, seed)
        assert len(kept) == updates
        counts[kept] += 1
    assert list_kept(4, 3, updates, 7) == list_kept(4, 3, updates, 7)
    assert counts[0] == counts[-1] == seeds
    due = seeds * (updates - 2) / (total - 2)
    assert (np.abs(counts[1:-1] - due) < 5 * due**0.5).all(), counts


def test_an_update_of_a_later_epoch_is_kept_where_any_is():
    found = [list_kept(2, 3, 2, seed, later=(2,)) for seed in range(50)]
    assert {tuple(kept[:-1]) for kept in found} == {(0, 5)}
    assert {kept[-1] for kept in found} == {6, 7, 8}
    assert list_kept(2, 3, 0, later=(2,)) == []


def path_graph(count):
    """0 - 1 - 2 - ..., in both directions."""
    neighbours = [[u for u in (v - 1, v + 1) if 0 <= u < count] for v in range(count)]
    indptr = np.concatenate(([0], np.cumsum([len(each) for each in neighbours])))
    indices = np.array([u for each in neighbours for u in each], dtype=np.int32)
    return Graph(indptr.astype(np.int64), indices)


def block(sources, num_dst, *rows):
    indptr = np.concatenate(([0], np.cumsum([len(each) for each in rows]))).astype(np.int64)
    indices = np.array([u for each in rows for u in each], dtype=np.int32)
    return Block(np.array(sources, dtype=np.int64), num_dst, indptr, indices)


@pytest.mark.parametrize(
    ("made", "right"),
    [
        (block([2, 1, 3], 1, [1, 2]), True),
        (block([2, 1, 3], 1, []), True),
        # An edge twice, one that is not there, one to itself, and a source that is there twice.
        (block([2, 1, 3], 1, [1, 1]), False),
        (block([2, 1, 4], 1, [1, 2]), False),
        (block([2, 1, 3], 1, [0, 2]), False),
        (block([2, 1, 1], 1, [1, 2]), False),
        # The ends of the rows of the graph, where a search may read what is another vertex's.
        (block([5, 4], 1, [1]), True),
        (block([5, 0], 1, [1]), False),
        (block([0, 1], 2, [1], [0]), True),
        (block([0, 5], 1, [1]), False),
        # Sources without an edge: no vertices, and one that occurs twice.
        (block([2, 1, 6], 1, [1]), False),
        (block([2, 1, -1], 1, [1]), False),
        (block([2, 1, 5, 5], 1, [1]), False),
    ],
)
def test_edges_of_a_block_are_the_graphs(made, right):
    graph = path_graph(6)
    assert has_edges(graph, made) is right


class _Sampler:
    name, scales_edges = "one", False

    def __init__(self, law):
        self.law = law

    def sampling(self, workload):
        return self.law


def audit(blocks, seeds, *, law=UNIFORM, fanouts=(2, 1), edges=True):
    graph = path_graph(6)
    dataset = dataclasses.replace(
        make_dataset(),
        graph=graph,
        features=np.ones((6, 7), dtype=np.float32),
        labels=np.zeros(6, dtype=np.int64),
        **{f"{name}_mask": np.ones(6, dtype=bool) for name in ("train", "val", "test")},
    )
    workload = dataclasses.replace(make_workload(), fanouts=fanouts)
    setting = make_setting(Request((), dataset, workload, make_platform()))
    unit = Unit(0, tuple(blocks))
    return find_unit_fault(unit, np.array(seeds), _Sampler(law), setting, edges=edges)


#: For seed 2: both its neighbours, and one of each of those.
ABOVE = block([2, 1, 3], 1, [1, 2])
BELOW = block([2, 1, 3, 0, 4], 3, [1], [3], [4])


def test_right_mini_batches_have_no_fault():
    """Under a law of its own a sampler may draw less; edges are looked at only where asked."""
    assert audit([BELOW, ABOVE], [2]) is None
    assert audit([block([2, 1, 3], 3, [1], [], []), ABOVE], [2], law="own") is None
    strange = block([2, 1, 3, 0, 4], 3, [1], [3], [3])
    assert audit([strange, ABOVE], [2], edges=False) is None


@pytest.mark.parametrize(
    ("blocks", "options", "fault"),
    [
        ([ABOVE], {}, "has 1 blocks for 2 layers"),
        ([BELOW, ABOVE], {"seeds": [3]}, "other vertices than its seeds"),
        ([ABOVE, ABOVE], {}, "are not the sources of the next"),
        ([BELOW, ABOVE], {"fanouts": (1, 1)}, "vertex 2 has 2 in-edges where sampler 'one' says"),
        ([BELOW, ABOVE], {"fanouts": (2, 0)}, "vertex 2 has 1 in-edges"),
        (
            [block([2, 1, 3, 0, 4], 3, [1], [3], [3]), ABOVE],
            {},
            "an in-edge twice, or one that the graph does not have",
        ),
        # Under a law of its own a sampler may draw less, and not more than there is.
        ([block([2, 1, 3], 3, [1, 2, 0], [], []), ABOVE], {"law": "own"}, "has 3 in-edges"),
    ],
)
def test_what_is_wrong_with_a_mini_batch_is_said(blocks, options, fault):
    found = audit(blocks, options.pop("seeds", [2]), **options)
    assert fault in found
