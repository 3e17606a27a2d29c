"""MixGCN's mixture of parallelism and of accelerators: its Algorithm 2, Propositions 3.3 to 3.5 and
Figure 5, on real training."""

import dataclasses
import itertools
from functools import cache

import numpy as np
import pytest

from gnnbench import datasets
from gnnbench.check.graphs import make_dataset, make_platform, make_workload
from gnnbench.errors import PluginError
from gnnbench.lowering.feature_shards import ring_steps
from gnnbench.lowering.shardings import find_shard_fault
from gnnbench.machines.tables import replace_fields
from gnnbench.parts import divide_evenly
from gnnbench.price.folds import digest, imbalance
from gnnbench.price.model_clock import ModelClock
from gnnbench.records import Shard, Workload
from gnnbench.run import train
from gnnbench_plugins.mixgcn.sampler import MixGCNSampler
from tests.systems.bundles import bundle_of, setting_of
from tests.systems.training import PLAIN, losses
from tests.uneven import make_uneven

ITEM = 8


def setting_for(model="gcn", num_layers=2, devices=3, epochs=2, kinds=()):
    platform = make_uneven(devices)
    accelerators = tuple(
        dataclasses.replace(device, kind=kind)
        for device, kind in itertools.zip_longest(platform.accelerators, kinds, fillvalue="gpu")
    )
    workload = make_workload(model, num_layers, epochs)
    platform = dataclasses.replace(platform, accelerators=accelerators)
    return setting_of(make_dataset(), platform, workload)


def mixgcn(parts=None, **options):
    """Return MixGCN's parts; ``sampler_stages=3`` sets the option ``stages`` of the sampler."""
    return bundle_of(parts or "mixgcn", mode="full-graph", **options)


def run(setting, parts=None, **options):
    bundle = mixgcn(parts, **options)
    return train(bundle, setting, ModelClock(setting.platform, bundle.kernel))


def epoch_s(trace):
    return digest(trace.epochs[-1], "modelled").epoch_s


@cache
def plain_losses(model, num_layers):
    return losses(run(setting_for(model, num_layers), PLAIN))


def assert_equal(trace, model="gcn", num_layers=2):
    assert losses(trace) == pytest.approx(plain_losses(model, num_layers), rel=1e-9, abs=0)


@pytest.mark.parametrize(
    ("model", "num_layers", "workers"),
    [("gcn", 2, 1), ("sage", 3, 2), ("sage", 2, 3), ("gin", 4, 4), ("gcn", 3, 8)],
)
def test_losses_are_those_of_full_graph_training(model, num_layers, workers):
    """60 vertices and widths of 7, 6 and 3: some workers have no column of a layer, or no label."""
    setting = setting_for(model, num_layers, workers)
    assert_equal(run(setting, sampler_schedule="reordered"), model, num_layers)


def test_the_split_set_apart_is_the_best_there_is():
    setting = setting_for("sage", 3, 5)
    options = {"placement_sparse": "apart", "sampler_stages": 3}
    epochs = {
        count: epoch_s(run(setting, placement_sparse_devices=count, **options))
        for count in range(1, 5)
    }
    bundle = mixgcn(**options)
    trace = train(bundle, setting, ModelClock(setting.platform, bundle.kernel))
    assert_equal(trace, "sage", 3)
    assert epoch_s(trace) == min(epochs.values())
    placement = bundle.settle(setting).placement
    count = len(placement.aggregators(setting.platform))
    (note,) = (note for note in trace.notes if "that update" in note)
    assert note.startswith(f"{count} of 5 accelerators aggregate for {5 - count} that update, the")
    asked = mixgcn(**options, placement_sparse_devices=2).settle(setting)
    assert asked.chosen["placement"] == ()


def slowed(setting, factor):
    platform = setting.platform
    accelerators = tuple(
        replace_fields(
            device,
            flops_per_s=device.hardware.flops_per_s / factor,
            memory_bandwidth_bytes_per_s=device.hardware.memory_bandwidth_bytes_per_s / factor,
        )
        for device in platform.accelerators
    )
    platform = dataclasses.replace(platform, accelerators=accelerators)
    return dataclasses.replace(setting, platform=platform)


