"""ROC: what a vertex costs, the cuts by it, and what waits on the host between the passes."""

import dataclasses
import itertools
import re

import numpy as np
import pytest

from gnnbench.check.graphs import make_platform
from gnnbench.datasets import from_arrays
from gnnbench.errors import DeviceOutOfMemoryError
from gnnbench.machines.tables import replace_fields
from gnnbench.parts import DeviceMemory
from gnnbench.price.model_clock import ModelClock
from gnnbench.program import Free, Hold
from gnnbench.records import Graph
from gnnbench.run import train
from gnnbench_plugins.reference.sampler import balance_ranges
from gnnbench_plugins.roc.cost import VertexFeatures, cut_evenly, learn_weights
from gnnbench_plugins.roc.memory import RocMemory, find_least
from tests.systems import training
from tests.systems.training import assert_same_training, list_before, make_setting, prepare
from tests.uneven import on_cpus


def graph_of(rows):
    lengths = [len(row) for row in rows]
    indices = np.array([u for row in rows for u in row], dtype=np.int32)
    return Graph(np.concatenate(([0], np.cumsum(lengths))).astype(np.int64), indices)


def setting_of(model="gcn", accelerators=2, epochs=1):
    return training.setting_for(model, accelerators, epochs=epochs, dims=(7, 12, 10, 3))


def bundle_of(**options):
    return training.bundle_of("roc", **options)


def run(setting, swaps=(), **options):
    return training.run(setting, "roc", swaps, **options)


def peaks_of(trace, setting):
    return [trace.peak_bytes[device.name] for device in setting.platform.accelerators]


def test_features_of_a_vertex_by_hand():
    """Neighbours 1, 2, 3, 7 are two blocks; rows of 20 values are 60 and 20 of them, which a warp
    of 32 loads in 2 and in 1 accesses, and ids in 1 and 1. Forty neighbours in a row are one block:
    2 accesses of ids, and 800 values, 25."""
    rows = [[1, 2, 3, 7], [], [5], *([[]] * 5), list(range(100, 140)), *([[]] * 140)]
    features = VertexFeatures(graph_of(rows), (20, 1))
    bounds = np.array([0, 1, 2, 3, 8, 9, 149])
    assert features.of_ranges(0, bounds).tolist() == [
        [1, 4, 2, 2, 3],
        [1, 0, 0, 0, 0],
        [1, 1, 1, 1, 1],
        [5, 0, 0, 0, 0],
        [1, 40, 1, 2, 25],
        [140, 0, 0, 0, 0],
    ]
    assert features.of_ranges(1, bounds)[:, 4].tolist() == [2, 0, 1, 0, 2, 0]
    # Whatever ranges: they add up.
    assert features.of_ranges(0, np.array([0, 149])).tolist() == [[149, 45, 4, 5, 29]]
    cost = features.cost([np.array([1.0, 0, 0, 0, 10]), np.array([0, 100.0, 0, 0, 0])])
    assert np.diff(cost)[[0, 1, 2, 8]].tolist() == [1 + 30 + 400, 1, 1 + 10 + 100, 1 + 250 + 4000]


def test_blocks_end_with_their_rows():
    """3 after 2 in another row is another block."""
    features = VertexFeatures(graph_of([[2], [3], [], []]), (12,))
    assert features.of_ranges(0, np.array([0, 4]))[0, 2] == 2


def test_weights_are_those_that_times_were_made_of():
    random = np.random.default_rng(1)
    right = np.array([3e-9, 2e-10, 0.0, 5e-10, 1e-11])
    samples = [
        (sizes, sizes @ right)
        for sizes in (random.uniform(1, 1e5, (4, 5)) * [1, 10, 4, 6, 300] for _ in range(3))
    ]
    assert learn_weights(samples) == pytest.approx(right, rel=1e-6, abs=1e-14)
    # None is below zero, whatever the times.
    odd = [(sizes, sizes @ [1e-9, -1e-9, 0, 0, 0]) for sizes, _ in samples]
    assert (learn_weights(odd) >= 0).all()


def test_cuts_are_where_half_is_spent():
    assert cut_evenly(np.array([0.0, 1, 1, 1, 4, 8]), 2).tolist() == [0, 4, 5]
    assert cut_evenly(np.array([0.0, 6, 7, 8, 9]), 3).tolist() == [0, 1, 1, 4]


def lopsided():
    """Half of the vertices have all edges, so that balanced edges leave UPDATE unbalanced."""
    random = np.random.default_rng(4)
    edges = random.integers(0, 300, (2, 6000))
    features = random.normal(size=(1200, 256)).astype(np.float32)
    labels = random.integers(0, 4, 1200)
    return from_arrays(edges, features, labels, num_vertices=1200)


def busiest_over_mean(trace, devices):
    busy = dict.fromkeys(devices, 0.0)
    for span in trace.epochs[0].spans:
        if span.stage in ("aggregate", "update") and span.place in busy:
            busy[span.place] += span.seconds
    return max(busy.values()) / np.mean([*busy.values()])


