"""NeutronStar's hybrid of cached and communicated dependencies: what a device computes again, what
it reads of others, and that nothing but that differs from its two extremes.

Device i has the vertices V_i. Layer l reads h^{l-1} of its halo: R^l are computed by the device
itself, C^l are read of their owners.
"""

import dataclasses
from itertools import pairwise

import numpy as np
import pytest

from gnnbench.lowering.shards import ShardPlan
from gnnbench.machines.machine import RateCurve
from gnnbench.machines.tables import replace_fields
from gnnbench.models import build
from gnnbench.parts import Chunks, HaloTraffic, LayerShape
from gnnbench.price.dry_run import DryRun
from gnnbench.price.model_clock import ModelClock
from gnnbench.program import Hold
from gnnbench.records import AggregateWork, Block, CopyWork, Graph, Round, Unit
from gnnbench.units import format_si
from gnnbench_plugins.neutronstar import dependencies
from gnnbench_plugins.neutronstar.dependencies import Dependencies, Rules
from gnnbench_plugins.neutronstar.prices import Prices, price_rows
from tests.systems import training
from tests.systems.training import epoch_s, losses, prepare, sent, setting_for

ITEM = 8
DEVICES = 3
SPLITS = ("auto", "cached", "communicated")
#: The two extremes, and the strategies that they come to.
EXTREMES = {"partition": "communicated", "distdgl-full-graph": "cached"}


def bundle_of(**sampler):
    return training.bundle_of("neutronstar", sampler=sampler)


def run(setting, name="neutronstar", swaps=(), communication=None, **sampler):
    options = {"sampler": sampler, "communication": communication or {}}
    return training.run(setting, name, swaps, **{kind: o for kind, o in options.items() if o})


def cut(setting, **sampler):
    return bundle_of(**sampler).sampler.chunks(setting, len(setting.platform.accelerators))


def assert_the_same_program(ours, theirs):
    assert sent(ours) == sent(theirs)
    assert epoch_s(ours) == epoch_s(theirs)
    assert ours.peak_bytes == theirs.peak_bytes


@pytest.mark.parametrize(
    ("model", "num_layers", "devices", "features"),
    [
        ("gcn", 1, 3, "kept"),
        ("sage", 3, 8, "crossing"),
        ("sage", 3, 2, "kept"),
        ("gin", 4, 3, "crossing"),
        ("gat", 2, 8, "kept"),
        ("gat", 2, 1, "crossing"),
        ("ggcn", 3, 3, "crossing"),
        ("ggcn", 3, 8, "kept"),
    ],
)
def test_it_equals_full_graph_training(model, num_layers, devices, features):
    setting = setting_for(model, devices, num_layers, epochs=3)
    expected = losses(run(setting, "reference"))
    assert losses(run(setting, features=features)) == pytest.approx(expected, rel=1e-9, abs=0)


@pytest.mark.parametrize(
    ("communication", "options"),
    [
        ("cagnet", {}),
        ("pipegcn", {"staleness": 0}),
        ("sancus", {"staleness": 0}),
        ("sancus", {"metric": "embeddings", "change": 0}),
    ],
)
def test_other_exchanges_bring_the_rows_that_are_not_computed(communication, options):
    setting = setting_for(epochs=3)
    expected = losses(run(setting, "reference"))
    for split in ("auto", "communicated"):
        trace = run(
            setting, "neutronstar", [("communication", communication)], options, split=split
        )
        assert losses(trace) == pytest.approx(expected, rel=1e-9, abs=0)


@pytest.mark.parametrize("communication", ["pipegcn", "sancus", "distgnn"])
def test_with_every_row_read_stale_rows_are_those_of_the_partition(communication):
    setting, swaps = setting_for(epochs=5), [("communication", communication)]
    ours = run(setting, swaps=swaps, split="communicated", features="crossing")
    plain = run(setting, "partition", swaps)
    assert losses(ours) == losses(plain)
    assert_the_same_program(ours, plain)
    assert losses(ours) != pytest.approx(losses(run(setting, "reference")), rel=1e-9)


