"""SALIENT: who prepares mini-batches, when they cross, what is kept, and what is refused.

Its epochs on the model clock are counted by hand in ``tests/price/test_hand_counts.py``.
"""

import dataclasses
from itertools import pairwise

import numpy as np
import pytest

from gnnbench.check.graphs import make_dataset, make_workload
from gnnbench.machines import load_platform
from gnnbench.price.dry_run import DryRun
from gnnbench.price.folds import digest
from gnnbench.price.model_clock import ModelClock
from gnnbench.run import train
from tests.systems.bundles import bundle_of, losses, setting_of
from tests.uneven import make_uneven

ITEM, HALF = 8, 2
#: Seeds of a round: nine and more rounds of the conformance graph.
BATCH = 2


def setting_for(model="sage", devices=2, epochs=2, dataset=None, platform=None):
    workload = dataclasses.replace(make_workload(model, 2, epochs), batch_size=BATCH)
    platform = platform or make_uneven(devices)
    return setting_of(dataset or make_dataset(), platform, workload)


def run(setting, name="salient", swaps=(), **options):
    """An epoch or more of training, to which a dry run is equal in all that it has."""
    bundle = bundle_of(name, swaps, **options)
    trace = train(bundle, setting, ModelClock(setting.platform, bundle.kernel, bundle.sampler))
    dry = DryRun(bundle_of(name, swaps, **options), setting)
    planned = dry.finish([dry.run_epoch(number) for number in range(len(trace.epochs))])
    assert planned.peak_bytes == trace.peak_bytes
    for here, there in zip(trace.epochs, planned.epochs, strict=True):
        assert there.bytes == here.bytes
        assert epoch_s(there, setting) == pytest.approx(epoch_s(here, setting), rel=1e-12)
    return trace


def epoch_s(epoch, setting):
    return digest(epoch, "modelled", setting.platform).epoch_s


def draw(setting, epoch=0):
    sampler = bundle_of("salient").sampler
    sampler.begin(setting)
    devices = len(setting.platform.accelerators)
    found = []
    for seeds in sampler.rounds(epoch):
        bounds = [len(seeds) * n // devices for n in range(devices + 1)]
        parts = [(slot, seeds[a:b]) for slot, (a, b) in enumerate(pairwise(bounds))]
        found.append({slot: sampler.sample(part, epoch, 1) for slot, part in parts if len(part)})
    return found


@pytest.mark.parametrize(("model", "devices"), [("gcn", 1), ("sage", 3), ("gat", 3)])
def test_losses_are_the_references(model, devices):
    setting = setting_for(model, devices)
    found = losses(run(setting, sampler_workers=2))
    expected = losses(run(setting, "reference"))
    assert found == pytest.approx(expected, rel=1e-9, abs=0)
    blocking = losses(run(setting, communication_pipelined=False))
    assert blocking == pytest.approx(expected, rel=1e-9, abs=0)


def test_half_precision_is_training_on_rounded_features():
    dataset = make_dataset()
    rounded = dataset.features.astype(np.float16).astype(dataset.features.dtype)
    assert not np.array_equal(rounded, dataset.features)
    found = losses(run(setting_for(), communication_precision="half"))
    on_rounded = setting_for(dataset=dataclasses.replace(dataset, features=rounded))
    assert found == pytest.approx(losses(run(on_rounded, "reference")), rel=1e-9, abs=0)
    assert found != pytest.approx(losses(run(setting_for(), "reference")), rel=1e-9, abs=0)


def test_the_host_keeps_features_in_half_precision():
    """All rows, and those of at most nine rounds that are loaded and not transferred."""
    setting = setting_for(devices=1, epochs=1)
    full, half = (run(setting, communication_precision=each) for each in ("full", "half"))
    read = [len(parts[0][0].src_ids) for parts in draw(setting)]
    staged = max(sum(read[begin : begin + 9]) for begin in range(max(1, len(read) - 8)))
    rows = setting.dataset.graph.num_vertices + staged
    saved = full.peak_bytes["host"] - half.peak_bytes["host"]
    assert saved == rows * setting.dataset.num_features * (ITEM - HALF)


def test_threads_take_rounds_in_turn_and_a_device_has_its_own():
    setting = setting_for(devices=2, epochs=1)
    (epoch,) = run(setting, sampler_workers=3).epochs
    named = {
        (span.round, span.label, resource)
        for span in epoch.spans
        for resource in span.resources
        if span.label in ("sample", "load features")
    }
    assert named == {
        (number, label, f"host.prepare {slot}.{number % 3}")
        for number, parts in enumerate(draw(setting))
        for slot in parts
        for label in ("sample", "load features")
    }


def test_every_node_has_all_features_and_no_row_crosses_the_network():
    platform = load_platform("epyc7763x4-8xa5000")
    setting = setting_for(epochs=1, platform=platform)
    (alone,) = run(setting).epochs
    assert not any(
        span.stage == "load" and span.place.startswith("node0-node1") for span in alone.spans
    )
    assert not alone.bytes["host_to_host"]
    shared = run(setting, swaps=(("memory", "host"),))
    assert shared.epochs[0].bytes["host_to_host"] > 0
    assert losses(run(setting)) == pytest.approx(losses(shared), rel=1e-9, abs=0)
    features = setting.dataset.graph.num_vertices * setting.dataset.num_features * ITEM
    more = run(setting).peak_bytes["node1"] - shared.peak_bytes["node1"]
    assert more >= features // 2 - features // 8


@pytest.mark.parametrize(
    ("name", "options", "devices"),
    [
        ("salient", {}, 0),
        ("hyscale", {}, 2),
        ("hyscale", {"placement_cpu_trainer": False, "placement_drm": False}, 2),
    ],
)
def test_where_the_host_trains_or_its_threads_are_divided_all_share_each_mini_batch(
    name, options, devices
):
    setting = setting_for(devices=devices, epochs=1)
    trace = run(setting, name, (("sampler", "salient"),), **options)
    assert any("all threads share each mini-batch" in note for note in trace.notes)
    resources = {name for span in trace.epochs[0].spans for name in span.resources}
    assert not any(".prepare " in name for name in resources)
    assert losses(trace) == pytest.approx(losses(run(setting, "reference")), rel=1e-9, abs=0)
