"""HongTu §4: memories change where intermediates are kept and which bytes cross, not the maths.

``tests/run/test_engines.py`` holds the losses of every memory equal to plain training.
"""

import dataclasses
import os
from functools import cache

import pytest

from gnnbench import plugins
from gnnbench.errors import DeviceOutOfMemoryError, IncompatiblePartsError, PlatformError
from gnnbench.lowering.footprint import size_of
from gnnbench.lowering.working_sets import WorkingSets
from gnnbench.machines.tables import replace_fields
from gnnbench.price.folds import digest
from gnnbench.price.metrics import summarise
from gnnbench.price.model_clock import ModelClock
from gnnbench.records import AggregateWork, BlockSize, Parts
from gnnbench.run import host_resident, train
from gnnbench_plugins.hongtu.memory import RecomputingMemory
from tests.systems.training import assert_same_training, registry, setting_for
from tests.systems.training import run as run_parts


def parts_for(memory):
    communication = "halo" if memory == "hongtu-im" else "hongtu"
    return Parts("hongtu", "hongtu", communication, memory, "torch")


@cache
def with_disk(setting, bandwidth=1e9):
    host = replace_fields(setting.platform.host, disk_bandwidth_bytes_per_s=bandwidth)
    platform = dataclasses.replace(setting.platform, host=host)
    return dataclasses.replace(setting, platform=platform)


def run(memory, setting, chunks=3, **options):
    sampler = {"chunks_per_partition": chunks}
    return run_parts(setting, parts_for(memory), sampler=sampler, memory=options)


def cut(setting, slots, chunks):
    return registry().part("sampler", "hongtu")(chunks_per_partition=chunks).chunks(setting, slots)


def crossing(trace, label):
    return sum(s.work.bytes for s in trace.epochs[0].spans if s.label == label)


def test_a_layer_with_linear_aggregation_is_never_aggregated_twice():
    """§4.2, Figure 4 (c): caching a^l costs O(|V|) traffic and saves an aggregation a layer."""
    setting = setting_for("gcn", 2)
    hybrid, caching, recompute = (
        run(memory, setting) for memory in ("hongtu", "hongtu-cache", "hongtu-recompute")
    )
    assert hybrid.epochs[0].bytes == caching.epochs[0].bytes
    assert crossing(hybrid, "aggregates to host") == 60 * 8 * sum(setting.workload.dims[:-1])
    rows = [trace.epochs[0].bytes["host_to_device"] for trace in (hybrid, recompute)]
    assert rows[0] < rows[1]

    def aggregations(trace):
        spans = [s for s in trace.epochs[0].spans if isinstance(s.work, AggregateWork)]
        return len(spans), sum(span.stage == "recompute" for span in spans)

    # 2 x 3 units; forward in three layers, backward in all but the first; then forward once more.
    assert aggregations(hybrid) == (6 * 5, 0)
    assert aggregations(recompute) == (6 * 8, 6 * 3)


@dataclasses.dataclass(frozen=True)
class KeepingLast(RecomputingMemory):
    """A memory that keeps the last layer's intermediates on the device, and recomputes others."""

    def list_intermediates(self, layers):
        return (*super().list_intermediates(layers)[:-1], "keep")


def test_a_memory_may_treat_a_layer_by_its_place():
    """The last layer alone is not recomputed, and the plan says what is held."""
    setting = setting_for("gat", 2)
    parts = dataclasses.replace(parts_for("hongtu-recompute"), communication="vanilla")
    options = {"sampler": {"chunks_per_partition": "3"}, "memory": {"topology": "device"}}
    plain = plugins.assemble(registry(), parts, options)
    last = dataclasses.replace(plain, memory=KeepingLast(topology="device"))
    traces = [
        train(bundle, setting, ModelClock(setting.platform, bundle.kernel))
        for bundle in (plain, last)
    ]
    assert_same_training(*traces)
    recomputed = [
        {span.layer for span in trace.epochs[0].spans if span.stage == "recompute"}
        for trace in traces
    ]
    assert recomputed == [{0, 1, 2}, {0, 1}]
    rows = [trace.epochs[0].bytes["host_to_device"] for trace in traces]
    assert rows[0] > rows[1]

    bundle = last.begin(setting)
    sets = WorkingSets(bundle, setting.layers, setting.workload.itemsize)
    rounds = bundle.sampler.chunks(setting, 2).rounds
    for slot, device in enumerate(setting.platform.accelerators):
        units = [unit for round_ in rounds for unit in round_.units if unit.slot == slot]
        chunks = [size_of(unit.blocks[0]) for unit in units]
        assert traces[1].peak_bytes[device.name] == sets.device_bytes(chunks)


def test_caching_attention_moves_more_than_recomputing_it():
    """§4.2: O(|E|) intermediates on the host, for which HongTu falls back to recomputation."""
    setting = setting_for("gat", 2)
    hybrid, caching = (run(memory, setting) for memory in ("hongtu", "hongtu-cache"))
    saved = crossing(caching, "intermediates to host")
    assert crossing(caching, "intermediates to device") == saved
    # Scores and softmax of every edge and self loop alone, in three layers.
    graph = setting.dataset.graph
    assert saved > 3 * 2 * 8 * (graph.num_edges + graph.num_vertices)
    assert caching.peak_bytes["host"] > hybrid.peak_bytes["host"]
    more, less = (
        sum(trace.epochs[0].bytes[kind] for kind in ("host_to_device", "device_to_host"))
        for trace in (caching, hybrid)
    )
    assert more > less
    assert not any(s.stage == "recompute" for s in caching.epochs[0].spans)


