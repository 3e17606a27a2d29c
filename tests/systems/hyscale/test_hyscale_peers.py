"""HyScale-GNN's peers (sections VI-E and VIII) and what lies past it: that all train alike, and
what each of them moves. Caches, columns of features, partitions, and rows rounded on their way."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnbench import datasets
from gnnbench.errors import StageFailedError
from gnnbench.lowering.footprint import mini_batch_bytes
from gnnbench.machines.tables import replace_fields
from gnnbench.parts import EverythingCrosses, Setting
from gnnbench.price.dry_run import DryRun
from gnnbench.price.model_clock import ModelClock
from gnnbench.price.wall_clock import WallClock
from gnnbench.records import RoundTraffic, Unit, Workload
from gnnbench.run import Training, train
from gnnbench.run.feature_cache import CachedRows
from gnnbench_plugins.hyscale.rounding import INT8_MAX, pack_rows, unpack_rows
from gnnbench_plugins.reference.communication import VanillaCommunication
from tests.sessions import on_open
from tests.systems.bundles import bundle_of, losses, run_bundle, setting_of
from tests.uneven import make_uneven

PEERS = ("pyg-multi-gpu", "pagraph", "p3", "distdgl-v2")
FEATURES, HIDDEN, CLASSES = 12, 8, 4
ITEM = 8
ROW = FEATURES * ITEM


@pytest.fixture(scope="module")
def graph():
    return datasets.load(f"sbm:vertices=400,edges=2400,features={FEATURES},classes={CLASSES}")


def setting_for(graph, devices=4, model="gcn", layers=2, **changed) -> Setting:
    workload = Workload(
        model=model,
        dims=(graph.num_features, *[HIDDEN] * (layers - 1), CLASSES),
        epochs=2,
        batch_size=40,
        fanouts=(5, 4, 3)[:layers],
        seed=3,
        dtype="float64",
        threads=1,
    )
    workload = replace(workload, **changed)
    return setting_of(graph, make_uneven(devices), workload)


def run(strategy, setting, swaps=(), **options):
    return run_bundle(bundle_of(strategy, swaps, **options), setting).trace


def units_of(strategy, setting, epoch=0):
    """The rounds of an epoch as a strategy with a static split makes them, without its CPU."""
    bundle = bundle_of(strategy)
    bundle = bundle.begin(setting)
    session = bundle.placement.open(setting, [], 0)
    return [
        [
            Unit(share.slot, bundle.sampler.sample(seeds, epoch, 1))
            for share, seeds in session.share_out(drawn)
            if len(seeds)
        ]
        for drawn in bundle.sampler.rounds(epoch)
    ]


@pytest.mark.parametrize(
    ("devices", "model", "layers"), [(0, "gcn", 2), (1, "gin", 1), (3, "gcn", 2), (8, "sage", 3)]
)
@pytest.mark.parametrize("name", PEERS)
def test_peers_train_as_one_device_does(graph, name, model, layers, devices):
    setting = setting_for(graph, devices, model, layers)
    expected = losses(run("reference", setting))
    assert losses(run(name, setting)) == pytest.approx(expected, rel=1e-9, abs=0)


@pytest.mark.parametrize(
    ("name", "swaps"),
    [
        ("pagraph", [("communication", "hyscale")]),
        ("hyscale", [("memory", "pagraph")]),
        ("p3", []),
        ("distdgl-v2", []),
    ],
)
def test_peers_train_alike_on_threads(graph, name, swaps):
    setting = setting_for(graph, 3)
    expected = losses(run("reference", setting))
    here = [replace(device, virtual=False) for device in setting.platform.devices]
    platform = replace(setting.platform, host=here[0], accelerators=tuple(here[1:]))
    bundle = bundle_of(name, swaps)
    trace = train(bundle, replace(setting, platform=platform), WallClock())
    assert losses(trace) == pytest.approx(expected, rel=1e-9, abs=0)


def test_multi_gpu_pyg_leaves_the_processor_out(graph):
    """Section VI-E1: the baseline "does not utilize the CPU to perform hybrid training"."""
    setting = setting_for(graph, 3)
    spans = run("pyg-multi-gpu", setting).epochs[0].spans
    places = {
        stage: {s.place for s in spans if s.stage == stage} for stage in ("load", "aggregate")
    }
    assert places == {"load": {"host"}, "aggregate": {"gpu0", "gpu1", "gpu2"}}
    placement = bundle_of("pyg-multi-gpu").placement
    handed = placement.open(setting, [], 0).share_out(np.arange(40))
    assert [share.seeds for share, _ in handed] == [13, 13, 14]


@pytest.mark.parametrize("part", [0.25, 1.0])
def test_distdgl_v2_maps_tasks_once(graph, part):
    """Section VI-E2: processor and accelerators, on partitions, by "a static task mapping"."""
    setting = setting_for(graph, 3)
    placement = bundle_of("distdgl-v2", placement_cpu_share=part).placement
    session = placement.open(setting, [], 0)
    plain = bundle_of("distdgl").placement.open(setting, [], 0)
    for drawn in np.split(graph.train_ids[:90], 3):
        *shares, (cpu, on_cpu) = session.share_out(drawn)
        assert cpu.slot == 3
        assert cpu.seeds == len(on_cpu)
        kept_whole = [seeds for _, seeds in plain.share_out(drawn)]
        assert [len(seeds) for _, seeds in shares] == [
            len(whole) - round(part * len(whole)) for whole in kept_whole
        ]
        for (share, seeds), whole in zip(shares, kept_whole, strict=True):
            assert share.seeds == len(seeds)
            assert seeds.tolist() == whole[: len(seeds)].tolist()
        together = np.concatenate([on_cpu, *(seeds for _, seeds in shares)])
        assert sorted(together.tolist()) == sorted(drawn.tolist())


def crossing_with_cache(setting, rows):
    return crossing_beside(
        setting, np.argsort(-setting.dataset.graph.degrees, kind="stable")[:rows]
    )


def crossing_beside(setting, hottest):
    """By counting: topology, and feature rows that cross and that are found, in the first epoch."""
    topology = needed = found = 0
    for units in units_of("pagraph", setting):
        for unit in units:
            topology += sum(block.topology_bytes for block in unit.blocks)
            needed += len(unit.input_ids)
            found += int(np.isin(unit.input_ids, hottest).sum())
    return topology, needed - found, found


@pytest.mark.parametrize("rows", [0, 50, 400])
def test_only_rows_that_miss_the_cache_cross(graph, rows):
    setting = setting_for(graph)
    topology, missing, found = crossing_with_cache(setting, rows)
    swaps = [("memory", "host")] if not rows else []
    options = {} if not rows else {"memory_cache_bytes": rows * ROW}
    trace = run("pagraph", setting, swaps, **options)
    counted = trace.epochs[0].bytes
    loads = [span.work.bytes for span in trace.epochs[0].spans if span.stage == "load"]
    assert sum(loads) == missing * ROW
    assert counted["host_to_device"] == topology + missing * ROW
    assert counted["reused"] == found * ROW
    if rows:
        (note,) = [note for note in trace.notes if "hit rate" in note]
        assert f"gpu0 {rows:,}" in note


@pytest.mark.parametrize(("devices", "epochs"), [(1, 3), (4, 1)])
def test_rows_that_were_read_most_often_before_the_run_are_cached(graph, devices, epochs):
    """GNNLab's PreSC#K, on mini-batches of which none is trained on."""
    setting = setting_for(graph, devices)
    read = np.zeros(graph.graph.num_vertices, dtype=int)
    for epoch in range(epochs):
        for units in units_of("pagraph", setting, 2**30 + epoch):
            for unit in units:
                read[np.unique(unit.input_ids)] += 1
    cached = sorted(range(len(read)), key=lambda vertex: (-read[vertex], vertex))[:80]
    topology, missing, found = crossing_beside(setting, cached)
    assert (missing, found) != crossing_with_cache(setting, 80)[1:]
    options = {
        "memory_policy": "presampling",
        "memory_presampled": epochs,
        "memory_cache_bytes": 80 * ROW,
    }
    trace = run("pagraph", setting, **options)
    assert trace.epochs[0].bytes["host_to_device"] == topology + missing * ROW
    assert trace.epochs[0].bytes["reused"] == found * ROW
    expected = losses(run("reference", setting))
    assert losses(trace) == pytest.approx(expected, rel=1e-9, abs=0)
    dry = DryRun(bundle_of("pagraph", **options), setting)
    planned = [epoch for epoch, _ in dry.run_epochs(2)]
    assert [epoch.bytes for epoch in planned] == [epoch.bytes for epoch in trace.epochs]
    assert dry.finish(planned).peak_bytes == trace.peak_bytes


