"""SALIENT: who prepares mini-batches, when they cross, what is kept, and what is refused.

Its epochs on the model clock are counted by hand in ``tests/price/test_hand_counts.py``.
"""

from __future__ import annotations

import dataclasses
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from gnnbench import plugins
from gnnbench.comparison import Request, compare
from gnnbench.conformance.graphs import make_dataset, make_platform, make_workload
from gnnbench.errors import IncompatibleParts
from gnnbench.models import build
from gnnbench.parts import Setting
from gnnbench.platforms import load_platform
from gnnbench.price.dry_run import DryRun
from gnnbench.price.folds import digest
from gnnbench.price.model_clock import ModelClock
from gnnbench.ranking import group_runs
from gnnbench.records import Workload
from gnnbench.run import train

pytestmark = pytest.mark.usefixtures("one_thread")

ITEM, HALF = 8, 2
#: Seeds of a round: nine and more rounds of the conformance graph.
BATCH = 2


@cache
def registry():
    return plugins.load()


def setting_for(model="sage", devices=2, epochs=2, dataset=None, platform=None):
    workload = dataclasses.replace(make_workload(model, 2, epochs), batch_size=BATCH)
    platform = platform or make_platform(devices)
    return Setting(dataset or make_dataset(), platform, workload, build(workload).shapes)


def bundle_of(name="salient", swaps=(), **options):
    """With options as ``part_option``."""
    parts = registry().strategy(name).bundles["mini-batch"]
    parts = plugins.with_swap(registry(), parts, swaps)
    texts = {}
    for key, value in options.items():
        kind, _, option = key.partition("_")
        texts.setdefault(kind, {})[option] = str(value).lower()
    return plugins.assemble(registry(), parts, texts)


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


def losses(trace):
    return [loss for epoch in trace.epochs for loss in epoch.round_losses]


