"""HongTu trains what plain full-graph training does: every model, depth and two-level partition.

The paper's models (§4.2, §7.1: GCN, GraphSAGE, GIN, CommNet, GAT, GGCN) with 2 to 8 layers, on m
devices with n chunks each, in float64 to 1e-9. The graph is so small that 4 x 8 chunks are more
than its vertices, and has isolated vertices, so that some chunks have no edges and some nothing.
"""

from __future__ import annotations

import itertools
import math
from functools import cache

import numpy as np
import pytest
import torch

from gnnbench.datasets import build as build_dataset
from gnnbench.models import MODELS, BoundBlock, Degrees, build
from gnnbench.parts import Setting
from gnnbench.records import Dataset, Workload
from gnnbench.run.evaluate import whole_graph_block
from tests.systems.training import make_uneven_platform, registry, run

NUM_VERTICES = 24
NUM_ISOLATED = 4
NUM_FEATURES, NUM_HIDDEN, NUM_CLASSES = 6, 5, 3
#: The second begins with what the first left behind, in buffers and in the optimiser.
EPOCHS = 2
LAYERS = (2, 3, 4, 8)
DEVICES = (1, 2, 4)
CHUNKS = (1, 3, 8)
#: Memory, communication and its options: all that the paper has, and in memory on several devices.
WAYS = (
    *itertools.product(
        ("hongtu", "hongtu-recompute", "hongtu-cache"),
        (
            ("vanilla", {}),
            ("hongtu", {"reuse": "false"}),
            ("hongtu", {"p2p": "false"}),
            ("hongtu", {"buffers": "separate"}),
            ("hongtu", {}),
        ),
    ),
    ("hongtu-im", ("halo", {})),
)


pytestmark = pytest.mark.usefixtures("one_thread")


@cache
def dataset(scale: float) -> Dataset:
    """A hub and random edges; every seventh vertex has no label. Features of size ``scale``."""
    random = np.random.default_rng(2)
    connected = NUM_VERTICES - NUM_ISOLATED
    hub = np.array([np.zeros(8, dtype=np.int64), np.arange(1, 9)])
    # Isolated vertices are spread over the ids, as partitions and chunks may be.
    ids = np.setdiff1d(np.arange(NUM_VERTICES), np.arange(NUM_ISOLATED) * 6 + 3)
    edges = np.hstack((hub, random.integers(0, connected, size=(2, 26))))
    labels = random.integers(0, NUM_CLASSES, size=NUM_VERTICES)
    labels[::7] = -1
    features = scale * random.standard_normal((NUM_VERTICES, NUM_FEATURES))
    return build_dataset(
        "small",
        ids[edges[:, edges[0] != edges[1]]],
        num_vertices=NUM_VERTICES,
        features=features.astype(np.float32),
        labels=labels,
    )


@cache
def setting_for(model: str, num_layers: int, devices: int) -> Setting:
    """A setting in which losses stay near those of a guess, and gradients reach every layer.

    Sums over neighbourhoods (GIN, GGCN) make rows about twice as large in every layer, which eight
    layers take to losses of 100, and on larger graphs to no number at all: their features are
    halved once for each layer. With another seed, ReLUs as few as these may all be zero.
    """
    scale = 0.5**num_layers if model in ("gin", "ggcn") else 1.0
    workload = Workload(
        model=model,
        dims=(NUM_FEATURES, *[NUM_HIDDEN] * (num_layers - 1), NUM_CLASSES),
        epochs=EPOCHS,
        batch_size=8,
        fanouts=(0,) * num_layers,
        seed=1,
        dtype="float64",
    )
    return Setting(dataset(scale), make_uneven_platform(devices), workload, build(workload).shapes)


@cache
def train_plainly(model: str, num_layers: int) -> tuple[list[float], dict[str, np.ndarray]]:
    """Losses and final parameters by autograd over the whole graph, without any engine."""
    setting = setting_for(model, num_layers, 1)
    workload, data = setting.workload, setting.dataset
    gnn = build(workload)
    kernel = registry().part("kernel", "torch")()
    bound = BoundBlock(
        whole_graph_block(data),
        kernel,
        Degrees(data.graph.degrees),
        torch.float64,
        torch.device("cpu"),
    )
    features = torch.from_numpy(data.features).double()
    labels, train_ids = torch.from_numpy(data.labels), torch.from_numpy(data.train_ids)
    optimiser = torch.optim.Adam(
        gnn.parameters(), lr=workload.learning_rate, weight_decay=workload.weight_decay
    )
    losses = []
    for _ in range(EPOCHS):
        optimiser.zero_grad()
        logits = gnn([bound] * num_layers, features)
        loss = torch.nn.functional.cross_entropy(logits[train_ids], labels[train_ids])
        torch.autograd.backward(loss)
        # Nothing is shown by a network whose ReLUs have died on the way down.
        assert all(p.grad.abs().max() > 0 for p in gnn.stack[0].parameters())
        optimiser.step()
        losses.append(float(loss.detach()))
    return losses, {name: p.detach().numpy() for name, p in gnn.named_parameters()}


