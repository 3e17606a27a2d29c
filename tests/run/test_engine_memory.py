"""What the full-graph engine keeps in this process beside the tensors in its books."""

import dataclasses

import numpy as np
import pytest
import torch

from gnnbench import plugins
from gnnbench.check.graphs import make_dataset, make_workload
from gnnbench.kernels import autograd
from gnnbench.kernels.buffers import pool
from gnnbench.kernels.dispatch.aggregation import SparseMatrix
from gnnbench.machines.tables import replace_fields
from gnnbench.models import build
from gnnbench.models.saved import SavedTensors
from gnnbench.parts import Setting
from gnnbench.price.model_clock import ModelClock
from gnnbench.program import Step
from gnnbench.program.recorder import Recorder
from gnnbench.records import Parts
from gnnbench.run.host_resident import HostResidentEngine
from tests.systems.training import registry
from tests.uneven import make_uneven

#: Room for the data set and the model, and for nothing that can be spilled.
LEAST_BYTES = 16_000


def prepared(communication="hongtu", kernel="torch", model="gcn", keeps="hongtu", **memory):
    workload, platform = make_workload(model, 3), make_uneven(2)
    host = replace_fields(platform.host, disk_bandwidth_bytes_per_s=1e9)
    platform = dataclasses.replace(platform, host=host)
    setting = Setting(make_dataset(), platform, workload, build(workload).shapes)
    parts = Parts("hongtu", "hongtu", communication, keeps, kernel)
    options = {
        "memory": {name: str(value) for name, value in memory.items()},
        "sampler": {"chunks_per_partition": "3"},
    }
    bundle = plugins.assemble(registry(), parts, options)
    bundle = bundle.begin(setting)
    recorder = Recorder(ModelClock(setting.platform, bundle.kernel))
    engine = HostResidentEngine(bundle, setting, recorder)
    engine.prepare()
    return engine


def arrays_of(move):
    exchanges = [rows for each in (*move.pulls, *move.pushes) for rows in (each.here, each.there)]
    named = (getattr(move, name) for name in move.__slots__)
    return [*exchanges, *(value for value in named if isinstance(value, np.ndarray))]


@pytest.mark.parametrize("communication", ["hongtu", "vanilla"])
def test_a_chunk_is_held_once_and_its_positions_are_int32(communication):
    engine = prepared(communication)
    for index, plans in enumerate(engine._lowering.plans):
        for plan in plans:
            bound = engine._bounds[index, plan.slot].block
            for name in ("src_ids", "indptr", "indices"):
                theirs = getattr(plan.move.block, name)
                assert np.shares_memory(getattr(plan.block, name), theirs)
                assert np.shares_memory(getattr(bound, name), theirs)
            assert all(array.dtype == np.int32 for array in arrays_of(plan.move))


@pytest.mark.parametrize("kernel", ["torch", "native"])
@pytest.mark.parametrize("model", ["gcn", "gat"])
def test_a_run_that_spills_keeps_nothing_that_it_can_make_again(model, kernel, tmp_path):
    roomy = prepared(kernel=kernel, model=model)
    short = prepared(kernel=kernel, model=model, host_bytes=LEAST_BYTES, spill_dir=tmp_path)
    assert short._lowering.host.spilled
    epochs = [(engine.run_epoch(0), engine.run_epoch(1)) for engine in (roomy, short)]
    assert [epoch.loss for epoch in epochs[0]] == [epoch.loss for epoch in epochs[1]]
    assert epochs[0][1].vertices == epochs[1][1].vertices
    kept = [
        sum(made is not None for bound in engine._bounds.values() for made in made_of(bound))
        for engine in (roomy, short)
    ]
    assert kept[0] > 0
    assert kept[1] == 0
    assert pool.idle_bytes == 0


def test_a_run_with_a_cap_gives_back_what_lies_idle_between_layers(monkeypatch):
    released: list[None] = []
    monkeypatch.setattr(type(pool), "release", lambda self: released.append(None))
    found = []
    for memory in ({}, {"host_bytes": 10_000_000}):
        released.clear()
        engine = prepared(**memory)
        assert not engine._lowering.host.spilled
        engine.run_epoch(0)
        found.append(len(released))
    assert found[0] == 0
    assert found[1] > 0


def made_of(bound):
    return bound._plain, bound._looped, bound._gcn


@pytest.mark.parametrize("communication", ["hongtu", "vanilla"])
@pytest.mark.parametrize("kernel", ["torch", "native"])
@pytest.mark.parametrize("model", ["gat", "ggcn"])
def test_what_autograd_saves_is_known_before(model, kernel, communication, monkeypatch):
    engine = prepared(communication, kernel, model, keeps="hongtu-cache")
    expected, found = [], []

    def note(self, room):
        found.append(self.size_bytes)

    monkeypatch.setattr(SavedTensors, "offload", note)
    for item in engine._lowering.run_epoch(0):
        if isinstance(item, Step) and item.label == "intermediates to host":
            expected.append(item.work.bytes)
    monkeypatch.setattr(SavedTensors, "restore", lambda self, device: None)
    engine.run_epoch(0)
    assert found == expected
    assert len(set(found)) > 2


def test_hooks_see_the_softmax_that_its_backward_pass_reads():
    """Whatever autograd keeps of a layer can be moved to the host and back (HongTu §4.2)."""
    indptr, indices = np.array([0, 2, 3]), np.array([0, 1, 1], dtype=np.int32)
    matrix = SparseMatrix(indptr, indices, 2)
    scores = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64, requires_grad=True)
    seen = []

    def pack(tensor):
        seen.append(tensor.clone())
        return len(seen) - 1

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda position: seen[position]):
        softmax = autograd.edge_softmax(matrix, scores)
    assert [torch.equal(tensor, softmax.detach()) for tensor in seen] == [True]
    softmax.detach().zero_()  # the copies are what counts
    softmax.backward(torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64))
    first = float(seen[0][0])
    assert scores.grad.tolist() == pytest.approx([first * (1 - first), -first * (1 - first), 0.0])