@pytest.mark.parametrize("groups", ["shared", "apart"])
@pytest.mark.parametrize(("factor", "chosen"), [(1, "naive"), (1e5, "reordered")])
def test_the_schedule_chosen_is_the_better_one(groups, factor, chosen):
    """With fast devices messages cost more than a pipeline saves; with slow ones, less."""
    setting = slowed(setting_for("gcn", 3, 4), factor)
    options = {"placement_sparse": groups}
    if groups == "shared" and chosen == "reordered":
        links = tuple(
            dataclasses.replace(link, bandwidth_bytes_per_s=link.bandwidth_bytes_per_s / factor)
            for link in setting.platform.links
        )
        setting = dataclasses.replace(
            setting, platform=dataclasses.replace(setting.platform, links=links)
        )
    epochs = {
        schedule: epoch_s(run(setting, sampler_schedule=schedule, **options))
        for schedule in ("naive", "reordered")
    }
    bundle = mixgcn(**options)
    trace = train(bundle, setting, ModelClock(setting.platform, bundle.kernel))
    assert bundle.settle(setting).sampler.schedule == chosen == min(epochs, key=epochs.get)
    why, cut, *_ = trace.notes
    assert why.startswith(f"schedule {chosen} has the shorter modelled epoch: ")
    assert ("naive schedule" in cut) == (chosen == "naive")