@pytest.mark.parametrize(("model", "num_layers"), [("gcn", 1), ("gcn", 3), ("gat", 2)])
@pytest.mark.parametrize("name", EXTREMES)
def test_an_extreme_is_the_strategy_that_it_comes_to(name, num_layers, model):
    """Losses are only close: sums are taken in another order where rows stand in another."""
    setting = setting_for(model, num_layers=num_layers)
    ours = run(setting, split=EXTREMES[name], features="crossing")
    plain = run(setting, name)
    assert sent(ours) == sent(plain)
    assert epoch_s(ours) == epoch_s(plain)
    assert losses(ours) == pytest.approx(losses(plain), rel=1e-10)
    # A layer that computes what the one above does shares its topology, which multi-hop's do not.
    if num_layers < 3 or name == "partition":
        assert ours.peak_bytes == plain.peak_bytes


def count_read(setting, chunks):
    """Values that cross in an epoch: of every layer what a block reads that its device has not
    computed, and backward as many but of features, those without what is kept."""
    total = 0
    for unit in chunks.rounds[0].units:
        own = np.flatnonzero(chunks.owner == unit.slot)
        there = np.concatenate((own, chunks.kept[unit.slot]))
        for number, block in enumerate(unit.blocks):
            ways = 2 if number else 1
            missing = set(block.src_ids.tolist()) - set(there.tolist())
            total += ways * len(missing) * setting.workload.dims[number]
            there = block.dst_ids
    return total


@pytest.mark.parametrize("features", ["kept", "crossing"])
@pytest.mark.parametrize("split", SPLITS)
def test_what_is_not_computed_crosses_and_nothing_else(split, features):
    setting = setting_for(num_layers=4)
    due = count_read(setting, cut(setting, split=split, features=features)) * ITEM
    trace = run(setting, split=split, features=features)
    expected = losses(run(setting, "reference"))
    assert losses(trace) == pytest.approx(expected, rel=1e-9, abs=0)
    assert sent(trace) == [due] * 2
    dry = DryRun(bundle_of(split=split, features=features), setting)
    planned = list(dry.run_epochs(2))
    assert [epoch.bytes for epoch, _ in planned] == [epoch.bytes for epoch in trace.epochs]
    assert [found.epoch_s for _, found in planned] == epoch_s(trace)
    assert dry.finish(()).peak_bytes == trace.peak_bytes


def test_blocks_have_all_in_edges_and_the_note_counts_their_rows():
    setting = setting_for(num_layers=4)
    graph, dims = setting.dataset.graph, setting.workload.dims
    chunks = cut(setting, split="auto", features="kept")
    halos = wanted = depend = 0
    spent = []
    for unit in chunks.rounds[0].units:
        own, kept = np.flatnonzero(chunks.owner == unit.slot), chunks.kept[unit.slot]
        halo = np.setdiff1d(unit.blocks[-1].src_ids, own)
        halos += len(halo)
        held = len(kept) * dims[0] * ITEM
        assert len(unit.blocks) == 4
        for block, width in zip(unit.blocks, map(sum, pairwise(dims)), strict=True):
            assert np.array_equal(np.diff(block.indptr), graph.degrees[block.dst_ids])
            assert np.array_equal(block.dst_ids[: len(own)], own)
            computed = block.dst_ids[len(own) :]
            wanted += int(np.isin(computed, halo).sum())
            depend += int((~np.isin(computed, halo)).sum())
            # An aggregate and an output, and 32 bits for the row and each in-edge.
            held += len(computed) * (width * ITEM + 4) + 4 * int(graph.degrees[computed].sum())
        assert np.array_equal(unit.output_ids, own)
        spent.append(held)
    assert wanted
    assert len(set(spent)) == DEVICES
    kept = sum(map(len, chunks.kept.values()))
    note = " ".join(run(setting, split="auto", features="kept").notes)
    assert f"of {3 * halos:,} remote rows" in note
    assert f"{wanted:,} are recomputed, with {depend:,} that these depend on" in note
    most = format_si(max(spent), "B")
    assert f"features of {kept:,} remote vertices are kept, at most {most} a device" in note


