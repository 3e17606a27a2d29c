"""Caches of feature rows, which stay or come and go: what they serve, cost, say and refuse."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar

import numpy as np
import pytest

from gnnbench import plugins
from gnnbench.check.graphs import make_dataset, make_workload
from gnnbench.lowering.feature_cache import FeatureCache
from gnnbench.models import build
from gnnbench.parts import CacheMemory, CacheSession, Setting, Turnover
from gnnbench.price.dry_run import DryRun
from gnnbench.price.model_clock import ModelClock
from gnnbench.records import BoolArray, Fetch, IntArray, Parts, RoundTraffic
from gnnbench.run import train
from tests.uneven import make_uneven

REGISTRY = plugins.load()
ITEM = 8


def ids(*values):
    return np.array(values, dtype=np.int64)


class LeastRecentlyUsed(CacheSession):
    """Every row that was asked for comes in, and those asked for longest ago go."""

    def __init__(self, num_rows: Mapping[int, int]) -> None:
        super().__init__({slot: ids() for slot in num_rows}, num_rows)
        self._used: dict[int, OrderedDict[int, None]] = {slot: OrderedDict() for slot in num_rows}

    def turn_over(self, slot: int, asked: IntArray, found: BoolArray) -> Turnover:
        used, room = self._used[slot], self.num_rows[slot]
        admitted = asked[~found][:room].tolist()
        for vertex in asked[found].tolist():
            used.move_to_end(vertex)
        count = max(0, len(used) + len(admitted) - room)
        evicted = [used.popitem(last=False)[0] for _ in range(count)]
        used.update(dict.fromkeys(admitted))
        return Turnover(ids(*admitted), ids(*evicted))


@dataclass(frozen=True)
class LruMemory(CacheMemory):
    name: ClassVar[str] = "lru"
    summary: ClassVar[str] = "rows asked for last stay"

    def open(self, setting: Setting, num_rows: Mapping[int, int]) -> CacheSession:
        limits = {slot: min(count, 25) for slot, count in num_rows.items()}
        return LeastRecentlyUsed(limits)


def make_setting(devices=2, epochs=2):
    workload = replace(make_workload("gcn", 2), epochs=epochs)
    platform = make_uneven(devices)
    return Setting(make_dataset(), platform, workload, build(workload).shapes)


def make_bundle(memory, communication="vanilla", placement="data-parallel"):
    parts = Parts("neighbour", placement, communication, "host", "torch")
    return replace(plugins.assemble(REGISTRY, parts, {}), memory=memory)


def units_by_round(setting, epoch):
    """By round, the vertices whose rows each trainer needs."""
    bundle = make_bundle(LruMemory())
    bundle.begin(setting)
    shares = bundle.placement.open(setting, [], 0)
    for seeds in bundle.sampler.rounds(epoch):
        blocks = {
            share.slot: bundle.sampler.sample(part, epoch, 1)
            for share, part in shares.share_out(seeds)
            if len(part)
        }
        yield {slot: (np.sort(drawn[0].src_ids), drawn) for slot, drawn in blocks.items()}


@cache
def train_with(communication, lru):
    setting = make_setting()
    memory = LruMemory() if lru else REGISTRY.part("memory", "host")()
    bundle = make_bundle(memory, communication)
    return train(bundle, setting, ModelClock(setting.platform, bundle.kernel))


@pytest.mark.parametrize("communication", ["vanilla", "hyscale"])
def test_training_with_rows_that_come_and_go_is_the_references_and_as_planned(communication):
    trace = train_with(communication, lru=True)
    one, other = (
        [loss for epoch in each.epochs for loss in epoch.round_losses]
        for each in (train_with("vanilla", lru=False), trace)
    )
    assert other == pytest.approx(one, rel=1e-9, abs=0)
    assert len(set(one)) == len(one)
    dry = DryRun(make_bundle(LruMemory(), communication), make_setting())
    for epoch in trace.epochs:
        foreseen = dry.run_epoch(epoch.epoch)
        assert foreseen.bytes == epoch.bytes
        assert [s.seconds for s in foreseen.spans] == [s.seconds for s in epoch.spans]


@pytest.mark.parametrize("communication", ["vanilla", "hyscale"])
def test_bytes_are_those_of_the_rows_that_were_not_there(communication):
    """By a cache of this test's own: a list of vertices, the one asked for last at its end."""
    setting, trace = make_setting(), train_with(communication, lru=True)
    row_bytes = setting.dataset.num_features * ITEM
    recent: dict[int, list[int]] = {0: [], 1: []}
    for number, epoch in enumerate(trace.epochs):
        missing = found = topology = kept = 0
        for units in units_by_round(setting, number):
            for slot, (asked, blocks) in units.items():
                there = recent[slot]
                hits = [v for v in asked.tolist() if v in there]
                misses = [v for v in asked.tolist() if v not in there]
                missing, found = missing + len(misses), found + len(hits)
                admitted = misses[:25]
                kept += len(admitted)
                recent[slot] = [v for v in there if v not in hits] + hits + admitted
                recent[slot] = recent[slot][max(0, len(recent[slot]) - 25) :]
                topology += sum(block.topology_bytes for block in blocks)
        assert found > 0
        assert epoch.bytes["reused"] == found * row_bytes
        assert epoch.bytes["host_to_device"] == topology + missing * row_bytes
        copied = [span.work for span in epoch.spans if span.label == "cache input rows"]
        assert sum(work.bytes for work in copied) == kept * row_bytes
    without = train_with(communication, lru=False).peak_bytes
    assert trace.peak_bytes["gpu0"] >= without["gpu0"] + 25 * row_bytes


