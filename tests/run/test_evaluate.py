"""Evaluation some rows at a time: what the whole graph at once gives, in the memory there is."""

import dataclasses
import os
from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from gnnbench import datasets, plugins
from gnnbench.check.graphs import make_dataset, make_graph, make_platform, make_workload
from gnnbench.host.mapped import shelve
from gnnbench.lowering import host_resident
from gnnbench.lowering.memory import host_graph_bytes
from gnnbench.machines.tables import replace_fields
from gnnbench.models import MODELS, PROJECTED, BoundBlock, Degrees, build
from gnnbench.parts import Setting
from gnnbench.price.model_clock import ModelClock
from gnnbench.records import Graph, Parts, Workload
from gnnbench.run import evaluate, host_store, multiplied, train
from gnnbench.run.evaluate import Evaluator, cut_rows, whole_graph_block
from gnnbench.run.features import feature_rows
from tests.systems.training import registry
from tests.uneven import make_uneven

pytestmark = pytest.mark.usefixtures("one_thread")

LAYERS = 3


@cache
def setting_for(model, sparse=False):
    data = make_dataset()
    if sparse:
        data = dataclasses.replace(data, features=sp.csr_matrix(np.maximum(data.features, 0)))
    workload = make_workload(model, LAYERS)
    return Setting(data, make_platform(2), workload, build(workload).shapes)


def evaluator(setting, kernel="torch", memory="host", block_rows=10_000, **options):
    parts = registry().part("kernel", kernel)(), registry().part("memory", memory)(**options)
    return Evaluator(setting, *parts, block_bytes=block_rows * 7 * 8)


def undivided(setting, model, kernel="torch"):
    """Loss and accuracies from the logits of the whole graph as one block."""
    data = setting.dataset
    bound = BoundBlock(
        whole_graph_block(data),
        registry().part("kernel", kernel)(),
        Degrees(data.graph.degrees),
        torch.float64,
        torch.device("cpu"),
    )
    everything = np.arange(data.graph.num_vertices)
    with torch.no_grad():
        logits = model([bound] * len(model.stack), feature_rows(setting, everything, sparse=False))
    labels, train = torch.from_numpy(data.labels), torch.from_numpy(data.train_ids)
    loss = float(torch.nn.functional.cross_entropy(logits[train], labels[train]))
    correct = (logits.argmax(dim=1) == labels).numpy()
    masks = {"train": data.train_mask, "val": data.val_mask, "test": data.test_mask}
    return loss, {name: correct[mask & (data.labels >= 0)].mean() for name, mask in masks.items()}


@pytest.mark.parametrize(
    ("kernel", "block_rows"), [("torch", 1), ("torch", 40), ("native", 40), ("native", 10_000)]
)
@pytest.mark.parametrize("model", MODELS)
def test_blocks_give_what_the_whole_graph_gives(model, kernel, block_rows):
    setting = setting_for(model)
    projected = range(LAYERS) if model in PROJECTED else ()
    for trained in (build(setting.workload), build(setting.workload, projected)):
        expected, accuracies = undivided(setting, trained, kernel)
        loss, accuracy = evaluator(setting, kernel, block_rows=block_rows).evaluate(trained)
        assert loss == pytest.approx(expected, rel=1e-12, abs=0)
        assert accuracy == accuracies


def test_blocks_that_read_every_vertex_read_their_own_first():
    """A complete graph: three destinations are neighbours of all."""
    setting = setting_for("sage")
    count = setting.dataset.graph.num_vertices
    others = [np.delete(np.arange(count, dtype=np.int32), v) for v in range(count)]
    indptr = np.arange(count + 1, dtype=np.int64) * (count - 1)
    complete = dataclasses.replace(setting.dataset, graph=Graph(indptr, np.concatenate(others)))
    setting = dataclasses.replace(setting, dataset=complete)
    model = build(setting.workload)
    loss, accuracy = evaluator(setting, block_rows=3 * count).evaluate(model)
    expected, accuracies = undivided(setting, model)
    assert loss == pytest.approx(expected, rel=1e-12, abs=0)
    assert accuracy == accuracies


@pytest.mark.parametrize("block_rows", [1, 40])
def test_sparse_features_are_made_dense_a_block_at_a_time(block_rows, monkeypatch):
    setting = setting_for("gcn", sparse=True)
    asked = []

    def count_rows(setting, ids, *, sparse):
        asked.append(len(ids))
        return feature_rows(setting, ids, sparse=sparse)

    monkeypatch.setattr(evaluate, "feature_rows", count_rows)
    model = build(setting.workload)
    loss, _ = evaluator(setting, block_rows=block_rows).evaluate(model)
    assert loss == pytest.approx(undivided(setting, model)[0], rel=1e-12, abs=0)
    # A block reads a row of its own and one for each in-edge at most, and the hub has 20.
    assert max(asked) <= max(block_rows, 1 + int(setting.dataset.graph.degrees.max()))


def on_disk(model, width, features=30):
    """A setting whose data set is a folder, as far as evaluation knows."""
    spec = f"sbm:vertices=200,edges=900,features={features},classes=3"
    made = datasets.load(spec)
    data = dataclasses.replace(made, folder="somewhere", features=shelve(made.features))
    dims = (features, width, 3)
    workload = Workload(
        model=model, dims=dims, epochs=1, batch_size=10, fanouts=(2, 2), seed=0, dtype="float64"
    )
    return Setting(data, make_platform(2), workload, build(workload).shapes)