#: Vertex 0 is the device's own; 1 and 2 are its halo. 1 knows 3; 2 knows 3, 4 and 5.
EDGES = ((0, 1), (0, 2), (1, 3), (2, 3), (2, 4), (2, 5))
#: f = 2, 3, 3, 5; an aggregate is as wide as the input.
SHAPES = tuple(
    LayerShape(a, b, aggregate_features=a, parameters=0, macs_per_row=a * b, cacheable=True)
    for a, b in ((2, 3), (3, 3), (3, 5))
)


def make_star():
    ends = np.array([*EDGES, *((b, a) for a, b in EDGES)])
    ends = ends[np.lexsort((ends[:, 0], ends[:, 1]))]
    degrees = np.bincount(ends[:, 1], minlength=6)
    indptr = np.concatenate(([0], np.cumsum(degrees))).astype(np.int64)
    return Graph(indptr, ends[:, 0].astype(np.int32))


def decide(sent_s, split="auto", keeps=True, spare_bytes=None):
    """A vertex and an edge cost a second each; ``sent_s`` are what rows of h^0, h^1 and h^2 cost to
    be read of device 1."""
    owner = np.array([0, 1, 1, 1, 1, 1])
    prices = Prices((0, 1, 1), (0, 1, 1), np.array([[0.0, each] for each in sent_s]))
    rules = Rules(split, keeps, spare_bytes)
    found = Dependencies(make_star(), owner == 0, owner, SHAPES, 4, prices, rules)
    assert found.halo.tolist() == [1, 2]
    found.decide()
    return found, [np.flatnonzero(rows).tolist() for rows in found.cached]


@pytest.mark.parametrize(
    ("sent_s", "split", "keeps", "cached"),
    [
        # h^1 of 1 costs 1 + 2 edges, of 2 1 + 4. Either is there for h^2, computed or read: that of
        # 1 costs 3, and 3 for h^1 of 3; that of 2 costs 5, and 3 + 2 + 2 for h^1 of 3, 4 and 5.
        ((1, 3, 6), "auto", True, [[1, 2], [], []]),
        ((1, 3.1, 6), "auto", True, [[1, 2, 3], [1], []]),
        ((1, 3, 6.1), "auto", True, [[1, 2, 3], [3], [1]]),
        ((1, 3.1, 6.1), "auto", True, [[1, 2, 3], [1, 3], [1]]),
        # When h^2 of 1 has brought h^1 of 3, that of 2 costs 5 + 2 + 2, where it was to cost 12.
        ((1, 3.1, 9), "auto", True, [[1, 2, 3], [1, 3], [1]]),
        ((1, 3.1, 9.1), "auto", True, [[1, 2, 3, 4, 5], [1, 3, 4, 5], [1, 2]]),
        ((1, 5.1, 1), "auto", True, [[1, 2, 3, 4, 5], [1, 2], []]),
        # Features that cross are part of the cost. h^1 of 1 costs 3 and the feature of 3, which
        # nothing else reads. Then h^1 of 2 lacks the features of 4 and 5 alone.
        ((1, 4, 0), "auto", True, [[1, 2, 3], [1], []]),
        ((1, 4, 0), "auto", False, [[], [], []]),
        ((1, 4.1, 0), "auto", False, [[], [1], []]),
        ((1, 7, 0), "auto", False, [[], [1], []]),
        ((1, 7.1, 0), "auto", False, [[], [1, 2], []]),
        # The extremes take all and nothing; h^2 of 1 and 2 depends on everything.
        ((1, 0, 0), "cached", True, [[1, 2, 3, 4, 5], [1, 2, 3, 4, 5], [1, 2]]),
        ((1, 9, 99), "communicated", True, [[1, 2], [], []]),
        ((1, 9, 99), "communicated", False, [[], [], []]),
    ],
)
def test_rows_are_computed_while_that_is_cheaper_than_to_read_them(sent_s, split, keeps, cached):
    assert decide(sent_s, split, keeps)[1] == cached