def assert_trains_as_plainly(
    model: str,
    num_layers: int,
    devices: int,
    chunks: int,
    memory: str,
    communication: tuple[str, dict[str, str]],
) -> None:
    setting = setting_for(model, num_layers, devices)
    name, options = communication
    swaps = (("memory", memory), ("communication", name))
    sampler = {"chunks_per_partition": chunks}
    trace = run(setting, "hongtu", swaps, sampler=sampler, communication=options)
    losses, parameters = train_plainly(model, num_layers)
    assert all(math.isfinite(loss) for loss in losses)
    assert len(set(losses)) == EPOCHS
    assert [epoch.loss for epoch in trace.epochs] == pytest.approx(losses, rel=1e-9, abs=0)
    assert trace.parameters.keys() == parameters.keys()
    for name, expected in parameters.items():
        np.testing.assert_allclose(
            trace.parameters[name],
            expected,
            rtol=1e-9,
            atol=1e-9 * np.abs(expected).max(),
            err_msg=name,
        )


def spread():
    """Four runs of each model, with every depth, every m and n, and all memories between them."""
    for turn, model in enumerate(MODELS):
        for number, num_layers in enumerate(LAYERS):
            devices = DEVICES[(number + turn) % 3]
            chunks = CHUNKS[(2 * number + turn // 3 + 2) % 3]
            way = WAYS[5 * (4 * turn + number) % len(WAYS)]
            yield model, num_layers, devices, chunks, way


def everything():
    """Every model, depth, m and n; memory and communication turn with them."""
    for number, each in enumerate(itertools.product(MODELS, LAYERS, DEVICES, CHUNKS)):
        yield *each, WAYS[(number + number // 48) % len(WAYS)]


QUICK = [*spread()]


def test_the_spread_has_every_value_with_every_model():
    for model in MODELS:
        depths, devices, chunks, ways = zip(
            *(run[1:] for run in QUICK if run[0] == model), strict=True
        )
        assert (set(depths), set(devices), set(chunks)) == (set(LAYERS), set(DEVICES), set(CHUNKS))
        assert len({memory for memory, _ in ways}) >= 3
    assert all(way in [each[-1] for each in QUICK] for way in WAYS)
    met = {(each[0], WAYS.index(each[-1])) for each in everything()}
    assert met == set(itertools.product(MODELS, range(len(WAYS))))


def named(runs):
    """Return runs as parameters that are named by their values."""
    for each in runs:
        *values, (memory, (communication, options)) = each
        words = (*values, memory, communication, *options)
        yield pytest.param(*each, id="-".join(map(str, words)))


@pytest.mark.parametrize(("model", "num_layers", "devices", "chunks", "way"), [*named(QUICK)])
def test_hongtu_trains_as_plain_full_graph_training(model, num_layers, devices, chunks, way):
    assert_trains_as_plainly(model, num_layers, devices, chunks, *way)


@pytest.mark.long
@pytest.mark.parametrize(
    ("model", "num_layers", "devices", "chunks", "way"), [*named(everything())]
)
def test_so_it_does_however_it_is_partitioned(model, num_layers, devices, chunks, way):
    assert_trains_as_plainly(model, num_layers, devices, chunks, *way)


def test_some_chunks_have_no_edges_and_some_no_vertices():
    """The runs on 4 devices with 8 chunks rely on these."""
    sampler = registry().part("sampler", "hongtu")(chunks_per_partition=8)
    rounds = sampler.chunks(setting_for("gcn", 2, 4), 4).rounds
    units = [unit for round_ in rounds for unit in round_.units]
    assert len(units) == 32 > NUM_VERTICES
    assert any(len(unit.output_ids) == 0 for unit in units)
    assert any(len(unit.output_ids) and not unit.blocks[0].num_edges for unit in units)
    assert sum(unit.blocks[0].num_edges for unit in units) == dataset(1.0).graph.num_edges