def draw(setting, epoch=0):
    """By round and device, the blocks of its part."""
    sampler = bundle_of().sampler
    sampler.begin(setting)
    devices = len(setting.platform.accelerators)
    found = []
    for seeds in sampler.rounds(epoch):
        bounds = [len(seeds) * n // devices for n in range(devices + 1)]
        parts = [(slot, seeds[a:b]) for slot, (a, b) in enumerate(pairwise(bounds))]
        found.append({slot: sampler.sample(part, epoch, 1) for slot, part in parts if len(part)})
    return found


# --------------------------------------------------------------------------- the same maths


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


def rank(strategies, options=None):
    """The rows of a comparison by their names, of one group that did the same work."""
    dataset = make_dataset()
    request = Request(
        strategies=strategies,
        dataset=dataset,
        workload=Workload("sage", (dataset.num_features, 8, dataset.num_classes), 2, 8, (3, 2), 0),
        platform=load_platform("epyc7763x2-4xa5000"),
        options=options or {},
    )
    (group,) = group_runs(compare(request, registry()))
    return {row.label: row for row in group.rows}


def test_rows_are_ranked_with_the_baselines_and_in_half_precision_are_not():
    rows = rank(("data-parallel", "pyg-multi-gpu", "salient"))
    assert [row.ranked for row in rows.values()] == [True] * 3
    seconds = {name: row.done[0].metrics["epoch_time"].value for name, row in rows.items()}
    assert seconds["salient"] < seconds["pyg-multi-gpu"]
    half = rank(("salient",), {"communication": {"precision": "half"}})["salient"]
    assert not half.ranked
    assert half.other_maths == "float16 features"


# --------------------------------------------------------------------------- what crosses and stays


@pytest.mark.parametrize(("precision", "size"), [("full", ITEM), ("half", HALF)])
def test_bytes_are_those_of_the_mini_batches_drawn(precision, size):
    setting = setting_for(devices=3, epochs=1)
    width = setting.dataset.num_features
    crossing = 0
    rounds = draw(setting)
    for parts in rounds:
        for blocks in parts.values():
            crossing += len(blocks[0].src_ids) * width * size
            crossing += sum(4 * (len(b.indptr) + len(b.indices)) for b in blocks)
    (epoch,) = run(setting, communication_precision=precision).epochs
    assert epoch.bytes["host_to_device"] == crossing
    # Of three in a ring each sends 2/3 of the gradients twice.
    assert epoch.bytes["all_reduce"] == len(rounds) * 3 * (4 * setting.parameter_bytes // 3)
    assert not epoch.bytes["device_to_host"]


def test_the_host_keeps_features_in_half_precision():
    setting = setting_for(devices=1, epochs=1)
    full, half = (run(setting, communication_precision=each) for each in ("full", "half"))
    rows = setting.dataset.graph.num_vertices * setting.dataset.num_features
    staged = [
        max(
            sum(len(parts[0][0].src_ids) for parts in window) * setting.dataset.num_features
            for window in windows(draw(setting), 9)
        )
    ]
    saved = full.peak_bytes["host"] - half.peak_bytes["host"]
    assert saved == (rows + staged[0]) * (ITEM - HALF)


def windows(rounds, count):
    """As many rounds in a row as are loaded and not transferred: one for each of the eight
    threads, and the one that is about to cross."""
    return [rounds[begin : begin + count] for begin in range(max(1, len(rounds) - count + 1))]


def test_a_device_has_the_mini_batch_in_use_and_the_next():
    setting = setting_for(devices=1, epochs=1)
    width = setting.dataset.num_features
    held = [
        sum(4 * (len(b.indptr) + len(b.indices)) for b in blocks)
        + len(blocks[0].src_ids) * width * ITEM
        for blocks in (parts[0] for parts in draw(setting))
    ]
    peaks = {
        pipelined: run(setting, communication_pipelined=pipelined).peak_bytes["gpu0"]
        for pipelined in (False, True)
    }
    few = run(setting, communication_pipelined=True, sampler_workers=1).peak_bytes["gpu0"]
    assert few == peaks[True]
    # The next one's rows, beside those of a mini-batch and all that is made of them.
    assert 0.5 * min(held) < peaks[True] - peaks[False] <= max(held)


# --------------------------------------------------------------------------- who prepares, and when


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


@pytest.mark.parametrize(("pipelined", "transferred"), [(True, 2), (False, 1)])
def test_more_rounds_are_let_in_than_there_are_threads_by_those_on_the_device(
    pipelined, transferred
):
    setting = setting_for(devices=1, epochs=1)
    options = {"sampler_workers": 3, "communication_pipelined": pipelined}
    spans = run(setting, **options).epochs[0].spans
    behind = {
        span.round - spans[earlier].round
        for span in spans
        if span.stage == "sample"
        for earlier in span.after
    }
    assert behind == {3 + transferred}


def test_transfers_overlap_training_and_nothing_else_stands_in_between():
    """A mini-batch crosses while the one before is trained on, or, where transfers block, never."""
    setting = setting_for(devices=1, epochs=1)
    for pipelined in (True, False):
        (epoch,) = run(setting, communication_pipelined=pipelined).epochs
        timeline = digest(epoch, "modelled", setting.platform).timeline
        crossing = [item for item in timeline if item.span.label == "host to device"]
        training = [item for item in timeline if item.span.place == "gpu0"]
        both = [
            (one.span.round, other.span.round)
            for one in crossing
            for other in training
            if one.start_s < other.end_s and other.start_s < one.end_s
        ]
        assert {one - other for one, other in both} == ({1} if pipelined else set())


def test_preparing_ahead_and_transferring_ahead_each_take_time_off():
    setting = setting_for(devices=2, epochs=1)
    steps = registry().strategy("salient").ablation
    taken = []
    for step in steps:
        options = {f"{kind}_{name}": value for kind, name, value in step.options}
        (epoch,) = run(setting, swaps=step.swaps, **options).epochs
        taken.append(epoch_s(epoch, setting))
    assert taken == sorted(taken, reverse=True)
    assert len(set(taken)) == len(taken) == 3


# --------------------------------------------------------------------------- several nodes


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


# --------------------------------------------------------------------------- what is said


@pytest.mark.parametrize(
    ("workers", "devices", "sentence"),
    [
        (-1, 1, "sampler.workers is -1 for each of 1 devices"),
        (9, 1, "has 8 cores; give 1 to 8, or 0 for all"),
        (3, 3, "sampler.workers is 3 for each of 3 devices.*give 1 to 2, or 0 for all"),
    ],
)
def test_threads_that_the_host_has_no_cores_for_are_refused(workers, devices, sentence):
    with pytest.raises(IncompatibleParts, match=sentence):
        DryRun(bundle_of(sampler_workers=workers), setting_for(devices=devices))


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
    assert any("here all threads share each mini-batch" in note for note in trace.notes)
    resources = {name for span in trace.epochs[0].spans for name in span.resources}
    assert not any(".prepare " in name for name in resources)
    assert losses(trace) == pytest.approx(losses(run(setting, "reference")), rel=1e-9, abs=0)