def test_found_rows_come_from_the_devices_own_copy(graph, monkeypatch):
    """Spoil the copies, and what is trained on them is spoilt."""
    setting = setting_for(graph)
    right = losses(run("pagraph", setting, memory_cache_bytes=50 * ROW))
    keep = CachedRows.keep

    def spoil(self, slot, copy):
        keep(self, slot, torch.zeros_like(copy))

    monkeypatch.setattr(CachedRows, "keep", spoil)
    wrong = losses(run("pagraph", setting, memory_cache_bytes=50 * ROW))
    assert abs(wrong[0] - right[0]) > 1e-6


def test_a_row_that_no_device_has_is_not_reused(graph):
    class Wishes(EverythingCrosses):
        def plan(self, round_, previous):
            fetches = super().plan(round_, previous).fetches
            return RoundTraffic(
                tuple(
                    replace(fetch, from_host=fetch.from_host[3:], reused=fetch.from_host[:3])
                    for fetch in fetches
                )
            )

    class Wishful(VanillaCommunication):
        def open(self, owner):
            return Wishes(owner)

    setting = setting_for(graph)
    bundle = replace(bundle_of("pyg-multi-gpu"), communication=Wishful())
    with pytest.raises(StageFailedError, match="must bring every row that is not there"):
        train(bundle, setting, ModelClock(setting.platform, bundle.kernel))