def test_memory_bounds_what_is_computed():
    """A feature takes 2 values of 4 bytes. A row of h^1 an aggregate of 2 and an output of 3, and
    32 bits for itself and each in-edge: 20 + 4 + 8 of vertex 1, 20 + 4 + 16 of vertex 2."""
    feature, first, second = 2 * 4, 20 + 4 * 3, 20 + 4 * 5
    found, cached = decide((1, 6, 0))
    assert cached == [[1, 2, 3, 4, 5], [1, 2], []]
    assert found.spent_bytes == 5 * feature + first + second
    # The features of the halo come first, then the cheapest rows with the features they read.
    assert decide((1, 6, 0), spare_bytes=feature)[1] == [[1], [], []]
    assert decide((1, 6, 0), spare_bytes=2 * feature)[1] == [[1, 2], [], []]
    room = 3 * feature + first
    assert decide((1, 6, 0), spare_bytes=room - 1)[1] == [[1, 2], [], []]
    assert decide((1, 6, 0), spare_bytes=room)[1] == [[1, 2, 3], [1], []]
    room += 2 * feature + second
    assert decide((1, 6, 0), spare_bytes=room - 1)[1] == [[1, 2, 3], [1], []]
    assert decide((1, 6, 0), spare_bytes=room)[1] == cached


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("split", SPLITS)
def test_rows_are_chosen_together_as_they_are_one_by_one(split, keeps):
    """A bound that is never reached has each row measured by itself."""
    setting = setting_for(num_layers=4)
    owner = cut(setting).owner
    devices = setting.platform.accelerators
    for slot in range(DEVICES):
        prices = price_rows(setting.layers, setting.platform, devices, slot, ITEM)
        together, one_by_one = (
            Dependencies(
                setting.dataset.graph,
                owner == slot,
                owner,
                setting.layers,
                ITEM,
                prices,
                Rules(split, keeps, spare_bytes),
            )
            for spare_bytes in (None, 10**12)
        )
        together.decide()
        one_by_one.decide()
        assert np.array_equal(together.cached, one_by_one.cached)
        assert together.spent_bytes == one_by_one.spent_bytes


@pytest.mark.parametrize("share", [0, 10**9])
def test_neighbours_are_found_by_sorting_and_by_marks(share, monkeypatch):
    monkeypatch.setattr(dependencies, "MARKED_SHARE", share)
    graph = make_star()
    owner = np.array([0, 1, 1, 1, 1, 1])
    prices = Prices((0, 1, 1), (0, 1, 1), np.zeros((3, 2)))
    found = Dependencies(graph, owner == 0, owner, SHAPES, 4, prices, Rules("auto", True, None))
    for vertices in ([0], [1, 2], [5], [0, 1, 2, 3, 4, 5], []):
        rows = [graph.indices[graph.indptr[v] : graph.indptr[v + 1]].tolist() for v in vertices]
        expected = sorted(set().union(*rows))
        ids = np.array(vertices, dtype=np.int64)
        assert found._find_neighbours(ids).tolist() == expected


def test_prices_are_what_the_model_adds_for_a_row_more(slow_links):
    """Equations 11 and 12 at the device's own rates; a link costs the row there and back."""
    setting, slot = setting_for("sage"), 1
    curve = RateCurve((1, 64), (2e11, 8e11), (2e11, 8e11))
    first, own, last = setting.platform.accelerators
    device = replace_fields(own, aggregate=curve, update=curve)
    platform = dataclasses.replace(setting.platform, accelerators=(first, device, last))
    prices = price_rows(setting.layers, platform, platform.accelerators, slot, ITEM)
    kernel, clock = bundle_of().kernel, ModelClock(platform, bundle_of().kernel)
    for number, layer in enumerate(build(setting.workload).stack[:-1], start=1):
        width = layer.in_features

        def added(work, layer=layer):
            return kernel.seconds(work, device) - kernel.seconds(type(work)(), device)

        edge = added(AggregateWork(edges=1, features=width, itemsize=ITEM))
        assert prices.edge_s[number] == pytest.approx(edge * (1 if number == 1 else 2))
        products = 2 if number == 1 else 3
        update = added(layer.update_work(1, ITEM, products))
        assert prices.vertex_s[number] == pytest.approx(update)
        for peer, link in ((0, "nvlink0-1"), (2, "nvlink1-2")):
            empty = clock.seconds(CopyWork(), link, 0.0)
            sent_s = clock.seconds(CopyWork(bytes=width * ITEM), link, 0.0) - empty
            due = sent_s * (1 if number == 1 else 2)
            assert prices.sent_s[number - 1, peer] == pytest.approx(due, rel=1e-9)
    assert prices.sent_s[:, slot].tolist() == [0.0] * len(setting.layers)