def test_in_memory_training_does_not_touch_the_host_link():
    """§7.1, HongTu-IM: rows cross between devices only, each halo row once a layer and back."""
    setting = setting_for("gcn", 4)
    trace = run("hongtu-im", setting, chunks=1)
    assert_same_training(trace, run_parts(setting, "reference"))
    moved = trace.epochs[0].bytes
    assert moved["host_to_device"] == moved["device_to_host"] == 0
    (round_,) = cut(setting, 4, chunks=1).rounds
    halo = sum(unit.blocks[0].num_src - unit.blocks[0].num_dst for unit in round_.units)
    assert halo
    forward, backward = sum(setting.workload.dims[:-1]), sum(setting.workload.dims[1:-1])
    assert moved["device_to_device"] == halo * 8 * (forward + backward)


#: Bytes of the host that no tensor can be spilled from.
FIXED = 16_000


@pytest.mark.parametrize(
    ("model", "memory"),
    [("gcn", "hongtu"), ("gat", "hongtu"), ("gat", "hongtu-recompute"), ("gat", "hongtu-cache")],
)
def test_a_spilled_run_equals_the_unspilled_to_the_bit(model, memory, tmp_path):
    setting = with_disk(setting_for(model, 2))
    whole = run(memory, setting)
    held = whole.peak_bytes["host"]
    for budget in (held - 1, (held + FIXED) // 2, FIXED):
        trace = run(memory, setting, host_bytes=budget, spill_dir=tmp_path)
        assert trace.peak_bytes["host"] <= budget
        assert trace.peak_bytes["disk"] > 0
        assert_same_training(trace, whole, rtol=0)
        assert trace.epochs[0].bytes == whole.epochs[0].bytes
        (note,) = (note for note in trace.notes if note.startswith("spilled to disk: "))
        assert " of layer" in note
        on_disk = [span for span in trace.epochs[0].spans if span.place == "disk"]
        assert {span.label for span in on_disk} == {"read from disk", "write to disk"}
        assert all(span.seconds == span.work.bytes / 1e9 for span in on_disk)
    assert os.listdir(tmp_path) == []
    # The disk is a memory of its own in the ledger, and no device.
    assert model != "gcn" or trace.peak_bytes["disk"] > trace.peak_bytes["gpu0"]
    digests = [digest(epoch, "modelled") for epoch in trace.epochs]
    metrics, _ = summarise(trace, digests, "modelled", ["host"], None)
    peaks = [trace.peak_bytes[name] for name in ("gpu0", "gpu1")]
    assert peaks[0] != peaks[1]
    assert metrics["peak_device_bytes"].value == max(peaks)


def test_nothing_is_left_behind_by_a_run_that_fails(tmp_path, monkeypatch):
    seen = []

    def fail(self, number):
        seen.append(self._lowering.host.spilled)
        raise RuntimeError("in the midst of it")

    monkeypatch.setattr(host_resident.HostResidentEngine, "_clear_gradients", fail)
    with pytest.raises(RuntimeError, match="in the midst of it"):
        run("hongtu", with_disk(setting_for("gcn", 2)), host_bytes=FIXED, spill_dir=tmp_path)
    assert seen[0]
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("small", [0, 1])
def test_the_smallest_device_decides_where_topologies_wait(small):
    """Where an eighth of its memory holds those of its chunks, they stay on the devices."""
    setting = setting_for("gcn", 2)
    bundle = plugins.assemble(registry(), parts_for("hongtu"), {})
    graph, devices = setting.dataset.graph, list(setting.platform.accelerators)
    chunks = BlockSize(graph.num_vertices, 0, graph.num_edges // len(devices))
    size = max(bundle.kernel.adjacency_bytes(chunks, layer, 8) for layer in setting.layers)
    for less, where in ((0, "device"), (1, "host")):
        devices[small] = replace_fields(devices[small], memory_bytes=8 * size - less)
        platform = dataclasses.replace(setting.platform, accelerators=tuple(devices))
        memory, said = bundle.memory.settle(bundle, dataclasses.replace(setting, platform=platform))
        assert (memory.topology, len(said)) == (where, less)


@pytest.mark.parametrize("policies", [("recompute", "kept", "keep"), ("cache", "cache")])
@pytest.mark.parametrize("sampler", ["hongtu", "neugraph"])
def test_policies_that_are_unknown_or_too_few_are_refused(monkeypatch, policies, sampler):
    monkeypatch.setattr(RecomputingMemory, "list_intermediates", lambda self, layers: policies)
    parts = dataclasses.replace(
        parts_for("hongtu-recompute"), sampler=sampler, communication="vanilla"
    )
    listed = ", ".join(map(repr, policies))
    with pytest.raises(IncompatiblePartsError, match=f"has the policies {listed} for 3 layers"):
        run_parts(setting_for("gcn", 2), parts)


def test_memory_and_disks_that_do_not_serve_are_refused(tmp_path):
    setting = with_disk(setting_for("gcn", 2))
    with pytest.raises(DeviceOutOfMemoryError) as caught:
        run("hongtu", setting, host_bytes=5_000)
    assert caught.value.device == "host"
    with pytest.raises(IncompatiblePartsError, match="is not a directory; name one that exists"):
        run("hongtu", setting, spill_dir=tmp_path / "none")
    unknown = with_disk(setting_for("gcn", 2), 0.0)
    with pytest.raises(PlatformError, match="Add disk_bandwidth to its"):
        run("hongtu", unknown, host_bytes=FIXED)
    run("hongtu", unknown)
