"""BNS-GCN's Algorithm 1: what a sample of the halo changes, and what it saves.

Partition i has the inner vertices V_i and the boundary set B_i, of which an epoch has U_i; p is the
probability with which a vertex of B_i is in U_i.
"""

from functools import cache

import numpy as np
import pytest
import torch

from gnnbench.lowering.stages.unit_passes import AggregateForward
from gnnbench.models.products import projected_layers
from gnnbench.price.dry_run import DryRun
from gnnbench.program import Hold, Step
from tests.models.dense_training import train_on
from tests.systems import training
from tests.systems.training import assert_same_training, epoch_s, losses, prepare, sent
from tests.uneven import on_cpus

ITEM = 8
DEVICES = 3


def setting_for(model="gcn", devices=DEVICES):
    return training.setting_for(model, devices, epochs=4)


def bundle_of(kernel="torch", **options):
    return training.bundle_of("bnsgcn", [("kernel", kernel)], communication=options)


def run(setting, kernel="torch", **options):
    return training.run(setting, "bnsgcn", [("kernel", kernel)], communication=options)


def run_partition(setting):
    return training.run(setting, "partition")


@cache
def cut(setting):
    """Each vertex's device, and by device its boundary set, out of the edges of the graph."""
    graph = setting.dataset.graph
    owner = bundle_of().sampler.chunks(setting, DEVICES).owner
    ends = np.repeat(np.arange(graph.num_vertices), graph.degrees)
    halos = [
        np.unique(graph.indices[(owner[ends] == slot) & (owner[graph.indices] != slot)])
        for slot in range(DEVICES)
    ]
    return owner, halos


def draw(setting, rate, epoch):
    part = bundle_of(rate=rate).communication
    _, halos = cut(setting)
    seed = setting.workload.seed
    return [
        ids[part.draw(seed, epoch, slot, ids.astype(np.int64))] for slot, ids in enumerate(halos)
    ]


@pytest.mark.parametrize(("model", "devices"), [("gcn", 3), ("gat", 3), ("gat", 1)])
def test_with_the_whole_halo_it_is_partition_parallelism_to_the_bit(model, devices):
    setting = setting_for(model, devices)
    options = {"rate": 1} if devices > 1 else {}
    ours, plain = run(setting, **options), run_partition(setting)
    assert_same_training(ours, plain, rtol=0)
    assert ours.peak_bytes == plain.peak_bytes
    assert [epoch.bytes for epoch in ours.epochs] == [epoch.bytes for epoch in plain.epochs]
    assert epoch_s(ours) == epoch_s(plain)
    if devices == 1:
        assert not any("probability" in note for note in ours.notes)
        assert not any(span.label == "draw the halo" for span in ours.epochs[0].spans)


def update(layer, model, a):
    if model == "gin":
        a = torch.relu(a @ layer.weight_1 + layer.bias_1) @ layer.weight_2 + layer.bias_2
    else:
        a = a @ layer.weight + layer.bias
    return torch.relu(a) if layer.activation else a


@cache
def train_densely(setting, rate):
    """Return the losses on dense matrices.

    Device i has the columns of V_i as they are, and those of U_i divided by p. Means divide by the
    degrees of the whole graph.
    """
    graph, workload = setting.dataset.graph, setting.workload
    owner, _ = cut(setting)
    num = graph.num_vertices
    plain = torch.zeros(num, num, dtype=torch.float64)
    plain[np.repeat(np.arange(num), graph.degrees), graph.indices] = 1
    degrees = plain.sum(1)
    norm = (degrees + 1).rsqrt()

    def forward(layers, epoch):
        seen = torch.from_numpy(np.equal.outer(np.arange(DEVICES), owner)).double()
        for slot, kept in enumerate(draw(setting, rate, epoch)):
            seen[slot, kept] = 1 / rate if rate else 0.0
        left = plain * seen[owner]
        h = torch.from_numpy(setting.dataset.features).double()
        for layer in layers:
            if workload.model == "gcn":
                a = (norm[:, None] * (left + torch.eye(num)) * norm) @ h
            elif workload.model == "sage":
                a = torch.cat((h, (left @ h) / degrees.clamp(min=1)[:, None]), dim=1)
            else:
                a = h + left @ h
            h = update(layer, workload.model, a)
        return h

    return train_on(setting, forward)[0]


@pytest.mark.parametrize(
    ("model", "kernel", "rate"),
    [
        ("gcn", "torch", 0.3),
        ("gcn", "native", 0.3),
        ("gcn", "torch", 0.0),
        ("sage", "torch", 0.3),
        ("sage", "dgl", 0.3),
        ("sage", "torch", 0.0),
        ("gin", "torch", 0.5),
    ],
)
def test_losses_are_those_of_matrices_without_the_rows_that_were_not_drawn(model, kernel, rate):
    setting = on_cpus(setting_for(model))
    if kernel == "dgl":  # multiplies before it takes means
        assert projected_layers(bundle_of(kernel=kernel), setting)
    trace = run(setting, kernel=kernel, rate=rate)
    assert losses(trace) == pytest.approx(train_densely(setting, rate), rel=1e-9)