@pytest.mark.parametrize(("devices", "stages"), [(1, 2), (3, 0), (3, 1)])
def test_it_takes_what_mini_batches_leave(graph, devices, stages):
    """A run that fits without a cache fits with one; the more room there is the more is found."""
    setting = setting_for(graph, devices)
    prefetching = [("communication", "hyscale")]
    swaps = [*prefetching, ("memory", "host")]
    plain = run("pagraph", setting, swaps, communication_stages=stages).peak_bytes
    least = max(plain[f"gpu{slot}"] for slot in range(devices))
    found = []
    for room in (least, 2 * least, 3 * least, 30 * least):
        options = {"memory_device_bytes": room, "communication_stages": stages}
        trace = run("pagraph", setting, prefetching, **options)
        assert max(trace.peak_bytes[f"gpu{slot}"] for slot in range(devices)) <= room
        found.append(trace.epochs[0].bytes["reused"])
    assert found == sorted(found)
    assert found[0] == 0
    assert found[-1] == sum(
        len(unit.input_ids) * ROW for units in units_of("pagraph", setting) for unit in units
    )


@pytest.fixture(scope="module")
def make_room(graph):
    """Return a maker of settings, given how many rows above 50 each device has room for."""
    setting = setting_for(graph, 3)
    plain = run("pagraph", setting, [("memory", "host")]).peak_bytes
    least = max(plain[f"gpu{slot}"] for slot in range(3))

    def make(more):
        accelerators = tuple(
            replace_fields(device, memory_bytes=3 * least + (50 + rows) * ROW)
            for device, rows in zip(setting.platform.accelerators, more, strict=True)
        )
        return replace(setting, platform=replace(setting.platform, accelerators=accelerators))

    return make


def test_each_device_caches_what_its_own_memory_holds(graph, make_room):
    """The second has room for 200 rows more than the first, the third for 100 more."""
    more = (0, 200, 100)
    setting = make_room(more)
    trace = run("pagraph", setting)
    (note,) = [note for note in trace.notes if "hit rate" in note]
    cached = [int(count.replace(",", "")) for count in re.findall(r"gpu\d ([\d,]+)", note)]
    assert [count - cached[0] for count in cached] == list(more)
    assert 0 < cached[0] < cached[1] < graph.graph.num_vertices
    hottest = np.argsort(-graph.graph.degrees, kind="stable")
    found = needed = 0
    for units in units_of("pagraph", setting):
        for unit in units:
            needed += len(unit.input_ids)
            found += int(np.isin(unit.input_ids, hottest[: cached[unit.slot]]).sum())
    assert trace.epochs[0].bytes["reused"] == found * ROW
    rate = re.search(r"hit rate ([\d.]+)% of ([\d,]+) rows needed", note)
    assert rate is not None
    # Two epochs of different mini-batches.
    assert float(rate[1]) == pytest.approx(100 * found / needed, abs=3)


def test_a_mini_batch_is_planned_with_what_the_smallest_cache_misses(make_room):
    def count_fetched(*more):
        bundle, handed = bundle_of("pagraph"), []
        on_open(bundle.placement, lambda session, setting, profiles, _: handed.extend(profiles))
        setting = make_room(more)
        Training(bundle, setting, ModelClock(setting.platform, bundle.kernel))
        return handed[-1].fetched

    assert count_fetched(200, 0, 100) == count_fetched(0, 0, 0) > count_fetched(200, 200, 200)