def test_a_cache_is_read_before_it_changes_and_changed_before_it_is_read_again():
    setting = make_setting(devices=1, epochs=1)
    bundle = make_bundle(LruMemory(), "hyscale")
    (epoch,) = train(bundle, setting, ModelClock(setting.platform, bundle.kernel)).epochs
    reads = {s.round: s for s in epoch.spans if s.label == "assemble input rows"}
    writes = {s.round: s for s in epoch.spans if s.label == "cache input rows"}
    by_id = {span.id: span for span in epoch.spans}

    def before(span):
        found, left = set(), [span]
        while left:
            for earlier in left.pop().after:
                if earlier not in found:
                    found.add(earlier)
                    left.append(by_id[earlier])
        return found

    pairs = [(writes[r - 1], reads[r]) for r in reads if r - 1 in writes]
    pairs += [(reads[r], writes[r]) for r in reads if r in writes]
    assert len(pairs) > 2
    for earlier, later in pairs:
        assert earlier.id in before(later)


class Told(CacheSession):
    """Changes as it is told."""

    def __init__(self, kept, num_rows, turnover):
        super().__init__(kept, num_rows)
        self.turnover = turnover

    def turn_over(self, slot, asked, found):
        return self.turnover


@pytest.mark.parametrize(
    ("admitted", "evicted", "says"),
    [
        (ids(9), ids(), "did not ask for"),
        (ids(2), ids(), "has already"),
        (ids(5, 5), ids(), "has already"),
        (ids(5), ids(6), "does not have"),
        (ids(5), ids(0, 0), "does not have"),
        (ids(5, 7, 8), ids(), "has room for 2 rows, and 3 are to come in"),
    ],
)
def test_what_a_cache_cannot_do_is_refused(admitted, evicted, says):
    """Of ten vertices, rows 2, 0 and 1 are cached, and there are two places more."""
    cache = FeatureCache(10, Told({3: ids(2, 0, 1)}, {3: 5}, Turnover(admitted, evicted)))
    cache.keep(3, ids(2, 0, 1), 5)
    with pytest.raises(ValueError, match=says):
        cache.turn_over(3, ids(8, 7, 5, 2, 1))


def test_places_of_rows_that_go_are_taken_by_those_that_come():
    cache = FeatureCache(10, Told({3: ids(2, 0, 1)}, {3: 4}, Turnover(ids(5, 8), ids(0))))
    cache.keep(3, ids(2, 0, 1), 4)
    admission = cache.turn_over(3, ids(8, 2, 5))
    assert ids(8, 2, 5)[admission.rows].tolist() == [5, 8]
    assert sorted(admission.places.tolist()) == [1, 3]
    found = cache.find(3, ids(0, 1, 2, 5, 8)).tolist()
    assert found[:3] == [-1, 2, 0]
    assert found[3:] == admission.places.tolist()


def test_a_cache_larger_than_its_room_ends_the_run():
    class Greedy(LruMemory):
        def open(self, setting, num_rows):
            return LeastRecentlyUsed({slot: count + 1 for slot, count in num_rows.items()})

    setting = make_setting()
    bundle = make_bundle(Greedy())
    with pytest.raises(ValueError, match="which has room for"):
        train(bundle, setting, ModelClock(setting.platform, bundle.kernel))


def serve(cache, slot, *needed):
    fetch = Fetch(slot, ids(*needed), ids(*needed), ids())
    (served,) = cache.serve(RoundTraffic((fetch,), merged=True)).fetches
    return served


def test_the_hit_rate_is_of_the_rows_needed():
    cache = FeatureCache(10)
    cache.keep(3, ids(2, 0, 1))
    assert cache.notes({3: "gpu3"}) == ()
    serve(cache, 3, 1, 2, 5, 6, 7)
    serve(cache, 3, 0, 8, 9)
    (note,) = cache.notes({3: "gpu3"})
    assert "gpu3 3" in note
    assert "hit rate 37.5% of 8 rows needed" in note
    # A trainer without a cache needs rows too.
    serve(cache, 4, 0, 1)
    assert "hit rate 30.0% of 10 rows needed" in cache.notes({3: "gpu3"})[0]