def test_learned_cuts_are_evener_than_balanced_edges():
    # Devices are equal, as ROC's are. Launches are no vertex's, and the graph is small.
    platform = make_platform(4)
    devices = tuple(replace_fields(each, launch_s=0.0) for each in platform.accelerators)
    platform = dataclasses.replace(platform, accelerators=devices)
    setting = make_setting(lopsided(), platform, "gcn", 3, 1, dims=(256, 12, 10, 4))
    names = [device.name for device in devices]
    plain, learned = (
        busiest_over_mean(run(setting, sampler={"learned": count}), names) for count in (0, 6)
    )
    assert plain > 1.15
    assert learned - 1 < (plain - 1) / 3
    (note,) = (note for note in run(setting).notes if "costs learned" in note)
    found = re.search(r"is (\d[\d.]*) % over the mean; with balanced edges it is (\d+) %", note)
    assert found is not None, note
    assert float(found[1]) == pytest.approx(
        100 * (busiest_over_mean(run(setting), names) - 1), abs=0.6
    )
    assert float(found[2]) == pytest.approx(100 * (plain - 1), abs=0.6)


def test_nothing_is_learned_where_one_device_trains_or_none_is_asked_for():
    assert not any("learned" in note for note in run(setting_of(accelerators=1)).notes)
    setting = setting_of()
    bounds = bundle_of(sampler={"learned": 0}).begin(setting).sampler.cut(setting, 2)
    assert bounds.tolist() == balance_ranges(setting.dataset.graph, 2).tolist()


def try_all(kept, working, rows, free):
    """The least that crosses, by trying every choice but that of the last layer."""
    best = None
    for count in range(len(kept)):
        for chosen in itertools.combinations(range(len(kept) - 1), count):
            stays = sum(size for layer, size in enumerate(kept) if layer not in chosen)
            most = max(
                beside + kept[n] * (n in chosen) + (rows[n - 1] if n - 1 in chosen else 0)
                for n, beside in enumerate(working)
            )
            crossing = sum(kept[layer] for layer in chosen)
            if stays + most <= free and (best is None or crossing < best):
                best = crossing
    return best


def test_the_fewest_bytes_cross_that_make_room():
    random = np.random.default_rng(7)
    swapped = 0
    for _ in range(400):
        layers = int(random.integers(1, 7))
        kept, working, rows = random.integers(1, 30, (3, layers)).tolist()
        free = int(random.integers(5, 120))
        found, best = (choose(kept, working, rows, free) for choose in (find_least, try_all))
        assert (found is None) == (best is None)
        if found is not None:
            assert sum(kept[layer] for layer in found) == best
            assert len(kept) - 1 not in found
            swapped += bool(found)
    assert swapped > 40


@pytest.mark.parametrize(
    ("model", "kernel"),
    [
        ("gcn", "torch"),
        ("gcn", "native"),
        ("sage", "native"),
        ("gin", "torch"),
        ("gat", "native"),
        ("ggcn", "torch"),
        ("commnet", "native"),
    ],
)
def test_swapping_changes_no_bit(model, kernel):
    setting = on_cpus(setting_of(model, epochs=2))
    plain, swapped = (
        run(setting, {"kernel": kernel}.items(), memory={"swap": swap}) for swap in ("none", "all")
    )
    assert_same_training(swapped, plain, rtol=0)
    assert_same_training(plain, training.run(setting, "reference"))
    moved = swapped.epochs[0].bytes
    assert moved["device_to_host"] == moved["host_to_device"] > 0
    assert plain.epochs[0].bytes["device_to_host"] == 0


def test_bytes_and_memory_by_hand():
    """GCN, float64, two devices: of layers 1 and 2 the aggregate, which W's gradient needs, and
    the output, which ReLU's does, cross both ways, and the host has room for both of both.

    A device has all three layers' then no more: but the last one's, and of the others the one that
    is worked on, or, while a layer reads them, the output rows of the one below. Beside these are
    forward the input rows of a layer, and backward the gradients of its output, of its aggregate,
    of its input rows and of the rows below."""
    setting = setting_of()
    plain, swapped = (run(setting, memory={"swap": swap}) for swap in ("none", "all"))
    (f0, f1, f2, _), count = setting.workload.dims, setting.dataset.graph.num_vertices
    values = count * (f0 + f1 + f1 + f2)
    assert swapped.epochs[0].bytes["device_to_host"] == 8 * values
    host = setting.platform.host.name
    assert swapped.peak_bytes[host] - plain.peak_bytes[host] == 8 * values
    dims, graph = setting.workload.dims, setting.dataset.graph
    bounds = bundle_of().begin(setting).sampler.cut(setting, 2)
    for device, begin, end in zip(setting.platform.accelerators, bounds, bounds[1:], strict=False):
        own = set(range(begin, end))
        read = set(graph.indices[graph.indptr[begin] : graph.indptr[end]].tolist()) | own
        d, s = len(own), len(read)
        kept = [d * (a + b) for a, b in itertools.pairwise(dims)]
        forward = [s * a for a in dims[:-1]]
        backward = [
            d * b + d * (a + b) + ((d + s) * a if layer else 0)
            for layer, (a, b) in enumerate(itertools.pairwise(dims))
        ]
        rows = [0, d * dims[1], d * dims[2]]
        away = [kept[0], kept[1], 0]
        all_there = sum(kept) + max(*forward, *backward)
        some_away = kept[2] + max(
            *(f + r + k for f, r, k in zip(forward, rows, away, strict=True)),
            *(b + k for b, k in zip(backward, away, strict=True)),
        )
        saved = plain.peak_bytes[device.name] - swapped.peak_bytes[device.name]
        assert saved == 8 * (all_there - some_away) > 0