def test_sums_over_rows_that_were_drawn_are_unbiased():
    """Every row is drawn in a share p of the epochs, and then counts 1 / p times."""
    setting, rate, epochs = setting_for(), 0.25, 300
    lowering, _ = prepare(setting, bundle_of(rate=rate))
    assert lowering.halo.scale * rate == 1
    part, seed = bundle_of(rate=rate).communication, setting.workload.seed
    for slot, ids in enumerate(cut(setting)[1]):
        drawn = [part.draw(seed, epoch, slot, ids.astype(np.int64)) for epoch in range(epochs)]
        error = np.sqrt(rate * (1 - rate) / epochs)
        assert (np.abs(np.mean(drawn, axis=0) - rate) <= 4.5 * error).all()


def test_devices_and_epochs_draw_independently():
    part = bundle_of(rate=0.5).communication
    ids = np.arange(20_000)
    kept = [part.draw(7, epoch, slot, ids) for epoch in range(2) for slot in range(2)]
    for one in kept:
        assert one.mean() == pytest.approx(0.5, abs=0.02)
    for number, one in enumerate(kept):
        for other in kept[:number]:
            assert (one & other).mean() == pytest.approx(0.25, abs=0.02)
    assert np.array_equal(part.draw(7, 1, 1, ids), kept[3])
    assert not np.array_equal(part.draw(8, 1, 1, ids), kept[3])


def test_chunks_of_a_device_share_what_it_has_drawn():
    """A vertex of the boundary set is there for all chunks of a partition or for none."""
    setting = setting_for()
    options = {"sampler": {"chunks_per_partition": 3}, "communication": {"rate": 0.5}}
    lowering, _ = prepare(setting, training.bundle_of("bnsgcn", **options))
    halo, shared = lowering.halo, 0
    for slot in range(DEVICES):
        halo.draw(0, slot)
        drawn = np.unique(
            np.concatenate(
                [read.ids for key, reads in halo.reads.items() for read in reads if key[1] == slot]
            )
        )
        for key, reads in halo.reads.items():
            if key[1] != slot:
                continue
            (unit,) = (each for each in lowering.cut.rounds[key[0]] if each.slot == slot)
            for whole in unit.reads_at(0):
                if whole.slot != slot:
                    left = [read.ids for read in reads if read.slot == whole.slot]
                    assert np.array_equal(np.intersect1d(whole.ids, drawn), np.sort(left[0]))
                    shared += len(left[0])
    assert shared


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.6])
def test_the_rows_of_the_sample_cross_and_no_others(rate):
    """Every epoch sends its own sample, forward and backward; a plan counts the same."""
    setting = setting_for()
    features, *hidden = setting.workload.dims[:-1]
    due = [
        sum(map(len, draw(setting, rate, epoch))) * (features + 2 * sum(hidden)) * ITEM
        for epoch in range(setting.workload.epochs)
    ]
    trace = run(setting, rate=rate)
    assert sent(trace) == due
    assert (len(set(due)) > 1) == (rate > 0)
    labels = {span.label for epoch in trace.epochs for span in epoch.spans}
    assert ("device to device" in labels) == (rate > 0)
    dry = DryRun(bundle_of(rate=rate), setting)
    planned = list(dry.run_epochs(setting.workload.epochs))
    assert [epoch.bytes["device_to_device"] for epoch, _ in planned] == due
    assert dry.finish(()).peak_bytes == trace.peak_bytes
    assert [ours.epoch_s for _, ours in planned] == epoch_s(trace)


def test_an_epoch_computes_on_the_edges_that_are_left_and_holds_their_rows():
    setting, rate = setting_for(), 0.3
    graph = setting.dataset.graph
    owner, _ = cut(setting)
    ends = np.repeat(np.arange(graph.num_vertices), graph.degrees)
    lowering, _ = prepare(setting, bundle_of(rate=rate))
    edges, held = {}, {}
    for item in lowering.run_epoch(0):
        if isinstance(item, Hold):
            held.setdefault((item.memory, item.tensor), []).append(item.size_bytes)
        elif isinstance(item, Step) and item.index_work is not None:
            item.index_work()
        elif isinstance(item, Step) and isinstance(item.operation, AggregateForward):
            edges.setdefault(item.place.device, set()).add(item.counts.edges)
    for slot, kept in enumerate(draw(setting, rate, 0)):
        inner = np.flatnonzero(owner == slot)
        sources = graph.indices[owner[ends] == slot]
        left = int(np.isin(sources, np.concatenate((inner, kept))).sum())
        assert edges[slot] == {left}
        rows = (len(inner) + len(kept)) * ITEM
        in_flight = held[f"gpu{slot}", "rows and gradients in flight"]
        assert in_flight[: len(lowering.layers)] == [
            rows * width for width in setting.workload.dims[:-1]
        ]
        # The CSR and its transpose; an edge's value and its place in the other; in-degrees, and
        # GCN's constants, one of a source and two of a destination.
        size = 4 * (len(inner) + 1 + len(inner) + len(kept) + 1 + 2 * left) + (ITEM + 4) * left
        size += (len(inner) + len(kept) + 3 * len(inner)) * ITEM
        assert held[f"gpu{slot}", "chunk topologies"] == [size]