def test_a_vertex_of_a_layer_that_multiplies_first_has_a_price_too():
    """GAT's product is in AGGREGATE, and its edges read as much as that makes of a row."""
    setting = setting_for("gat")
    devices = setting.platform.accelerators
    device, prices = devices[1], price_rows(setting.layers, setting.platform, devices, 1, ITEM)
    for number, layer in enumerate(setting.layers[:-1], start=1):
        macs = 3 * layer.in_features * layer.out_features
        assert prices.vertex_s[number] == pytest.approx(2 * macs / device.hardware.flops_per_s)
        read = 2 * layer.out_features * ITEM
        assert prices.edge_s[number] == pytest.approx(
            read / device.hardware.memory_bandwidth_bytes_per_s
        )


@pytest.mark.parametrize("split", SPLITS)
def test_a_device_holds_what_it_keeps_computes_and_reads(split):
    """Features, aggregates and outputs stay; rows and their gradients are in flight."""
    setting = setting_for()
    dims, depth = setting.workload.dims, setting.workload.num_layers
    chunks = cut(setting, split=split)
    lowering, ledger = prepare(setting, bundle_of(split=split))
    flying = {}
    for item in lowering.run_epoch(0):
        if isinstance(item, Hold):
            flying.setdefault(item.memory, []).append(item.size_bytes)
    reads = [
        any(
            set(unit.blocks[number].src_ids) - set(unit.blocks[number - 1].dst_ids)
            for unit in chunks.rounds[0].units
        )
        for number in range(1, depth)
    ]
    assert any(reads) == (split != "cached")
    for unit in chunks.rounds[0].units:
        name, own = f"gpu{unit.slot}", int((chunks.owner == unit.slot).sum())
        held = ledger.tensors(name)
        rows = own + len(chunks.kept[unit.slot])
        assert held["vertex features on the device"] == rows * dims[0] * ITEM
        assert rows == unit.blocks[0].num_src
        forward, backward = [], []
        for number, block in enumerate(unit.blocks):
            made = block.num_dst * (dims[number] + dims[number + 1])
            assert held[f"kept intermediates of layer {number + 1}"] == made * ITEM
            copied = block.num_src * dims[number] if number and reads[number - 1] else 0
            forward.append(copied * ITEM)
            below = unit.blocks[number - 1].num_dst * dims[number] if number else 0
            backward.append((block.num_dst * dims[number + 1] + made + below + copied) * ITEM)
        assert flying[name] == [*forward, *reversed(backward)]


def make_unit(*blocks):
    """Return a unit of the first device; blocks are destinations and other sources."""
    made = [
        Block(
            np.array([*dst, *others], dtype=np.int64),
            len(dst),
            np.zeros(len(dst) + 1, dtype=np.int64),
            np.empty(0, np.int32),
        )
        for dst, others in blocks
    ]
    return Unit(0, tuple(made))


TWICE = make_unit(([0, 1], []), ([0, 1], []))


@pytest.mark.parametrize(
    ("units", "sentence"),
    [
        ([make_unit(([1, 0, 2], []), ([0, 1], [2]))], "does not begin with"),
        ([make_unit(([0], [1, 2]), ([0, 1], [2]))], "does not begin with"),
        ([TWICE, TWICE], "must be alone on its device"),
    ],
)
def test_blocks_that_peers_could_not_read_are_refused(units, sentence):
    owner = np.array([0, 0, 1])
    other = dataclasses.replace(make_unit(([2], []), ([2], [])), slot=1)
    rounds = [Round(j, (unit, other) if j == 0 else (unit,)) for j, unit in enumerate(units)]
    session = HaloTraffic(owner)
    traffic = [session.plan(round_, None) for round_ in rounds]
    with pytest.raises(ValueError, match=sentence):
        ShardPlan(Chunks(tuple(rounds), owner), traffic, owner == 0, 2, broadcasts=False)