@pytest.mark.parametrize(("memory", "block_rows"), [("host", 30), ("hongtu", 30), ("hongtu", 400)])
@pytest.mark.parametrize("model", ["gcn", "gin", "sage", "commnet"])
def test_features_on_disk_are_read_once(model, block_rows, memory, monkeypatch):
    setting = on_disk(model, width=7)
    trained = build(setting.workload)
    expected, accuracies = undivided(setting, trained)
    monkeypatch.setattr(evaluate, "feature_rows", None)
    monkeypatch.setattr(multiplied, "FILLED_BYTES", 30 * 8 * 9)
    loss, accuracy = evaluator(setting, memory=memory, block_rows=block_rows).evaluate(trained)
    assert loss == pytest.approx(expected, rel=1e-12, abs=0)
    assert accuracy == accuracies


@pytest.mark.parametrize(
    ("model", "width", "block_rows"),
    [("gat", 7, 30), ("sage", 15, 30), ("gcn", 30, 30), ("gcn", 7, 10_000)],
)
def test_features_that_are_not_narrower_after_it_are_not_multiplied(model, width, block_rows):
    setting = on_disk(model, width)
    trained = build(setting.workload)
    assert not multiplied.multiplies_first(setting, trained.stack[0], block_rows * 7 * 8)
    loss, _ = evaluator(setting, block_rows=block_rows).evaluate(trained)
    assert loss == pytest.approx(undivided(setting, trained)[0], rel=1e-12, abs=0)


@pytest.mark.parametrize("model", ["gcn", "gat"])
def test_what_the_host_cannot_hold_is_spilled(model, tmp_path, monkeypatch):
    setting = setting_for(model)
    plans = []

    class Watched(host_store.HostStore):
        def __init__(self, plan, dtype):
            super().__init__(plan, dtype)
            plans.append(plan)

    monkeypatch.setattr(evaluate, "HostStore", Watched)
    trained = build(setting.workload)
    options = {"memory": "hongtu", "block_rows": 40, "spill_dir": str(tmp_path)}
    whole = evaluator(setting, **options).evaluate(trained)
    spilled = evaluator(setting, host_bytes=1, **options).evaluate(trained)
    assert spilled == whole
    assert [len(plan.spilled) for plan in plans] == [0, 2]
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("model", "depth", "spilled"),
    [
        ("gcn", 1, False), ("gcn", 2, True), ("gcn", 3, False), ("gcn", 3, True),
        ("gat", 2, False), ("gat", 4, True),
    ],
)  # fmt: skip
def test_evaluation_between_epochs_borrows_the_gradients_memory(
    model, depth, spilled, tmp_path, monkeypatch
):
    """Borrowing changes no loss, parameter or device peak; its blocks are in the ledger."""
    workload = make_workload(model, depth)
    platform = make_uneven(2)
    host = replace_fields(platform.host, disk_bandwidth_bytes_per_s=1e9)
    platform = dataclasses.replace(platform, host=host)
    setting = Setting(make_dataset(), platform, workload, build(workload).shapes)
    # Room for what is never spilled, the data set and the optimiser's state, and for one block.
    if spilled:
        monkeypatch.setattr(host_resident, "LENT_SHARE", 1)
    stays = sum(host_graph_bytes(setting).values()) + 3 * setting.parameter_bytes + 5000
    memory = {"host_bytes": str(stays), "spill_dir": str(tmp_path)} if spilled else {}

    def run(watch=None, lend=None):
        parts = Parts("hongtu", "hongtu", "hongtu", "hongtu", "torch")
        bundle = plugins.assemble(registry(), parts, {"memory": memory})
        return train(bundle, setting, ModelClock(setting.platform, bundle.kernel), watch, lend=lend)

    alone = run()
    assert any("spilled to disk: " in note for note in alone.notes) == spilled
    borrowing, owning = evaluator(setting, block_rows=40), evaluator(setting, block_rows=40)
    expected, found = [], []
    with monkeypatch.context() as patched:

        def watch(epoch, trained):
            expected.append(owning.evaluate(trained))
            patched.setattr(evaluate, "HostStore", None)  # whoever makes room fails
            found.append(borrowing.evaluate(trained))
            patched.undo()
            return False

        watched = run(watch, borrowing.borrow)
    # How a block's edges fall into vector registers decides the last bit of an exponential.
    assert [loss for loss, _ in found] == pytest.approx([loss for loss, _ in expected], rel=1e-14)
    assert [accuracy for _, accuracy in found] == [accuracy for _, accuracy in expected]
    assert len(found) == workload.epochs > 1
    assert [epoch.loss for epoch in watched.epochs] == [epoch.loss for epoch in alone.epochs]
    if spilled:
        # What training would have kept in memory makes room for the block.
        assert stays - 5000 < watched.peak_bytes["host"] <= stays
    else:
        blocks_bytes = watched.peak_bytes["host"] - alone.peak_bytes["host"]
        assert 0 < blocks_bytes <= evaluate.BLOCK_PARTS * 40 * 7 * 8
    for device in platform.accelerators:
        assert watched.peak_bytes[device.name] == alone.peak_bytes[device.name]
    for name, parameter in alone.parameters.items():
        np.testing.assert_array_equal(watched.parameters[name], parameter)
    borrowing.give_back()
    assert borrowing.evaluate(build(workload)) == owning.evaluate(build(workload))


@pytest.mark.parametrize("rows", [1, 40, 10_000])
def test_ranges_hold_every_vertex_once_and_few_edges(rows):
    graph = make_graph()
    ranges = list(cut_rows(graph, rows))
    assert np.concatenate(ranges).tolist() == list(range(graph.num_vertices))
    for ids in ranges:
        assert len(ids) == 1 or len(ids) + graph.degrees[ids].sum() <= rows
