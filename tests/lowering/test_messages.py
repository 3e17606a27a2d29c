"""Messages of edges in memory: what the ledger says of them, and what torch allocates."""

import dataclasses
import json

import numpy as np
import pytest
from torch.profiler import ProfilerActivity, profile

from gnnbench import plugins
from gnnbench.check.graphs import make_this_host
from gnnbench.datasets import build
from gnnbench.models import build as build_model
from gnnbench.parts import Setting
from gnnbench.price.wall_clock import WallClock
from gnnbench.records import Workload
from gnnbench.run import Training, train

VERTICES, EDGES, DIMS = 2_000, 60_000, (32, 128, 4)


@pytest.fixture(scope="module")
def setting():
    """Two layers of GAT over 30 edges a vertex, on this machine."""
    drawn = np.random.default_rng(3)
    dataset = build(
        "drawn",
        drawn.integers(0, VERTICES, (2, EDGES)),
        num_vertices=VERTICES,
        features=drawn.standard_normal((VERTICES, DIMS[0]), dtype=np.float32),
        labels=drawn.integers(0, DIMS[-1], VERTICES),
    )
    workload = Workload("gat", DIMS, epochs=1, batch_size=1000, fanouts=(20, 20), seed=1)
    host = make_this_host()
    return Setting(dataset, host, workload, build_model(workload).shapes)


def open_bundle(strategy, mode):
    registry = plugins.load()
    return plugins.assemble(registry, registry.strategy(strategy).bundles[mode], {})


def count_allocated(strategy, mode, setting, path):
    """Bytes that torch has at most in an epoch beyond those that it has before, by its profiler."""
    training = Training(open_bundle(strategy, mode), setting, WallClock())
    training.run_epoch(0)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        training.run_epoch(1)
    found.export_chrome_trace(str(path))
    every = json.loads(path.read_text())["traceEvents"]
    events = [event for event in every if event.get("name") == "[memory]"]
    sizes = [event["args"]["Bytes"] for event in sorted(events, key=lambda event: event["ts"])]
    return int(np.cumsum(sizes).max())


def count_held(strategy, mode, setting):
    (peak_bytes,) = train(open_bundle(strategy, mode), setting, WallClock()).peak_bytes.values()
    return peak_bytes


@pytest.mark.parametrize("mode", ["full-graph", "mini-batch"])
def test_the_ledger_knows_the_messages_that_pyg_makes_of_attention(setting, tmp_path, mode):
    strategies = ("pyg", "reference")
    sent, fused = (count_allocated(s, mode, setting, tmp_path / f"{s}.json") for s in strategies)
    held, fused_held = (count_held(strategy, mode, setting) for strategy in strategies)
    assert sent > 3 * fused
    assert held - fused_held == pytest.approx(sent - fused, rel=0.1)


@pytest.mark.parametrize("model", ["gat", "gcn"])
def test_others_make_none(setting, model):
    workload = dataclasses.replace(setting.workload, model=model)
    shapes = build_model(workload).shapes
    for name in ("pyg", "dgl", "native", "reference"):
        kernel = open_bundle(name, "full-graph").kernel
        widths = [kernel.shape_of(shape).on_edges.messages for shape in shapes]
        assert widths == ([128, 4] if (name, model) == ("pyg", "gat") else [0, 0])


def test_mini_batches_hold_what_gates_make_of_each_edge(setting, tmp_path):
    """GGCN's autograd keeps several rows an edge, and GAT's sum by trained weights two values."""
    sizes = []
    for model in ("ggcn", "gat"):
        workload = dataclasses.replace(setting.workload, model=model)
        other = dataclasses.replace(setting, workload=workload, layers=build_model(workload).shapes)
        allocated = count_allocated("reference", "mini-batch", other, tmp_path / f"{model}.json")
        sizes.append((allocated, count_held("reference", "mini-batch", other)))
    (gated, gated_held), (attended, attended_held) = sizes
    assert gated > 5 * attended
    assert gated_held - attended_held == pytest.approx(gated - attended, rel=0.1)