def test_output_rows_take_room_while_the_next_layer_reads_them():
    """Backward, a layer holds more than forward with these rows, so that no peak shows them."""
    setting = setting_of()
    bundle = bundle_of(memory={"swap": "all"})
    held: dict[str, list[int]] = {}
    freed: list[str] = []
    lowering, _ = prepare(setting, bundle)
    for item in lowering.run_epoch(0):
        if isinstance(item, Hold) and item.tensor.startswith("rows of layer"):
            held.setdefault(item.memory, []).append(item.size_bytes)
        elif isinstance(item, Free) and item.tensor.startswith("rows of layer"):
            freed.append(item.memory)
    own = np.diff(bundle_of().begin(setting).sampler.cut(setting, 2))
    _, hidden, other, _ = setting.workload.dims
    names = [device.name for device in setting.platform.accelerators]
    assert held == {
        name: [8 * count * hidden, 8 * count * other]
        for name, count in zip(names, own.tolist(), strict=True)
    }
    assert sorted(freed) == sorted(names * 2)


def test_as_little_is_swapped_as_makes_room():
    """Between what all takes and what nothing does, some layers are; and below, none is enough."""
    setting = setting_of()
    most, least = (
        max(peaks_of(run(setting, memory={"swap": swap}), setting)) for swap in ("none", "all")
    )
    crossed = []
    for capacity in (most, most - 1, (most + least) // 2, least):
        trace = run(setting, memory={"device_bytes": capacity})
        assert max(peaks_of(trace, setting)) <= capacity
        crossed.append(trace.epochs[0].bytes["device_to_host"])
    assert crossed[0] == 0 < crossed[1] <= crossed[2] <= crossed[3]
    with pytest.raises(DeviceOutOfMemoryError):
        run(setting, memory={"device_bytes": least // 2})


def test_the_next_layer_waits_for_what_crosses():
    spans = run(setting_of(), memory={"swap": "all"}).epochs[0].spans
    outs = [s for s in spans if s.label == "intermediates to host"]
    backs = [s for s in spans if s.label == "intermediates to device"]
    assert [(s.layer) for s in outs] == [0, 0, 1, 1]
    assert [(s.layer) for s in backs] == [1, 1, 0, 0]
    for out in outs:
        made = [s for s in spans if s.label == "update forward" and s.layer == out.layer]
        above = [s for s in spans if s.label == "aggregate forward" and s.layer == out.layer + 1]
        assert len(made) == 2
        assert {each.id for each in made} <= list_before(out, spans)
        assert all(out.id in list_before(each, spans) for each in above)
    for back in backs:
        used = [s for s in spans if s.label == "update backward" and s.layer == back.layer]
        assert all(back.id in list_before(each, spans) for each in used)
        before = {out.id for out in outs if out.layer == back.layer}
        assert before <= list_before(back, spans)


def test_a_host_that_trains_has_nothing_to_swap():
    trace = run(setting_of(accelerators=0), memory={"swap": "all"})
    assert trace.epochs[0].bytes["device_to_host"] == 0


@dataclasses.dataclass(frozen=True)
class Wrong(DeviceMemory):
    name = "wrong"
    swaps = True

    def choose_swapped(self, kept, working, rows, free_bytes):
        return frozenset({2})


def test_a_layer_that_cannot_be_swapped_is_said():
    setting = setting_of()
    bundle = dataclasses.replace(bundle_of(), memory=Wrong())
    with pytest.raises(ValueError, match="'wrong' chose layer 2 to be swapped, of those from 0 to"):
        train(bundle, setting, ModelClock(setting.platform, bundle.kernel))


def test_options_are_as_they_are_named():
    assert RocMemory(swap="none").choose_swapped([9, 9], [1, 1], [2, 2], 0) == frozenset()
    assert RocMemory(swap="all").choose_swapped([9, 9, 9], [1, 1, 1], [2, 2, 2], 99) == {0, 1}
    assert RocMemory().choose_swapped([9, 9, 9], [1, 1, 1], [2, 2, 2], 99) == frozenset()
    # Where nothing makes room, everything that can waits on the host.
    assert RocMemory().choose_swapped([9, 9, 9], [1, 1, 1], [2, 2, 2], 5) == {0, 1}