@pytest.mark.parametrize(
    ("model", "stages", "devices", "groups"), [("gcn", 1, 4, 2), ("gin", 3, 4, 4), ("gcn", 3, 6, 3)]
)
def test_rows_of_the_adjacency_may_be_divided_as_well(model, stages, devices, groups):
    setting = setting_for(model, 3, devices)
    options = {"placement_row_groups": groups, "sampler_stages": stages}
    assert_equal(run(setting, **options), model, 3)
    shards = mixgcn(**options).placement.shard_aggregate(60, 7, setting.platform)
    assert find_shard_fault(shards, 60, 7) is None
    assert {end - begin for begin, end in (shard.vertices for shard in shards)} == {60 // groups}


def count_crossing(rows, width, sparse, dense, shared):
    """Return how many values cross from ``sparse`` column ranges to ``dense`` row ranges."""
    columns, ranges = divide_evenly(width, sparse), divide_evenly(rows, dense)
    stays = sum(
        (of_columns[1] - of_columns[0]) * (of_rows[1] - of_rows[0])
        for of_columns, of_rows in zip(columns[:shared], ranges[:shared], strict=True)
    )
    return rows * width - stays


def count_all_to_all_bytes(stages, widths, copies, **groups):
    """Return an epoch's all-to-all bytes; AGGREGATE gives ``copies`` matrices of each width."""
    values = 0
    for layer, width in enumerate(widths):
        times = copies if layer == 0 else 2 * copies + 2
        values += times * sum(count_crossing(rows, width, **groups) for rows in stages)
    return values * ITEM


def stages_of(trace_setting, **options):
    rounds = mixgcn(**options).sampler.chunks(trace_setting, 1).rounds
    return [len(unit.output_ids) for round_ in rounds for unit in round_.units]


@pytest.mark.parametrize(
    ("model", "copies", "workers"), [("gcn", 1, 3), ("sage", 2, 8), ("gin", 1, 1), ("gin", 1, 2)]
)
def test_bytes_are_those_of_the_closed_form(model, copies, workers):
    setting = setting_for(model, 3, workers, epochs=1)
    for schedule in ("naive", "reordered"):
        (epoch,) = run(setting, sampler_schedule=schedule).epochs
        assert epoch.bytes["all_to_all"] == count_all_to_all_bytes(
            stages_of(setting, sampler_schedule=schedule), setting.workload.dims[:-1], copies,
            sparse=workers, dense=workers, shared=workers,
        )  # fmt: skip
        # A ring: 2 (m - 1) / m of the model from each device.
        assert epoch.bytes["all_reduce"] == 2 * (workers - 1) * setting.parameter_bytes
        others = {kind for kind, size in epoch.bytes.items() if size}
        assert others <= {"all_to_all", "all_reduce"}


def test_what_stays_on_its_device_is_read_and_written_there():
    """To make it is part of the time: rows of a device's own part are nobody's message."""
    setting = setting_for("gcn", 2, 1, epochs=1)
    (epoch,) = run(setting, sampler_schedule="naive").epochs
    vertices, dims = setting.dataset.graph.num_vertices, setting.workload.dims
    copies = [span.work for span in epoch.spans if span.label.endswith(", own part")]
    widths = sorted(work.bytes / (2 * vertices * ITEM) for work in copies)
    # Aggregates of both layers; of the hidden layer's rows three more matrices cross.
    assert widths == sorted([dims[0], *4 * [dims[1]]])
    assert all(work.fresh for work in copies)


@pytest.mark.parametrize(
    ("options", "sparse", "dense"),
    [
        ({"placement_sparse": "host"}, 1, 4),
        ({"placement_sparse": "apart"}, 2, 2),
        ({"placement_sparse": "apart", "placement_sparse_devices": 1}, 1, 3),
    ],
)
def test_between_two_groups_everything_crosses(options, sparse, dense):
    setting = setting_for("gcn", 2, 4, epochs=1)
    (epoch,) = run(setting, sampler_schedule="naive", **options).epochs
    vertices, dims = setting.dataset.graph.num_vertices, setting.workload.dims
    assert epoch.bytes["all_to_all"] == (dims[0] + 4 * dims[1]) * vertices * ITEM
    assert epoch.bytes["all_to_all"] == count_all_to_all_bytes(
        [vertices], dims[:-1], 1, sparse=sparse, dense=dense, shared=0
    )


def even_setting(devices):
    """128 training vertices and widths of 32, which 1 to 32 devices divide evenly."""
    dataset = datasets.load("sbm:vertices=128,edges=800,features=32,classes=32")
    everyone = np.ones(128, dtype=bool)
    dataset = dataclasses.replace(
        dataset, train_mask=everyone, val_mask=~everyone, test_mask=~everyone
    )
    workload = Workload("gcn", (32, 32, 32), 1, 128, (0, 0), 0, dtype="float64")
    return setting_of(dataset, make_platform(devices), workload)


def test_work_is_balanced_and_memory_shrinks_with_the_devices():
    """Propositions 3.3 and 3.4: strictly balanced; of the vertices' rows every device has 1 / m."""
    peaks = {}
    for devices in (1, 2, 8, 32):
        setting = even_setting(devices)
        trace = run(setting, sampler_schedule="naive")
        (epoch,) = trace.epochs
        assert imbalance(epoch.work_by_device) == 1.0
        graph = setting.dataset.graph
        fixed = 4 * (graph.num_vertices + 1 + graph.num_edges) + 2 * setting.parameter_bytes
        (peaks[devices],) = {
            trace.peak_bytes[device.name] - fixed for device in setting.platform.accelerators
        }
    assert all(size * devices == peaks[1] for devices, size in peaks.items())


@pytest.mark.parametrize(
    ("shards", "fault"),
    [
        ([Shard(0, (0, 4), (0, 2)), Shard(1, (0, 4), (2, 6))], None),
        ([Shard(0, (0, 4), (0, 2)), Shard(1, (0, 4), (3, 6))], "in shards that have 20"),
        ([Shard(0, (0, 4), (0, 4)), Shard(1, (0, 4), (3, 6))], "4 more than once"),
        ([Shard(0, (0, 2), (0, 6)), Shard(0, (2, 4), (0, 6))], "two shards"),
    ],
)
def test_shards_must_cover_every_entry_once(shards, fault):
    found = find_shard_fault(shards, 4, 6)
    assert (found is None) if fault is None else (fault in found)


def test_stages_must_have_every_vertex(monkeypatch):
    cut = MixGCNSampler.chunks

    def leave_out_the_last(*given):
        made = cut(*given)
        return dataclasses.replace(made, rounds=made.rounds[:-1])

    monkeypatch.setattr(MixGCNSampler, "chunks", leave_out_the_last)
    with pytest.raises(PluginError, match=r"sampler 'mixgcn' has \d+ vertices in no unit"):
        run(setting_for(), sampler_stages=3)


@pytest.mark.parametrize(("workers", "length"), [(1, 7), (2, 7), (3, 0), (3, 30), (5, 1), (5, 7)])
def test_ring_adds_up_and_hands_round(workers, length):
    random = np.random.default_rng(workers)
    values = random.integers(0, 100, (workers, length))
    held = values.copy()
    sent = 0
    for adds, pieces in ring_steps(range(workers), length):
        moved = [held[source, begin:end].copy() for source, _, begin, end in pieces]
        for (_, target, begin, end), piece in zip(pieces, moved, strict=True):
            held[target, begin:end] = held[target, begin:end] * adds + piece
            sent += len(piece)
    assert np.array_equal(held, np.tile(values.sum(0), (workers, 1)))
    assert sent == 2 * (workers - 1) * length