@pytest.mark.parametrize("model", ["gcn", "sage", "gin"])
def test_mini_batches_take_what_is_foreseen(graph, model):
    setting = setting_for(graph, 1, model, 3, batch_size=1000, epochs=1)
    ((unit,),) = units_of("pyg-multi-gpu", setting)
    sizes = (setting.layers, unit.vertices, unit.edges, ITEM)
    foreseen = mini_batch_bytes(*sizes, prepared=1)
    held = run("pagraph", setting, [("memory", "host")]).peak_bytes["gpu0"]
    assert held == foreseen + 2 * setting.parameter_bytes


floats = st.floats(-1e6, 1e6, width=32)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(floats, min_size=3, max_size=3), min_size=1, max_size=6))
def test_int8_rounds_to_half_a_step_of_its_row(values):
    rows = torch.tensor(values, dtype=torch.float64)
    step = rows.abs().amax(dim=1, keepdim=True) / INT8_MAX
    crossed = pack_rows(rows, "int8")
    assert [part.dtype for part in crossed] == [torch.int8, torch.float32]
    error = (unpack_rows(crossed, torch.float64) - rows).abs()
    assert bool((error <= 0.5001 * step + 1e-30).all())


def test_float16_keeps_within_its_range():
    rows = torch.tensor([[1.0, -1e6, 1e6, 2.0**-30]], dtype=torch.float64)
    back = unpack_rows(pack_rows(rows, "float16"), torch.float64)
    assert back.tolist() == [[1.0, -65504.0, 65504.0, 0.0]]


NO_CPU = {"placement_cpu_trainer": "false", "placement_drm": "false"}


@pytest.mark.parametrize(
    ("precision", "dtype", "close"), [("float16", "float64", 1e-9), ("int8", "float32", 1e-5)]
)
def test_training_is_that_on_rounded_features(graph, precision, dtype, close):
    """The rounding is real: the losses are those of a graph whose features were rounded before."""
    setting = setting_for(graph, dtype=dtype)
    stored = torch.from_numpy(graph.features)
    rounded = unpack_rows(pack_rows(stored, precision), torch.float32).numpy()
    expected = losses(run("reference", replace(setting, dataset=replace(graph, features=rounded))))
    ours = losses(run("hyscale", setting, communication_precision=precision, **NO_CPU))
    assert ours == pytest.approx(expected, rel=close, abs=0)
    exact = losses(run("reference", setting))
    assert max(abs(a - b) / b for a, b in zip(ours, exact, strict=True)) > 2 * close


def test_the_cpu_trainer_reads_rows_as_they_are_stored(graph):
    setting = setting_for(graph, 2)
    ours = run(
        "hyscale",
        setting,
        placement_skew=1e9,
        placement_drm="false",
        communication_precision="int8",
    )
    cpu_alone = losses(run("reference", setting))
    assert ours.epochs[0].work_by_device.keys() == {"host"}
    assert losses(ours) == pytest.approx(cpu_alone, rel=1e-9, abs=0)


def test_on_the_host_alone_nothing_is_rounded(graph):
    setting = setting_for(graph, 0)
    bundle = bundle_of("hyscale", communication_precision="int8")
    assert bundle.other_maths(setting.platform) == ""
    ours = run("hyscale", setting, communication_precision="int8")
    assert losses(ours) == pytest.approx(losses(run("reference", setting)), rel=1e-9, abs=0)


@pytest.mark.parametrize("devices", [1, 3])
def test_p3_exchanges_products_instead_of_features(graph, devices):
    """(m - 1) hidden rows for each row of layer 1, and their gradients back; topology to all."""
    setting = setting_for(graph, devices)
    counted = run("p3", setting).epochs[0].bytes
    pushed = topology = 0
    for units in units_of("p3", setting):
        pushed += sum(unit.blocks[0].num_dst for unit in units)
        topology += sum(
            sum(block.topology_bytes for block in unit.blocks)
            + (devices - 1) * unit.blocks[0].topology_bytes
            for unit in units
        )
    assert counted["all_to_all"] == 2 * (devices - 1) * pushed * HIDDEN * ITEM
    assert counted["host_to_device"] == topology
    assert counted["device_to_device"] == counted["reused"] == 0
    # Weights of the first layer are nobody's copy.
    above = setting.parameter_bytes - FEATURES * HIDDEN * ITEM
    rounds = len(units_of("p3", setting))
    assert counted["all_reduce"] == 2 * (devices if devices > 1 else 0) * rounds * above


def test_p3_is_for_described_devices(graph):
    setting = setting_for(graph, 2)
    here = tuple(replace(d, torch_device="cuda:0") for d in setting.platform.accelerators)
    platform = replace(setting.platform, accelerators=here)
    said = bundle_of("p3").refusal(replace(setting, platform=platform))
    assert said is not None
    assert "is of this machine; choose a described platform" in said
